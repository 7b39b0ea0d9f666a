"""Identities of changes, staging object and line, and the texts in which a record keeps those that it has counted.

Each is 24 hexadecimal digits, so that numbers of many records become one text and back without a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
_STORED = np.dtype([("object", ">u8"), ("line", ">u4")])
_DIGITS = 2 * _STORED.itemsize


@dataclass(frozen=True)
class Identities:
    """Identities, one after the other."""

    objects: Numbers
    lines: Numbers

    @classmethod
    def of(cls, objects: Any, lines: Any) -> Identities:
        """Those in two Arrow columns."""
        return cls(_numbers(objects), _numbers(lines))

    def take(self, rows: npt.NDArray[Any]) -> Identities:
        """Some of them."""
        return Identities(self.objects[rows], self.lines[rows])

    def followed_by(self, other: Identities) -> Identities:
        """These and others."""
        return Identities(np.concatenate([self.objects, other.objects]), np.concatenate([self.lines, other.lines]))


def identity_texts(identities: Identities, owners: Numbers, count: int) -> pa.Array:
    """A text for each of `count` owners, with the identities that it owns in their order; null where it owns none."""
    order = np.lexsort((identities.lines, identities.objects, owners))
    stored = np.empty(len(order), _STORED)
    stored["object"], stored["line"] = identities.objects[order], identities.lines[order]
    sizes = np.bincount(owners, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(sizes * _DIGITS)]).astype(np.int64)
    data = pa.py_buffer(stored.tobytes().hex().encode())
    large = pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), data)
    texts = large.cast(pa.string())
    return pa.compute.if_else(pa.array(sizes > 0), texts, pa.scalar(None, pa.string()))


def identities_in(texts: pa.Array) -> tuple[Identities, Numbers]:
    """All identities in some texts, and for each the number of its text."""
    lengths = pa.compute.fill_null(pa.compute.binary_length(texts), 0).to_numpy().astype(np.int64)
    whole = "".join(text for text in texts.to_pylist() if text)
    stored = np.frombuffer(bytes.fromhex(whole), _STORED)
    owners = np.repeat(np.arange(len(texts)), lengths // _DIGITS)
    return Identities(stored["object"].astype(np.int64), stored["line"].astype(np.int64)), owners


def _numbers(column: Any) -> Numbers:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)

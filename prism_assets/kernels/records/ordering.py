"""The order of records in their objects: by record file, visible ones first, then by key and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.parquet.sorting import Key, sort_keys
from prism_assets.kernels.records.sessions import Numbers

_WORD = 8


def record_order(parts: Numbers, keys: Sequence[pa.ChunkedArray]) -> Numbers:
    """The rows in the order of `parts`, and within a part in the order of `keys`, which are never null.

    Mostly the first bytes of a text decide; only rows that tie are compared as a whole. The stable sort is fast because
    rows come almost in order.
    """
    first = _first_key(keys[0])
    order = np.lexsort((first, parts))
    is_tied = np.zeros(len(order), bool)
    is_tied[1:] = (first[order[1:]] == first[order[:-1]]) & (parts[order[1:]] == parts[order[:-1]])
    if is_tied.any():
        runs = np.cumsum(~is_tied)
        places = np.flatnonzero(is_tied | np.append(is_tied[1:], False))
        rows = order[places]
        whole = [key for column in keys for key in sort_keys(column.take(pa.array(rows)))]
        order[places] = rows[np.lexsort((*reversed(whole), runs[places]))]
    return order


def _first_key(column: pa.ChunkedArray) -> Key | npt.NDArray[np.uint64]:
    """Numbers in the order of the column. Different values may share a number."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return sort_keys(column)[-1]
    words = [_first_words(chunk) for chunk in column.chunks]
    return np.concatenate(words) if words else np.zeros(0, np.uint64)


def _first_words(array: pa.Array) -> npt.NDArray[np.uint64]:
    """The first bytes of each text as a big-endian number, filled up with zeros."""
    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, offset_type, len(array) + array.offset + 1)[array.offset :].astype(np.int64)
    if not len(array) or data is None or offsets[-1] == offsets[0]:
        return np.zeros(len(array), np.uint64)
    padded = np.zeros(int(offsets[-1] - offsets[0]) + _WORD, np.uint8)
    padded[:-_WORD] = np.frombuffer(data, np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))
    at_each_byte = np.ndarray((len(padded) - _WORD + 1,), ">u8", padded, 0, (1,))
    words: npt.NDArray[np.uint64] = at_each_byte[offsets[:-1] - offsets[0]].astype(np.uint64)
    missing = np.maximum(_WORD - np.diff(offsets), 0).astype(np.uint64) * np.uint64(8)
    is_empty = missing == 64
    missing[is_empty] = 0
    words = (words >> missing) << missing
    words[is_empty] = 0
    return words

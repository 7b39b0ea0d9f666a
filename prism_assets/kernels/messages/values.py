"""The values of consecutive messages, many at once: most blocks are lines of JSON that are joined as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.kernels.json.blocks import count_line_ends

_BLANK = 32


@dataclass(frozen=True, eq=False)
class Values:
    """Values of messages. Null is a tombstone."""

    column: pa.BinaryArray

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Values:
        """Returns values that were unframed."""
        return cls(pa.array(values, pa.binary()))

    def __len__(self) -> int:
        return len(self.column)

    def at(self, place: int) -> bytes:
        """Returns one value. A tombstone has no bytes."""
        return self.column[place].as_py() or b""

    @cached_property
    def items(self) -> list[bytes | None]:
        """The values one by one."""
        found: list[bytes | None] = self.column.to_pylist()
        return found

    @property
    def tombstones(self) -> list[int]:
        """The places of tombstones."""
        if not self.column.null_count:
            return []
        found: list[int] = np.flatnonzero(self.column.is_null().to_numpy(zero_copy_only=False)).tolist()
        return found

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The bytes of each value."""
        return np.asarray(pc.fill_null(pc.binary_length(self.column), 0).to_numpy(), np.int64)

    @cached_property
    def heads(self) -> npt.NDArray[np.uint8]:
        """The first byte of each value, a blank for one without bytes."""
        _, offsets, content = self.column.buffers()
        heads = np.full(len(self), _BLANK, np.uint8)
        filled = self.lengths > 0
        if filled.any():
            starts = np.frombuffer(offsets, np.int32)[self.column.offset :][: len(self)]
            heads[filled] = np.frombuffer(content, np.uint8)[starts[filled]]
        return heads

    def joined(self) -> bytes | None:
        """Returns the values as lines, or None if one is a tombstone, or blank, or has a line end in it."""
        if self.column.null_count or not len(self) or self.heads.min() <= _BLANK:
            return None
        every = pa.ListArray.from_arrays(pa.array([0, len(self)], pa.int32()), self.column)
        data = b"".join((pc.binary_join(every, b"\n")[0].as_buffer(), b"\n"))
        return data if count_line_ends(data) == len(self) else None

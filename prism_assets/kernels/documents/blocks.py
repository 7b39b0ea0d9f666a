"""Blocks of records as JSON lines, so that later code reads and counts them as lines.

The number of a record is its place in the object, from 1, and the number of its line. Newlines between the tokens of a
record become spaces. A piece that is no record becomes a blank line and is quarantined alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from prism_assets.domain.streams.reasons import DUPLICATE_KEY, NO_RECORDS
from prism_assets.kernels.documents.scanner import Flag
from prism_assets.kernels.json.blocks import Block, Original, Positions

_REASONS = {Flag.NO_RECORDS: NO_RECORDS, Flag.DOUBLED: DUPLICATE_KEY}


def _nothing() -> Positions:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class DocumentBlock(Block):
    """Records as lines."""

    content: bytes = b""
    """The bytes of the object from `offset` on."""
    starts: Positions = field(default_factory=_nothing)
    """The first byte of each record in `content`."""
    ends: Positions = field(default_factory=_nothing)

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns a quarantined record as the object has it."""
        return self._piece(number - self.first_line)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all pieces with their numbers."""
        for place in range(len(self.starts)):
            yield self.first_line + place, self._piece(place)

    def first(self, most: int) -> DocumentBlock:
        """Returns the block with the first records alone."""
        lines = self.data.split(b"\n", most)[:most]
        return replace(
            self,
            data=b"\n".join([*lines, b""]),
            unread=tuple(item for item in self.unread if item.number < self.first_line + most),
            starts=self.starts[:most],
            ends=self.ends[:most],
        )

    def _piece(self, place: int) -> Original:
        start, end = int(self.starts[place]), int(self.ends[place])
        return Original(self.content[start:end], self.offset + start, end - start)


def reason_of(flag: int) -> str | None:
    """Returns why a piece with this flag is no record."""
    return _REASONS.get(Flag(flag))

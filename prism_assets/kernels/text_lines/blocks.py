"""Blocks of text lines as JSON lines, so that later code reads and counts them as lines.

A line keeps its number. A line that cannot be divided becomes an empty line and is quarantined alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from prism_assets.kernels.json.blocks import Block, Lines, Original, Positions, Unread, Whole


@dataclass(frozen=True)
class TextBlock(Block):
    """Text lines as JSON lines."""

    content: bytes = b""
    """The lines as the object has them, from `offset` on."""
    lines: Lines = field(default_factory=lambda: Lines(_nowhere(), _nowhere(), _nowhere()))
    """The lines in `content` that are records: no empty ones, and no header."""
    whole: Whole = bytes

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns a quarantined line with all its fields, with or without a column."""
        place = int(np.searchsorted(self.lines.numbers, number))
        original = self._piece(place)
        return Original(self.whole(original.content), original.offset, original.length)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all lines as the object has them."""
        for place, number in enumerate(self.lines.numbers.tolist()):
            yield number, self._piece(place)

    def without(self, broken: Sequence[tuple[int, str]]) -> TextBlock:
        """Returns the block with lines that have no fields: the place of each, and the reason."""
        numbers = self.lines.numbers
        unread = (Unread(int(numbers[place]), reason, self._piece(place)) for place, reason in broken)
        return replace(self, unread=tuple(unread)) if broken else self

    def _piece(self, place: int) -> Original:
        start, end = int(self.lines.starts[place]), int(self.lines.ends[place])
        return Original(self.content[start:end], self.offset + start, end - start)


def _nowhere() -> Positions:
    return np.zeros(0, np.int64)

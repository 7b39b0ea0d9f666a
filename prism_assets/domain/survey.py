"""What the lines of a sample say about their keys: counted by a look at the logs, read by whoever drafts a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

NANOSECONDS = "nanoseconds"
"""A unit of unix times that no column reads, and expressions make times of."""


class ValueKind(Enum):
    """What a value is, in the words of the comments of a drafted table file."""

    WHOLE = "whole numbers"
    HUGE = "whole numbers beyond 64 bits"
    FRACTION = "numbers with a fraction"
    BOOLEAN = "true or false"
    INSTANT = "times"
    DAY = "dates"
    TEXT = "text"
    NESTED = "nested"


@dataclass(kw_only=True)
class KeyEvidence:
    """What one key holds: how many values of each kind, null not counted, and the bytes of the longest as text.

    `numeric` are the texts that are numbers, and `rounded` the numbers that do not come back from a double. `unix` are
    the numbers, in quotes or not, that are likely unix times, by their unit. `beyond` counts values of more bytes than
    any column takes. `earliest` is the least instant of all that may be a time, in milliseconds of unix time, and
    `latest` the greatest.
    """

    key: str
    kinds: Counter[ValueKind] = field(default_factory=Counter)
    numeric: int = 0
    rounded: int = 0
    unix: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    beyond: int = 0
    earliest: int | None = None
    latest: int | None = None

    @property
    def values(self) -> int:
        """How many lines have a value."""
        return self.kinds.total()

    @property
    def numbers(self) -> int:
        """How many of the values are numbers, in quotes or not, that a column of times reads as unix times."""
        return self.kinds[ValueKind.WHOLE] + self.kinds[ValueKind.FRACTION] + self.numeric


@dataclass(kw_only=True)
class Survey:
    """Lines that were looked at: those that are JSON objects, and of the others how many for each reason.

    `has_more_keys` if these are only the first that came. `unsound` counts, by reason, the objects of which
    a conversion would set all lines aside, whatever they hold.
    """

    keys: dict[str, KeyEvidence] = field(default_factory=dict)
    has_more_keys: bool = False
    lines: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unsound: Counter[str] = field(default_factory=Counter)

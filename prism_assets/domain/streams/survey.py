"""Facts about keys in a sample of lines: counted by a survey, read by the draft of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

NANOSECONDS = "nanoseconds"
"""A unit of unix times that columns do not support, but expressions do."""


class ValueKind(Enum):
    """The kind of a value, in the words of a drafted table file's comments."""

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
    """The values of one key."""

    key: str
    kinds: Counter[ValueKind] = field(default_factory=Counter)
    """Values of each kind, without nulls."""
    numeric: int = 0
    """Texts that are numbers."""
    rounded: int = 0
    """Numbers that a double would change."""
    unix: Counter[str] = field(default_factory=Counter)
    """Numbers, quoted or not, that are probably unix times, by unit."""
    longest: int = 0
    """Bytes of the longest value as text."""
    beyond: int = 0
    """Values with more bytes than any column takes."""
    earliest: int | None = None
    """The least possible instant, in milliseconds of unix time."""
    latest: int | None = None
    """The greatest possible instant, in milliseconds of unix time."""

    @property
    def values(self) -> int:
        """How many lines have a value."""
        return self.kinds.total()

    @property
    def numbers(self) -> int:
        """How many values are numbers, in quotes or not, that a timestamp column would read as unix times."""
        return self.kinds[ValueKind.WHOLE] + self.kinds[ValueKind.FRACTION] + self.numeric


@dataclass(kw_only=True)
class Survey:
    """The lines of a sample."""

    keys: dict[str, KeyEvidence] = field(default_factory=dict)
    has_more_keys: bool = False
    """The sample has more keys than were kept."""
    lines: int = 0
    """Lines that are JSON objects."""
    records: str | None = None
    """The path to the records of documents, or None for lines."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Other lines by reason."""
    unsound: Counter[str] = field(default_factory=Counter)
    """Objects, by reason, whose lines a conversion would all quarantine."""

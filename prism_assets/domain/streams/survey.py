"""Facts about keys in a sample of lines: counted by a survey, read by the draft of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat
from prism_assets.domain.streams.text_lines import TextFormat

SURVEYED_LEVELS = 8
"""Levels that a survey looks at. The value of a line's key is at the first."""
SURVEYED_KEYS = 64
"""Keys of objects that a survey tells apart, for each place."""
NANOSECONDS = "nanoseconds"
"""A unit of unix times that columns do not support, but expressions do."""
ACCESS_LOG_TIME = "%d/%b/%Y:%H:%M:%S %z"
"""Times of access logs, such as 10/Oct/2000:13:55:36 -0700, for `strptime`."""


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
    access_log: int = 0
    """Texts that are times as access logs have them."""
    longest: int = 0
    """Bytes of the longest value as text."""
    beyond: int = 0
    """Values with more bytes than any column takes."""
    earliest: int | None = None
    """The least possible instant, in milliseconds of unix time."""
    latest: int | None = None
    """The greatest possible instant, in milliseconds of unix time."""
    inside: Inside | None = None
    """The values inside arrays and objects, if there are any and they were looked at."""

    @property
    def values(self) -> int:
        """How many lines have a value."""
        return self.kinds.total()

    @property
    def numbers(self) -> int:
        """How many values are numbers, in quotes or not, that a timestamp column would read as unix times."""
        return self.kinds[ValueKind.WHOLE] + self.kinds[ValueKind.FRACTION] + self.numeric

    def add(self, other: KeyEvidence) -> None:
        """Adds the values of another key. Values inside them are left out."""
        self.kinds += other.kinds
        self.numeric += other.numeric
        self.rounded += other.rounded
        self.unix += other.unix
        self.longest = max(self.longest, other.longest)
        self.beyond += other.beyond
        if other.earliest is not None and other.latest is not None:
            self.include(other.earliest, other.latest)

    def include(self, earliest: int, latest: int) -> None:
        """Adds instants, in milliseconds of unix time."""
        self.earliest = earliest if self.earliest is None else min(self.earliest, earliest)
        self.latest = latest if self.latest is None else max(self.latest, latest)


@dataclass(kw_only=True)
class Inside:
    """The values inside the arrays and the objects of one place."""

    arrays: int = 0
    elements: KeyEvidence | None = None
    """The elements of arrays. None without any, or if they were not looked at."""
    objects: int = 0
    keys: dict[str, KeyEvidence] = field(default_factory=dict)
    """Keys of objects, at most 64."""
    has_more_keys: bool = False
    """Objects have more keys. `others` has the values of all keys then, and `keys` nothing."""
    others: KeyEvidence = field(default_factory=lambda: KeyEvidence(key=""))
    doubled: int = 0
    """Objects with a key twice."""

    @property
    def values(self) -> KeyEvidence:
        """All values of objects, whatever their keys."""
        every = KeyEvidence(key="")
        for evidence in (self.others, *self.keys.values()):
            every.add(evidence)
        return every


@dataclass(kw_only=True)
class Survey:
    """The lines of a sample."""

    keys: dict[str, KeyEvidence] = field(default_factory=dict)
    has_more_keys: bool = False
    """The sample has more keys than were kept."""
    lines: int = 0
    """Lines that are JSON objects."""
    format: DocumentFormat | ParquetFormat | TextFormat | None = None
    """The format of the objects. None for lines of JSON."""
    around: dict[str, KeyEvidence] = field(default_factory=dict)
    """Keys around the records, by their sources such as `$outer.logGroup`."""
    has_large_documents: bool = False
    """Some objects begin with a document too large to be looked at as a whole."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Other lines by reason."""
    unsound: Counter[str] = field(default_factory=Counter)
    """Objects, by reason, whose lines a conversion would all quarantine."""

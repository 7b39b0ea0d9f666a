"""What a rewrite is: work that puts other objects in the place of objects of a table, under a number of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prism_assets.domain.files import MergedRange, SmallObject

MOST_PLANS = 5
"""How often a rewrite is planned, when others change its places as often as it is about to commit."""


class RewriteKind(Enum):
    """Why objects are replaced. Rewrites of records belong to a join table, all others to a day of a log."""

    FOLD = "fold"
    MERGE_RECORDS = "merge_records"
    ERASE_RECORDS = "erase_records"
    REBUILD_RECORDS = "rebuild_records"
    MERGE = "merge"
    RENAME = "rename"
    """Columns get other names or types in objects that are merged already."""
    WIDEN = "widen"
    """Objects with wider types are copied, and take no place yet."""
    ERASE = "erase"
    ADOPT = "adopt"
    """Timestamps in microseconds take the place of milliseconds."""
    REBUILD = "rebuild"
    """A day is converted again from its staging objects."""


class RewriteState(Enum):
    """How far a rewrite is. One that was dropped can never commit."""

    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class RewriteRecord:
    """What is recorded of a rewrite."""

    kind: RewriteKind
    state: RewriteState


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A rewrite of one day. Its number stands in the key of every object that it writes.

    No object is planned under an earlier definition than `definition_version`, nor with rows of the erasures up to
    `erasure_id`, the youngest of the table when the rewrite began.
    """

    rewrite_id: int
    kind: RewriteKind
    table_id: int
    partition_id: int
    definition_version: int
    erasure_id: int


@dataclass(frozen=True)
class SmallObjectPlace:
    """The place of a small object of a day. Its id never changes, whichever object stands there."""

    object_id: int


@dataclass(frozen=True)
class RangePlace:
    """The place of a merged object of a day: the bound above which its small objects lie."""

    lower_bound: int


Place = SmallObjectPlace | RangePlace


@dataclass(frozen=True, kw_only=True)
class Input:
    """An object that was read: where it stood, and the rewrite that had put it there, 0 for the first object."""

    place: Place
    rewrite_id: int

    @classmethod
    def of(cls, file: SmallObject | MergedRange) -> Input:
        """That of an object as PostgreSQL has it."""
        place = RangePlace(file.lower_bound) if isinstance(file, MergedRange) else SmallObjectPlace(file.object_id)
        return cls(place=place, rewrite_id=file.rewrite_id)


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """An object that is to stand in a place, in the stead of one that was read there or, with None, of no object.

    `inputs` are all objects that it was made of, with the one that it replaces.
    """

    place: Place
    replaces: Input | None
    file: SmallObject | MergedRange
    inputs: tuple[Input, ...]

    @classmethod
    def in_place_of(cls, before: SmallObject | MergedRange, file: SmallObject | MergedRange) -> Replacement:
        """An object that was made of the one alone that it replaces."""
        read = Input.of(before)
        return cls(place=read.place, replaces=read, file=file, inputs=(read,))


class Certificate(Enum):
    """What the objects of a rewrite must hold, compared with the objects that they were made of."""

    SAME_ROWS = "same rows"
    ROWS_LESS_ERASED = "rows less erased ones"
    NEW_ROWS = "new rows"
    """Merged objects must hold what their small objects hold."""

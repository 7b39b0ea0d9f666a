"""Rewrites: each puts new objects in the place of older ones, under a number of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prism_assets.domain.files.data_file import MergedRange, SmallObject

MOST_PLANS = 5
"""Plans of one rewrite at most. Others may change the places before each commit."""


class RewriteKind(Enum):
    """Why objects are replaced.

    The kinds `*_RECORDS` and FOLD belong to a join table. All others belong to a day of a log, except the commit of a
    widening and the erasure of quarantined lines, which belong to a table.
    """

    FOLD = "fold"
    MERGE_RECORDS = "merge_records"
    ERASE_RECORDS = "erase_records"
    REBUILD_RECORDS = "rebuild_records"
    MERGE = "merge"
    RENAME = "rename"
    """Columns get other names or types in merged objects."""
    WIDEN = "widen"
    """Merged objects get wider types of columns. Merges write the copies of each day under a number of the day. One
    more rewrite of this kind, of the whole table, commits all copies at once."""
    ERASE = "erase"
    ADOPT = "adopt"
    """Timestamps in microseconds take the place of milliseconds."""
    REBUILD = "rebuild"
    """A day is converted again from its staging objects."""
    REPAIR = "repair"
    """Small objects that are missing or damaged are converted again, with the same rows."""


class RewriteState(Enum):
    """The state of a rewrite. A dropped rewrite can never commit."""

    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class RewriteRecord:
    """The record of a rewrite in PostgreSQL."""

    kind: RewriteKind
    state: RewriteState


@dataclass(frozen=True, kw_only=True)
class TableRewrite:
    """A rewrite of any days of a table."""

    rewrite_id: int
    """The number in the keys of its objects. A widening commits copies with numbers of merges."""
    kind: RewriteKind
    table_id: int
    definition_version: int
    """No object is planned under an earlier definition."""
    erasure_id: int
    """The youngest erasure of the table at the begin. No object is planned with rows of erasures up to this one."""


@dataclass(frozen=True, kw_only=True)
class Rewrite(TableRewrite):
    """A rewrite of one day."""

    partition_id: int


@dataclass(frozen=True)
class SmallObjectPlace:
    """The place of a small object of a day. The id stays when another object takes the place."""

    object_id: int


@dataclass(frozen=True)
class RangePlace:
    """The place of a merged object of a day, named by the lower bound of the range."""

    lower_bound: int


Place = SmallObjectPlace | RangePlace


@dataclass(frozen=True, kw_only=True)
class Input:
    """An object read by a rewrite."""

    place: Place
    rewrite_id: int
    """The rewrite of the object; 0 for the first object of the place."""

    @classmethod
    def of(cls, file: SmallObject | MergedRange) -> Input:
        """Returns the input for an object as PostgreSQL has it."""
        place = RangePlace(file.lower_bound) if isinstance(file, MergedRange) else SmallObjectPlace(file.object_id)
        return cls(place=place, rewrite_id=file.rewrite_id)


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A new object for a place."""

    place: Place
    replaces: Input | None
    """The object read in this place; None for an empty place."""
    file: SmallObject | MergedRange
    inputs: tuple[Input, ...]
    """All objects behind the rows of the new one, with the replaced object."""

    @property
    def replaced_id(self) -> int | None:
        """The rewrite that wrote the replaced object; 0 for the first object of the place, None for an empty place."""
        return self.replaces.rewrite_id if self.replaces else None

    @classmethod
    def in_place_of(cls, before: SmallObject | MergedRange, file: SmallObject | MergedRange) -> Replacement:
        """Returns the replacement of an object by a new version of the same object."""
        read = Input.of(before)
        return cls(place=read.place, replaces=read, file=file, inputs=(read,))


class Certificate(Enum):
    """The rows of new objects, compared with the rows of their inputs."""

    SAME_ROWS = "same rows"
    ROWS_LESS_ERASED = "rows less erased ones"
    NEW_ROWS = "new rows"
    """Merged objects must hold the rows of their small objects."""

"""What a commit to an Iceberg table changes: decided as data from what it should list and from what it lists.

A commit is a difference and never an operation that is repeated: one that landed and was not recorded leaves nothing to
do. Which objects a day should list is `SnapshotContent`; it waits for no switch, as one commit replaces small objects
by the range that holds their rows.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.files import DataFile, MergedRange, SmallObject
from prism_assets.domain.folding import RecordObject
from prism_assets.domain.partitions import NEW_VERSION, Partition, Publication
from prism_assets.domain.types import MICROSECONDS

ACTIVE, FOREIGN, FAILED = "active", "foreign", "failed"
"""States of an Iceberg table; see `KnownTable`."""
MANY_SNAPSHOTS = 300
"""Above so many retained snapshots commits come half as often."""


class Operation(enum.Enum):
    """What a snapshot says of itself, in the words of the Iceberg specification."""

    APPEND = "append"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """An Iceberg table as it was last read back: one row of prism_iceberg_tables.

    `state` is active, foreign (somebody else has committed to it) or failed (nothing is changed before a person has
    looked); `definition_version` is the version of the columns that it has. `look_time` is when the catalog was last
    asked for it, `pace_time` from when on the time to the next commit counts.
    """

    table_id: int
    identifier: str
    table_uuid: str | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    snapshots: int = 0
    definition_version: int = 0
    state: str = ACTIVE
    last_error: str | None = None
    pace_time: datetime | None = None
    look_time: datetime | None = None


def commit_seconds(known: KnownTable, wanted: float) -> float:
    """The least time between two commits: twice as long where very many snapshots are retained."""
    return wanted * (2 if known.snapshots > MANY_SNAPSHOTS else 1)


def next_pace_time(known: KnownTable | None, wanted: float, time: datetime) -> datetime:
    """From when on the time to the next commit counts, after a commit at `time`.

    Commits of a table that changes all the time keep their pace: one that comes late, as a run had to start first, does
    not make all behind it later. That of a table that had rested as long, or was not waited for, begins anew.
    """
    if known is None or known.pace_time is None:
        return time
    pace = timedelta(seconds=commit_seconds(known, wanted))
    due = known.pace_time + pace
    return due if due <= time < due + pace else time


def seconds_to_wait(known: KnownTable, wanted: float, time: datetime) -> float:
    """How many seconds are left at a time until the next commit may come; 0 or less if it may come now."""
    if known.pace_time is None:
        return 0.0
    return commit_seconds(known, wanted) - (time - known.pace_time).total_seconds()


def waits_for_a_person(known: KnownTable, on_foreign: str) -> bool:
    """Whether a publication would change nothing before somebody has acted, or the catalog was put right."""
    return known.state == FAILED or (known.state == FOREIGN and on_foreign == "stop")


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A data file as a manifest lists it: what is the same in all three is the same file, and is not touched."""

    url: str
    content_length: int
    row_count: int

    @classmethod
    def of(cls, file: DataFile) -> ListedFile:
        """How a manifest lists an object of ours."""
        return cls(url=file.url, content_length=file.content_length, row_count=file.row_count)


@dataclass(frozen=True, kw_only=True)
class SnapshotContent:
    """What a day should list: all its ranges, and every committed small object above them.

    A day of the records of a join table lists `records`, objects that folds wrote, and nothing else.
    """

    partition: Partition
    ranges: tuple[MergedRange, ...] = ()
    small_objects: tuple[SmallObject, ...] = ()
    records: tuple[RecordObject, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All of them: the merged objects first."""
        return (*self.ranges, *self.small_objects, *self.records)

    @property
    def publication(self) -> Publication:
        """Up to which range and which small object, or which fold, this is; that of nothing for an expired day."""
        if self.partition.expired:
            return Publication(NEW_VERSION, 0)
        if self.partition.is_folded:
            fold_id = self.partition.desired_version
            return Publication(fold_id, fold_id, self.partition.revision)
        version = max((item.upper_bound for item in self.ranges), default=0)
        last = max((item.object_id for item in self.small_objects), default=version)
        return Publication(version, last, self.partition.revision)

    @property
    def old_formats(self) -> int:
        """Objects whose timestamps are not in microseconds: readers of Iceberg would find wrong rows in them."""
        return sum(file.file_format != MICROSECONDS for file in self.files)


def wanted_snapshot(partition: Partition) -> Publication | None:
    """What the Iceberg table should list of a partition now, in any state of its life; None for nothing."""
    if partition.expired:
        return None
    version = partition.desired_version
    return Publication(version, max(partition.last_object_id, version), partition.revision)


@dataclass(frozen=True, kw_only=True)
class DayChange:
    """What a commit changes about one day; `publication` is what the day lists afterwards.

    With `rewrites`, entries of the day lie in manifests that are not its own, and are gathered in one that is. With
    `updates` its rows are records, of which a fold writes other versions.
    """

    date: date
    publication: Publication
    added: tuple[DataFile, ...] = ()
    removed: tuple[ListedFile, ...] = ()
    rewrites: bool = False
    updates: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the day lists already what it should, in manifests of its own."""
        return not (self.added or self.removed or self.rewrites)

    @property
    def keeps_rows(self) -> bool:
        """Whether the files that come hold the rows of those that go, as after a merge."""
        return self.rows_in == self.rows_out and not (self.updates and self.added)

    @property
    def rows_in(self) -> int:
        """Rows of the files that come."""
        return sum(file.row_count for file in self.added)

    @property
    def rows_out(self) -> int:
        """Rows of the files that go."""
        return sum(file.row_count for file in self.removed)


def day_change(
    day: date,
    publication: Publication,
    wanted: Sequence[DataFile],
    listed: Iterable[ListedFile],
    *,
    rewrites: bool,
    updates: bool = False,
) -> DayChange:
    """The difference between what a day should list and what it lists. A file that is listed twice goes once."""
    missing = {ListedFile.of(file): file for file in wanted}
    removed = []
    for file in listed:
        if missing.pop(file, None) is None:
            removed.append(file)
    return DayChange(
        date=day,
        publication=publication,
        added=tuple(missing.values()),
        removed=tuple(removed),
        rewrites=rewrites,
        updates=updates,
    )


@dataclass(frozen=True, kw_only=True)
class SnapshotChange:
    """All that one commit does: days, in order, snapshots that go with it, and whether the columns are set anew.

    With `drops_mixed_manifests`, manifests that are not of one day are left out: what they list is among the changes of
    the days, or was deleted, or made, by strangers. `tags` are set at the head, `dropped_tags` go.
    """

    days: tuple[DayChange, ...]
    expired: tuple[int, ...] = ()
    sets_schema: bool = False
    drops_mixed_manifests: bool = False
    tags: tuple[str, ...] = ()
    dropped_tags: tuple[str, ...] = ()

    @property
    def changed_days(self) -> tuple[DayChange, ...]:
        """The days about which anything changes."""
        return tuple(day for day in self.days if not day.changes_nothing)

    @property
    def makes_snapshot(self) -> bool:
        """Whether what readers see changes, and not only what is said of the table."""
        return bool(self.changed_days) or self.drops_mixed_manifests

    @property
    def changes_nothing(self) -> bool:
        """Whether no commit is needed."""
        return not (self.makes_snapshot or self.expired or self.sets_schema or self.tags or self.dropped_tags)

    @property
    def operation(self) -> Operation:
        """`append` where nothing goes, `replace` where each day keeps its rows, else `overwrite`.

        Who reads what was added since a snapshot passes over a `replace`.
        """
        if self.drops_mixed_manifests:
            return Operation.OVERWRITE
        if any(day.removed for day in self.days):
            return Operation.REPLACE if all(day.keeps_rows for day in self.days) else Operation.OVERWRITE
        return Operation.APPEND if any(day.added for day in self.days) else Operation.REPLACE

    @property
    def files_in(self) -> int:
        """Files that come."""
        return sum(len(day.added) for day in self.days)

    @property
    def files_out(self) -> int:
        """Files that go."""
        return sum(len(day.removed) for day in self.days)

    @property
    def rows_in(self) -> int:
        """Rows of the files that come."""
        return sum(day.rows_in for day in self.days)

    @property
    def rows_out(self) -> int:
        """Rows of the files that go."""
        return sum(day.rows_out for day in self.days)


@dataclass(frozen=True, kw_only=True)
class RetainedSnapshot:
    """A snapshot that the table still has; `is_ours` if this installation made it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    time: datetime
    is_ours: bool


def expired_snapshots(
    snapshots: Collection[RetainedSnapshot], referenced: Collection[int], now: datetime, keep: timedelta
) -> tuple[int, ...]:
    """The snapshots that may go: all that were replaced longer ago than `keep`.

    `referenced` are those that a branch or a tag names, the head among them: they stay. So does the one that was the
    newest at the beginning of that time, so that a reader who asks for any instant within it finds what was there.
    """
    oldest = now - keep
    ordered = sorted(snapshots, key=lambda item: (item.time, item.sequence_number))
    before = [item.snapshot_id for item in ordered if item.time <= oldest]
    return tuple(snapshot_id for snapshot_id in before[:-1] if snapshot_id not in referenced)


def changes_a_length(changes: Iterable[DayChange]) -> bool:
    """Whether a file comes under the key of one that goes: older snapshots say its old length, and fail to read it."""
    for change in changes:
        going = Counter(file.url for file in change.removed)
        if any(going[file.url] for file in change.added):
            return True
    return False


_TAG = re.compile(r"day-\d{4}-\d{2}-\d{2}")
"""Tags of ours; others may have theirs."""


def is_daily_tag(name: str) -> bool:
    """Whether a tag is one of ours."""
    return _TAG.fullmatch(name) is not None


def due_tags(
    switched: Collection[date], present: Collection[str], keep_days: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tags to be set, one for each of the newest days that are switched, and those of ours that are to go."""
    wanted = {f"day-{day.isoformat()}" for day in sorted(switched)[-keep_days:]} if keep_days else set()
    ours = {name for name in present if is_daily_tag(name)}
    return tuple(sorted(wanted - ours)), tuple(sorted(ours - wanted))

"""Decides the changes of a commit to an Iceberg table, from its wanted and its listed content.

A commit is a difference and is never replayed: a commit that landed unrecorded leaves nothing to do. `SnapshotContent`
is the wanted content of a day. It waits for no switch, because one commit replaces small objects by their range.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.days.partitions import NEW_VERSION, Partition, Publication
from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.records.folding import RecordObject

ACTIVE, FOREIGN, FAILED = "active", "foreign", "failed"
"""States of an Iceberg table. See `KnownTable`."""
MANY_SNAPSHOTS = 300
"""With more retained snapshots, commits come half as often."""


class Operation(enum.Enum):
    """The operation in a snapshot's summary, in the words of the Iceberg specification."""

    APPEND = "append"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """An Iceberg table as last read back: one row of prism_iceberg_tables."""

    table_id: int
    identifier: str
    table_uuid: str | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    snapshots: int = 0
    definition_version: int = 0
    """The definition version of its columns."""
    state: str = ACTIVE
    """active, foreign (another writer has committed) or failed (a person must act first)."""
    last_error: str | None = None
    pace_time: datetime | None = None
    """The time from which the pause until the next commit counts."""
    look_time: datetime | None = None
    """When the catalog was last asked."""


def commit_seconds(known: KnownTable, wanted: float) -> float:
    """Returns the least time between two commits, doubled with many retained snapshots."""
    return wanted * (2 if known.snapshots > MANY_SNAPSHOTS else 1)


def next_pace_time(known: KnownTable | None, wanted: float, time: datetime) -> datetime:
    """Returns the time from which the next pause counts, after a commit at `time`.

    Commits of a busy table keep their pace: a late commit does not delay all later ones. After a rest of that length,
    or an unscheduled commit, the pace starts again.
    """
    if known is None or known.pace_time is None:
        return time
    pace = timedelta(seconds=commit_seconds(known, wanted))
    due = known.pace_time + pace
    return due if due <= time < due + pace else time


def seconds_to_wait(known: KnownTable, wanted: float, time: datetime) -> float:
    """Returns the seconds until the next commit may come; 0 or less if it may come now."""
    if known.pace_time is None:
        return 0.0
    return commit_seconds(known, wanted) - (time - known.pace_time).total_seconds()


def waits_for_a_person(known: KnownTable, on_foreign: str) -> bool:
    """Whether a publication must wait until somebody has acted or the catalog was corrected."""
    return known.state == FAILED or (known.state == FOREIGN and on_foreign == "stop")


@dataclass(frozen=True, kw_only=True)
class ListedFile:
    """A data file in a manifest. Equal facts mean the same file, which stays untouched."""

    url: str
    content_length: int
    row_count: int

    @classmethod
    def of(cls, file: DataFile) -> ListedFile:
        """Returns the manifest's facts of our object."""
        return cls(url=file.url, content_length=file.content_length, row_count=file.row_count)


@dataclass(frozen=True, kw_only=True)
class SnapshotContent:
    """The wanted content of a day: all ranges, and every committed small object above them.

    For a join table's records: only `records`, the objects written by folds.
    """

    partition: Partition
    ranges: tuple[MergedRange, ...] = ()
    small_objects: tuple[SmallObject, ...] = ()
    records: tuple[RecordObject, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files, merged objects first."""
        return (*self.ranges, *self.small_objects, *self.records)

    @property
    def publication(self) -> Publication:
        """The publication of this content, up to its last range and small object, or its fold. Empty for an expired
        day.
        """
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
        """Objects without timestamps in microseconds. Iceberg readers would find wrong rows in them."""
        return sum(file.file_format != MICROSECONDS for file in self.files)


def wanted_snapshot(partition: Partition) -> Publication | None:
    """Returns the publication the Iceberg table should list for a partition, or None for no content."""
    if partition.expired:
        return None
    version = partition.desired_version
    return Publication(version, max(partition.last_object_id, version), partition.revision)


@dataclass(frozen=True, kw_only=True)
class DayChange:
    """The changes of one day in a commit. `publication` is its state afterwards."""

    date: date
    publication: Publication
    added: tuple[DataFile, ...] = ()
    removed: tuple[ListedFile, ...] = ()
    rewrites: bool = False
    """Entries of the day in manifests of several days are moved to a manifest of the day."""
    updates: bool = False
    """The rows are records, and folds write new versions of them."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the day already lists its wanted content in its own manifests."""
        return not (self.added or self.removed or self.rewrites)

    @property
    def keeps_rows(self) -> bool:
        """Whether added files hold the rows of removed ones, as after a merge."""
        return self.rows_in == self.rows_out and not (self.updates and self.added)

    @property
    def rows_in(self) -> int:
        """Rows of added files."""
        return sum(file.row_count for file in self.added)

    @property
    def rows_out(self) -> int:
        """Rows of removed files."""
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
    """Returns the difference between wanted and listed files of a day. A file listed twice is removed once."""
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
    """All changes of one commit."""

    days: tuple[DayChange, ...]
    """Changed days in order."""
    expired: tuple[int, ...] = ()
    """Snapshots to remove."""
    sets_schema: bool = False
    """Whether to set the columns."""
    drops_mixed_manifests: bool = False
    """Drop manifests of several days. Their files are among the days' changes, or belong to other writers."""
    tags: tuple[str, ...] = ()
    """Tags to set at the head."""
    dropped_tags: tuple[str, ...] = ()
    """Tags to remove."""

    @property
    def changed_days(self) -> tuple[DayChange, ...]:
        """Days with a change."""
        return tuple(day for day in self.days if not day.changes_nothing)

    @property
    def makes_snapshot(self) -> bool:
        """Whether the content for readers changes, beyond metadata."""
        return bool(self.changed_days) or self.drops_mixed_manifests

    @property
    def changes_nothing(self) -> bool:
        """Whether no commit is needed."""
        return not (self.makes_snapshot or self.expired or self.sets_schema or self.tags or self.dropped_tags)

    @property
    def operation(self) -> Operation:
        """`append` without removed files, `replace` if each day keeps its rows, else `overwrite`.

        Incremental readers skip a `replace`.
        """
        if self.drops_mixed_manifests:
            return Operation.OVERWRITE
        if any(day.removed for day in self.days):
            return Operation.REPLACE if all(day.keeps_rows for day in self.days) else Operation.OVERWRITE
        return Operation.APPEND if any(day.added for day in self.days) else Operation.REPLACE

    @property
    def files_in(self) -> int:
        """Added files."""
        return sum(len(day.added) for day in self.days)

    @property
    def files_out(self) -> int:
        """Removed files."""
        return sum(len(day.removed) for day in self.days)

    @property
    def rows_in(self) -> int:
        """Rows of added files."""
        return sum(day.rows_in for day in self.days)

    @property
    def rows_out(self) -> int:
        """Rows of removed files."""
        return sum(day.rows_out for day in self.days)


@dataclass(frozen=True, kw_only=True)
class RetainedSnapshot:
    """A snapshot in the table's metadata. `is_ours`: this installation made it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    time: datetime
    is_ours: bool


def expired_snapshots(
    snapshots: Collection[RetainedSnapshot], referenced: Collection[int], now: datetime, keep: timedelta
) -> tuple[int, ...]:
    """Returns the snapshots replaced longer ago than `keep`.

    Snapshots in `referenced`, those of branches and tags including the head, stay. The newest one from before that time
    also stays, so that readers can ask for any instant within it.
    """
    oldest = now - keep
    ordered = sorted(snapshots, key=lambda item: (item.time, item.sequence_number))
    before = [item.snapshot_id for item in ordered if item.time <= oldest]
    return tuple(snapshot_id for snapshot_id in before[:-1] if snapshot_id not in referenced)


def changes_a_length(changes: Iterable[DayChange]) -> bool:
    """Whether an added file reuses a removed file's key. Older snapshots state its old length and cannot read it."""
    for change in changes:
        going = Counter(file.url for file in change.removed)
        if any(going[file.url] for file in change.added):
            return True
    return False


_TAG = re.compile(r"day-\d{4}-\d{2}-\d{2}")
"""Our tags. Others may have their own."""


def is_daily_tag(name: str) -> bool:
    """Whether a tag is ours."""
    return _TAG.fullmatch(name) is not None


def due_tags(
    switched: Collection[date], present: Collection[str], keep_days: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns tags to set, one for each of the newest switched days, and our tags to remove."""
    due = {f"day-{day.isoformat()}" for day in sorted(switched)[-keep_days:]} if keep_days else set()
    ours = {name for name in present if is_daily_tag(name)}
    return tuple(sorted(due - ours)), tuple(sorted(ours - due))

"""Folds of join tables: their inputs, tasks and results, for stages, kernels and PostgreSQL.

A fold takes new changes from the log, finds their records, and replaces the objects of the changed ones. Changes that
wait go to one pending object a bucket, for the next fold.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, ClassVar

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile, SmallObject
from prism_assets.domain.records.joins import PublishPolicy
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work import Failure, UnreadObject

TASK_BYTES = 64 << 20
"""Bytes of records and changes for each task."""


class RecordPart(enum.Enum):
    """The content of an object that a fold wrote."""

    VISIBLE = "visible"
    """Records that readers see."""
    HIDDEN = "hidden"
    """Records that readers do not see, because they are deleted or lack an owner. They may win over later changes."""
    PENDING = "pending"
    """Changes that a fold has taken and no record holds yet."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class RecordObject(DataFile):
    """An object of records, or of waiting changes.

    A fold writes the records of one bucket and one cohort, or the waiting changes of one bucket. A merge of records
    writes settled records of all buckets and cohorts of a day: its objects have bucket 0, and a part number in the
    place of the cohort.
    """

    date: date
    """The event date of the records. For waiting changes, the UTC day of the fold."""
    part: RecordPart
    bucket_number: int
    cohort: int
    """The quarter of an hour of the first events, counted from 1970; 0 for records that live for ever, and for waiting
    changes."""
    fold_id: int
    earliest_settle: datetime | None = None
    """When the first record settles; None if none ever does."""
    latest_settle: datetime | None = None
    """When the last record settles."""
    oldest_change: datetime | None = None
    """When the oldest waiting change was committed."""
    is_settled: bool = False
    """Whether all records have settled. No fold reads the object again."""
    merges: int = 0
    """The number of merges that wrote its oldest rows."""
    is_merged: bool = False
    """Whether the object has its final size, or is the last of its day. No merge begins with it again."""
    fault: str | None = None
    """Why the last attempt to read the object failed."""
    joined_rows: int = 0
    """Visible records with all groups."""
    object_id: int = 0
    """0 until PostgreSQL gives an id."""
    definition_version: int = 0

    @property
    def part_number(self) -> int:
        """The number of a merged object among those of its merge."""
        return self.cohort


@dataclass(frozen=True, kw_only=True)
class ChangesObject(DataFile):
    """An object of the log, with changes of all buckets; without metrics, because no kernel reads them."""

    @staticmethod
    def of(item: DataFile) -> ChangesObject:
        """An object of the log for a rebuild, merged or small."""
        return ChangesObject(**_without_metrics(item))


@dataclass(frozen=True, kw_only=True)
class UnfoldedChanges(ChangesObject):
    """A small object of the log for a fold. Its changes were `committed` at that time, and are in no record yet."""

    committed: datetime
    object_id: int

    @staticmethod
    def of_small(item: SmallObject) -> UnfoldedChanges:
        """A small object of the log for a fold."""
        return UnfoldedChanges(**_without_metrics(item), committed=item.upload_start_time, object_id=item.object_id)


def _without_metrics(item: DataFile) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(DataFile)} | {"metrics": ()}


@dataclass(frozen=True, kw_only=True)
class RecordMove:
    """A move of rows: a fold found records of a later day to be parts of records of an earlier day."""

    from_date: date
    to_date: date


@dataclass(frozen=True, kw_only=True)
class ErasedRecords:
    """The records that match an erasure, and their objects. A record counts for the first erasure that it matches."""

    erasure_id: int
    objects: int
    records: int


@dataclass(frozen=True, kw_only=True)
class RewriteTask:
    """Some buckets of a join table to fold or to rebuild. The keys of all written objects contain `fold_id`, so no
    other rewrite writes them.
    """

    fold_id: int
    """The number of the rewrite."""
    number: int
    """Unique among the tasks of the rewrite."""
    table_id: int
    definition_version: int
    buckets: tuple[int, ...]
    records: tuple[RecordObject, ...]
    """Objects of the buckets. They hold rows of other buckets, too."""
    settle_before: datetime | None = None
    """Records with an earlier settle time settle in this rewrite; None for none."""
    metric_columns: tuple[int, ...] = ()
    erasures: tuple[ErasureRule, ...] = ()
    """Records and changes whose keys match are left out."""

    alone: ClassVar[bool] = True

    @property
    def task_id(self) -> tuple[int, int]:
        """The rewrite, and the number of the task."""
        return self.fold_id, self.number


@dataclass(frozen=True, kw_only=True)
class RewriteResult:
    """The outcome for the buckets of one task."""

    fold_id: int
    number: int
    written: tuple[RecordObject, ...] = ()
    moves: tuple[RecordMove, ...] = ()
    changes: int = 0
    """Changes of the buckets in the objects of the log that the task read."""
    undecided: int = 0
    """Keys without a result of a predicate."""
    unread: tuple[UnreadObject, ...] = ()
    failure: Failure | None = None

    @property
    def task_id(self) -> tuple[int, int]:
        """The rewrite, and the number of the task."""
        return self.fold_id, self.number


@dataclass(frozen=True, kw_only=True)
class FoldResult(RewriteResult):
    """The outcome of a fold. Changes balance: `changes` + pending before = `folded` + `pending`.

    The records of buckets with `unread` objects stay unchanged, and all their changes wait. If an object of new changes
    is unreadable, the task fails.
    """

    replaced: tuple[int, ...] = ()
    """The ids of the objects that `written` replaces."""
    settled_objects: tuple[int, ...] = ()
    """The ids of objects that stay, with settled records only and without waiting changes."""
    folded: int = 0
    pending: int = 0
    """Changes that wait for a later fold."""
    unsequenced: int = 0
    """Folded changes without a sequence: they are part of no record."""
    settled: int = 0
    """Records that settled in this fold."""
    joined: int = 0
    """Settled records with all groups."""
    changed: int = 0
    """Records that got changes."""
    join_delays: tuple[int, ...] = ()
    """Changed records with all groups, counted by the time from the first event to the last, in the steps of
    `join_delays.py`."""
    bucket_changes: tuple[tuple[int, int], ...] = ()
    """Buckets with new changes, each with their number."""
    erased: tuple[ErasedRecords, ...] = ()
    """Erased records. No written object has them, and their changes count as folded."""


@dataclass(frozen=True, kw_only=True)
class FoldTask(RewriteTask):
    """Some buckets of a join table to fold: `records` are their objects with open records or waiting changes."""

    changes: tuple[UnfoldedChanges, ...]
    """New objects of changes. They hold rows of other buckets, too."""
    now: datetime
    """The end of the time that changes have waited."""

    kernel: ClassVar[str] = "fold"
    result: ClassVar[type[FoldResult]] = FoldResult

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(file.content_length for file in (*self.records, *self.changes))

    def failed(self, failure: Failure) -> FoldResult:
        """The result of a task that wrote nothing."""
        return FoldResult(fold_id=self.fold_id, number=self.number, failure=failure)


def count_tasks(buckets: int, content_length: int) -> int:
    """The number of tasks for some buckets with so many bytes. A task has at least one bucket."""
    return min(buckets, max(1, -(-content_length // TASK_BYTES)))


def bucket_tasks(
    table: TableDefinition,
    records: Sequence[RecordObject],
    changes: Sequence[UnfoldedChanges],
    *,
    fold_id: int,
    now: datetime,
    settle_before: datetime | None = None,
    erasures: tuple[ErasureRule, ...] = (),
) -> list[FoldTask]:
    """Distributes the buckets of a join table over tasks, by the bytes of records and changes.

    Each task reads the new changes of all buckets, so fewer tasks read them less often.
    """
    assert table.join is not None
    size = sum(item.content_length for item in (*records, *changes))
    count = count_tasks(table.join.buckets, size)
    return [
        FoldTask(
            fold_id=fold_id,
            number=number,
            table_id=table.table_id,
            definition_version=table.version,
            buckets=tuple(range(number, table.join.buckets, count)),
            records=tuple(item for item in records if item.bucket_number % count == number),
            changes=tuple(changes),
            now=now,
            settle_before=settle_before,
            metric_columns=table.metric_columns,
            erasures=erasures,
        )
        for number in range(count)
    ]


@dataclass(frozen=True, kw_only=True)
class FoldFacts:
    """The facts that decide whether a join table is due for a fold."""

    unfolded_objects: int
    """Small objects of changes that no fold has taken."""
    last_fold: datetime | None
    oldest_pending: datetime | None
    """When the oldest waiting change was committed."""
    next_settle: datetime | None
    """When the next records settle."""
    settle_before: datetime | None
    """Records may settle up to this time."""


def fold_reason(policy: PublishPolicy, facts: FoldFacts, now: datetime) -> str | None:
    """Why a table is due for a fold, for people; None if it is not.

    Folds that only settle records keep the pace, too, because each fold may write many objects again.
    """
    if facts.last_fold is not None and (now - facts.last_fold).total_seconds() < policy.every_seconds:
        return None
    if facts.unfolded_objects:
        return f"{counted(facts.unfolded_objects, 'object of changes is', 'objects of changes are')} new"
    if facts.next_settle and facts.settle_before and facts.next_settle < facts.settle_before:
        return "records settle"
    if facts.oldest_pending and (now - facts.oldest_pending).total_seconds() >= policy.stale_seconds:
        return f"changes wait for more than {policy.stale_seconds} seconds"
    return None

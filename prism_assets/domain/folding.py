"""Folding: what a fold of a join table reads and writes, as stages, kernels and PostgreSQL know it.

A fold takes changes that no fold has taken, finds the records that they are of, and writes objects in the place of
those that it changes. What it leaves for later goes to one pending object a bucket, which the next fold reads.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, ClassVar

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.files import DataFile, SmallObject
from prism_assets.domain.joins import PublishPolicy
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.domain.work import Failure, UnreadObject

TASK_BYTES = 64 << 20
"""Bytes of records and changes for which there is one task more."""


class RecordPart(enum.Enum):
    """What an object of a fold holds."""

    VISIBLE = "visible"
    """Records that readers see."""
    HIDDEN = "hidden"
    """Records that readers do not see, as they are deleted or not owned: they win over changes that come later."""
    PENDING = "pending"
    """Changes that are taken and not in records yet."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class RecordObject(DataFile):
    """What a fold writes: records of one bucket that were born in one cohort, or changes of one bucket that wait.

    `date` is the event date of its records, which readers find them under; of pending changes, the UTC day of the
    fold. `cohort` is the quarter of an hour of the first event of its records, counted from 1970, and 0 where records
    live for ever or changes wait. Of its records the first settles at `earliest_settle`, the last at `latest_settle`;
    None if none ever does; once all have, the object `is_settled`, and no fold reads it again. `oldest_change` is when
    the oldest of its pending changes was committed. Of records that readers see, `joined_rows` have all groups.
    `object_id` is 0 until PostgreSQL gave one.

    What a merge writes has settled records of all buckets and cohorts of a day: its bucket is 0 and its cohort the
    number of the object in that merge, which has the number of a fold. Its oldest rows went through so many `merges`.
    Once it `is_merged`, as big as objects are to be or all that is left of its day, no merge begins with it any more.
    `fault` is why it could not be read when that was tried last.
    """

    date: date
    part: RecordPart
    bucket_number: int
    cohort: int
    fold_id: int
    earliest_settle: datetime | None = None
    latest_settle: datetime | None = None
    oldest_change: datetime | None = None
    is_settled: bool = False
    merges: int = 0
    is_merged: bool = False
    fault: str | None = None
    joined_rows: int = 0
    object_id: int = 0
    definition_version: int = 0


@dataclass(frozen=True, kw_only=True)
class ChangesObject(DataFile):
    """Changes of all buckets: an object of the log of changes, without its metrics, which no kernel reads."""

    @staticmethod
    def of(item: DataFile) -> ChangesObject:
        """An object of the log as rebuilds read it, merged or small."""
        return ChangesObject(**_without_metrics(item))


@dataclass(frozen=True, kw_only=True)
class UnfoldedChanges(ChangesObject):
    """A small object of the log whose changes, `committed` then, are in no record yet: a fold takes it."""

    committed: datetime
    object_id: int

    @staticmethod
    def of_small(item: SmallObject) -> UnfoldedChanges:
        """A small object of the log as folds read it."""
        return UnfoldedChanges(**_without_metrics(item), committed=item.upload_start_time, object_id=item.object_id)


def _without_metrics(item: DataFile) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(DataFile)} | {"metrics": ()}


@dataclass(frozen=True, kw_only=True)
class PartOfFold:
    """What a task and its result say of themselves: the fold, or what has a number among folds, and a number in it."""

    fold_id: int
    number: int

    @property
    def task_id(self) -> tuple[int, int]:
        """Its fold, and its number in it."""
        return self.fold_id, self.number


@dataclass(frozen=True, kw_only=True)
class RecordMove:
    """Records of a later day that a fold found to be part of records of an earlier one, where their rows are since."""

    from_date: date
    to_date: date


@dataclass(frozen=True, kw_only=True)
class ErasedRecords:
    """What a fold found of one erasure: so many records, in so many objects. One that several match is the first's."""

    erasure_id: int
    objects: int
    records: int


@dataclass(frozen=True, kw_only=True)
class FoldResult(PartOfFold):
    """What became of the buckets of one task: `written` takes the place of the objects with the ids `replaced`.

    Objects with the ids `settled_objects` stay, and all of their records have settled: no pending change is of any.
    `changes` are the rows of these buckets in the new changes objects, `folded` and `pending` what became of these
    and of those that waited: `changes` + pending before = `folded` + `pending`. Changes without a sequence are part of
    no record; `unsequenced` are those among the folded ones. `settled` records settled in this fold, of which `joined`
    have all groups. `changed` records were made of what was there and changes; of those that have all groups now,
    `join_delays` counts how far the last event lies behind the first, in the steps of `join_delays.py`.
    `bucket_changes` says of how many new changes each bucket has any. `moves` are the days between which records moved.
    Records that were `erased` are in nothing that was written, and changes of them count as folded; of `undecided` keys
    a predicate cannot be computed.

    Where an object of a bucket is `unread`, its records stay as they are, and all of its changes wait; where one of new
    changes is, the task fails.
    """

    written: tuple[RecordObject, ...] = ()
    replaced: tuple[int, ...] = ()
    settled_objects: tuple[int, ...] = ()
    changes: int = 0
    folded: int = 0
    pending: int = 0
    unsequenced: int = 0
    settled: int = 0
    moves: tuple[RecordMove, ...] = ()
    joined: int = 0
    changed: int = 0
    join_delays: tuple[int, ...] = ()
    bucket_changes: tuple[tuple[int, int], ...] = ()
    unread: tuple[UnreadObject, ...] = ()
    erased: tuple[ErasedRecords, ...] = ()
    undecided: int = 0
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class FoldTask(PartOfFold):
    """Some buckets of a join table to fold.

    `records` are all objects of these buckets that are not settled as a whole, with those of pending changes;
    `changes` hold rows of other buckets, too. Records that settle before `settle_before` settle in this fold, none
    where it is not known. How long changes have waited counts up to `now`. Objects go under keys with `fold_id`, which
    no other fold has. Records and changes that `erasures` match, by keys alone, are left out.
    """

    table_id: int
    definition_version: int
    buckets: tuple[int, ...]
    records: tuple[RecordObject, ...]
    changes: tuple[UnfoldedChanges, ...]
    now: datetime
    settle_before: datetime | None = None
    metric_columns: tuple[int, ...] = ()
    erasures: tuple[ErasureRule, ...] = ()

    kernel: ClassVar[str] = "fold"
    result: ClassVar[type[FoldResult]] = FoldResult
    alone: ClassVar[bool] = True

    @property
    def input_bytes(self) -> int:
        """Those of all inputs, if all of them must be read."""
        return sum(file.content_length for file in (*self.records, *self.changes))

    def failed(self, failure: Failure) -> FoldResult:
        """Nothing was written."""
        return FoldResult(fold_id=self.fold_id, number=self.number, failure=failure)


def count_tasks(buckets: int, content_length: int) -> int:
    """Into how many tasks buckets are dealt that read so many bytes; a bucket is of one."""
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
    """Deals the buckets of a join table out to tasks, as many as the bytes of records and changes ask for.

    A bucket is of one task, which reads the changes of all: few tasks read them less often.
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
    """What decides whether a join table is due for a fold.

    `unfolded_objects` small objects of changes are not taken, and the oldest pending change was committed at
    `oldest_pending`. The next records settle at `next_settle`, and may as soon as that is before `settle_before`.
    """

    unfolded_objects: int
    last_fold: datetime | None
    oldest_pending: datetime | None
    next_settle: datetime | None
    settle_before: datetime | None


def fold_reason(policy: PublishPolicy, facts: FoldFacts, now: datetime) -> str | None:
    """Why a table is to be folded now, for people; None if there is nothing to do yet.

    Folds that only settle records follow the pace, too, as do those of changes: each may write objects anew.
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

"""Rebuilds of join tables: the records that all changes of the log make, held against those that are there.

A rebuild first only compares: each task makes the records of its buckets and says of each day which they are, by number
and fingerprint. Days on which others are there, or an object that cannot be read, are then written anew as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import ClassVar

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.names import TableName
from prism_assets.domain.records.folding import (
    TASK_BYTES,
    ChangesObject,
    RecordObject,
    RecordPart,
    RewriteResult,
    RewriteTask,
    count_tasks,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work import Failure


@dataclass(frozen=True, kw_only=True)
class RowSum:
    """Some rows, by their number and their fingerprint."""

    row_count: int = 0
    fingerprint: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum(
            row_count=self.row_count + other.row_count, fingerprint=combine([self.fingerprint, other.fingerprint])
        )

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> RowSum:
        """The rows of some objects, as they are recorded."""
        listed = list(files)
        return cls(
            row_count=sum(item.row_count for item in listed), fingerprint=combine(item.fingerprint for item in listed)
        )


@dataclass(frozen=True, kw_only=True)
class DaySum:
    """Of one day the records that the changes make: those that readers see, and hidden ones that may still change.

    `hidden_there` are the hidden ones in objects of the day that may still change.
    """

    date: date
    visible: RowSum = field(default_factory=RowSum)
    hidden: RowSum = field(default_factory=RowSum)
    hidden_there: RowSum = field(default_factory=RowSum)

    def __add__(self, other: DaySum) -> DaySum:
        return DaySum(
            date=self.date,
            visible=self.visible + other.visible,
            hidden=self.hidden + other.hidden,
            hidden_there=self.hidden_there + other.hidden_there,
        )


@dataclass(frozen=True, kw_only=True)
class RecordRebuildResult(RewriteResult):
    """What the changes of the buckets of one task make.

    `sums` are the records by day, `written` the objects of the days that the task was to write. `changes` were read,
    and `records` made; `expired` ones were not, as their day has. `orphans` are records that are there and are of no
    change of the log, or of one that is not there any more. `moves` are the days between which records move. Where an
    object is `unread` nothing else is told: one of records is to be left out of the next attempt.
    """

    sums: tuple[DaySum, ...] = ()
    records: int = 0
    expired: int = 0
    orphans: int = 0


@dataclass(frozen=True, kw_only=True)
class RecordRebuildTask(RewriteTask):
    """Some buckets of a join table whose records are made anew of all changes of the log.

    `changes` are all objects of the log, `records` all objects of records that can be read; both hold rows of other
    buckets, too. They are gone through in so many `slices` of keys, a power of two, one of which is in memory at a
    time. Records that settle before `settle_before` have settled. A record that is there keeps its day; those that are
    not, would be of a day up to `expired_day` and have settled, are not made, unless they may be of a later day by an
    object of `lost`: these are objects of records that cannot be read.

    Where the log holds changes from `changes_from` on alone, records in `kept` stay as they are, with all changes that
    are of them; and what begins within a window from then on, and is not there, is the rest of a record that is gone.

    Objects of `days` are written, under keys with `fold_id`; with no days nothing is.
    """

    slices: int
    lost: tuple[RecordObject, ...]
    changes: tuple[ChangesObject, ...]
    expired_day: date | None = None
    changes_from: datetime | None = None
    kept: tuple[RecordObject, ...] = ()
    days: tuple[date, ...] = ()

    kernel: ClassVar[str] = "rebuild_records"
    result: ClassVar[type[RecordRebuildResult]] = RecordRebuildResult

    @property
    def input_bytes(self) -> int:
        """Those of all inputs."""
        return sum(file.content_length for file in (*self.records, *self.kept, *self.changes))

    def failed(self, failure: Failure) -> RecordRebuildResult:
        """Nothing was written that counts."""
        return RecordRebuildResult(fold_id=self.fold_id, number=self.number, failure=failure)


def rebuild_tasks(
    table: TableDefinition,
    records: Sequence[RecordObject],
    changes: Sequence[ChangesObject],
    *,
    lost: Collection[int] = (),
    settle_before: datetime | None = None,
    expired_day: date | None = None,
    changes_from: datetime | None = None,
    kept: Sequence[RecordObject] = (),
    erasures: tuple[ErasureRule, ...] = (),
) -> list[RecordRebuildTask]:
    """Deals the buckets of a join table out to tasks that compare; objects with the ids `lost` cannot be read.

    Each task reads all changes, so there are no more than buckets; what is more than one has memory for, it slices.
    """
    assert table.join is not None
    size = sum(item.content_length for item in changes)
    count = count_tasks(table.join.buckets, size)
    files = [replace(item, metrics=()) for item in records if item.part is not RecordPart.PENDING]

    def concerned(number: int, item: RecordObject) -> bool:
        """What merges wrote holds records of all buckets."""
        return item.merges > 0 or item.bucket_number % count == number

    return [
        RecordRebuildTask(
            fold_id=0,
            number=number,
            table_id=table.table_id,
            definition_version=table.version,
            buckets=tuple(range(number, table.join.buckets, count)),
            slices=1 << max(0, (-(-size // (count * TASK_BYTES)) - 1).bit_length()),
            records=tuple(item for item in files if item.object_id not in lost and concerned(number, item)),
            lost=tuple(item for item in files if item.object_id in lost and concerned(number, item)),
            changes=tuple(changes),
            settle_before=settle_before,
            expired_day=expired_day,
            changes_from=changes_from,
            kept=tuple(replace(item, metrics=()) for item in kept if concerned(number, item)),
            metric_columns=table.metric_columns,
            erasures=erasures,
        )
        for number in range(count)
    ]


def added_sums(results: Iterable[RecordRebuildResult]) -> dict[date, DaySum]:
    """What all tasks say of each day."""
    found: dict[date, DaySum] = {}
    for item in (item for result in results for item in result.sums):
        found[item.date] = found[item.date] + item if item.date in found else item
    return found


def different_days(
    sums: Mapping[date, DaySum], records: Sequence[RecordObject], lost: Collection[int]
) -> dict[date, str]:
    """The days that are to be written anew, in order, and why."""
    there: dict[date, list[RecordObject]] = {}
    for item in records:
        if item.part is not RecordPart.PENDING:
            there.setdefault(item.date, []).append(item)
    found = {}
    for day in sorted(sums.keys() | there.keys()):
        own, wanted = there.get(day, []), sums.get(day, DaySum(date=day))
        seen = RowSum.of(item for item in own if item.part is RecordPart.VISIBLE)
        unreadable = sum(item.object_id in lost for item in own)
        if unreadable:
            found[day] = f"{counted(unreadable, 'object')} cannot be read"
        elif seen != wanted.visible:
            found[day] = f"{wanted.visible.row_count:,} records, and readers see {seen.row_count:,}"
            if seen.row_count == wanted.visible.row_count:
                found[day] = "records are not as their changes say"
        elif wanted.hidden != wanted.hidden_there:
            found[day] = "hidden records are not as their changes say"
    return found


def how_to_mend(table: TableName | str, *, several: bool = False) -> str:
    """What people are told to do about a lost or damaged object of records, or several."""
    it, its = ("them", "their") if several else ("it", "its")
    return (
        f"`prism rebuild {table}` makes {it} again, as long as {its} changes are in the log; otherwise restore {it} (a "
        "version of the bucket, a backup)"
    )

"""Rebuilds of join tables: compares the records made of all changes in the log with the current ones.

A rebuild first only compares: each task makes the records of its buckets, and returns their number and fingerprint for
each day. Days that differ or have an unreadable object are then written again as a whole.
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
        """Returns the sum over the records of some objects."""
        listed = list(files)
        return cls(
            row_count=sum(item.row_count for item in listed), fingerprint=combine(item.fingerprint for item in listed)
        )


@dataclass(frozen=True, kw_only=True)
class DaySum:
    """The records of one day made of the changes: those readers see, and hidden unsettled ones.

    `hidden_there` are the hidden unsettled ones in current objects of the day.
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
    """The records made by the changes of one task's buckets.

    If an object is `unread`, the other fields are empty. The next attempt leaves out an unread object of records.
    """

    sums: tuple[DaySum, ...] = ()
    """The records by day."""
    records: int = 0
    """Records made."""
    expired: int = 0
    """Records not made, because their day has expired."""
    orphans: int = 0
    """Current records without any change in the log, or without one of their changes."""


@dataclass(frozen=True, kw_only=True)
class RecordRebuildTask(RewriteTask):
    """Some buckets of a join table whose records are made again from all changes of the log.

    `records` and `changes` also hold rows of other buckets. Records before `settle_before` have settled. A current
    record keeps its day. A settled record without a current one, of a day up to `expired_day`, is not made, unless an
    object in `lost` may have held it on a later day.

    If the log starts at `changes_from`, the records in `kept` and all their changes stay as they are. A record that
    begins less than a window after `changes_from` and is not among the current ones is the rest of a lost record.
    """

    slices: int
    """The number of parts of the keys, a power of two. One part is in memory at a time."""
    lost: tuple[RecordObject, ...]
    """Unreadable objects of records."""
    changes: tuple[ChangesObject, ...]
    """All objects of the log."""
    expired_day: date | None = None
    changes_from: datetime | None = None
    kept: tuple[RecordObject, ...] = ()
    days: tuple[date, ...] = ()
    """Days to write, under keys with `fold_id`. Empty for a comparison."""

    kernel: ClassVar[str] = "rebuild_records"
    result: ClassVar[type[RecordRebuildResult]] = RecordRebuildResult

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(file.content_length for file in (*self.records, *self.kept, *self.changes))

    def failed(self, failure: Failure) -> RecordRebuildResult:
        """Returns a result without written objects."""
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
    """Deals the buckets of a join table out to comparing tasks. Objects with ids in `lost` are unreadable.

    Each task reads all changes, so there are no more tasks than buckets. A task processes more data than fits in memory
    in slices.
    """
    assert table.join is not None
    size = sum(item.content_length for item in changes)
    count = count_tasks(table.join.buckets, size)
    files = [replace(item, metrics=()) for item in records if item.part is not RecordPart.PENDING]

    def concerned(number: int, item: RecordObject) -> bool:
        """Whether an object may have records of a task's buckets. Merged ones have records of all buckets."""
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
    """Adds the sums of all tasks by day."""
    found: dict[date, DaySum] = {}
    for item in (item for result in results for item in result.sums):
        found[item.date] = found[item.date] + item if item.date in found else item
    return found


def different_days(
    sums: Mapping[date, DaySum], records: Sequence[RecordObject], lost: Collection[int]
) -> dict[date, str]:
    """Returns the days to write again in order, each with the reason."""
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
    """Returns the advice for one lost or damaged object of records, or for several."""
    it, its = ("them", "their") if several else ("it", "its")
    return (
        f"`prism rebuild {table}` makes {it} again, as long as {its} changes are in the log; otherwise restore {it} (a "
        "version of the bucket, a backup)"
    )

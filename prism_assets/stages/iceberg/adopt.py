"""Adopts older days: rewrites merged objects with timestamps in milliseconds, which Iceberg cannot show.

Each day is a rewrite. The new objects have keys of their own, so readers of the old ones are not disturbed. The commit
replaces the old objects if none has changed, and catalogs show the new ones with their next runs. A death before it
leaves objects without any reference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.errors import LeaseLost, StaleRewrite, WrongUse
from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.rewrites import MOST_PLANS, Certificate, Replacement, Rewrite, RewriteKind
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.text import counted
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.bisect import run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import check_not_held
from prism_assets.stages.leases import leased, takeover_seconds
from prism_assets.stages.rewrite.begin import begin_rewrites
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets.stages.rewrite.numbers import drop_occupied

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class AdoptReport:
    """The rewritten objects of an adoption."""

    table: str
    days: tuple[date, ...]
    objects: int
    rows: int
    bytes: int
    unmerged: tuple[date, ...]
    """Days with small objects of the old format. Merging converts these."""
    seconds: float
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        rest = (
            f"; {counted(len(self.unmerged), 'day has', 'days have')} small objects of the old format: "
            "`prism merge --all`"
            if self.unmerged
            else ""
        )
        return (
            f"{counted(self.objects, 'merged object')} of {counted(self.rows, 'row')} on "
            f"{counted(len(self.days), 'day')} rewritten{rest}"
        )

    @property
    def errors(self) -> tuple[str, ...]:
        """All problems, one sentence each."""
        return tuple(map(str, self.problems))


def run_adopt(context: StageContext, name: str, *, since: date | None) -> AdoptReport:
    """Rewrites a table's merged objects of the old format, on days from `since` on.

    A repetition rewrites nothing twice. A range extended meanwhile by a merge has the new format already. Raises
    LeaseLost if another adoption of the table is running.
    """
    started = time.monotonic()
    context.check_lake()
    table = context.choose_tables([name])[0]
    if table.file_format != MICROSECONDS:
        raise WrongUse(f"{table.name} stores timestamps in milliseconds: say `iceberg: true` in its file first")
    check_not_held(context, table)
    with leased(context, LeaseKind.ADOPT, [table.table_id], takeover_seconds(context)) as held:
        if table.table_id not in held:
            raise LeaseLost(f"another adoption is working on {table.name}: repeat it when that has ended")
        adoption = _Adoption(context, table, held[table.table_id], since)
        adoption.run()
    return AdoptReport(
        table=name,
        days=tuple(sorted({item.partition.date for item in adoption.done})),
        objects=len(adoption.done),
        rows=sum(item.file.row_count for item in adoption.done),
        bytes=sum(item.file.content_length for item in adoption.done),
        unmerged=tuple(adoption.unmerged),
        seconds=time.monotonic() - started,
        problems=tuple(adoption.problems),
    )


@dataclass(frozen=True, kw_only=True)
class _OldRange:
    """A range of the old format."""

    partition: Partition
    file: MergedRange


class _Adoption:
    """One adoption of a table, under its lease."""

    def __init__(self, context: StageContext, table: TableDefinition, lease: Lease, since: date | None) -> None:
        self._context = context
        self._table = table
        self._lease = lease
        self._since = since
        self._failed: set[str] = set()
        self.done: list[_OldRange] = []
        self.unmerged: list[date] = []
        self.problems: list[Problem] = []

    def run(self) -> None:
        """Rewrites all old ranges. Plans ranges again that changed meanwhile."""
        for _ in range(MOST_PLANS):
            left = self._find_old()
            parts = [left[start : start + _AT_ONCE] for start in range(0, len(left), _AT_ONCE)]
            ended = [self._rewrite(part) for part in parts]
            if all(ended):
                return
        for item in self._find_old():
            self._note(item.partition, "others changed the day as often as it was to be rewritten: repeat it", True)

    def _find_old(self) -> list[_OldRange]:
        """Returns the ranges of the old format by date, without unreadable ones."""
        keys = self._context.lake.keys(self._table)
        found: list[_OldRange] = []
        self.unmerged = []
        with self._context.database.begin() as connection:
            for partition in partitions.load_table_partitions(connection, self._table.table_id):
                if partition.expired or (self._since is not None and partition.date < self._since):
                    continue
                chain = merge_ranges.load_chain(connection, keys, partition.partition_id)
                found += [
                    _OldRange(partition=partition, file=item)
                    for item in chain
                    if item.file_format != MICROSECONDS and item.key not in self._failed
                ]
                small = small_objects.load_above(connection, keys, partition.partition_id, partition.desired_version)
                if any(item.file_format != MICROSECONDS for item in small):
                    self.unmerged.append(partition.date)
        return found

    def _rewrite(self, part: Sequence[_OldRange]) -> bool:
        """Rewrites some ranges as one job, each day as its own rewrite. Returns False if any must be planned again."""
        days = (item.partition for item in part)
        begun = begin_rewrites(self._context, self._lease, self._table, days, RewriteKind.ADOPT)
        tasks = [self._task(begun[item.partition.partition_id], number, item) for number, item in enumerate(part)]
        results = {
            result.number: result for result in run_bisected(self._context.engine, tasks, by_version(self._table))
        }
        by_day = groupby(enumerate(part), key=lambda numbered: numbered[1].partition.partition_id)
        ended = [
            self._end(begun[partition_id], [(item, results[number]) for number, item in of_day])
            for partition_id, of_day in by_day
        ]
        return all(ended)

    def _task(self, rewrite: Rewrite, number: int, item: _OldRange) -> WriteTask:
        """Returns a merge of one object alone, which rewrites it."""
        file, day = item.file, item.partition.date
        return WriteTask(
            number=number,
            inputs=(replace(file, metrics=()),),
            output_key=self._context.lake.keys(self._table).merged_object(
                day, file.lower_bound, file.upper_bound, rewrite.rewrite_id
            ),
            table_id=self._table.table_id,
            definition_version=self._table.version,
            metric_columns=self._table.metric_columns,
        )

    def _end(self, rewrite: Rewrite, results: Sequence[tuple[_OldRange, WriteResult]]) -> bool:
        """Commits the written ranges of a day. Returns False if the day must be planned again."""
        failures = [(item, result.failure) for item, result in results if result.failure]
        if any(failure.occupied for _, failure in failures):
            drop_occupied(self._context, self._table, [results[0][0].partition.date], [rewrite])
            return False
        for item, failure in failures:
            self._failed.add(item.file.key)
            self._note(item.partition, failure.message, failure.transient)
        chosen = [
            Replacement.in_place_of(
                item.file,
                replace(
                    MergedRange.of(result.written, item.file.lower_bound, item.file.upper_bound, rewrite.rewrite_id),
                    definition_version=self._table.version,
                ),
            )
            for item, result in results
            if result.written
        ]
        if not chosen:
            self._drop(rewrite)
            return True
        try:
            self._commit(rewrite, chosen)
        except StaleRewrite:
            self._drop(rewrite)
            return False
        self.done += [item for item, result in results if result.written]
        return True

    def _commit(self, rewrite: Rewrite, chosen: Sequence[Replacement]) -> None:
        failpoint("adopt.before_record")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            if partitions.lock_partition(connection, rewrite.partition_id).expired:
                raise StaleRewrite("the day has expired meanwhile; nothing was changed")
            commit_rewrite(connection, rewrite, chosen, Certificate.SAME_ROWS)
        failpoint("adopt.after_record")

    def _drop(self, rewrite: Rewrite) -> None:
        """Ends a rewrite without a change."""
        with self._context.database.begin() as connection:
            rewrites.drop(connection, rewrite.rewrite_id)

    def _note(self, partition: Partition, reason: str, transient: bool) -> None:
        self.problems.append(
            Problem(table=str(self._table.name), date=partition.date, reason=reason, transient=transient)
        )

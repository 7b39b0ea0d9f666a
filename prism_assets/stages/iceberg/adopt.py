"""Adopts older days: rewrites merged objects whose timestamps are in milliseconds, which Iceberg cannot show.

Each under a key of its own, so that readers of the old one go on; then the range is recorded as the new object, if it
still is the one that was read, and the catalogs show it with their next runs. What was replaced is garbage by then.
A death before the record leaves an object that nobody names, and the next adoption writes the same bytes again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import date

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.files import DataFile, MergedRange
from prism_assets.domain.partitions import Partition
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition, by_version
from prism_assets.domain.types import MICROSECONDS
from prism_assets.domain.words import counted
from prism_assets.domain.work.write import WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import merge_ranges, partitions, small_objects
from prism_assets.stages.bisect import run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import check_not_held
from prism_assets.stages.free_keys import highest_number

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class AdoptReport:
    """What was rewritten. `unmerged` are days with small objects of the old format: merging them does the same."""

    table: str
    days: tuple[date, ...]
    objects: int
    rows: int
    bytes: int
    unmerged: tuple[date, ...]
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
        """What went wrong, one sentence each."""
        return tuple(map(str, self.problems))


@dataclass(frozen=True, kw_only=True)
class _OldRange:
    """A range to be rewritten."""

    partition: Partition
    before: MergedRange


def run_adopt(context: StageContext, name: str, *, since: date | None) -> AdoptReport:
    """Rewrites the merged objects of the old format of a table, those of the days from `since` on.

    Repeating it rewrites nothing twice. Ranges that a merge extends meanwhile are left to it.
    """
    started = time.monotonic()
    context.check_lake()
    table = context.choose_tables([name])[0]
    if table.file_format != MICROSECONDS:
        raise WrongUse(f"{table.name} stores timestamps in milliseconds: say `iceberg: true` in its file first")
    check_not_held(context, table)
    old, unmerged = _find_old(context, table, since)
    done: list[_OldRange] = []
    problems: list[Problem] = []
    for start in range(0, len(old), _AT_ONCE):
        part = old[start : start + _AT_ONCE]
        tasks = [_task(context, table, number, item) for number, item in enumerate(part)]
        for result in list(run_bisected(context.engine, tasks, by_version(table))):
            item = part[result.number]
            if result.written is not None and _record(context, table, item, result.written):
                done.append(item)
            elif result.failure is not None:
                problems.append(
                    Problem(
                        table=name,
                        date=item.partition.date,
                        reason=result.failure.message,
                        transient=result.failure.transient,
                    )
                )
    return AdoptReport(
        table=name,
        days=tuple(sorted({item.partition.date for item in done})),
        objects=len(done),
        rows=sum(item.before.row_count for item in done),
        bytes=sum(item.before.content_length for item in done),
        unmerged=tuple(unmerged),
        seconds=time.monotonic() - started,
        problems=tuple(problems),
    )


def _find_old(context: StageContext, table: TableDefinition, since: date | None) -> tuple[list[_OldRange], list[date]]:
    keys = context.lake.keys(table)
    old: dict[int, tuple[date, list[MergedRange]]] = {}
    unmerged: list[date] = []
    with context.database.begin() as connection:
        for partition in partitions.load_table_partitions(connection, table.table_id):
            if since is not None and partition.date < since:
                continue
            chain = merge_ranges.load_chain(connection, keys, partition.partition_id)
            ranges = [item for item in chain if item.file_format != MICROSECONDS]
            if ranges:
                old[partition.partition_id] = partition.date, ranges
            small = small_objects.load_above(connection, keys, partition.partition_id, partition.desired_version)
            if any(item.file_format != MICROSECONDS for item in small):
                unmerged.append(partition.date)
    found = []
    for partition_id, (day, ranges) in old.items():
        highest = highest_number(context, table, day)
        with context.database.begin() as connection:
            partition = partitions.take_key_number(connection, partition_id, highest)
        found += [_OldRange(partition=partition, before=item) for item in ranges]
    return found, unmerged


def _task(context: StageContext, table: TableDefinition, number: int, item: _OldRange) -> WriteTask:
    """Merging one object alone rewrites it."""
    before, partition = item.before, item.partition
    return WriteTask(
        number=number,
        inputs=(replace(before, metrics=()),),
        output_key=context.lake.keys(table).merged_object(
            partition.date, before.lower_bound, before.upper_bound, partition.rebuild
        ),
        table_id=table.table_id,
        definition_version=table.version,
        metric_columns=table.metric_columns,
    )


def _record(context: StageContext, table: TableDefinition, item: _OldRange, written: DataFile) -> bool:
    """Records the new object, and has every catalog that names the old one published anew. One transaction."""
    failpoint("adopt.before_record")
    partition_id, before = item.partition.partition_id, item.before
    after = MergedRange.of(written, before.lower_bound, before.upper_bound, item.partition.rebuild)
    with context.database.begin() as connection:
        partitions.lock_partition(connection, partition_id)
        if not merge_ranges.record_adoption(connection, partition_id, before, after, definition_version=table.version):
            return False
        partitions.raise_revision(connection, partition_id)
    failpoint("adopt.after_record")
    return True

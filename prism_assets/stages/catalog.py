"""Catalog: switch, close, define, publish unswitched, publish switched, in this order, under a lock per table.

Because switching comes before closing, a partition needs at least two runs after its day is over.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.errors import PrismError
from prism_assets.domain.partitions import Partition, switch_refusal
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import locks, merge_jobs, partitions, tables
from prism_assets.metadata.locks import CatalogLock
from prism_assets.stages.context import StageContext
from prism_assets.stages.publish import PublicationPlan, PublishedPartition, plan_publications, publish


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A partition that did not move on, and what it waits for."""

    date: date
    reason: str


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What a catalog run did with one table. `skipped` if another run is at it."""

    table: str
    table_id: int
    switched: tuple[date, ...] = ()
    marked: tuple[date, ...] = ()
    closed: tuple[date, ...] = ()
    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    skipped: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        return bool(self.switched or self.marked or self.closed or self.defined or self.published)


@dataclass(frozen=True, kw_only=True)
class CatalogReport:
    """What a catalog run did with all tables."""

    tables: tuple[TableReport, ...]
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        return any(table.changed for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong, one sentence each."""
        return tuple(str(problem) for table in self.tables for problem in table.problems)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tables that another run was at, one sentence each."""
        return tuple(f"{table.table}: another catalog run is at it; skipped" for table in self.tables if table.skipped)


def run_catalog(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    republish: bool = False,
    patience: float = 0.0,
) -> CatalogReport:
    """Runs all five steps for each table. One sick table does not stop the others; its error is in the report.

    A table that another run is at is waited for, for so many seconds of `patience` each, and then skipped.
    """
    started = time.monotonic()
    context.check_lake()
    chosen = context.choose_tables(names)
    reports = []
    for table in chosen:
        try:
            reports.append(_run_table(context, table, now, republish, patience))
        except PrismError as error:
            problem = Problem.of(error, str(table.name))
            reports.append(TableReport(table=str(table.name), table_id=table.table_id, problems=(problem,)))
        if reports[-1].changed:
            context.progress(f"catalog: {table.name} changed")
    return CatalogReport(tables=tuple(reports), seconds=time.monotonic() - started)


def _run_table(
    context: StageContext, table: TableDefinition, now: datetime, republish: bool, patience: float
) -> TableReport:
    with locks.catalog_lock(context.database, table.table_id, patience) as lock:
        if lock is None:
            return TableReport(table=str(table.name), table_id=table.table_id, skipped=True)
        waiting: list[Waiting] = []
        switched = _switch(context, table, now, waiting)
        marked, closed = _close(context, table, now, waiting)
        shown = _show(context, table, lock, now, republish=republish)
        return TableReport(
            table=str(table.name),
            table_id=table.table_id,
            switched=tuple(switched),
            marked=tuple(marked),
            closed=tuple(closed),
            defined=shown.defined,
            published=shown.published,
            waiting=tuple(waiting),
            problems=shown.problems,
        )


def _restless(context: StageContext, table: TableDefinition) -> list[Partition]:
    with context.database.begin() as connection:
        return partitions.load_restless(connection, [table.table_id])


def _switch(context: StageContext, table: TableDefinition, now: datetime, waiting: list[Waiting]) -> list[date]:
    """Switches closed partitions whose live objects are all merged, with a certificate.

    One transaction a partition, its row locked: a death in it switches nothing; after it, publishing follows in
    the next run, and until then the manifest that readers have still names every row.
    """
    switched = []
    for partition in _restless(context, table):
        if partition.is_open or partition.switched:
            continue
        with context.database.begin() as connection:
            locked = partitions.lock_partition(connection, partition.partition_id)
            evidence = partitions.switch_evidence(connection, partition.partition_id)
            refusal = switch_refusal(locked, evidence)
            if refusal is None:
                partitions.switch(connection, partition.partition_id, evidence, now)
        if refusal is None:
            failpoint("catalog.after_switch")
            switched.append(partition.date)
        else:
            waiting.append(Waiting(date=partition.date, reason=f"is not switched: {refusal}"))
    return switched


def _close(
    context: StageContext, table: TableDefinition, now: datetime, waiting: list[Waiting]
) -> tuple[list[date], list[date]]:
    """Marks partitions whose day is over, then closes marked ones that no batch can add live objects to any more.

    Two transactions, each harmless to die in: a mark without a close is a state of its own, found by the next run.
    """
    over = [p for p in _restless(context, table) if p.is_open and table.day_ends(p.date) <= now]
    unmarked = [p for p in over if p.closing_batch_id is None]
    marked: list[date] = []
    if unmarked:
        with context.database.begin() as connection:
            locks.hold_epoch(connection)
            marks = partitions.mark_closing(connection, [p.partition_id for p in unmarked])
        failpoint("catalog.after_mark")
        marked = [p.date for p in unmarked if p.partition_id in marks]
    closed = []
    for partition in over:
        left = _close_one(context, table, partition, now)
        if left:
            reason = f"is not closed: {left} staging objects of before the end of its day are not converted yet"
            waiting.append(Waiting(date=partition.date, reason=reason))
        else:
            failpoint("catalog.after_close")
            closed.append(partition.date)
    return marked, closed


def _close_one(context: StageContext, table: TableDefinition, partition: Partition, now: datetime) -> int:
    """Closes one marked partition and has its rest merged at once; returns how many objects stand in the way."""
    with context.database.begin() as connection:
        locked = partitions.lock_partition(connection, partition.partition_id)
        if not locked.is_open or locked.closing_batch_id is None:
            return 0
        left = partitions.unfinished_before(connection, table.table_id, locked.closing_batch_id)
        if left == 0:
            partitions.close(connection, partition.partition_id)
            if locked.last_object_id > locked.desired_version:
                merge_jobs.hasten(connection, partition.partition_id, now)
        return left


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """What became of the steps that touch the catalog."""

    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    problems: tuple[Problem, ...] = ()


def _show(
    context: StageContext, table: TableDefinition, lock: CatalogLock, now: datetime, *, republish: bool
) -> _Shown:
    """Defines the table and publishes unswitched partitions first, then switched ones.

    That the catalog is about to be touched is noted before, and taken back when all went well. A run that died, or
    lost its lock while its call was on the way, leaves the note; the next run then compares everything. Which version
    was defined is noted in the end: a death before that has the table defined once more, which then changes nothing.
    """
    location = context.lake.url(context.lake.keys(table).root)
    with context.database.begin() as connection:
        known = tables.load_shown(connection, table.table_id)
    differs = context.catalog.differs(table, location)
    plans = _plans(context, table, everything=republish or differs or known.unsettled > 0)
    if not differs and not plans and not known.unsettled:
        if known.defined_version != table.version:
            with context.database.begin() as connection:
                tables.settle_publications(connection, table.table_id, 0, table.version)
        return _Shown()
    with context.database.begin() as connection:
        tables.begin_publication(connection, table.table_id)
    failpoint("catalog.after_begin")
    try:
        defined = context.catalog.define(table, location)
        failpoint("catalog.after_define")
        first, sick = publish(context, table, [p for p in plans if not p.partition.switched], lock, now)
        second, more = publish(context, table, [p for p in plans if p.partition.switched], lock, now)
    except PrismError as error:
        # Noted once more: if the lock was lost, another run may have taken this run's first note for its own.
        with suppress(PrismError), context.database.begin() as connection:
            tables.begin_publication(connection, table.table_id)
        return _Shown(problems=(Problem.of(error, str(table.name)),))
    with context.database.begin() as connection:
        tables.settle_publications(connection, table.table_id, known.unsettled + 1, table.version)
    return _Shown(defined=defined, published=(*first, *second), problems=(*sick, *more))


def _plans(context: StageContext, table: TableDefinition, *, everything: bool) -> list[PublicationPlan]:
    if not everything:
        return plan_publications(table, _restless(context, table), everything=False)
    with context.database.begin() as connection:
        found = partitions.load_table_partitions(connection, table.table_id)
    return plan_publications(table, found, everything=True)

"""Catalog: expire, switch, close, define, publish unswitched and switched, in this order, under a lease per table.

What comes from defining on is done once for each publisher that shows the table, by what is recorded of that one.

Because switching comes before closing, a partition needs at least two runs after its day is over. A run whose lease was
taken over, as it stood still, changes nothing more: every transaction and every call to the catalog is fenced by it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.errors import PrismError
from prism_assets.domain.lifecycle import (
    Close,
    Expire,
    Step,
    Switch,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    may_close,
    may_expire,
    may_mark,
    may_switch,
    next_steps,
)
from prism_assets.domain.partitions import GLUE, SYMLINK, Partition
from prism_assets.domain.problems import Problem
from prism_assets.domain.publishers import wanted_publishers, words_of
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import catalog_state, leases, locks, merge_jobs, partitions, retention, tables
from prism_assets.metadata.catalog_state import CatalogState
from prism_assets.metadata.leases import Holder, Lease, LeaseKind, in_brackets
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.column_transitions import (
    TransitionStatus,
    advance_columns,
    give_up_flip,
    read_transitions,
)
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.catalog.publications import PublishedPartition
from prism_assets.stages.catalog.publish import PublishReport, end_table, plan_publish, publish_table
from prism_assets.stages.context import StageContext
from prism_assets.stages.leases import find_holder, leased


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A partition that did not move on, and what it waits for."""

    date: date
    reason: str

    @classmethod
    def of(cls, partition: Partition, wait: WaitForMerge | WaitForObjects | WaitToExpire) -> Waiting:
        """As a step of a plan says it."""
        return cls(date=partition.date, reason=f"is not {wait.undone}: {wait.reason}")


_Told = TypeVar("_Told", Waiting, Problem)


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What a catalog run did with one table. `skipped` if another run is at it: its `holder`, unless it just ended.

    `columns_advanced` are steps of columns on the way to their new names or types, `open_transitions` say what these
    wait for behind it.

    What was defined, published, withdrawn and removed is that of Glue's own database, and of that of symlinks what
    `symlink` says. What is wrong, and what waits, is that of both, and stands here alone.
    """

    table: str
    table_id: int
    expired: tuple[date, ...] = ()
    withdrawn: tuple[date, ...] = ()
    removed: tuple[str, ...] = ()
    switched: tuple[date, ...] = ()
    marked: tuple[date, ...] = ()
    closed: tuple[date, ...] = ()
    columns_advanced: tuple[str, ...] = ()
    defined: str | None = None
    published: tuple[PublishedPartition, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    open_transitions: tuple[TransitionStatus, ...] = ()
    skipped: bool = False
    holder: Holder | None = None
    problems: tuple[Problem, ...] = ()
    symlink: PublishReport = field(default_factory=PublishReport)

    @property
    def skip_reason(self) -> str:
        """Why a table was skipped, and who has it."""
        return f"another catalog run is at it{in_brackets(self.holder)}; nothing was done"

    @property
    def changed(self) -> bool:
        """Whether the run changed anything."""
        moved = self.expired or self.withdrawn or self.switched or self.marked or self.closed or self.columns_advanced
        return bool(moved or self.defined or self.published or self.removed or self.symlink.changed)


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
        """What went wrong and what was left undone, one sentence each."""
        return (*(str(problem) for table in self.tables for problem in table.problems), *self.skipped)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The tables that another run was at, one sentence each."""
        return tuple(
            f"{table.table}: {table.skip_reason}; repeat when that has ended" for table in self.tables if table.skipped
        )


def run_catalog(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    republish: bool = False,
    wait_seconds: float = 0.0,
) -> CatalogReport:
    """Runs all steps for each table. One that fails does not stop the others; its error is in the report.

    With `republish` nothing is switched or closed, and the clock decides nothing: the tables are defined and all their
    partitions published as they are recorded. A table that another run is at is waited for when all others are done,
    for `wait_seconds`, and then skipped.
    """
    started = time.monotonic()
    context.check_lake()
    chosen = context.choose_with_dropped(names)
    reports: dict[int, TableReport] = {}
    for seconds in (0.0, wait_seconds) if wait_seconds else (0.0,):
        for table in chosen:
            if table.table_id in reports and not reports[table.table_id].skipped:
                continue
            reports[table.table_id] = report = _report_on(context, table, now, republish, seconds, started)
            if report.changed:
                context.progress(f"catalog: {table.name} changed")
            if report.skipped and not seconds:
                context.progress(f"catalog: {table.name}: {report.skip_reason} yet")
    return CatalogReport(tables=tuple(reports[table.table_id] for table in chosen), seconds=time.monotonic() - started)


def _report_on(
    context: StageContext,
    table: TableDefinition,
    now: datetime,
    republish: bool,
    wait_seconds: float,
    started: float,
) -> TableReport:
    name, table_id = str(table.name), table.table_id
    try:
        with leased(context, LeaseKind.CATALOG, [table_id], wait_seconds) as held:
            if held:
                failpoint("catalog.after_lease")
                return _run_table(context, held[table_id], now, republish, started)
        holder = find_holder(context, LeaseKind.CATALOG, table_id)
        return TableReport(table=name, table_id=table_id, skipped=True, holder=holder)
    except PrismError as error:
        return TableReport(table=name, table_id=table_id, problems=(Problem.of(error, name),))


def _run_table(context: StageContext, lease: Lease, now: datetime, republish: bool, started: float) -> TableReport:
    """The definition is read under the lease: one that was read before may have been replaced and shown meanwhile.

    It was `now` when the run `started`, by the monotonic clock; what is shown is noted with the time that it is then.
    """
    with context.database.begin() as connection:
        known = _load_state(context, connection, lease)
        pending = load_candidates(connection, [known.definition], now)
    table, past = known.definition, min(now, known.time)  # nothing that lasts ends by a clock ahead
    waiting: list[Waiting] = []
    expired: list[date] = []
    switched: list[date] = []
    marked: list[date] = []
    closed: list[date] = []
    advanced: tuple[str, ...] = ()
    if not republish and not table.dropped:
        if advanced := give_up_flip(context, lease, table, now):
            with context.database.begin() as connection:
                table = tables.load_current(connection, table)
        expired = _expire(context, table, lease, pending, past, waiting)
        switched = _switch(context, table, lease, pending, now, waiting)
        marked, closed = _close(context, table, lease, pending, now, waiting)
        advanced = (*advanced, *advance_columns(context, lease, table, now))
    shown = {
        one.publisher.name: _show(one, lease, table, now + timedelta(seconds=time.monotonic() - started), republish)
        for one in _begun_catalogs(context, lease, table)
    }
    current, open_transitions = _open_transitions(context, table, past)
    if not (republish or table.dropped) and any(item.is_shown for item in open_transitions):
        advanced = (*advanced, *advance_columns(context, lease, current, now))
        _, open_transitions = _open_transitions(context, current, past)
    glue, symlink = (shown.get(name, PublishReport()) for name in (GLUE, SYMLINK))
    return TableReport(
        table=str(table.name),
        table_id=table.table_id,
        expired=tuple(expired),
        withdrawn=glue.withdrawn,
        removed=glue.removed,
        switched=tuple(switched),
        marked=tuple(marked),
        closed=tuple(closed),
        columns_advanced=advanced,
        open_transitions=open_transitions,
        defined=glue.defined,
        published=glue.published,
        waiting=(*waiting, *_held_back(glue), *map(_of_symlinks, _held_back(symlink))),
        problems=(*glue.problems, *map(_of_symlinks, symlink.problems)),
        symlink=replace(symlink, problems=(), held_back=()),
    )


def _open_transitions(
    context: StageContext, table: TableDefinition, now: datetime
) -> tuple[TableDefinition, tuple[TransitionStatus, ...]]:
    """The definition in force, and how far columns are that are on the way to their new names or types."""
    with context.database.begin() as connection:
        current = tables.load_current(connection, table)
        return current, read_transitions(context, connection, current, now)


def _of_symlinks(item: _Told) -> _Told:
    return replace(item, reason=f"{words_of(SYMLINK).prefix}{item.reason}")


def _held_back(shown: PublishReport) -> list[Waiting]:
    return [Waiting(date=item.date, reason=item.reason) for item in shown.held_back]


def _load_state(context: StageContext, connection: Connection, lease: Lease) -> CatalogState:
    return catalog_state.load_catalog_state(
        connection, lease.subject_id, context.publisher.name, context.settings.catalog_compare_seconds
    )


def _begun_catalogs(context: StageContext, lease: Lease, table: TableDefinition) -> Sequence[StageContext]:
    """The context for each publisher that shows the table, or did; one that is to show it from now on is begun.

    That of Glue, too, whose row is made with the table, should it be lost. One transaction: a death in it leaves a
    table that the next run begins to show.
    """
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        begun = catalog_state.load_publishers(connection, [table.table_id])[table.table_id]
        missing = [name for name in wanted_publishers(table) if name not in begun]
        for name in missing:
            catalog_state.begin(connection, table.table_id, name)
            failpoint("catalog.in_begin")
    return context.of_publishers((*begun, *missing))


def _show(context: StageContext, lease: Lease, table: TableDefinition, now: datetime, republish: bool) -> PublishReport:
    """Has the catalog of one publisher show a table as it should. Its errors are its own: the others go on.

    No day is shown under a definition that had been replaced when the day was found: one with wider types may have come
    into force while nothing was stored, and all objects there are then have these.
    """
    try:
        while True:
            with context.database.begin() as connection:
                known = _load_state(context, connection, lease)
                pending = load_candidates(connection, [known.definition], now, known.publisher)
            if known.publisher not in wanted_publishers(known.definition):
                return end_table(context, lease, known)
            plan = plan_publish(context, known, pending, republish=republish)
            if plan.changes_nothing or _is_in_force(context, known.definition):
                return publish_table(context, lease, known, plan, now)
    except PrismError as error:
        return PublishReport(problems=(Problem.of(error, str(table.name)),))


def _is_in_force(context: StageContext, table: TableDefinition) -> bool:
    with context.database.begin() as connection:
        return tables.load_current(connection, table).version == table.version


@contextmanager
def _decided(
    context: StageContext, table: TableDefinition, lease: Lease, partition: Partition, now: datetime
) -> Iterator[tuple[Connection, Partition, Sequence[Step]]]:
    """A transaction of the holder of a table's lease: a partition as it is under its lock, and what is next for it."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        locked = partitions.lock_partition(connection, partition.partition_id)
        yield connection, locked, next_steps(locked, StoredFacts(connection, table), now)


def _expire(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    pending: Sequence[Partition],
    now: datetime,
    waiting: list[Waiting],
) -> list[date]:
    """Has rows of days that are older than the table keeps be too old, then ends such days, the oldest first.

    The clock of a machine that is ahead would end days too early: no `now` is later than that of the database.
    One transaction for the mark and one for each day. A death behind the mark leaves a day whose late rows are set
    aside, and which the next run ends; behind a day, one that the next run takes out of the catalog, and whose objects
    stay until that is so.
    """
    oldest_kept = table.oldest_kept(now)
    if oldest_kept is None:
        return []
    old = [item for item in pending if may_expire(item, table.expires(item.date), now)]
    chosen = old[: context.settings.expire_max_days]
    # Days behind those that this run ends are left as they are, and their rows are taken.
    first_day = chosen[-1].date + timedelta(days=1) if len(old) > len(chosen) else oldest_kept
    with context.database.begin() as connection:
        mark = retention.load_mark(connection, table.table_id)
    if mark is None or mark.first_day < first_day:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            locks.hold_epoch(connection)
            retention.advance_mark(connection, table.table_id, first_day)
            failpoint("catalog.in_retain")
        failpoint("catalog.after_retain")
    expired = []
    for partition in chosen:
        with _decided(context, table, lease, partition, now) as (connection, locked, steps):
            if Expire() in steps:
                retention.expire(connection, partition.partition_id)
                failpoint("catalog.in_expire")
        if Expire() in steps:
            failpoint("catalog.after_expire")
            expired.append(partition.date)
        waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitToExpire)]
    return expired


def _switch(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    pending: Sequence[Partition],
    now: datetime,
    waiting: list[Waiting],
) -> list[date]:
    """Switches closed partitions whose live objects are all merged, with a certificate. Decides under their lock.

    One transaction a partition, its row locked: a death in it switches nothing; after it, publishing follows in
    the next run, and until then the manifest that readers have still names every row.
    """
    switched = []
    for partition in filter(may_switch, pending):
        with _decided(context, table, lease, partition, now) as (connection, locked, steps):
            for step in steps:
                if isinstance(step, Switch) and step.evidence:
                    partitions.switch(connection, partition.partition_id, step.evidence, now)
                    failpoint("catalog.in_switch")
        if Switch() in steps:
            failpoint("catalog.after_switch")
            switched.append(partition.date)
        waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitForMerge)]
    return switched


def _close(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    pending: Sequence[Partition],
    now: datetime,
    waiting: list[Waiting],
) -> tuple[list[date], list[date]]:
    """Marks partitions whose day is over, then closes marked ones that no batch can add live objects to any more.

    A transaction for all marks and one for each close, which has the rest merged at once. Each is harmless to die in: a
    mark without a close is a state of its own, found by the next run.
    """
    over = [item for item in pending if may_close(item, table.closes_from(item.date), now)]
    unmarked = [item for item in over if may_mark(item, table.closes_from(item.date), now)]
    marked: list[date] = []
    if unmarked:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            locks.hold_epoch(connection)
            marks = partitions.mark_closing(connection, [p.partition_id for p in unmarked])
            failpoint("catalog.in_mark")
        failpoint("catalog.after_mark")
        marked = [p.date for p in unmarked if p.partition_id in marks]
    closed = []
    for partition in over:
        with _decided(context, table, lease, partition, now) as (connection, locked, steps):
            if Close() in steps:
                partitions.close(connection, partition.partition_id)
                if locked.last_object_id > locked.desired_version:
                    merge_jobs.hasten(connection, partition.partition_id, now)
                failpoint("catalog.in_close")
        if Close() in steps:
            failpoint("catalog.after_close")
            closed.append(partition.date)
        waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitForObjects)]
    return marked, closed

"""Catalog: expire, switch, close, define, publish unswitched and switched, in this order, under a lease per table.

Steps from the definition on run once for each publisher of the table, by its own record. Switching comes before
closing, so a partition needs at least two runs after its day. A run that stood still and lost its lease changes nothing
more, because the lease fences every transaction and every call to the catalog.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import GLUE, SYMLINK
from prism_assets.domain.days.publishers import wanted_publishers, words_of
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import catalog_state
from prism_assets.metadata.days.catalog_state import CatalogState
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.tables import tables
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.column_transitions import (
    TransitionStatus,
    advance_columns,
    give_up_flip,
    read_transitions,
)
from prism_assets.stages.catalog.idle import FirstLook, look_first
from prism_assets.stages.catalog.publish import PublishReport, end_table, plan_publish, publish_table
from prism_assets.stages.catalog.report import CatalogReport, TableReport, Waiting
from prism_assets.stages.catalog.transitions import Transitions, advance_days
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.leases import find_holder, leased

_ReportItem = TypeVar("_ReportItem", Waiting, Problem)


def run_catalog(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    republish: bool = False,
    wait_seconds: float = 0.0,
) -> CatalogReport:
    """Runs all steps for each table with work. A failing table does not stop the others; the report has its error.

    `republish` switches and closes nothing and ignores the clock: it defines the tables and publishes all partitions as
    recorded. A table held by another run is waited for after the others, for `wait_seconds`, and then skipped.
    """
    started = time.monotonic()
    context.check_lake()
    chosen = context.choose_with_dropped(names)
    _, held = without_held(context, [table for table in chosen if not table.dropped])
    ids = {str(table.name): table.table_id for table in chosen}
    look = FirstLook() if republish else look_first(context, chosen, now)
    reports = {
        table.table_id: TableReport(table=str(table.name), table_id=table.table_id, waiting=look.idle[table.table_id])
        for table in chosen
        if table.table_id in look.idle
    }
    reports |= {
        ids[item.table]: TableReport(table=item.table, table_id=ids[item.table], problems=(item,)) for item in held
    }
    for seconds in (0.0, wait_seconds) if wait_seconds else (0.0,):
        for table in chosen:
            if table.table_id in reports and not reports[table.table_id].skipped:
                continue
            reports[table.table_id] = report = run_table(
                context, table, now=now, republish=republish, wait_seconds=seconds, started=started, look=look
            )
            if report.changed:
                context.progress(f"catalog: {table.name} changed")
            if report.skipped and not seconds:
                context.progress(f"catalog: {table.name}: {report.skip_reason} yet")
    return CatalogReport(tables=tuple(reports[table.table_id] for table in chosen), seconds=time.monotonic() - started)


def run_table(
    context: StageContext,
    table: TableDefinition,
    *,
    now: datetime,
    republish: bool = False,
    wait_seconds: float = 0.0,
    started: float | None = None,
    look: FirstLook | None = None,
) -> TableReport:
    """Runs all steps of one table, whether or not it has work. `now` was at `started` on the monotonic clock.

    A death leaves every step to the next run.
    """
    started = time.monotonic() if started is None else started
    name, table_id = str(table.name), table.table_id
    try:
        with leased(context, LeaseKind.CATALOG, [table_id], wait_seconds) as held:
            if held:
                failpoint("catalog.after_lease")
                return _run_table(context, held[table_id], now, republish, started, look or FirstLook())
        holder = find_holder(context, LeaseKind.CATALOG, table_id)
        return TableReport(table=name, table_id=table_id, skipped=True, holder=holder)
    except PrismError as error:
        return TableReport(table=name, table_id=table_id, problems=(Problem.of(error, name),))


def _run_table(
    context: StageContext, lease: Lease, now: datetime, republish: bool, started: float, look: FirstLook
) -> TableReport:
    """Reads the definition under the lease, because an earlier one may have been replaced and shown meanwhile.

    `now` is the time when the run `started` on the monotonic clock. Publications get the time of their own call.
    """
    with context.database.begin() as connection:
        state = _load_state(context, connection, lease)
        pending = load_candidates(connection, [state.definition], now)
    table, not_ahead = state.definition, min(now, state.time)  # a fast clock must not end anything irreversible
    transitions = Transitions()
    advanced: tuple[str, ...] = ()
    if not republish and not table.dropped:
        if advanced := give_up_flip(context, lease, table, now):
            with context.database.begin() as connection:
                table = tables.load_current(connection, table)
        transitions = advance_days(context, table, lease, pending, now, not_ahead)
        advanced = (*advanced, *advance_columns(context, lease, table, now))
    shown = {
        one.publisher.name: _show(
            one, lease, table, now + timedelta(seconds=time.monotonic() - started), republish, look
        )
        for one in _begun_catalogs(context, lease, table)
    }
    current, open_transitions = _open_transitions(context, table, not_ahead)
    if not (republish or table.dropped) and any(item.is_shown for item in open_transitions):
        advanced = (*advanced, *advance_columns(context, lease, current, now))
        _, open_transitions = _open_transitions(context, current, not_ahead)
    glue, symlink = (shown.get(name, PublishReport()) for name in (GLUE, SYMLINK))
    return TableReport(
        table=str(table.name),
        table_id=table.table_id,
        expired=transitions.expired,
        withdrawn=glue.withdrawn,
        removed=glue.removed,
        switched=transitions.switched,
        marked=transitions.marked,
        closed=transitions.closed,
        columns_advanced=advanced,
        open_transitions=open_transitions,
        defined=glue.defined,
        published=glue.published,
        waiting=(*transitions.waiting, *_held_back(glue), *map(_of_symlinks, _held_back(symlink))),
        problems=(*glue.problems, *map(_of_symlinks, symlink.problems)),
        symlink=replace(symlink, problems=(), held_back=()),
    )


def _open_transitions(
    context: StageContext, table: TableDefinition, now: datetime
) -> tuple[TableDefinition, tuple[TransitionStatus, ...]]:
    """Returns the current definition, and its columns' transitions to new names or types."""
    with context.database.begin() as connection:
        current = tables.load_current(connection, table)
        return current, read_transitions(context, connection, current, now)


def _of_symlinks(item: _ReportItem) -> _ReportItem:
    return replace(item, reason=f"{words_of(SYMLINK).prefix}{item.reason}")


def _held_back(shown: PublishReport) -> list[Waiting]:
    return [Waiting(date=item.date, reason=item.reason) for item in shown.held_back]


def _load_state(context: StageContext, connection: Connection, lease: Lease) -> CatalogState:
    return catalog_state.load_catalog_state(
        connection, lease.subject_id, context.publisher.name, context.settings.catalog_compare_seconds
    )


def _begun_catalogs(context: StageContext, lease: Lease, table: TableDefinition) -> Sequence[StageContext]:
    """Returns the context of each publisher of the table, current or former. Begins a new publisher's row.

    This also restores the lost row of Glue, which is normally made with the table. One transaction: a death in it
    leaves the table for the next run to begin.
    """
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        begun = catalog_state.load_publishers(connection, [table.table_id])[table.table_id]
        missing = [name for name in wanted_publishers(table) if name not in begun]
        for name in missing:
            catalog_state.begin(connection, table.table_id, name)
            failpoint("catalog.in_begin")
    return context.of_publishers((*begun, *missing))


def _show(
    context: StageContext, lease: Lease, table: TableDefinition, now: datetime, republish: bool, look: FirstLook
) -> PublishReport:
    """Brings the catalog of one publisher to the intended state. An error does not stop the other publishers.

    No day is shown under a definition replaced since the day was read. One with wider types may have come into force
    while nothing was stored, and all current objects then have these types.
    """
    try:
        while True:
            with context.database.begin() as connection:
                state = _load_state(context, connection, lease)
                pending = load_candidates(connection, [state.definition], now, state.publisher)
            if state.publisher not in wanted_publishers(state.definition):
                return end_table(context, lease, state)
            is_defined = look.is_defined(state.publisher, state.definition)
            plan = plan_publish(context, state, pending, republish=republish, is_defined=is_defined)
            if plan.changes_nothing or _is_in_force(context, state.definition):
                return publish_table(context, lease, state, plan, now)
    except PrismError as error:
        return PublishReport(problems=(Problem.of(error, str(table.name)),))


def _is_in_force(context: StageContext, table: TableDefinition) -> bool:
    with context.database.begin() as connection:
        return tables.load_current(connection, table).version == table.version

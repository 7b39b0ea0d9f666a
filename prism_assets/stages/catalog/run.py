"""Catalog: expire, switch, close, define, publish unswitched and switched, in this order, under a lease per table.

What comes from defining on is done once for each publisher that shows the table, by what is recorded of that one.

Because switching comes before closing, a partition needs at least two runs after its day is over. A run whose lease was
taken over, as it stood still, changes nothing more: every transaction and every call to the catalog is fenced by it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.errors import PrismError
from prism_assets.domain.partitions import GLUE, SYMLINK
from prism_assets.domain.problems import Problem
from prism_assets.domain.publishers import wanted_publishers, words_of
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import catalog_state, leases, tables
from prism_assets.metadata.catalog_state import CatalogState
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.column_transitions import (
    TransitionStatus,
    advance_columns,
    give_up_flip,
    read_transitions,
)
from prism_assets.stages.catalog.publish import PublishReport, end_table, plan_publish, publish_table
from prism_assets.stages.catalog.report import CatalogReport, TableReport, Waiting
from prism_assets.stages.catalog.transitions import Transitions, advance_days
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.leases import find_holder, leased

_Told = TypeVar("_Told", Waiting, Problem)


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
    _, held = without_held(context, [table for table in chosen if not table.dropped])
    ids = {str(table.name): table.table_id for table in chosen}
    reports = {
        ids[item.table]: TableReport(table=item.table, table_id=ids[item.table], problems=(item,)) for item in held
    }
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
    table, not_ahead = known.definition, min(now, known.time)  # nothing that lasts ends by a clock ahead
    transitions = Transitions()
    advanced: tuple[str, ...] = ()
    if not republish and not table.dropped:
        if advanced := give_up_flip(context, lease, table, now):
            with context.database.begin() as connection:
                table = tables.load_current(connection, table)
        transitions = advance_days(context, table, lease, pending, now, not_ahead)
        advanced = (*advanced, *advance_columns(context, lease, table, now))
    shown = {
        one.publisher.name: _show(one, lease, table, now + timedelta(seconds=time.monotonic() - started), republish)
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

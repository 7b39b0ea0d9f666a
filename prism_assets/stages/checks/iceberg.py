"""Checks of Iceberg tables: what is recorded of them, and what their catalog shows.

A table that its file no longer names as Iceberg, or that no publication has begun yet, passes all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.iceberg_health import HEALTHY
from prism_assets.domain.snapshots import ACTIVE, KnownTable, commit_seconds
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted, listed
from prism_assets.metadata import iceberg_figures, iceberg_tables
from prism_assets.metadata.iceberg_figures import UnlistedDay, WaitingRows
from prism_assets.stages.checks.outcomes import SHOWN, CheckOutcome, Figures, failed, few, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.iceberg.status import read_health

if TYPE_CHECKING:
    from prism_assets.publishers.iceberg.loaded import LoadedTable

SNAPSHOT_ROWS = "snapshot_rows"
FOREIGN_COMMITS = "foreign_commits"
SECONDS_BEHIND = "seconds_behind"
DAYS_LEFT_OUT = "days_left_out"
HEALTH = "health"

_PACES = 2
_NOT_BEGUN = "no publication has begun yet"


def check_snapshot_rows(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Asks the catalog once a table. What differs is looked at once more: a run may have committed in between."""
    found = _look(context, request.tables)
    again = [table for table in request.tables if not _judge_rows(table, found[table.table_id]).passed]
    if again:
        found |= _look(context, again)
    return [_judge_rows(table, found[table.table_id]) for table in request.tables]


@dataclass(frozen=True, kw_only=True)
class _IcebergState:
    """What is recorded of a table, the rows of what it lists, and what the catalog showed after that was read.

    `missing` is the object that it names and that is not there.
    """

    known: KnownTable | None
    rows: Mapping[date, int]
    loaded: LoadedTable | None = None
    missing: str | None = None


def _look(context: StageContext, tables: Sequence[TableDefinition]) -> dict[int, _IcebergState]:
    ids = [table.table_id for table in tables if table.iceberg]
    rows: dict[int, dict[date, int]] = {}
    with context.database.repeatable_read() as connection:
        known = iceberg_tables.load_known_tables(connection, ids)
        for item in iceberg_figures.listed_rows(connection, ids):
            rows.setdefault(item.table_id, {})[item.date] = item.rows
    return {
        table.table_id: _with_head(
            context, table, _IcebergState(known=known.get(table.table_id), rows=rows.get(table.table_id, {}))
        )
        for table in tables
    }


def _with_head(context: StageContext, table: TableDefinition, look: _IcebergState) -> _IcebergState:
    if look.known is None or look.known.table_uuid is None:
        return look
    try:
        return replace(look, loaded=context.iceberg.load(table))
    except ObjectMissing as error:
        return replace(look, missing=str(error))


def _judge_rows(table: TableDefinition, look: _IcebergState) -> CheckOutcome:
    known, loaded, recorded = look.known, look.loaded, sum(look.rows.values())
    figures: Figures = {"rows recorded as listed": recorded, "days": len(look.rows)}
    if known is None or known.table_uuid is None:
        return passed(table, SNAPSHOT_ROWS, _NOT_BEGUN, figures)
    if look.missing:
        sentence = f"{look.missing}, and nobody can read the table: the next publication makes it again"
        return failed(table, SNAPSHOT_ROWS, sentence, figures)
    if loaded is None:
        sentence = f"the catalog has no table {known.identifier} any more: the next publication names it again"
        return failed(table, SNAPSHOT_ROWS, sentence, figures)
    if loaded.table_uuid != known.table_uuid:
        sentence = f"the catalog has another table as {known.identifier} than the one that was published"
        return failed(table, SNAPSHOT_ROWS, sentence, figures)
    rows = loaded.row_count
    figures = {**figures, "rows of the snapshot": rows}
    if rows == recorded:
        sentence = (
            f"the snapshot lists {counted(rows, 'row')} of {counted(len(look.rows), 'day')}, as PostgreSQL has them"
        )
        return passed(table, SNAPSHOT_ROWS, sentence, figures)
    others = loaded.foreign_since(known.snapshot_id)
    if loaded.snapshot_id != known.snapshot_id and not others:
        sentence = "its last commit is not recorded yet: the next publication compares all days"
        return passed(table, SNAPSHOT_ROWS, sentence, figures)
    parts = _days_that_differ(look.rows, loaded.rows_by_day)
    remedy = (
        "Somebody else committed to it: see foreign_commits"
        if others
        else "Readers of Iceberg get wrong rows: keep all objects, and report it"
    )
    sentence = f"the snapshot lists {counted(rows, 'row')}, PostgreSQL {recorded}: {few(parts)}. {remedy}"
    return failed(table, SNAPSHOT_ROWS, sentence, figures)


def _days_that_differ(recorded: Mapping[date, int], listed: Mapping[date, int]) -> list[str]:
    return [
        f"{day} has {listed.get(day, 0)} of {recorded.get(day, 0)}"
        for day in sorted({*recorded, *listed})
        if listed.get(day, 0) != recorded.get(day, 0)
    ]


def check_foreign_commits(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """What the last look of a publication at the catalog found; one statement for all tables."""
    with context.database.begin() as connection:
        known = iceberg_tables.load_known_tables(connection, request.ids)
    return [_judge_state(table, known.get(table.table_id)) for table in request.tables]


def _judge_state(table: TableDefinition, known: KnownTable | None) -> CheckOutcome:
    if known is None or table.iceberg is None or (known.table_uuid is None and known.state == ACTIVE):
        return passed(table, FOREIGN_COMMITS, _NOT_BEGUN)
    when = f" at {known.look_time:%Y-%m-%d %H:%M:%S}Z" if known.look_time else ""
    if known.state == ACTIVE:
        return passed(table, FOREIGN_COMMITS, f"nobody else had committed to {known.identifier}{when}")
    sentence = f"{known.last_error or f'{known.identifier} is {known.state}'} (seen{when})"
    return failed(table, FOREIGN_COMMITS, sentence, {"snapshots": known.snapshots})


def check_seconds_behind(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """One statement for all tables, over the days that changed since their last commits."""
    with context.database.begin() as connection:
        known = iceberg_tables.load_known_tables(connection, request.ids)
        waiting = iceberg_figures.waiting_rows(connection, list(known))
    return [_judge_behind(table, known.get(table.table_id), waiting.get(table.table_id)) for table in request.tables]


def _judge_behind(table: TableDefinition, known: KnownTable | None, waiting: WaitingRows | None) -> CheckOutcome:
    if known is None or table.iceberg is None:
        return passed(table, SECONDS_BEHIND, _NOT_BEGUN)
    limit = _PACES * commit_seconds(known, table.iceberg.commit_seconds)
    seconds, days = (waiting.seconds, waiting.days) if waiting else (0.0, 0)
    figures: Figures = {"seconds behind": round(seconds, 2), "days that wait": days, "limit in seconds": limit}
    if seconds < limit:
        return passed(table, SECONDS_BEHIND, f"no row waits for {limit:g} s to be listed", figures)
    reason = f"{known.last_error}. " if known.last_error else ""
    return failed(
        table,
        SECONDS_BEHIND,
        f"rows of {counted(days, 'day')} wait to be listed, the first for {seconds:.0f} s (limit {limit:g} s, twice "
        f"the time between two commits). {reason}Look at the last ticks of iceberg_work and the runs that it requested",
        figures,
    )


def check_days_left_out(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """One statement for all tables; it looks at every day."""
    with context.database.begin() as connection:
        found = iceberg_figures.unlisted_days(connection, [table.table_id for table in request.tables if table.iceberg])
    return [
        _judge_left_out(table, [item for item in found if item.table_id == table.table_id]) for table in request.tables
    ]


def _judge_left_out(table: TableDefinition, days: Sequence[UnlistedDay]) -> CheckOutcome:
    old = [item for item in days if item.old_objects]
    uncertified = [item for item in days if not item.old_objects]
    figures: Figures = {"days in milliseconds": len(old), "other days": len(uncertified)}
    if not days:
        return passed(table, DAYS_LEFT_OUT, "no day was left as it is", figures)
    parts = []
    if old:
        parts.append(
            f"{_listed(old)} with timestamps in milliseconds, in which readers of Iceberg find wrong rows: they are "
            f"shown when they are merged, or rewritten by `prism iceberg adopt {table.name}`"
        )
    if uncertified:
        parts.append(
            f"{_listed(uncertified)} whose merged objects do not hold the rows of the small ones, or whose commit was "
            f"not recorded: run `prism doctor --table {table.name}`"
        )
    return failed(
        table,
        DAYS_LEFT_OUT,
        f"{counted(len(days), 'day is', 'days are')} left as they are: {'; '.join(parts)}",
        figures,
    )


def _listed(days: Sequence[UnlistedDay]) -> str:
    return listed([item.date.isoformat() for item in days], SHOWN)


def check_health(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Asks the catalog once a table, and reads the list of manifests of its head."""
    with context.database.begin() as connection:
        known = iceberg_tables.load_known_tables(connection, request.ids)
        waiting = iceberg_figures.waiting_rows(connection, list(known))
    return [
        _judge_health(context, table, known.get(table.table_id), waiting.get(table.table_id))
        for table in request.tables
    ]


def _judge_health(
    context: StageContext, table: TableDefinition, known: KnownTable | None, waiting: WaitingRows | None
) -> CheckOutcome:
    if known is None or known.table_uuid is None or table.iceberg is None:
        return passed(table, HEALTH, _NOT_BEGUN)
    try:
        health = read_health(context, table, known, waiting.seconds if waiting else 0.0)
    except ObjectMissing as error:
        return failed(table, HEALTH, f"nothing can be measured: {error}; see {SNAPSHOT_ROWS}", {})
    if health is None:
        return failed(table, HEALTH, f"the catalog does not show the table: see {SNAPSHOT_ROWS}", {})
    figures: Figures = {
        "health": health.score,
        **{item.name: round(item.number, 2) for item in sorted(health.measures, key=lambda item: item.name)},
    }
    if health.score >= HEALTHY:
        return passed(table, HEALTH, f"{health.score} of 100; the worst is: {health.measures[0]}", figures)
    return failed(table, HEALTH, f"{health.score} of 100: {few(health.complaints)}", figures)

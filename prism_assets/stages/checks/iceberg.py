"""Checks of Iceberg tables: the record, and the answer of the catalog.

A table passes all checks before its first publication, and after `iceberg:` left the table file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.iceberg.health import HEALTHY
from prism_assets.domain.iceberg.snapshots import KnownTable, commit_seconds
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.iceberg import iceberg_figures, iceberg_tables
from prism_assets.metadata.iceberg.iceberg_figures import WaitingRows
from prism_assets.stages.checks.outcomes import Check, CheckOutcome, Figures, failed, few, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext
from prism_assets.stages.iceberg.status import read_health

if TYPE_CHECKING:
    from prism_assets.publishers.iceberg.loaded import LoadedTable

SNAPSHOT_ROWS = "snapshot_rows"
SECONDS_BEHIND = "seconds_behind"
HEALTH = "health"

_PACES = 2
_NOT_BEGUN = "no publication has begun yet"


def check_snapshot_rows(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Asks the catalog once a table, and a second time where rows differ: a run may have committed in between."""
    found = _look(context, request.tables)
    again = [table for table in request.tables if not _judge_rows(table, found[table.table_id]).passed]
    if again:
        found |= _look(context, again)
    return [_judge_rows(table, found[table.table_id]) for table in request.tables]


@dataclass(frozen=True, kw_only=True)
class _IcebergState:
    """The record of a table, the rows of its listed days, and the later answer of the catalog.

    `missing` names an object of the table without content.
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


def check_seconds_behind(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """One statement for all tables, over days with changes since the last commit."""
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


def check_health(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Asks the catalog once per table, and reads the list of manifests of its head."""
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


CHECKS = (
    Check(
        name=SNAPSHOT_ROWS,
        asset="iceberg",
        about="The current snapshot lists as many rows as PostgreSQL has recorded for it.",
        evaluate=check_snapshot_rows,
        is_error=True,
        blocking=True,
        asks_catalog=True,
    ),
    Check(
        name=SECONDS_BEHIND,
        asset="iceberg",
        about="No row waits to be listed longer than twice the time between two commits.",
        evaluate=check_seconds_behind,
    ),
    Check(
        name=HEALTH,
        asset="iceberg",
        about=f"The table can be planned quickly: its health is at least {HEALTHY} of 100.",
        evaluate=check_health,
        asks_catalog=True,
    ),
)

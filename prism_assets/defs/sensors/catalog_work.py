"""catalog_work: requests catalog where a catalog run has something to do. A comparison is due where what the catalog
shows of a table may not be what is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import date, datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata.catalog_state import undefined_tables
from prism_assets.stages.catalog.column_transitions import tables_to_advance
from prism_assets.stages.catalog.pending import COMPARE, PUBLISH, CatalogWork, find_catalog_work
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.delayed import DelayedRows, find_delayed
from prism_assets.stages.erasure_records import leave_out_held


def catalog_work(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests catalog for tables with days to publish or move on, a new definition, or a comparison due."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    work = _without_delayed(find_catalog_work(stages, now=now), find_delayed(stages), now)
    undefined = _undefined(stages, tables, now)
    days: dict[str, set[date]] = {name: {day} for name, day in undefined.items()}
    for item in work:
        days.setdefault(item.table, set()).add(item.date)
    days = leave_out_held(stages, days)
    runs = request_runs(PendingDays(Stage.CATALOG, days), location, context.instance)
    define = f"{counted(len(undefined), 'table')} to define" if undefined else ""
    due = sum(item.step == COMPARE for item in work)
    compare = f"{counted(due, 'table')} to compare with the catalog" if due else ""
    reason = "; ".join(filter(None, [_sentence(work, len(tables)), define, compare, runs.rest]))
    return SensorResult(run_requests=list(runs.requests), skip_reason=None if runs.requests else SkipReason(reason))


def _without_delayed(
    work: Collection[CatalogWork], delayed: Collection[DelayedRows], now: datetime
) -> list[CatalogWork]:
    """Leaves out the days that delayed_data asks for, unless nobody has seen to them for some time."""
    theirs = {(item.table, item.date) for item in delayed if item.is_fresh(now)}
    return [item for item in work if item.step != PUBLISH or (item.table, item.date) not in theirs]


def _undefined(stages: StageContext, tables: Collection[TableDefinition], now: datetime) -> dict[str, date]:
    """Tables whose definition in force the catalog does not show yet, or which is to follow by itself.

    It is shown without waiting for rows.
    """
    with stages.database.begin() as connection:
        undefined = undefined_tables(connection)
        undefined |= {table.table_id for table in tables_to_advance(stages, connection, tables, now)}
    return {str(table.name): table.today(now) for table in tables if table.table_id in undefined}


def _sentence(work: Collection[CatalogWork], tables: int) -> str:
    steps = Counter(item.step for item in work)
    parts = ", ".join(f"{steps[step]} to {step}" for step in ("publish", "close", "switch"))
    ends = "".join(f", {steps[step]} to {step}" for step in ("expire", "withdraw") if steps[step])
    return f"partitions of {counted(tables, 'table')}: {parts}{ends}"

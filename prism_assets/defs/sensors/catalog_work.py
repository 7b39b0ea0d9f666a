"""catalog_work: requests catalog if a catalog run has work.

This includes comparisons of a table whose catalog may differ from the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, days_of, request_runs
from prism_assets.domain.days.lifecycle import Publish
from prism_assets.domain.findings import Finding
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.delayed import DelayedRows, find_delayed
from prism_assets.stages.findings.registry import find_work


def catalog_work(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests catalog for tables with days to publish or move on, a new definition, or a comparison due."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    today = {str(table.name): table.today(now) for table in tables}
    work = _without_delayed(find_work(stages, "catalog", now=now, tables=tables), find_delayed(stages), now)
    runs = request_runs(PendingDays(Stage.CATALOG, days_of(work, today)), location, context.instance)
    return runs.result(context, *_sentences(work, len(today)))


def _without_delayed(work: Collection[Finding], delayed: Collection[DelayedRows], now: datetime) -> list[Finding]:
    """Leaves out days requested by delayed_data, unless they have waited for some time."""
    theirs = {(item.table, item.date) for item in delayed if item.is_fresh(now)}
    return [item for item in work if item.kind != Publish.action or (item.table, item.date) not in theirs]


def _sentences(work: Collection[Finding], tables: int) -> list[str]:
    kinds = Counter(item.kind for item in work)
    parts = ", ".join(f"{kinds[kind]} to {kind}" for kind in ("publish", "close", "switch"))
    ends = "".join(f", {kinds[kind]} to {kind}" for kind in ("expire", "withdraw") if kinds[kind])
    undefined = {item.table for item in work if item.kind in ("define", "column_transition")}
    return [
        f"partitions of {counted(tables, 'table')}: {parts}{ends}",
        f"{counted(len(undefined), 'table')} to define" if undefined else "",
        f"{counted(kinds['compare'], 'table')} to compare with the catalog" if kinds["compare"] else "",
    ]

"""folds_due: requests records for join tables with a due fold or merge of records."""

from __future__ import annotations

from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.findings.registry import find_work


def folds_due(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests records for join tables with changes to fold, records that settle, or settled records to merge."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    joins = {str(table.name): table for table in tables if table.join is not None}
    work = find_work(stages, "records", now=now, tables=tables)
    days = {item.table: {joins[item.table].today(now)} for item in work if item.table}
    runs = request_runs(PendingDays(Stage.RECORDS, days), location, context.instance)
    return runs.result(context, f"{len(days)} of {counted(len(joins), 'join table is', 'join tables are')} due")

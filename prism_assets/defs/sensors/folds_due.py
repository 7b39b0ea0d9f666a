"""folds_due: requests records for the join tables that are due for a fold, or for a merge of settled records."""

from __future__ import annotations

from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.words import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.erasure_records import leave_out_held
from prism_assets.stages.fold.pending import find_fold_work
from prism_assets.stages.merge.settled_merge_plan import preview_settled_merges


def folds_due(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests records for join tables with changes to fold, records that settle, or settled records to merge."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    work = find_fold_work(stages, now=now)
    merges = {str(item.table.name) for item in preview_settled_merges(stages) if item.plan.is_due}
    due = [item for item in work if item.reason or item.table in merges]
    days = leave_out_held(stages, {item.table: {item.date} for item in due})
    runs = request_runs(PendingDays(Stage.RECORDS, days), location, context.instance)
    reason = "; ".join(
        filter(None, [f"{len(due)} of {counted(len(work), 'join table is', 'join tables are')} due", runs.rest])
    )
    return SensorResult(run_requests=list(runs.requests), skip_reason=None if runs.requests else SkipReason(reason))

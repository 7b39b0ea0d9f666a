"""merges_due: requests merged for the tables whose merge jobs are due, or that have objects to be rewritten."""

from __future__ import annotations

from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, days_of, request_runs
from prism_assets.domain.text import counted
from prism_assets.metadata.files.merge_queue import MergeQueue, merge_queue
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.findings.registry import find_work


def merges_due(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests merged for the tables with merge jobs that are due, or were left behind by a dead worker."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    today = {str(table.name): table.today(now) for table in tables}
    work = find_work(stages, "merged", now=now, tables=tables)
    with stages.database.begin() as connection:
        queue = merge_queue(connection)
    due, anew = (sum(item.kind == kind for item in work) for kind in ("merge_due", "rewrite"))
    runs = request_runs(PendingDays(Stage.MERGED, days_of(work, today)), location, context.instance)
    rewrites = f"{counted(anew, 'day has', 'days have')} objects from before a rename or widening" if anew else ""
    reason = "; ".join(filter(None, [_sentence(due, queue), rewrites, runs.rest]))
    return SensorResult(run_requests=list(runs.requests), skip_reason=None if runs.requests else SkipReason(reason))


def _sentence(due: int, queue: MergeQueue) -> str:
    sentence = (
        f"{counted(due, 'partition is', 'partitions are')} due of {counted(queue.waiting, 'merge job')} waiting, "
        f"{queue.running} running"
    )
    sentence += f", {queue.parked} parked" if queue.parked else ""
    return sentence + (f"; the next is due at {queue.next_time:%Y-%m-%d %H:%M:%S}Z" if queue.next_time else "")

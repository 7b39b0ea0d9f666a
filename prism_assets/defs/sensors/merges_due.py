"""merges_due: requests merged for the tables whose merge jobs are due, or that have objects to be rewritten."""

from __future__ import annotations

from datetime import date, datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.words import counted
from prism_assets.metadata.column_transitions import load_days_to_rewrite
from prism_assets.metadata.merge_queue import MergeQueue, due_merges, merge_queue
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.erasure_records import leave_out_held


def merges_due(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests merged for the tables with merge jobs that are due, or were left behind by a dead worker."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    with stages.database.begin() as connection:
        due = due_merges(connection, now, stages.settings.lease_seconds)
        queue = merge_queue(connection)
        anew = load_days_to_rewrite(connection, tables)
    names = {table.table_id: str(table.name) for table in tables}
    days: dict[str, set[date]] = {}
    for table_id, day in (*((item.table_id, item.date) for item in due), *((day.table_id, day.date) for day in anew)):
        if table_id in names:  # nothing of a dropped table is merged
            days.setdefault(names[table_id], set()).add(day)
    days = leave_out_held(stages, days)
    runs = request_runs(PendingDays(Stage.MERGED, days), location, context.instance)
    rewrites = f"{counted(len(anew), 'day has', 'days have')} objects from before a rename or widening" if anew else ""
    reason = "; ".join(filter(None, [_sentence(len(due), queue), rewrites, runs.rest]))
    return SensorResult(run_requests=list(runs.requests), skip_reason=None if runs.requests else SkipReason(reason))


def _sentence(due: int, queue: MergeQueue) -> str:
    sentence = (
        f"{counted(due, 'partition is', 'partitions are')} due of {counted(queue.waiting, 'merge job')} waiting, "
        f"{queue.running} running"
    )
    sentence += f", {queue.parked} parked" if queue.parked else ""
    return sentence + (f"; the next is due at {queue.next_time:%Y-%m-%d %H:%M:%S}Z" if queue.next_time else "")

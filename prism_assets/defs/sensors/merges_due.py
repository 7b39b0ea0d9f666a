"""merges_due: requests merged for tables with due merges, objects to rewrite, or closed days with rows to erase."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, days_of, request_runs
from prism_assets.domain.text import counted
from prism_assets.metadata.files.merge_queue import MergeQueue, merge_queue
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.findings.registry import work_of
from prism_assets.stages.findings.subject import Look


def merges_due(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests merged for the tables with merge jobs that are due, or were left behind by a dead worker."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    today = {str(table.name): table.today(now) for table in tables}
    with stages.database.begin() as connection:
        look = Look(context=stages, connection=connection, tables=tables, now=now, for_people=False)
        work, queue = work_of(look, "merged"), merge_queue(connection)
    kinds = Counter(item.kind for item in work)
    runs = request_runs(PendingDays(Stage.MERGED, days_of(work, today)), location, context.instance)
    parts = [_sentence(kinds["merge_due"], queue)]
    if days := kinds["rewrite"]:
        parts.append(f"{counted(days, 'day has', 'days have')} objects from before a rename or widening")
    if days := kinds["erase_closed_day"]:
        parts.append(f"{counted(days, 'closed day has', 'closed days have')} rows to erase")
    return runs.result(context, *parts)


def _sentence(due: int, queue: MergeQueue) -> str:
    sentence = (
        f"{counted(due, 'partition is', 'partitions are')} due of {counted(queue.waiting, 'merge job')} waiting, "
        f"{queue.running} running"
    )
    sentence += f", {queue.parked} parked" if queue.parked else ""
    return sentence + (f"; the next is due at {queue.next_time:%Y-%m-%d %H:%M:%S}Z" if queue.next_time else "")

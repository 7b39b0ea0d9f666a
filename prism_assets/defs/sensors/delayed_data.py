"""delayed_data: requests catalog with the highest priority for closed or switched days with new rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.delayed import DelayedRows, find_delayed
from prism_assets.stages.erasure_records import leave_out_held

_SHOWN = 5
_PRIORITY = 3


def delayed_data(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests catalog for closed or switched days with new rows. Also counts rows still to merge."""
    stages.check_lake()
    found = find_delayed(stages)
    days: dict[str, set[date]] = {}
    for item in found:
        if item.unpublished_objects:
            days.setdefault(item.table, set()).add(item.date)
    days = leave_out_held(stages, days)
    runs = request_runs(PendingDays(Stage.CATALOG, days, other_priority=_PRIORITY), location, context.instance)
    return runs.result(context, _sentence(found))


def _sentence(found: Sequence[DelayedRows]) -> str:
    """Returns counts of unreadable and of unmerged rows. The unmerged ones have merge jobs, requested by merges_due."""
    hidden = [item for item in found if item.unpublished_objects]
    behind = [item for item in found if item.unmerged_objects]
    if not found:
        return "no delayed rows wait"
    rows = sum(item.unpublished_rows for item in hidden)
    unmerged = sum(item.unmerged_rows for item in behind)
    hidden_days, unmerged_days = counted(len(hidden), "day"), counted(len(behind), "day")
    return (
        f"{counted(rows, f'delayed row of {hidden_days} is', f'delayed rows of {hidden_days} are')} not readable "
        f"yet{_listed(hidden)}; {counted(unmerged, f'of {unmerged_days} waits', f'of {unmerged_days} wait')} for their "
        f"merge{_listed(behind)}"
    )


def _listed(items: Sequence[DelayedRows]) -> str:
    named = [f"{item.table} {item.date}" for item in items[:_SHOWN]]
    more = [f"{len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return f" ({', '.join([*named, *more])})" if items else ""

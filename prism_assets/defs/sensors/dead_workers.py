"""dead_workers: ends runs whose process died together with everything that could have told.

Dagster notices at once when a worker dies alone. After a power failure its runs would stand as started for hours, and
hold the places of others. The work itself is not touched: its leases run out by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta, timezone

from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunsFilter,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from prism_assets.defs.location import Location
from prism_assets.defs.sensors.in_flight import is_ours
from prism_assets.metadata.run_locks import runs_without_lock
from prism_assets.stages.context import StageContext

_YOUNG = timedelta(seconds=30)
_MISSES = 3
"""A run holds its lock while a step works, not in the moment between two steps: one look proves nothing."""


def dead_workers(stages: StageContext, context: SensorEvaluationContext, location: Location) -> SensorResult:
    """Ends runs that stand as started although no living process works for them."""
    runs = {run.run_id: run for run in _started(context.instance)}
    before = json.loads(context.cursor) if context.cursor else {}
    suspects = runs_without_lock(stages.database, list(runs))
    misses = {run_id: before.get(run_id, 0) + 1 for run_id in suspects}
    dead = [run_id for run_id, count in misses.items() if count >= _MISSES]
    for run_id in dead:
        context.instance.report_run_failed(runs[run_id], "the process of this run is gone; what it left is taken over")
        del misses[run_id]
    sentence = f"{len(runs)} runs are started, {len(misses)} of them under suspicion; {len(dead)} ended"
    return SensorResult(skip_reason=SkipReason(sentence), cursor=json.dumps(misses))


def _started(instance: DagsterInstance) -> Collection[DagsterRun]:
    """Runs of ours that stand as started for some time."""
    before = datetime.now(timezone.utc) - _YOUNG
    filters = RunsFilter(statuses=[DagsterRunStatus.STARTED], updated_before=before)
    return [record.dagster_run for record in instance.get_run_records(filters=filters) if is_ours(record.dagster_run)]

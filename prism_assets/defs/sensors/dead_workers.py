"""dead_workers: ends runs whose process died together with everything that could have told.

Dagster notices at once when a worker dies alone. After a power failure its runs would stand as started for hours, and
hold the places of others. The work itself is not touched: its leases run out by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
from prism_assets.defs.sensors.in_flight import works_for_tables
from prism_assets.domain.words import counted
from prism_assets.metadata.run_locks import runs_without_lock
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_YOUNG = timedelta(seconds=30)
_MISSES = 3
_SILENCE = timedelta(minutes=2)
"""A run holds its lock while a step works, not in the moment between two steps, and takes it again within seconds when
PostgreSQL has restarted: neither one look nor a short time proves anything."""
_MOST_SUSPECTS = 200


@dataclass(frozen=True)
class Suspicion:
    """Since when a run was seen without its lock, and in how many looks, one after the other."""

    since: datetime
    misses: int

    def is_proof(self, now: datetime) -> bool:
        """Whether it was seen so often, for so long, that its process must be gone."""
        return self.misses >= _MISSES and now - self.since >= _SILENCE


def dead_workers(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Ends runs that stand as started although no living process works for them."""
    now = datetime.now(timezone.utc)
    runs = {run.run_id: run for run in _started(context.instance, now)}
    before = _read(context.cursor)
    found = {run_id: _once_more(before.get(run_id), now) for run_id in runs_without_lock(stages.database, list(runs))}
    dead = [run_id for run_id, suspicion in found.items() if suspicion.is_proof(now)]
    for run_id in dead:
        context.instance.report_run_failed(runs[run_id], "the process of this run is gone; what it left is taken over")
        del found[run_id]
    started = counted(len(runs), "run is", "runs are")
    sentence = f"{started} started, {len(found)} of them under suspicion; {len(dead)} ended"
    return SensorResult(skip_reason=SkipReason(sentence), cursor=_write(found))


def _once_more(before: Suspicion | None, now: datetime) -> Suspicion:
    return Suspicion(before.since, before.misses + 1) if before else Suspicion(now, 1)


def _started(instance: DagsterInstance, now: datetime) -> Collection[DagsterRun]:
    """Runs of ours that hold a lock and stand as started for some time; those of daily jobs end by time."""
    filters = RunsFilter(statuses=[DagsterRunStatus.STARTED], updated_before=now - _YOUNG)
    runs = [record.dagster_run for record in instance.get_run_records(filters=filters)]
    return [run for run in runs if works_for_tables(run)]


def _read(cursor: str | None) -> dict[str, Suspicion]:
    """From a cursor; one of another form is as good as none."""
    found = json.loads(cursor) if cursor else {}
    return {
        run_id: Suspicion(datetime.fromisoformat(item["since"]), item["misses"])
        for run_id, item in found.items()
        if isinstance(item, dict)
    }


def _write(found: Mapping[str, Suspicion]) -> str:
    """As a cursor: of very many, those that were suspected first."""
    first = sorted(found.items(), key=lambda pair: (pair[1].since, pair[0]))[:_MOST_SUSPECTS]
    return json.dumps({run_id: {"since": item.since.isoformat(), "misses": item.misses} for run_id, item in first})

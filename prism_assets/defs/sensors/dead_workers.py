"""dead_workers: ends runs whose process died together with everything that could report it.

Dagster itself notices the death of a single worker. After a power failure its runs would stay started for hours, and
occupy places of other runs. The sensor does not touch the work, because its leases expire.
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
from prism_assets.domain.text import counted
from prism_assets.metadata.run_locks import runs_without_lock
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_YOUNG = timedelta(seconds=30)
_MISSES = 3
_SILENCE = timedelta(minutes=2)
"""A run holds its lock while a step works, not between two steps. After a restart of PostgreSQL it takes the lock again
within seconds. So neither one check nor a short time proves a death.
"""
_MOST_SUSPECTS = 200


@dataclass(frozen=True)
class Suspicion:
    """How long, and in how many successive checks, a run was without its lock."""

    since: datetime
    misses: int

    def is_proof(self, now: datetime) -> bool:
        """Whether the process is dead for certain."""
        return self.misses >= _MISSES and now - self.since >= _SILENCE


def dead_workers(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Ends started runs without a living process."""
    now = datetime.now(timezone.utc)
    runs = {run.run_id: run for run in _started(context.instance, now)}
    before = _read(context.cursor)
    found = {
        run_id: _suspect_again(before.get(run_id), now) for run_id in runs_without_lock(stages.database, list(runs))
    }
    dead = [run_id for run_id, suspicion in found.items() if suspicion.is_proof(now)]
    for run_id in dead:
        context.instance.report_run_failed(runs[run_id], "the process of this run is gone; what it left is taken over")
        del found[run_id]
    started = counted(len(runs), "run is", "runs are")
    sentence = f"{started} started, {len(found)} of them under suspicion; {len(dead)} ended"
    return SensorResult(skip_reason=SkipReason(sentence), cursor=_write(found))


def _suspect_again(before: Suspicion | None, now: datetime) -> Suspicion:
    return Suspicion(before.since, before.misses + 1) if before else Suspicion(now, 1)


def _started(instance: DagsterInstance, now: datetime) -> Collection[DagsterRun]:
    """Returns our locking runs that started some time ago. Daily jobs have a time limit instead."""
    filters = RunsFilter(statuses=[DagsterRunStatus.STARTED], updated_before=now - _YOUNG)
    runs = [record.dagster_run for record in instance.get_run_records(filters=filters)]
    return [run for run in runs if works_for_tables(run)]


def _read(cursor: str | None) -> dict[str, Suspicion]:
    """Reads a cursor. One of another form counts as empty."""
    found = json.loads(cursor) if cursor else {}
    return {
        run_id: Suspicion(datetime.fromisoformat(item["since"]), item["misses"])
        for run_id, item in found.items()
        if isinstance(item, dict)
    }


def _write(found: Mapping[str, Suspicion]) -> str:
    """Writes a cursor, with the earliest suspicions if there are very many."""
    first = sorted(found.items(), key=lambda pair: (pair[1].since, pair[0]))[:_MOST_SUSPECTS]
    return json.dumps({run_id: {"since": item.since.isoformat(), "misses": item.misses} for run_id, item in first})

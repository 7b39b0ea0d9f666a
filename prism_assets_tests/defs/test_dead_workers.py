"""dead_workers: ends a run only if its process must be dead, not for a short absence."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from prism_assets.defs.keys import MAINTENANCE
from prism_assets.metadata.run_locks import run_lock
from prism_assets_tests.builders import a_table
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_sensors import a_run, tick
from prism_assets_tests.world import World

# Dagster calls code deprecated by itself for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Checks runs from the start. The test decides how long a run may be without its lock."""
    monkeypatch.setattr("prism_assets.defs.sensors.dead_workers._YOUNG", timedelta(seconds=-1))
    return lambda silence: monkeypatch.setattr("prism_assets.defs.sensors.dead_workers._SILENCE", silence)


def test_a_run_is_not_ended_because_several_looks_missed_its_lock_within_seconds(
    settled: World, instance: DagsterInstance, patient: Callable[[timedelta], None]
) -> None:
    location = a_location(settled.root, a_table())
    run = a_run(instance, DagsterRunStatus.STARTED, "log.events")
    cursor = None
    for _ in range(5):
        cursor = tick(instance, location, "dead_workers", cursor).cursor
    assert _status(instance, run) is DagsterRunStatus.STARTED
    first = json.loads(cursor or "")[run.run_id]["since"]
    patient(datetime.now(timezone.utc) - datetime.fromisoformat(first))
    tick(instance, location, "dead_workers", cursor)
    assert _status(instance, run) is DagsterRunStatus.FAILURE


def test_a_lock_that_was_taken_again_clears_a_run(
    settled: World, instance: DagsterInstance, patient: Callable[[timedelta], None]
) -> None:
    patient(timedelta(0))
    location = a_location(settled.root, a_table())
    run = a_run(instance, DagsterRunStatus.STARTED, "log.events")
    cursor = None
    for _ in range(2):
        cursor = tick(instance, location, "dead_workers", cursor).cursor
    with run_lock(settled.context.database, run.run_id):
        cursor = tick(instance, location, "dead_workers", cursor).cursor
    assert cursor == "{}"
    cursor = tick(instance, location, "dead_workers", json.dumps({run.run_id: 9})).cursor
    assert _status(instance, run) is DagsterRunStatus.STARTED, "a cursor of another form proves nothing"


def test_the_maintenance_holds_no_lock_and_is_let_alone(
    settled: World, instance: DagsterInstance, patient: Callable[[timedelta], None]
) -> None:
    patient(timedelta(0))
    run = instance.add_run(DagsterRun(job_name=MAINTENANCE, status=DagsterRunStatus.STARTED))
    cursor = None
    for _ in range(4):
        cursor = tick(instance, a_location(settled.root, a_table()), "dead_workers", cursor).cursor
    assert _status(instance, run) is DagsterRunStatus.STARTED


def test_runs_without_a_living_process_are_ended_after_three_looks(
    settled: World, instance: DagsterInstance, patient: Callable[[timedelta], None]
) -> None:
    patient(timedelta(0))
    location = a_location(settled.root, a_table())
    dead = a_run(instance, DagsterRunStatus.STARTED, "log.events")
    alive = a_run(instance, DagsterRunStatus.STARTED, "log.events")
    cursor = None
    with run_lock(settled.context.database, alive.run_id):
        for _ in range(3):
            assert _status(instance, dead) is DagsterRunStatus.STARTED
            cursor = tick(instance, location, "dead_workers", cursor).cursor
    assert _status(instance, dead) is DagsterRunStatus.FAILURE
    assert _status(instance, alive) is DagsterRunStatus.STARTED


def _status(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None
    return stored.status

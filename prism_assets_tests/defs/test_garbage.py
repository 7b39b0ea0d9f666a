"""The daily job that collects garbage: what its run says, and that it fails where somebody must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions, ExecuteInProcessResult

from prism_assets.defs.garbage import build_garbage_collection
from prism_assets.defs.keys import GARBAGE_COLLECTION
from prism_assets.defs.resources import build_resources
from prism_assets.stages.apply import run_apply
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.defs.tables import a_folder, a_location
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"
TABLE = a_table(merge="{interval: 0}")


@pytest.fixture
def switched(settled: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A day whose three small objects were merged long ago."""
    monkeypatch.setenv("PRISM_GC_MAX_FRACTION", "1")
    run_apply(settled.context, a_folder(settled.root, TABLE), utc(NOON))
    for _ in range(3):
        settled.drop(some_rows(2, utc(NOON)))
    settled.stream(NOON)
    for _ in range(2):
        settled.catalog(AFTER)
        settled.merge(AFTER)
    settled.catalog(AFTER)
    hours_pass(settled, 100)
    return settled


def run(world: World, instance: DagsterInstance) -> ExecuteInProcessResult:
    job, schedule = build_garbage_collection(a_location(world.root, TABLE))
    assert schedule.default_status.value == "RUNNING"
    definitions = Definitions(jobs=[job], schedules=[schedule], resources=build_resources())
    return definitions.resolve_job_def(GARBAGE_COLLECTION).execute_in_process(instance=instance, raise_on_error=False)


def test_a_run_tells_what_it_deleted(switched: World, instance: DagsterInstance) -> None:
    rows = switched.ids()
    result = run(switched, instance)
    assert result.success
    (output,) = [event.step_output_data for event in result.all_events if event.is_successful_output]
    told: Mapping[str, Any] = output.metadata
    assert told["objects"].value == 4
    assert [record.data["reasons"] for record in told["tables"].records] == ["3 merged, 1 replaced"]
    assert len(keys(switched)) == 2
    assert switched.ids() == rows


def test_a_run_fails_for_a_table_whose_garbage_cannot_be_told(
    switched: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_GC_MAX_FRACTION", "2")
    result = run(switched, instance)
    assert not result.success
    monkeypatch.setenv("PRISM_GC_MAX_FRACTION", "1")
    shown = [key for key in keys(switched) if "/manifest-" in key][-1]
    switched.context.stores.put("lake", shown, b"no manifest")
    result = run(switched, instance)
    failure = result.failure_data_for_node("collect_garbage")
    said = failure and failure.user_failure_data and failure.user_failure_data.description
    assert "log.events: this is not a manifest" in str(said)
    assert len(keys(switched)) == 6

"""The daily garbage job: the report of its run, and its failure if somebody must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions, ExecuteInProcessResult

from prism_assets.defs.garbage import build_garbage_collection
from prism_assets.defs.keys import GARBAGE_COLLECTION
from prism_assets.defs.resources import build_platform
from prism_assets.stages.apply.run import run_apply
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.defs.tables import a_folder, a_location
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"
TABLE = a_table(merge="{interval: 0}")


@pytest.fixture
def switched(settled: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A day with three small objects, merged long ago."""
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


def run(world: World, instance: DagsterInstance, table: str = TABLE) -> ExecuteInProcessResult:
    job, schedule = build_garbage_collection(a_location(world.root, table))
    assert schedule.default_status.value == "RUNNING"
    definitions = Definitions(jobs=[job], schedules=[schedule], resources=build_platform())
    return definitions.resolve_job_def(GARBAGE_COLLECTION).execute_in_process(instance=instance, raise_on_error=False)


def metadata(result: ExecuteInProcessResult, op: str) -> Mapping[str, Any]:
    """Returns the metadata of one op of a run."""
    (output,) = [event.step_output_data for event in result.events_for_node(op) if event.is_successful_output]
    return output.metadata


def test_a_run_tells_what_it_deleted(switched: World, instance: DagsterInstance) -> None:
    rows = switched.ids()
    result = run(switched, instance)
    assert result.success
    told = metadata(result, "collect_garbage")
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


def test_a_run_does_what_is_due_about_iceberg_tables_and_nothing_where_nothing_is(
    settled: World, instance: DagsterInstance
) -> None:
    iced = a_table(merge="{interval: 0}", iceberg="{commit_seconds: 86400}")
    run_apply(settled.context, a_folder(settled.root, iced), utc(NOON))
    for _ in range(2):
        settled.drop(some_rows(2, utc(NOON)))
        settled.stream(NOON)
        settled.iceberg(NOON)
    assert metadata(run(settled, instance, iced), "optimize_iceberg")["commits"].value == 1, "snapshots of long ago go"
    assert len(settled.iceberg_table().metadata.snapshots) == 1
    assert metadata(run(settled, instance, iced), "optimize_iceberg")["commits"].value == 0, "the day is open"
    settled.catalog(AFTER)

    told = metadata(run(settled, instance, iced), "optimize_iceberg")

    assert (told["tables"].value, told["commits"].value) == (1, 1)
    table = settled.iceberg_table()
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) == 1
    assert metadata(run(settled, instance, iced), "optimize_iceberg")["commits"].value == 0


def test_garbage_is_collected_where_an_iceberg_catalog_is_away(
    switched: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    iced = a_table(merge="{interval: 0}", iceberg="true")
    run_apply(switched.context, a_folder(switched.root, iced), utc(NOON))
    monkeypatch.setenv("PRISM_ICEBERG_CATALOG", "rest")
    monkeypatch.setenv("PRISM_ICEBERG_REST_URI", "http://127.0.0.1:1")
    result = run(switched, instance, iced)
    assert result.failure_data_for_node("optimize_iceberg") is not None
    assert metadata(result, "collect_garbage") is not None

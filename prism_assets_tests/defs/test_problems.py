"""Problems in a run: retries, single failures, and reports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from dagster import DagsterEventType, DagsterInstance, ExecuteInProcessResult

from prism_assets import failpoints
from prism_assets.defs import failures
from prism_assets.defs.assets import build
from prism_assets.defs.keys import asset_key
from prism_assets.domain.errors import DatabaseUnavailable, StoreUnavailable
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.leases import LeaseKind
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import NOW, TODAY, YESTERDAY, made, run
from prism_assets_tests.stages.catalogs import held_all_the_time
from prism_assets_tests.stages.engines import keep_leases
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "WAIT_SECONDS", 0.0)


def inject(monkeypatch: pytest.MonkeyPatch, faults: str) -> None:
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(faults))


def retries(result: ExecuteInProcessResult) -> int:
    return sum(event.event_type is DagsterEventType.STEP_RESTARTED for event in result.all_events)


def told(result: ExecuteInProcessResult, step: str) -> str:
    failure: Any = result.failure_data_for_node(step)
    return str(failure.user_failure_data.description)


def test_what_was_committed_before_an_outage_is_told_and_the_rest_is_tried_again(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(2, NOW - timedelta(hours=1)))
    settled.drop(some_rows(3, NOW))
    monkeypatch.setenv("PRISM_STREAM_MAX_OBJECTS", "1")
    inject(monkeypatch, "stream.after_convert=1*off->1*raise(EngineUnavailable)")
    result = run(instance, location, ["live"])
    assert result.success
    assert retries(result) == 1
    assert [(day, item.metadata["rows added"].value) for _, day, item in made(result)] == [(YESTERDAY, 2), (TODAY, 3)]


def test_jobs_committed_before_an_outage_are_told_by_a_sensors_run(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, *(a_table(name, merge="{interval: 0}") for name in ("log.events", "log.other")))
    tables = ["log.events", "log.other"]
    settled.drop(some_rows(2, NOW))
    settled.drop(some_rows(3, NOW), stream="other")
    run(instance, location, ["live"], tables=tables)
    inject(monkeypatch, "merge.before_commit=1*off->1*raise(DatabaseUnavailable)")
    result = run(instance, location, ["merged"], tables=tables, by_sensor=True)
    assert result.success
    assert retries(result) == 1
    for table in tables:
        assert instance.get_materialized_partitions(asset_key(table, "merged")) == {TODAY}


def test_an_outage_that_lasts_fails_the_run_with_its_reason(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(2, NOW))
    run(instance, location, ["live"])
    inject(monkeypatch, "catalog.after_define=raise(CatalogUnavailable)")
    result = run(instance, location, ["catalog"])
    assert not result.success
    assert retries(result) == failures.MAX_RETRIES
    assert "log.events: failpoint catalog.after_define" in told(result, "catalog_utc")


def test_a_sick_day_of_a_table_fails_alone(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    sick = (NOW - timedelta(days=3)).date()
    settled.drop(some_rows(2, NOW - timedelta(days=3)))
    settled.drop(some_rows(3, NOW))
    assert run(instance, location, ["live", "catalog"]).success
    assert run(instance, location, ["merged"], day=sick.isoformat()).success
    settled.context.stores.delete("lake", [key for key in _keys(settled) if "/merged/" in key])
    healthy = run(instance, location, ["catalog"])
    assert healthy.success
    assert [day for _, day, _ in made(healthy)][-1] == TODAY
    failed = run(instance, location, ["catalog"], day=sick.isoformat())
    assert not failed.success
    assert f"log.events {sick}: s3://lake/" in told(failed, "catalog_utc")
    assert retries(failed) == 0


def test_a_table_that_another_run_is_publishing_is_waited_for_by_hand_only(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_LEASE_SECONDS", "1")
    monkeypatch.setattr(failures, "MAX_RETRIES", 1)
    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    [table] = settled.context.choose_tables(["log.events"])
    with held_all_the_time(settled, LeaseKind.CATALOG, [table.table_id]):
        assert run(instance, location, ["catalog"], by_sensor=True).success
        result = run(instance, location, ["catalog"])
    assert not result.success
    assert retries(result) == 1
    assert "another catalog run is working on it" in told(result, "catalog_utc")


@pytest.mark.parametrize("by_sensor", [True, False])
def test_checks_that_cannot_be_run_undo_nothing_and_by_hand_let_nothing_pass(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, by_sensor: bool
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise DatabaseUnavailable("PostgreSQL went away")

    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    monkeypatch.setattr(build, "evaluate_with", interrupted)
    monkeypatch.setattr(failures, "MAX_RETRIES", 0)
    settled.drop(some_rows(3, NOW))
    settled.discover(NOW.strftime("%Y-%m-%dT%H:%M"))
    result = run(instance, location, ["live"], by_sensor=by_sensor)
    assert result.success == by_sensor
    assert len(made(result)) == by_sensor
    assert settled.stream(NOW.strftime("%Y-%m-%dT%H:%M")).objects == 0


def test_by_hand_objects_that_another_worker_has_are_waited_for(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    run(instance, location, ["live"])
    settled.drop(some_rows(3, NOW))
    settled.discover(NOW.strftime("%Y-%m-%dT%H:%M"))
    assert start_batch(settled.context, None) is not None
    keep_leases(settled)
    assert run(instance, location, ["live"], by_sensor=True).success
    result = run(instance, location, ["live"])
    assert not result.success
    assert retries(result) == failures.MAX_RETRIES
    assert "log.events: 1 object is not converted yet" in told(result, "live_utc")


def test_by_hand_a_day_that_another_worker_merges_is_waited_for(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    with settled.context.database.begin() as connection:
        assert merge_jobs.claim_due(connection, now=NOW, limit=9, worker="another", ignore_schedule=True)
    keep_leases(settled)
    assert run(instance, location, ["merged"], by_sensor=True).success
    result = run(instance, location, ["merged"])
    assert not result.success
    assert retries(result) == failures.MAX_RETRIES
    assert f"log.events {TODAY}: another worker merges this day" in told(result, "merged_utc")
    assert run(instance, location, ["merged"], day=YESTERDAY).success


def test_by_hand_a_day_that_another_worker_repairs_is_waited_for(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISM_LEASE_SECONDS", "1")
    monkeypatch.setattr(failures, "MAX_RETRIES", 1)
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    with settled.context.database.begin() as connection:
        [partition] = partitions.load_needed(connection, [1], NOW.date())
    with held_all_the_time(settled, LeaseKind.REPAIR, [partition.partition_id]):
        result = run(instance, location, ["live"])
    assert not result.success
    assert f"log.events {TODAY}: another repair is working on it" in told(result, "live_utc")


def test_a_failed_merge_fails_a_sensors_run_at_once(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits for its next time, so another try would find no work and succeed."""
    location = a_location(settled.root, a_table(merge="{interval: 0}"))
    settled.drop(some_rows(3, NOW - timedelta(days=3)))
    run(instance, location, ["live", "catalog"])

    read = Stores.get_chunks

    def away(self: Stores, bucket: str, key: str, **more: Any) -> Iterator[bytes]:
        if key.endswith(".parquet"):
            raise StoreUnavailable(f"s3://{bucket}/{key}: the object store did not answer")
        return read(self, bucket, key, **more)

    monkeypatch.setattr(Stores, "get_chunks", away)
    result = run(instance, location, ["merged"], by_sensor=True)
    assert not result.success
    assert retries(result) == 0
    assert "did not answer" in told(result, "merged_utc")


def _keys(world: World) -> list[str]:
    return [item.key for item in world.context.stores.list("lake", "")]

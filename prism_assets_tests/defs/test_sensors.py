"""Sensors: their requests, their reasons for none, and their sentences."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterError,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SensorResult,
    build_sensor_context,
    instance_for_test,
)
from dagster._core.remote_origin import RegisteredCodeLocationOrigin
from dagster._core.remote_representation.external_data import SensorExecutionErrorSnap
from dagster._grpc.impl import get_external_sensor_execution
from dagster._utils.error import serializable_error_info_from_exc_info
from sqlalchemy import text

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import FAILED_TABLES_TAG, PRIORITY_TAG, STAGE_TAG, Stage, asset_key
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_platform
from prism_assets.defs.sensors.build import build_sensors
from prism_assets.defs.sensors.in_flight import find_in_flight
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.live.holdings import Holdings
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.notifications import TEST_EVENT, QueueOfTest, a_body, a_record
from prism_assets_tests.requests import a_join_table
from prism_assets_tests.stages.catalogs import LosingCatalog, calls_are_over, with_catalog
from prism_assets_tests.stages.engines import expire_leases
from prism_assets_tests.stages.test_drop import drop, retire
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOW = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)


def tick(instance: DagsterInstance, location: Location, name: str, cursor: str | None = None) -> SensorResult:
    """One tick of one sensor."""
    sensor = {item.name: item for item in build_sensors(location)}[name]
    platform = build_platform()
    with build_sensor_context(instance=instance, cursor=cursor, resources=platform) as context:
        result = sensor(context)
    assert isinstance(result, SensorResult)
    return result


def asked(result: SensorResult) -> list[AssetKey]:
    return [key for request in result.run_requests or () for key in request.asset_selection or ()]


def said(result: SensorResult) -> str:
    assert not result.run_requests
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def launch(instance: DagsterInstance, request: RunRequest, status: DagsterRunStatus) -> DagsterRun:
    """Makes the run of a request, as the daemon does."""
    return _store(instance, status, dict(request.tags), request.asset_selection or ())


def _store(
    instance: DagsterInstance, status: DagsterRunStatus, tags: dict[str, str], keys: Iterable[AssetKey]
) -> DagsterRun:
    run = DagsterRun(job_name="a_job", status=status, tags=tags, asset_selection=frozenset(keys))
    return instance.add_run(run)


def test_new_objects_asks_for_the_tables_that_have_some(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.idle"))
    settled.drop(some_rows(1, NOW))
    result = tick(instance, location, "new_objects")
    assert asked(result) == [asset_key("log.events", "live")]
    request = (result.run_requests or [])[0]
    assert request.run_key is None
    assert request.asset_check_keys == []  # or Dagster would note every check before the run may start
    assert request.partition_key == NOW.date().isoformat()


def test_new_objects_says_what_it_saw(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    assert said(tick(instance, location, "new_objects")) == "0 new of 0 objects in 1 stream listed; 0 pending"


def test_new_objects_leaves_tables_to_a_living_worker_and_takes_them_over_from_a_dead_one(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table(), a_table("log.idle"))
    run_apply(settled.context, settled.settings.tables_dir, NOW)
    worker = Holdings(replace(settled.context, worker="vm:1"), ["log.events"])
    worker.beat()
    settled.drop(some_rows(1, NOW))
    settled.drop(some_rows(1, NOW), stream="idle")
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.idle", "live")]
    with settled.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '16 seconds'")
    assert set(asked(tick(instance, location, "new_objects"))) == {
        asset_key("log.events", "live"),
        asset_key("log.idle", "live"),
    }
    worker.beat()
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.idle", "live")]


def test_new_objects_says_who_has_all_tables_and_lists_nothing(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    run_apply(settled.context, settled.settings.tables_dir, NOW)
    worker = Holdings(replace(settled.context, worker="vm:1"), None)
    worker.beat()
    settled.drop(some_rows(1, NOW))
    assert said(tick(instance, location, "new_objects")).startswith(
        "0 new of 0 objects in 0 streams listed; 0 pending; 1 table is left to the worker vm:1/"
    )


@pytest.fixture
def queued(settled: World, queue: QueueOfTest, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world with a queue in its settings."""
    monkeypatch.setenv("PRISM_SQS_QUEUE_URLS", queue.url)
    monkeypatch.setenv("PRISM_SQS_ENDPOINT", queue.endpoint)
    return settled


def test_new_objects_asks_for_the_tables_that_messages_tell_of(
    queued: World, queue: QueueOfTest, instance: DagsterInstance
) -> None:
    location = a_location(queued.root, a_table(), a_table("log.idle"))
    tick(instance, location, "new_objects")  # lists, and does so again after ten minutes only
    missed = queued.drop(some_rows(1, NOW), stream="idle")
    queue.tell(queued.drop(some_rows(1, NOW)))
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]
    queue.tell(missed)
    assert asked(tick(instance, location, "new_objects")) == [
        asset_key("log.events", "live"),
        asset_key("log.idle", "live"),
    ]


def test_new_objects_says_what_messages_told(queued: World, queue: QueueOfTest, instance: DagsterInstance) -> None:
    location = a_location(queued.root, a_table())
    queue.send(TEST_EVENT, a_body(a_record("none/1.gz"), a_record("none/2.gz")), "nonsense")
    assert said(tick(instance, location, "new_objects")) == (
        "3 messages: 0 new, 0 known, 3 unknown, 1 ignored; 0 new of 0 objects in 1 stream listed; 0 pending"
    )
    queued.drop(some_rows(1, NOW))
    assert said(tick(instance, location, "new_objects")) == (
        "0 messages: 0 new, 0 known, 0 unknown, 0 ignored; 0 new of 0 objects in 0 streams listed; 0 pending"
    )


def test_new_objects_finds_by_listing_what_messages_missed(
    queued: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(queued.root, a_table())
    tick(instance, location, "new_objects")
    queued.drop(some_rows(1, NOW))
    assert "0 pending" in said(tick(instance, location, "new_objects"))
    monkeypatch.setenv("PRISM_SQS_LISTING_SECONDS", "0")
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_new_objects_lists_at_every_tick_while_a_queue_cannot_be_read(
    queued: World, queue: QueueOfTest, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(queued.root, a_table())
    monkeypatch.setenv("PRISM_SQS_QUEUE_URLS", f"{queue.url}-missing")
    assert "1 queue or stream could not be read: queue " in said(tick(instance, location, "new_objects"))
    queued.drop(some_rows(1, NOW))
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_new_objects_leaves_messages_where_they_are_while_too_much_is_pending(
    queued: World, queue: QueueOfTest, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(queued.root, a_table())
    monkeypatch.setenv("PRISM_BACKLOG_OBJECTS", "1")
    queue.tell(queued.drop(some_rows(1, NOW)))
    first = tick(instance, location, "new_objects")
    launch(instance, (first.run_requests or [])[0], DagsterRunStatus.STARTED)
    queue.tell("events/2.gz")
    reason = said(tick(instance, location, "new_objects"))
    assert reason.startswith("0 messages: ")
    assert reason.endswith(
        "1 pending; messages wait in the queue until fewer than 1 object is pending; "
        "1 table in a run that is queued or running"
    )
    assert queue.count() == 1


def test_new_objects_stops_when_its_time_is_over_and_goes_on_at_the_next_tick(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table(), a_table("log.other"))
    settled.drop(some_rows(1, NOW))
    with monkeypatch.context() as patch:
        patch.setattr("prism_assets.defs.sensors.requests.BUDGET_SECONDS", 0.0)
        reason = said(tick(instance, location, "new_objects"))
    assert reason == "0 new of 0 objects in 0 streams listed; 2 streams to go on with; 0 pending"
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_a_table_in_a_queued_run_is_not_asked_for_again(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    first = tick(instance, location, "new_objects")
    launch(instance, (first.run_requests or [])[0], DagsterRunStatus.NOT_STARTED)
    assert "1 table in a run that is queued or running" in said(tick(instance, location, "new_objects"))


def test_while_a_run_of_a_zone_waits_or_begins_its_other_tables_go_into_the_next(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = (a_table(), a_table("log.other"), a_table("log.far", timezone="Asia/Tokyo"))
    location = a_location(settled.root, *tables)
    settled.drop(some_rows(1, NOW))
    first = (tick(instance, location, "new_objects").run_requests or [])[0]
    waiting = launch(instance, first, DagsterRunStatus.NOT_STARTED)
    settled.drop(some_rows(1, NOW), stream="other")
    behind = "1 table behind a run that waits for its turn or has just begun"
    assert behind in said(tick(instance, location, "new_objects"))

    settled.drop(some_rows(1, NOW), stream="far")
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.far", "live")]

    instance.delete_run(waiting.run_id)
    launch(instance, first, DagsterRunStatus.STARTED)
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.far", "live")]

    monkeypatch.setattr("prism_assets.defs.sensors.in_flight._JUST_BEGUN", timedelta())
    assert set(asked(tick(instance, location, "new_objects"))) == {
        asset_key("log.far", "live"),
        asset_key("log.other", "live"),
    }


def test_a_finished_run_does_not_keep_the_same_day_from_being_asked_for(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    first = tick(instance, location, "new_objects")
    launch(instance, (first.run_requests or [])[0], DagsterRunStatus.SUCCESS)
    assert asked(tick(instance, location, "new_objects")) == asked(first)


def test_a_stream_that_cannot_be_listed_does_not_stop_the_others(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table("log.a_sick", bucket="nowhere"), a_table())
    settled.drop(some_rows(1, NOW))
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_objects_of_a_dead_worker_are_asked_for(settled: World, instance: DagsterInstance) -> None:
    from prism_assets.stages.stream.plan import start_batch

    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    tick(instance, location, "new_objects")
    assert start_batch(settled.context, None) is not None
    assert "0 pending" in said(tick(instance, location, "new_objects"))
    expire_leases(settled)
    assert asked(tick(instance, location, "new_objects")) == [asset_key("log.events", "live")]


def test_merges_due_asks_once_a_job_is_due(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(merge="{interval: 0}"), a_table("log.later"))
    tick(instance, location, "new_objects")
    settled.drop(some_rows(1, NOW))
    settled.drop(some_rows(1, NOW), stream="later")
    settled.stream(datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M"))
    assert asked(tick(instance, location, "merges_due")) == [asset_key("log.events", "merged")]


def test_a_renamed_column_is_seen_to_without_new_rows(settled: World, instance: DagsterInstance) -> None:
    settled.apply(a_table(columns=["{name: color, type: string}"]))
    settled.drop(some_rows(1, NOW - timedelta(days=1)))
    settled.stream(now())
    settled.catalog(now())
    settled.merge(now(), everything=True)
    settled.catalog(now())
    text = a_table(columns=["{name: hue, type: string, was: color}"])
    settled.apply(text)
    location = a_location(settled.root)
    settled.catalog(now())
    assert asked(tick(instance, location, "catalog_work")) == []
    assert asked(tick(instance, location, "merges_due")) == [asset_key("log.events", "merged")]
    settled.merge(now())
    assert "0 partitions are due" in said(tick(instance, location, "merges_due"))
    settled.catalog(now())
    assert asked(tick(instance, location, "catalog_work")) == [asset_key("log.events", "catalog")]
    settled.catalog(now())
    assert asked(tick(instance, location, "catalog_work")) == []


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M")


def test_catalog_work_asks_for_new_tables_and_then_for_what_changes(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.other"))
    first = tick(instance, location, "catalog_work")
    assert asked(first) == [asset_key("log.events", "catalog"), asset_key("log.other", "catalog")]
    settled.catalog(now())
    quiet = tick(instance, location, "catalog_work")
    assert said(quiet) == "partitions of 2 tables: 0 to publish, 0 to close, 0 to switch"
    settled.drop(some_rows(1, NOW))
    settled.stream(now())
    assert asked(tick(instance, location, "catalog_work")) == [asset_key("log.events", "catalog")]


def test_a_table_in_doubt_is_asked_for_and_told_until_it_was_compared(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    tick(instance, location, "catalog_work")
    settled.drop(some_rows(1, NOW))
    settled.stream(now())
    losing = with_catalog(settled, LosingCatalog(settled.glue))
    assert run_catalog(losing.context, now=NOW).errors
    settled.catalog(now())
    request = tick(instance, location, "catalog_work")
    assert asked(request) == [asset_key("log.events", "catalog")]
    queued = launch(instance, (request.run_requests or [])[0], DagsterRunStatus.NOT_STARTED)
    told = said(tick(instance, location, "catalog_work"))
    assert "; 1 table to compare with the catalog; 1 table in a run" in told
    instance.delete_run(queued.run_id)
    calls_are_over(settled)
    settled.catalog(now())
    assert asked(tick(instance, location, "catalog_work")) == []


def test_a_new_definition_is_asked_for_until_the_catalog_shows_it(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    request = (tick(instance, location, "catalog_work").run_requests or [])[0]
    launch(instance, request, DagsterRunStatus.CANCELED)
    cursor = tick(instance, location, "catalog_work").cursor
    assert cursor is None
    queued = launch(instance, request, DagsterRunStatus.NOT_STARTED)
    waiting = "1 table to define; 1 table in a run that is queued or running"
    assert said(tick(instance, location, "catalog_work")).endswith(waiting)
    instance.delete_run(queued.run_id)
    launch(instance, request, DagsterRunStatus.FAILURE)
    assert said(tick(instance, location, "catalog_work")).endswith("1 table paused after a failure")


def test_a_definition_whose_run_failed_is_asked_for_again_after_a_pause(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    first = tick(instance, location, "catalog_work")
    launch(instance, (first.run_requests or [])[0], DagsterRunStatus.FAILURE)
    monkeypatch.setattr("prism_assets.defs.sensors.in_flight._FIRST_PAUSE", 0.0)
    assert asked(tick(instance, location, "catalog_work", first.cursor)) == [asset_key("log.events", "catalog")]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PRISM_DATABASE_URL", None, "PRISM_DATABASE_URL: is not set"),
        ("PRISM_BUCKET", "x", "PRISM_BUCKET: "),
        (
            "PRISM_DATABASE_URL",
            "none",
            'database "none" does not exist; create it, or correct the name in PRISM_DATABASE_URL',
        ),
    ],
)
def test_what_somebody_must_mend_fails_the_tick_with_one_sentence(
    settled: World,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str | None,
    sentence: str,
) -> None:
    location = a_location(settled.root, a_table())
    if value is None:
        monkeypatch.delenv(name)
    else:
        url = settled.settings.database_url.get_secret_value()
        monkeypatch.setenv(name, f"{url.rpartition('/')[0]}/none" if value == "none" else value)
    monkeypatch.setenv("PRISM_HOME", str(settled.root / "none"))
    with pytest.raises(DagsterError) as caught:
        tick(instance, location, "new_objects", "kept")
    shown = serializable_error_info_from_exc_info((caught.type, caught.value, caught.tb))
    assert sentence in shown.message
    assert (list(shown.stack), shown.cause, shown.context) == ([], None, None)


def test_a_failed_tick_is_recorded_by_dagster_as_that_sentence(settled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    location = a_location(settled.root, a_table())
    monkeypatch.delenv("PRISM_DATABASE_URL")
    monkeypatch.setenv("PRISM_HOME", str(settled.root / "none"))
    definitions = Definitions(
        assets=build_assets(location), sensors=build_sensors(location), resources=build_platform()
    )
    with instance_for_test() as stored:
        found = get_external_sensor_execution(
            definitions.get_repository_def(),
            RegisteredCodeLocationOrigin("here"),
            stored.get_ref(),
            "new_objects",
            None,
            None,
            None,
            None,
            None,
        )
    assert isinstance(found, SensorExecutionErrorSnap)
    assert found.error is not None
    assert found.error.message.startswith("some settings are missing or wrong:")
    assert found.error.stack == []
    assert found.error.cause is None


def test_without_a_database_a_tick_says_so(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    monkeypatch.setenv("PRISM_DATABASE_URL", "postgresql://nobody:hush@127.0.0.1:1/none")
    reason = said(tick(instance, location, "merges_due"))
    assert "does not answer" in reason
    assert "hush" not in reason


def test_a_tick_ends_when_its_time_is_over_though_postgresql_stands_still(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    tick(instance, location, "merges_due")
    monkeypatch.setattr("prism_assets.defs.sensors.requests.BUDGET_SECONDS", 1.0)
    begun = time.monotonic()
    with settled.context.database.begin() as connection, ThreadPoolExecutor(1) as thread:
        connection.execute(text("LOCK TABLE prism_merge_jobs IN ACCESS EXCLUSIVE MODE"))
        reason = said(thread.submit(tick, instance, location, "merges_due", "kept").result())
    assert time.monotonic() - begun < 10
    assert reason.startswith("the 1 s of a tick were over: PostgreSQL at ")
    assert "statement timeout" in reason


def a_run(
    instance: DagsterInstance, status: DagsterRunStatus, *tables: str, sick: str = "", priority: str = "1"
) -> DagsterRun:
    tags = {STAGE_TAG: Stage.CATALOG.value, PRIORITY_TAG: priority, **({FAILED_TABLES_TAG: sick} if sick else {})}
    return _store(instance, status, tags, [asset_key(table, "catalog") for table in tables])


def test_only_the_sick_tables_of_a_failed_run_rest(instance: DagsterInstance) -> None:
    a_run(instance, DagsterRunStatus.FAILURE, "log.good", "log.bad", sick="log.bad")
    assert find_in_flight(instance, Stage.CATALOG).resting == {"log.bad"}
    assert find_in_flight(instance, Stage.LIVE).resting == set()


def test_a_run_that_died_before_it_could_tell_lets_all_its_tables_rest(instance: DagsterInstance) -> None:
    a_run(instance, DagsterRunStatus.FAILURE, "log.one", "log.two")
    assert find_in_flight(instance, Stage.CATALOG).resting == {"log.one", "log.two"}


def test_running_and_queued_runs_make_their_tables_busy(instance: DagsterInstance) -> None:
    a_run(instance, DagsterRunStatus.NOT_STARTED, "log.queued")
    a_run(instance, DagsterRunStatus.STARTED, "log.running")
    a_run(instance, DagsterRunStatus.SUCCESS, "log.done")
    assert find_in_flight(instance, Stage.CATALOG).busy(1) == {"log.queued", "log.running"}


def test_a_queued_run_counts_for_nothing_more_urgent_than_itself(instance: DagsterInstance) -> None:
    a_run(instance, DagsterRunStatus.NOT_STARTED, "log.both", "log.slow")
    a_run(instance, DagsterRunStatus.NOT_STARTED, "log.both", priority="3")
    a_run(instance, DagsterRunStatus.NOT_STARTED, "log.changed", priority="by hand")
    a_run(instance, DagsterRunStatus.STARTED, "log.running")
    runs = find_in_flight(instance, Stage.CATALOG)
    assert runs.busy(1) == {"log.both", "log.slow", "log.changed", "log.running"}
    assert runs.busy(3) == {"log.both", "log.running"}


def test_a_tick_asks_dagster_once_for_each_kind_of_run(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(1, NOW))
    asked_for: list[set[str]] = []
    really = instance.get_run_records

    def counted(*args: Any, **options: Any) -> Any:
        asked_for.append({status.value for status in options["filters"].statuses})
        return really(*args, **options)

    monkeypatch.setattr(instance, "get_run_records", counted)
    assert asked(tick(instance, location, "new_objects"))
    assert sorted(map(sorted, asked_for)) == [
        ["CANCELING", "STARTED", "STARTING"],
        ["FAILURE"],
        ["NOT_STARTED", "QUEUED"],
    ]


@pytest.mark.parametrize("name", ["new_objects", "merges_due"])
def test_what_a_dropped_table_left_hinders_no_other(settled: World, instance: DagsterInstance, name: str) -> None:
    settled.apply(a_table())
    settled.drop(some_rows(2, NOW))
    settled.stream("2026-03-01T12:00")
    retire(settled)
    drop(settled)
    with settled.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_abandoned_uploads "
            "VALUES (1, 5, 1, '2026-03-01', '2026-03-01', now() - interval '1 hour')"
        )
        connection.exec_driver_sql(
            "INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time) "
            "SELECT prism_partition_id, '2026-03-01' FROM prism_partitions ON CONFLICT DO NOTHING"
        )
    assert not tick(instance, a_location(settled.root, a_table()), name).run_requests


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("new_objects", 53),
        ("merges_due", 19),
        ("delayed_data", 18),
        ("catalog_work", 35),
        ("iceberg_work", 19),
        ("folds_due", 31),
    ],
)
def test_an_idle_tick_asks_no_more_statements_than_it_did(
    settled: World, instance: DagsterInstance, name: str, most: int
) -> None:
    """Of two tables and a join table, all of the tick included; the figures are of the time before findings."""
    location = a_location(settled.root, a_table(), a_table("log.more"), a_join_table())
    tick(instance, location, "new_objects")
    tick(instance, location, name)
    with counted_statements() as asked:
        tick(instance, location, name)
    assert len(asked) <= most, "\n".join(asked)

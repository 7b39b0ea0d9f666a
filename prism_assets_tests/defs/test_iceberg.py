"""The asset `_iceberg`: its tables, the result of a run, and its report on the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetMaterialization,
    DagsterInstance,
    DagsterRunStatus,
    MarkdownMetadataValue,
    SensorResult,
    TableMetadataValue,
)

from prism_assets.defs.keys import FAILED_TABLES_TAG, asset_key, table_of
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_checks import last
from prism_assets_tests.defs.test_runs import NOW, TODAY, YESTERDAY, assets_of, made, run
from prism_assets_tests.defs.test_sensors import asked, launch, said, tick
from prism_assets_tests.stages.iceberg.test_pending import a_minute_later, change
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

ICEBERG = a_table(iceberg="{commit_seconds: 1}")
SENSOR = "iceberg_work"
CHECKS = {"snapshot_rows", "foreign_commits", "seconds_behind", "days_left_out", "health"}


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M")


def events(made_events: Sequence[tuple[str, str | None, AssetMaterialization]]) -> list[tuple[str, str | None]]:
    return [(name, day) for name, day, _ in made_events]


def test_only_tables_whose_files_name_iceberg_have_the_asset(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = a_location(
        tmp_path_factory.mktemp("files"),
        a_table("log.plain"),
        a_table("log.iced", iceberg="true"),
        a_table("log.far", timezone="Asia/Tokyo"),
    )
    steps = {asset.node_def.name: asset for asset in assets_of(location)}
    assert steps["iceberg_utc"].keys == {asset_key("log.iced", "iceberg")}
    assert "iceberg_asia_tokyo" not in steps
    (spec,) = steps["iceberg_utc"].specs
    assert {dep.asset_key for dep in spec.deps} == {asset_key("log.iced", part) for part in ("live", "merged")}
    assert steps["iceberg_utc"].partitions_def == steps["live_utc"].partitions_def


def test_a_commit_marks_each_day_that_it_changed(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop([*some_rows(3, NOW), *some_rows(2, NOW - timedelta(hours=1))])
    run(instance, location, ["live"])
    found = made(run(instance, location, ["iceberg"], by_sensor=True))
    assert events(found) == [("log/events_iceberg", YESTERDAY), ("log/events_iceberg", TODAY)]
    before, today = (item.metadata for _, _, item in found)
    assert (before["rows in"].value, today["rows in"].value) == (2, 3)
    table = settled.iceberg_table()
    head = table.current_snapshot()
    assert head is not None
    for facts in (before, today):
        assert facts["snapshot id"].value == str(head.snapshot_id)
        assert facts["metadata location"].value == table.metadata_location
        assert facts["days of the commit"].value == f"{TODAY}, {YESTERDAY}"
        assert (facts["operation"].value, facts["snapshots"].value) == ("append", 1)
    assert "how to read it" not in before
    assert isinstance(today["how to read it"], MarkdownMetadataValue)
    assert "sample rows" not in before
    assert isinstance(today["sample rows"], TableMetadataValue)
    assert [record.data["id"] for record in today["sample rows"].records] == settled.iceberg_ids()[:3]


def test_the_seconds_that_rows_waited_are_told_from_the_second_commit_on(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    ((_, _, first),) = made(run(instance, location, ["iceberg"]))
    assert "seconds behind" not in first.metadata  # also lists days of long ago
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    time.sleep(1.1)
    ((_, _, second),) = made(run(instance, location, ["iceberg"]))
    seconds = second.metadata["seconds behind"].value
    assert isinstance(seconds, float)
    assert 1.1 <= seconds < 60


def test_a_day_is_brought_all_the_way_to_iceberg_by_hand(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop(some_rows(5, NOW))
    result = run(instance, location, ["live", "merged", "catalog", "iceberg"])
    assert result.success
    assert ("log/events_iceberg", TODAY) in events(made(result))
    assert len(settled.iceberg_ids()) == 5
    (balance,) = result.get_asset_check_evaluations()
    assert (balance.check_name, balance.passed) == ("rows_balance", True)
    assert [name for name in CHECKS if last(instance, name) is False] == []


def test_by_hand_a_commit_comes_at_once_and_a_sensors_run_keeps_the_pace(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table(iceberg="{commit_seconds: 3600}"))
    run(instance, location, ["iceberg"])
    settled.drop(some_rows(5, NOW))
    run(instance, location, ["live"])
    run(instance, location, ["iceberg"])
    assert len(settled.iceberg_ids()) == 5
    settled.drop(some_rows(5, NOW))
    run(instance, location, ["live"])
    assert made(run(instance, location, ["iceberg"], by_sensor=True)) == []
    assert len(settled.iceberg_ids()) == 5
    ((_, day, item),) = made(run(instance, location, ["iceberg"]))
    assert (day, item.metadata["rows in"].value) == (TODAY, 5)
    assert len(settled.iceberg_ids()) == 10


def test_a_sick_table_fails_the_run_and_the_others_are_done(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG, a_table("log.well", iceberg="{commit_seconds: 1}"))
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(3, NOW), stream="well")
    tables = ["log.events", "log.well"]
    run(instance, location, ["live"], tables=tables)
    publisher = settled.context.make_iceberg("another installation")
    (events_table, _) = settled.context.choose_tables(tables)
    foreign = publisher.create(events_table, NOW)
    result = run(instance, location, ["iceberg"], tables=tables, by_sensor=True)
    assert events(made(result)) == [("log/well_iceberg", TODAY)]
    failure = result.failure_data_for_node("iceberg_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert f"the catalog has a table {foreign.identifier}" in str(failure.user_failure_data.description)
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags[FAILED_TABLES_TAG] == "log.events"
    assert result.get_asset_check_evaluations() == []
    assert (last(instance, "foreign_commits"), last(instance, "foreign_commits", "log.well")) == (False, None)


def a_day_in_milliseconds(world: World) -> None:
    """Yesterday's objects, as if they had been written before the table was to be Iceberg."""
    change(
        world,
        "UPDATE prism_small_objects s SET file_format = 1 FROM prism_partitions p "
        f"WHERE p.prism_partition_id = s.prism_partition_id AND p.partition_date = '{YESTERDAY}'",
    )


def test_a_day_that_is_left_out_is_told_and_fails_no_run_of_a_sensor(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop([*some_rows(3, NOW), *some_rows(2, NOW - timedelta(hours=1))])
    run(instance, location, ["live"])
    a_day_in_milliseconds(settled)
    result = run(instance, location, ["iceberg"], by_sensor=True)
    assert result.success
    assert events(made(result)) == [("log/events_iceberg", TODAY)]
    logged = "\n".join(entry.user_message for entry in instance.all_logs(result.run_id))
    assert f"log.events {YESTERDAY}: holds objects whose timestamps are in milliseconds" in logged
    assert last(instance, "days_left_out") is False
    assert run(instance, location, ["iceberg"]).success  # today


def test_who_asks_for_a_day_that_is_left_out_is_told_that_it_is_not_there(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop([*some_rows(3, NOW), *some_rows(2, NOW - timedelta(hours=1))])
    run(instance, location, ["live"])
    a_day_in_milliseconds(settled)
    result = run(instance, location, ["iceberg"], day=YESTERDAY)
    assert not result.success
    assert events(made(result)) == [("log/events_iceberg", TODAY)]


def test_the_sensor_asks_for_tables_with_something_to_list(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG, a_table("log.plain"))
    first = tick(instance, location, SENSOR)
    assert asked(first) == [asset_key("log.events", "iceberg")]
    request = (first.run_requests or [])[0]
    assert (request.run_key, request.asset_check_keys, request.partition_key) == (None, [], TODAY)
    settled.iceberg(now())
    assert said(tick(instance, location, SENSOR)) == "0 days of 0 of 1 table to list"
    a_minute_later(settled)
    settled.drop(some_rows(3, NOW - timedelta(hours=1)))
    settled.stream(now())
    second = tick(instance, location, SENSOR)
    assert asked(second) == [asset_key("log.events", "iceberg")]
    assert (second.run_requests or [])[0].partition_key == YESTERDAY


def test_what_is_in_a_run_is_not_asked_for_again(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    request = (tick(instance, location, SENSOR).run_requests or [])[0]
    launch(instance, request, DagsterRunStatus.STARTED)
    reason = said(tick(instance, location, SENSOR))
    assert reason == ("0 days of 0 of 1 table to list; 1 table to begin; 1 table in a run that is queued or running")


def test_a_table_that_waits_for_a_person_gets_no_runs_and_fails_its_check(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, ICEBERG)
    tick(instance, location, SENSOR)
    (table,) = settled.context.choose_tables(None)
    settled.context.make_iceberg("another installation").create(table, NOW)
    assert not run(instance, location, ["iceberg"], by_sensor=True).success
    for record in instance.get_run_records():  # the pause after a failure is another thing
        instance.delete_run(record.dagster_run.run_id)
    assert said(tick(instance, location, SENSOR)) == "0 days of 0 of 1 table to list"
    change(settled, "UPDATE prism_iceberg_tables SET look_time = look_time - interval '2 hours'")
    assert asked(tick(instance, location, SENSOR)) == [asset_key("log.events", "iceberg")]


def test_without_such_a_table_a_tick_asks_for_nothing(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    assert said(tick(instance, location, SENSOR)) == "0 days of 0 of 0 tables to list"


def test_a_table_whose_file_names_iceberg_no_more_is_taken_out_of_the_catalog(
    settled: World, instance: DagsterInstance
) -> None:
    a_location(settled.root, ICEBERG)
    settled.apply()
    settled.iceberg(now())
    location = a_location(settled.root, a_table())
    reason = said(tick(instance, location, SENSOR))
    assert reason.endswith("; 1 of 1 table taken out of the catalog, where files name no Iceberg any more")
    publisher = settled.context.make_iceberg("another installation")
    assert not publisher.catalog.table_exists((f"{settled.settings.glue_database_prefix}log_iceberg", "events"))
    assert said(tick(instance, location, SENSOR)) == "0 days of 0 of 0 tables to list"


def test_days_that_commands_listed_are_told_once(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.apply()
    settled.drop(some_rows(2, NOW))
    settled.stream(now())
    first = tick(instance, location, "runless_materializations")
    assert said(first) == "told of work outside of Dagster: 1 of live"
    settled.iceberg(now())
    second = tick(instance, location, "runless_materializations", first.cursor)
    assert said(second) == "told of work outside of Dagster: 1 of iceberg"
    third = tick(instance, location, "runless_materializations", second.cursor)
    assert said(third) == "nothing changed outside of Dagster"


def test_days_that_a_run_listed_are_not_told_again(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, ICEBERG)
    settled.drop(some_rows(2, NOW))
    run(instance, location, ["live", "iceberg"])
    assert said(tick(instance, location, "runless_materializations")) == "nothing changed outside of Dagster"


def told(result: SensorResult) -> set[tuple[str, str]]:
    """Returns the tables and checks reported by a tick."""
    found = [event for event in result.asset_events if isinstance(event, AssetCheckEvaluation)]
    return {(table_of(event.asset_key), event.check_name) for event in found}


def test_the_checks_of_iceberg_are_run_for_such_tables_alone(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)
    location = a_location(settled.root, ICEBERG, a_table("log.plain"))
    first = tick(instance, location, "table_checks")
    assert len(told(first)) == 29
    assert {item for item in told(first) if item[1] in CHECKS} == {("log.events", check) for check in CHECKS}
    assert told(tick(instance, location, "table_checks", first.cursor)) == set()


def test_an_iceberg_catalog_that_does_not_answer_keeps_no_other_check_from_being_told(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism_assets.defs.sensors.table_checks._ENOUGH_SECONDS", 3_600.0)
    location = a_location(settled.root, ICEBERG)
    settled.apply()
    settled.iceberg(now())
    for path in (settled.root / "buckets" / "lake").rglob("*.metadata.json"):
        path.write_text("{")
    result = tick(instance, location, "table_checks")
    assert len(told(result)) == 15
    assert "; the Iceberg catalog was not asked for log.events: " in str(result.skip_reason)

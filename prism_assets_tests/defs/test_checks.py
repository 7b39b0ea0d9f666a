"""Checks as Dagster has them: with the run of a stage, alone, and every hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetsDefinition,
    AssetSelection,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    materialize,
)
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from sqlalchemy import text

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.assets.outcome import Outcome, Task
from prism_assets.defs.checks.evaluate import Selection, evaluate_with
from prism_assets.defs.checks.schedule import build_check_schedules
from prism_assets.defs.keys import SENSOR_TAG, SICK_TAG, Stage, asset_key
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_resources
from prism_assets.metadata.database import Database
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.world import World

# Dagster calls what it has itself deprecated when a resource holds another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOW = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
TODAY = NOW.date().isoformat()


def run(
    instance: DagsterInstance,
    location: Location,
    parts: Sequence[str],
    *,
    tables: Sequence[str] = ("log.events",),
    by_sensor: bool = False,
) -> ExecuteInProcessResult:
    """Materialises parts of tables for today, with their checks."""
    return materialize(
        assets_of(location),
        selection=AssetSelection.assets(*(asset_key(table, part) for table in tables for part in parts)),
        partition_key=TODAY,
        resources=build_resources(),
        instance=instance,
        raise_on_error=False,
        tags={SENSOR_TAG: "a_sensor"} if by_sensor else {},
    )


def run_alone(
    instance: DagsterInstance, location: Location, part: str, name: str, table: str = "log.events"
) -> ExecuteInProcessResult:
    """Runs one check, as the button of the UI does."""
    return materialize(
        assets_of(location),
        selection=AssetSelection.checks(AssetCheckKey(asset_key(table, part), name)),
        resources=build_resources(),
        instance=instance,
        raise_on_error=False,
    )


def assets_of(location: Location) -> list[AssetsDefinition]:
    return [asset for asset in build_assets(location) if isinstance(asset, AssetsDefinition)]


def said(result: ExecuteInProcessResult) -> dict[tuple[str, str], AssetCheckEvaluation]:
    """What the checks of a run said, by table and name."""
    return {
        (".".join(item.asset_key.path[1:3]), item.check_name): item for item in result.get_asset_check_evaluations()
    }


def test_every_table_has_its_checks(tmp_path_factory: pytest.TempPathFactory) -> None:
    location = a_location(tmp_path_factory.mktemp("files"), a_table())
    keys = {(key.asset_key.path[-1], key.name) for asset in assets_of(location) for key in asset.check_keys}
    assert keys == {
        ("live", "rows_balance"),
        ("live", "quarantine_rate"),
        ("merged", "object_sizes"),
        ("merged", "unmerged_age"),
        ("catalog", "closing_blocked"),
        ("catalog", "catalog_agrees"),
    }
    blocking = {spec.name for asset in assets_of(location) for spec in asset.check_specs if spec.blocking}
    assert blocking == {"rows_balance"}


def test_a_day_made_by_hand_is_checked_all_the_way(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    result = run(instance, location, ["live", "merged", "catalog"])
    assert result.success
    found = said(result)
    assert len(found) == 6
    assert all(item.passed for item in found.values())
    balance = found["log.events", "rows_balance"]
    assert balance.description == "3 lines in = 3 rows out + 0 quarantined, for each of 1 objects"
    assert balance.metadata["rows out"].value == 3
    agrees = found["log.events", "catalog_agrees"].description
    assert agrees == "1 published days of the last 14 are in the catalog as recorded"


def test_a_sensors_run_checks_what_it_changed(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.idle"))
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"], tables=["log.events", "log.idle"])
    settled.drop(some_rows(3, NOW))
    settled.discover(datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M"))
    result = run(instance, location, ["live"], tables=["log.events", "log.idle"], by_sensor=True)
    assert sorted(said(result)) == [("log.events", "quarantine_rate"), ("log.events", "rows_balance")]
    assert said(result)["log.events", "rows_balance"].metadata["objects"].value == 1


def test_rows_out_of_balance_keep_the_run_from_the_catalog(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.good"))
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(3, NOW), stream="good")
    assert run(instance, location, ["live"], tables=["log.events", "log.good"]).success
    with settled.context.database.begin() as connection:
        connection.execute(
            text(
                "UPDATE prism_small_objects SET row_count = 4 FROM prism_staging_objects o "
                "WHERE o.prism_staging_object_id = prism_small_objects.prism_staging_object_id "
                "AND o.object_key LIKE 'events/%'"
            )
        )
    result = run(instance, location, ["live", "catalog"], tables=["log.events", "log.good"])
    assert not result.success
    found = said(result)
    assert {table: found[table, "rows_balance"].passed for table in ("log.events", "log.good")} == {
        "log.events": False,
        "log.good": True,
    }
    assert not any(name == "closing_blocked" for _, name in found)
    failure = result.failure_data_for_node("live_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "3 rows out of which 4 are in small objects" in str(failure.user_failure_data.description)
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags[SICK_TAG] == "log.events"
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {asset_key("log.good", "live")}


def test_a_check_runs_alone_without_a_day(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.other"))
    settled.drop([*some_rows(3, NOW), "no row"])
    run(instance, location, ["live"], tables=["log.events", "log.other"])
    result = run_alone(instance, location, "live", "quarantine_rate")
    assert result.success
    assert list(said(result)) == [("log.events", "quarantine_rate")]
    found = said(result)["log.events", "quarantine_rate"]
    assert not found.passed
    assert found.severity is AssetCheckSeverity.WARN
    assert "1 of 4 lines of the last day are quarantined (25.00%), above the limit of 1.00%: 1 " in str(
        found.description
    )
    assert not [event for event in result.all_events if event.is_step_materialization]


def test_limits_come_from_the_table_file(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table() + "checks: {quarantine_rate: 0.5}\n")
    settled.drop([*some_rows(3, NOW), "no row"])
    assert said(run(instance, location, ["live"]))["log.events", "quarantine_rate"].passed


def test_every_hour_all_checks_of_all_zones_are_run(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(), a_table("log.tokyo", timezone="Asia/Tokyo"))
    run(instance, location, ["live"])
    definitions = Definitions(
        assets=build_assets(location), schedules=build_check_schedules(location), resources=build_resources()
    )
    (schedule,) = build_check_schedules(location)
    result = definitions.resolve_job_def(schedule.job_name).execute_in_process(instance=instance)
    assert result.success
    assert len(said(result)) == 12
    assert not [event for event in result.all_events if event.is_step_materialization]


def test_a_check_that_cannot_be_run_does_not_undo_the_work(settled: World) -> None:
    settled.apply(a_table())
    settled.context.database.dispose()
    away = replace(settled.context, database=Database("postgresql+psycopg://nobody@127.0.0.1:1/none"))
    selection = Selection(Stage.LIVE, frozenset({("log.events", "rows_balance")}))
    task = Task(stage=Stage.LIVE, tables=("log.events",), day=NOW.date(), by_sensor=False)
    warnings: list[str] = []
    assert evaluate_with(away, selection, task, Outcome({}, {}), {}, warnings.append) == ()
    assert warnings[0].startswith("the checks were not run: PostgreSQL at 127.0.0.1:1 does not answer")


def test_a_catalog_that_lost_a_table_is_told_apart_from_postgresql(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live", "catalog"])
    settled.reader()._glue.delete_table(DatabaseName=f"{settled.settings.glue_database_prefix}log", Name="events")
    found = said(run_alone(instance, location, "catalog", "catalog_agrees"))["log.events", "catalog_agrees"]
    assert (found.passed, found.severity) == (False, AssetCheckSeverity.ERROR)
    assert f"for 1 of 1 days: {TODAY} is missing" in str(found.description)
    assert "`prism catalog --republish --table log.events` mends it" in str(found.description)


def test_hours_of_silence_are_counted_by_the_policy_of_the_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    text_of = a_table() + "freshness: {warn: 30m, fail: 2h}\n"
    location = a_location(tmp_path_factory.mktemp("files"), text_of, a_table("log.other"))
    policies = {
        spec.key.to_user_string(): spec.freshness_policy for asset in assets_of(location) for spec in asset.specs
    }
    policy = policies.pop("prism/log/events/live")
    assert isinstance(policy, TimeWindowFreshnessPolicy)
    assert policy.warn_window is not None
    assert (policy.warn_window.to_timedelta(), policy.fail_window.to_timedelta()) == (
        timedelta(minutes=30),
        timedelta(hours=2),
    )
    assert set(policies.values()) == {None}

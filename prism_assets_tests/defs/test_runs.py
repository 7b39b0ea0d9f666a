"""Runs of the steps against a real database and the in-process engine: their events, notes and failures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from dagster import (
    AssetMaterialization,
    AssetsDefinition,
    AssetSelection,
    DagsterInstance,
    DagsterInvalidConfigError,
    ExecuteInProcessResult,
    materialize,
)

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import FAILED_TABLES_TAG, SENSOR_TAG, asset_key
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_platform
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.world import World

# Dagster calls code deprecated by itself for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOW = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
TODAY, YESTERDAY = NOW.date().isoformat(), (NOW - timedelta(days=1)).date().isoformat()


def assets_of(location: Location) -> list[AssetsDefinition]:
    return [asset for asset in build_assets(location) if isinstance(asset, AssetsDefinition)]


def run(
    instance: DagsterInstance,
    location: Location,
    parts: Sequence[str],
    *,
    tables: Sequence[str] = ("log.events",),
    by_sensor: bool = False,
    day: str = TODAY,
    rebuild: str = "",
) -> ExecuteInProcessResult:
    """Materialises parts of tables for a day. A sensor's request does not select their checks."""
    chosen = AssetSelection.assets(*(asset_key(table, part) for table in tables for part in parts))
    return materialize(
        assets_of(location),
        selection=chosen.without_checks() if by_sensor else chosen,
        partition_key=day,
        resources=build_platform(),
        instance=instance,
        raise_on_error=False,
        tags={SENSOR_TAG: "a_sensor"} if by_sensor else {},
        run_config={"ops": {f"{part}_utc": {"config": {"rebuild": rebuild}} for part in parts}} if rebuild else None,
    )


def made(result: ExecuteInProcessResult) -> list[tuple[str, str | None, AssetMaterialization]]:
    events = (event for event in result.all_events if event.is_step_materialization)
    found = [event.step_materialization_data.materialization for event in events]
    return [("/".join(item.asset_key.path[1:]), item.partition, item) for item in found]


def test_late_rows_mark_the_day_they_belong_to(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop([*some_rows(3, NOW), *some_rows(2, NOW - timedelta(hours=1))])
    events = made(run(instance, location, ["live"]))
    assert [(name, day) for name, day, _ in events] == [("log/events_live", YESTERDAY), ("log/events_live", TODAY)]
    assert [item.metadata["rows added"].value for _, _, item in events] == [2, 3]


def test_a_day_is_brought_all_the_way_by_hand(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(5, NOW))
    result = run(instance, location, ["live", "merged", "catalog"])
    assert result.success
    assert [name for name, day, _ in made(result) if day == TODAY] == [
        "log/events_live", "log/events_merged", "log/events_catalog",
    ]  # fmt: skip
    assert len(settled.ids()) == 5


def test_a_run_by_hand_yields_what_did_not_change_and_a_sensors_run_does_not(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    assert [day for _, day, _ in made(run(instance, location, ["live"]))] == [TODAY]
    assert made(run(instance, location, ["live"], by_sensor=True)) == []


def test_healthy_tables_are_yielded_before_the_sick_one_fails_the_run(
    settled: World, instance: DagsterInstance
) -> None:
    missing = a_table("log.sick", bucket="nowhere")
    location = a_location(settled.root, a_table(), missing)
    settled.drop(some_rows(1, NOW))
    result = run(instance, location, ["live"], tables=["log.events", "log.sick"])
    assert not result.success
    assert [name for name, _, _ in made(result)] == ["log/events_live"]
    failure = result.failure_data_for_node("live_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "log.sick: stream sick" in str(failure.user_failure_data.description)
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags[FAILED_TABLES_TAG] == "log.sick"


def small_keys(world: World) -> list[str]:
    keys = [item.key for item in world.context.stores.list("lake", "")]
    return sorted(key for key in keys if "/live/" in key)


def test_a_day_made_by_hand_is_repaired_and_a_sensors_run_repairs_nothing(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(3, NOW - timedelta(days=1)))
    run(instance, location, ["live"])
    yesterday, today = small_keys(settled)
    before = settled.context.stores.get("lake", today)
    settled.context.stores.delete("lake", [yesterday, today])
    assert run(instance, location, ["live"], by_sensor=True).success
    assert small_keys(settled) == []
    ((_, _, item),) = made(run(instance, location, ["live"]))
    assert {name: item.metadata[f"objects {name}"].value for name in ("missing", "damaged", "repaired")} == {
        "missing": 1, "damaged": 0, "repaired": 1,
    }  # fmt: skip
    assert small_keys(settled) == [today]
    assert settled.context.stores.get("lake", today) == before


def test_a_table_that_cannot_be_repaired_is_sick_and_the_others_are_done(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table(), a_table("log.well"))
    key = settled.drop(some_rows(3, NOW))
    settled.drop(some_rows(3, NOW), stream="well")
    tables = ["log.events", "log.well"]
    run(instance, location, ["live"], tables=tables)
    lost = small_keys(settled)
    settled.context.stores.delete("lake", lost)
    settled.context.stores.delete("staging", [key])
    result = run(instance, location, ["live"], tables=tables)
    assert [name for name, _, _ in made(result)] == ["log/well_live"]
    failure = result.failure_data_for_node("live_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    description = str(failure.user_failure_data.description)
    assert f"log.events {TODAY}: {lost[0]} is missing and cannot be repaired" in description
    assert f"its staging object s3://staging/{key} is gone" in description


def description_of(result: ExecuteInProcessResult, part: str = "live") -> str:
    failure = result.failure_data_for_node(f"{part}_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


def test_a_day_is_rebuilt_where_the_configuration_of_the_run_says_so(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    gone, _ = settled.drop(some_rows(3, NOW - timedelta(days=1))), settled.drop(some_rows(2, NOW - timedelta(days=1)))
    run(instance, location, ["live", "catalog"], day=YESTERDAY)
    run(instance, location, ["catalog"], day=YESTERDAY)
    location = a_location(settled.root, a_table(columns=["{name: mark, type: integer, value: '7'}"]))
    ((_, _, unasked),) = made(run(instance, location, ["live"], day=YESTERDAY))
    assert "objects converted again" not in unasked.metadata
    ((_, _, item),) = made(run(instance, location, ["live"], day=YESTERDAY, rebuild="all"))
    assert {name: item.metadata[name].value for name in ("definition version", "rows after the rebuild")} == {
        "definition version": 2, "rows after the rebuild": 5,
    }  # fmt: skip
    assert run(instance, location, ["catalog"], day=YESTERDAY).success
    assert settled.query("SELECT mark, count(*) FROM log.events GROUP BY 1") == [(7, 5)]
    ((_, _, again),) = made(run(instance, location, ["live"], day=YESTERDAY, rebuild="all"))
    assert again.metadata["objects converted again"].value == 0
    location = a_location(settled.root, a_table(columns=["{name: mark, type: integer, value: '8'}"]))
    settled.context.stores.delete("staging", [gone])
    assert "1 staging object is gone" in description_of(run(instance, location, ["live"], day=YESTERDAY, rebuild="all"))
    ((_, _, partly),) = made(run(instance, location, ["live"], day=YESTERDAY, rebuild="without_missing"))
    assert partly.metadata["examples of missing objects"].value == [f"s3://staging/{gone}"]


def test_days_that_cannot_be_rebuilt_fail_and_days_without_rows_do_not(
    settled: World, instance: DagsterInstance
) -> None:
    location = a_location(settled.root, a_table())
    settled.drop(some_rows(3, NOW))
    run(instance, location, ["live"])
    assert "it is not rebuilt: it is new" in description_of(run(instance, location, ["live"], rebuild="all"))
    assert run(instance, location, ["live"], day=YESTERDAY, rebuild="all").success
    with pytest.raises(DagsterInvalidConfigError, match="rebuild"):
        run(instance, location, ["live"], rebuild="please")


def test_missing_settings_fail_the_run_with_their_names(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = a_location(settled.root, a_table())
    monkeypatch.delenv("PRISM_DATABASE_URL")
    monkeypatch.setenv("PRISM_HOME", str(settled.root / "none"))
    result = run(instance, location, ["live"])
    failure = result.failure_data_for_node("live_utc")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "PRISM_DATABASE_URL: is not set" in str(failure.user_failure_data.description)

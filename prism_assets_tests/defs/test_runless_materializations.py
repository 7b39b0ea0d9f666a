"""Dagster hears of commands outside of it: of every partition once, whoever did the work."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from dagster import AssetMaterialization, DagsterInstance, DagsterRunStatus, RunRequest, SensorResult

from prism_assets.defs.keys import asset_key
from prism_assets.defs.sensors import runless_materializations
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_runs import made, run
from prism_assets_tests.defs.test_sensors import launch, said, tick
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

NOON = datetime.now(timezone.utc).replace(hour=12, minute=0, second=0, microsecond=0)
NOW = NOON.strftime("%Y-%m-%dT%H:%M")
DAYS = [(NOON - timedelta(days=back)).date().isoformat() for back in range(3)]
SENSOR = "runless_materializations"


def told(result: SensorResult) -> list[tuple[str, str | None]]:
    """Returns the assets and days reported by a tick."""
    events = [event for event in result.asset_events if isinstance(event, AssetMaterialization)]
    return sorted(("/".join(event.asset_key.path[1:]), event.partition) for event in events)


def drop_days(world: World) -> None:
    """Rows of today and of the two days before."""
    for back in range(3):
        world.drop(some_rows(2, NOON - timedelta(days=back)))
    world.stream(NOW)


def test_days_that_commands_made_are_told_once_with_what_they_hold(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.apply()
    drop_days(settled)
    first = tick(instance, location, SENSOR)
    assert told(first) == sorted(("log/events_live", day) for day in DAYS)
    assert said(first) == "told of work outside of Dagster: 3 of live"
    (event, *_) = first.asset_events
    assert isinstance(event, AssetMaterialization)
    assert event.metadata["dagster/partition_row_count"].value == 2
    assert "no run of Dagster told it" in str(event.metadata["told by"].value)
    settled.catalog(NOW)
    settled.merge(NOW, everything=True)
    settled.catalog(NOW)
    second = tick(instance, location, SENSOR, first.cursor)
    merged = [("log/events_merged", day) for day in DAYS[1:]]  # today's few bytes wait for more
    assert told(second) == sorted([*merged, *(("log/events_catalog", day) for day in DAYS)])
    third = tick(instance, location, SENSOR, second.cursor)
    assert said(third) == "nothing changed outside of Dagster"
    settled.drop(some_rows(1, NOON))
    settled.stream(NOW)
    assert told(tick(instance, location, SENSOR, third.cursor)) == [("log/events_live", DAYS[0])]


def test_what_a_run_told_is_not_told_again(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.apply()
    for back in range(2):
        settled.drop(some_rows(2, NOON - timedelta(days=back)))
    settled.discover(NOW)
    for part in ("live", "catalog"):
        assert run(instance, location, [part], by_sensor=True).success
    settled.merge(NOW, everything=True)
    result = tick(instance, location, SENSOR)
    assert told(result) == [("log/events_merged", DAYS[1])]
    assert run(instance, location, ["catalog"], by_sensor=True).success
    assert told(tick(instance, location, SENSOR, result.cursor)) == []


def test_a_tick_whose_events_were_not_stored_is_made_good(settled: World, instance: DagsterInstance) -> None:
    """Dagster stores the cursor after the events, so a daemon dead before has neither."""
    location = a_location(settled.root, a_table())
    settled.apply()
    drop_days(settled)
    lost = tick(instance, location, SENSOR)
    assert told(tick(instance, location, SENSOR)) == told(lost) != []


def test_a_tick_tells_of_so_many_days_the_newest_first(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runless_materializations, "_PARTITIONS", 2)
    location = a_location(settled.root, a_table())
    settled.apply()
    drop_days(settled)
    first = tick(instance, location, SENSOR)
    assert told(first) == sorted(("log/events_live", day) for day in DAYS[:2])
    assert said(first).endswith("; the next tick goes on")
    assert told(tick(instance, location, SENSOR, first.cursor)) == [("log/events_live", DAYS[2])]


def test_a_table_that_a_run_is_at_is_left_to_it(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.apply()
    drop_days(settled)
    by_hand = RunRequest(asset_selection=[asset_key("log.events", "live")])
    launch(instance, by_hand, DagsterRunStatus.STARTED)
    assert told(tick(instance, location, SENSOR)) == []


def test_a_day_that_is_no_partition_is_passed_over(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table(accept="{from: arrival, past_days: 3650}"))
    settled.apply()
    settled.drop(some_rows(2, datetime(2025, 12, 31, 12, tzinfo=timezone.utc)))
    settled.drop(some_rows(2, NOON))
    settled.stream(NOW)
    first = tick(instance, location, SENSOR)
    assert told(first) == [("log/events_live", DAYS[0])]
    assert told(tick(instance, location, SENSOR, first.cursor)) == []


def test_what_a_failing_run_changed_is_told_once_all_the_same(
    settled: World, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its tables are sick, so the run yields nothing else."""
    monkeypatch.setenv("PRISM_MAX_ATTEMPTS", "1")
    location = a_location(settled.root, a_table())
    settled.apply()
    settled.drop(some_rows(2, NOON - timedelta(days=1)))
    gone = settled.drop(some_rows(2, NOON))
    settled.discover(NOW)
    settled.context.stores.delete("staging", [gone])
    result = run(instance, location, ["live"], by_sensor=True)
    assert not result.success
    assert [(key, day) for key, day, _ in made(result)] == [("log/events_live", DAYS[1])]
    assert told(tick(instance, location, SENSOR)) == []


def test_a_cursor_of_another_form_or_installation_is_as_good_as_none(settled: World, instance: DagsterInstance) -> None:
    location = a_location(settled.root, a_table())
    settled.apply()
    drop_days(settled)
    wanted = told(tick(instance, location, SENSOR))
    foreign = {"installation_id": "another", "positions": [{"partition_id": 1, "live": 99}], "last": 1}
    ours = {"installation_id": settled.context.installation.installation_id, "last": None}
    gone = {**ours, "positions": [{"partition_id": 4711, "live": 99}]}
    odd = {**ours, "positions": [{"small": 3}]}
    for cursor in ("nonsense", '{"a": 1}', "[]", *map(json.dumps, (foreign, gone, odd))):
        assert told(tick(instance, location, SENSOR, cursor)) == wanted, cursor

"""Rows for a day switched a week ago: found, marked, readable, and merged in the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dagster import (
    AssetsDefinition,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    ExecuteInProcessResult,
    RunRequest,
    SensorResult,
    materialize,
)
from sqlalchemy import text

from prism_assets.defs.assets.build import build_assets
from prism_assets.defs.keys import PRIORITY_TAG, SENSOR_TAG, STAGE_TAG, asset_key, part_of
from prism_assets.defs.location import Location
from prism_assets.defs.resources import build_platform
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.tables import a_location
from prism_assets_tests.defs.test_sensors import asked, launch, said, tick
from prism_assets_tests.world import World

# Dagster calls its own deprecated code for a resource within another one.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")

TODAY = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
LATE_DAY = TODAY - timedelta(days=7)
LATE = LATE_DAY.date().isoformat()
QUIET = "partitions of 1 table: 0 to publish, 0 to close, 0 to switch"


def by_hand(instance: DagsterInstance, location: Location, part: str, day: str) -> ExecuteInProcessResult:
    return _run(instance, location, [part], day, {})


def as_requested(instance: DagsterInstance, location: Location, result: SensorResult) -> ExecuteInProcessResult:
    """Executes the single run requested by a sensor."""
    (request,) = result.run_requests or ()
    parts = [part_of(key) for key in request.asset_selection or ()]
    return _run(instance, location, parts, str(request.partition_key), {**request.tags, SENSOR_TAG: "a_sensor"})


def _run(
    instance: DagsterInstance, location: Location, parts: Sequence[str], day: str, tags: dict[str, str]
) -> ExecuteInProcessResult:
    result = materialize(
        [asset for asset in build_assets(location) if isinstance(asset, AssetsDefinition)],
        selection=[asset_key("log.events", part) for part in parts],
        partition_key=day,
        resources=build_platform(),
        instance=instance,
        tags=tags,
    )
    assert result.success
    return result


def marked(result: ExecuteInProcessResult) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Returns the partitions a run marked, by asset, with their metadata."""
    found = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return [
        (part_of(item.asset_key), item.partition, {name: value.value for name, value in item.metadata.items()})
        for item in found
    ]


def a_switched_day(world: World, instance: DagsterInstance) -> tuple[Location, list[int]]:
    """A day of a week ago with merged objects for readers, and the ids of its rows."""
    location = a_location(world.root, a_table())
    rows = some_rows(10, LATE_DAY)
    world.drop(rows)
    for part in ("live", "catalog", "merged", "catalog"):
        by_hand(instance, location, part, LATE)
    assert world.status(LATE, TODAY.strftime("%Y-%m-%dT%H:%M")).state == "switched"
    return location, [row["id"] for row in rows]


def a_delayed_object(world: World, instance: DagsterInstance, location: Location) -> list[int]:
    """An object for this day, converted on a sensor's request, and the ids of its rows."""
    rows = some_rows(3, LATE_DAY)
    world.drop(rows)
    result = as_requested(instance, location, tick(instance, location, "new_objects"))
    ((part, day, facts),) = marked(result)
    assert (part, day, facts["rows added"], facts["delayed objects added"]) == ("live", LATE, 3, 1)
    assert not [name for name in facts if name.startswith("seconds from arrival")]  # nobody can read them yet
    return [row["id"] for row in rows]


def test_nothing_delayed_is_said_so(settled: World, instance: DagsterInstance) -> None:
    location, _ = a_switched_day(settled, instance)
    assert said(tick(instance, location, "delayed_data")) == "no delayed rows wait"


def test_rows_of_a_week_ago_become_readable_within_one_run_and_are_merged_later(
    settled: World, instance: DagsterInstance
) -> None:
    location, ids = a_switched_day(settled, instance)
    late = a_delayed_object(settled, instance, location)
    assert settled.ids() == ids

    request = tick(instance, location, "delayed_data")
    assert asked(request) == [asset_key("log.events", "catalog")]
    assert [item.partition_key for item in request.run_requests or ()] == [LATE]
    assert [item.tags[PRIORITY_TAG] for item in request.run_requests or ()] == ["3"]

    ((part, day, facts),) = marked(as_requested(instance, location, request))
    assert (part, day, facts["published rows"]) == ("catalog", LATE, 13)
    assert facts["location before"] != facts["location after"] == settled.partition(LATE).location
    assert 0 <= facts["seconds from arrival to readable, median"] < 60
    assert settled.ids() == ids + late
    assert said(tick(instance, location, "delayed_data")) == (
        f"0 delayed rows of 0 days are not readable yet; 3 of 1 day wait for their merge (log.events {LATE})"
    )

    assert [(part, day) for part, day, _ in marked(by_hand(instance, location, "merged", LATE))] == [("merged", LATE)]
    assert said(tick(instance, location, "delayed_data")) == "no delayed rows wait"
    by_hand(instance, location, "catalog", LATE)
    assert settled.ids() == ids + late
    assert settled.partition(LATE).location.endswith(".json")


def test_nobody_else_asks_for_delayed_days_unless_they_are_left_lying(
    settled: World, instance: DagsterInstance
) -> None:
    location, _ = a_switched_day(settled, instance)
    a_delayed_object(settled, instance, location)
    assert said(tick(instance, location, "catalog_work")) == QUIET
    with settled.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_small_objects SET commit_time = commit_time - interval '6 minutes'"))
    assert asked(tick(instance, location, "catalog_work")) == [asset_key("log.events", "catalog")]


@pytest.mark.parametrize("waiting", ["log.events", "log.other"])
def test_delayed_days_are_asked_for_before_less_urgent_runs_that_wait(
    settled: World, instance: DagsterInstance, waiting: str
) -> None:
    location, _ = a_switched_day(settled, instance)
    a_delayed_object(settled, instance, location)
    location = a_location(settled.root, a_table(), a_table("log.other"))
    tags = {STAGE_TAG: "catalog", PRIORITY_TAG: "1"}
    instance.add_run(
        DagsterRun(
            job_name="a_job",
            status=DagsterRunStatus.NOT_STARTED,
            tags=tags,
            asset_selection=frozenset({asset_key(waiting, "catalog")}),
        )
    )
    urgent = tick(instance, location, "delayed_data")
    assert asked(urgent) == [asset_key("log.events", "catalog")]
    launch(instance, (urgent.run_requests or [])[0], DagsterRunStatus.NOT_STARTED)
    assert "1 table in a run that is queued or running" in said(tick(instance, location, "delayed_data"))


def test_delayed_days_in_a_run_are_not_asked_for_again(settled: World, instance: DagsterInstance) -> None:
    location, _ = a_switched_day(settled, instance)
    a_delayed_object(settled, instance, location)
    first: Sequence[RunRequest] = tick(instance, location, "delayed_data").run_requests or ()
    launch(instance, first[0], DagsterRunStatus.NOT_STARTED)
    reason = said(tick(instance, location, "delayed_data"))
    assert reason.startswith(f"3 delayed rows of 1 day are not readable yet (log.events {LATE}); ")
    assert reason.endswith("1 table in a run that is queued or running")

"""Rebuilds and adoptions replace objects under other keys, and every snapshot stays readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass
from prism_assets_tests.stages.iceberg.days import AFTER, LATER, NOON, attempt, head, reasons
from prism_assets_tests.stages.test_rebuild import a_version, arrive, rebuilt, switch
from prism_assets_tests.stages.test_repair import as_of_another_version, small_keys
from prism_assets_tests.world import World

KEPT = "{keep_hours: 48}"
BEFORE_IT_GOES, WHEN_IT_GOES = "2026-03-03T12:00", "2026-03-06T12:00"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def snapshot_ids(world: World) -> list[int]:
    return [item.snapshot_id for item in world.iceberg_table().metadata.snapshots]


def marks_at(world: World, snapshot_id: int) -> dict[int, int]:
    """Returns the version of each row of a snapshot. Fails if the snapshot names a missing object."""
    found = world.iceberg_table().scan(snapshot_id=snapshot_id).to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("mark").to_pylist(), strict=True))


def a_published_day(world: World) -> list[int]:
    world.apply(a_version(1, iceberg=KEPT))
    ids = arrive(world, "abc", "ab")
    world.catalog(NOON)
    switch(world)
    world.iceberg(AFTER)
    hours_pass(world, 100)
    return ids


def all_leases_end(world: World) -> None:
    """Moves all publications and replacements far back, so that no reader of Glue needs earlier objects."""
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2026-01-01'")


def test_snapshots_of_before_a_rebuild_are_read_for_keep_hours_though_glue_has_long_moved_on(world: World) -> None:
    ids = a_published_day(world)
    before = head(world).snapshot_id
    world.apply(a_version(2, iceberg=KEPT))
    rebuilt(world)
    world.catalog(LATER)
    all_leases_end(world)

    world.iceberg(BEFORE_IT_GOES)

    assert snapshot_ids(world) == [before, head(world).snapshot_id]
    deleted(world)
    assert marks_at(world, before) == dict.fromkeys(ids, 1)
    assert marks_at(world, head(world).snapshot_id) == dict.fromkeys(ids, 2)
    world.iceberg(WHEN_IT_GOES)
    assert snapshot_ids(world) == [head(world).snapshot_id]
    assert deleted(world)["superseded"] == 1


def test_snapshots_of_before_an_adoption_are_read_for_keep_hours(world: World) -> None:
    """The day was shown before it got an object, and then a range, in milliseconds."""
    ids = a_published_day(world)
    before = head(world).snapshot_id
    world.apply(a_version(1) + "timestamps: milliseconds\n")
    late = arrive(world, "x", now=LATER)
    world.merge(LATER, everything=True)
    world.apply(a_version(1, iceberg=KEPT))
    assert len(reasons(attempt(world, LATER))) == 1
    assert run_adopt(world.context, "log.events", since=None).objects == 1
    world.catalog(LATER)
    all_leases_end(world)

    world.iceberg(BEFORE_IT_GOES)

    assert snapshot_ids(world) == [before, head(world).snapshot_id]
    deleted(world)
    assert sorted(marks_at(world, before)) == sorted(ids)
    assert world.iceberg_ids() == sorted(ids + late)


def test_a_repair_before_a_rebuild_still_takes_the_snapshots_that_say_the_old_length(world: World) -> None:
    world.apply(a_version(1, iceberg=KEPT))
    ids = arrive(world, "abc", "ab")
    as_of_another_version(world)
    world.iceberg(NOON)
    world.catalog(AFTER)
    world.context.stores.delete("lake", small_keys(world))
    assert run_repair(world.context).repaired == 2
    world.apply(a_version(2, iceberg=KEPT))
    rebuilt(world)
    attempt(world, LATER)
    assert snapshot_ids(world) == [head(world).snapshot_id]
    assert marks_at(world, head(world).snapshot_id) == dict.fromkeys(ids, 2)

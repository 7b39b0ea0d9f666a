"""Garbage of Iceberg tables: files of retained snapshots stay, and all others go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from prism_assets.stages.gc import plan as gc_plan
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.iceberg.clients import a_stranger
from prism_assets_tests.world import World

TABLE = a_table(merge="{interval: 0, target_bytes: 100000}", iceberg="{keep_hours: 4}")
A_LONG_TIME = 100.0


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def arrive(world: World, now: str = "2026-03-01T12:00", rows: int = 4) -> None:
    world.drop(some_rows(rows, utc("2026-03-01T12:00")))
    world.stream(now)


def switched_day(world: World, *, publish_before: bool = True) -> None:
    """Three small objects, published while the day was open, and then merged and switched."""
    world.apply(TABLE)
    for _ in range(3):
        arrive(world)
    world.catalog("2026-03-01T12:00")
    if publish_before:
        world.iceberg("2026-03-01T12:10")
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-02T00:20")


def rows_of_snapshots(world: World) -> list[int]:
    """Returns the number of rows of each retained snapshot, the oldest first.

    Fails if a snapshot names a missing object.
    """
    table = world.iceberg_table()
    ordered = sorted(table.metadata.snapshots, key=lambda item: item.timestamp_ms)
    return [table.scan(snapshot_id=item.snapshot_id).to_arrow().num_rows for item in ordered]


def test_objects_of_a_retained_snapshot_stay_and_go_when_it_has_expired(world: World) -> None:
    switched_day(world)
    world.iceberg("2026-03-02T00:30")
    hours_pass(world, A_LONG_TIME)

    assert deleted(world) == {"replaced": 1}, "the manifest of Glue before the switch"
    assert rows_of_snapshots(world) == [12, 12]
    arrive(world, "2026-03-02T05:00")
    world.iceberg("2026-03-02T05:00")
    world.iceberg("2026-03-02T09:30")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world)["merged"] == 3
    assert rows_of_snapshots(world) == [16]
    assert len(world.iceberg_ids()) == 16


def test_files_of_metadata_that_nothing_names_go(world: World) -> None:
    switched_day(world)
    world.iceberg("2026-03-02T00:30")
    stray = next(key for key in keys(world, "/iceberg/metadata/") if key.endswith(".avro"))
    lost = stray.rpartition("/")[0] + "/5f1d-m0.avro"
    world.context.stores.put("lake", lost, b"of a commit that never was")
    before = keys(world, "/iceberg/")
    hours_pass(world, A_LONG_TIME)

    assert deleted(world)["unlisted"] == 1
    assert keys(world, "/iceberg/") == [key for key in before if key != lost]
    assert rows_of_snapshots(world) == [12, 12]
    assert deleted(world) == {}


def test_data_of_others_stays_as_long_as_their_snapshot_also_where_its_day_has_no_other_garbage(world: World) -> None:
    world.apply(TABLE)
    arrive(world)
    world.iceberg("2026-03-01T12:10")
    a_stranger(world, "rewrite")
    theirs = keys(world, "/iceberg/data/")
    assert run_iceberg(world.context, now=utc("2026-03-01T12:20"), ignore_pace=True).errors
    world.iceberg("2026-03-01T12:21")
    hours_pass(world, A_LONG_TIME)

    assert deleted(world) == {}
    assert len(theirs) > 0
    assert keys(world, "/iceberg/data/") == theirs
    assert set(rows_of_snapshots(world)) == {0, 4}, "others delete all rows before they add them"


def test_young_files_of_metadata_stay(world: World) -> None:
    switched_day(world)
    world.iceberg("2026-03-02T00:30")
    young = next(key for key in keys(world, "/iceberg/metadata/")).rpartition("/")[0] + "/5f1d-m0.avro"
    world.context.stores.put("lake", young, b"of a commit that is under way")
    assert deleted(world) == {}
    assert young in keys(world)


def test_nothing_of_the_table_goes_while_its_catalog_cannot_tell(world: World) -> None:
    switched_day(world)
    world.iceberg("2026-03-02T00:30")
    hours_pass(world, A_LONG_TIME)
    before = keys(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM iceberg_tables")

    report = run_gc(world.context)

    assert "does not show the Iceberg table" in report.errors[0]
    assert keys(world) == before


def test_objects_that_a_late_commit_may_still_list_stay(world: World) -> None:
    """The Iceberg table lags. Objects of the next planned commit may have become garbage meanwhile."""
    switched_day(world)
    hours_pass(world, A_LONG_TIME)
    small = keys(world, "/live/")
    assert "merged" not in deleted(world)
    assert keys(world, "/live/") == small
    world.iceberg("2026-03-02T00:30")
    arrive(world, "2026-03-02T05:00")
    world.iceberg("2026-03-02T05:00")
    world.iceberg("2026-03-02T09:30")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world)["merged"] == 3
    assert len(world.iceberg_ids()) == 16


def test_without_the_word_of_its_snapshots_they_would_break(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The null control of the tests above: garbage collection without snapshots."""
    switched_day(world)
    world.iceberg("2026-03-02T00:30")
    hours_pass(world, A_LONG_TIME)
    monkeypatch.setattr(gc_plan, "load_iceberg_needs", lambda *_: None)
    assert deleted(world)["merged"] == 3
    with pytest.raises(FileNotFoundError):
        rows_of_snapshots(world)


def test_an_object_that_was_rewritten_goes_when_nobody_is_sent_to_it(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, target_bytes: 100000}") + "timestamps: milliseconds\n")
    for _ in range(3):
        arrive(world)
    world.catalog("2026-03-01T12:00")
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-02T00:20")
    world.apply(TABLE)
    assert run_adopt(world.context, "log.events", since=None).objects == 1
    old, _ = sorted(keys(world, "/part-"))
    hours_pass(world, A_LONG_TIME)
    deleted(world)
    assert old in keys(world), "Glue still names it"
    world.catalog("2026-03-02T02:00")
    world.iceberg("2026-03-02T02:00")
    hours_pass(world, A_LONG_TIME)
    assert deleted(world)["superseded"] == 1
    assert old not in keys(world)
    assert len(world.ids()) == len(world.iceberg_ids()) == 12

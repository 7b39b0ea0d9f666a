"""An Iceberg table stays quick to plan: joined manifests, expired snapshots, tags, adopted older days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.iceberg.health import IcebergFigures, health_of
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.iceberg.plan import preview
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.iceberg.status import read_iceberg_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.world import World


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """Snapshots go after an hour, as no reader may use them for longer."""
    with a_world(services, database_url, tmp_path, gc_reader_lease_hours=1) as made:
        yield made


TABLE = a_table(iceberg="{keep_hours: 1, daily_tags: 1}")
OLD = a_table() + "timestamps: milliseconds\n"


def arrive(world: World, count: int, start: str) -> list[int]:
    """Streams rows. Returns their ids."""
    rows = some_rows(count, utc(start))
    world.drop(rows)
    world.stream("2026-03-01T23:00")
    return [row["id"] for row in rows]


def manifests(world: World) -> int:
    """How many manifests the head has."""
    table = world.iceberg_table()
    head = table.current_snapshot()
    assert head is not None
    return len(head.manifests(table.io))


def test_the_eighth_manifest_of_a_day_joins_them(world: World) -> None:
    world.apply(TABLE)
    counts = []
    for hour in range(10):
        arrive(world, 1, f"2026-03-01T{hour:02}:00")
        world.iceberg(f"2026-03-01T{hour:02}:30")
        counts.append(manifests(world))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert len(world.iceberg_ids()) == 10


def test_optimize_leaves_a_closed_day_with_one_manifest(world: World) -> None:
    world.apply(TABLE)
    for hour in (1, 2, 3):
        arrive(world, 1, f"2026-03-01T{hour:02}:00")
        world.iceberg(f"2026-03-01T{hour:02}:30")
    world.iceberg("2026-03-01T03:40", optimize=True)
    assert manifests(world) == 3, "the day is open"
    world.catalog("2026-03-02T00:10")
    plan = preview(world.context, now=utc("2026-03-02T00:20"), optimize=True)

    report = world.iceberg("2026-03-02T00:20", optimize=True)

    assert "log.events 2026-03-01: join its manifests" in plan[0].lines
    assert manifests(world) == 1
    assert report.tables[0].commit is not None
    assert report.tables[0].commit.operation == "replace"
    assert len(world.iceberg_ids()) == 3
    assert not world.iceberg("2026-03-02T00:21", optimize=True).changed


def test_snapshots_go_by_age_and_the_one_of_the_beginning_of_that_time_stays(world: World) -> None:
    world.apply(TABLE)
    for minute in (0, 10, 20, 50):
        arrive(world, 1, f"2026-03-01T10:{minute:02}")
        world.iceberg(f"2026-03-01T10:{minute:02}")
    arrive(world, 1, "2026-03-01T11:00")
    world.iceberg("2026-03-01T11:15")

    kept = sorted(item.timestamp_ms for item in world.iceberg_table().metadata.snapshots)

    wanted = [utc(f"2026-03-01T{at}") for at in ("10:10", "10:20", "10:50", "11:15")]
    assert kept == [int(at.timestamp() * 1000) for at in wanted], "at 10:15 that of 10:10 was the newest"


def test_a_day_that_was_switched_has_a_tag_until_a_newer_one_has(world: World) -> None:
    world.apply(TABLE)
    for day in ("2026-03-01", "2026-03-02"):
        after = date.fromisoformat(day) + timedelta(days=1)
        arrive(world, 2, f"{day}T10:00")
        world.catalog(f"{after}T00:10")
        world.merge(f"{after}T00:20", everything=True)
        world.catalog(f"{after}T00:30")
        world.iceberg(f"{after}T00:40", optimize=True)
        world.iceberg(f"{after}T09:40", optimize=True)
        assert {f"day-{day}", "main"} == set(world.iceberg_table().metadata.refs)
    tagged = world.iceberg_table().scan(snapshot_id=world.iceberg_table().metadata.refs["day-2026-03-02"].snapshot_id)
    assert tagged.to_arrow().num_rows == 4


def test_what_tags_hold_is_told_as_far_as_no_other_snapshot_lists_it(world: World) -> None:
    world.apply(TABLE)
    arrive(world, 2, "2026-03-01T10:00")
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:20", everything=True)
    world.catalog("2026-03-02T00:30")
    assert world.iceberg("2026-03-02T00:40").tables[0].tag_bytes is None
    (first,) = world.iceberg("2026-03-02T00:41", optimize=True).tables
    (merged,) = (world.root / "buckets" / "lake").rglob("part-*.parquet")
    assert first.tag_bytes == 0
    arrive(world, 2, "2026-03-01T11:00")
    world.merge("2026-03-02T01:00", everything=True)
    world.iceberg("2026-03-02T01:10")

    (report,) = world.iceberg("2026-03-02T12:00", optimize=True).tables

    assert len(world.iceberg_table().metadata.snapshots) == 2
    assert report.tag_bytes == merged.stat().st_size
    assert any("tags hold 0.0 MB of data files" in line for line in report.lines)
    (plan,) = preview(world.context, now=utc("2026-03-02T12:01"), optimize=True)
    assert plan.tag_bytes == report.tag_bytes


def test_days_of_the_old_format_are_left_out_told_and_adopted(world: World) -> None:
    world.apply(OLD)
    ids = arrive(world, 3, "2026-03-01T10:00")
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:20", everything=True)
    world.catalog("2026-03-02T00:30")
    with pytest.raises(WrongUse, match="iceberg: true"):
        run_adopt(world.context, "log.events", since=None)
    world.apply(TABLE)
    report = run_iceberg(world.context, now=utc("2026-03-02T00:40"), ignore_pace=True)
    assert "milliseconds" in report.errors[0]
    assert read_iceberg_status(world.context)[0].left_out == (date(2026, 3, 1),)
    assert run_iceberg(world.context, now=utc("2026-03-02T00:41"), ignore_pace=True).errors == (), (
        "told once, then by status"
    )

    adopted = run_adopt(world.context, "log.events", since=None)

    assert (adopted.errors, adopted.objects, adopted.rows) == ((), 1, 3)
    world.iceberg("2026-03-02T01:00")
    assert world.iceberg_ids() == ids
    assert read_iceberg_status(world.context)[0].left_out == ()
    world.catalog("2026-03-02T01:10")
    assert world.ids() == ids
    assert world.partition("2026-03-01").objects[0].url.endswith("-r2.parquet")
    assert run_adopt(world.context, "log.events", since=None).objects == 0


def test_health_is_the_worst_of_what_is_measured_and_says_what_helps() -> None:
    well = IcebergFigures(
        closed_small_bytes=0, all_bytes=100, manifests=10, days=10, snapshots=10, metadata_bytes=1000, seconds_behind=5,
        commit_seconds=60, foreign_snapshots=0,
    )  # fmt: skip
    assert (health_of(well).score, health_of(well).complaints) == (100, ())
    many = health_of(IcebergFigures(**{**vars(well), "snapshots": 600}))
    assert many.score == 0
    assert many.complaints == (
        "snapshots 600 (at most 300): raise `commit_seconds` or lower `keep_hours` in the table file",
    )
    assert health_of(IcebergFigures(**{**vars(well), "foreign_snapshots": 1})).score < 70

"""The unit of stored timestamps: microseconds, milliseconds for readers that need them, and both in one day."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_assets import failpoints
from prism_assets.domain.columns.types import MICROSECONDS, MILLISECONDS
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, AFTER, LATER = f"{DAY}T12:00", "2026-03-02T00:10", "2026-03-02T02:00"
IN_MILLISECONDS = a_table() + "timestamps: milliseconds\n"
IN_MICROSECONDS = a_table() + "timestamps: microseconds\n"


def units(world: World, tier: str = "live") -> list[str]:
    """The units of the timestamps in the objects of a tier, by key."""
    paths = sorted((world.root / "buckets" / "lake").rglob(f"*/{tier}/*/*.parquet"))
    return [pq.read_schema(path).field("time").type.unit for path in paths]


def recorded(world: World, table: str = "prism_small_objects") -> list[int]:
    """The file formats on record, in order."""
    with world.context.database.begin() as connection:
        sql = f"SELECT file_format FROM {table} WHERE row_count > 0 ORDER BY 1"
        return list(connection.exec_driver_sql(sql).scalars())


def stream_one(world: World, now: str = NOON) -> None:
    """One object of two rows at noon."""
    world.drop(some_rows(2, utc(NOON)))
    world.stream(now)


def switch(world: World) -> None:
    """Closes, merges and switches the day."""
    world.catalog(AFTER)
    world.merge(LATER, everything=True)
    world.catalog(LATER)
    assert world.status(DAY, LATER).state == "switched"


def test_a_new_table_stores_microseconds(world: World) -> None:
    world.apply(a_table())
    stream_one(world)
    switch(world)
    assert (units(world), units(world, "merged")) == (["us"], ["us"])
    assert (recorded(world), recorded(world, "prism_merge_ranges")) == ([MICROSECONDS], [MICROSECONDS])
    (path,) = (world.root / "buckets" / "lake").rglob("part-*.parquet")
    times = pq.read_table(path).column("time")
    assert times[0].as_py() == utc(NOON)
    assert times.cast(pa.timestamp("ms", "UTC")).cast(times.type).equals(times), "whole milliseconds"


def test_milliseconds_are_stored_where_the_table_file_says_so(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    switch(world)
    assert (units(world), units(world, "merged")) == (["ms"], ["ms"])
    assert (recorded(world), recorded(world, "prism_merge_ranges")) == ([MILLISECONDS], [MILLISECONDS])


def test_a_table_in_force_keeps_its_unit_until_its_file_names_another(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    world.apply(a_table())
    stream_one(world)
    assert units(world) == ["ms", "ms"]
    world.apply(IN_MICROSECONDS)
    stream_one(world)
    assert units(world) == ["ms", "ms", "us"]


def test_a_day_of_both_units_reads_and_switches_with_every_row(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    world.apply(IN_MICROSECONDS)
    stream_one(world)
    world.catalog(NOON)
    ids = world.ids()
    assert len(ids) == 4
    assert world.query("SELECT count(*) FROM log.events WHERE time >= '2026-03-01 12:00:01Z'") == [(2,)]
    switch(world)
    assert recorded(world) == [MILLISECONDS, MICROSECONDS]
    assert units(world, "merged") == ["us"]
    assert world.ids() == ids
    assert world.query("SELECT count(*) FROM log.events WHERE time >= '2026-03-01 12:00:01Z'") == [(2,)]


def test_a_merge_after_a_dead_one_writes_the_new_unit_under_another_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    world.catalog(AFTER)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("merge.before_commit=1*raise(InjectedFault)"))
    with pytest.raises(failpoints.InjectedFault):
        world.merge(LATER, everything=True)
    assert units(world, "merged") == ["ms"]
    world.apply(IN_MICROSECONDS)
    world.merge(LATER, everything=True)
    assert (sorted(units(world, "merged")), recorded(world, "prism_merge_ranges")) == (["ms", "us"], [MICROSECONDS])


def test_a_change_of_unit_is_told_in_the_plan(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    assert world.apply(IN_MICROSECONDS).lines == ("store timestamps of log.events in microseconds from now on",)


def test_iceberg_sets_microseconds_from_now_on_and_the_plan_says_so(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    world.apply(a_table())
    assert world.apply(a_table() + "iceberg: true\n").lines == (
        "store timestamps of log.events in microseconds from now on",
        "publish log.events as an Iceberg table, too, with commit_seconds: 60, keep_hours: 4, daily_tags: 0, "
        "on_foreign: restore",
    )
    assert world.apply().lines == ()
    stream_one(world)
    assert units(world) == ["ms", "us"]
    assert world.apply(a_table()).lines == ("publish log.events as an Iceberg table no longer",)
    stream_one(world)
    assert units(world) == ["ms", "us", "us"]


def test_a_repaired_object_has_the_unit_that_it_had(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    stream_one(world)
    (path,) = (world.root / "buckets" / "lake").rglob("prism-*.parquet")
    body = path.read_bytes()
    world.apply(IN_MICROSECONDS)
    path.write_bytes(b"damaged")
    report = run_repair(world.context)
    assert report.errors == ()
    assert path.read_bytes() == body

"""Column metrics are recorded for every object, also in tables not published as Iceberg."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, AFTER, LATER = f"{DAY}T12:00", "2026-03-02T00:10", "2026-03-02T02:00"
NOON_IN_MILLISECONDS = int(utc(NOON).timestamp() * 1000)
COLOR = "{name: color, type: string}"
SORTED = a_table(columns=[COLOR], merge="{sort_by: [time, color]}")


def recorded(world: World, table: str = "prism_small_objects") -> list[Any]:
    """The metrics on record, in the order of ids."""
    with world.context.database.begin() as connection:
        sql = f"SELECT metrics FROM {table} WHERE row_count > 0 ORDER BY prism_partition_id, 1"
        return list(connection.exec_driver_sql(sql).scalars())


def times(count: int) -> dict[str, int]:
    """The metrics of `time` in so many rows, one a second from noon on."""
    return {"nulls": 0, "lower": NOON_IN_MILLISECONDS, "upper": NOON_IN_MILLISECONDS + 1000 * (count - 1)}


def stream(world: World, rows: int, **more: Any) -> None:
    """One object with rows from noon on."""
    world.drop(some_rows(rows, utc(NOON), **more))
    world.stream(NOON)


def test_objects_record_the_metrics_of_the_columns_they_are_sorted_by(world: World) -> None:
    world.apply(SORTED)
    stream(world, 3, color="red")
    world.catalog(AFTER)
    world.merge(LATER, everything=True)
    metrics = {"1": times(3), "3": {"nulls": 0, "lower": "red", "upper": "red"}}
    assert recorded(world) == [metrics]
    assert recorded(world, "prism_merge_ranges") == [metrics]


def test_the_table_file_may_name_the_columns(world: World) -> None:
    world.apply(SORTED + "iceberg: {metrics: [color]}\n")
    stream(world, 3, color="red")
    world.catalog(AFTER)
    world.merge(LATER, everything=True)
    metrics = {"3": {"nulls": 0, "lower": "red", "upper": "red"}}
    assert (recorded(world), recorded(world, "prism_merge_ranges")) == ([metrics], [metrics])


def test_metrics_are_milliseconds_whatever_the_object_stores(world: World) -> None:
    world.apply(a_table() + "timestamps: milliseconds\n")
    stream(world, 2)
    assert recorded(world) == [{"1": times(2)}]


def test_a_merged_object_has_metrics_of_its_own_rows(world: World) -> None:
    """Its inputs were written when the table had fewer sort columns."""
    world.apply(a_table(columns=[COLOR]))
    stream(world, 2, color="red")
    stream(world, 5, color="blue")
    assert recorded(world) == [{"1": times(2)}, {"1": times(5)}]
    world.apply(SORTED)
    world.catalog(AFTER)
    world.merge(LATER, everything=True)
    (merged,) = recorded(world, "prism_merge_ranges")
    assert merged == {"1": times(5), "3": {"nulls": 0, "lower": "blue", "upper": "red"}}


def test_an_object_that_was_there_is_recorded_with_the_metrics_of_its_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(a_table())
    stream(world, 2)
    world.catalog(AFTER)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("merge.before_commit=1*raise(InjectedFault)"))
    with pytest.raises(failpoints.InjectedFault):
        world.merge(LATER, everything=True)
    world.merge(LATER, everything=True)
    assert recorded(world, "prism_merge_ranges") == [{"1": times(2)}]


def test_a_text_that_jsonb_does_not_take_is_recorded_up_to_there(world: World) -> None:
    world.apply(SORTED)
    stream(world, 1, color="a\0b")
    assert recorded(world) == [{"1": times(1), "3": {"nulls": 0, "lower": "a", "upper": "b"}}]


def test_a_repair_leaves_what_is_recorded(world: World) -> None:
    world.apply(a_table())
    stream(world, 2)
    (path,) = (world.root / "buckets" / "lake").rglob("prism-*.parquet")
    path.write_bytes(b"damaged")
    report = run_repair(world.context)
    assert (report.repaired, report.errors) == (1, ())
    assert recorded(world) == [{"1": times(2)}]

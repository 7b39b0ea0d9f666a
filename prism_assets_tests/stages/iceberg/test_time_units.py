"""I-H1: readers of Iceberg take the times in statistics for microseconds, so days in milliseconds are not shown."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    DAY,
    LATER,
    NOON,
    TABLE,
    attempt,
    dirty_days,
    reasons,
    streamed,
)
from prism_assets_tests.world import World

IN_MILLISECONDS = a_table(merge="{interval: 0}") + "timestamps: milliseconds\n"
LONG_AGO = "1990-01-01T00:00"


def skips(path: Path, after: datetime) -> bool:
    """Whether a reader that takes stored times for microseconds skips a file in a search for later times."""
    stored = pq.read_table(path).column("time").cast("int64")
    return bool(max(stored.to_pylist()) < after.timestamp() * 1_000_000)


def files(world: World) -> list[Path]:
    tasks = world.iceberg_table().scan().plan_files()
    return [world.root / "buckets" / task.file.file_path.removeprefix("s3://") for task in tasks]


def ids_since(world: World, start: str) -> list[int]:
    """The ids of rows since a time, as a client finds them."""
    found = world.iceberg_table().scan(row_filter=f"time >= '{utc(start).isoformat()}'").to_arrow()
    return sorted(found.column("id").to_pylist())


def test_a_time_filter_finds_just_its_rows(world: World) -> None:
    world.apply(TABLE)
    early, late = streamed(world), streamed(world, at=f"{DAY}T11:30")
    world.iceberg(NOON)
    assert ids_since(world, LONG_AGO) == early + late
    assert ids_since(world, f"{DAY}T11:15") == late
    assert ids_since(world, f"{DAY}T11:45") == []
    names = [str(path) for path in files(world)]
    sql = f"SELECT id FROM read_parquet({names}) WHERE time >= ? ORDER BY id"
    for start, wanted in ((LONG_AGO, early + late), (f"{DAY}T11:15", late), (f"{DAY}T11:45", [])):
        assert [row[0] for row in duckdb.execute(sql, [utc(start)]).fetchall()] == wanted
    assert not any(skips(path, utc(LONG_AGO)) for path in files(world))


def test_days_in_milliseconds_are_left_out_with_the_reason_until_they_are_merged(world: World) -> None:
    world.apply(IN_MILLISECONDS)
    old = streamed(world)
    (path,) = (world.root / "buckets" / "lake").rglob("prism-*.parquet")
    assert skips(path, utc(LONG_AGO)), "the naive way: listed as it is, its rows are not found"
    world.apply(TABLE)
    new = streamed(world, "2026-03-02T00:05", at="2026-03-02T00:01")

    report = attempt(world, "2026-03-02T00:05")

    assert [(str(problem.date), problem.reason.partition(",")[0]) for problem in report.problems] == [
        (DAY, "holds objects whose timestamps are in milliseconds")
    ]
    assert world.iceberg_ids() == new
    world.catalog(AFTER)
    world.merge(LATER, everything=True)
    assert reasons(attempt(world, LATER)) == []
    assert world.iceberg_ids() == old + new
    assert ids_since(world, LONG_AGO) == old + new
    assert dirty_days(world) == 0


def test_a_day_in_milliseconds_keeps_no_other_day_and_no_other_table_waiting(world: World) -> None:
    world.apply(IN_MILLISECONDS, a_table("log.clicks", iceberg="true"))
    streamed(world)
    world.apply(TABLE)
    clicks = some_rows(2, utc(NOON))
    world.drop(clicks, stream="clicks")
    world.stream(NOON)
    clicks_report, events_report = run_iceberg(world.context, now=utc(NOON), ignore_pace=True).tables
    assert [len(reasons(clicks_report)), len(reasons(events_report))] == [0, 1]
    assert world.iceberg_table("log.clicks").scan().to_arrow().num_rows == len(clicks)

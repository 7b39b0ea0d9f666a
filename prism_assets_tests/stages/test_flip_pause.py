"""How long a flip keeps new objects waiting: as long as it needs for few objects, and not at all for none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prism_assets.stages.findings.registry import find_work
from prism_assets_tests.builders import some_rows, utc
from prism_assets_tests.stages.seen_columns import NIGHT, publish
from prism_assets_tests.stages.test_flips import world as world
from prism_assets_tests.stages.widened import (
    LATER,
    NARROW,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    closed_day,
    drop,
    said,
    see,
    states,
)
from prism_assets_tests.stages.widened import rows as rows
from prism_assets_tests.world import World


def hourly(types: dict[str, str]) -> str:
    """Returns a table file whose merges wait for an hour."""
    return a_file(types).replace("interval: 0", "interval: 3600")


def tick(world: World, now: str) -> int:
    """Runs the stages requested by Dagster's sensors, a catalog run only if due. Returns the number of new rows."""
    came = world.stream(now).rows_out
    world.merge(now)
    if find_work(world.context, "catalog", now=utc(now)):
        world.catalog(now)
    world.iceberg(now)
    return came


def test_a_table_without_an_object_in_an_open_day_flips_without_a_pause(world: World) -> None:
    rows = closed_day(world)
    assert world.apply(a_file(WIDE), now=WIDENED).lines[-1] == (
        "flip log.events at once when all have a copy, if open days have no object then, as now: no day closes early, "
        "and no new object waits"
    )
    world.merge(WIDENED)
    new = drop(world, at=LATER, wide=True)
    (report,) = world.catalog(WIDENED).tables
    assert [line.split()[0] for line in report.columns_advanced] == ["flip"] * 3
    world.stream(WIDENED)
    publish(world, WIDENED)
    see(world, [*rows, *new], WIDE)
    assert world.status("2026-03-02", LATER).state == "live"


def test_a_table_that_gave_no_row_flips_without_a_pause(world: World) -> None:
    world.apply(a_file(NARROW))
    world.drop([], body=b"broken\n")
    world.stream(WIDENED)
    assert len(world.apply(a_file(WIDE), now=WIDENED).lines) == 4
    world.catalog(WIDENED)
    assert states(world) == set()
    rows = arrive(world, LATER, at=LATER, wide=True)
    world.catalog(LATER)
    world.iceberg(LATER)
    see(world, rows, WIDE)


def test_a_small_open_day_keeps_new_objects_waiting_for_three_ticks(world: World, rows: list[dict[str, Any]]) -> None:
    """Its merges are due in an hour, and the flip does not wait for that."""
    world.apply(hourly(NARROW), now=WIDENED)
    assert world.apply(hourly(WIDE), now=WIDENED).lines[-1] == (
        "flip log.events when all have a copy: its open days close at once, today included, and new objects wait for "
        "at most 10 minutes; later rows of these days are late, and become readable with the next catalog run"
    )
    waited = 0
    for number in range(9):
        now = (utc(WIDENED) + timedelta(seconds=30 * number)).isoformat()
        world.drop(some_rows(1, utc(WIDENED)))
        waited += not tick(world, now)
        if not states(world):
            break
    assert (states(world), waited) == (set(), 3)


def test_a_flip_of_a_small_day_that_nothing_moves_is_given_up_after_ten_minutes(
    world: World, rows: list[dict[str, Any]]
) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    drop(world, at=LATER)
    assert world.stream(LATER).rows_out == 0
    assert "new objects wait, until 2026-03-02 10:10Z at most" in said(world, "2026-03-02T10:09")
    world.catalog("2026-03-02T10:11")
    assert states(world) == {"copying"}
    assert world.stream(LATER).rows_out == 3
    with world.context.database.begin() as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM prism_tables WHERE intake_paused_until IS NOT NULL")
        assert left.scalar_one() == 0


def test_an_open_day_that_became_empty_by_the_night_is_not_closed_early(world: World) -> None:
    """The sentence about a change uses the current objects, the flip uses those at its own time."""
    world.apply(a_file(NARROW))
    arrive(world)
    assert "its open days close at once" in world.apply(a_file(WIDE), now=WIDENED).lines[-1]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    assert states(world) >= {"copying"}
    world.catalog(NIGHT)
    world.catalog(NIGHT)
    assert states(world) == set()

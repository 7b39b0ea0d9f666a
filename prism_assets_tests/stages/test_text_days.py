"""Rebuilds of text lines after a format that fits fewer of them: a rebuild of one day leaves rows of other days."""

from __future__ import annotations

from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.test_rebuild import LATER, rebuild, switch
from prism_assets_tests.stages.test_text_lines import CSV, TABLE, drop, rows
from prism_assets_tests.world import World

FIRST, SECOND = "2026-03-01", "2026-03-02"
WIDE = r"""{regex: '^(?P<time>\S+),(?P<id>\w+),"(?P<path>[^"]*)"$'}"""
FIRST_ONLY = r"""{regex: '^(?P<time>2026-03-01\S+),(?P<id>\w+),"(?P<path>[^"]*)"$'}"""
X_ONLY, Y_ONLY = (rf"""{{regex: '^(?P<time>\S+),(?P<id>\d+),"(?P<path>{path})"$'}}""" for path in "xy")


def a_line(day: str, number: int, path: str = "x") -> str:
    return f'{day}T00:00:{number:02}Z,{number},"{path}"\n'


def ledger(world: World) -> tuple[int, ...]:
    """Lines, rows and quarantined lines of all objects."""
    with world.context.database.begin() as connection:
        found = connection.exec_driver_sql(
            "SELECT sum(lines_in), sum(rows_out), sum(rows_quarantined) FROM prism_staging_objects"
        ).one()
    return tuple(map(int, found))


def arrive(world: World, form: str, *lines: str) -> None:
    world.apply(TABLE.replace(CSV, form))
    for _ in range(2):
        drop(world, *lines)
    world.stream("2026-03-02T00:05")
    world.catalog("2026-03-02T00:06")
    switch(world)


def ids(world: World) -> list[object]:
    return [number for number, _ in rows(world)]


def test_a_rebuild_leaves_rows_of_another_day_that_the_format_no_longer_fits(world: World) -> None:
    arrive(world, WIDE, a_line(FIRST, 1), a_line(SECOND, 2), a_line(SECOND, 3))
    world.apply(TABLE.replace(CSV, FIRST_ONLY))
    assert rebuild(world).errors == ()
    world.catalog(LATER)
    assert (ids(world), ledger(world)) == ([1, 1, 2, 2, 3, 3], (6, 6, 0))


def test_each_day_is_rebuilt_by_a_format_that_fits_other_lines(world: World) -> None:
    """Lines of a day that no longer fit go to quarantine, and a replay under the former format makes rows of them."""
    both = [a_line(day, number, path) for day, number, path in [(FIRST, 1, "x"), (FIRST, 2, "y"), (SECOND, 3, "x")]]
    arrive(world, X_ONLY, *both, a_line(SECOND, 4, "y"))
    assert (ids(world), ledger(world)) == ([1, 1, 3, 3], (8, 4, 4))
    world.apply(TABLE.replace(CSV, Y_ONLY))
    now = "2026-03-03T12:00"
    world.merge(now, everything=True)
    for day in (FIRST, SECOND, FIRST):
        assert rebuild(world, day, now).errors == ()
        assert sum(ledger(world)[1:]) == 8
        world.catalog(now)
    assert (ids(world), ledger(world)) == ([2, 2, 4, 4], (8, 4, 4))
    world.apply(TABLE.replace(CSV, WIDE))
    assert run_replay(world.context, "log.events", now=utc(now)).errors == ()
    world.catalog(now)
    assert (ids(world), ledger(world)) == ([1, 1, 2, 2, 3, 3, 4, 4], (8, 8, 0))


def test_a_replay_of_objects_with_rows_keeps_those_of_days_that_no_longer_fit(world: World) -> None:
    arrive(world, X_ONLY, a_line(FIRST, 1), a_line(FIRST, 2, "y"), a_line(SECOND, 3))
    world.apply(TABLE.replace(CSV, Y_ONLY))
    now = "2026-03-03T12:00"
    world.merge(now, everything=True)
    assert run_replay(world.context, "log.events", now=utc(now)).errors == ()
    assert sum(ledger(world)[1:]) == 6

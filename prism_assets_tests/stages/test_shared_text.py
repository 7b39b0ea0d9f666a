"""Tables share a prefix of text lines. The format makes the value that divides them, so a change of it moves lines."""

from __future__ import annotations

import pytest

from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import utc, zipped
from prism_assets_tests.stages.shared_prefix import (
    ACCOUNTS,
    EVENTS,
    LATER,
    NOON,
    finish,
    ledgers,
    rebuild,
    undivided,
)
from prism_assets_tests.world import World

KINDS = ("signup", "view", "login", "view")
STRICT = r"{regex: '^(?P<time>\S+) (?P<id>\d+) (?P<kind>[a-z]+) x$'}"
MENDED = r"{regex: '^(?P<time>\S+) (?P<id>\d+) (?P<kind>[a-z]+) [xy]$'}"
UNREAD = [f"2026-03-01T12:00:0{number}Z {number} {kind} y" for number, kind in enumerate(KINDS)]
"""Lines that only the mended expression fits."""
SWAPPED = "{csv: {columns: [time, id, other, kind]}}"
HEADER = "{csv: {header: true}}"
COLUMNS = "{csv: {columns: [time, id, kind, other]}}"
VIEWS = [f"2026-03-01T12:00:0{number}Z,{number},view,signup" for number in range(3)]
"""Lines of accounts by the swapped columns, and of events by the others."""


def files(form: str) -> list[str]:
    return [file.replace('app/", route', f'app/", format: {form}, route') for file in (ACCOUNTS, EVENTS)]


def put(world: World, *lines: str) -> None:
    world.drop([], stream="app", body=zipped("\n".join(lines).encode()))


def ids(world: World) -> list[int]:
    """The ids in both tables: no line is lost, and none is in both."""
    return sorted([*world.ids("log.accounts"), *world.ids("log.events")])


@pytest.mark.parametrize(("before", "after", "lines"), [(STRICT, MENDED, UNREAD), (SWAPPED, COLUMNS, VIEWS)])
def test_a_format_mended_between_two_claims_divides_the_object_as_before(
    world: World, before: str, after: str, lines: list[str]
) -> None:
    """Otherwise lines that one table left to the other would leave that one, too, or rows would be in both."""
    world.apply(*files(before))
    put(world, *lines)
    world.discover(NOON)
    run_stream(world.context, now=utc(NOON), names=["log.accounts"])
    world.apply(*files(after))
    finish(world)
    assert sum(rows + quarantined for _, rows, quarantined, _ in ledgers(world).values()) == len(lines)
    assert undivided(world) == []
    for table in ("log.events", "log.accounts"):
        assert run_replay(world.context, table, now=utc(LATER)).rows_added == 0
    finish(world)
    assert sum(rows + quarantined for _, rows, quarantined, _ in ledgers(world).values()) == len(lines)
    assert undivided(world) == []


def test_a_replay_leaves_lines_that_a_mended_expression_would_give_to_another_table(world: World) -> None:
    world.apply(*files(STRICT))
    put(world, *UNREAD)
    finish(world)
    assert ledgers(world) == {"accounts": (4, 0, 0, 4), "events": (4, 0, 4, 0)}
    notices = world.apply(*files(MENDED)).notices
    assert any("by the new routes or format, rebuild together: log.accounts, log.events" in item for item in notices)
    for table, left in (("log.events", 1), ("log.accounts", 0)):
        report = run_replay(world.context, table, now=utc(LATER))
        assert (report.rows_added, report.earlier_division) == (0, left)
    finish(world)
    assert ledgers(world) == {"accounts": (4, 0, 0, 4), "events": (4, 0, 4, 0)}
    assert undivided(world) == []


@pytest.mark.parametrize("tables", [("log.accounts", "log.events"), ("log.events", "log.accounts")])
def test_a_rebuild_of_both_tables_divides_lines_by_the_mended_expression(world: World, tables: tuple[str, ...]) -> None:
    """Also objects of which no table has a row, if they came by the next day."""
    world.apply(*files(STRICT))
    put(world, *(line.replace(" y", " x") for line in UNREAD[:2]))
    put(world, *(line.replace("Z ", "Z 1") for line in UNREAD))
    finish(world)
    with world.context.database.begin() as connection:  # objects of the local store come when the test runs
        connection.exec_driver_sql("UPDATE prism_staging_objects SET send_time = first_receive_time")
    world.apply(*files(MENDED))
    rebuild(world, *tables)
    assert (world.ids("log.accounts"), world.ids("log.events")) == ([0, 10, 12], [1, 11, 13])
    assert ledgers(world) == {"accounts": (6, 3, 0, 3), "events": (6, 3, 0, 3)}
    assert undivided(world) == []


def test_rows_of_one_table_become_rows_of_the_other_by_a_rebuild_of_both_alone(world: World) -> None:
    world.apply(*files(SWAPPED))
    put(world, *VIEWS, "bad,9,view,view")
    finish(world)
    world.apply(*files(COLUMNS))
    for table in ("log.events", "log.accounts"):
        run_replay(world.context, table, now=utc(LATER))
    finish(world)
    assert ids(world) == [0, 1, 2]
    rebuild(world, "log.events", "log.accounts")
    assert (world.ids("log.accounts"), world.ids("log.events")) == ([], [0, 1, 2])
    assert ledgers(world) == {"accounts": (4, 0, 0, 4), "events": (4, 3, 1, 0)}
    assert undivided(world) == []


def test_a_replay_reads_objects_again_that_keep_their_format(world: World) -> None:
    """Objects keep `header`, and with it their format: all tables divide them as before."""
    world.apply(*files(COLUMNS))
    put(world, "2026-03-01T12:00:00Z,0,view,a", "noon,1,view,b")
    finish(world)
    assert ledgers(world)["events"] == (2, 1, 1, 0)
    world.apply(*files(HEADER))
    report = run_replay(world.context, "log.events", dry_run=True, now=utc(LATER))
    assert (report.earlier_division, report.with_rows) == (0, 1)

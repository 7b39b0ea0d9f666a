"""`prism table flip` for people: output and exit status."""

from __future__ import annotations

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism

NOON, LATER = "2026-03-01T12:00", "2026-03-01T15:00"
FLIP = ("table", "flip", "log.events", "--now", LATER)
NARROW = a_table(columns=["{name: size, type: integer}"])


def test_readers_are_turned_at_once_and_each_step_is_told(prism: Prism) -> None:
    world = prism.world
    world.apply(NARROW)
    assert prism.ok(*FLIP).out == "all columns of log.events have their types\n"
    world.drop([row | {"size": 7} for row in some_rows(2, utc(NOON))])
    world.stream(NOON)
    world.catalog(NOON)
    world.apply(NARROW.replace("integer", "bigint"), now=NOON)
    assert prism.ok(*FLIP).out.splitlines() == [
        "begin to flip column size of log.events as bigint: new objects wait, 10 minutes at most, until all days are "
        "closed, merged and copied",
        "flip column size of log.events to bigint: its copies replace all objects",
        "all columns of log.events have their types",
    ]
    assert world.query("SELECT typeof(size), count(*) FROM log.events GROUP BY 1") == [("BIGINT", 2)]
    assert prism.ok(*FLIP, "--json").json["left"] == []


def test_a_table_that_is_not_there_is_named(prism: Prism) -> None:
    prism.world.apply(NARROW)
    done = prism("table", "flip", "log.event")
    assert (done.status, "there is no table log.event" in done.err) == (2, True)

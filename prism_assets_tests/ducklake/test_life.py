"""A permanently connected DuckLake client reads each row once, from its commit on, through all changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import pytest

from prism_assets.domain.columns.types import LEAF_TYPES
from prism_assets.stages.gc.run import run_gc
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.world import World
from prism_local.readers.sessions import StatementFailed

FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "dt = DATE '2026-03-01'": lambda row: row["time"].startswith("2026-03-01"),
    "dt > DATE '2026-03-01'": lambda row: row["time"] >= "2026-03-02",
    "time < TIMESTAMPTZ '2026-03-01 12:00:05+00'": lambda row: row["time"] < "2026-03-01T12:00:05Z",
    "time >= TIMESTAMPTZ '2026-03-01 14:00:03+00' AND dt = DATE '2026-03-01'": lambda row: (
        "2026-03-01T14:00:03Z" <= row["time"] < "2026-03-02"
    ),
    "time > TIMESTAMPTZ '1990-01-01 00:00:00+00'": lambda row: True,
    "time > TIMESTAMPTZ '2030-01-01 00:00:00+00'": lambda row: False,
    "dt IS NULL": lambda row: False,
}


def check(lake: LakeOfTest, rows: list[dict[str, Any]]) -> None:
    """Checks that every row appears once, on its day, by every filter, in the session open all the time."""
    found = lake.query("SELECT id, dt FROM lake.log.events")
    assert sorted((row[0], row[1]) for row in found) == sorted((row["id"], row["time"][:10]) for row in rows)
    for where, holds in FILTERS.items():
        assert lake.ids(where) == sorted(row["id"] for row in rows if holds(row)), where


def paths(lake: LakeOfTest) -> list[str]:
    return sorted(row[0] for row in lake.sql("SELECT path FROM prism_lake.ducklake_data_file"))


def test_each_row_is_read_once_through_the_life_of_its_day(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    rows: list[dict[str, Any]] = []

    def arrive(start: str, now: str) -> None:
        new = some_rows(10, utc(start))
        rows.extend(new)
        world.drop(new)
        world.stream(now)
        check(lake, rows)

    arrive("2026-03-01T12:00", "2026-03-01T12:10")
    arrive("2026-03-01T14:00", "2026-03-01T14:10")
    world.merge("2026-03-01T16:00")
    check(lake, rows)
    arrive("2026-03-01T23:59", "2026-03-02T00:05")
    world.catalog("2026-03-02T00:10")
    check(lake, rows)
    world.merge("2026-03-02T02:00", everything=True)
    check(lake, rows)
    assert any(path.startswith("merged/dt=2026-03-01/") for path in paths(lake))
    world.catalog("2026-03-02T02:10")
    assert world.status("2026-03-01", "2026-03-02T02:10").state == "switched"
    check(lake, rows)
    arrive("2026-03-01T13:00", "2026-03-02T03:00")
    assert any(path.startswith("delayed/dt=2026-03-01/") for path in paths(lake))
    world.merge("2026-03-02T05:00", everything=True)
    check(lake, rows)
    world.catalog("2026-03-02T05:10")
    check(lake, rows)


def test_a_new_column_is_read_by_a_session_that_is_open(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table())
    before = some_rows(5, utc("2026-03-01T12:00"))
    world.drop(before)
    world.stream("2026-03-01T12:10")
    assert lake.ids() == [row["id"] for row in before]
    world.apply(a_table(columns=["{name: region, type: string, length: 20}"]))
    assert lake.query("SELECT count(*), count(region) FROM lake.log.events") == [(5, 0)]
    after = some_rows(5, utc("2026-03-01T13:00"), region="tokyo")
    world.drop(after)
    world.stream("2026-03-01T13:10")
    assert lake.query("SELECT region, count(*) FROM lake.log.events GROUP BY 1 ORDER BY 1") == [("tokyo", 5), (None, 5)]
    world.merge("2026-03-01T16:00", everything=True)
    assert lake.query("SELECT region, count(*) FROM lake.log.events GROUP BY 1 ORDER BY 1") == [("tokyo", 5), (None, 5)]


TYPED = {
    "string": ("{name: v, type: string, length: 20}", "é'x", "é'x"),
    "boolean": ("{name: v, type: boolean}", True, True),
    "smallint": ("{name: v, type: smallint}", -7, -7),
    "integer": ("{name: v, type: integer}", 70_000, 70_000),
    "bigint": ("{name: v, type: bigint}", 1 << 40, 1 << 40),
    "real": ("{name: v, type: real}", 0.5, 0.5),
    "double": ("{name: v, type: double}", 0.25, 0.25),
    "decimal": ('{name: v, type: "decimal(10,2)"}', "12.30", "12.30"),
    "timestamp": ("{name: v, type: timestamp}", "2026-03-01T12:00:00.123Z", "2026-03-01 12:00:00.123000+00:00"),
    "date": ("{name: v, type: date}", "2026-02-28", "2026-02-28"),
    "json": ("{name: v, type: json, length: 100}", {"a": 1}, '{"a":1}'),
}


@pytest.mark.parametrize("timestamps", ["microseconds", "milliseconds"])
def test_every_type_is_read_as_it_was_written(world: World, lake: LakeOfTest, timestamps: str) -> None:
    assert set(TYPED) == {kind.keyword for kind in LEAF_TYPES}
    columns = [column.replace("name: v", f"name: {name}_v") for name, (column, _, _) in TYPED.items()]
    world.apply(a_table(columns=columns) + f"timestamps: {timestamps}\n")
    (row,) = some_rows(1, utc("2026-03-01T12:00"))
    world.drop([row | {f"{name}_v": given for name, (_, given, _) in TYPED.items()}])
    world.stream("2026-03-01T12:10")
    names = ", ".join(f"{name}_v" for name in TYPED)
    assert lake.query(f"SELECT {names} FROM lake.log.events") == [tuple(read for _, _, read in TYPED.values())]


def test_a_table_that_says_so_is_hidden_until_it_no_longer_does(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table(), a_table("log.other"))
    rows = some_rows(3, utc("2026-03-01T12:00"))
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    assert lake.ids() == [row["id"] for row in rows]
    lines = world.apply(a_table() + "ducklake: false\n").lines
    assert lines == ("hide log.events from clients of DuckLake",)
    with pytest.raises(StatementFailed, match="does not exist"):
        lake.ids()
    assert lake.sql("SELECT count(*) FROM prism_lake.ducklake_data_file") == [(0,)]
    assert lake.query("SELECT count(*) FROM lake.log.other") == [(0,)]
    assert world.apply(a_table()).lines == ("show log.events to clients of DuckLake",)
    assert lake.ids() == [row["id"] for row in rows]


def test_a_session_from_while_a_table_was_hidden_reads_it_when_it_is_shown_again(
    world: World, lake: LakeOfTest
) -> None:
    """The session asks only for mappings above those already seen, so it also gets mappings of hidden tables."""
    world.apply(a_table(), a_table("log.other"))
    rows = some_rows(3, utc("2026-03-01T12:00"))
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    world.apply(a_table() + "ducklake: false\n")
    world.drop(some_rows(2, utc("2026-03-01T12:00")), stream="other")
    world.stream("2026-03-01T12:20")
    assert lake.query("SELECT count(DISTINCT dt) FROM lake.log.other") == [(1,)]
    world.apply(a_table())
    assert lake.ids("dt = DATE '2026-03-01'") == [row["id"] for row in rows]


def test_what_a_merge_replaced_stays_for_readers_until_their_lease_is_over(world: World, lake: LakeOfTest) -> None:
    """A reader with an earlier plan opens the former object of an extended range, never shown by Glue."""
    world.apply(a_table())
    world.drop(some_rows(5, utc("2026-03-01T12:00")))
    world.stream("2026-03-01T12:10")
    world.catalog("2026-03-02T01:00")
    world.merge("2026-03-02T02:00", everything=True)
    (before,) = paths(lake)
    world.drop(some_rows(5, utc("2026-03-01T13:00")))
    world.stream("2026-03-02T03:00")
    world.merge("2026-03-02T10:00", everything=True)
    (after,) = paths(lake)
    assert before != after
    folder = next((world.root / "buckets" / "lake").glob("*.log.events"))
    written = utc("2026-03-02T02:00").timestamp()
    os.utime(folder / before, (written, written))
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2026-03-02T10:00Z'")
    limits = {"gc_age_hours": 1.0, "gc_reader_lease_hours": 4.0, "gc_max_fraction": 1.0}
    context = dataclasses.replace(world.context, settings=world.settings.model_copy(update=limits))
    assert run_gc(context, now=utc("2026-03-02T13:59")).errors == ()
    assert (folder / before).exists()
    assert run_gc(context, now=utc("2026-03-02T14:01")).errors == ()
    assert not (folder / before).exists()
    assert len(lake.ids()) == 10


def test_a_dropped_column_and_another_order_are_seen_by_a_session_that_is_open(world: World, lake: LakeOfTest) -> None:
    color, size = "{name: color, type: string, length: 20}", "{name: size, type: bigint}"
    world.apply(a_table(columns=[color, size]))
    rows = some_rows(3, utc("2026-03-01T12:00"), color="red", size=1)
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    assert [row[0] for row in lake.query("DESCRIBE lake.log.events")] == ["time", "id", "color", "size", "dt"]
    world.apply(a_table(columns=[size, color]))
    assert [row[0] for row in lake.query("DESCRIBE lake.log.events")] == ["time", "id", "size", "color", "dt"]
    assert lake.query("SELECT color, size, count(*) FROM lake.log.events GROUP BY ALL") == [("red", 1, 3)]
    world.apply(a_table(columns=[size]))
    assert [row[0] for row in lake.query("DESCRIBE lake.log.events")] == ["time", "id", "size", "dt"]
    more = some_rows(3, utc("2026-03-01T12:00"), color="red", size=1)
    world.drop(more)
    world.stream("2026-03-01T12:20")
    for _ in range(2):
        assert lake.ids() == [row["id"] for row in (*rows, *more)]
        assert lake.query("SELECT size, count(*) FROM lake.log.events GROUP BY ALL") == [(1, 6)]
        assert len(lake.query("SELECT * FROM lake.log.events LIMIT 1")[0]) == 4
        world.merge("2026-03-01T16:00", everything=True)
    with pytest.raises(StatementFailed, match="color"):
        lake.query("SELECT color FROM lake.log.events")


def test_a_renamed_column_is_read_in_objects_of_before_and_behind(world: World, lake: LakeOfTest) -> None:
    world.apply(a_table(columns=["{name: color, type: string, length: 20}"]))
    rows = some_rows(3, utc("2026-03-01T12:00"), color="red")
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    assert lake.query("SELECT color, count(*) FROM lake.log.events GROUP BY 1") == [("red", 3)]
    world.apply(a_table(columns=["{name: hue, type: string, length: 20, was: color}"]))
    assert lake.query("SELECT hue, count(*) FROM lake.log.events GROUP BY 1") == [("red", 3)]
    world.drop(some_rows(3, utc("2026-03-01T12:00"), color="red"))
    world.stream("2026-03-01T12:20")
    for _ in range(2):
        assert lake.query("SELECT hue, count(*) FROM lake.log.events GROUP BY 1") == [("red", 6)]
        world.merge("2026-03-01T16:00", everything=True)
    with pytest.raises(StatementFailed, match="color"):
        lake.query("SELECT color FROM lake.log.events")


def test_a_widened_column_is_read_in_objects_of_before_and_behind(world: World, lake: LakeOfTest) -> None:
    def columns(size: str, price: str, cost: str) -> list[str]:
        kinds = {"size": size, "price": price, "cost": cost}
        return [f"{{name: {name}, type: '{kind}'}}" for name, kind in kinds.items()]

    world.apply(a_table(columns=columns("integer", "real", "decimal(6,2)")))
    world.drop(some_rows(3, utc("2026-03-01T12:00"), size=7, price=0.5, cost="12.34"))
    world.stream("2026-03-01T12:10")
    query = "SELECT size, price, CAST(cost AS varchar), count(*) FROM lake.log.events GROUP BY ALL ORDER BY 1"
    assert lake.query(query) == [(7, 0.5, "12.34", 3)]
    world.apply(a_table(columns=columns("bigint", "double", "decimal(10,2)")), accept_failing_reads=True)
    world.catalog("2026-03-01T12:15")
    assert lake.query(query) == [(7, 0.5, "12.34", 3)]
    world.drop(some_rows(3, utc("2026-03-01T12:00"), size=3_000_000_000, price=0.1, cost="12345678.90"))
    world.stream("2026-03-01T12:20")
    for _ in range(2):
        assert lake.query(query) == [(7, 0.5, "12.34", 3), (3_000_000_000, 0.1, "12345678.90", 3)]
        assert lake.query("SELECT count(*) FROM lake.log.events WHERE size > 8") == [(3,)]
        world.merge("2026-03-01T16:00", everything=True)


def test_nested_columns_are_read_at_every_level(world: World, lake: LakeOfTest) -> None:
    """With rows for columns alone, DuckDB reads null for each field, and fails on maps."""
    user = 'type: "struct<id: bigint, name: string(20), at: timestamp, tags: list<string(5)>>"'
    columns = [f"{{name: account, {user}}}", '{name: attrs, type: "map<string(9), struct<v: double>>"}']
    world.apply(a_table(columns=columns))
    given = {
        "account": {"id": 7, "name": "ann", "at": "2026-03-01T12:00:00.123Z", "tags": ["a", None]},
        "attrs": {"k": {"v": 0.5}, "j": None},
    }
    rows = [row | given for row in some_rows(2, utc("2026-03-01T12:00"))] + some_rows(1, utc("2026-03-01T13:00"))
    world.drop(rows)
    world.stream("2026-03-01T13:10")
    query = "SELECT account.id, account.name, account.tags[1], len(account.tags), attrs['k'].v FROM lake.log.events"
    read = [(7, "ann", "a", 2, 0.5)] * 2 + [(None, None, None, None, None)]
    assert sorted(lake.query(query), key=repr, reverse=True) == sorted(read, key=repr, reverse=True)
    world.merge("2026-03-01T16:00", everything=True)
    assert sorted(lake.query(query), key=repr, reverse=True) == sorted(read, key=repr, reverse=True)
    assert lake.query("SELECT count(*) FROM lake.log.events WHERE account IS NULL") == [(1,)]

"""Every catalog shows a wider type before any object has it. Until then objects are written with the narrow type.

A reader by name reads each value as the catalog's type. With a wider object it would read another value, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.glue import SymlinkPublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.catalogs import LosingCatalog, calls_are_over, intents, recorded, with_catalog
from prism_assets_tests.stages.seen_columns import DAY, NIGHT, NOON, each_once, look, publish
from prism_assets_tests.stages.widened import (
    COLUMNS,
    ENDED,
    LATER,
    NARROW,
    NEXT,
    SECOND_NIGHT,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    ask,
    closed_day,
    definition,
    die,
    said,
    see,
    strict,
    widenings,
)
from prism_assets_tests.world import World

AWAY = "http://127.0.0.1:1"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def nothing_is_wide(world: World, rows: list[dict[str, Any]]) -> None:
    """Checks that readers see all rows, and that a reader trusting Glue's types fails nowhere."""
    world.iceberg(NOON)
    look(world, rows, *COLUMNS)
    assert strict(world, rows, NARROW) == []
    assert widenings(world, shown=False) == list(COLUMNS)


def of_events(lines: tuple[str, ...]) -> list[str]:
    return [line.partition(" of log.events")[0] for line in lines]


def test_whatever_writes_objects_goes_on_as_before_until_the_catalog_run(world: World) -> None:
    world.apply(a_file(NARROW))
    rows = arrive(world)
    publish(world, NOON)
    ask(world, now=NOON)
    assert said(world, NOON) == (
        "column size is integer, and to be bigint since 2026-03-01 12:00Z: not every catalog shows it yet, and "
        "until then new objects keep the old type"
    )
    rows += arrive(world)
    nothing_is_wide(world, rows)
    world.merge(NOON, everything=True)
    nothing_is_wide(world, rows)
    (report,) = world.catalog(NOON).tables
    assert of_events(report.columns_advanced) == [f"write column {name}" for name in COLUMNS]
    assert said(world, NOON).startswith("column size was integer until 2026-03-01 12:00Z: older objects are left")
    rows += arrive(world, wide=True)
    world.iceberg(NOON)
    see(world, rows, WIDE, DAY)
    assert not world.catalog(NOON).changed
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    see(world, rows, WIDE)
    assert run_doctor(world.context, deep=True).is_clean


def test_rebuilds_and_erasures_write_no_wide_object_before_either(world: World) -> None:
    rows = closed_day(world)
    ask(world)
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(WIDENED)).errors == ()
    where = f"size = 7 AND id = {rows[0]['id']}"
    assert run_erase(world.context, "log.events", where, rows=1).errors == ()
    assert strict(world, rows, NARROW) == []
    world.catalog(WIDENED)
    world.catalog(WIDENED)
    assert widenings(world) == list(COLUMNS)
    see_by_name = each_once(world.query("SELECT id, size, cost FROM log.events"))
    assert see_by_name == {row["id"]: (row["size"], row["cost"]) for row in rows[1:]}
    assert strict(world, rows, WIDE) == [DAY]


def test_a_catalog_that_is_away_keeps_objects_as_they_were_and_nothing_else(world: World) -> None:
    rows = closed_day(world)
    ask(world)
    away = with_catalog(world, GlueCatalog(AWAY, "us-east-1", fail_fast=True))
    for _ in range(2):
        assert run_catalog(away.context, now=utc(WIDENED)).errors
        rows += arrive(world, WIDENED)
        assert widenings(world, shown=False) == list(COLUMNS)
    assert "not every catalog shows it yet" in said(world, WIDENED)
    publish(world, WIDENED)
    rows += arrive(world, LATER, wide=True)
    publish(world, LATER)
    see(world, rows, WIDE, DAY)


def test_a_table_shown_by_symlinks_waits_for_both_databases(world: World) -> None:
    linked = "symlink: true\n"
    world.apply(a_file(NARROW) + linked)
    rows = arrive(world)
    world.catalog(NIGHT)
    world.apply(a_file(WIDE) + linked, now=WIDENED, accept_failing_reads=True)
    silent = GlueCatalog(AWAY, "us-east-1", fail_fast=True)
    away = SymlinkPublisher(silent, world.context.lake, world.context.stores)
    assert run_catalog(replace(world.context, symlink_publisher=away), now=utc(WIDENED)).errors
    assert dict(world.reader().table("log.events").columns)["size"] == "bigint"
    rows += arrive(world, WIDENED)
    assert widenings(world, shown=False) == list(COLUMNS)
    calls_are_over(world)
    world.catalog(WIDENED)
    assert widenings(world) == list(COLUMNS)
    rows += arrive(world, LATER, wide=True)
    world.catalog(LATER)
    assert each_once(world.query("SELECT id, size, price FROM log.events")) == {
        row["id"]: (row["size"], row["price"]) for row in rows
    }


def test_a_call_of_before_that_may_still_land_is_waited_for(world: World) -> None:
    closed_day(world)
    arrive(world, NEXT)
    losing = with_catalog(world, LosingCatalog(world.glue))
    assert run_catalog(losing.context, now=utc(NEXT)).errors
    ask(world)
    world.catalog(WIDENED)
    assert (intents(world), widenings(world, shown=False)) == (1, list(COLUMNS)), "it may take the type back"
    calls_are_over(world)
    world.catalog(WIDENED)
    assert (intents(world), widenings(world)) == (0, list(COLUMNS))


def test_a_catalog_that_says_yes_and_does_nothing_is_not_believed(world: World) -> None:
    rows = closed_day(world)
    ask(world)
    client = recorded(world)
    client.instead["update_table"] = lambda **_: {}
    (error,) = run_catalog(world.context, now=utc(WIDENED)).errors
    assert error == "log.events: the catalog does not show log.events as defined; repeat"
    rows += arrive(world, WIDENED)
    assert widenings(world, shown=False) == list(COLUMNS)
    client.instead.clear()
    publish(world, WIDENED)
    see(world, rows, WIDE, DAY)
    assert widenings(world) == list(COLUMNS)


@pytest.mark.parametrize(
    "point",
    [
        "catalog.after_begin",
        "catalog.after_define",
        "catalog.in_end",
        "catalog.after_end",
        "catalog.in_transition",
        "catalog.after_transition",
    ],
)
def test_a_run_that_dies_anywhere_leaves_no_wide_object_under_a_narrow_type(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    rows = closed_day(world)
    ask(world)
    die(monkeypatch, point, lambda: run_catalog(world.context, now=utc(WIDENED)))
    is_wide = not widenings(world, shown=False)
    assert is_wide == (point in ("catalog.after_end", "catalog.after_transition"))
    rows += arrive(world, WIDENED, wide=is_wide)
    found = each_once(world.query("SELECT id, size, price, cost FROM log.events"))
    assert found == {row["id"]: tuple(row[name] for name in COLUMNS) for row in rows if row["id"] in found}
    calls_are_over(world)
    for _ in range(2):
        world.catalog(WIDENED)
    assert widenings(world) == list(COLUMNS)
    rows += arrive(world, LATER, wide=True)
    publish(world, LATER)
    see(world, rows, WIDE, DAY)


def test_a_column_is_widened_again_before_it_is_shown_or_all_is_rewritten(world: World) -> None:
    small = NARROW | {"size": "smallint"}
    rows = closed_day(world, small)
    ask(world, NARROW)
    ask(world, WIDE)
    assert said(world, WIDENED).startswith("column size is smallint, and to be bigint since")
    rows += arrive(world, WIDENED)
    assert strict(world, rows, small) == []
    publish(world, WIDENED)
    rows += arrive(world, LATER, wide=True)
    publish(world, LATER)
    see(world, rows, WIDE, DAY)
    wider = WIDE | {"cost": "decimal(12,2)"}
    ask(world, wider, now=LATER)
    assert said(world, LATER, "cost").startswith("column cost is decimal(10,2), and to be decimal(12,2) since")
    assert said(world, LATER).startswith("column size was smallint until")
    rows += arrive(world, LATER, wide=True)
    assert strict(world, rows, WIDE) == [DAY], "what is narrow of before"
    publish(world, LATER)
    world.catalog(SECOND_NIGHT)
    world.merge(SECOND_NIGHT, everything=True)
    publish(world, SECOND_NIGHT)
    see(world, rows, wider)
    world.catalog(ENDED)
    assert widenings(world) == []


def test_no_day_is_shown_narrow_whose_table_was_empty_when_it_was_widened(world: World) -> None:
    world.apply(a_file(NARROW))
    rows: list[dict[str, Any]] = []

    class Busy(LosingCatalog):
        def differs(self, table: TableDefinition, location: str) -> bool:
            if not rows:
                world.apply(a_file(WIDE))
                rows.extend(arrive(world, wide=True))
            return self.inner.differs(table, location)

    assert run_catalog(with_catalog(world, Busy(world.glue, left=0)).context, now=utc(NOON)).errors == ()
    world.iceberg(NOON)
    see(world, rows, WIDE)
    assert (widenings(world), definition(world).column("size").widening) == ([], None)


def test_expressions_over_a_column_follow_its_type(world: World) -> None:
    more = "{name: more, type: bigint, value: 'size + 1'}"

    def file(types: dict[str, str]) -> str:
        return a_table(columns=[f"{{name: size, type: {types['size']}}}", more])

    world.apply(file(NARROW))
    rows = arrive(world)
    world.catalog(NOON)
    world.apply(file(WIDE), accept_failing_reads=True)
    rows += arrive(world)
    world.catalog(NOON)
    rows += arrive(world, wide=True)
    world.catalog(NOON)
    found = each_once(world.query("SELECT id, size, more FROM log.events"))
    assert found == {row["id"]: (row["size"], row["size"] and row["size"] + 1) for row in rows}

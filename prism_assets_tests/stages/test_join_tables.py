"""Join tables: how they are applied, and how lines of their streams become changes."""

from __future__ import annotations

from typing import Any

from prism_assets.domain.joins import hidden_column_id
from prism_assets.domain.tables import TableDefinition
from prism_assets_tests.stages.join_tables import a_join, back, front
from prism_assets_tests.world import World

COLOR = "  - {name: color, type: string, group: front}\n"


def definition(world: World, name: str) -> TableDefinition:
    (table,) = world.context.choose_tables([name])
    return table


def ids(world: World, name: str) -> dict[str, int]:
    return {column.name: column.column_id for column in definition(world, name).columns}


def changes(world: World) -> list[tuple[Any, ...]]:
    columns = "request_id, page, version, tries, _p_group, _p_deleted, _p_line, _p_object"
    return world.query(f"SELECT {columns} FROM log.request_changes ORDER BY _p_group DESC, _p_line")


def test_a_join_table_is_planned_as_two_tables(world: World) -> None:
    assert world.apply(a_join()).lines == (
        "take s3://lake/ as the lake of this database",
        "create table log.request with 5 columns",
        "create table log.request_changes with 9 columns",
        "create stream front of log.request_changes at s3://staging/front/",
        "create stream back of log.request_changes at s3://staging/back/",
    )
    assert world.apply(a_join()).lines == ()


def test_an_added_column_goes_to_both_tables_with_one_id(world: World) -> None:
    world.apply(a_join())
    assert world.apply(a_join(columns=COLOR)).lines == (
        "add column color string to log.request",
        "update log.request: join",
        "add column color string to log.request_changes",
        "change stream back of log.request_changes at s3://staging/back/",
    )
    records = ids(world, "log.request")
    assert records == {"request_id": 1, "time": 2, "page": 3, "version": 4, "tries": 5, "color": 6}
    hidden = {name: hidden_column_id(name) for name in ("_p_group", "_p_deleted", "_p_object", "_p_line")}
    assert ids(world, "log.request_changes") == {**records, **hidden}


def test_lines_of_all_streams_become_changes_that_anybody_reads(world: World) -> None:
    world.apply(a_join())
    world.drop([front("a", "2026-03-01T12:00"), front("b", "2026-03-01T12:01", "/b")], stream="front")
    world.drop([back("a", "2026-03-01T12:05", 4), back("b", "2026-03-01T12:06", 5, op="D")], stream="back")
    world.stream("2026-03-01T13:00")
    world.catalog("2026-03-01T13:00")
    found = changes(world)
    assert [row[:-1] for row in found] == [
        ("a", "/", None, None, "front", False, 1),
        ("b", "/b", None, None, "front", False, 2),
        ("a", None, 4, 4, "back", False, 1),
        ("b", None, 5, 5, "back", True, 2),
    ]
    assert sorted({row[-1] for row in found}) == [1, 2]
    assert found[0][-1] == found[1][-1]

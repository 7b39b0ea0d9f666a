"""Tables with nested columns: ids from the table's counter, changes by apply, and what readers of each catalog see."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.stages.erase.run import run_erase
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

USER = '{name: account, type: "struct<id: bigint, name: string(20), tags: list<string(5)>>"}'
ATTRS = '{name: attrs, type: "map<string(9), struct<v: double, at: timestamp>>"}'
LONG_FORM = """{name: account, type: struct, fields: [{name: id, type: bigint}, {name: name, type: string, length: 20},
    {name: tags, type: list, element: {type: string, length: 5}}]}"""
GIVEN = {
    "account": {"id": 7, "name": "ann", "tags": ["a", None]},
    "attrs": {"k": {"v": 0.5, "at": "2026-03-01T12:00:00.123Z"}, "j": None},
}


def parts(world: World) -> list[tuple[Any, ...]]:
    with world.context.database.begin() as connection:
        statement = "SELECT column_id, parent_id, name FROM prism_table_columns WHERE drop_time IS NULL ORDER BY 1"
        return [tuple(row) for row in connection.exec_driver_sql(statement).all()]


def two_objects(world: World) -> None:
    """Converts two objects of one day: rows with the nested values, and a row without."""
    world.drop([row | GIVEN for row in some_rows(2, utc("2026-03-01T12:00"))])
    world.stream("2026-03-01T12:10")
    world.drop(some_rows(1, utc("2026-03-01T13:00")))
    world.stream("2026-03-01T13:10")


def refusal(world: World, *files: str) -> str:
    with pytest.raises(DefinitionError) as raised:
        world.apply(*files)
    return str(raised.value)


def test_parts_get_ids_after_their_column_and_keep_them(world: World) -> None:
    world.apply(a_table(columns=[USER, ATTRS]))
    expected = [
        (1, None, "time"), (2, None, "id"), (3, None, "account"), (4, 3, "id"), (5, 3, "name"), (6, 3, "tags"),
        (7, 6, "element"), (8, None, "attrs"), (9, 8, "key"), (10, 8, "value"), (11, 10, "v"), (12, 10, "at"),
    ]  # fmt: skip
    assert parts(world) == expected
    assert world.apply().lines == ()
    assert world.apply(a_table(columns=[LONG_FORM, ATTRS])).lines == ()
    world.apply(a_table(columns=[USER, ATTRS, "{name: color, type: string}"]))
    assert parts(world) == [*expected, (13, None, "color")]


def test_a_table_that_was_never_read_takes_any_change_and_new_parts_get_new_ids(world: World) -> None:
    world.apply(a_table(columns=[USER]))
    plan = world.apply(a_table(columns=[USER.replace("name: string(20)", "mail: string(9)")]))
    assert plan.lines == (
        "change parts of column account of log.events: add account.mail string(9); remove account.name",
    )
    assert parts(world)[2:] == [(3, None, "account"), (4, 3, "id"), (6, 3, "tags"), (7, 6, "element"), (8, 3, "mail")]
    assert world.apply().lines == ()


def test_a_table_with_rows_takes_longer_texts_in_its_parts_and_no_other_kinds(world: World) -> None:
    world.apply(a_table(columns=[USER]))
    two_objects(world)
    plan = world.apply(a_table(columns=[USER.replace("string(20)", "string(40)")]))
    assert plan.lines == ("change parts of column account of log.events: account.name is read as string(40)",)
    assert parts(world)[4] == (5, 3, "name")
    assert "account.name would be shorter than values in objects may be" in refusal(world, a_table(columns=[USER]))
    wider = USER.replace("string(20)", "string(40)")
    for other in (
        wider.replace("id: bigint", "id: integer"),
        '{name: account, type: "list<string>"}',
        "{name: account, type: json}",
    ):
        assert "cannot become" in refusal(world, a_table(columns=[other]))


def test_readers_of_glue_and_iceberg_see_nested_columns_before_and_after_a_merge(world: World) -> None:
    world.apply(a_table(columns=[USER, ATTRS]) + "iceberg: {metrics: [time, account.id]}\n")
    two_objects(world)
    world.catalog("2026-03-01T13:20")
    query = "SELECT account.id, account.tags[1], attrs['k'].v, count(*) FROM log.events GROUP BY ALL ORDER BY ALL"
    expected = [(7, "a", 0.5, 2), (None, None, None, 1)]
    assert world.query(query) == expected
    world.merge("2026-03-02T02:00", everything=True)
    world.catalog("2026-03-02T02:10")
    assert world.query(query) == expected
    kinds = dict(world.reader().table("log.events").columns)
    assert kinds["account"] == "struct<id:bigint,name:varchar(20),tags:array<varchar(5)>>"
    assert kinds["attrs"] == "map<varchar(9),struct<v:double,at:timestamp>>"
    world.iceberg("2026-03-02T02:20")
    table = world.iceberg_table()
    ids = {table.schema().find_column_name(number): number for number in range(1, 13)}
    assert (ids["account.id"], ids["account.tags.element"], ids["attrs.value.at"]) == (4, 7, 12)
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["account"] for row in rows] == [GIVEN["account"], GIVEN["account"], None]
    assert table.scan(row_filter="account.id = 7").to_arrow().num_rows == 2
    assert {frozenset(task.file.lower_bounds) for task in table.scan().plan_files()} >= {frozenset({1, 4})}
    assert table.scan(row_filter="account.id > 7").plan_files() == []


def test_expressions_read_nested_columns_that_are_not_stored(world: World) -> None:
    given = '{name: raw, stored: false, type: "struct<a: bigint, at: timestamp, c: struct<d: list<list<bigint>>>>"}'
    made = ["{name: a, type: bigint, value: raw.a}", '{name: d, type: bigint, value: "raw.c.d[1][1]"}']
    world.apply(a_table(columns=[given, *made]))
    assert world.apply().lines == ()
    raw = {"a": 1, "at": "2026-03-01T12:00:00Z", "c": {"d": [[2]]}}
    world.drop([row | {"raw": raw} for row in some_rows(1, utc("2026-03-01T12:00"))])
    world.stream("2026-03-01T12:10")
    world.catalog("2026-03-01T12:20")
    assert world.query("SELECT a, d FROM log.events") == [(1, 2)]


def test_null_and_empty_lists_stay_apart_in_objects_though_pyiceberg_reads_both_as_empty(world: World) -> None:
    """A rewrite through PyIceberg would make every null list of structs an empty one for good."""
    world.apply(a_table(columns=['{name: items, type: "list<struct<sku: string(5)>>"}'], iceberg="true"))
    given: list[dict[str, Any]] = [{"items": None}, {"items": []}, {"items": [None, {"sku": "a"}]}]
    rows = [row | more for row, more in zip(some_rows(3, utc("2026-03-01T12:00")), given, strict=True)]
    world.drop(rows)
    world.stream("2026-03-01T12:10")
    stored = [None, [], [None, {"sku": "a"}]]
    query = "SELECT items FROM log.events ORDER BY id"
    for at in ("2026-03-01T12:20", "2026-03-02T02:00"):
        world.catalog(at)
        world.merge(at, everything=True)
        world.catalog(at)
        assert [row[0] for row in world.query(query)] == stored
        world.iceberg(at)
        read = world.iceberg_table().scan(selected_fields=("id", "items")).to_arrow().sort_by("id").to_pylist()
        assert [row["items"] for row in read] == [[], [], [None, {"sku": "a"}]]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("{name: v, type: struct, fields: [{name: userName, type: string}]}", r"fields\[0\]\.name: must begin with"),
        ("{name: v, type: struct, fields: [{name: a, type: bigint}, {name: a, type: double}]}", "a is given twice"),
        ("{name: v, type: struct, fields: [{name: a, source: $.b.c, type: bigint}]}", "a field reads one key"),
        ("{name: v, type: map, key: {type: bigint}, value: {type: double}}", "keys of a map are texts"),
        ("{name: v, type: map, key: {length: 3}}", "value: is missing"),
        ("{name: v, type: list, fields: [{name: a, type: bigint}]}", "fields: is no part of a list"),
        ("{name: v, type: bigint, element: {type: bigint}}", "element: belongs to the long form"),
        ("{name: v, type: list, element: {type: bigint, length: 3}}", "a bigint column has no length"),
        ("{name: v, type: list, element: {type: bigint, source: a}}", "is not a known field"),
        ('{name: v, type: "list<bigint>", required: true}', "a list column cannot be required"),
        ('{name: v, type: "list<bigint>", length: 9}', "a list column has no length"),
        ('{name: v, type: "list<string(0)>"}', "a length must lie between"),
    ],
)  # fmt: skip
def test_a_wrong_nested_column_is_refused_with_its_line_and_field(world: World, column: str, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        world.apply(a_table(columns=[column]))


def test_nested_columns_are_no_partition_columns_and_have_no_order(world: World) -> None:
    columns = [USER, ATTRS]
    assert "account has no order: it is no leaf of account" in refusal(
        world, a_table(columns=columns, merge="{sort_by: [time, account]}")
    )
    assert "attrs.value has no order" in refusal(
        world, a_table(columns=columns, merge="{sort_by: [time, attrs.value]}")
    )
    assert "must be a timestamp or a date" in refusal(world, a_table(columns=columns) + "partition: {column: attrs}\n")
    world.apply(a_table(columns=columns, merge="{sort_by: [time, account.id]}"))


def test_more_than_a_thousand_parts_are_refused(world: World) -> None:
    fields = ", ".join(f"f{number}: bigint" for number in range(1_001))
    assert "at most 1,000: make some json" in refusal(
        world, a_table(columns=[f'{{name: v, type: "struct<{fields}>"}}'])
    )


def test_apply_says_once_what_redshift_spectrum_cannot_do_with_a_nested_column(world: World) -> None:
    plan = world.apply(a_table(columns=[USER, '{name: v, type: "list<list<double>>"}']))
    assert plan.notices == (
        "log.events: Redshift Spectrum returns no whole struct, list or map: `SELECT *` fails there, and queries name "
        "the parts of account, v, and restricts lists of lists and of maps (v)",
    )
    assert world.apply().notices == ()


@pytest.mark.parametrize(
    "kind",
    [
        "struct<id: string(20), name: string(20), tags: list<string(5)>>",
        "struct<name: string(20), tags: list<string(5)>>",
        "struct<id: bigint, name: string(20), tags: list<bigint>>",
    ],
)
def test_a_part_of_a_column_that_an_erasure_names_is_not_changed_in_a_table_never_read(world: World, kind: str) -> None:
    """The erasure keeps its rule for late rows, and finds the value by the id of the part."""
    world.apply(a_table(columns=[USER]))
    run_erase(world.context, "log.events", "account.id = 42", rows=0, now=utc("2026-03-01T12:00"))
    told = refusal(world, a_table(columns=[f'{{name: account, type: "{kind}"}}']))
    assert "account gets another type or loses a part, and erasure 1 names it: erased rows would return" in told
    wider = USER.replace("bigint,", "bigint, plan: string(5),")
    assert world.apply(a_table(columns=[wider])).lines

"""Nested columns: what becomes of a line, in rows, counts and quarantine, and how objects store it."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.columns.type_names import parse_type
from prism_assets.domain.columns.types import BigIntType, ColumnType, Field, ListType, MapType, StructType
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import MOST_KEYS
from prism_assets.domain.tables.options import FREEZE, SET_ASIDE, Contract
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.json.undefined import sampled_lines
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.type_rules import rules_of
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.values import scan_once
from prism_assets_tests.kernels.builders import TIME, Lake, Outcome, a_column, a_table, an_object

USER = "struct<id: integer, name: string(5), tags: list<string(3)>>"


def a_nested(name: str, text: str, column_id: int, **more: Any) -> Column:
    """A column of a type in Spark's notation. Its parts have the ids after `10 * column_id`."""
    counter = iter(range(10 * column_id + 1, 10 * column_id + 100))
    return Column(
        name=name, source=name, type=with_ids(parse_type(text), counter.__next__), column_id=column_id, **more
    )


def converted(lake: Lake, table: TableDefinition, *values: str, key: str = "user") -> Outcome:
    """Converts lines with these JSON values of one key. Lines in order of their number `n`."""
    lines = [f'{{"time":"2018-10-24T09:00:23+09:00","n":{n},"{key}":{value}}}' for n, value in enumerate(values)]
    return lake.convert(an_object(*lines), table)


def a_user_table(text: str = USER, **more: Any) -> TableDefinition:
    return a_table(a_column("n", "bigint", 2), a_nested("user", text, 3), sort_by=("time", "n"), **more)


@pytest.mark.parametrize(
    ("value", "stored", "counted"),
    [
        (
            '{"id": 3000000000, "name": "abcdef"}',
            {"id": None, "name": "abcde", "tags": None},
            {("user.id", "out_of_range"): 1, ("user.name", "cut"): 1},
        ),
        ('"x"', None, {("user", "unfit"): 1}),
        ("NaN", None, {("user", "not_finite"): 1}),
        ("{}", {"id": None, "name": None, "tags": None}, {}),
        ("null", None, {}),
        ('{"tags": "a"}', {"id": None, "name": None, "tags": None}, {("user.tags", "unfit"): 1}),
        (
            '{"tags": ["abcd", null, 7]}',
            {"id": None, "name": None, "tags": ["abc", None, "7"]},
            {("user.tags[]", "cut"): 1},
        ),
        (
            '{"tags": ["abcd", "abcde", NaN]}',
            {"id": None, "name": None, "tags": ["abc", "abc", None]},
            {("user.tags[]", "cut"): 1, ("user.tags[]", "not_finite"): 1},
        ),
        ('{"id": "9007199254740993.0", "other": {"id": 1, "id": 2}}', {"id": None, "name": None, "tags": None},
         {("user.id", "out_of_range"): 1}),
        ('{ "id" : 7.9 , "name" : {"a": 1.10} }', {"id": 7, "name": '{"a":', "tags": None}, {("user.name", "cut"): 1}),
    ],
)  # fmt: skip
def test_a_part_that_does_not_fit_is_null_at_its_own_level(
    lake: Lake, value: str, stored: dict[str, Any] | None, counted: dict[tuple[str, str], int]
) -> None:
    outcome = converted(lake, a_user_table(), value)
    assert [row["user"] for row in outcome.rows] == [stored]
    assert outcome.value_errors == counted


@pytest.mark.parametrize(
    ("text", "value", "path"),
    [
        (USER, '{"id": 1, "id": 2}', "user.id"),
        (USER, '{"id": 1, "i\\u0064": 2}', "user.id"),
        ("list<struct<id: bigint>>", '[{"id": 1}, {"id": 1, "id": 2}]', "user[].id"),
        ("map<string, bigint>", '{"k": 1, "k": 2}', "user{}"),
        ("struct<a: map<string, bigint>>", '{"a": {"k": 1, "k": 2}}', "user.a{}"),
    ],
)
def test_a_key_that_is_read_twice_sets_the_line_aside(lake: Lake, text: str, value: str, path: str) -> None:
    outcome = converted(lake, a_user_table(text), value, "null")
    assert outcome.reasons == {"duplicate_key": 1}
    assert [line["column"] for line in outcome.quarantined] == [path]
    assert len(outcome.rows) == 1


def test_maps_keep_their_entries_in_order_and_a_key_that_is_too_long_makes_the_map_null(lake: Lake) -> None:
    outcome = converted(
        lake,
        a_user_table("map<string(2), bigint>"),
        '{"k": 1, "j": "x", "i": null}',
        '{"long": 1, "k": "x"}',
        "{}",
        "[]",
    )
    rows = [row["user"] for row in outcome.rows]
    assert rows == [[("k", 1), ("j", None), ("i", None)], None, [], None]
    assert outcome.value_errors == {("user{}", "unfit"): 1, ("user{}", "too_long"): 1, ("user", "unfit"): 1}


def test_counts_are_rows_and_misfits_set_rows_aside_where_the_contract_says_so(lake: Lake) -> None:
    values = ['{"id": "x", "tags": [1, "long", "longer"]}', '{"id": "y"}', '{"id": 1}']
    counted = converted(lake, a_user_table(), *values)
    assert counted.value_errors == {("user.id", "unfit"): 2, ("user.tags[]", "cut"): 1}
    strict = converted(lake, a_user_table(contract=Contract(misfits=SET_ASIDE)), *values)
    assert strict.reasons == {"misfit": 2}
    assert {line["column"] for line in strict.quarantined} == {"user.id"}


def test_a_key_that_no_field_reads_sets_the_line_aside_only_where_new_fields_freeze(lake: Lake) -> None:
    values = ['{"id": 1, "zz": 1}', '{"id": 1, "zz": null}', '{"tags": [], "id": 2}']
    assert len(converted(lake, a_user_table(), *values).rows) == 3
    frozen = converted(lake, a_user_table(contract=Contract(new_fields=FREEZE)), *values)
    assert frozen.reasons == {"undefined_field": 1}
    assert [line["column"] for line in frozen.quarantined] == ["user.zz"]


def undefined(outcome: Outcome) -> list[tuple[str, str, int, int]]:
    return [(item.path, item.kind, item.count, item.line) for item in outcome.result.undefined]


def test_keys_that_no_field_reads_are_counted_once_a_line_by_path_and_kind(lake: Lake) -> None:
    table = a_user_table("struct<id: bigint, items: list<struct<sku: bigint>>, plan: struct<code: bigint>>")
    values = [
        '{"id": 1, "zz": 1, "items": [{"zz": 1}, {"zz": 2, "a": "x"}, {"zz": "y"}], "plan": {"b": [1]}}',
        '{"zz": null, "items": [], "plan": {"b": {"c": 1}}}',
        '{"zz": 2, "zz": 3, "items": [{"zz": true}]}',
        '{"id": 1, "id": 2, "zz": 1}',
        '["zz"]',
    ]
    assert undefined(converted(lake, table, *values)) == [
        ("user.zz", "number", 2, 1),
        ("user.items[].a", "text", 1, 1),
        ("user.items[].zz", "boolean", 1, 3),
        ("user.items[].zz", "number", 1, 1),
        ("user.items[].zz", "text", 1, 1),
        ("user.plan.b", "nested", 2, 1),
    ]


def test_nothing_inside_json_or_a_map_is_a_path(lake: Lake) -> None:
    table = a_user_table("struct<j: json, m: map<string, struct<a: bigint>>, l: list<json>>")
    values = ['{"j": {"zz": 1}, "m": {"k": {"zz": 1}}, "l": [{"zz": 1}]}']
    assert undefined(converted(lake, table, *values)) == []


def test_a_key_of_a_line_is_not_taken_for_a_path(lake: Lake) -> None:
    outcome = lake.convert(an_object({"user": {"zz": 1}, "user.zz": "x"}), a_user_table())
    found = [(item.within, item.key, item.kind) for item in outcome.result.undefined]
    assert found == [("", "user.zz", "text"), ("user", "zz", "number")]


def test_paths_of_an_object_are_bounded_also_within_one_line(lake: Lake) -> None:
    keys = {f"k{number}": 1 for number in range(3 * MOST_KEYS)}
    outcome = lake.convert(an_object({"user": {**keys, "x" * 5_000: 1}}, {"user": keys}), a_user_table())
    assert len(outcome.result.undefined) == MOST_KEYS


def test_only_some_lines_of_a_large_object_are_looked_at(lake: Lake) -> None:
    lines = [{"user": {"id": number, "zz": 1}} for number in range(1, 2_049)]
    found = lake.convert(an_object(*lines), a_user_table())
    assert undefined(found) == [("user.zz", "number", int(sampled_lines(np.arange(1, 2_049)).sum()), 1)]


def test_a_field_reads_the_key_of_its_source_and_a_column_a_path(lake: Lake) -> None:
    read = StructType((Field(name="account_id", type=BigIntType(), source="accountId", field_id=31),))
    column = Column(name="user", source="a", sources=("$.a.user",), type=read, column_id=3)
    outcome = lake.convert(an_object({"a": {"user": {"accountId": 7}}}, {"a": 1}), a_table(column))
    assert [row["user"] for row in outcome.rows] == [{"account_id": 7}, None]


def test_objects_have_ids_and_statistics_at_each_level(lake: Lake) -> None:
    text = "struct<at: timestamp, m: map<string, timestamp>, l: list<struct<a: bigint>>>"
    table = a_table(a_nested("user", text, 3), a_column("n", "bigint", 4), sort_by=("time", "user.at"))
    assert (table.metric_columns, table.stored_order) == ((1, 31), ("time", "user.at"))
    rows = [
        {"user": {"at": at, "m": {"k": 1540339223}, "l": [{"a": at}]}, "n": at} for at in (1540339225, None, 1540339223)
    ]
    outcome = lake.convert(an_object(*rows, {"user": None, "n": 9}), table, metric_columns=table.metric_columns)
    assert [row["n"] for row in outcome.rows] == [1540339223, 1540339225, None, 9]
    (body,) = [content for key, content in outcome.stored.items() if key.endswith(".parquet")]
    schema = pq.read_schema(pa.BufferReader(body))
    ids = {path: number for field in schema for path, number in _ids(field)}
    assert ids == {
        "time": 1, "user": 3, "user.at": 31, "user.m": 32, "user.m.key": 33, "user.m.value": 34, "user.l": 35,
        "user.l.element": 36, "user.l.element.a": 37, "n": 4,
    }  # fmt: skip
    (small,) = outcome.result.objects
    assert [(item.column_id, item.nulls, item.lower, item.upper) for item in small.metrics] == [
        (1, 0, 1540339223000, 1540339223000), (31, 2, 1540339223000, 1540339225000),
    ]  # fmt: skip
    assert small.fingerprint == fingerprint_of(pq.read_table(pa.BufferReader(body)))


def _ids(field: pa.Field) -> list[tuple[str, int]]:
    kind = field.type
    parts = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else []
    parts = parts or ([kind.field(place) for place in range(kind.num_fields)] if pa.types.is_nested(kind) else [])
    below = [(f"{field.name}.{path}", number) for part in parts for path, number in _ids(part)]
    return [(field.name, int(field.metadata[b"PARQUET:field_id"])), *below]


def test_an_object_too_large_for_memory_has_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    table = a_user_table()
    chance = random.Random(5)
    rows = [
        {"n": chance.randrange(50), "user": chance.choice([None, {}, {"id": n, "tags": ["a"] * chance.randrange(4)}])}
        for n in range(400)
    ]
    content = an_object(*rows)
    whole = lake.convert(content, table)
    parts = lake.convert(content, table, limits=Limits(rows=1, piece=200, portion=500))
    assert repr(parts.rows) == repr(whole.rows)
    assert parts.result.objects[0].fingerprint == whole.result.objects[0].fingerprint


def test_expressions_read_and_make_nested_columns(lake: Lake) -> None:
    made = a_nested("made", "struct<twice: bigint, at: timestamp, all: map<string, bigint>>", 4)
    made = replace(made, value="{'twice': u.id * 2, 'at': time, 'all': MAP {'k': u.id}}")
    table = a_table(a_nested("u", USER, 3), made, computed=("made",), keep="u.id IS NOT NULL")
    outcome = lake.convert(an_object({"u": {"id": 21}}, {"u": None}), table)
    (row,) = outcome.rows
    assert (row["made"]["twice"], row["made"]["all"]) == (42, [("k", 21)])
    assert row["made"]["at"] == datetime(2018, 10, 24, 0, 0, 23, tzinfo=timezone.utc)
    assert outcome.result.lines_filtered == 1


def test_expressions_tell_parts_apart_before_these_have_ids(lake: Lake) -> None:
    """A table file that is tried has no ids yet. An instant has another type in expressions than in objects."""
    kind = parse_type("struct<a: bigint, list: list<struct<b: string, at: timestamp>>, at: timestamp, name: string>")
    given = Column(name="u", source="u", type=kind)
    names = {"a": "u.a", "b": "u.list[1].b", "name": "u.name"}
    made = [a_column(name, "string", 4 + place, value=value) for place, (name, value) in enumerate(names.items())]
    table = a_table(*made, unstored=(given,), computed=tuple(names))
    user = {"a": 1, "list": [{"b": "x", "at": TIME}], "at": TIME, "name": "ann"}
    outcome = lake.both(an_object({"u": user}), table)
    assert [{name: row[name] for name in names} for row in outcome.rows] == [{"a": "1", "b": "x", "name": "ann"}]


def test_a_sensitive_field_hides_its_whole_column_in_quarantine(lake: Lake) -> None:
    column = a_nested("user", "struct<id: bigint, mail: string>", 3)
    first, second = column.type.parts
    hidden = StructType((first, replace(second, sensitive=True)))
    table = a_table(replace(column, type=hidden), a_column("n", "bigint", 4, required=True))
    outcome = lake.convert(an_object({"user": {"id": 1, "mail": "a@b"}}), table)
    (line,) = outcome.quarantined
    assert json.loads(line["text"])["user"] is None
    assert Layout.of(table).program.sensitive == {"user"}


DEEP = "struct<a: bigint, m: map<string(2), list<boolean>>, s: list<struct<x: string(3), y: smallint>>>"
KEYS = ("a", "m", "s", "x", "y", "kk", "long")
SCALARS = st.sampled_from(
    ["null", "true", "false", "1", "70000", "9223372036854775808", '"t"', '"abcd"', '"7"', "NaN", '"é"', "-0.5"]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{' , '.join(parts)}]"),
        st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=4).map(
            lambda pairs: "{ " + ",".join(f'"{key}" :{value}' for key, value in pairs) + " }"
        ),
    ),
    max_leaves=8,
)


class _TwiceError(Exception):
    """A key that a part reads occurs twice."""


class _Pairs(list[tuple[str, Any]]):
    """The members of an object."""


class _Bare(str):
    """A number or a constant as written."""

    __slots__ = ()


def modelled(kind: ColumnType, value: Any, path: str, found: set[tuple[str, str]], length: int | None = None) -> Any:
    """Returns the stored value by the rules for nested types alone. Notes misfits, and raises for a doubled key."""
    match kind:
        case _ if value is None:
            return None
        case StructType(fields) if isinstance(value, _Pairs):
            for part in fields:
                if sum(key == part.name for key, _ in value) > 1:
                    raise _TwiceError
            members = dict(value)
            return {
                part.name: modelled(part.type, members.get(part.name), f"{path}.{part.name}", found, part.length)
                for part in fields
            }
        case MapType(key, part) if isinstance(value, _Pairs):
            if len(dict(value)) < len(value):
                raise _TwiceError
            if any(len(name) > (key.length or 0) for name, _ in value):
                found.add((f"{path}{{}}", "too_long"))
                return None
            return [(name, modelled(part.type, item, f"{path}{{}}", found, part.length)) for name, item in value]
        case ListType(part) if isinstance(value, list) and not isinstance(value, _Pairs):
            return [modelled(part.type, item, f"{path}[]", found, part.length) for item in value]
        case StructType() | MapType() | ListType():
            found.add((path, "not_finite" if value == _Bare("NaN") else "unfit"))
            return None
    return _modelled_leaf(kind, value, path, found, length)


def _modelled_leaf(kind: ColumnType, value: Any, path: str, found: set[tuple[str, str]], length: int | None) -> Any:
    """The rules of leaves are tested elsewhere: a leaf alone, as a column, is the model of the same leaf inside."""
    column = Column(name="v", source="v", type=kind, length=length)
    builder = rules_of(column, ZoneInfo("UTC")).builder()
    builder.add(*scan_once(text := written(value), 0)[:1], text)
    typed = builder.typed()
    found |= {(path, reason) for reason in typed.misfits}
    return typed.array[0].as_py()


def written(value: Any) -> str:
    if isinstance(value, _Pairs):
        return "{" + ",".join(f'"{key}":{written(item)}' for key, item in value) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return str(value) if isinstance(value, _Bare) else json.dumps(value, ensure_ascii=False)


@settings(deadline=None, max_examples=60)
@given(st.lists(JSON, min_size=1, max_size=6))
def test_random_values_become_what_the_rules_say(values: list[str]) -> None:
    table = a_user_table(DEEP)
    kind = table.column("user").type
    expected, aside = [], 0
    counts = Counter[tuple[str, str]]()
    for text in values:
        found: set[tuple[str, str]] = set()
        read = json.loads(text, object_pairs_hook=_Pairs, parse_int=_Bare, parse_float=_Bare, parse_constant=_Bare)
        try:
            expected.append(modelled(kind, read, "user", found))
        except _TwiceError:
            aside += 1
            continue
        counts.update(found)
    with tempfile.TemporaryDirectory() as folder:
        outcome = converted(Lake(Path(folder)), table, *values)
    assert [row["user"] for row in outcome.rows] == expected
    assert outcome.value_errors == counts
    assert outcome.reasons == ({"duplicate_key": aside} if aside else {})

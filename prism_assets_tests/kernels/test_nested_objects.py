"""Nested columns in objects: fingerprints, alignment by id at every level, merges, and copies of renamed columns."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from prism_assets.domain.columns.transitions import ColumnRename, RenameState
from prism_assets.domain.columns.types import MICROSECONDS, MILLISECONDS
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.work.write import WriteTask
from prism_assets.kernels.columns import to_array
from prism_assets.kernels.expressions.predicate import make_erasure_rule
from prism_assets.kernels.field_ids import COPY_IDS, field_id
from prism_assets.kernels.field_ids import field_with_id as with_id
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.nested_arrays import conformed
from prism_assets.kernels.parquet import merged_rows
from prism_assets.kernels.parquet.format import Encoder, dictionary_columns, format_of, in_format, schema_of
from prism_assets.kernels.parquet.merge_inputs import aligned
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.write import write_object
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object
from prism_assets_tests.kernels.test_nested import a_nested

_MASK = (1 << 64) - 1


USER = with_id(
    "user",
    pa.struct(
        [
            with_id("id", pa.int64(), 5),
            with_id("name", pa.string(), 6),
            with_id("plan", pa.struct([with_id("code", pa.string(), 8)]), 7),
        ]
    ),
    2,
)
TAGS = with_id("tags", pa.list_(with_id("element", pa.string(), 9)), 3)
ITEMS = with_id(
    "items",
    pa.list_(with_id("element", pa.struct([with_id("sku", pa.string(), 11), with_id("qty", pa.int32(), 12)]), 10)),
    4,
)
ATTRS = with_id("attrs", pa.map_(with_id("key", pa.string(), 14, nullable=False), with_id("value", pa.int64(), 15)), 13)


def of_one_row(field: pa.Field, value: Any) -> int:
    return fingerprint_of(pa.Table.from_pylist([{field.name: value}], pa.schema([field])))


@pytest.mark.parametrize(
    ("field", "value", "fingerprint"),
    [
        (USER, None, -2152535657050944081),
        (USER, {"id": None, "name": None, "plan": None}, -8018259679572666645),
        (TAGS, [], 6084141021458535187),
        (TAGS, ["a", None], 6516963635070743371),
        (TAGS, [None, "a"], -1313007798372499562),
        (ATTRS, [("k", 1), ("j", 2)], -2442730009579184023),
        (ATTRS, [("j", 2), ("k", 1)], -2442730009579184023),
    ],
)
def test_a_nested_value_has_this_fingerprint_for_ever(field: pa.Field, value: Any, fingerprint: int) -> None:
    assert of_one_row(field, value) == fingerprint


def mixed(word: int) -> int:
    """The finalizer of splitmix64."""
    word = (word + 0x9E3779B97F4A7C15) & _MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)


def added(field: pa.Field, value: Any) -> int:
    """What a value adds to its row or to the value around it, by the formulas, one value at a time."""
    kind, number = field.type, field_id(field)
    if value is None:
        return 0
    if pa.types.is_struct(kind):
        return mixed(1 ^ mixed(number)) + sum(added(part, value[part.name]) for part in kind)
    if pa.types.is_map(kind):
        pairs = (mixed((added(kind.key_field, key) + added(kind.item_field, item)) & _MASK) for key, item in value)
        return mixed(len(value) ^ mixed(number)) + sum(pairs)
    if pa.types.is_list(kind):
        places = ((place, item) for place, item in enumerate(value, 1) if item is not None)
        elements = sum(mixed((added(kind.value_field, item) + place) & _MASK) for place, item in places)
        return mixed(len(value) ^ mixed(number)) + elements
    if pa.types.is_string(kind):
        hashed = mixed(len(value))
        for start in range(0, len(value), 8):
            hashed = (hashed ^ int.from_bytes(value[start : start + 8].encode(), "little")) * 0xBF58476D1CE4E5B9 & _MASK
            hashed ^= hashed >> 31
        return mixed(hashed ^ mixed(number))
    return mixed((value & _MASK) ^ mixed(number))


def a_value(draw: random.Random, kind: pa.DataType) -> Any:
    if draw.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {part.name: a_value(draw, part.type) for part in kind}
    if pa.types.is_map(kind):
        return [(key, a_value(draw, kind.item_type)) for key in draw.sample("abcdef", draw.randrange(4))]
    if pa.types.is_list(kind):
        return [a_value(draw, kind.value_type) for _ in range(draw.randrange(4))]
    return draw.choice(["", "x", "yy", "zzzzzzzzzz"]) if pa.types.is_string(kind) else draw.randrange(-5, 5)


@pytest.mark.parametrize("field", [USER, TAGS, ITEMS, ATTRS], ids=lambda field: field.name)
def test_whole_arrays_and_slices_have_the_fingerprints_of_single_values(field: pa.Field) -> None:
    draw = random.Random(3)
    values = [a_value(draw, field.type) for _ in range(400)]
    whole = pa.array(values, field.type)
    for array, part in ((whole, values), (whole.slice(133), values[133:]), (whole.slice(7, 50), values[7:57])):
        rows = pa.Table.from_arrays([array], schema=pa.schema([field]))
        expected = sum(mixed(added(field, value) & _MASK) for value in part)
        assert fingerprint_of(rows) == combine([expected & _MASK])


def test_a_field_added_later_changes_no_fingerprint() -> None:
    wider = with_id("user", pa.struct([*USER.type, with_id("country", pa.string(), 20)]), 2)
    value = {"id": 1, "name": "ann", "plan": {"code": "p"}}
    assert of_one_row(USER, value) == of_one_row(wider, {**value, "country": None})


def test_parts_are_aligned_by_id_whatever_their_names() -> None:
    """Arrow casts by name: a renamed field is null, and a name used again gives the values of another field."""
    element = pa.struct(
        [
            with_id("qty", pa.int64(), 12),
            with_id("label", pa.string(), 11),
            with_id("x", pa.int64(), 30),
        ]
    )
    items = with_id("items", pa.list_(with_id("element", element, 10)), 4)
    user = with_id("user", pa.struct([with_id("uid", pa.int64(), 5), with_id("name", pa.string(), 21)]), 2)
    older = pa.Table.from_pylist(
        [
            {"user": {"id": 7, "name": "ann", "plan": None}, "items": [{"sku": "a", "qty": 1}, None]},
            {"user": None, "items": None},
            {"user": {"id": None, "name": "bob", "plan": None}, "items": []},
        ],
        pa.schema([USER, ITEMS]),
    )
    schema = pa.schema([user, items])
    for rows in (older, older.slice(1), pa.concat_tables([older.slice(0, 1), older.slice(1)])):
        read = aligned(rows, schema)
        assert read.schema.equals(schema, check_metadata=True)
        expected = [
            {"user": {"uid": 7, "name": None}, "items": [{"qty": 1, "label": "a", "x": None}, None]},
            {"user": None, "items": None},
            {"user": {"uid": None, "name": None}, "items": []},
        ]
        assert read.to_pylist() == expected[3 - rows.num_rows :]
    by_name = older.cast(schema, safe=False)
    assert by_name.column("user")[0].as_py() == {"uid": None, "name": "ann"}
    assert fingerprint_of(by_name) != fingerprint_of(aligned(older, schema))


def test_random_values_stay_when_their_type_changes_and_changes_back() -> None:
    draw = random.Random(8)
    reordered = with_id("user", pa.struct([USER.type.field(2), USER.type.field(0), USER.type.field(1)]), 2)
    values = pa.array([a_value(draw, USER.type) for _ in range(200)], USER.type)
    for array in (values, values.slice(31), values.slice(5, 90)):
        back = conformed(conformed(array, reordered.type), USER.type)
        assert back.to_pylist() == array.to_pylist()
        back.validate(full=True)


def test_timestamps_at_every_level_have_the_unit_of_the_format() -> None:
    table = a_table(a_nested("v", "struct<at: timestamp, all: list<map<string, timestamp>>>", 2))
    schema = schema_of(Layout.of(table))
    inside = pa.schema([schema.field("v")])
    for file_format, unit in ((MILLISECONDS, "ms"), (MICROSECONDS, "us")):
        stored = in_format(inside, file_format)
        assert format_of(stored) == file_format
        kind = stored.field("v").type
        assert (kind.field("at").type.unit, kind.field("all").type.value_type.item_type.unit) == (unit, unit)


def test_dictionaries_are_chosen_by_leaf() -> None:
    values = [{"id": n, "name": "ann", "plan": {"code": f"{n}"}} for n in range(600)]
    rows = pa.table(
        [
            pa.array(values, USER.type),
            pa.array([["a", "b"]] * 600, TAGS.type),
            pa.array([[("k", 1)]] * 600, ATTRS.type),
        ],
        schema=pa.schema([USER, TAGS, ATTRS]),
    )
    chosen = dictionary_columns(rows, 1 << 10)
    assert chosen == ["user.name", "tags.list.element", "attrs.key_value.key", "attrs.key_value.value"]
    encoder = Encoder(rows.schema, chosen, MICROSECONDS)
    encoder.write(rows)
    encoder.finish()
    group = encoder.metadata.row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    assert [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page] == chosen


TEXT = "struct<id: bigint, name: string, at: timestamp, tags: list<string>, attrs: map<string, struct<v: double>>>"
TABLE = a_table(a_nested("user", TEXT, 2), a_column("n", "bigint", 3), sort_by=("time", "user.name"))
FLAT = a_table(a_column("n", "bigint", 3))


def lines(seed: int, count: int) -> bytes:
    draw = random.Random(seed)
    names = ["ann", "bob", "é" * 40, "", None]

    def a_user() -> dict[str, Any] | None:
        user = {
            "id": draw.randrange(1 << 40),
            "name": draw.choice(names),
            "at": draw.randrange(1540339223, 1540349223),
            "tags": draw.choice([None, [], ["a"], ["b", None, "a"]]),
            "attrs": draw.choice([{}, {"k": {"v": draw.randrange(9)}}, {"j": None, "k": {}}]),
        }
        return draw.choice([user, user, user, None, {}])

    return an_object(*({"n": n, "user": a_user()} for n in range(count)))


@pytest.mark.parametrize("budget", [1, 1 << 30], ids=["in windows", "joined once"])
def test_a_merge_has_the_rows_of_its_inputs_sorted_by_a_leaf(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(merged_rows, "BUDGET", budget)
    monkeypatch.setattr("prism_assets.kernels.write.MERGED_ROW_GROUP", 150)
    inputs = [
        item
        for number, table in enumerate((TABLE, FLAT, replace(TABLE, file_format=MICROSECONDS)))
        for item in lake.convert(lines(number, 300), table, staging_object_id=number + 1).result.objects
    ]
    written = lake.merge(inputs, replace(TABLE, file_format=MICROSECONDS), metric_columns=TABLE.metric_columns).written
    assert written is not None
    assert written.fingerprint == combine(item.fingerprint for item in inputs)
    rows = lake.table_at(written.key)
    assert rows.num_rows == 900
    names = pc.struct_field(rows.column("user"), "name").to_pylist()
    known = [name for name in names if name is not None]
    assert known == sorted(known)
    assert names[len(known) :] == [None] * (900 - len(known))
    assert [item.column_id for item in written.metrics] == [1, 22]
    expected = [row for item in inputs for row in lake.table_at(item.key).to_pylist()]
    assert sorted(map(repr, rows.to_pylist())) == sorted(
        repr({"time": 0, "user": None, **row} | row) for row in expected
    )


def test_an_erasure_by_a_leaf_takes_its_rows_alone(lake: Lake) -> None:
    content = an_object({"user": {"id": 1}, "n": 1}, {"user": {"id": 42}, "n": 2}, {"user": None, "n": 3})
    (file,) = lake.convert(content, TABLE).result.objects
    rule = make_erasure_rule(TABLE, '"user".id = 42')
    task = WriteTask(
        number=1, inputs=(file,), erasures=(rule,), table_id=1, definition_version=1, output_key="p/merged/x.parquet"
    )
    result = write_object(task, TABLE, lake.stores, lake.lake)
    assert (result.failure, result.matching) == (None, 1)
    assert lake.table_at("p/merged/x.parquet").column("n").to_pylist() == [1, 3]


def test_a_renamed_nested_column_has_a_copy_with_ids_of_its_own(lake: Lake) -> None:
    (column,) = (column for column in TABLE.columns if column.name == "user")
    rename = ColumnRename(former="user", state=RenameState.REWRITING, version=2, since=2)
    table = replace(TABLE, columns=(TABLE.columns[0], replace(column, name="person", rename=rename), TABLE.columns[2]))
    table = replace(table, merge=replace(table.merge, sort_by=("time", "person.name")))
    (before,) = lake.convert(lines(1, 50), TABLE).result.objects
    (small,) = lake.convert(lines(1, 50), table, staging_object_id=8).result.objects
    rows = lake.table_at(small.key)
    assert rows.column_names == ["time", "person", "n", "user"]
    copy = rows.schema.field("user")
    assert field_id(copy) == COPY_IDS[0] + 2
    assert [field_id(part) for part in copy.type] == [COPY_IDS[0] + number for number in (21, 22, 23, 24, 26)]
    assert rows.column("user").to_pylist() == rows.column("person").to_pylist()
    assert small.fingerprint == before.fingerprint
    written = lake.merge([before, small], table).written
    assert written is not None
    assert written.fingerprint == combine([before.fingerprint, small.fingerprint])


def test_stored_values_become_arrays_of_their_type() -> None:
    kind = pa.struct([with_id("at", pa.timestamp("ms", "UTC"), 1), with_id("x", pa.float32(), 2)])
    nested = pa.map_(
        with_id("key", pa.string(), 4, nullable=False),
        with_id("value", pa.list_(with_id("element", kind, 6)), 5),
    )
    array = to_array([[("k", [(1, 0.5), None, (None, None)])], None, []], nested)
    array.validate(full=True)
    assert array.type.equals(nested, check_metadata=True)
    field = with_id("v", nested, 3)
    assert pa.Table.from_arrays([array], schema=pa.schema([field])).column(0).null_count == 1

"""Fingerprints: fixed for ever, blind to the order of rows, and different for any other rows."""

from __future__ import annotations

import struct
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.files.fingerprints import combine
from prism_assets.kernels.field_ids import field_with_id
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import in_format

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=30)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats(allow_nan=False).map(lambda number: number + 0.0)),
    (pa.float32(), st.floats(allow_nan=False, width=32).map(lambda number: number + 0.0)),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("ms", "UTC"), st.integers(-(10**13), 10**13)),
]
SCHEMA = pa.schema([field_with_id(f"c{number}", kind, number + 1) for number, (kind, _) in enumerate(KINDS)])
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in KINDS)), max_size=12)


def a_table_of(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


WIDER = {
    pa.int16(): [pa.int32(), pa.int64()],
    pa.int32(): [pa.int64()],
    pa.float32(): [pa.float64()],
    pa.decimal128(9, 3): [pa.decimal128(10, 3), pa.decimal128(38, 3)],
}
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **dict(KINDS),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float32(): st.floats(width=32),
    pa.decimal128(9, 3): st.decimals(-(10**6) + 1, 10**6 - 1, places=3),
}


@pytest.mark.parametrize(("kind", "wider"), [(kind, wider) for kind, found in WIDER.items() for wider in found])
@given(data=st.data())
def test_a_wider_type_changes_no_fingerprint(kind: pa.DataType, wider: pa.DataType, data: st.DataObject) -> None:
    values = pa.array(data.draw(st.lists(st.none() | VALUES[kind], max_size=9)), kind)
    narrow, wide = (
        pa.table([column], pa.schema([field_with_id("c", column.type, 7)])) for column in (values, values.cast(wider))
    )
    assert fingerprint_of(narrow) == fingerprint_of(wide)


GOLDEN_ROW = -6215184618587857439
GOLDEN_ROWS = 1565749569119784503


def mix(word: int) -> int:
    """The finalizer of splitmix64, in plain integers."""
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def string_word(text: str) -> int:
    data = text.encode()
    word = mix(len(data))
    for start in range(0, len(data), 8):
        word = (word ^ int.from_bytes(data[start : start + 8], "little")) * 0xBF58476D1CE4E5B9 % 2**64
        word ^= word >> 31
    return word


def value_word(kind: pa.DataType, value: Any) -> int:
    if pa.types.is_string(kind):
        return string_word(value)
    if pa.types.is_floating(kind):
        return int.from_bytes(struct.pack("<d", value), "little")
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(3)) % 2**128
        return (mix(unscaled % 2**64) + (unscaled >> 64)) % 2**64
    if pa.types.is_date(kind):
        value = (value - date(1970, 1, 1)).days
    return int(value) % 2**64


def reference(rows: list[tuple[Any, ...]]) -> int:
    """The definition of the fingerprint, one value at a time."""
    total = 0
    for row in rows:
        words = [
            mix(value_word(field.type, value) ^ mix(number + 1))
            for number, (field, value) in enumerate(zip(SCHEMA, row, strict=True))
            if value is not None
        ]
        total += mix(sum(words) % 2**64)
    return combine([total])


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_the_fingerprint_is_what_its_definition_says(rows: list[tuple[Any, ...]]) -> None:
    assert fingerprint_of(a_table_of(rows)) == reference(rows)


def test_the_fingerprint_of_known_rows_never_changes() -> None:
    row = ("prism 日本語", -5, 7, True, 0.5, -2.5, Decimal("-12.345"), date(2018, 10, 24), 1_540_339_223_000)
    assert fingerprint_of(a_table_of([row])) == GOLDEN_ROW
    assert (
        fingerprint_of(a_table_of([row, (None,) * 9, ("", 0, 0, False, 0.0, 0.0, Decimal(0), date(1970, 1, 1), 0)]))
        == GOLDEN_ROWS
    )


def test_no_rows_give_zero() -> None:
    assert fingerprint_of(SCHEMA.empty_table()) == 0
    assert combine([]) == 0


@settings(max_examples=60, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_and_the_portions_of_rows_do_not_matter(rows: list[tuple[Any, ...]], draw: Any) -> None:
    shuffled = list(rows)
    draw.shuffle(shuffled)
    whole = fingerprint_of(a_table_of(rows))
    half = len(rows) // 2
    table = a_table_of(shuffled)
    assert fingerprint_of(table) == whole
    assert combine([fingerprint_of(table.slice(0, half)), fingerprint_of(table.slice(half))]) == whole
    assert combine([fingerprint_of(batch) for batch in table.to_batches()]) == whole
    assert -(2**63) <= whole < 2**63


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_another_value_gives_another_fingerprint(data: st.DataObject) -> None:
    rows: list[tuple[Any, ...]] = data.draw(ROWS.filter(bool))
    row = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, len(KINDS) - 1))
    old = rows[row][column]
    new = data.draw((st.none() | KINDS[column][1]).filter(lambda value: value != old))
    changed: list[tuple[Any, ...]] = [*rows]
    changed[row] = (*rows[row][:column], new, *rows[row][column + 1 :])
    assert fingerprint_of(a_table_of(changed)) != fingerprint_of(a_table_of(rows))


def test_values_that_change_rows_or_columns_are_told_apart() -> None:
    two = pa.schema([field_with_id("a", pa.string(), 1), field_with_id("b", pa.string(), 2)])
    tables: list[list[tuple[Any, ...]]] = [
        [("x", "y"), ("z", None)],
        [("y", "x"), ("z", None)],
        [("x", None), ("z", "y")],
        [("xy", ""), ("z", None)],
        [("x", "y"), ("z", "")],
        [("x", "y"), ("z\0", None)],
        [("x", "y"), ("z", None), (None, None)],
    ]
    assert len({fingerprint_of(a_table_of(rows, two)) for rows in tables}) == len(tables)


def test_a_column_of_nulls_adds_nothing() -> None:
    one = pa.schema([field_with_id("a", pa.string(), 1)])
    two = pa.schema([field_with_id("a", pa.string(), 1), field_with_id("b", pa.int64(), 2)])
    assert fingerprint_of(a_table_of([("x",)], one)) == fingerprint_of(a_table_of([("x", None)], two))


def test_the_name_and_the_place_of_a_column_do_not_matter() -> None:
    table = a_table_of([("x", 1)], pa.schema([field_with_id("a", pa.string(), 1), field_with_id("b", pa.int64(), 2)]))
    assert fingerprint_of(table.select(["b", "a"])) == fingerprint_of(table)


@pytest.mark.parametrize("distinct", [3, 5000])
def test_repeated_strings_hash_as_single_ones_do(distinct: int) -> None:
    schema = pa.schema([field_with_id("a", pa.string(), 1)])
    values = [None if n % 7 == 0 else f"value {n % distinct} {'x' * (n % 23)}" for n in range(6000)]
    whole = fingerprint_of(a_table_of([(value,) for value in values], schema))
    assert whole == combine([fingerprint_of(a_table_of([(value,)], schema)) for value in values])
    large = a_table_of([(value,) for value in values], schema).cast(
        pa.schema([field_with_id("a", pa.large_string(), 1)])
    )
    assert fingerprint_of(large) == whole


@pytest.mark.parametrize("length", [1, 7, 8, 9, 32, 36])
def test_strings_of_one_length_hash_as_single_ones_do(length: int) -> None:
    schema = pa.schema([field_with_id("a", pa.string(), 1)])
    values = [f"{n:x}".rjust(length, "k")[-length:] for n in range(3000)]
    whole = fingerprint_of(a_table_of([(value,) for value in ["", *values]], schema).slice(1))
    mixed = fingerprint_of(a_table_of([(value,) for value in [*values, "", "longer" * 9]], schema))
    others = [fingerprint_of(a_table_of([(value,)], schema)) for value in ["", "longer" * 9]]
    assert combine([whole, *others]) == mixed


def test_both_zeros_are_one_value() -> None:
    schema = pa.schema([field_with_id("a", pa.float64(), 1)])
    assert fingerprint_of(a_table_of([(0.0,)], schema)) == fingerprint_of(a_table_of([(-0.0,)], schema))


@given(ROWS)
def test_the_unit_of_timestamps_changes_no_fingerprint(rows: list[tuple[Any, ...]]) -> None:
    table = a_table_of(rows)
    stored = table.cast(in_format(SCHEMA, MICROSECONDS))
    assert stored.schema.field("c8").type == pa.timestamp("us", "UTC")
    assert fingerprint_of(stored) == fingerprint_of(table)
    assert combine([fingerprint_of(stored.slice(0, 3)), fingerprint_of(stored.slice(3))]) == fingerprint_of(table)


def test_a_part_of_a_millisecond_is_told() -> None:
    schema = pa.schema([field_with_id("t", pa.timestamp("us", "UTC"), 1)])
    fingerprints = {fingerprint_of(a_table_of([(value,)], schema)) for value in (5_000, 5_001, 5_999, 6_000)}
    assert len(fingerprints) == 4

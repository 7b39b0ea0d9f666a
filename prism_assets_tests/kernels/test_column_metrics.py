"""Column metrics are true of every row, in either file format, and as tight as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns.types import FILE_FORMATS, LEAF_TYPES, MICROSECONDS, MILLISECONDS
from prism_assets.domain.files.data_file import ColumnMetrics
from prism_assets.kernels.columns import to_array
from prism_assets.kernels.field_ids import field_with_id as with_id
from prism_assets.kernels.parquet.format import Encoder, schema_of
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.typed import Layout
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, an_object

COLUMNS = (
    a_column("text", "string", 2, length=20_000),
    a_column("flag", "boolean", 3),
    a_column("small", "smallint", 4),
    a_column("whole", "integer", 5),
    a_column("big", "bigint", 6),
    a_column("single", "real", 7),
    a_column("twice", "double", 8),
    a_column("price", "decimal", 9, precision=12, scale=4),
    a_column("long_price", "decimal", 10, precision=38, scale=0),
    a_column("day", "date", 11),
    a_column("payload", "json", 12, length=20_000),
)
LAYOUT = Layout.of(a_table(*COLUMNS))
SCHEMA = schema_of(LAYOUT)
IDS = tuple(column.column_id for column in LAYOUT.columns)
PLAIN = ("time", "flag", "small", "whole", "big", "price", "long_price", "day")
"""Columns with the least and the greatest value themselves as bounds."""

# Few letters, so that texts share beginnings; the last of all characters, the last before surrogates, and zero.
texts = st.text("ab\U0010ffff\ud7ff\0é", max_size=20) | st.text(max_size=40)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "time": st.integers(-62_135_596_800_000, 253_402_300_799_999),
    "text": texts,
    "flag": st.booleans(),
    "small": whole(16),
    "whole": whole(32),
    "big": whole(64),
    "single": st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    "twice": st.floats() | st.sampled_from([0.0, -0.0]),
    "price": st.decimals(-99_999_999, 99_999_999, places=4),
    "long_price": st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
    "day": whole(32),
    "payload": texts,
}
rows = st.tuples(*(st.none() | VALUES[column.name] for column in LAYOUT.columns))
row_groups = st.lists(st.lists(rows, min_size=1, max_size=4), max_size=3)
Row = tuple[Any, ...]


def written(groups: Sequence[Sequence[Row]], file_format: int) -> tuple[bytes, tuple[ColumnMetrics, ...]]:
    """Returns an object with these row groups, and the metrics of all columns."""
    encoder = Encoder(SCHEMA, ["text"], file_format)
    for group in groups:
        columns = [to_array([row[place] for row in group], field.type) for place, field in enumerate(SCHEMA)]
        encoder.write(pa.table(columns, schema=SCHEMA))
    body = encoder.finish().to_pybytes()
    return body, column_metrics(encoder.metadata, IDS)


def of_one(name: str, *groups: Sequence[Any], file_format: int = MICROSECONDS) -> ColumnMetrics:
    """The metrics of one column with these values, a list a row group."""
    names = [column.name for column in LAYOUT.columns]
    table = [[tuple(value if name == other else None for other in names) for value in group] for group in groups]
    (found,) = (item for item in written(table, file_format)[1] if item.column_id == IDS[names.index(name)])
    return found


def ordered(value: Any) -> Any:
    """Returns a sort key. As in Iceberg, negative zero is less than zero."""
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


@settings(deadline=None, max_examples=150)
@given(row_groups, st.sampled_from(sorted(FILE_FORMATS)))
def test_bounds_are_true_of_every_row(groups: list[list[Row]], file_format: int) -> None:
    _, metrics = written(groups, file_format)
    assert tuple(item.column_id for item in metrics) == IDS
    for place, (column, said) in enumerate(zip(LAYOUT.columns, metrics, strict=True)):
        values = [row[place] for group in groups for row in group]
        assert said.nulls == sum(value is None for value in values)
        known = [value for value in values if value is not None and value == value]
        as_value = Decimal if column.name.endswith("price") else lambda bound: bound
        low = None if said.lower is None else as_value(said.lower)
        high = None if said.upper is None else as_value(said.upper)
        assert all(low is None or ordered(low) <= ordered(value) for value in known), (column.name, low)
        assert all(high is None or ordered(value) <= ordered(high) for value in known), (column.name, high)
        if column.name in PLAIN:
            assert (low, high) == ((min(known), max(known)) if known else (None, None))


def test_every_type_is_among_the_columns() -> None:
    assert {type(column.type) for column in LAYOUT.columns} == set(LEAF_TYPES)


@settings(deadline=None, max_examples=30)
@given(row_groups)
def test_the_stored_object_says_the_same_as_its_writer_and_in_either_format(groups: list[list[Row]]) -> None:
    body, metrics = written(groups, MICROSECONDS)
    assert repr(column_metrics(pq.read_metadata(pa.BufferReader(body)), IDS)) == repr(metrics)
    assert repr(written(groups, MILLISECONDS)[1]) == repr(metrics)


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        (["b", "a"], "a", "b"),
        (["x" * 16], "x" * 16, "x" * 16),
        (["x" * 17], "x" * 16, "x" * 15 + "y"),
        (["é" * 17], "é" * 16, "é" * 15 + "ê"),
        (["\ud7ff" * 17], "\ud7ff" * 16, "\ud7ff" * 15 + "\ue000"),
        (["a" + "\U0010ffff" * 16], "a" + "\U0010ffff" * 15, "b"),
        (["\U0010ffff" * 17], "\U0010ffff" * 16, None),
        (["a\0b", "a\0c"], "a", "b"),
        (["\0"], "", None),
        ([""], "", ""),
        (["a", "b" * 5_000], None, None),
        ([None, None], None, None),
        ([], None, None),
    ],
)
def test_strings_are_cut_so_that_their_bounds_stay_true(values: list[str], lower: str, upper: str | None) -> None:
    nulls = sum(value is None for value in values)
    assert of_one("text", *([values] if values else [])) == ColumnMetrics(2, nulls, lower, upper)


@given(texts, texts)
@example("a" * 16 + "\0", "a" * 17)
def test_the_bounds_of_two_texts_lie_around_them(one: str, other: str) -> None:
    found = of_one("text", [one], [other])
    assert isinstance(found.lower, str)
    assert found.lower <= min(one, other)
    assert found.upper is None or max(one, other) <= str(found.upper)


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([0.0], "-0.0", "0.0"),
        ([-0.0], "-0.0", "0.0"),
        ([math.nan], "None", "None"),
        ([math.nan, 2.5], "2.5", "2.5"),
        ([math.inf, 1.0], "1.0", "None"),
        ([-math.inf, 1.0], "None", "1.0"),
        ([1e300, 0.1], "0.1", "1e+300"),
    ],
)
def test_floats_have_the_bounds_that_json_can_say(values: list[float], lower: str, upper: str) -> None:
    found = of_one("twice", values)
    assert (repr(found.lower), repr(found.upper)) == (lower, upper)


def test_a_row_group_without_statistics_takes_the_bounds_and_one_of_nulls_does_not() -> None:
    assert of_one("text", ["a"], [None], ["c"]) == ColumnMetrics(2, 1, "a", "c")
    assert of_one("text", ["a", None], ["c" * 5_000]) == ColumnMetrics(2, 1, None, None)


def test_decimals_are_written_out() -> None:
    assert of_one("price", [Decimal("0.0000"), Decimal("-1.5000")]) == ColumnMetrics(9, 0, "-1.5000", "0.0000")


def test_a_column_that_the_object_does_not_have_has_no_metrics() -> None:
    encoder = Encoder(SCHEMA, [], MICROSECONDS)
    encoder.finish()
    assert column_metrics(encoder.metadata, (99,)) == ()
    assert column_metrics(encoder.metadata, ()) == ()


def test_small_and_merged_objects_say_the_metrics_that_their_tasks_ask_for(lake: Lake) -> None:
    table = a_table(a_column("v", "bigint", 2), a_column("w", "string", 3))
    content = an_object({"v": 5, "w": "a"}, {"v": -3}, {"w": "b" * 20})
    (small,) = lake.convert(content, table, metric_columns=(3, 2)).result.objects
    expected = (ColumnMetrics(2, 1, -3, 5), ColumnMetrics(3, 1, "a", "b" * 15 + "c"))
    assert small.metrics == expected
    merged = lake.merge([small], table, metric_columns=(2, 3)).written
    assert merged is not None
    assert merged.metrics == expected
    (small,) = lake.convert(content, table).result.objects
    assert small.metrics == ()


def nested_object() -> bytes:
    """Returns an object whose fields have other places than its leaves: a struct and a list stand before `time`."""
    user = pa.struct([with_id("a", pa.int64(), 5), with_id("b", pa.struct([with_id("c", pa.string(), 7)]), 6)])
    schema = pa.schema(
        [
            with_id("user", user, 1),
            with_id("items", pa.list_(with_id("element", pa.int64(), 8)), 2),
            with_id("time", pa.int64(), 3),
        ]
    )
    users = [{"a": 1, "b": {"c": "x"}}, None, {"a": 1000, "b": None}]
    rows = [{"user": user, "items": [7, 8, 9], "time": 500 + place} for place, user in enumerate(users)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def test_metrics_go_by_the_paths_of_leaves_and_count_a_null_struct_as_a_null_of_its_fields() -> None:
    metadata = pq.read_metadata(pa.BufferReader(nested_object()))
    assert column_metrics(metadata, range(1, 9)) == (
        ColumnMetrics(3, 0, 500, 502),
        ColumnMetrics(5, 1, 1, 1000),
        ColumnMetrics(7, 2, "x", "x"),
    )

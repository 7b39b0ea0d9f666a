"""The compiled kernel decodes stored columns as Arrow does, and leaves to Arrow what prism_assets never stores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.files.data_file import DataFile
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.field_ids import field_with_id
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets.kernels.parquet.merge_inputs import Input, aligned
from prism_assets.kernels.parquet.merged_rows import MergedRows

pytestmark = pytest.mark.skipif(loaded_kernel().module is None, reason="this process has no compiled kernel")

NOON = datetime(2018, 10, 24, 12, tzinfo=timezone.utc)
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), lambda n: n % 3 == 0),
    "small": (pa.int16(), lambda n: n * 71 % 65536 - 32768),
    "number": (pa.int32(), lambda n: n * 7_919 - (1 << 20)),
    "long": (pa.int64(), lambda n: (n - 50) << 40),
    "real": (pa.float32(), lambda n: n / 4),
    "double": (pa.float64(), lambda n: -n / 3),
    "exact": (pa.decimal128(9, 2), lambda n: Decimal(50 - n).scaleb(-2)),
    "wide": (pa.decimal128(38, 10), lambda n: Decimal(50 - n).scaleb(20)),
    "day": (pa.date32(), lambda n: date(2018, 10, 24) - timedelta(days=n)),
    "at": (pa.timestamp("us", "UTC"), lambda n: NOON + timedelta(milliseconds=n)),
    "millis": (pa.timestamp("ms", "UTC"), lambda n: NOON - timedelta(milliseconds=n)),
    "text": (pa.string(), lambda n: ["", "é", "日本", "x" * 300][n % 4] + str(n)),
    "_p_text": (pa.string(), lambda n: str(n)),
}
SCHEMA = pa.schema([field_with_id(name, kind, number) for number, (name, (kind, _)) in enumerate(KINDS.items(), 1)])
CODED = {SCHEMA.get_field_index("text") + 1, "_p_text"}


def a_body(numbers: Sequence[Sequence[int | None]], schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    """An object with a row group for each sequence: rows of values made from a number, or of nulls."""
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "store_schema": False, "use_dictionary": False} | options
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for group in numbers:
            columns = [[None if n is None else KINDS[field.name][1](n) for n in group] for field in schema]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=max(1, len(group)))
    return bytes(sink.getvalue())


def opened(body: bytes) -> list[Input]:
    return Input.opened(DataFile(bucket="b", key="k", content_length=len(body), row_count=-1, fingerprint=0), body)


def by_arrow(entries: Sequence[Input], rows: Sequence[Any], field: pa.Field) -> list[Any]:
    found = []
    for entry, wanted in zip(entries, rows, strict=True):
        column = aligned(entry.read_all(), SCHEMA).column(field.name)
        kept = column if entry.erased is None else column.filter(pa.array(~entry.erased))
        found += (kept if wanted is None else kept.take(pa.array(wanted))).to_pylist()
    return found


NUMBERS = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=40),
    st.lists(st.sampled_from([None, 1, 2, 3]), min_size=60, max_size=200),
    st.integers(0, 90).map(lambda count: [7] * count),
    st.integers(0, 90).map(lambda count: [None] * count),
)
OPTIONS = st.fixed_dictionaries(
    {
        "use_dictionary": st.booleans(),
        "compression": st.sampled_from(["zstd", "none"]),
        "data_page_size": st.sampled_from([1, 60, 1 << 20]),
        "write_batch_size": st.sampled_from([7, 1024]),
        "dictionary_pagesize_limit": st.sampled_from([20, 1 << 20]),
        "write_page_index": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.lists(NUMBERS, min_size=1, max_size=2), OPTIONS), min_size=1, max_size=3), st.randoms())
def test_all_rows_or_the_wanted_ones_are_those_of_arrow(
    objects: list[tuple[list[list[int | None]], dict[str, Any]]], draw: random.Random
) -> None:
    entries, rows = [], []
    for number, (groups, options) in enumerate(objects):
        lacking = number == 2  # an object from before the column was added
        schema = pa.schema([field for field in SCHEMA if not (lacking and field.name == "double")])
        for entry in opened(a_body(groups, schema, **options)):
            if draw.random() < 0.3:
                entry = entry.without(np.array([draw.random() < 0.4 for _ in range(entry.row_count)], bool))
            wanted = [row for row in range(entry.row_count) if draw.random() < 0.5]
            entries.append(entry)
            rows.append(draw.choice([None, np.array(wanted, np.int64)]))
    compiled = CompiledInputs(entries, rows)
    coded = {column for entry in entries for column in entry.coded_columns()}
    for number, field in enumerate(SCHEMA, 1):
        key = field.name if field.name.startswith("_p_") else number
        found = compiled.column(field, coded=key in coded)
        assert found is not None, field.name
        assert found.to_pylist() == by_arrow(entries, rows, field), field.name


def test_a_dictionary_keeps_only_texts_of_wanted_rows() -> None:
    entries = opened(a_body([list(range(100)) * 2], use_dictionary=True))
    found = CompiledInputs(entries, [np.array([3, 103, 150], np.int64)]).column(SCHEMA.field("text"), coded=True)
    assert found is not None
    assert found.indices.to_pylist() == [0, 0, 1]
    assert found.dictionary.to_pylist() == [KINDS["text"][1](3), KINDS["text"][1](50)]


def test_a_column_that_no_input_has_is_null() -> None:
    field = field_with_id("added", pa.string(), 99)
    found = CompiledInputs(opened(a_body([[1, 2], [3]])), [None, np.array([], np.int64)]).column(field, coded=False)
    assert found is not None
    assert found.equals(pa.nulls(2, pa.string()))


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"data_page_version": "2.0"},
        {"column_encoding": "DELTA_BINARY_PACKED"},
        {"column_encoding": "BYTE_STREAM_SPLIT"},
        {"coerce_timestamps": "us"},
    ],
    ids=str,
)
def test_pages_that_prism_never_stores_are_left_to_arrow(options: dict[str, Any]) -> None:
    kind = pa.timestamp("us") if "coerce_timestamps" in options else pa.int64()  # times without a zone
    schema = pa.schema([field_with_id("long", kind, 4)])
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([pa.array([3, None, 1]).cast(kind)], schema=schema)
    pq.write_table(table, sink, use_dictionary=False, **options)
    entries = opened(bytes(sink.getvalue()))
    assert CompiledInputs(entries, [None]).column(schema.field(0), coded=False) is None
    (rows,) = MergedRows(entries, schema, ["long"]).row_groups(10)
    assert rows.column("long").cast(pa.int64()).to_pylist() == [1, 3, None]


def test_columns_of_two_types_are_left_to_arrow() -> None:
    narrow, wide = (pa.schema([field_with_id("number", kind, 3)]) for kind in (pa.int32(), pa.int64()))
    entries = [*opened(a_body([[5]], narrow)), *opened(a_body([[6]], wide))]
    assert CompiledInputs(entries, [None, None]).column(wide.field(0), coded=False) is None
    (rows,) = MergedRows(entries, wide, ["number"]).row_groups(10)
    assert rows.column(0).to_pylist() == [KINDS["number"][1](n) for n in (5, 6)]


def test_broken_bytes_are_refused_or_give_as_many_rows() -> None:
    """A flipped byte in zstd or a value may go unseen. The fingerprint of the merge then refuses the rows."""
    draw = random.Random(7)
    for compression in ("none", "zstd"):
        body = a_body([[None, *range(30)] * 2], compression=compression, use_dictionary=["text", "number"])
        (entry,) = opened(body)
        refused = 0
        for place in range(0, len(body), 3):
            broken = bytearray(body)
            broken[place] ^= draw.randrange(1, 256)
            compiled = CompiledInputs([replace(entry, body=pa.py_buffer(bytes(broken)))], [None])
            for field in draw.sample(list(SCHEMA), 4):
                found = compiled.column(field, coded=field.name == "text")
                assert found is None or len(found) == 62
                refused += found is None
        assert refused > 50

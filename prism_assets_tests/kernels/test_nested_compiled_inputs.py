"""The compiled kernel decodes nested columns of merges as Arrow does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.compiled import CompiledReader
from prism_assets.kernels.nested_arrays import conformed, parts_of, with_parts
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets.kernels.parquet.format import field_of
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets.kernels.parquet.merged_rows import MergedRows
from prism_assets_tests.kernels.fuzz import exact_values, layout_of
from prism_assets_tests.kernels.nested_lines import NestedLines, a_nested_table
from prism_assets_tests.kernels.test_compiled_inputs import opened

pytestmark = pytest.mark.skipif(loaded_kernel().module is None, reason="this process has no compiled kernel")


def an_object(source: random.Random, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        store_schema=False,
        compression=source.choice(("zstd", "none")),
        use_dictionary=source.choice((True, False)),
        data_page_size=source.choice((60, 1 << 20)),  # Arrow does not read its own lists in pages of one value
        write_batch_size=source.choice((7, 1024)),
        row_group_size=source.choice((5, 1000)),
    )
    return bytes(sink.getvalue())


def some_rows(source: random.Random, fields: Sequence[pa.Field], layout: Any) -> pa.Table:
    lines = b"\n".join(NestedLines(source).line(layout.table) for _ in range(source.randrange(30)))
    reader = CompiledReader(layout, loaded_kernel().module)
    parts = reader.read(Block(lines, 1)).parts
    schema = pa.schema(fields)
    if not parts:
        return schema.empty_table()
    arrays = [conformed(array, field.type) for array, field in zip(parts[0].columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def without_last_field(field: pa.Field) -> pa.Field:
    """A column of before its last field was added."""
    parts = list(parts_of(field.type))
    if pa.types.is_struct(field.type) and len(parts) > 1:
        return field.with_type(with_parts(field.type, parts[:-1]))
    return field


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_all_rows_or_the_wanted_ones_are_those_of_arrow(seed: int) -> None:
    source = random.Random(seed)
    layout = layout_of(a_nested_table(source))
    fields = [field_of(column) for column in layout.columns]
    entries: list[Input] = []
    rows: list[Any] = []
    for number in range(source.randint(1, 3)):
        table = some_rows(source, fields, layout)
        if number == 1 and source.randrange(2):
            older = pa.schema([without_last_field(field) for field in fields])
            columns = [conformed(column, field.type) for column, field in zip(table.columns, older, strict=True)]
            table = pa.Table.from_arrays(columns, schema=older)
        for entry in opened(an_object(source, table)):
            if not source.randrange(3):
                entry = entry.without(np.array([source.random() < 0.4 for _ in range(entry.row_count)], bool))
            wanted = [row for row in range(entry.row_count) if source.random() < 0.5]
            entries.append(entry)
            rows.append(source.choice([None, np.array(wanted, np.int64)]))
    compiled = CompiledInputs(entries, rows)
    coded = {column for entry in entries for column in entry.coded_columns()} if source.randrange(4) else set()
    for field in fields:
        if not pa.types.is_nested(field.type):
            continue
        found = compiled.nested(field, coded)
        if found is None:
            assert not coded  # texts with a dictionary are left to Arrow if they are to lose it
            continue
        assert exact_values(conformed(found, field.type)) == by_arrow(entries, rows, field)


def by_arrow(entries: Sequence[Input], rows: Sequence[Any], field: pa.Field) -> list[Any]:
    found = []
    for entry, wanted in zip(entries, rows, strict=True):
        column = entry.read(pa.schema([field])).column(0).combine_chunks()
        found += exact_values(column if wanted is None else column.take(pa.array(wanted)))
    return found


def test_a_new_part_and_a_column_that_no_input_has_are_null() -> None:
    source = random.Random(4)
    inner = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "5"})
    added = pa.field("b", pa.list_(pa.field("element", pa.string(), metadata={"PARQUET:field_id": "7"})))
    added = added.with_metadata({"PARQUET:field_id": "6"})
    stored = pa.field("v", pa.struct([inner]), metadata={"PARQUET:field_id": "2"})
    wider = stored.with_type(pa.struct([inner, added]))
    rows = pa.Table.from_pylist([{"v": {"a": 1}}, {"v": None}, {"v": {"a": None}}], pa.schema([stored]))
    entries = opened(an_object(source, rows))
    compiled = CompiledInputs(entries, [None for _ in entries])
    found = compiled.nested(wider, ())
    assert found is not None
    assert conformed(found, wider.type).to_pylist() == [{"a": 1, "b": None}, None, {"a": None, "b": None}]
    other = wider.with_metadata({"PARQUET:field_id": "9"})
    nothing = compiled.nested(other, ())
    assert nothing is not None
    assert nothing.equals(pa.nulls(3, wider.type))


def test_broken_bytes_are_refused_or_give_as_many_rows() -> None:
    source = random.Random(7)
    table = a_nested_table(source)
    layout = layout_of(table)
    fields = [field_of(column) for column in layout.columns]
    rows = some_rows(source, fields, layout)
    while rows.num_rows < 10:
        rows = some_rows(source, fields, layout)
    body = an_object(random.Random(1), rows)
    entry = opened(body)[0]
    for place in range(0, len(body), 11):
        broken = bytearray(body)
        broken[place] ^= source.randrange(1, 256)
        compiled = CompiledInputs([replace(entry, body=pa.py_buffer(bytes(broken)))], [None])
        for field in fields:
            found = compiled.nested(field, ()) if pa.types.is_nested(field.type) else None
            assert found is None or len(found) == entry.row_count


def test_a_merge_decodes_nested_columns_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(11)
    layout = layout_of(a_nested_table(source))
    fields = [field_of(column) for column in layout.columns]
    entries = [entry for _ in range(3) for entry in opened(an_object(source, some_rows(source, fields, layout)))]
    tables = [entry.read(pa.schema(fields)) for entry in entries]
    expected = pa.concat_tables(tables).combine_chunks()  # all rows have one time

    def refuse(*_: Any) -> Any:
        raise AssertionError("a column was left to Arrow")

    monkeypatch.setattr(Input, "read", refuse)
    found = pa.concat_tables(MergedRows(entries, pa.schema(fields), ["time"]).row_groups(10)).combine_chunks()
    assert [exact_values(column) for column in found.itercolumns()] == [
        exact_values(column) for column in expected.itercolumns()
    ]

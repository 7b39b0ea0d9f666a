"""The compiled reader and the rules of nested values give the same result for random types and lines."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.tables.options import FREEZE, SET_ASIDE, Contract
from prism_assets.kernels import fingerprint
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.fingerprint import fingerprint_by_columns
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.compiled import CompiledReader
from prism_assets.kernels.nested_arrays import conformed
from prism_assets.kernels.parquet.format import field_of
from prism_assets_tests.kernels.builders import TIME, Lake, a_table, an_object, needs_kernel
from prism_assets_tests.kernels.fuzz import a_nested_line, compare, layout_of
from prism_assets_tests.kernels.nested_lines import NestedLines, a_nested_table
from prism_assets_tests.kernels.test_nested import a_nested


@needs_kernel
@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32))
def test_random_types_and_lines_give_the_same_blocks(seed: int) -> None:
    source = random.Random(seed)
    table = a_nested_table(source)
    lines = b"\n".join(a_nested_line(source, table) for _ in range(source.randint(1, 40)))
    assert compare(layout_of(table), Block(lines, 1)) == ""


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_random_types_and_lines_give_the_same_objects(seed: int) -> None:
    source = random.Random(seed)
    table = a_nested_table(source)
    lines = NestedLines(source)
    with tempfile.TemporaryDirectory() as folder:
        Lake(Path(folder)).both(an_object(*(lines.line(table) for _ in range(30))), table)


@needs_kernel
@pytest.mark.parametrize(
    "text", ["struct<a: bigint>", "list<struct<d: date>>", "map<string, list<json>>", "list<" * 15 + "real" + ">" * 15]
)
def test_the_kernel_reads_each_form(text: str) -> None:
    assert CompiledReader.of(layout_of(a_table(a_nested("v", text, 2))), loaded_kernel()) is not None


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        # The map is null before anything reads its values, so their doubled keys do not count.
        ("map<string(1), struct<a: bigint>>", '{"long":{"a":1,"a":2}}', None),
        ("map<string(1), struct<a: bigint>>", '{"l":{"a":1,"a":2}}', "v{}.a"),
        # The outer level is read first, then parts by their ids.
        ("struct<a: struct<x: bigint>, b: bigint>", '{"a":{"x":1,"x":2},"b":1,"b":2}', "v.b"),
        ("struct<a: struct<x: bigint>, b: struct<y: bigint>>", '{"b":{"y":1,"y":2},"a":{"x":1,"x":2}}', "v.a.x"),
        ("struct<a: bigint>", '{"z":1,"z":2}', None),
        ("list<map<string, bigint>>", '[{"\\u0061":1,"a":2}]', "v[]{}"),
    ],
)
def test_the_first_key_that_occurs_twice_is_told(tmp_path: Path, text: str, value: str, reason: str | None) -> None:
    line = f'{{"time":"{TIME}","v":{value}}}'
    outcome = Lake(tmp_path).both(an_object(line), a_table(a_nested("v", text, 2)))
    assert [rejected["column"] for rejected in outcome.quarantined] == ([] if reason is None else [reason])


def test_the_first_undefined_key_is_told(tmp_path: Path) -> None:
    column = a_nested("v", "struct<a: struct<x: bigint>, m: map<string(2), struct<x: bigint>>>", 2)
    table = a_table(column, contract=Contract(new_fields=FREEZE))
    values = [
        '{"a":{"y":1},"z":2}', '{"y":null,"a":{"z":NaN,"é":[]}}', '{"m":{"k":{"z":1}}}', '{"m":{"long":{"z":1}}}',
        '{"a":[{"z":1}]}',
    ]  # fmt: skip
    outcome = Lake(tmp_path).both(an_object(*(f'{{"time":"{TIME}","v":{value}}}' for value in values)), table)
    assert [line["column"] for line in outcome.quarantined] == ["v.z", "v.a.é", "v.m{}.z"]
    assert len(outcome.rows) == 2


def test_days_and_named_zones_inside_of_lists_come_from_python(tmp_path: Path) -> None:
    column = a_nested("v", "list<struct<d: date, m: map<string, timestamp>>>", 2)
    at = "2018-10-24T23:00:00[Europe/Berlin]"
    values = [
        "null", f'[{{"d":1540422000}},null,{{"m":{{"k":"{at}","l":"x[Europe/Berlin]"}}}}]', "[]",
        '[{"d":"x"},{"d":1540339223,"m":{}}]',
    ]  # fmt: skip
    table = a_table(column, contract=Contract(misfits=SET_ASIDE))
    for chosen in (a_table(column), table):
        lines = (f'{{"time":"{TIME}","v":{value}}}' for value in values)
        Lake(tmp_path).both(an_object(*lines), chosen)


def test_a_misfit_that_sets_a_row_aside_is_the_same_whatever_rows_are_before_it(tmp_path: Path) -> None:
    table = a_table(a_nested("v", "struct<a: bigint, b: bigint>", 2), contract=Contract(misfits=SET_ASIDE))
    lines = [f'{{"time":"{TIME}","v":{value}}}' for value in ('{"b":"x"}', '{"b":"x","a":"x"}')]
    outcome = Lake(tmp_path).both(an_object(*lines), table)
    assert [line["column"] for line in outcome.quarantined] == ["v.b", "v.a"]


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_kernel_computes_the_same_fingerprints(seed: int) -> None:
    source = random.Random(seed)
    layout = layout_of(a_nested_table(source))
    lines = b"\n".join(NestedLines(source).line(layout.table) for _ in range(20))
    for part in CompiledReader(layout, loaded_kernel().module).read(Block(lines, 1)).parts:
        fields = [field_of(column) for column in layout.columns]
        columns = [conformed(array, field.type) for array, field in zip(part.columns, fields, strict=True)]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        for some in (rows, rows.slice(1), rows.slice(2, 5), rows.slice(0, 0)):
            assert fingerprint._compiled(loaded_kernel().module, some) % 2**64 == fingerprint_by_columns(some) % 2**64

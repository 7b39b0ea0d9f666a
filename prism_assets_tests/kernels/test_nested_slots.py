"""Nested values with too many elements are null, in both ways of reading, before they take memory."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns import types
from prism_assets.domain.columns.type_names import parse_type
from prism_assets.domain.columns.types import slots_below, slots_of
from prism_assets.domain.days.lengths import length_warnings
from prism_assets.domain.tables.options import SET_ASIDE, Contract
from prism_assets.domain.work.convert import ValueErrors
from prism_assets.kernels.json import block_reader
from prism_assets.kernels.json.block_reader import BlockReader, Way
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.rows import RejectedError
from prism_assets.kernels.nested_arrays import parts_in
from prism_assets.kernels.type_rules import rules_of
from prism_assets.kernels.values import scan_once
from prism_assets_tests.kernels.builders import Lake, a_table, a_value, an_object, needs_kernel
from prism_assets_tests.kernels.fuzz import a_nested_line, compare, layout_of
from prism_assets_tests.kernels.nested_lines import NestedLines, a_nested_table
from prism_assets_tests.kernels.test_nested import a_nested

PAIRS = "list<struct<a: bigint, b: string>>"
MANY = "struct<m: map<string(2), list<bigint>>, n: bigint>"
BOMB = """
import sys
from pathlib import Path
from prism_assets.kernels.convert import convert_object
from prism_assets_tests.kernels.builders import Lake, a_convert_task, a_table, a_value, an_object
from prism_assets_tests.kernels.test_nested import a_nested
from prism_assets_tests.peak_memory import peak_kilobytes
lines, elements, fields = map(int, sys.argv[2:])
kind = f"list<struct<{', '.join(f'f{number}: bigint' for number in range(fields))}>>"
content = an_object(a_value("[" + "{}," * elements + "{}]")) * lines
lake, task = Lake(Path(sys.argv[1])), a_convert_task(content_length=len(content))
lake.stores.put("staging", task.key, content)
before = peak_kilobytes()
result = convert_object(task, a_table(a_nested("v", kind, 2)), lake.stores, lake.lake)
after = peak_kilobytes()
print(result.rows_out, sum(error.count for error in result.value_errors), (after - before) // 1024)
"""

ASIDE = """
import sys
from pathlib import Path
from prism_assets.kernels.convert import convert_object
from prism_assets_tests.kernels.builders import Lake, a_convert_task, a_table, an_object
from prism_assets_tests.kernels.test_nested import a_nested
from prism_assets_tests.peak_memory import peak_kilobytes
kind = f"list<struct<{', '.join(f'f{number}: bigint' for number in range(80))}>>"
value = "[" + "{}," * 100_000 + "{}]"
content = an_object(*('{"c%d":%s,"time":1,"time":2}' % (number, value) for number in range(12)))
lake, task = Lake(Path(sys.argv[1])), a_convert_task(content_length=len(content))
lake.stores.put("staging", task.key, content)
before = peak_kilobytes()
table = a_table(*(a_nested(f"c{number}", kind, 2 + number) for number in range(12)))
result = convert_object(task, table, lake.stores, lake.lake)
after = peak_kilobytes()
print(result.lines_in, result.rows_out, (after - before) // 1024)
"""


def test_a_part_has_a_slot_and_elements_and_entries_are_counted_apart() -> None:
    kind = parse_type("struct<a: bigint, s: struct<b: list<struct<c: real, d: json>>>, m: map<string, list<real>>>")
    assert slots_of(kind) == 5
    assert slots_of(parse_type("bigint")) == slots_of(parse_type(PAIRS)) == 1
    assert (slots_below(parse_type(PAIRS)), slots_below(parse_type("map<string, struct<a: real>>"))) == (3, 3)


@pytest.mark.parametrize(
    ("text", "value", "slots"),
    [
        (PAIRS, "[{},null,7]", 9),
        ("list<bigint>", "[1, 2, 3]", 3),
        ("list<list<bigint>>", "[[], [1, 2], null]", 5),
        ("map<string, bigint>", '{"a": 1, "b": 2}', 4),
        (MANY, '{"m": {"k": [1, 2, 3], "j": [4, null]}}', 9),
        # Entries count as they are written, also where a key makes the map null.
        (MANY, '{"m": {"long": [1, 2]}, "n": "x"}', 4),
        (MANY, '{"m": {"k": [1, 2]}, "z": [[1, 2, 3]]}', 4),
        ("struct<a: list<bigint>, b: list<bigint>>", '{"b": [1], "\\u0061": [2, 3]}', 3),
    ],
)
def test_a_value_with_more_slots_than_may_be_is_null_and_its_row_stays(
    lake: Lake, text: str, value: str, slots: int
) -> None:
    table = a_table(a_nested("v", text, 2))
    content = an_object(a_value(value), a_value("null"))
    with patch.object(types, "MOST_SLOTS", slots):
        fits = lake.both(content, table)
    with patch.object(types, "MOST_SLOTS", slots - 1):
        large = lake.both(content, table)
    assert [row["v"] is None for row in fits.rows] == [False, True]
    assert ("v", "too_long") not in fits.value_errors
    assert [row["v"] for row in large.rows] == [None, None]
    assert large.value_errors == {("v", "too_long"): 1}
    assert large.result.undefined == ()


def test_a_key_that_occurs_twice_in_a_value_with_too_many_elements_sets_no_line_aside(lake: Lake) -> None:
    values = ['{"m": {"k": [1], "k": [2]}}', '{"n": 1, "n": 2, "m": {"k": [1]}}', '{"m": {"a": [1]}, "m": null}']
    content = an_object(*map(a_value, values))
    table = a_table(a_nested("v", MANY, 2))
    with patch.object(types, "MOST_SLOTS", 2):
        assert lake.both(content, table).value_errors == {("v", "too_long"): 3}
    with patch.object(types, "MOST_SLOTS", 6):
        assert lake.both(content, table).reasons == {"duplicate_key": 3}


def test_a_malformed_line_is_set_aside_wherever_its_value_has_too_many_elements(lake: Lake) -> None:
    content = an_object(a_value("[1,2,3,]"), a_value("[1,2,3" + "[" * 130), a_value('[1,2,"\\ud800"]'))
    with patch.object(types, "MOST_SLOTS", 1):
        outcome = lake.both(content, a_table(a_nested("v", "list<string>", 2)))
    assert outcome.reasons == {"bad_json": 1, "bad_utf8": 1, "too_deep": 1}


def test_too_many_elements_set_the_line_aside_where_misfits_do(lake: Lake) -> None:
    table = a_table(a_nested("v", PAIRS, 2), contract=Contract(misfits=SET_ASIDE))
    with patch.object(types, "MOST_SLOTS", 2):
        outcome = lake.both(an_object(a_value("[{}]"), a_value("[]")), table)
    assert (outcome.reasons, [line["column"] for line in outcome.quarantined]) == ({"misfit": 1}, ["v"])


def test_one_of_several_columns_with_the_same_key_may_be_too_large_alone(lake: Lake) -> None:
    table = a_table(a_nested("v", "list<json>", 3), replace(a_nested("wide", PAIRS, 2), source="v"))
    with patch.object(types, "MOST_SLOTS", 2):
        outcome = lake.both(an_object(a_value("[{},{}]")), table)
    assert [(row["v"], row["wide"]) for row in outcome.rows] == [(["{}", "{}"], None)]


def test_the_columns_of_a_row_share_the_slots_in_the_order_of_their_ids(lake: Lake) -> None:
    columns = [a_nested(name, "list<bigint>", 2 + place) for place, name in enumerate("abc")]
    lines = [{"a": [1, 2], "b": [3, 4], "c": [5]}, {"c": [5], "b": [3, 4], "a": [1, 2]}, {"c": [1, 2, 3], "b": [4]}]
    with patch.object(types, "MOST_SLOTS", 3):
        outcome = lake.both(an_object(*lines), a_table(*columns))
    rows = [[row[name] for name in "abc"] for row in outcome.rows]
    assert rows == [[[1, 2], None, [5]], [[1, 2], None, [5]], [None, [4], None]]
    assert outcome.value_errors == {("b", "too_long"): 2, ("c", "too_long"): 1}


def test_the_warning_names_the_limit_and_what_to_do() -> None:
    columns = [a_nested("v", PAIRS, 2)]
    (says,) = length_warnings(columns, [ValueErrors(column="v", reason="too_long", count=2)])
    assert says == (
        "v: 2 values are null, with more than 8,388,608 slots in lists and maps: leave out fields, or make it json"
    )


def test_the_warning_of_a_map_names_the_length_of_its_keys() -> None:
    columns = [a_nested("v", "map<string(4), string(200)>", 2), a_nested("w", "list<map<string(4), json(9)>>", 3)]
    counts = [ValueErrors(column=path, reason="too_long", count=1) for path in ("v{}", "w[]{}")]
    assert length_warnings(columns, counts) == (
        "v{}: 1 map is null, with a key longer than 4 bytes: write a greater `length`, at most 65,535",
        "w[]{}: 1 value is null, longer than 9 bytes: write a greater `length`, at most 65,535",
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_the_slots_of_a_value_are_the_lengths_of_its_arrays(seed: int) -> None:
    source = random.Random(seed)
    layout = layout_of(a_nested_table(source))
    for column, rules in zip(layout.columns, layout.rules, strict=True):
        if rules.nested is None:
            continue
        for _ in range(5):
            text = NestedLines(source)._value(column.type)
            try:
                read = rules.nested.read(scan_once(text, 0)[0], text)
            except RejectedError:
                continue
            builder = rules_of(column, layout.table.zone).builder()
            builder.add(scan_once(text, 0)[0], text)
            assert read.slots == _slots_in(builder.typed().array) - slots_of(column.type)
            if not any(reason == "too_long" for _, reason in read.misfits):
                assert rules.nested.slots.count(text) == read.slots <= rules.nested.slots.most(text)


def _slots_in(array: Any) -> int:
    nested = pa.types.is_nested(array.type)
    return len(array) + (sum(map(_slots_in, parts_in(array))) if nested else 0)


@needs_kernel
@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12), st.integers(1, 30))
def test_random_values_near_the_limit_give_the_same_blocks_and_parts(seed: int, most: int, most_slots: int) -> None:
    source = random.Random(seed)
    table = a_nested_table(source)
    layout = layout_of(table)
    block = Block(b"\n".join(a_nested_line(source, table) for _ in range(source.randint(1, 40))), 1)
    with patch.object(types, "MOST_SLOTS", most), patch.object(block_reader, "_MOST_SLOTS", most_slots):
        assert compare(layout, block) == ""
        ways = [list(BlockReader(layout, way).read_parts(block)) for way in Way]
    numbers = [[part.lines.numbers.tolist() for part in parts] for parts in ways]
    assert numbers[0] == numbers[1]
    for part in ways[0]:
        starts, ends = part.lines.starts.tolist(), part.lines.ends.tolist()
        lines = block.data.split(b"\n")
        found = [block.data[start:end] for start, end in zip(starts, ends, strict=True)]
        assert found == [lines[number - 1].removesuffix(b"\r") for number in part.lines.numbers.tolist()]


@needs_kernel
@pytest.mark.parametrize(
    ("lines", "elements", "fields", "nulls"),
    [
        pytest.param(1, 5_590_000, 90, 1, id="a value of 16 MiB, which would take 4 GB"),
        pytest.param(30, 160_000, 50, 0, id="lines of 8 million slots, which would take 2 GB"),
    ],
)
def test_elements_without_values_take_bounded_memory(
    tmp_path: Path, lines: int, elements: int, fields: int, nulls: int, long: bool
) -> None:
    if lines > 1 and not long:
        pytest.skip("20 seconds of processor time: with --long")
    command = [sys.executable, "-c", BOMB, str(tmp_path), str(lines), str(elements), str(fields)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows, errors, megabytes = map(int, done.stdout.split())
    assert (rows, errors) == (lines, nulls)
    assert megabytes < 1_200


@needs_kernel
def test_lines_that_are_set_aside_leave_no_memory_in_each_column(tmp_path: Path) -> None:
    """Each line has 8 million slots, in another column. Kept in all of them, they would take more than 1 GB."""
    command = [sys.executable, "-c", ASIDE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    lines, rows, megabytes = map(int, done.stdout.split())
    assert (lines, rows) == (12, 0)
    assert megabytes < 500

"""The compiled kernel: it reads every line as Python does, and its absence or failure changes no result."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import FREEZE
from prism_assets.kernels import fingerprint
from prism_assets.kernels.compiled import FailureLog, Kernel, KernelFailed, load, loaded_kernel
from prism_assets.kernels.fingerprint import fingerprint_by_columns, fingerprint_of
from prism_assets.kernels.json.block_reader import BlockReader, Way
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.compiled import CompiledReader
from prism_assets.kernels.reading import facts_of
from prism_assets.kernels.typed import Layout
from prism_assets_tests.kernels.builders import (
    TIME,
    Lake,
    a_column,
    a_convert_task,
    a_table,
    a_value,
    an_object,
    needs_kernel,
)
from prism_assets_tests.kernels.test_both_ways import PAIRS, agree, written
from prism_assets_tests.kernels.test_fingerprint import a_table_of
from prism_assets_tests.kernels.test_undefined import under

SOURCES = a_table(
    a_column("city", "string", 2, sources=("$.payload.a",)),
    a_column("second", "bigint", 3, sources=("$.payload[1].a",)),
    a_column("first", "string", 4, sources=("text", "$.rest.payload", "day")),
    a_column("spoken", "string", 5, sources=("rest", '@="none"')),
    a_column("where", "string", 6, sources=("$.payload.a.a", "@object")),
    a_column("number", "bigint", 7, sources=("n", "@line")),
    a_column("object", "string", 8, source="@object"),
    a_column("day", "date", 9),
    a_column("again", "timestamp", 10, source="day", time_unit="milliseconds"),
    a_column("whole", "json", 11, source="payload"),
)

# Keys of patterns are named by other columns, too, and belong to several patterns.
COLLECTED = a_table(
    a_column("rest", "json", 2, sources=("*",), length=60),
    a_column("texts", "string", 3, sources=("/^te|^pay/",), length=20),
    a_column("city", "string", 4, sources=("$.payload.a",)),
    a_column("n", "bigint", 5),
    a_column("number", "bigint", 6, sources=("/[0-9]/", "n", "*")),
    a_column("all", "json", 7, sources=("small", "/(?i)^.?A/", "*")),
)
MATCHED = a_table(
    a_column("some", "json", 2, sources=("/a/",)),
    a_column("again", "string", 3, sources=("/a/", "@line")),
    a_column("text", "string", 4),
    a_column("inner", "json", 5, sources=("$.payload.a", "/^[^a-z]/")),
)

# In the order of JSONTestSuite (Seriot, "Parsing JSON is a minefield"): numbers, objects, strings, structure, arrays.
SYNTAX = [
    "-", "-0", "0e1", "0e+", "0.e1", "1eE2", "1.0e", "-01", "-1.0.", "2.e3", "1e-7", "123e65", "0x1", "- 1", "１",
    "++1",
    "{}", '{"a":1,}', '{"a":1,,"b":2}', "{'a':1}", '{"a" "b"}', '{"a":"b"}#', '{a:"b"}', '{"":0}', '{"a":1 "b":2}',
    '{"a":/**/1}', '{"a":[}', '{1:1}', '{"\\u0000":1}', '{"a":1}{', '"\\u00e9"', '"\\uD834\\uDd1e"', '"\\uDADA"',
    '"\\uD800\\u"', '"\\uD800\\n"', '"\\uDd1e\\uD834"', '"\\u00A"', '"\\a"', '"\\"', '"\\\\"', '"\\/"', '"a\x00b"',
    '"\t"',
    '"\x7f"', '"', "'a'", '"\u2028"', '"\\uFFFF"', "[1,]", "[,1]", "[1,,2]", "[1 true]", "[", "]", "[[]", "[1]]", "[]x",
    "[ \t\r]", "nul", "truE", "[NaN]", "[-Infinity]", "[Infinity", "[-NaN]", "\ufeff1", "[\u000c]", "<null>", "*",
    "[" * 140,
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(PAIRS, max_size=4).map(written), min_size=1, max_size=20))
def test_paths_first_sources_and_facts_are_read_alike(lines: list[bytes]) -> None:
    agree(lines, SOURCES)
    agree(lines, under(SOURCES, FREEZE))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(PAIRS, max_size=5).map(written), min_size=1, max_size=20))
def test_collected_keys_are_read_alike(lines: list[bytes]) -> None:
    agree(lines, COLLECTED)
    agree(lines, MATCHED)
    agree(lines, under(MATCHED, FREEZE))


@pytest.mark.parametrize("place", ["@", "@ ", '{"v":@}', '{"other":@}', '{"v":{"a":@}}', '{"v":[@]}'])
def test_every_case_of_syntax_is_judged_alike(lake: Lake, place: str) -> None:
    table = a_table(a_column("v", "json", 2), a_column("inner", "string", 3, sources=("$.v.a", "v")))
    timed = place.replace("{", f'{{"time":"{TIME}",', 1)
    outcome = lake.both(an_object(*(timed.replace("@", text) for text in SYNTAX)), table)
    assert outcome.result.lines_in == len(SYNTAX)


def test_nesting_up_to_the_limit_is_read_and_deeper_lines_are_set_aside_alone(lake: Lake) -> None:
    lines = [a_value("[" * depth + "]" * depth) for depth in (126, 127, 128, 100_000, 1)]
    outcome = lake.both(an_object(*lines), a_table(a_column("v", "json", 2, length=1000)))
    assert outcome.reasons == {"too_deep": 2}
    assert len(outcome.rows) == 3


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_fingerprints_are_equal_with_and_without_the_kernel(rows: list[tuple[str, int]]) -> None:
    schema = pa.schema([
        pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})
        for number, (name, kind) in enumerate([("text", pa.string()), ("n", pa.int64())], start=1)
    ])  # fmt: skip
    table = a_table_of(rows, schema)
    assert fingerprint_of(table) == fingerprint_by_columns(table)


@needs_kernel
def test_all_lines_of_ordinary_columns_are_read_by_the_kernel() -> None:
    block = Block(an_object(a_value("[1]"), "{", a_value("2")), 1)
    read = CompiledReader(_layout(SOURCES), loaded_kernel().module).read(block)
    assert (read.compiled, [reject.reason for reject in read.rejects]) == (3, ["bad_json"])


@needs_kernel
@pytest.mark.parametrize("table", [COLLECTED, MATCHED])
def test_columns_that_collect_keys_are_read_by_the_kernel(table: TableDefinition) -> None:
    block = Block(an_object(a_value('1,"more":2'), "{", a_value("2")), 1)
    (read,) = BlockReader(_layout(table)).read_parts(block)
    assert (read.compiled, len(read.lines)) == (3, 3)


@needs_kernel
def test_a_key_is_held_against_the_patterns_once_in_a_block() -> None:
    layout = _layout(MATCHED)
    asked: list[str] = []
    judge = layout.lookups.keys.matching

    def matching(key: str) -> list[int]:
        asked.append(key)
        return judge(key)

    with patch.object(layout.lookups.keys, "matching", matching):
        reader = CompiledReader(layout, loaded_kernel().module)
    reader.read(Block(an_object(*[a_value('1,"\\u0061b":2'), a_value('1,"ab":2')] * 50), 1))
    assert asked == ["time", "v", "ab"]


def test_keys_of_any_characters_are_collected_as_they_are(lake: Lake) -> None:
    keys = ["", " ", '"', "\\", "/", "\0", "\x1f", "\x7f", "\n\t\r\b\f", "é\u2028\U0001f600", "NaN", "k" * 300]
    rows = [{"v": 1, **{key: [1, "a b"] for key in keys if key != left_out}} for left_out in keys]
    table = a_table(a_column("rest", "json", 2, sources=("*",)), a_column("some", "json", 3, sources=("/[^k]/",)))
    stored = lake.both(an_object(*rows, *(json.dumps({"time": TIME, **row}) for row in rows)), table).rows
    assert [{**json.loads(row["some"]), **json.loads(row["rest"] or "{}")} for row in stored] == [
        {"time": TIME, **row} for row in rows * 2
    ]


def test_a_collected_key_that_occurs_twice_rejects_the_line_for_the_first_column_that_reads_the_key(lake: Lake) -> None:
    lines = [
        a_value('1,"small2":1,"small\\u0032":1'),
        a_value('1,"x":1,"x":1'),
        a_value('1,"text":1,"text":1'),
        a_value('1,"payload":1,"payload":1'),
        a_value('1,"x":1,"x":"\\ud800"'),
    ]
    outcome = lake.both(an_object(*lines), COLLECTED)
    columns = [line.get("column") for line in outcome.quarantined]
    assert columns == ["number", "rest", "texts", "city", None]
    assert outcome.reasons == {"duplicate_key": 4, "bad_utf8": 1}


def test_a_time_that_is_collected_is_missing_without_keys_and_else_misfit(lake: Lake) -> None:
    table = a_table(a_column("when", "timestamp", 2, sources=("/^x/",)), partition_column="when")
    outcome = lake.both(an_object(a_value("1"), a_value('1,"x":1')), table)
    assert sum(outcome.reasons.values()) == 2
    assert len(outcome.reasons) == 2


@needs_kernel
def test_a_block_whose_keys_cannot_be_held_against_the_patterns_is_left_to_python() -> None:
    layout = _layout(a_table(a_column("some", "json", 2, sources=("/(/",))))
    with pytest.raises(KernelFailed, match="missing \\)"):
        CompiledReader(layout, loaded_kernel().module).read(Block(an_object(a_value("1")), 1))


def test_a_kernel_that_is_not_installed_is_no_fault() -> None:
    assert load("prism_kernel_of_nobody") == Kernel(why_not="the package prism_kernel_of_nobody is not installed")


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Path]:
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))


def test_a_folder_of_sources_is_no_kernel(modules: Path) -> None:
    (modules / "prism_kernel_sources").mkdir()
    assert load("prism_kernel_sources") == Kernel(why_not="the package prism_kernel_sources is not installed")


@pytest.mark.parametrize(
    ("source", "why_not"),
    [
        ("raise OSError('wrong ELF class')", "cannot be loaded: OSError: wrong ELF class"),
        ("import no_such_module_at_all", "cannot be loaded: ModuleNotFoundError"),
        ("SEAM = 0", "has interface 0 instead of 11: install the wheel of this version"),
        ("", "has interface None instead of 11: install the wheel of this version"),
    ],
)
def test_a_broken_kernel_is_left_out_with_its_reason(modules: Path, source: str, why_not: str) -> None:
    name = f"prism_kernel_in_{modules.name}"
    (modules / f"{name}.py").write_text(source)
    found = load(name)
    assert (found.module, found.is_broken) == (None, True)
    assert why_not in found.why_not


class FailingReader:
    """Fails as a panic in the kernel does."""

    def __init__(self, *_described: Any, **_more: Any) -> None: ...

    def read(self, _data: bytes, _first_line: int, _outer: Any, _most_slots: int) -> Any:
        raise RuntimeError("the compiled reader panicked: index out of bounds")


def test_after_a_panic_python_reads_the_block_and_the_rest_of_the_object(caplog: pytest.LogCaptureFixture) -> None:
    layout = _layout(SOURCES)
    blocks = [Block(an_object(a_value("1"), "{"), 1), Block(an_object(a_value("2")), 3)]
    reader = BlockReader(layout, kernel=Kernel(module=SimpleNamespace(Reader=FailingReader)))
    exact = BlockReader(layout, Way.LINES)
    with caplog.at_level(logging.WARNING):
        for block in blocks:
            (read,), (expected,) = reader.read_parts(block), exact.read_parts(block)
            assert sum(len(part.lines) for part in read.parts) == sum(len(part.lines) for part in expected.parts)
            assert read.rejects == expected.rejects
    (record,) = caplog.records
    assert "from line 1 on: the compiled reader panicked: index out of bounds" in record.getMessage()


def test_after_a_panic_python_computes_the_fingerprint_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def panic(_columns: Any, _row_count: int) -> int:
        raise RuntimeError("the compiled reader panicked: index out of bounds")

    schema = pa.schema([pa.field("n", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    table = a_table_of([(1,), (2,)], schema)
    monkeypatch.setattr(fingerprint, "loaded_kernel", lambda: Kernel(module=SimpleNamespace(fingerprint=panic)))
    with caplog.at_level(logging.WARNING):
        assert fingerprint_of(table) == fingerprint_by_columns(table)
    assert [record.getMessage() for record in caplog.records] == [
        "Python computes a fingerprint: the compiled reader panicked: index out of bounds"
    ]


def test_a_process_logs_one_failure_a_minute_and_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = FailureLog(lambda: now)
    with caplog.at_level(logging.WARNING):
        for second in (0, 1, 59, 60):
            now = second
            failures.log("reads an object", "panic")
    assert [record.getMessage() for record in caplog.records] == [
        "Python reads an object: panic",
        "Python reads an object: panic (2 earlier failures were not logged)",
    ]


def _layout(table: TableDefinition) -> Layout:
    return Layout.of(table, facts_of(a_convert_task())).reading

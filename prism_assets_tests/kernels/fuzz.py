"""Compares the compiled kernel with the line-by-line rules on random lines.

    .venv/bin/python -m prism_assets_tests.kernels.fuzz --lines 10_000_000 --seed 1

Lines begin as sound ones with values of any kind for any key. Most of them then lose, double or change some bytes. The
first difference ends the run with its block in a file, and the seed repeats the run.
"""

from __future__ import annotations

import argparse
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import FREEZE
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block
from prism_assets.kernels.json.compiled import CompiledReader
from prism_assets.kernels.json.lines import read_lines
from prism_assets.kernels.nested_arrays import with_leaves
from prism_assets.kernels.reading import facts_of
from prism_assets.kernels.typed import Layout
from prism_assets_tests.kernels.builders import TIME, a_convert_task
from prism_assets_tests.kernels.nested_lines import NestedLines, a_nested_table
from prism_assets_tests.kernels.test_both_ways import KEYS, TABLE
from prism_assets_tests.kernels.test_compiled import COLLECTED, MATCHED, SOURCES, SYNTAX
from prism_assets_tests.kernels.test_undefined import under

_LINES_OF_A_BLOCK = 500
_TIMES = (TIME, "2018-10-24", "20181024", "20181024T090023,5Z", "2018-10-24 24:00", "2018-10-24T23:59:60Z[Asia/Tokyo]")
_TEXTS = (
    "",
    "t",
    "false",
    "12",
    "-1.5e3",
    "NaN",
    "é\U0001f600",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\u0000",
    '\\"}',
    "a" * 20,
)
_NUMBERS = (
    "0",
    "-0.0",
    "1e39",
    "32768",
    "9223372036854775808",
    "1540339223.1239",
    "1e-400",
    "3.5e38",
    "123456789.12345",
)
_WORDS = ("null", "true", "false", "NaN", "-Infinity", "[]", "{}", " ")
_BYTES = tuple(b'{}[],:"\\ \t\r\x00\x1f\x7f\x80\xc3\xed\xff0-+.eEuntf/')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if why_not := loaded_kernel().why_not:
        sys.exit(f"nothing can be compared: {why_not}")
    source = random.Random(arguments.seed)
    tables = [TABLE, SOURCES, COLLECTED, MATCHED, *(under(table, FREEZE) for table in (TABLE, SOURCES, MATCHED))]
    layouts = [layout_of(table) for table in tables]
    for block in range(-(-arguments.lines // _LINES_OF_A_BLOCK)):
        layout = layouts[block % len(layouts)]
        make_line = partial(a_line, source)
        if block % (len(layouts) + 3) >= len(layouts):
            nested = a_nested_table(source)
            layout, make_line = layout_of(nested), partial(a_nested_line, source, nested)
        data = b"\n".join(make_line() for _ in range(_LINES_OF_A_BLOCK))
        if difference := compare(layout, Block(data, 1 + block * _LINES_OF_A_BLOCK)):
            Path("fuzz-difference.jsonl").write_bytes(data)
            sys.exit(f"block {block} of seed {arguments.seed}: {difference}; the lines lie in fuzz-difference.jsonl")
    print(f"{arguments.lines:,} lines of seed {arguments.seed}: no difference")


def compare(layout: Layout, block: Block) -> str:
    """Returns the first difference between the ways, or an empty text. Raises KernelFailed."""
    reader = CompiledReader.of(layout, loaded_kernel())
    if reader is None:
        return "the kernel does not read the table"
    compiled, exact = shown(reader.read(block)), shown(read_lines(layout, block))
    for name, value in exact.items():
        if compiled[name] != value:
            return f"{name}: {compiled[name]!r:.2000} instead of {value!r:.2000}"
    return ""


def shown(read: BlockRows) -> dict[str, Any]:
    """Returns everything that a block gives, as values that compare by content."""
    values: dict[str, Any] = {
        "lines": [found.tolist() for found in (read.lines.starts, read.lines.ends, read.lines.numbers)],
        "rejects": read.rejects,
        "undefined": read.undefined.found,
    }
    for rows in read.parts:
        values["rows"] = rows.lines.tolist()
        values["absent"] = rows.absent.tolist()
        misfits = [bad for bad in rows.misfits if len(bad.rows)]
        values["misfits"] = {(bad.column, bad.path, bad.reason): bad.rows.tolist() for bad in misfits}
        values["order of misfits"] = [(bad.column, bad.path, bad.reason) for bad in misfits if bad.path]
        values["types"] = _ids(rows.columns)
        values |= {f"column {place}": repr(exact_values(column)) for place, column in enumerate(rows.columns)}
    return values


def exact_values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.cast(with_leaves(column.type, _countable)).to_pylist()
    return values


def _countable(kind: pa.DataType) -> pa.DataType:
    return pa.type_for_alias(f"int{kind.bit_width}") if pa.types.is_temporal(kind) else kind


def _ids(columns: list[pa.Array]) -> str:
    """Returns types with the ids of their parts."""
    return str(pa.schema([pa.field("", column.type) for column in columns]).to_string(show_field_metadata=True))


def a_line(source: random.Random) -> bytes:
    """Returns a line that is sound, or was."""
    if not source.randrange(50):
        return source.choice(SYNTAX).encode()
    space = source.choice(("", "", "", " "))
    fields = [f'"{_key(source)}"{space}:{space}{_value(source, 3)}' for _ in range(source.randrange(6))]
    line = bytearray(f'{{"time":"{TIME}"{"," if fields else ""}{f"{space},".join(fields)}}}'.encode())
    return damaged(source, line)


def damaged(source: random.Random, line: bytearray) -> bytes:
    """Returns a line, or one time in three one with other bytes."""
    if source.randrange(3):
        return bytes(line)
    for _ in range(source.randint(1, 3)):
        _change(source, line)
    return bytes(line).replace(b"\n", b" ")


def _change(source: random.Random, line: bytearray) -> None:
    start = source.randrange(len(line) + 1)
    end = start + source.choice((0, 1, 1, 2, 8))
    match source.randrange(4):
        case 0:
            del line[start:end]
        case 1:
            line[start:end] = bytes([source.choice(_BYTES)])
        case 2:
            line[start:start] = line[start : end + 10]
        case _:
            line[start:start] = bytes([source.choice(_BYTES)])


def a_nested_line(source: random.Random, table: TableDefinition) -> bytes:
    """Returns a line for a table with nested columns that is sound, or was."""
    return damaged(source, bytearray(NestedLines(source).line(table)))


def _key(source: random.Random) -> str:
    return source.choice((*KEYS, *KEYS, "time", "new", "pay\\u006coad", "", "\\u0000", "a,", "k" * 201))


def _value(source: random.Random, depth: int) -> str:
    match source.randrange(9 if depth else 6):
        case 0 | 1:
            return f'"{source.choice(_TEXTS)}"'
        case 2:
            return f'"{source.choice(_TIMES)}"'
        case 3:
            return source.choice(_NUMBERS)
        case 4:
            return str(source.randint(-(10 ** source.randrange(21)), 10 ** source.randrange(21)))
        case 5:
            return source.choice(_WORDS)
        case 6:
            return "[" + ", ".join(_value(source, depth - 1) for _ in range(source.randrange(4))) + "]"
        case _:
            keys = ("a", "a", "payload", "b", "\\u0061")
            fields = (f'"{source.choice(keys)}":{_value(source, depth - 1)}' for _ in range(source.randrange(4)))
            return "{" + ",".join(fields) + "}"


def layout_of(table: TableDefinition) -> Layout:
    return Layout.of(table, facts_of(a_convert_task())).reading


if __name__ == "__main__":
    main()

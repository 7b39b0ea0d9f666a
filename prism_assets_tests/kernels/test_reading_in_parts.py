"""Blocks of many short lines are read in parts, with the result of whole blocks and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import DocumentFormat, Stream
from prism_assets.domain.streams.text_lines import CsvFormat
from prism_assets.kernels.json import block_reader
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_table, an_object, needs_kernel
from prism_assets_tests.kernels.test_nested import a_nested

LINES = an_object(
    {"v": "a", "tags": ["x", None]},
    b"",
    b" \r",
    {"v": "b" * 70_000, "other": 1},
    b"broken",
    {"v": 5, "tags": [{}]},
    b'{"v":"no time"}',
    {"v": "\u00e9", "tags": None, "more": {"a": 1}},
    b"\xff",
) + json.dumps({"time": TIME, "v": "without an end"}).encode()  # fmt: skip
RECORDS = [{"time": TIME, "v": "a"}, {"v": "no time"}, {"time": TIME, "tags": ["y"]}, 5, {"time": TIME, "v": "b"}]
DOCUMENTS = b"\n".join(json.dumps({"who": name, "r": RECORDS}).encode() for name in "xyz")
TEXT = b"".join(b"%s,%d\n" % (time.encode(), number) for number, time in enumerate([TIME, "no time", TIME, "", TIME]))
OBJECTS: Mapping[str, tuple[bytes, dict[str, Any]]] = {
    "lines": (LINES, {}),
    "lines of several tables": (LINES, {"route": Route(by="$.v", values=("\u00e9",), otherwise=True)}),
    "documents": (DOCUMENTS, {"format": DocumentFormat(records="$.r[*]")}),
    "text": (TEXT, {"format": CsvFormat(columns=("time", "v"))}),
}
BOMB = """
import sys
from pathlib import Path
from prism_assets.kernels.convert import convert_object
from prism_assets_tests.kernels.builders import Lake, a_column, a_convert_task, a_table
from prism_assets_tests.peak_memory import peak_kilobytes
columns = [a_column(f"c{number}", "bigint", number + 2) for number in range(800)]
lake, content = Lake(Path(sys.argv[1])), b"{}\\n" * 300_000
task = a_convert_task(content_length=len(content))
lake.stores.put("staging", task.key, content)
before = peak_kilobytes()
result = convert_object(task, a_table(*columns), lake.stores, lake.lake)
print(result.lines_in, result.rows_out, (peak_kilobytes() - before) // 1024)
"""


@pytest.mark.parametrize("name", OBJECTS)
def test_parts_of_one_line_and_of_a_few_give_what_whole_blocks_give(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content, stream = OBJECTS[name]
    table = a_table(a_column("v", "string", 2), a_nested("tags", "list<string>", 3))
    table = replace(table, streams=(Stream(name="pv_log", bucket="staging", key_prefix="in/", **stream),))
    whole = lake.both(content, table)
    assert whole.reasons
    assert whole.rows
    for budget, most_slots in ((1, 1), (120, 2), (1 << 20, 1), (1 << 20, 2)):
        monkeypatch.setattr(block_reader, "_BUDGET", budget)
        monkeypatch.setattr(block_reader, "_MOST_SLOTS", most_slots)
        assert lake.both(content, table).comparable() == whole.comparable()


@needs_kernel
def test_lines_without_a_value_take_no_memory_for_all_columns(tmp_path: Path) -> None:
    """As one block, 300,000 lines of two bytes take 2 GB in a table of 800 columns."""
    command = [sys.executable, "-c", BOMB, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    lines, rows, megabytes = map(int, done.stdout.split())
    assert (lines, rows) == (300_000, 0)
    assert megabytes < 900

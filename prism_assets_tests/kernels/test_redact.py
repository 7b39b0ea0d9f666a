"""Quarantined lines are searched for erasures block by block. Lines that may stay keep their bytes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from prism_assets.domain.work.redact import RedactResult, RedactTask
from prism_assets.kernels import quarantine, redact
from prism_assets.kernels.convert import convert_object
from prism_assets.kernels.expressions.predicate import make_erasure_rule
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.redact import redact_lines
from prism_assets_tests.kernels.builders import Lake, a_column, a_convert_task, a_table
from prism_assets_tests.kernels.test_documents import a_document_table

TABLE = a_table(a_column("n", "bigint", 2), a_column("v", "string", 3))
RULE = replace(make_erasure_rule(TABLE, "n % 100 = 7"), erasure_id=1)


def a_record(number: int, length: int = 10) -> dict[str, Any]:
    text = json.dumps({"n": number, "v": "é" * length}, ensure_ascii=False)
    return {"line": number, "reason": "missing_time", "column": "time", "text": text}


def packed(records: list[dict[str, Any]]) -> bytes:
    return gzip.compress("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in records).encode())


def redacted(lake: Lake, body: bytes) -> RedactResult:
    lake.stores.put("lake", "q/before.gz", body)
    source = replace(a_convert_task(), erasures=(RULE,))
    task = RedactTask(source=source, key="q/before.gz", output_key="q/after.gz")
    return redact_lines(task, TABLE, lake.stores, lake.lake)


def left(lake: Lake) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(lake.stores.get("lake", "q/after.gz")).splitlines()]


def test_lines_are_looked_through_without_all_of_them_in_memory(lake: Lake) -> None:
    records = [a_record(number, 10_000) for number in range(1_500)]
    body = packed(records)
    tracemalloc.start()
    try:
        result = redacted(lake, body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.failure, result.lines, result.erased) == (None, 1_500, 15)
    assert left(lake) == [record for record in records if record["line"] % 100 != 7]
    assert most < 28 << 20, "30 MB of lines were in memory, several times"


@pytest.mark.parametrize("lines", [1, 7, 1_000])
def test_what_is_left_is_the_same_bytes_whatever_is_in_memory_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    body = packed([a_record(number) for number in range(150)])
    whole = redacted(lake, body)
    expected = lake.stores.get("lake", "q/after.gz")
    monkeypatch.setattr(redact, "_BLOCK_LINES", lines)
    monkeypatch.setattr(quarantine, "_PIECE", 100)
    monkeypatch.setattr(redact, "LIMITS", Limits(quarantine=50))
    assert redacted(lake, body) == whole
    assert lake.stores.get("lake", "q/after.gz") == expected


@pytest.mark.parametrize("body", [b"", b"{}\n", packed([a_record(7)])[:-1], gzip.compress(b"{}\n{")], ids=range(4))
def test_what_does_not_end_or_is_no_such_object_is_told_as_damaged(lake: Lake, body: bytes) -> None:
    failure = redacted(lake, body).failure
    assert failure is not None
    assert "is damaged: remove its lines from quarantine" in failure.message


PERSON = b'{"time":"2018-10-24T09:00:23Z","n":7,"v":"five@x"}'
HOLDERS = {
    "a document without the key of its records": ("$.Records[*]", b'{"records":[%s]}' % PERSON),
    "an element of a second array": ("$.a[*][*]", b'{"a":[],"a":[{"c":%s}]}' % PERSON),
    "a second array": ("$.b[*]", b'{"b":[],"b":[%s]}' % PERSON),
    "a document of a damaged object": ("$.Records[*]", gzip.compress(b'{"records":[%s]}' % PERSON)[:-8] + b"12345678"),
    "a document after the last member": ("$.Records[*]", gzip.compress(b"{}") + b'{"records":[%s]}' % PERSON),
}


@pytest.mark.parametrize(("path", "content"), HOLDERS.values(), ids=HOLDERS)
def test_an_erasure_leaves_no_text_of_a_document_whose_records_it_cannot_judge(
    lake: Lake, path: str, content: bytes
) -> None:
    table = a_document_table(path, *TABLE.columns[1:])
    task = a_convert_task(7, content_length=len(content))
    lake.stores.put(task.bucket, task.key, content)
    converted = convert_object(task, table, lake.stores, lake.lake)
    assert converted.quarantine_key is not None
    assert b"five@x" in gzip.decompress(lake.stores.get("lake", converted.quarantine_key))
    source = replace(task, erasures=(RULE,))
    redaction = RedactTask(source=source, key=converted.quarantine_key, output_key="q/after.gz")
    result = redact_lines(redaction, table, lake.stores, lake.lake)
    assert (result.failure, result.erased, result.lines) == (None, 0, converted.lines_in - converted.rows_out)
    assert all("text" not in record for record in left(lake))

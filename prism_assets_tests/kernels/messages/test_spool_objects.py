"""Spool objects become rows like objects of lines: the same ledger, quarantine, erasures, rebuilds and trials."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat
from prism_assets.domain.streams.topic import TOMBSTONES, Tombstones
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertResult, OtherDefinition
from prism_assets.domain.work.rebuild import DayOfObject, RebuildTask
from prism_assets.domain.work.redact import RedactTask
from prism_assets.kernels import scratch
from prism_assets.kernels.convert import LIMITS, convert_object
from prism_assets.kernels.expressions.predicate import make_erasure_rule
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.json.blocks import LINE_LIMIT
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.rebuild import rebuild_object
from prism_assets.kernels.redact import redact_lines
from prism_assets.kernels.trial import FILTERED, try_object
from prism_assets_tests.kernels.builders import DAY, TIME, Lake, a_column, a_convert_task, a_line, a_table, an_object
from prism_assets_tests.kernels.messages.builders import KEY, AMessage, a_spool_object, a_topic_table
from prism_assets_tests.kernels.protoc import a_format, encoded
from prism_assets_tests.kernels.test_both_ways import LINES, TABLE

NUMBER = a_column("n", "bigint", 2)
OFFSET = a_column("offset", "bigint", 3, source="@offset")
PAGE = a_format("page.proto", "shop.PageView")
GLUE_ID = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")


def page(path: str) -> bytes:
    return encoded("page.proto", "shop.PageView", f'time: 1540339223000 path: "{path}"')


@settings(max_examples=40, deadline=None)
@given(LINES)
def test_messages_give_the_rows_of_the_same_lines(lines: list[bytes]) -> None:
    lines = [line for line in lines if line.strip(b" \t\r")]
    if not lines or lines[0].startswith(b"\xef\xbb\xbf") or any(line[:1] in (b"\0", b"\3") for line in lines):
        return
    topic = a_topic_table(*TABLE.columns[1:])
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        plain = lake.both(an_object(*lines), TABLE)
        spooled = lake.both(a_spool_object(*lines), topic, key=KEY)
    assert repr(spooled.rows) == repr(plain.rows)
    assert spooled.value_errors == plain.value_errors
    assert spooled.result.undefined == plain.result.undefined
    told = [(line["line"], line["reason"], line["column"]) for line in plain.quarantined]
    assert [(line["line"], line["reason"], line["column"]) for line in spooled.quarantined] == told


@pytest.mark.parametrize("tombstones", TOMBSTONES)
def test_a_tombstone_is_filtered_or_a_row_or_quarantined(lake: Lake, tombstones: Tombstones) -> None:
    time = a_column("time", "timestamp", 1, required=True, source="@timestamp")
    table = a_topic_table(NUMBER, a_column("key", "string", 4, source="@key"), tombstones=tombstones)
    table = replace(table, columns=(time, *table.columns[1:]))
    outcome = lake.both(a_spool_object(AMessage(0, b'{"n":1}', b"a"), AMessage(1, None, b"b")), table, key=KEY)
    rows = [(row["n"], row["key"]) for row in outcome.rows]
    assert (rows, outcome.result.lines_filtered, outcome.reasons) == {
        "filter": ([(1, "a")], 1, {}),
        "row": ([(1, "a"), (None, "b")], 0, {}),
        "reject": ([(1, "a")], 0, {"tombstone": 1}),
    }[tombstones]
    assert outcome.result.lines_in == 2
    if tombstones == "reject":
        assert outcome.quarantined == [{"line": 2, "reason": "tombstone", "column": None, "text": ""}]


@pytest.mark.parametrize("form", [None, CsvFormat(columns=("time", "n")), PAGE], ids=["JSON", "CSV", "protobuf"])
@pytest.mark.parametrize("tombstones", TOMBSTONES)
def test_tombstones_count_in_every_format(lake: Lake, form: object, tombstones: Tombstones) -> None:
    value = {type(None): a_line({}), CsvFormat: f"{TIME},1".encode()}.get(type(form)) or page("/a")
    table = a_topic_table(NUMBER, form=form, tombstones=tombstones)  # type: ignore[arg-type]
    outcome = lake.both(a_spool_object(None, value, None, value, None), table, key=KEY)
    result = outcome.result
    assert (result.lines_in, result.rows_out) == (5, 2)
    expected = {"filter": (3, {}), "row": (0, {"missing_time": 3}), "reject": (0, {"tombstone": 3})}
    assert (result.lines_filtered, outcome.reasons) == expected[tombstones]


def test_a_newline_in_a_value_divides_no_line(lake: Lake) -> None:
    value = f'{{"time":"{TIME}",\n "n":1,\r\n"v":"a\nb"}}\n'.encode()
    table = a_topic_table(NUMBER, a_column("v", "string", 4), OFFSET)
    outcome = lake.both(a_spool_object(value, a_line({"n": 2})), table, key=KEY)
    assert [(row["n"], row["offset"], row["v"]) for row in outcome.rows] == [(1, 0, "a b"), (2, 1, None)]


def test_an_empty_value_is_quarantined_alone(lake: Lake) -> None:
    values = [b"", a_line({"n": 1}), b" \r\n\t"]
    outcome = lake.both(a_spool_object(*values), a_topic_table(NUMBER), key=KEY)
    assert [(line["line"], line["reason"], line["text"]) for line in outcome.quarantined] == [
        (1, "bad_json", ""),
        (3, "bad_json", " \r\n\t"),
    ]
    assert (outcome.result.lines_in, outcome.result.rows_out) == (3, 1)


def test_a_quarantined_message_keeps_its_value(lake: Lake) -> None:
    values = [b'{"time":\n1', b"\xff\xfe", b'\x00\x00\x00\x00\x07{"n":3}']
    outcome = lake.both(a_spool_object(*values), a_topic_table(NUMBER), key=KEY)
    assert [(line["line"], line.get("text") or line.get("base64")) for line in outcome.quarantined] == [
        (1, '{"time":\n1'),
        (2, "//4="),
        (3, '{"n":3}'),
    ]


def test_a_message_above_16_mib_is_quarantined_alone(lake: Lake) -> None:
    long = b'{"v":"' + b"x" * LINE_LIMIT + b'"}'
    outcome = lake.convert(a_spool_object(a_line({"n": 1}), long, a_line({"n": 2})), a_topic_table(NUMBER), key=KEY)
    assert [row["n"] for row in outcome.rows] == [1, 2]
    (line,) = outcome.quarantined
    assert (line["line"], line["reason"], line["length"]) == (2, "line_too_long", len(long))
    assert len(line["text"]) == LINE_LIMIT


def test_a_schema_registry_leaves_no_trace_but_the_id(lake: Lake) -> None:
    table = a_topic_table(NUMBER, a_column("schema", "string", 4, source="@schema_id"))
    glue = GLUE_ID.bytes + zlib.compress(a_line({"n": 3}))
    values = [a_line({"n": 1}), b"\x00\x00\x00\x01\x02" + a_line({"n": 2}), b"\x03\x05" + glue]
    outcome = lake.both(a_spool_object(*values), table, key=KEY)
    assert [(row["n"], row["schema"]) for row in outcome.rows] == [(1, None), (2, "258"), (3, str(GLUE_ID))]


def test_a_bomb_of_glue_is_quarantined_and_takes_no_memory(lake: Lake) -> None:
    bombs = [b"\x03\x05" + GLUE_ID.bytes + zlib.compress(b" " * (LINE_LIMIT + 1), 9) for _ in range(3)]
    fits = b"\x03\x05" + GLUE_ID.bytes + zlib.compress(a_line({"n": 1}) + b" " * (8 << 20), 9)
    body = a_spool_object(*bombs, *[fits] * 12)
    tracemalloc.start()
    try:
        outcome = lake.convert(body, a_topic_table(NUMBER), key=KEY)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.reasons == {"line_too_long": 3}
    assert [line["length"] for line in outcome.quarantined] == [len(bombs[0])] * 3
    assert outcome.result.rows_out == 12
    assert most < 96 << 20, f"{most >> 20} MiB at once"


def test_protobuf_comes_without_a_length_and_with_the_path_of_its_type(lake: Lake) -> None:
    table = a_topic_table(a_column("path", "string", 2), OFFSET, form=PAGE)
    confluent, glue = b"\x00\x00\x00\x00\x09\x00", b"\x03\x00" + GLUE_ID.bytes + b"\x00"
    values = [page("/a"), confluent + page("/b"), glue + page("/c"), b"\x08", b""]
    outcome = lake.both(a_spool_object(*values), table, key=KEY)
    assert [(row["path"], row["offset"]) for row in outcome.rows] == [("/a", 0), ("/b", 1), ("/c", 2)]
    # An empty value is a message with the defaults of its type, here without a time.
    assert [(line["line"], line["reason"]) for line in outcome.quarantined] == [(5, "too_old"), (4, "bad_message")]
    assert json.loads(outcome.quarantined[0]["text"])["path"] == ""


@pytest.mark.parametrize("form", [CsvFormat(columns=("time", "n")), RegexFormat(regex=r"^(?P<time>[^,]+),(?P<n>\d*)$")])
def test_lines_of_text_may_end_and_need_no_header(lake: Lake, form: CsvFormat | RegexFormat) -> None:
    values = [f"{TIME},1\n".encode(), f"{TIME},2\r\n".encode(), b"", b"\n", f"{TIME},3".encode(), b"\xff", None]
    outcome = lake.both(a_spool_object(*values), a_topic_table(NUMBER, OFFSET, form=form), key=KEY)
    assert [(row["n"], row["offset"]) for row in outcome.rows] == [(1, 0), (2, 1), (3, 4)]
    assert [(line["line"], line["reason"]) for line in outcome.quarantined] == [
        (3, "bad_text"),
        (4, "bad_text"),
        (6, "bad_utf8"),
    ]
    assert (outcome.result.lines_in, outcome.result.lines_filtered) == (7, 1)


def test_a_quarantined_line_of_text_has_all_of_its_fields(lake: Lake) -> None:
    table = a_topic_table(NUMBER, form=CsvFormat(columns=("time", "n", "other")))
    outcome = lake.both(a_spool_object(b"never,1,more\n"), table, key=KEY)
    assert [json.loads(line["text"]) for line in outcome.quarantined] == [{"time": "never", "n": "1", "other": "more"}]


def test_a_damaged_object_fails_as_a_whole_and_is_told(lake: Lake) -> None:
    draw = random.Random(5)
    body = bytearray(a_spool_object(*(a_line({"v": draw.randbytes(20).hex()}) for _ in range(500))))
    body[len(body) // 2] ^= 1
    outcome = lake.convert(bytes(body), a_topic_table(NUMBER), key=KEY)
    failure = outcome.result.failure
    assert failure is not None
    assert failure.message.startswith(f"s3://staging/{KEY}: it is a damaged spool object (")
    assert (failure.transient, failure.at_source, outcome.stored) == (False, True, {})


def test_row_groups_are_read_one_by_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    body = a_spool_object(*(a_line({"n": n, "v": draw.randbytes(500).hex()}) for n in range(60_000)))
    monkeypatch.setattr(scratch, "_MEMORY", 1 << 20)  # the object itself goes to disk
    tracemalloc.start()
    try:
        result = _converted(lake, body, a_topic_table(NUMBER), Limits(rows=1 << 20))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.failure, result.rows_out) == (None, 60_000)
    assert most < 40 << 20, f"{most >> 20} MiB of 62 MB of messages at once"


def test_a_spool_object_on_disk_gives_the_same_bytes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    body = a_spool_object(*(a_line({"n": n}) if n % 9 else b"bad" for n in range(3_000)))
    table = a_topic_table(NUMBER, OFFSET)
    whole = lake.both(body, table, key=KEY)
    monkeypatch.setattr(scratch, "_MEMORY", 10)
    assert lake.both(body, table, key=KEY).stored == whole.stored


PERSON = AMessage(0, b'{"n":7,"v":"five@x"}', b"user-7")


@pytest.mark.parametrize("predicate", ["key = 'user-7'", "key = 'someone else'", "mixed = 'user-7'"])
def test_an_erasure_over_a_fact_keeps_no_text_of_a_quarantined_message(lake: Lake, predicate: str) -> None:
    """A quarantined message has lost its key, so nobody can say whether it is of the person."""
    table = a_topic_table(
        NUMBER, a_column("key", "string", 4, source="@key"), a_column("mixed", "string", 5, sources=("none", "@key"))
    )
    rule = replace(make_erasure_rule(table, predicate), erasure_id=1)
    outcome = lake.both(a_spool_object(PERSON), table, key=KEY, erasures=(rule,))
    (line,) = outcome.quarantined
    assert "text" not in line
    assert (line["reason"], line["line"], line["offset"], line["length"]) == ("missing_time", 1, 0, 20)
    assert _redacted_later(lake, table, rule) == [(None, "missing_time")]


def test_an_erasure_over_the_value_judges_quarantined_messages(lake: Lake) -> None:
    table = a_topic_table(NUMBER, a_column("key", "string", 4, source="@key"))
    rule = replace(make_erasure_rule(table, "n = 7"), erasure_id=1)
    body = a_spool_object(PERSON, b'{"n":\n7}', b'\x00\x00\x00\x00\x01{"n":7}', b'{"n":8}')
    outcome = lake.both(body, table, key=KEY, erasures=(rule,))
    assert (outcome.result.lines_erased, [line["text"] for line in outcome.quarantined]) == (3, ['{"n":8}'])
    assert _redacted_later(lake, table, rule, body) == [('{"n":8}', "missing_time")]


def test_rows_are_erased_by_facts(lake: Lake) -> None:
    table = a_topic_table(NUMBER, a_column("key", "string", 4, source="@key"))
    rule = replace(make_erasure_rule(table, "key = 'user-7'"), erasure_id=1)
    messages = [AMessage(0, a_line({"n": 7}), b"user-7"), AMessage(1, a_line({"n": 8}), b"user-8")]
    outcome = lake.both(a_spool_object(*messages), table, key=KEY, erasures=(rule,))
    assert (outcome.result.lines_erased, [row["n"] for row in outcome.rows]) == (1, [8])


def test_a_fact_opens_no_key_of_its_name_in_quarantine(lake: Lake) -> None:
    """The sensitive column takes all keys without a column, and `@key` is none of a line."""
    hidden = a_column("rest", "json", 4, sources=("*",), sensitive=True)
    table = a_topic_table(NUMBER, a_column("key", "string", 5, source="@key"), hidden)
    (line,) = lake.both(a_spool_object(b'{"time":"no","n":1,"@key":"canary"}'), table, key=KEY).quarantined
    assert json.loads(line["text"]) == {"time": "no", "n": 1, "@key": None}


def test_a_day_is_rebuilt_from_a_spool_object(lake: Lake) -> None:
    """Another column reads the offset by now, and tombstones are filtered, which were rows before."""
    time = a_column("time", "timestamp", 1, required=True, source="@timestamp")
    before = replace(a_topic_table(NUMBER, tombstones="row"), columns=(time, NUMBER))
    now = replace(a_topic_table(NUMBER, OFFSET), columns=(time, NUMBER, OFFSET))
    other_day = 1540339223000 + 86_400_000
    body = a_spool_object(
        AMessage(5, b'{"n":1}'), AMessage(6, None), AMessage(7, None, milliseconds=other_day), AMessage(8, b"bad")
    )
    task = a_convert_task(key=KEY, content_length=len(body))
    first = lake.convert(body, before, key=KEY).result
    assert (first.rows_out, first.quarantined[0].line_count) == (3, 1)
    rebuild = RebuildTask(
        source=replace(task, definition_version=2, rewrite_id=9),
        date=DAY,
        recorded=tuple(
            DayOfObject(date=small.date, definition_version=1, row_count=small.row_count) for small in first.objects
        ),
        definitions=(
            OtherDefinition(version=1, definition=before.to_json(), stream_name="events", read_definition=None),
        ),
        lines_in=4,
        quarantine_key=first.quarantine_key,
    )
    result = rebuild_object(rebuild, now, lake.stores, lake.lake)
    assert result.failure is None
    assert (result.lines_in, result.rows_out, result.lines_filtered, result.lines_quarantined) == (4, 1, 1, 1)
    assert result.small is not None
    (row,) = lake.table_at(result.small.key).to_pylist()
    assert (row["n"], row["offset"]) == (1, 5)


def test_a_trial_reads_the_first_messages_of_a_spool_object() -> None:
    table = a_topic_table(NUMBER, OFFSET)
    body = a_spool_object(a_line({"n": 1}), b"bad", None, a_line({"n": 4}), a_line({"n": 5}))
    trial = try_object(a_convert_task(key=KEY), table, lambda: _pieces(body), FirstLines(1 << 20, 4))
    assert (trial.lines_in, trial.filtered) == (4, 1)
    assert trial.fates() == {1: "row", 2: "bad_json", 4: "row"}
    assert FILTERED not in trial.fates().values()
    assert trial.rows["offset"].to_pylist() == [0, 3]


def test_a_trial_ends_with_its_bytes() -> None:
    body = a_spool_object(*(a_line({"n": n, "v": "x" * 1_000}) for n in range(20_000)))
    trial = try_object(a_convert_task(key=KEY), a_topic_table(NUMBER), lambda: _pieces(body), FirstLines(1 << 20))
    assert 1_000 < trial.lines_in < 10_000


def test_a_trial_of_a_topic_reads_plain_lines_of_json() -> None:
    body = an_object({"n": 1}, "bad")
    trial = try_object(
        a_convert_task(key=KEY), a_topic_table(NUMBER, OFFSET), lambda: iter([body]), FirstLines(1 << 20)
    )
    assert trial.fates() == {1: "row", 2: "bad_json"}
    assert trial.rows["offset"].to_pylist() == [0]


def test_a_spool_object_elsewhere_is_a_file_of_parquet(lake: Lake) -> None:
    failure = lake.convert(a_spool_object(a_line({})), a_table(NUMBER)).result.failure
    assert failure is not None
    assert "it is a file of Parquet" in failure.message


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[start : start + 100] for start in range(0, len(body), 100))


def _converted(lake: Lake, body: bytes, table: TableDefinition, limits: Limits = LIMITS) -> ConvertResult:
    lake.forget(7)
    task = a_convert_task(key=KEY, content_length=len(body))
    lake.stores.put(task.bucket, task.key, body)
    return convert_object(task, table, lake.stores, lake.lake, limits=limits)


def _redacted_later(
    lake: Lake, table: TableDefinition, rule: ErasureRule, body: bytes | None = None
) -> list[tuple[str | None, str]]:
    """Converts without the erasure, and then searches the quarantined lines for it."""
    first = _converted(lake, body or a_spool_object(PERSON), table)
    assert first.quarantine_key is not None
    source = a_convert_task(key=KEY, erasures=(rule,))
    task = RedactTask(source=source, key=first.quarantine_key, output_key="q/after.gz")
    result = redact_lines(task, table, lake.stores, lake.lake)
    assert result.failure is None
    lines = gzip.decompress(lake.stores.get("lake", "q/after.gz")).splitlines()
    return [(line.get("text"), line["reason"]) for line in map(json.loads, lines)]

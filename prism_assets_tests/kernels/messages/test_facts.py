"""Facts about messages in columns: alone, beside other sources, and of each type. Both ways of reading agree."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.domain.columns.types import Field, MapType, StringType
from prism_assets.domain.tables.options import Contract
from prism_assets.kernels.json import block_reader
from prism_assets.kernels.json.blocks import Block, divided
from prism_assets.kernels.messages.facts import MessageFacts
from prism_assets.kernels.messages.spool_file import SCHEMA, SpoolFile
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_line, a_table
from prism_assets_tests.kernels.messages.builders import (
    CREATED,
    KEY,
    AMessage,
    a_spool_object,
    a_topic_table,
)

BYTES = st.none() | st.text(max_size=5).map(str.encode) | st.binary(max_size=4) | st.sampled_from([b"7", b"2018-10-24"])
HEADERS = st.none() | st.lists(st.tuples(st.sampled_from(["x", "y", 'a"b', ""]), BYTES), max_size=4)
VALUES = st.one_of(
    st.fixed_dictionaries({}, optional={"m": st.none() | st.text(max_size=3), "n": st.integers(0, 9)}).map(a_line),
    st.sampled_from([b"", b" \n", b"[1]", b"{", b'{"time":"x"}', b"\x00\x00\x00\x00\x05{}", None]),
)
MESSAGES = st.builds(
    AMessage,
    st.integers(0, 2**62),
    VALUES,
    BYTES,
    HEADERS,
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(0, 2**63 - 1) | st.just(CREATED),
)
SOURCES = ("@topic", "@partition", "@offset", "@timestamp", "@key", "@header.x", "@headers", "@schema_id")
TYPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("string", {"length": 12}), ("bigint", {}), ("integer", {}), ("double", {}), ("boolean", {}), ("json", {}),
    ("timestamp", {}), ("date", {}), ("decimal", {"precision": 9, "scale": 2}),
)  # fmt: skip
EVERY_TYPE = a_topic_table(
    *(
        a_column(f"{source.strip('@').replace('.', '_')}_{kind}", kind, 10 + number, source=source, **more)
        for number, (source, kind, more) in enumerate((s, k, m) for s in SOURCES for k, m in TYPES)
    )
)
MIXED = a_topic_table(
    a_column("first", "string", 2, sources=("@key", "m")),
    a_column("last", "string", 3, sources=("m", "@header.x", "@key")),
    a_column("number", "bigint", 4, sources=("n", "@offset")),
    a_column("whole", "json", 5, sources=("@headers", "m")),
    a_column("day", "date", 6, sources=("@timestamp", "n")),
    a_column("topic", "string", 7, sources=("m", "@topic")),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=12))
@pytest.mark.parametrize("table", [EVERY_TYPE, MIXED], ids=["alone", "beside others"])
def test_both_ways_agree_on_facts_of_any_messages(table: Any, messages: list[AMessage]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = Lake(Path(folder)).both(a_spool_object(*messages), table, key=KEY)
    result = outcome.result
    assert result.failure is None
    assert result.lines_in == len(messages)
    assert result.lines_in == result.rows_out + result.lines_filtered + sum(outcome.reasons.values())


@settings(max_examples=25, deadline=None)
@given(st.lists(MESSAGES.map(lambda message: replace(message, content=a_line({}))), min_size=1, max_size=8))
def test_facts_are_those_of_the_message(messages: list[AMessage]) -> None:
    table = a_topic_table(
        a_column("topic", "string", 2, source="@topic"),
        a_column("partition", "integer", 3, source="@partition"),
        a_column("offset", "bigint", 4, source="@offset"),
        a_column("key", "string", 5, source="@key"),
        a_column("x", "string", 6, source="@header.x"),
        a_column("headers", "json", 7, source="@headers"),
        a_column("schema", "string", 8, source="@schema_id"),
        a_column("number", "bigint", 9, sources=("@line",)),
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = Lake(Path(folder)).convert(a_spool_object(*messages), table, key=KEY).rows
    assert sorted(rows, key=lambda row: row["number"]) == [
        {
            "time": CREATED,
            "topic": "app.events",
            "partition": message.of_partition,
            "offset": message.at,
            "key": _text(message.its_key),
            "x": _text(dict(_pairs(message)).get("x")),
            "headers": _written({name: _text(value) for name, value in _pairs(message)}),
            "schema": None,
            "number": number,
        }
        for number, message in enumerate(messages, 1)
    ]


def test_the_time_of_a_message_may_decide_over_the_day(lake: Lake) -> None:
    table = a_topic_table(a_column("n", "bigint", 2))
    time = a_column("time", "timestamp", 1, required=True, source="@timestamp")
    table = replace(table, columns=(time, *table.columns[1:]))
    messages = [AMessage(0, b'{"n":1}'), AMessage(1, b'{"n":2}', milliseconds=None)]
    outcome = lake.both(a_spool_object(*messages), table, key=KEY)
    assert outcome.rows == [{"time": CREATED, "n": 1}]
    assert outcome.reasons == {"missing_time": 1}


def test_a_time_far_beyond_the_calendar_does_not_fit(lake: Lake) -> None:
    table = a_topic_table(a_column("at", "timestamp", 2, source="@timestamp"))
    messages = [AMessage(0, a_line({}), milliseconds=CREATED * 1000), AMessage(1, a_line({}), milliseconds=2**63 - 1)]
    outcome = lake.both(a_spool_object(*messages), table, key=KEY)
    assert [row["at"] for row in outcome.rows] == [None, None]
    assert outcome.value_errors == {("at", "unfit"): 2}


def test_bytes_that_are_no_text_are_null_and_counted_once(lake: Lake) -> None:
    table = a_topic_table(
        a_column("key", "string", 2, source="@key"),
        a_column("x", "string", 3, source="@header.x"),
        a_column("headers", "json", 4, source="@headers"),
        a_column("mixed", "string", 5, sources=("@key", "m")),
        a_column("other", "bigint", 6, sources=("@key", "m")),
    )
    headers = [("x", b"fine"), ("x", b"\xff"), ("y", None)]
    messages = [AMessage(0, a_line({}), b"\xff", headers), AMessage(1, a_line({"m": "em"}), b"\xff")]
    outcome = lake.both(a_spool_object(*messages), table, key=KEY)
    assert outcome.rows == [
        {"time": CREATED, "key": None, "x": None, "headers": '{"x":null,"y":null}', "mixed": None, "other": None},
        {"time": CREATED, "key": None, "x": None, "headers": None, "mixed": "em", "other": None},
    ]
    assert outcome.value_errors == {
        ("key", "unfit"): 2, ("x", "unfit"): 1, ("headers", "unfit"): 1, ("mixed", "unfit"): 1, ("other", "unfit"): 2,
    }  # fmt: skip


def test_a_contract_quarantines_messages_with_a_key_that_is_no_text(lake: Lake) -> None:
    table = a_topic_table(a_column("key", "string", 2, source="@key"), contract=Contract(misfits="quarantine"))
    messages = [AMessage(0, a_line({}), b"\xff"), AMessage(1, a_line({}), b"fine")]
    outcome = lake.both(a_spool_object(*messages), table, key=KEY)
    assert [row["key"] for row in outcome.rows] == ["fine"]
    assert [(line["reason"], line["column"]) for line in outcome.quarantined] == [("misfit", "key")]


def test_headers_fill_a_map(lake: Lake) -> None:
    text = StringType()
    kind = MapType(Field(name="key", type=text, field_id=20), Field(name="value", type=text, field_id=21))
    table = a_topic_table(replace(a_column("headers", "json", 2, source="@headers"), type=kind))
    headers = [("x", b"1"), ("x", b"2"), ("y", None)]
    outcome = lake.both(a_spool_object(AMessage(0, a_line({}), None, headers)), table, key=KEY)
    assert outcome.rows == [{"time": CREATED, "headers": [("x", "2"), ("y", None)]}]


def test_a_key_with_the_name_of_a_fact_is_read_by_a_path(lake: Lake) -> None:
    table = a_topic_table(
        a_column("fact", "string", 2, source="@key"), a_column("key", "string", 3, sources=('$["@key"]',))
    )
    value = f'{{"time":"{TIME}","@key":"in the line"}}'.encode()
    outcome = lake.both(a_spool_object(AMessage(0, value, b"of the message")), table, key=KEY)
    assert outcome.rows == [{"time": CREATED, "fact": "of the message", "key": "in the line"}]


def test_elsewhere_a_fact_is_a_key_as_logstash_writes_it(lake: Lake) -> None:
    table = a_table(a_column("at", "string", 2, source="@timestamp"), a_column("v", "string", 3, source="@key"))
    line = f'{{"time":"{TIME}","@timestamp":"then","@key":"k"}}'.encode()
    assert lake.both(line, table).rows == [{"time": CREATED, "at": "then", "v": "k"}]


def test_plain_lines_of_a_sample_are_messages_without_key_and_headers(lake: Lake) -> None:
    table = a_topic_table(
        a_column("offset", "bigint", 2, source="@offset"),
        a_column("place", "string", 3, sources=("m", "@partition")),
        a_column("at", "timestamp", 4, source="@timestamp"),
        a_column("topic", "string", 5, source="@topic"),
        a_column("key", "string", 6, source="@key"),
        a_column("headers", "json", 7, source="@headers"),
    )
    outcome = lake.both(a_line({"m": "em"}) + b"\n\n" + a_line({}), table, key=KEY)
    facts = {"time": CREATED, "at": 1540436400000, "topic": "app.events", "key": None, "headers": None}
    assert outcome.rows == [{**facts, "offset": 0, "place": "em"}, {**facts, "offset": 2, "place": "0"}]


def test_facts_stay_with_their_lines_where_a_block_is_read_in_parts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_topic_table(
        a_column("n", "bigint", 2),
        a_column("offset", "bigint", 3, source="@offset"),
        a_column("mixed", "bigint", 4, sources=("none", "@offset")),
    )
    body = a_spool_object(*(AMessage(100 + n, a_line({"n": n}) if n % 7 else b"bad") for n in range(50)))
    whole = lake.both(body, table, key=KEY)
    monkeypatch.setattr(block_reader, "_BUDGET", 8 * 4 * 9)
    parts = lake.both(body, table, key=KEY)
    assert parts.comparable() == whole.comparable()
    assert [(row["offset"], row["mixed"]) for row in parts.rows] == [(100 + row["n"],) * 2 for row in parts.rows]
    assert len(parts.rows) == 42


def test_a_divided_block_keeps_its_facts() -> None:
    rows = pa.Table.from_pylist([], SCHEMA)
    facts = MessageFacts(1, rows, "app.events")
    assert [part.messages for _, part in divided(Block(b"{}\n" * 9, 1, messages=facts), 2)] == [facts] * 5


def test_facts_of_a_part_of_a_row_group_are_its_own() -> None:
    messages = [AMessage(at, b"{}", b"k%d" % at, [("x", b"h%d" % at)] * (at % 3)) for at in range(9)]
    (group,) = SpoolFile.open(pa.py_buffer(a_spool_object(*messages))).row_groups()
    facts = MessageFacts(5, group.slice(4), "app.events")
    assert facts.at("@header.x", np.array([5, 6, 9])).values.to_pylist() == ["h4", "h5", "h8"]
    assert facts.at("@headers", np.array([6, 7])).values.to_pylist() == ['{"x":"h5"}', None]
    assert facts.at("@key", np.array([9])).values.to_pylist() == ["k8"]


def _pairs(message: AMessage) -> list[tuple[str, Any]]:
    assert not isinstance(message.its_headers, dict)
    return list(message.its_headers or ())  # type: ignore[arg-type]


def _text(content: Any) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _written(headers: dict[str, str | None]) -> str | None:
    return json.dumps(headers, ensure_ascii=False, separators=(",", ":")) if headers else None

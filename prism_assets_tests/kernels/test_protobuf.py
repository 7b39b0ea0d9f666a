"""Streams of protobuf: columns, values, ledger and quarantine equal those of the same lines in JSON."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.stream import ProtobufFormat
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.json.blocks import LINE_LIMIT, LongLine
from prism_assets.kernels.protobuf.blocks import MessageBlock, split_messages
from prism_assets.kernels.protobuf.messages import DescriptorError, MessageType, UnreadableError, find_message
from prism_assets_tests.kernels.builders import Lake, Outcome, a_column, a_table, an_object, needs_kernel
from prism_assets_tests.kernels.protoc import a_format, a_stream, descriptor_set, encoded, framed, varint

MILLISECONDS = 1540339223000
"""2018-10-24T09:00:23+09:00, when the objects of the builders come."""
PAGE = a_format("page.proto", "shop.PageView")
ORDER = a_format("order.proto", "shop.Order")


def page(text: str = "", *, time: int = MILLISECONDS) -> bytes:
    return encoded("page.proto", "shop.PageView", f"time: {time} {text}")


def order(text: str) -> bytes:
    return encoded("order.proto", "shop.Order", text)


def said(message: bytes, given: ProtobufFormat = PAGE) -> dict[str, Any]:
    """Returns the content of a message, without the time."""
    document: dict[str, Any] = json.loads(MessageType(given).to_json(message))
    document.pop("time", None)
    return document


ABSENT = {
    "path": "", "status": 0, "seconds": 0.0, "share": 0.0, "cached": False, "kind": "UNKNOWN", "token": "", "tags": [],
    "followers": [], "counts": {}, "by_flag": {}, "big": 0, "delta": 0, "fixed": 0, "kinds": [],
}  # fmt: skip
"""Fields of proto3 without presence."""

SAID: dict[str, dict[str, Any]] = {
    "": {},
    'path: "/a\\n\\"b\\" \\303\\244" status: 404': {"path": '/a\n"b" ä', "status": 404},
    "retries: 0": {"retries": 0},
    "user {}": {"user": {"id": 0}},
    'user { id: 7 plan: "" }': {"user": {"id": 7, "plan": ""}},
    "seconds: 1e-320 share: 0.1": {"seconds": 1e-320, "share": 0.1},
    "share: 134217728": {"share": 134217728.0},
    "share: 1e-45": {"share": 1e-45},
    "kind: CLICK kinds: VIEW kinds: UNKNOWN": {"kind": "CLICK", "kinds": ["VIEW", "UNKNOWN"]},
    "kind: 9": {"kind": 9},
    'token: "\\000\\377"': {"token": "AP8="},
    'tags: "a" tags: ""': {"tags": ["a", ""]},
    'followers { id: 1 } followers { plan: "x" }': {"followers": [{"id": 1}, {"id": 0, "plan": "x"}]},
    'counts { key: "b" value: 2 } counts { key: "a" value: 1 }': {"counts": {"a": 1, "b": 2}},
    "by_flag { key: true value { id: 1 } }": {"by_flag": {"true": {"id": 1}}},
    "big: 18446744073709551615 delta: -3 fixed: 9": {"big": 2**64 - 1, "delta": -3, "fixed": 9},
    "seen { seconds: 1540339223 nanos: 5000000 }": {"seen": "2018-10-24T00:00:23.005Z"},
    "seen { seconds: 999999999999 nanos: 1 }": {"seen": {"seconds": 999999999999, "nanos": 1}},
    "took { seconds: 1 nanos: 500000000 }": {"took": "1.500s"},
    "note {} score { value: 3 }": {"note": "", "score": 3},
    'extra { fields { key: "k" value { list_value { values { bool_value: true } values { null_value: 0 } } } } }': {
        "extra": {"k": [True, None]}
    },
    'anything { struct_value { fields { key: "n" value { number_value: 1.5 } } } }': {"anything": {"n": 1.5}},
    "anything { null_value: 0 }": {"anything": None},
    "article: 0": {"article": 0},
    'tree { name: "a" child { name: "b" } others { name: "c" } }': {
        "tree": {"name": "a", "child": {"name": "b", "others": []}, "others": [{"name": "c", "others": []}]}
    },
}


@pytest.mark.parametrize("text", SAID)
def test_a_message_says_what_its_fields_say(text: str) -> None:
    assert said(page(text)) == ABSENT | SAID[text]


ORDERS: dict[str, dict[str, Any]] = {
    "time: 1": {"items": []},
    "time: 1 status: 200 state: OPEN": {"status": 200, "state": "OPEN", "items": []},
    'time: 1 items: [3, -4] Address { city: "Bern" }': {"items": [3, -4], "address": {"city": "Bern"}},
}


@pytest.mark.parametrize("text", ORDERS)
def test_a_default_of_proto2_is_no_value(text: str) -> None:
    assert said(order(text), ORDER) == ORDERS[text]


def test_only_the_fields_that_are_read_are_written() -> None:
    message = page('path: "/a" tags: "x"')
    assert json.loads(MessageType(PAGE, {"path", "absent"}).to_json(message)) == {"path": "/a"}
    assert b"tags" in MessageType(PAGE, {"path"}).to_whole_json(message)


def test_maps_are_written_in_one_order() -> None:
    entries = [f'counts {{ key: "k{number}" value: {number} }}' for number in range(40)]
    texts = {MessageType(PAGE).to_json(page(" ".join(order))) for order in (entries, entries[::-1])}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "content", [b"\x08", b"\xff\xff\xff", b"\x1a\x02\xff\xfe", b"\x07", page() + b"\x1a\x7fshort"], ids=bytes.hex
)
def test_bytes_that_are_no_message_are_refused(content: bytes) -> None:
    with pytest.raises(UnreadableError):
        MessageType(PAGE).to_json(content)


def test_a_message_that_nests_without_end_is_refused() -> None:
    tree = b""
    for _ in range(5_000):
        tree = b"\x12" + varint(len(tree)) + tree
    with pytest.raises(UnreadableError):
        MessageType(PAGE).to_json(b"\xc2\x01" + varint(len(tree)) + tree)


def test_a_message_without_a_required_field_is_refused() -> None:
    with pytest.raises(UnreadableError):
        MessageType(ORDER).to_json(b"\x10\x05")


TABLE_COLUMNS = (
    a_column("path", "string", 2),
    a_column("status", "bigint", 3),
    a_column("retries", "bigint", 4),
    a_column("seconds", "double", 5),
    a_column("kind", "string", 6),
    a_column("user_id", "bigint", 7, sources=("$.user.id",)),
    a_column("counts", "json", 8),
    a_column("line", "bigint", 9, sources=("@line",)),
)


def a_page_table(**more: Any) -> TableDefinition:
    table = a_table(*TABLE_COLUMNS, streams=(a_stream("page.proto", "shop.PageView"),), **more)
    time, *others = table.columns
    milliseconds = a_column("time", "timestamp", 1, required=True, time_unit="milliseconds")
    assert time.column_id == milliseconds.column_id
    return TableDefinition(**{**vars(table), "columns": (milliseconds, *others)})


def converted(lake: Lake, content: bytes, **more: Any) -> Outcome:
    return lake.both(content, a_page_table(**more))


def balance(outcome: Outcome) -> tuple[int, int, dict[str, int]]:
    """Returns lines, rows, and quarantined lines by reason. They add up."""
    result = outcome.result
    assert result.failure is None
    assert result.lines_in == result.rows_out + sum(outcome.reasons.values()) + result.lines_filtered
    return result.lines_in, result.rows_out, outcome.reasons


MESSAGES = [
    page('path: "/a" status: 200 user { id: 7 } counts { key: "x" value: 1 }'),
    page('path: "/b" retries: 0 kind: CLICK seconds: 0.25'),
    page('path: "/c"', time=1),
    page("seconds: nan"),
]


def test_rows_are_those_of_the_lines_that_say_the_same(lake: Lake) -> None:
    lines = [MessageType(PAGE).to_json(message) for message in MESSAGES]
    table = a_page_table()
    by_lines = lake.both(an_object(*lines), TableDefinition(**{**vars(table), "streams": ()}))
    by_messages = converted(lake, framed(MESSAGES))
    assert by_messages.rows == by_lines.rows or repr(by_messages.rows) == repr(by_lines.rows)
    assert by_messages.value_errors == by_lines.value_errors
    assert balance(by_messages) == balance(by_lines) == (4, 3, {"too_old": 1})
    (aside,), (line,) = by_messages.quarantined, by_lines.quarantined
    assert json.loads(aside.pop("text")) == json.loads(line.pop("text"))
    assert aside == line == {"line": 3, "reason": "too_old", "column": "time"}


def test_a_float_is_the_number_that_was_meant_in_every_column(lake: Lake) -> None:
    columns = [
        a_column("exact", "decimal", 2, precision=10, scale=2, source="share"),
        a_column("text", "string", 3, source="share"),
        a_column("single", "real", 4, source="share"),
        a_column("double", "double", 5, source="share"),
    ]
    table = a_page_table()
    table = TableDefinition(**{**vars(table), "columns": (table.columns[0], *columns)})
    (row,) = lake.both(framed([page("share: 0.29")]), table).rows
    assert (str(row["exact"]), row["text"], row["double"]) == ("0.29", "0.29", 0.29)
    assert row["single"] == struct.unpack("f", struct.pack("f", 0.29))[0]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_objects_are_packed_as_those_of_lines_are(lake: Lake, pack: Any) -> None:
    assert converted(lake, pack(framed(MESSAGES))).rows == converted(lake, framed(MESSAGES)).rows


@needs_kernel
def test_messages_are_read_by_the_kernel(lake: Lake) -> None:
    outcome = converted(lake, framed(page(f'path: "/{number}"') for number in range(50)))
    assert outcome.result.compiled_lines == 50


def test_fields_that_the_descriptor_does_not_know_are_passed_over(lake: Lake) -> None:
    later = encoded(
        "page_later.proto", "shop.PageView", f'time: {MILLISECONDS} path: "/x" campaign: "c" positions: [1, 2]'
    )
    outcome = converted(lake, framed([later]))
    assert balance(outcome) == (1, 1, {})
    assert outcome.rows[0]["path"] == "/x"


def test_a_message_that_is_none_is_set_aside_alone(lake: Lake) -> None:
    bad = b"\x1a\x02\xff\xfe"
    outcome = converted(lake, framed([MESSAGES[0], bad, MESSAGES[1]]))
    assert balance(outcome) == (3, 2, {"bad_message": 1})
    assert [row["line"] for row in outcome.rows] == [1, 3]
    assert outcome.quarantined == [
        {"line": 2, "reason": "bad_message", "column": None, "base64": base64.b64encode(bad).decode()}
    ]


BROKEN = {
    "the object ends in a message": framed(MESSAGES[:2]) + varint(100) + b"abc",
    "the object ends in a length": framed(MESSAGES[:2]) + b"\x80",
    "a length without end": framed(MESSAGES[:2]) + b"\xff" * 30,
    "a length beyond 2 GiB": framed(MESSAGES[:2]) + varint(1 << 31) + b"abc",
    "a length beyond the object": framed(MESSAGES[:2]) + varint(LINE_LIMIT + 5) + b"abc",
}


@pytest.mark.parametrize("case", BROKEN)
def test_behind_a_length_that_is_none_the_rest_is_one_line(lake: Lake, case: str) -> None:
    outcome = converted(lake, BROKEN[case])
    assert balance(outcome) == (3, 2, {"bad_framing": 1})
    rest = BROKEN[case][len(framed(MESSAGES[:2])) :]
    (aside,) = outcome.quarantined
    assert (aside["line"], aside["length"]) == (3, len(rest))
    kept = aside["text"].encode() if "text" in aside else base64.b64decode(aside["base64"])
    assert kept == rest


def test_lines_of_json_in_a_stream_of_protobuf_are_set_aside(lake: Lake) -> None:
    content = an_object({"path": "/a"}, {"path": "/b"})
    lines, rows, reasons = balance(converted(lake, content))
    assert rows == 0
    assert lines == sum(reasons.values()) > 0
    assert reasons.keys() <= {"bad_message", "bad_framing"}


def test_an_empty_object_has_no_line(lake: Lake) -> None:
    assert balance(converted(lake, b"")) == (0, 0, {})


def test_a_message_of_more_than_16_mib_is_set_aside_by_its_beginning(lake: Lake) -> None:
    long = b"\x1a" + varint(LINE_LIMIT) + b"x" * LINE_LIMIT
    outcome = converted(lake, framed([MESSAGES[0], long, MESSAGES[1]]))
    assert balance(outcome) == (3, 2, {"line_too_long": 1})
    (aside,) = outcome.quarantined
    assert (aside["line"], aside["length"]) == (2, len(long))
    assert base64.b64decode(aside["base64"]) == long[:LINE_LIMIT]


def test_a_message_is_kept_as_its_bytes_where_a_field_that_nobody_reads_is_no_text(lake: Lake) -> None:
    _, *columns = a_page_table().columns
    time = a_column("time", "timestamp", 1, required=True, time_unit="milliseconds")
    table = a_table(columns[1], streams=(a_stream("order.proto", "shop.Order"),))
    table = TableDefinition(**{**vars(table), "columns": (time, columns[1])})
    old = order("time: 1 status: 2") + b"\x3a\x02\xff\xfe"
    outcome = lake.both(framed([order(f"time: {MILLISECONDS} status: 1"), old]), table)
    assert balance(outcome) == (2, 1, {"too_old": 1})
    assert base64.b64decode(outcome.quarantined[0]["base64"]) == old


def test_blocks_have_no_more_messages_than_memory_holds() -> None:
    blocks = list(split_messages([bytes(200_000)], MessageType(ORDER)))
    assert sum(len(block.unread) for block in blocks if isinstance(block, MessageBlock)) == 200_000
    assert len(blocks) > 3


def test_of_an_unsound_object_all_messages_are_set_aside(lake: Lake) -> None:
    whole = gzip.compress(framed(MESSAGES * 50))
    outcome = converted(lake, whole[:-10])
    lines, rows, reasons = balance(outcome)
    assert (rows, list(reasons)) == (0, ["truncated"])
    assert lines > 100


def test_what_is_sensitive_is_not_in_what_is_set_aside(lake: Lake) -> None:
    table = a_page_table()
    secret = a_column("path", "string", 2, sensitive=True)
    table = TableDefinition(**{**vars(table), "columns": (table.columns[0], secret, *table.columns[2:])})
    bad = b"\x1a\x02\xff\xfe"
    content = framed([page('path: "canary"', time=1), bad])
    outcome = lake.both(content, table)
    assert b"canary" not in b"".join(gzip.decompress(outcome.stored[key]) for key in outcome.stored if "quar" in key)
    first, second = outcome.quarantined
    assert json.loads(first["text"])["path"] is None
    assert (second["offset"], second["length"]) == (len(content) - len(bad), len(bad))


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(0, 3))
def test_messages_do_not_hang_on_how_the_bytes_come(cuts: list[int], broken: int) -> None:
    content = framed(MESSAGES * 3) + b"\xff" * broken
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(content[start : start + cut])
        start += cut
    pieces.append(content[start:])
    assert _said_of(pieces) == _said_of([content])


def _said_of(pieces: list[bytes]) -> list[Any]:
    told: list[Any] = []
    for part in split_messages(pieces, MessageType(PAGE)):
        if isinstance(part, LongLine):
            told.append((part.line, part.head, part.length, part.offset, part.reason))
            continue
        assert isinstance(part, MessageBlock)
        told += zip(part.originals(), part.data.splitlines(), strict=True)
        told += part.unread
    return told


WRONG_FORMATS = {
    "shop.PageViw": "the descriptor set has no message shop.PageViw; did you mean shop.PageView?",
    "": "the descriptor set has no message ",
}


@pytest.mark.parametrize("name", WRONG_FORMATS)
def test_a_message_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(DescriptorError) as told:
        find_message(ProtobufFormat(message=name, descriptor_set=PAGE.descriptor_set))
    assert str(told.value).startswith(WRONG_FORMATS[name])


def test_a_file_that_is_no_descriptor_set_is_told() -> None:
    for content in (b"", b"\xff\xff", b"syntax = 'proto3';"):
        with pytest.raises(DescriptorError, match="protoc --include_imports"):
            find_message(ProtobufFormat(message="x", descriptor_set=base64.b64encode(content).decode()))


def test_a_descriptor_set_without_its_imports_is_told() -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(descriptor_set("page.proto"))
    last = FileDescriptorSet(file=[files.file[-1]]).SerializeToString()
    with pytest.raises(DescriptorError, match="--include_imports"):
        find_message(ProtobufFormat(message="shop.PageView", descriptor_set=base64.b64encode(last).decode()))

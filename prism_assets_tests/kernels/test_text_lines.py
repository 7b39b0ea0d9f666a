"""Lines of text: how a line is divided, what a header may be, and where a line goes that the format does not fit."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat, TextFormat, csv_problems
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import FREEZE, Contract
from prism_assets.kernels import reading
from prism_assets.kernels.compiled import Kernel
from prism_assets.kernels.json.blocks import BOM, LINE_LIMIT, Block, LongLine, split
from prism_assets.kernels.text_lines.blocks import TextBlock
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.kernels.text_lines.fields import divider_of
from prism_assets.kernels.text_lines.lines import MakeDivider, divide_lines, make_divider
from prism_assets.kernels.text_lines.read_fields import ReadFields
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_table, needs_kernel

ALB = (
    'https {time} app/lb/50dc 10.0.0.1:2817 - 0.086 -1 0.037 502 - 0 57 "GET https://a:443/?q=\\"x\\" HTTP/1.1" '
    '"curl/7.46.0" ECDHE TLSv1.2 arn:aws:x "Root=1-58" "-" "arn:aws:acm" 1 {time} "authenticate,forward" "-" "-"'
)
ALB_FORMAT = CsvFormat(
    delimiter=" ",
    escape="\\",
    nulls=("-",),
    columns=(
        *("type", "time", "elb", "client", "target", "request_s", "target_s", "response_s", "status", "target_status"),
        *("received", "sent", "request", "user_agent"),
    ),
)
CLF = RegexFormat(
    regex=(
        r"^(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "
        r'"(?P<request>[^"]*)" (?P<status>\d+)(?: (?P<size>\S+))?'
    ),
    nulls=("-",),
)
FLOW = "version account-id srcaddr bytes start\n2 012 10.0.0.1 4249 1540339223\n2 012 - - 1540339224\n"
COMMA = CsvFormat(columns=("time", "v", "w"))


def a_text_table(form: TextFormat, *columns: Any, **more: Any) -> TableDefinition:
    stream = Stream(name="pv_log", bucket="staging", key_prefix="in/", format=form, route=more.pop("route", None))
    return a_table(*columns, streams=(stream,), **more)


def lines_of(
    content: bytes, form: TextFormat, size: int = 1 << 20, make: MakeDivider = Divider
) -> Iterator[tuple[int, Any]]:
    """Yields number and fields of each line, or its reason."""
    for part in divide_lines(split(content[at : at + size] for at in range(0, len(content), size)), form, make=make):
        if isinstance(part, LongLine):
            yield part.line, part.reason
            continue
        yield from ((item.number, item.reason) for item in part.unread)
        for number, line in enumerate(part.data.split(b"\n"), part.first_line):
            if line:
                yield number, json.loads(line)


@pytest.mark.parametrize(
    ("form", "line", "fields"),
    [
        (CsvFormat(), "a,b,", ["a", "b", ""]),
        (CsvFormat(), 'a b,"c,""d""",""', ["a b", 'c,"d"', ""]),
        (CsvFormat(), 'a"b,c', ['a"b', "c"]),
        (CsvFormat(), '"a', None),
        (CsvFormat(), '"a"b,c', None),
        (CsvFormat(), '"a""', None),
        (CsvFormat(), r'"a\",b"', ["a\\", 'b"']),
        (CsvFormat(quote="]"), "]a,b],^", ["a,b", "^"]),
        (CsvFormat(quote="^", escape="]"), "^a]^,]]^,c", ["a^,]", "c"]),
        (CsvFormat(escape="\\"), r'"a\",b",\N', ['a",b', "\\N"]),
        (CsvFormat(escape="\\"), '"a\\', None),
        (CsvFormat(escape="\\"), '"a\\"', None),
        (CsvFormat(escape="\\"), r'"a\\","b""c"', ["a\\", 'b"c']),
        (CsvFormat(quote=""), '"a,b"', ['"a', 'b"']),
        (CsvFormat(quote="'"), "'a,b','it''s'", ["a,b", "it's"]),
        (CsvFormat(delimiter="|"), '"^]|[-"|b', ["^]|[-", "b"]),
        (CsvFormat(delimiter=" "), "a  b", ["a", "", "b"]),
    ],
)
def test_a_line_is_divided_at_delimiters_outside_of_quotes(form: CsvFormat, line: str, fields: list[str]) -> None:
    assert divider_of(form)(line, 9) == fields


def test_no_more_fields_are_looked_at_than_have_a_name() -> None:
    divide = divider_of(CsvFormat())
    assert divide("a,b,c", 2) == divide('a,"b",c', 2) == divide('"a",b,"open', 2) == ["a", "b"]
    assert len(divide("," * LINE_LIMIT, 3) or ()) == 3


@pytest.mark.parametrize("escape", ["", "\\"])
def test_a_field_of_quotes_takes_memory_in_proportion_to_it(escape: str) -> None:
    divide = divider_of(CsvFormat(escape=escape))
    line = '"' + '""' * 100_000
    tracemalloc.start()
    try:
        assert divide(line, 1) is None
        assert divide(f'{line}"', 1) == ['"' * 100_000]
        assert tracemalloc.get_traced_memory()[1] < 10 * len(line)
    finally:
        tracemalloc.stop()


@given(rows=st.lists(st.lists(st.text('ab",; \\\t', max_size=4), min_size=2, max_size=5), max_size=5))
def test_fields_are_those_that_a_writer_of_csv_wrote(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    divide = divider_of(CsvFormat())
    assert [divide(line, 9) for line in text.getvalue().split("\n")[:-1]] == rows


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_every_line_has_its_number_its_fields_or_its_reason(size: int) -> None:
    content = b'1,"a b"\r\n\n2,"open\nx"\n\xff,1\n3,4,5,6,7\n'
    found = sorted(lines_of(content, COMMA, size), key=lambda item: item[0])
    assert found == [
        (1, {"time": "1", "v": "a b"}),
        (3, "bad_text"),
        (4, {"time": 'x"'}),
        (5, "bad_utf8"),
        (6, {"time": "3", "v": "4", "w": "5"}),
    ]


def test_groups_of_a_match_are_fields_and_empty_ones_null() -> None:
    content = b'127.0.0.1 - - [t] "GET /a" 200 -\nnothing\n::1 - bob [t] "" 304\n'
    assert list(lines_of(content, CLF)) == [
        (2, "bad_text"),
        (1, {"ip": "127.0.0.1", "time": "t", "request": "GET /a", "status": "200"}),
        (3, {"ip": "::1", "user": "bob", "time": "t", "status": "304"}),
    ]


def test_fields_are_typed_as_texts_of_json_are(lake: Lake) -> None:
    columns = [
        a_column("request_s", "double", 2),
        a_column("target_s", "decimal", 3, precision=4, scale=1),
        a_column("status", "integer", 4),
        a_column("target_status", "integer", 5),
        a_column("request", "string", 6, length=200),
        a_column("line", "bigint", 7, source="@line", sources=("@line",)),
        a_column("type", "integer", 8),
    ]
    content = ALB.format(time=TIME).encode() + b"\n\n" + ALB.replace("502", '"503"').format(time=TIME).encode()
    outcome = lake.both(gzip.compress(content), a_text_table(ALB_FORMAT, *columns))
    assert [list(row.values())[1:8] for row in outcome.rows] == [
        [0.086, pytest.approx(-1), 502, None, 'GET https://a:443/?q="x" HTTP/1.1', 1, None],
        [0.086, pytest.approx(-1), 503, None, 'GET https://a:443/?q="x" HTTP/1.1', 3, None],
    ]
    assert outcome.value_errors == {("type", "unfit"): 2}
    as_json = json.dumps({"time": TIME, "request_s": "0.086", "target_s": "-1", "status": "502", "type": "https"})
    assert lake.convert(as_json.encode(), a_table(*columns)).rows[0]["request_s"] == outcome.rows[0]["request_s"]


def test_the_first_line_of_each_object_names_the_fields(lake: Lake) -> None:
    table = a_text_table(
        CsvFormat(header=True, delimiter=" ", nulls=("-",)),
        a_column("bytes", "bigint", 2),
        a_column("account", "string", 3, source="account-id", length=20),
        columns=(a_column("time", "timestamp", 1, source="start", required=True), a_column("bytes", "bigint", 2)),
    )
    outcome = lake.both(FLOW.encode(), table)
    assert [row["bytes"] for row in outcome.rows] == [4249, None]
    assert outcome.result.lines_in == 2
    turned = "start bytes\n1540339223 7\n"
    assert [row["bytes"] for row in lake.both(turned.encode(), table).rows] == [7]
    assert {(field.key, field.line) for field in outcome.result.undefined} == {
        ("version", 2),
        ("account-id", 2),
        ("srcaddr", 2),
    }


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"2018-10-24,5,x", b'time,"v', b"time,time", b"time,,v", b"\xff,time", b"a" * (LINE_LIMIT + 1)),
        b"time,v," + b"x" * 201,
        b"time,v," + b",".join(b"%0200d" % number for number in range(328)),
    ],
    ids=["empty", "data", "open", "twice", "no name", "no text", "long", "a long name", "many long names"],
)
def test_a_line_that_names_no_field_as_a_header_is_told_and_no_line_is_read(lake: Lake, header: bytes) -> None:
    table = a_text_table(CsvFormat(header=True), a_column("v", "bigint", 2))
    outcome = lake.both(header + b"\n" + f"{TIME},1\n{TIME},2\n".encode(), table)
    long = {"line_too_long": 1} if len(header) > LINE_LIMIT else {}
    assert outcome.rows == []
    assert outcome.reasons == {"bad_header": 2, **long}
    assert [item["text"] for item in outcome.quarantined if item["reason"] == "bad_header"] == [
        f"{TIME},1",
        f"{TIME},2",
    ]


def test_an_object_of_a_wrong_header_alone_is_told(lake: Lake) -> None:
    table = a_text_table(CsvFormat(header=True), a_column("v", "bigint", 2))
    outcome = lake.both(b"1,2\n", table)
    assert (outcome.result.lines_in, outcome.reasons) == (0, {"bad_header": 0})
    assert lake.both(b"v,time\n", table).reasons == {}
    assert lake.both(b"", table).reasons == {}


def test_tables_of_one_prefix_take_the_same_headers(lake: Lake) -> None:
    form = CsvFormat(header=True)
    content = f"kind,other,time\na,1,{TIME}\nb,2,{TIME}\n".encode()
    mine = a_text_table(form, a_column("v", "bigint", 2), route=Route(by="kind", values=("a",)))
    rest = a_text_table(form, a_column("v", "bigint", 2), route=Route(by="kind", values=("a",), otherwise=True))
    found = [lake.both(content, table).result for table in (mine, rest)]
    assert [(item.lines_in, item.rows_out, item.lines_elsewhere) for item in found] == [(2, 1, 1), (2, 1, 1)]


def test_a_routed_field_needs_no_column(lake: Lake) -> None:
    form = CsvFormat(columns=("kind", "time"))
    table = a_text_table(form, route=Route(by="kind", values=("a",)))
    outcome = lake.both(f'a,{TIME}\nb,{TIME}\n"open\n'.encode(), table)
    assert (outcome.result.lines_in, outcome.result.rows_out, outcome.result.lines_elsewhere) == (3, 1, 2)


def test_names_in_the_table_file_are_no_undefined_fields(lake: Lake) -> None:
    content = f"{TIME},1,2,3\n".encode()
    for contract in (Contract(), Contract(new_fields=FREEZE)):
        outcome = lake.both(content, a_text_table(COMMA, a_column("v", "bigint", 2), contract=contract))
        assert (len(outcome.rows), outcome.result.undefined) == (1, ())


def test_a_header_with_a_new_field_is_one_for_the_contract(lake: Lake) -> None:
    form = CsvFormat(header=True)
    content = f"time,v,new\n{TIME},1,x\n{TIME},2,\n".encode()
    frozen = a_text_table(form, a_column("v", "bigint", 2), contract=Contract(new_fields=FREEZE))
    outcome = lake.both(content, frozen)
    assert (len(outcome.rows), outcome.reasons) == (1, {"undefined_field": 1})


def test_all_other_fields_go_to_a_column_for_them(lake: Lake) -> None:
    rest = a_column("rest", "json", 2, source="*", sources=("*",), length=200)
    outcome = lake.both(f"{TIME},1,x\n".encode(), a_text_table(COMMA, rest))
    assert outcome.rows[0]["rest"] == '{"v":"1","w":"x"}'


def test_quarantine_keeps_the_fields_of_a_line_and_the_text_of_another(lake: Lake) -> None:
    outcome = lake.both(b'no,1,x,y\n"open\n', a_text_table(COMMA, a_column("v", "bigint", 2)))
    assert outcome.quarantined == [
        {"line": 1, "reason": "bad_time", "column": "time", "text": '{"time":"no","v":"1","w":"x"}'},
        {"line": 2, "reason": "bad_text", "column": None, "text": '"open'},
    ]


@pytest.mark.parametrize("form", [COMMA, RegexFormat(regex=r"^(?P<time>[^,]*),(?P<v>[^,]*),(?P<w>[^,]*)$")])
def test_sensitive_fields_are_blanked_and_of_other_lines_only_the_place_is_kept(lake: Lake, form: TextFormat) -> None:
    secret = a_column("w", "string", 3, length=20, sensitive=True)
    outcome = lake.both(b'no,1,secret\n"secret\n', a_text_table(form, a_column("v", "bigint", 2), secret))
    first, last = outcome.quarantined
    assert first["text"] == '{"time":"no","v":"1","w":null}'
    place = {"object": "s3://staging/in/7.json", "offset": 12, "length": 7}
    assert last == {"line": 2, "reason": "bad_text", "column": None, **place}
    assert all(b"secret" not in gzip.decompress(body) for key, body in outcome.stored.items() if key.endswith(".gz"))


def test_lines_of_a_damaged_object_are_set_aside_without_its_header(lake: Lake) -> None:
    table = a_text_table(CsvFormat(header=True, delimiter=" "), a_column("bytes", "bigint", 2))
    content = gzip.compress(FLOW.replace("start", "time").encode())[:-4]
    outcome = lake.both(content, table)
    assert (outcome.result.lines_in, outcome.reasons) == (2, {"truncated": 2})


def test_a_line_without_an_end_is_cut_and_counted(lake: Lake) -> None:
    content = f"{TIME},1\n".encode() + b'"' + b"x" * (LINE_LIMIT + 5) + f"\n{TIME},3".encode()
    outcome = lake.both(content, a_text_table(COMMA, a_column("v", "bigint", 2)))
    assert [row["v"] for row in outcome.rows] == [1, 3]
    assert outcome.reasons == {"line_too_long": 1}


@pytest.mark.parametrize(
    "form", [CsvFormat(columns=("v", "w"), delimiter="\t"), RegexFormat(regex="^(?P<v>[\t\r ]+)$")]
)
def test_only_an_empty_line_is_no_line_as_others_have_fields(lake: Lake, form: TextFormat) -> None:
    received = a_column("time", "timestamp", 1, source="@received", sources=("@received",))
    columns = (received, a_column("line", "bigint", 2, source="@line", sources=("@line",)))
    outcome = lake.both(b"\t\n\n\r\n \r\n\r\r\n\t", a_text_table(form, columns=columns))
    assert [row["line"] for row in outcome.rows] == [1, 4, 5, 6]
    assert outcome.result.lines_in == 4


def test_a_byte_order_mark_is_no_part_of_the_first_name(lake: Lake) -> None:
    table = a_text_table(CsvFormat(header=True), a_column("v", "bigint", 2))
    assert [row["v"] for row in lake.both(f"\ufefftime,v\r\n{TIME},1\r\n".encode(), table).rows] == [1]


@given(data=st.binary(max_size=80), size=st.integers(1, 80))
def test_each_line_that_is_not_empty_is_told_once_for_any_bytes(data: bytes, size: int) -> None:
    content = data.replace(b"\x00", b'"').replace(b"\x01", b"\n").replace(b"\x02", b",")
    lines = enumerate(content.removeprefix(BOM).split(b"\n"), 1)
    numbers = [number for number, line in lines if line not in (b"", b"\r")]
    for form in (COMMA, RegexFormat(regex="^(?P<a>[^,]+),(?P<b>.*)$")):
        assert sorted(number for number, _ in lines_of(content, form, size)) == numbers


@needs_kernel
@given(
    data=st.lists(st.sampled_from([*"ab,;\\'\"\t \x01\x7f", "\n", "\r\n", "é", "-", "\udcff"]), max_size=40),
    signs=st.tuples(st.sampled_from(",;\t "), st.sampled_from(["", "'", '"', "a"]), st.sampled_from(["", "\\", "b"])),
    header=st.booleans(),
    nulls=st.sampled_from([(), ("",), ("-", "ab")]),
    keys=st.sampled_from([None, (), ("y",), ("x", 'z"')]),
    size=st.integers(1, 40),
)
def test_both_ways_divide_lines_alike(
    data: list[str],
    signs: tuple[str, str, str],
    header: bool,
    nulls: tuple[str, ...],
    keys: tuple[str, ...] | None,
    size: int,
) -> None:
    delimiter, quote, escape = signs
    names = () if header else ("x", "y", 'z"')
    form = CsvFormat(delimiter=delimiter, quote=quote, escape=escape, header=header, columns=names, nulls=nulls)
    content = "".join(data).encode(errors="surrogateescape")
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    read_fields = ReadFields(keys=keys)
    slow, fast = (
        [comparable(part) for part in divide_lines(split(pieces), form, read_fields, make=make)]
        for make in (Divider, make_divider())
    )
    assert fast == slow


def comparable(part: Block | LongLine) -> Any:
    if not isinstance(part, TextBlock):
        return part
    originals = [(number, original, part.original(number, 0, 0)) for number, original in part.originals()]
    return part.data, part.first_line, part.offset, part.unread, part.content, originals


@needs_kernel
def test_after_a_panic_of_the_kernel_python_divides_the_object(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panicking:
        def __init__(self, *_: Any) -> None:
            """Takes anything."""

        def divide(self, *_: Any) -> None:
            raise RuntimeError("the compiled reader panicked")

    kernel = Kernel(SimpleNamespace(TextDivider=Panicking))
    monkeypatch.setattr(reading, "make_divider", lambda: make_divider(kernel))
    outcome = lake.convert(f"{TIME},1\n".encode(), a_text_table(COMMA, a_column("v", "bigint", 2)))
    assert ([row["v"] for row in outcome.rows], outcome.result.compiled_lines) == ([1], 0)


@pytest.mark.parametrize(
    ("form", "key"),
    [
        (CsvFormat(), "columns"),
        (CsvFormat(columns=("a", "a")), "columns"),
        (CsvFormat(columns=("a", " ")), "columns"),
        (CsvFormat(columns=tuple(map(str, range(2_001)))), "columns"),
        (CsvFormat(columns=("a" * 201,)), "columns"),
        (CsvFormat(columns=tuple(f"{number:0200}" for number in range(328))), "columns"),
        (CsvFormat(header=True, columns=("a",)), "columns"),
        (CsvFormat(header=True, delimiter=""), "delimiter"),
        (CsvFormat(header=True, delimiter="::"), "delimiter"),
        (CsvFormat(header=True, delimiter="é"), "delimiter"),
        (CsvFormat(header=True, delimiter='"'), "quote"),
        (CsvFormat(header=True, escape='"'), "escape"),
        (CsvFormat(header=True, quote="", escape="\\"), "escape"),
    ],
)
def test_what_is_wrong_with_a_format_is_told_at_its_key(form: CsvFormat, key: str) -> None:
    assert key in [place for place, _ in csv_problems(form)]

"""Records of JSON documents: where they are found, what damage costs, and what each byte of an object becomes."""

from __future__ import annotations

import gzip
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from prism_assets.domain.streams.documents import record_steps
from prism_assets.domain.streams.sources import Outer, parse_source
from prism_assets.domain.streams.stream import DocumentFormat, Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels import reading
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.documents.compiled import CompiledScanner
from prism_assets.kernels.documents.scanner import Scanner
from prism_assets.kernels.documents.splitter import MakeScanner, make_scanner, split_documents
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.json.block_reader import Way
from prism_assets.kernels.json.blocks import LINE_LIMIT, Block, LongLine
from prism_assets.kernels.trial import try_object
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_convert_task, a_table

DOCS = [{"id": number, "t": 'x{"y', "l": [{"id": 9}]} for number in range(4)]
HOSE = "".join(map(json.dumps, DOCS)).encode()
PRETTY = "\n".join(json.dumps(document, indent=2) for document in DOCS).encode()
WRAPPED = json.dumps({"Records": DOCS}).encode()
WRAPPED_PRETTY = json.dumps({"Records": DOCS}, indent=1).encode()
ARRAY_LINES = b"[\n" + b",\n".join(json.dumps(document).encode() for document in DOCS) + b"\n]\n"
OTLP = json.dumps(
    {
        "resourceLogs": [
            {
                "scopeLogs": [{"logRecords": DOCS[:2], "scope": "late"}, {"scope": "empty"}],
                "resource": {"name": "shop"},
            },
            {"resource": {"name": "cart"}, "scopeLogs": [{"scope": "app", "logRecords": DOCS[2:]}]},
            {"resource": {}, "scopeLogs": None},
        ],
        "sent": 1,
    }
).encode()
OTLP_PATH = "$.resourceLogs[*].scopeLogs[*].logRecords[*]"
SHAPES = {
    "}{": (HOSE, "$"),
    "pretty": (PRETTY, "$"),
    "wrapped": (WRAPPED, "$.Records[*]"),
    "wrapped and pretty": (WRAPPED_PRETTY, "$.Records[*]"),
    "array over lines": (ARRAY_LINES, "$[*]"),
    "three arrays": (OTLP, OTLP_PATH),
}


@dataclass(frozen=True)
class Got:
    """One piece of an object."""

    number: int
    reason: str | None
    content: bytes
    offset: int
    length: int
    line: bytes
    outer: tuple[str, ...] | None

    @property
    def id(self) -> Any:
        return json.loads(self.line)["id"]


def pieces_of(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def split(
    content: bytes, path: str, outer: Sequence[str] = (), size: int = 1 << 20, make: MakeScanner = Scanner
) -> list[Got]:
    sources = [source for text in outer if isinstance(source := parse_source(text), Outer)]
    got: list[Got] = []
    for part in split_documents(pieces_of(content, size), record_steps(path), sources, make=make):
        if isinstance(part, LongLine):
            got.append(Got(part.line, part.reason, part.head, part.offset, part.length, b"", None))
        else:
            got += lines_of(part)
    return got


def lines_of(block: Block) -> Iterator[Got]:
    unread = {item.number: item for item in block.unread}
    runs, around = list(block.outer), None
    for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
        while runs and runs[0].first <= number:
            around = tuple(text for _, text in runs.pop(0).values)
        original = block.original(number, 0, 0)
        reason = unread[number].reason if number in unread else None
        outer = around if reason is None else None
        yield Got(number, reason, original.content, original.offset, original.length, line, outer)


def ids(got: list[Got]) -> list[Any]:
    return [item.id for item in got if item.reason is None]


def reasons(got: list[Got]) -> list[str]:
    return [item.reason for item in got if item.reason is not None]


def lost_quote(content: bytes, number: int) -> bytes:
    """Takes away the first quote after the text `t` of a document."""
    at = content.index(b'"t":', content.index(b'"id": %d' % number)) + 5
    return content[:at] + content[at + 1 :]


@pytest.mark.parametrize(("content", "path"), SHAPES.values(), ids=SHAPES)
def test_each_record_is_found_with_its_place(content: bytes, path: str) -> None:
    got = split(content, path, size=7)
    assert [item.number for item in got] == [1, 2, 3, 4]
    assert [json.loads(item.line) for item in got] == DOCS
    for item in got:
        assert content[item.offset : item.offset + item.length] == item.content
        assert b"\n" not in item.line


@pytest.mark.parametrize(
    ("shape", "rows", "aside"),
    [
        ("}{", [0], 1),
        ("pretty", [0, 2, 3], 1),
        ("wrapped", [0], 1),
        ("wrapped and pretty", [0, 2, 3], 1),
        ("array over lines", [0, 2, 3], 1),
    ],
)
def test_after_a_lost_quote_reading_goes_on_only_where_a_line_proves_the_next_record(
    shape: str, rows: list[int], aside: int
) -> None:
    content, path = SHAPES[shape]
    got = split(lost_quote(content, 1), path)
    assert ids(got) == rows
    assert reasons(got) == ["bad_json"] * aside
    assert b'"id": 1' in next(item.content for item in got if item.reason)


@pytest.mark.parametrize(("content", "path"), SHAPES.values(), ids=SHAPES)
def test_an_object_cut_at_any_byte_keeps_the_records_before_the_cut_and_tells_the_rest(
    content: bytes, path: str
) -> None:
    whole = split(content, path)
    for cut in range(len(content)):
        got = split(content[:cut], path)
        before = [item for item in whole if item.offset + item.length <= cut]
        assert [item.content for item in got if item.reason is None] == [item.content for item in before]
        told = {"bad_json", "no_records"} & set(reasons(got))
        is_between = path == "$" and not content[len(before) and before[-1].offset + before[-1].length : cut].strip()
        is_before = not content[:cut].strip()
        is_after = not content[cut:].strip()
        assert bool(told) != (is_between or is_before or is_after), content[:cut]


@pytest.mark.parametrize(
    ("content", "path", "expected"),
    [
        (b'{"a":1}{"Records":[{}]}', "$.Records[*]", [("no_records", b'{"a":1}'), (None, b"{}")]),
        (b'{"Records":5}', "$.Records[*]", [("no_records", b'{"Records":5}')]),
        (b'{"Records":"[","x":[1]}', "$.Records[*]", [("no_records", b'{"Records":"[","x":[1]}')]),
        (b'{"Records":null}', "$.Records[*]", [("no_records", b'{"Records":null}')]),
        (b'{"Records":[]}', "$.Records[*]", []),
        (b'{"a":{}}{"a":{"b":null}}{"a":{"b":[]}}', "$.a.b[*]", []),
        (b'{"a":{"b":nul}}', "$.a.b[*]", [("no_records", b'{"a":{"b":nul}}')]),
        (b'{"a":{"b":null}}{"a":{"b":{}}}', "$.a.b", [(None, b"{}")]),
        (b'{"a":[{"b":null},{"b":{}},{"b":nul}]}', "$.a[*].b", [(None, b"{}"), ("no_records", b'{"b":nul}')]),
        (b'{"a":null}', "$.a", [(None, b"null")]),
        (b'{"a":[{"b":{}},{"b":[1]}]}', "$.a[*].b[*]", [("no_records", b'{"b":{}}'), (None, b"1")]),
        (b'{"a":[5,[],null]}', "$.a[*].b[*]", [(None, b"5"), ("no_records", b"[]"), (None, b"null")]),
        (b'{"Records":[{}],"Records":[{"b":1},2]}', "$.Records[*]",
         [(None, b"{}"), ("duplicate_key", b'{"b":1}'), ("duplicate_key", b"2")]),
        (b'{"r":[{}],"\\u0072":5}', "$.r[*]", [(None, b"{}"), ("duplicate_key", b"5")]),
        (b'{"detail":{"a":1},"x":2}', "$.detail", [(None, b'{"a":1}')]),
        (b"[[{}],[]]", "$[*][*]", [(None, b"{}")]),
        (b'{"a":1}', "$[*]", [("no_records", b'{"a":1}')]),
        (b'[1,"x"]', "$.a[*]", [("no_records", b'[1,"x"]')]),
        (b'7 "x"', "$.a[*]", [(None, b"7"), (None, b'"x"')]),
        (b'{"a":1}x{"b":2}', "$", [(None, b'{"a":1}'), (None, b"x"), (None, b'{"b":2}')]),
        (b"\xef\xbb\xbf{}", "$", [(None, b"{}")]),
        (b" \n", "$", []),
        (b'{"r":[{}] "x":1}{"r":[{}]}', "$.r[*]", [(None, b"{}"), (None, b"{}")]),
        (b'{"r":[{}], x}{"r":[]}', "$.r[*]", [(None, b"{}"), ("bad_json", b'x}{"r":[]}')]),
        (b'{"r":[{}],{"a":1}]}', "$.r[*]", [(None, b"{}"), ("bad_json", b'{"a":1}]}')]),
        (b'{"r" [{}]}', "$.r[*]", [("bad_json", b'{"r" [{}]}')]),
        (b"{}}\n{}", "$", [(None, b"{}"), ("bad_json", b"}\n{}")]),
        (b'{"r":[{},', "$.r[*]", [(None, b"{}"), ("bad_json", b"")]),
    ],
)  # fmt: skip
def test_what_is_no_record_is_told_with_one_reason(
    content: bytes, path: str, expected: list[tuple[str | None, bytes]]
) -> None:
    for make in (Scanner, make_scanner()):
        for size in (1, 1000):
            got = split(content, path, size=size, make=make)
            assert [(item.reason, item.content) for item in got] == expected


def test_values_around_a_record_are_those_of_its_document_and_elements_wherever_they_stand() -> None:
    outer = ["$outer.resourceLogs.resource.name", "$outer.resourceLogs.scopeLogs.scope", "$outer.sent", "$outer.no"]
    got = split(OTLP, OTLP_PATH, outer, size=11)
    first, last = ('"shop"', '"late"', "1", ""), ('"cart"', '"app"', "1", "")
    assert [item.outer for item in got] == [first, first, last, last]


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        ('"owner":1,"owner":2', "duplicate_key"),
        ('"owner":{"id":1,"id":2}', "duplicate_key"),
        ('"owner":tru', "bad_json"),
        ('"owner":"\\ud800"', "bad_utf8"),
        ('"owner":' + "[" * 129 + "]" * 129, "too_deep"),
        ('"owner":"' + "x" * (1 << 20) + '"', "line_too_long"),
    ],
)
def test_a_bad_value_around_records_sets_the_records_of_its_document_aside(around: str, reason: str) -> None:
    content = f'{{"Records":[{{"id":1}},{{"id":2}}],{around}}}{{"Records":[{{"id":3}}]}}'.encode()
    got = split(content, "$.Records[*]", ["$outer.owner.id"], size=max(9, len(content) // 100))
    assert [item.reason for item in got] == [reason, reason, None]


def test_what_is_no_object_has_its_own_reason_beside_bad_values_around_records(lake: Lake) -> None:
    """A piece outside of documents has no values around it, and may come after a document with bad ones."""
    content = wrapped({"id": 1}, owner=1)[:-1] + b',"owner":2,"Records":[5]} 7' + wrapped({"id": 2}, owner=3)
    elements = b'{"Records":[{},5],"owner":1,"owner":2}'
    table = a_document_table("$.Records[*]", AROUND)
    outcome = lake.both(content + elements, table)
    found = {line["line"]: line["reason"] for line in outcome.quarantined}
    twice, other = "duplicate_key", "not_object"
    assert found == {1: twice, 2: twice, 3: other, 5: twice, 6: other}
    assert [row["owner"] for row in outcome.rows] == ["3"]


def test_values_around_are_read_twice_from_disk_in_a_document_above_64_mib() -> None:
    pad = b"x" * (66 << 20)
    content = b'{"Records":[{"id":1}],"pad":"' + pad + b'","owner":"me"}{"Records":[{"id":2}],"owner":"you"}'
    for make in (Scanner, make_scanner()):
        got = split(content, "$.Records[*]", ["$outer.owner"], size=4 << 20, make=make)
        assert [(item.id, item.outer) for item in got] == [(1, ('"me"',)), (2, ('"you"',))]


def test_no_piece_is_longer_than_its_budget() -> None:
    long = b'{"t":"' + b"x" * LINE_LIMIT + b'"}'
    for make in (Scanner, make_scanner()):
        for size in (1 << 20, len(long) * 3):
            got = split(b"[\n" + long + b',\n{"id":2}]', "$[*]", size=size, make=make)
            assert [(item.reason, item.length) for item in got] == [("bad_json", len(long) + 1), (None, 8)]
            assert got[0].content == long[:LINE_LIMIT]
            got = split(long + b'{"r":[{"id":1}]}', "$.r[*]", size=size, make=make)
            assert [(item.reason, item.offset, item.length) for item in got] == [
                ("no_records", 0, len(long)),
                (None, len(long) + 6, 8),
            ]


def test_a_long_piece_between_records_has_its_own_first_bytes_however_they_were_read() -> None:
    content = b'{"r":[{}],  "pad":"' + b"x" * LINE_LIMIT + b'",:1}' + b"z" * (2 << 20)
    for make in (Scanner, make_scanner()):
        for size in (1 << 20, 5 << 20, len(content)):
            gap = split(content, "$.r[*]", size=size, make=make)[-1]
            assert (gap.reason, gap.length) == ("bad_json", len(content) - gap.offset)
            assert gap.content == content[gap.offset :][:LINE_LIMIT]


def test_brackets_without_end_are_one_damaged_piece() -> None:
    for make in (Scanner, make_scanner()):
        got = split(b"[" * (2 << 20), "$", make=make)
        assert [(item.reason, item.length) for item in got] == [("bad_json", 2 << 20)]


def test_after_64_damaged_records_the_rest_is_one() -> None:
    content = b"".join(b'{"t":"x\n},\n' for _ in range(80)) + b'{"id":1}\n'
    got = split(content, "$")
    assert len(got) == 65
    assert got[-1].content.endswith(b'{"id":1}\n')


def some_value(draw: random.Random, depth: int) -> Any:
    kind = draw.random()
    if depth > 4 or kind < 0.3:
        return draw.choice(["a", "\\", '"', "]", "{", "}{", "", "é", 1, -2.5, None, True, "x\ny"])
    if kind < 0.75:
        return {draw.choice("rrsopx"): some_value(draw, depth + 1) for _ in range(draw.randrange(4))}
    return [some_value(draw, depth + 1) for _ in range(draw.randrange(4))]


def some_documents(draw: random.Random) -> list[Any]:
    def document() -> Any:
        if draw.random() < 0.2:
            return some_value(draw, 0)
        elements = [{"o": some_value(draw, 3), "s": [some_value(draw, 2)]} for _ in range(draw.randrange(3))]
        return {"o": some_value(draw, 3), "r": elements, "p": {"x": 1}}

    return [document() for _ in range(draw.randrange(1, 5))]


def written(draw: random.Random, documents: list[Any]) -> bytes:
    parts = []
    for document in documents:
        text = json.dumps(document, indent=draw.choice([None, 1, 2]), ensure_ascii=draw.random() < 0.5)
        parts += [text, draw.choice([" ", "\n", " \n", ","])]
    return "".join(parts).replace('"r"', draw.choice(['"r"', '"\\u0072"'])).encode()


def hurt(draw: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        at = draw.randrange(len(data) or 1)
        action = draw.choice(["delete", "insert", "cut"])
        if action == "delete":
            del data[at : at + 1]
        elif action == "insert":
            data.insert(at, draw.choice(b'{}[]",:\\ \n\r1n\x00\xff'))
        else:
            del data[at:]
    return bytes(data)


PATHS: list[tuple[str, list[str]]] = [
    ("$", []),
    ("$[*]", []),
    ("$.r[*]", ["$outer.o", "$outer.p.x"]),
    ("$.r", ["$outer.o"]),
    ("$.r.s[*]", ["$outer.o", "$outer.r.o"]),
    ("$.r[*].s[*]", ["$outer.o", "$outer.r.o"]),
    ("$[*].r[*]", ["$outer.o"]),
    ("$[*].o", []),
    ("$.r[*].o", ["$outer.o"]),
    ("$.r[*][*]", []),
]


def test_both_scanners_agree_on_any_bytes_in_pieces_of_any_size() -> None:
    draw = random.Random(39)
    for _ in range(400):
        content = hurt(draw, written(draw, some_documents(draw)))
        path, outer = draw.choice(PATHS)
        whole = split(content, path, outer)
        for make in (Scanner, make_scanner()):
            assert split(content, path, outer, draw.randrange(1, 40), make) == whole, (content, path)
        for item in whole:
            assert content[item.offset : item.offset + item.length] == item.content


def records_of(document: Any, steps: Sequence[str | None]) -> Iterator[Any]:
    if not steps:
        yield document
    elif steps[0] is None:
        for element in document if isinstance(document, list) else ():
            yield from records_of(element, steps[1:])
    elif isinstance(document, dict) and steps[0] in document:
        yield from records_of(document[steps[0]], steps[1:])


def test_records_are_those_that_a_parser_of_whole_documents_finds() -> None:
    draw = random.Random(40)
    for _ in range(200):
        documents = [
            item for item in some_documents(draw) if isinstance(item, dict) and isinstance(item.get("r"), list)
        ]
        for path in ("$", "$.r[*]"):
            got = split(written(draw, documents), path, size=draw.randrange(1, 40), make=make_scanner())
            expected = [record for document in documents for record in records_of(document, record_steps(path))]
            assert [json.loads(item.line) for item in got] == expected


def a_document_table(records: str, *columns: Any, **more: Any) -> TableDefinition:
    stream = Stream(name="pv_log", bucket="staging", key_prefix="in/", format=DocumentFormat(records=records))
    return a_table(*columns, streams=(stream,), **more)


def wrapped(*records: Any, **around: Any) -> bytes:
    return json.dumps({"Records": [{"time": TIME, **record} for record in records], **around}).encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda body: gzip.compress(gzip.compress(body))])
def test_records_become_rows_and_values_around_them_columns(lake: Lake, pack: Callable[[bytes], bytes]) -> None:
    table = a_document_table(
        "$.Records[*]",
        a_column("id", "bigint", 2),
        a_column("owner", "string", 3, source="$outer.owner", sources=("$outer.owner",)),
        a_column("either", "bigint", 4, source="own, $outer.tags[0]", sources=("own", "$outer.tags[0]")),
        a_column("place", "bigint", 5, source="@line", sources=("@line",)),
    )
    content = wrapped({"id": 1, "own": 7}, {"id": "no"}, owner="me", tags=[5]) + wrapped({"id": 2}, owner={"a": [1]})
    outcome = lake.both(pack(content), table)
    keys = ("id", "owner", "either", "place")
    assert [tuple(row[key] for key in keys) for row in outcome.rows] == [
        (1, "me", 7, 1),
        (None, "me", 5, 2),
        (2, '{"a":[1]}', None, 3),
    ]
    assert outcome.value_errors == {("id", "unfit"): 1}


def test_a_record_without_a_time_is_quarantined_as_the_object_has_it(lake: Lake) -> None:
    outcome = lake.both(b'[\n{\n "v": 1\n}\n]', a_document_table("$[*]", a_column("v", "bigint", 2)))
    assert outcome.quarantined == [{"line": 1, "reason": "missing_time", "column": "time", "text": '{\n "v": 1\n}'}]


def test_quarantine_keeps_only_the_place_of_documents_around_sensitive_columns(lake: Lake) -> None:
    secret = a_column("owner", "string", 2, source="$outer.owner", sources=("$outer.owner",), sensitive=True)
    content = wrapped({"x": 1}, owner="secret")[:-8] + b"\n"
    outcome = lake.both(b'{"owner":"secret"}' + content, a_document_table("$.Records[*]", secret))
    first, rest = outcome.quarantined
    place = {"object": "s3://staging/in/7.json", "offset": 0, "length": 18}
    assert first == {"line": 1, "reason": "no_records", "column": None, **place}
    assert "text" not in rest
    assert (rest["reason"], rest["line"]) == ("bad_json", 3)


class FailingScanner:
    """A compiled scanner that fails in one call as a panic does, at the second time if there is one."""

    def __init__(self, call: str, *given: Any) -> None:
        self._scanner = loaded_kernel().module.DocumentScanner(*given)
        self._call, self._calls = call, 0

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            self._calls += 1
            if self._calls == 2 or name in ("finish", "abandon", "resume"):
                raise RuntimeError("the compiled reader panicked: index out of bounds")
        return getattr(self._scanner, name)


CALLS = ["scan", "finish", "keep_from", "let_go", "moved", "resume", "abandon", "held", "hold", "indent"]
CUT_AFTER_DAMAGE = wrapped({"id": 1}, owner="me") + b'\n{"Records":[\n{"id": 2, "x": "\n{"id": 3}],"owner":1}{"a'


@pytest.fixture(params=CALLS)
def panicking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has this process a kernel whose scanner panics in a call."""
    if loaded_kernel().module is None:
        pytest.skip("there is no kernel")
    call = str(request.param)
    module = SimpleNamespace(DocumentScanner=partial(FailingScanner, call))
    monkeypatch.setattr(reading, "make_scanner", lambda: partial(CompiledScanner, module))
    return call


AROUND = a_column("owner", "string", 2, source="$outer.owner", sources=("$outer.owner",))


@pytest.mark.usefixtures("panicking")
def test_after_a_panic_of_the_scanner_python_reads_the_object_and_says_so(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    table = a_document_table("$.Records[*]", AROUND)
    with caplog.at_level(logging.WARNING):
        got = lake.convert(CUT_AFTER_DAMAGE, table)
    assert [record.getMessage() for record in caplog.records] == [
        "Python reads an object from its beginning: the compiled reader panicked: index out of bounds"
    ]
    assert got.comparable() == lake.convert(CUT_AFTER_DAMAGE, table, way=Way.LINES).comparable()
    assert got.result.compiled_lines == 0


def test_after_a_panic_of_the_scanner_a_sample_is_read_by_python(panicking: str, lake: Lake) -> None:
    table = a_document_table("$.Records[*]", AROUND)
    trial = try_object(a_convert_task(), table, lambda: iter([CUT_AFTER_DAMAGE]), FirstLines(1 << 20))
    assert (len(trial.numbers), trial.lines_in) == (1, 4), panicking


def test_the_time_of_a_row_may_stand_around_its_record(lake: Lake) -> None:
    table = a_document_table("$.Records[*]")
    time = a_column("time", "timestamp", 1, source="$outer.at", sources=("$outer.at",), required=True)
    table = a_document_table("$.Records[*]", columns=(time,))
    outcome = lake.both(b'{"Records":[{}],"at":"%s"}{"Records":[{}]}' % TIME.encode(), table)
    assert (len(outcome.rows), outcome.reasons) == (1, {"missing_time": 1})

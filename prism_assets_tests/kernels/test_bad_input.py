"""Every class of bad input: each line becomes one row or one quarantined line, the same both ways."""

from __future__ import annotations

import base64
from datetime import date
from typing import Any

import pytest

from prism_assets_tests.kernels.builders import DAY, TIME, Lake, a_column, a_table, a_value, an_object

TABLE = a_table(a_column("v", "string", 2), a_column("n", "bigint", 3))
GOOD = a_value('"good"')


def deep(levels: int) -> str:
    return a_value("[" * (levels - 1) + "]" * (levels - 1))


BAD_LINES: dict[str, tuple[str | bytes, str | None]] = {
    "invalid utf-8": (b'{"v":"\xff"}', "bad_utf8"),
    "overlong form": (b'{"v":"\xc0\xaf"}', "bad_utf8"),
    "utf-8 surrogate": (b'{"v":"\xed\xa0\x80"}', "bad_utf8"),
    "lone high surrogate": (a_value('"\\ud800"'), "bad_utf8"),
    "lone low surrogate in an ignored key": (a_value('"x","z":"\\udc00"'), "bad_utf8"),
    "reversed surrogates": (a_value('"\\udc00\\ud800"'), "bad_utf8"),
    "surrogate pair": (a_value('"\\ud83d\\ude00"'), None),
    "escaped backslash before ud800": (a_value('"\\\\ud800"'), None),
    "utf-16": ('{"v":1}'.encode("utf-16-le"), "bad_json"),
    "nul between tokens": (b'{"v":\x001}', "bad_json"),
    "nul in a string": (b'{"v":"\x00"}', "bad_json"),
    "escaped nul": (a_value('"\\u0000"'), None),
    "not closed": ('{"v":1', "bad_json"),
    "not closed but ends like an object": ('{"v":{"a":1}', "bad_json"),
    "trailing comma": ('{"v":1,}', "bad_json"),
    "two objects": (GOOD + GOOD, "bad_json"),
    "two objects with return": (GOOD + "\r" + GOOD, "bad_json"),
    "text": ("hello", "bad_json"),
    "one character": ("x", "bad_json"),
    "control character": ('{"v":"a\tb"}', "bad_json"),
    "bare inf": (a_value("Inf"), "bad_json"),
    "bare inf in an ignored key": (a_value('1,"z":-Inf'), "bad_json"),
    "nan in an ignored key": (a_value('1,"z":NaN'), None),
    "infinity": (a_value("-Infinity"), None),
    "inf inside text": (a_value('"Info, Inf NaN"'), None),
    "leading zero": (a_value("01"), "bad_json"),
    "single quotes": ("{'v':1}", "bad_json"),
    "bad escape": (a_value('"\\x"'), "bad_json"),
    "array": ("[1,2]", "not_object"),
    "scalar": ("12", "not_object"),
    "null": ("null", "not_object"),
    "string": ('"{}"', "not_object"),
    "depth 128": (deep(128), None),
    "depth 129": (deep(129), "too_deep"),
    "depth 500": (deep(500), "too_deep"),
    "depth 100,000": (deep(100_000), "too_deep"),
    "deep and not closed": ("{" + '"v":[' * 100_000, "too_deep"),
    "brackets inside text": (a_value('"' + "[" * 500 + '"'), None),
    "many quotes without end": ('{"v":"' + '\\"[' * 50_000, "bad_json"),
    "duplicate key": (a_value('1,"v":2'), "duplicate_key"),
    "duplicate key, escaped": (a_value('1,"\\u0076":2'), "duplicate_key"),
    "duplicate time": (f'{{"time":"{TIME}","time":null}}', "duplicate_key"),
    "duplicate ignored key": (a_value('1,"z":1,"z":2'), None),
    "duplicate key further down": (a_value('{"v":1,"v":2}'), None),
    "no time": ('{"v":1}', "missing_time"),
    "time null": ('{"time":null}', "missing_time"),
    "empty object": ("{}", "missing_time"),
    "bad time": ('{"time":"yesterday"}', "bad_time"),
    "time of another kind": ('{"time":[1]}', "bad_time"),
    "too old": ('{"time":"2018-10-03T14:59:59.999Z"}', "too_old"),
    "oldest": ('{"time":"2018-10-03T15:00:00Z"}', None),
    "newest": ('{"time":"2018-10-28T14:59:59.999Z"}', None),
    "too new": ('{"time":"2018-10-28T15:00:00Z"}', "too_new"),
    "right-to-left mark": (a_value('"\u202e"'), None),
    "huge number": (a_value('1,"n":' + "9" * 500), None),
    "byte order mark inside": (b"\xef\xbb\xbf" + GOOD.encode(), "bad_json"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_is_a_row_or_is_set_aside_with_its_reason(lake: Lake, name: str) -> None:
    line, reason = BAD_LINES[name]
    outcome = lake.both(an_object(GOOD, line, GOOD), TABLE)
    assert outcome.result.failure is None
    assert outcome.result.lines_in == 3
    assert outcome.reasons == ({reason: 1} if reason else {})
    if reason:
        assert outcome.quarantined[0]["line"] == 2
        assert content(outcome.quarantined[0]) == (line if isinstance(line, bytes) else line.encode())


def content(record: dict[str, Any]) -> bytes:
    return base64.b64decode(record["base64"]) if "base64" in record else record["text"].encode()


@pytest.mark.parametrize("share", [1, 20])
def test_bad_lines_among_many_good_ones_are_all_found(lake: Lake, share: int) -> None:
    lines: list[str | bytes] = []
    for number in range(1500):
        lines.append(a_value(f'"{number}","n":{number}'))
        if number % 100 < share:
            lines.append(list(BAD_LINES.values())[number % len(BAD_LINES)][0][:2000])
    outcome = lake.both(an_object(*lines), TABLE)
    assert outcome.result.lines_in == len(lines)
    assert outcome.result.rows_out >= 1500


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", 0),
        (b"\n\n  \n\t\r\n", 0),
        (b"\xef\xbb\xbf" + an_object(GOOD), 1),
        (b"\xef\xbb\xbf", 0),
        (an_object(GOOD, GOOD, newline=b"\r\n"), 2),
        (an_object(GOOD, GOOD)[:-1], 2),
        (an_object(GOOD, "", "  ", GOOD, "", newline=b"\r\n"), 2),
        (an_object(" " + GOOD + " \t"), 1),
        (b"\n".join([b"", GOOD.encode(), b"", b""]), 1),
    ],
)
def test_line_ends_blank_lines_and_marks_cost_no_row(lake: Lake, content: bytes, lines: int) -> None:
    outcome = lake.both(content, TABLE)
    assert (outcome.result.lines_in, outcome.result.rows_out) == (lines, lines)


def test_lines_are_numbered_as_in_an_editor(lake: Lake) -> None:
    outcome = lake.both(an_object(GOOD, "", "bad", "", "  ", "worse"), TABLE)
    assert [record["line"] for record in outcome.quarantined] == [3, 6]


@pytest.mark.parametrize(("extra", "reason"), [(0, None), (1, "line_too_long")])
def test_a_line_may_have_16_mib(lake: Lake, extra: int, reason: str | None) -> None:
    around = len(a_value('""'))
    line = a_value('"' + "x" * ((16 << 20) - around + extra) + '"')
    outcome = lake.convert(an_object(GOOD, line, GOOD, newline=b"\r\n"), TABLE)
    assert outcome.result.lines_in == 3
    assert outcome.reasons == ({reason: 1} if reason else {})
    if reason:
        assert (outcome.quarantined[0]["line"], outcome.quarantined[0]["length"]) == (2, (16 << 20) + 1)


def test_a_line_of_100_mb_costs_only_itself(lake: Lake) -> None:
    outcome = lake.convert(an_object(GOOD, "y" * 100_000_000, GOOD), TABLE)
    assert (outcome.result.rows_out, outcome.reasons) == (2, {"line_too_long": 1})
    assert len(outcome.quarantined[0]["text"]) == 16 << 20


def test_a_required_column_that_ends_null_sets_the_row_aside(lake: Lake) -> None:
    table = a_table(a_column("n", "bigint", 2, required=True), a_column("m", "bigint", 3, required=True))
    rows = ({"n": 1, "m": 1}, {"n": 1}, {"n": "x", "m": 1}, {"n": None, "m": "x"})
    outcome = lake.both(an_object(*rows), table)
    assert outcome.reasons == {"null_in_required": 3}
    assert [record["column"] for record in outcome.quarantined] == ["m", "n", "n"]


def test_rows_go_to_the_date_in_the_zone_of_the_table_and_to_their_tier(lake: Lake) -> None:
    content = an_object({"time": "2018-10-24T14:59:59.999Z"}, {"time": "2018-10-24T15:00:00Z"})
    outcome = lake.both(content, TABLE, delayed=[DAY])
    first, second = outcome.result.objects
    assert (first.date, first.delayed, second.date, second.delayed) == (DAY, True, date(2018, 10, 25), False)
    assert "/delayed/dt=2018-10-24/" in first.key
    assert "/live/dt=2018-10-25/" in second.key


def test_the_partition_column_may_be_a_date(lake: Lake) -> None:
    day = a_column("day", "date", 1, required=True)
    table = a_table(columns=(day,), partition_column="day")
    outcome = lake.both(an_object('{"day":"2018-10-24"}', '{"day":"2018-01-01"}', '{"day":7}', "{}"), table)
    assert outcome.reasons == {"too_old": 2, "missing_time": 1}
    assert outcome.result.objects[0].date == DAY


def test_hostile_keys_of_objects_are_read(lake: Lake) -> None:
    line = '{"../..":1,"%2e":2,"\\u0000":3,"' + "k" * 2048 + '":4,' + GOOD[1:]
    assert lake.both(an_object(line), TABLE).result.rows_out == 1

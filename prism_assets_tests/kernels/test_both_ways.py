"""The compiled reader and the line-by-line rules give the same result for every line, hostile ones included."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets_tests.kernels.builders import TIME, Lake, a_column, a_line, a_table, an_object

TABLE = a_table(
    a_column("text", "string", 2, length=12),
    a_column("small", "smallint", 3),
    a_column("whole", "integer", 4),
    a_column("big", "bigint", 5, source="n"),
    a_column("single", "real", 6, source="x"),
    a_column("double", "double", 7, source="x"),
    a_column("flag", "boolean", 8),
    a_column("exact", "decimal", 9, precision=12, scale=3),
    a_column("at", "timestamp", 10, source_offset="+09:00"),
    a_column("micros", "timestamp", 11, time_unit="microseconds"),
    a_column("day", "date", 12),
    a_column("payload", "json", 13, length=40),
    a_column("rest", "json", 14),
)
KEYS = ("text", "small", "whole", "n", "x", "flag", "exact", "at", "micros", "day", "payload", "rest", "ignored")

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-40_000, 40_000).map(str),
    st.integers(0, 2_000_000_000).map(str),
    st.floats().map(repr).map(lambda text: text.replace("inf", "Infinity").replace("nan", "NaN")),
    st.floats(0, 2e9).map(repr),
    st.sampled_from(["-0", "0.0", "-0.0", "1e3", "1E+2", "1e999", "-1.7976931348623159e308", "9" * 500, "1.5e-400"]),
    st.sampled_from(["01", "1.", ".5", "+1", "Inf", "-Inf", "-NaN", "NaN", "Infinity", "-Infinity", "0x10", "1_0"]),
)
TIMES = st.sampled_from([
    TIME, "2018-10-24", "2018-10-24 09:00:23 UTC", "2018-10-24 09:00:23 +0900", "2018-10-24T09", "2018-10-24T09:00Z",
    "2018-10-24T09:00:23.123456789+09", "2018-10-24T09:00:23.9999999", "2018-10-24t09:00:23", " 2018-10-24",
    "0000-01-01", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "2018-10-24T24:00:00",
    "2018-10-24T23:59:60", "2018-10-24T23:59:60Z", "2018-10-24T23:59:60.5+00:00", "2018-13-01",
    "2018-10-24T24:00:00Z", "2018-10-24 24:00", "2018-10-24T24:00:00.000+02:00", "2018-10-24T24:00:01Z",
    "9999-12-31T24:00:00Z", "20181024T240000Z", "2018-10-24[UTC]", "2018-10-24T09:00:23Z[UTC]",
    "2018-10-24T09:00:23+02:00[Europe/Berlin]", "2018-10-24T09:00:23.5+01:00[Europe/Berlin]",
    "2018-10-24T09:00:23[Europe/Berlin]", "2018-10-24T09:00:23+02:00[Europe/Berlin][u-ca=gregory]",
    "2018-10-24T09:00:23+02:00[!Europe/Berlin]", "2018-10-24T09:00:23+02:00[Nowhere]", "2018-10-24T09:00:23[Nowhere]",
    "2018-10-24T09:00:23[u-ca=gregory]", "2018-10-24T09:00:23[+02:00]", "2018-10-24T09:00:23,5+02:00[Europe/Berlin]",
    "1540339223[UTC]", "[UTC]", "0001-01-01T00:00:00[Europe/Berlin]", "9999-12-31T23:59:59[America/New_York]",
    "2018-02-30", "2018-10-24T09:00:23z", "2018-10-24Z", "1540339223", "1540339223.5", "1540339223123", "20181024", "",
    "2018-10-24T09:00:23,5", "20181024T090023Z", "20181024T0900,5", "2018-10-24 09:00:23,123",
    "2018-10-24T09:00:23+9", "2018-10-24T09:00:23+24:00", "1500-01-01T00:00:00.1234567Z",
])  # fmt: skip
STRINGS = st.one_of(st.text(max_size=8), TIMES, st.sampled_from(["true", "t", "F", "1", "-12", "1.5", "1e3", "NaN"]))
ESCAPES = st.sampled_from(
    ['"\\u0041"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\\\ud800"', '"\\u00"', '"\\x"']
)
SCALARS = st.one_of(
    NUMBERS,
    STRINGS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    ESCAPES,
    st.sampled_from(["true", "false", "null", "True", "nul", '"a\tb"', '"\\"payload\\":1"', '"}{"', '"payload"']),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[" + ", ".join(parts) + "]"),
        st.dictionaries(st.sampled_from(["a", "payload", "time"]), inner, max_size=3).map(
            lambda parts: "{" + " ,".join(f'"{key}" : {value}' for key, value in parts.items()) + "}"
        ),
    ),
    max_leaves=4,
)
PAIRS = st.tuples(st.sampled_from([*KEYS, *KEYS, "time", "pay\\u006coad", "a,"]), NESTED)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=15),
    "small": st.integers(-40_000, 40_000),
    "whole": st.integers(-(2**33), 2**33),
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "exact": st.one_of(st.integers(-(10**12), 10**12), st.decimals(-10, 10, places=5).map(float)),
    "at": st.one_of(TIMES, st.just(TIME)),
    "micros": st.integers(-(2**62), 2**62),
    "day": st.sampled_from(["2018-10-24", TIME, "0000-01-01"]),
    "payload": st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    "rest": st.lists(st.text(max_size=3), max_size=3),
}


def written(pairs: list[tuple[str, str]]) -> bytes:
    body = ",".join(f'"{key}":{value}' for key, value in pairs)
    return f'{{"time":"{TIME}",{body}}}'.encode() if pairs else b"{}"


HOSTILE = st.one_of(
    st.lists(PAIRS, max_size=4).map(written),
    st.lists(PAIRS, max_size=2).map(lambda pairs: written(pairs) * 2),
    st.lists(PAIRS, min_size=1, max_size=2).map(lambda pairs: written(pairs)[:-2] + b"}"),
    st.binary(max_size=12).map(lambda data: b'{"text":"' + data.replace(b"\n", b"") + b'"}'),
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b" ")),
    st.sampled_from(
        [b"[1]", b"1", b"null", b'"x"', b"", b"  ", b"{", b"}", b"{}}", b"{}{}", b"x", b"\xef\xbb\xbf{}", b"{}\r{}"]
    ),
)
REGULAR = st.fixed_dictionaries({}, optional=FITTING).map(a_line)
# Most objects have one kind of value per key: a dictionary of strategies fixes the kinds for a whole object.
LINES = st.one_of(
    st.lists(REGULAR, min_size=1, max_size=40),
    st.lists(st.one_of(REGULAR, REGULAR, REGULAR, HOSTILE), min_size=1, max_size=40),
    st.lists(HOSTILE, min_size=1, max_size=12),
    st.tuples(st.sampled_from(KEYS), st.lists(SCALARS, min_size=1, max_size=12)).map(
        lambda drawn: [written([(drawn[0], value)]) for value in drawn[1]]
    ),
)

BOM = b"\xef\xbb\xbf"


def agree(lines: list[bytes], table: TableDefinition) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = Lake(Path(folder)).both(an_object(*lines), table)
    result = outcome.result
    assert result.failure is None
    assert result.lines_in == result.rows_out + result.lines_filtered + sum(outcome.reasons.values())
    first, *others = lines
    without_mark = [first.removeprefix(BOM), *others]  # one byte order mark, at the beginning, is no part of a line
    assert result.lines_in == len([line for line in without_mark if line.strip(b" \t\r")])


@settings(max_examples=150, deadline=None)
@given(LINES)
@example([b"\xef\xbb\xbf"])
def test_any_lines_give_the_same_rows_quarantine_and_counts(lines: list[bytes]) -> None:
    agree(lines, TABLE)

"""The value rules of formats, column types: each case through both ways of reading, alone and among others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from prism_assets_tests.kernels.builders import Lake, a_column, a_table, a_value, an_object

SECOND = 1_540_339_223_000
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, Any, str | None]]]] = {
    "string": (
        {"length": 5},
        [
            ('"abc"', "abc", None),
            ('"abcdef"', "abcde", "cut"),
            ('"ab日"', "ab日", None),
            ('"ab日本"', "ab日", "cut"),
            ('"abc日本"', "abc", "cut"),
            ('"\\u0041\\n"', "A\n", None),
            ("12.50", "12.50", None),
            ("1e3", "1e3", None),
            ("true", "true", None),
            ("NaN", "NaN", None),
            ('[1, "a"]', "[1,\"a", "cut"),
            ("{ }", "{}", None),
            ("null", None, None),
        ],
    ),
    "boolean": (
        {},
        [
            ("true", True, None),
            ("false", False, None),
            ('"t"', True, None),
            ('"false"', False, None),
            ('"T"', None, "unfit"),
            ("1", None, "unfit"),
            ("[]", None, "unfit"),
            ("null", None, None),
        ],
    ),
    "smallint": (
        {},
        [
            ("32767", 32767, None),
            ("32768", None, "out_of_range"),
            ("-32768", -32768, None),
            ('"12"', 12, None),
            ("1.9", 1, None),
            ("-1.9", -1, None),
            ("1e3", 1000, None),
            ("1e999", None, "out_of_range"),
            ("NaN", None, "not_finite"),
            ('"NaN"', None, "unfit"),
            ('" 1"', None, "unfit"),
            ('"0x10"', None, "unfit"),
            ("true", None, "unfit"),
            ("-0", 0, None),
        ],
    ),
    "integer": ({}, [("2147483647", 2147483647, None), ("2147483648", None, "out_of_range")]),
    "bigint": (
        {},
        [
            ("9223372036854775807", 2**63 - 1, None),
            ("9223372036854775808", None, "out_of_range"),
            ("-9223372036854775808", -(2**63), None),
            ("9" * 500, None, "out_of_range"),
            ('"9223372036854775807"', 2**63 - 1, None),
            ("9007199254740993", 2**53 + 1, None),
        ],
    ),
    "real": (
        {},
        [("0.5", 0.5, None), ("3.5e38", None, "not_finite"), ("1", 1.0, None), ('"2.5"', 2.5, None)],
    ),
    "double": (
        {},
        [
            ("0.1", 0.1, None),
            ("-0.0", -0.0, None),
            ("1e999", None, "not_finite"),
            ("-1.7976931348623159e308", None, "not_finite"),
            ("Infinity", None, "not_finite"),
            ('"-Infinity"', None, "not_finite"),
            ('"1e3"', 1000.0, None),
            ('"x"', None, "unfit"),
            ("false", None, "unfit"),
            ("12345678901234567890", 12345678901234567890.0, None),
        ],
    ),
    "decimal": (
        {"precision": 6, "scale": 2},
        [
            ("1.005", Decimal("1.00"), None),
            ("-1.999", Decimal("-1.99"), None),
            ('"9999.99"', Decimal("9999.99"), None),
            ("9999.999", Decimal("9999.99"), None),
            ("10000", None, "out_of_range"),
            ("1e3", Decimal("1000.00"), None),
            ("1e99999999999999999999", None, "out_of_range"),
            ("1e-99999999", Decimal("0.00"), None),
            ("0.1", Decimal("0.10"), None),
            ("NaN", None, "not_finite"),
            ('"1,5"', None, "unfit"),
        ],
    ),
    "timestamp": (
        {},
        [
            ('"2018-10-24T09:00:23+09:00"', SECOND, None),
            ('"2018-10-24 00:00:23 UTC"', SECOND, None),
            ('"2018-10-24 09:00:23 +0900"', SECOND, None),
            ('"2018-10-24T00:00:23.123999999Z"', SECOND + 123, None),
            ('"2018-10-24T00:00:23"', SECOND, None),
            ('"2018-10-24T09+09"', SECOND - 23_000, None),
            ('"2018-10-24"', SECOND - 23_000, None),
            ('"1969-12-31T23:59:59.9999Z"', -1, None),
            ("1540339223", SECOND, None),
            ('"1540339223"', SECOND, None),
            ("1540339223.5", SECOND + 500, None),
            ("1540339223123", SECOND + 123, None),
            ("1500000000000", 1_500_000_000_000_000, "unfit"),
            ("1500000000001", 1_500_000_000_001, None),
            ("-1.5", -1500, None),
            ('"2018-13-01"', None, "unfit"),
            ('"0000-01-01"', None, "unfit"),
            ('"9999-12-31T23:59:59-00:01"', None, "unfit"),
            ('"yesterday"', None, "unfit"),
            ("true", None, "unfit"),
            ("1e300", None, "unfit"),
        ],
    ),
    "date": (
        {},
        [
            ('"2018-10-24"', "2018-10-24", None),
            ('"2018-10-24T09:00:23+09:00"', "2018-10-24", None),
            ('"2018-10-23T15:00:00Z"', "2018-10-24", None),
            ('"2018-10-23T14:59:59.999Z"', "2018-10-23", None),
            ("1540339223", "2018-10-24", None),
            ('"2018-02-29"', None, "unfit"),
            ("[]", None, "unfit"),
        ],
    ),
    "json": (
        {"length": 20},
        [
            ('{"a": [1.50, "x y"]}', '{"a":[1.50,"x y"]}', None),
            ('"text"', '"text"', None),
            ("1.00", "1.00", None),
            ("true", "true", None),
            ('"\\u0041 \\\\"', '"\\u0041 \\\\"', None),
            ('"日本語日本語"', '"日本語日本語"', None),
            ('"日本語日本語!"', None, "too_long"),
            ("NaN", None, "unfit"),
            ('[1, -Infinity]', None, "unfit"),
            ('"NaN"', '"NaN"', None),
            ("null", None, None),
        ],
    ),
}  # fmt: skip
FLAT = [
    pytest.param(kind, settings, *case, id=f"{kind}-{case[0][:30]}")
    for kind, (settings, cases) in CASES.items()
    for case in cases
    if case[0] != "1500000000000"
]


def plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize(("kind", "settings", "text", "stored", "reason"), FLAT)
def test_a_value_is_stored_as_its_type_says(
    lake: Lake, kind: str, settings: dict[str, Any], text: str, stored: Any, reason: str | None
) -> None:
    table = a_table(a_column("v", kind, 2, **settings))
    outcome = lake.both(an_object(a_value(text)), table)
    assert repr(plain(outcome.rows[0]["v"])) == repr(stored)
    assert outcome.value_errors == ({("v", reason): 1} if reason else {})


@pytest.mark.parametrize("kind", CASES)
def test_a_column_that_changes_kind_within_an_object_keeps_every_value(lake: Lake, kind: str) -> None:
    settings, cases = CASES[kind]
    table = a_table(a_column("v", kind, 2, **settings))
    lines = [a_value(text) for text, _, _ in cases] * 30
    outcome = lake.both(an_object(*lines), table)
    assert outcome.result.rows_out == len(lines)


@pytest.mark.parametrize(
    ("unit", "number", "instant"),
    [
        ("seconds", "1540339223", SECOND),
        ("milliseconds", "1540339223000", SECOND),
        ("microseconds", "1540339223000999", SECOND),
        ("milliseconds", "5.7", 5),
        ("microseconds", "-1", -1),
    ],
)
def test_unix_time_counts_in_the_declared_unit(lake: Lake, unit: str, number: str, instant: int) -> None:
    table = a_table(a_column("v", "timestamp", 2, time_unit=unit))
    assert lake.both(an_object(a_value(number)), table).rows[0]["v"] == instant


def test_seconds_up_to_the_limit_are_seconds_and_out_of_all_years(lake: Lake) -> None:
    outcome = lake.both(
        an_object(a_value("1500000000000"), a_value("1500000000000.0")), a_table(a_column("v", "timestamp", 2))
    )
    assert outcome.value_errors == {("v", "unfit"): 2}


def test_a_time_without_offset_is_at_the_source_offset(lake: Lake) -> None:
    table = a_table(a_column("v", "timestamp", 2, source_offset="+09:00"))
    outcome = lake.both(an_object(a_value('"2018-10-24 09:00:23"'), a_value('"2018-10-24T00:00:23Z"')), table)
    assert [row["v"] for row in outcome.rows] == [SECOND, SECOND]


def test_the_zone_offset_does_not_move_the_stored_instant(lake: Lake) -> None:
    table = a_table(a_column("v", "timestamp", 2, zone_offset="-05:00"))
    assert lake.both(an_object(a_value('"2018-10-24T09:00:23+09:00"')), table).rows[0]["v"] == SECOND


def test_two_columns_may_read_the_same_key(lake: Lake) -> None:
    table = a_table(
        a_column("text", "string", 2, source="v"),
        a_column("number", "bigint", 3, source="v"),
        a_column("whole", "json", 4, source="v"),
    )
    row = lake.both(an_object(a_value("12"), a_value('"13"')), table).rows
    assert [(r["text"], r["number"], r["whole"]) for r in row] == [("12", 12, "12"), ("13", 13, '"13"')]


def test_values_of_rows_that_are_set_aside_are_not_counted(lake: Lake) -> None:
    table = a_table(a_column("v", "integer", 2))
    outcome = lake.both(an_object('{"time":"1999-01-01","v":"x"}', a_value('"x"')), table)
    assert outcome.value_errors == {("v", "unfit"): 1}


def test_ordinary_lines_are_read_by_columns(lake: Lake) -> None:
    table = a_table(
        a_column("v", "json", 2), a_column("d", "decimal", 3, precision=9, scale=2), a_column("s", "string", 4)
    )
    lines = [f'{{"time":"2018-10-24T09:00:23+09:00","v":{{"a":{n}}},"d":{n}.5,"s":{n}}}' for n in range(1000)]
    outcome = lake.both(an_object(*lines), table)
    assert outcome.result.fast_lines == 1000
    assert outcome.rows[7]["d"] == Decimal("7.50")

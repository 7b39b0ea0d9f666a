"""The value rules of formats, column types: each case through both ways of reading, alone and among others."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_assets.kernels.numbers import of_single, scaled
from prism_assets_tests.kernels.builders import Lake, a_column, a_table, a_value, an_object, needs_kernel

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
            ("NaN", None, "not_finite"),
            ('"NaN"', "NaN", None),
            ("[-Infinity]", None, "not_finite"),
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
            ("NaN", None, "not_finite"),
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
            ("9007199254740993.0", 2**53 + 1, None),
            ('"9007199254740993.5"', 2**53 + 1, None),
            ("-9007199254740993.999999", -(2**53) - 1, None),
            ("900719925474099300e-2", 2**53 + 1, None),
            ("9.223372036854775807e18", 2**63 - 1, None),
            ("9.223372036854775808E+18", None, "out_of_range"),
            ("-9223372036854775808.9", -(2**63), None),
            ("0.0009223372036854775807e+22", 2**63 - 1, None),
            ("1e400", None, "out_of_range"),
            ("1E-400", 0, None),
            ("-0.0", 0, None),
            ("0e999999999999999999999", 0, None),
            ("1e999999999", None, "out_of_range"),
            ("1e-99999999999999999999999", 0, None),
            ("-Infinity", None, "not_finite"),
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
            ("1e-99999999999999999999999", Decimal("0.00"), None),
            ("0e99999999999999999999999", Decimal("0.00"), None),
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
            ('"2018-10-24 00:00:23,123"', SECOND + 123, None),
            ('"2018-10-24t00:00:23z"', SECOND, None),
            ('"20181024T000023Z"', SECOND, None),
            ('"20181024T090023.5+0900"', SECOND + 500, None),
            ('"20181024T00"', SECOND - 23_000, None),
            ('"2018-10-24T000023Z"', None, "unfit"),
            ('"2018-10-23T24:00:00Z"', SECOND - 23_000, None),
            ('"2018-10-23T24:00"', SECOND - 23_000, None),
            ('"2018-10-23T24:00:00.001Z"', None, "unfit"),
            ('"9999-12-31T24:00:00Z"', None, "unfit"),
            ('"2018-10-23T23:59:60Z"', SECOND - 23_000, None),
            ('"2018-10-24T01:59:60.25+02:00"', SECOND - 23_000 + 250, None),
            ('"2018-10-24T09:00:60Z"', None, "unfit"),
            ('"2018-10-24T23:59:61Z"', None, "unfit"),
            ('"2018-10-24T02:00:23+02:00[Europe/Berlin]"', SECOND, None),
            ('"2018-10-24T09:00:23+09:00[Europe/Berlin][u-ca=gregory]"', SECOND, None),
            ('"2018-10-24T02:00:23[Europe/Berlin]"', SECOND, None),
            ('"2018-10-24T02:00:23[Europe/Berlyn]"', None, "unfit"),
            ('"2018-10-24T02:00:23+02:00[!Europe/Berlin]"', None, "unfit"),
            ('"2018-10-24[Europe/Berlin]"', None, "unfit"),
            ('"20181024T00:00:23Z"', None, "unfit"),
            ('"20181024"', 20_181_024_000, None),
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
            ("1540339223.0", SECOND, None),
            ("1.540339223e9", SECOND, None),
            ("154033922300e-2", SECOND, None),
            ("1e999999999", None, "unfit"),
            ("NaN", None, "not_finite"),
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
            ('"20181024"', "2018-10-24", None),
            ('"20181324"', "1970-08-22", None),
            ("20181024", "1970-08-22", None),
            ('"2018-02-29"', None, "unfit"),
            ("[]", None, "unfit"),
            ("Infinity", None, "not_finite"),
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
            ("NaN", None, "not_finite"),
            ('[1, -Infinity]', None, "not_finite"),
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
        ("microseconds", "9007199254741001.0", 9007199254741),
        ("microseconds", '"9.007199254741001e15"', 9007199254741),
        ("microseconds", "9007199254740999", 9007199254740),
        ("microseconds", "9007199254740999.0", 9007199254740),
    ],
)
def test_unix_time_counts_in_the_declared_unit(lake: Lake, unit: str, number: str, instant: int) -> None:
    table = a_table(a_column("v", "timestamp", 2, time_unit=unit), a_column("day", "date", 3, time_unit=unit))
    row = lake.both(an_object(a_value(f'{number},"day":{number}')), table).rows[0]
    assert row["v"] == instant
    local = datetime.fromtimestamp(instant // 1000, timezone(timedelta(hours=9)))
    assert row["day"] == local.date()


def test_numbers_up_to_the_limit_are_not_taken_for_milliseconds(lake: Lake) -> None:
    """1,500,000,000,000 ms is in 2017; smaller numbers count as seconds, beyond all years."""
    table = a_table(a_column("v", "timestamp", 2), a_column("day", "date", 3, source="v"))
    old = [a_value(text) for text in ("1499999999999", "1499999999999.0", '"1499999999999"', "1.4e12")]
    outcome = lake.both(an_object(*old, a_value("1500000000001")), table)
    assert [row["v"] for row in outcome.rows] == [*[None] * 4, 1_500_000_000_001]
    assert outcome.value_errors == {("v", "unfit"): 4, ("day", "unfit"): 4}


def test_seconds_up_to_the_limit_are_seconds_and_out_of_all_years(lake: Lake) -> None:
    outcome = lake.both(
        an_object(a_value("1500000000000"), a_value("1500000000000.0")), a_table(a_column("v", "timestamp", 2))
    )
    assert outcome.value_errors == {("v", "unfit"): 2}


DIGITS = st.text("0123456789", min_size=1, max_size=22)
WRITTEN = st.one_of(
    st.builds(
        lambda sign, whole, fraction, exponent: f"{sign}{int(whole)}{fraction}{exponent}",
        st.sampled_from(["", "-"]),
        DIGITS,
        st.one_of(st.just(""), DIGITS.map(lambda digits: f".{digits}")),
        st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 60))),
    ),
    # Near the ends of integers, and of exact doubles, in other notations.
    st.builds(
        lambda near, shift, zeros: f"{near * 10**zeros}e{-zeros}" if shift else f"{near}.{'0' * zeros}1",
        st.sampled_from([sign * 2**bits + off for sign in (1, -1) for bits in (15, 31, 53, 63) for off in (-1, 0, 1)]),
        st.booleans(),
        st.integers(0, 9),
    ),
)  # fmt: skip
NUMBER_TABLE = a_table(
    a_column("smallint", "smallint", 2),
    a_column("integer", "integer", 3),
    a_column("bigint", "bigint", 4),
    a_column("decimal", "decimal", 5, precision=20, scale=4),
    a_column("seconds", "timestamp", 6),
    a_column("micros", "timestamp", 7, time_unit="microseconds"),
)
BITS = {"smallint": 16, "integer": 32, "bigint": 64}
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999


def truncated(number: Fraction) -> int:
    return abs(number).__floor__() * (-1 if number < 0 else 1)


def expected(text: str) -> dict[str, Any]:
    """Returns the columns of NUMBER_TABLE for a number; instants only for whole numbers."""
    number = Fraction(text)
    stored: dict[str, Any] = {}
    for name, bits in BITS.items():
        stored[name] = truncated(number) if -(1 << (bits - 1)) <= truncated(number) < 1 << (bits - 1) else None
    units = truncated(number * 10**4)
    stored["decimal"] = Decimal(units).scaleb(-4) if abs(units) < 10**20 else None
    if number.denominator == 1:
        seconds = int(number) if number > 1_500_000_000_000 else int(number) * 1000
        instants = {"seconds": seconds, "micros": int(number) // 1000}
        stored |= {name: instant if FIRST <= instant <= LAST else None for name, instant in instants.items()}
    return stored


@settings(max_examples=60, deadline=None)
@given(st.lists(WRITTEN, min_size=1, max_size=20), st.booleans())
def test_numbers_are_exact_however_they_are_written_and_read(texts: list[str], quoted: bool) -> None:
    values = [f'"{text}"' if quoted else text for text in texts]
    names = [column.name for column in NUMBER_TABLE.columns[1:]]
    lines = [a_value("0," + ",".join(f'"{name}":{value}' for name in names)) for value in values]
    with tempfile.TemporaryDirectory() as folder:
        rows = Lake(Path(folder)).both(an_object(*lines), NUMBER_TABLE).rows
    for text, row in zip(texts, rows, strict=True):
        for name, value in expected(text).items():
            assert row[name] == value, (text, name)


@given(WRITTEN, st.integers(0, 30))
def test_the_integer_part_of_a_scaled_number_is_that_of_the_fraction(text: str, shift: int) -> None:
    number = Fraction(text) * 10**shift
    found, exact = scaled(text, shift)
    assert (found is None) == (abs(number) >= 10**40)
    if found is not None:
        assert (found, exact) == (truncated(number), number.denominator == 1)


def test_a_time_without_offset_is_at_the_source_offset(lake: Lake) -> None:
    table = a_table(a_column("v", "timestamp", 2, source_offset="+09:00"))
    outcome = lake.both(an_object(a_value('"2018-10-24 09:00:23"'), a_value('"2018-10-24T00:00:23Z"')), table)
    assert [row["v"] for row in outcome.rows] == [SECOND, SECOND]


def test_the_zone_offset_does_not_move_the_stored_instant(lake: Lake) -> None:
    table = a_table(a_column("v", "timestamp", 2, zone_offset="-05:00"))
    assert lake.both(an_object(a_value('"2018-10-24T09:00:23+09:00"')), table).rows[0]["v"] == SECOND


@given(st.floats(width=32, allow_nan=False))
def test_a_number_of_single_precision_is_the_same_when_it_is_written_shorter(number: float) -> None:
    short = of_single(number)
    assert np.float32(short) == np.float32(number)
    assert short == number or len(repr(short)) < len(repr(number))


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


@needs_kernel
def test_lines_of_every_kind_are_read_by_the_kernel(lake: Lake) -> None:
    table = a_table(
        a_column("v", "json", 2), a_column("d", "decimal", 3, precision=9, scale=2), a_column("s", "string", 4)
    )
    lines = [f'{{"time":"2018-10-24T09:00:23+09:00","v":{{"a":{n}}},"d":{n}.5,"s":{n}}}' for n in range(1000)]
    outcome = lake.both(an_object(*lines), table)
    assert outcome.result.compiled_lines == 1000
    assert outcome.rows[7]["d"] == Decimal("7.50")

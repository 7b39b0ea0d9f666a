"""Survey results for the keys of sample lines."""

from __future__ import annotations

import pytest

from prism_assets.domain.streams.survey import KeyEvidence, ValueKind
from prism_assets.kernels.json.survey import MOST_KEYS, survey


def evidence(*values: str) -> KeyEvidence:
    """Returns the evidence on key `k` from lines with these values, as written by JSON."""
    return survey(b'{"k": %s}' % value.encode() for value in values).keys["k"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", ValueKind.WHOLE),
        ("-9223372036854775808", ValueKind.WHOLE),
        ("9223372036854775808", ValueKind.HUGE),
        ("1e400", ValueKind.FRACTION),
        ("1.0", ValueKind.FRACTION),
        ("true", ValueKind.BOOLEAN),
        ('"true"', ValueKind.TEXT),
        ('"12"', ValueKind.TEXT),
        ('"2026-03-01"', ValueKind.DAY),
        ('"2026-03-01T10:00:00+09:00"', ValueKind.INSTANT),
        ('"2026-13-01"', ValueKind.TEXT),
        ("[]", ValueKind.NESTED),
        ('{"a": 1}', ValueKind.NESTED),
    ],
)
def test_each_value_is_of_one_kind(value: str, kind: ValueKind) -> None:
    assert evidence(value).kinds == {kind: 1}


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        ("0.1", 0),
        ("0.30000000000000004", 0),
        ("12.50", 0),
        ("0.10000000000000001", 0),
        ("1772359200.123456", 0),
        ("9007199254740993", 1),
        ("1234567890123456.789", 1),
        ("1e400", 1),
        ("1e-400", 1),
        ("1e99999999999999999999", 1),
        ('"9007199254740993"', 0),
    ],
)
def test_numbers_that_do_not_come_back_from_a_double_are_counted(value: str, rounded: int) -> None:
    assert evidence(value).rounded == rounded


@pytest.mark.parametrize("value", ["null", "NaN", "-Infinity"])
def test_what_is_no_value_is_not_counted(value: str) -> None:
    assert evidence(value).values == 0


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("1772359200", "seconds"),
        ('"1772359200.123"', "seconds"),
        ("1772359200123", "milliseconds"),
        ("1772359200123456", "microseconds"),
        ("1772359200123456789", "nanoseconds"),
        ('"1772359200123456789"', "nanoseconds"),
        ("17", ""),
        ("1" * 300, ""),
    ],
)
def test_numbers_are_likely_times_by_their_size(value: str, unit: str) -> None:
    assert evidence(value).unix == ({unit: 1} if unit else {})


def test_the_span_of_times_is_that_of_all_ways_to_write_them() -> None:
    found = evidence('"2026-03-01T10:00:00Z"', "1772359200123", '"2026-02-01"')
    assert (found.earliest, found.latest) == (1_769_904_000_000, 1_772_359_200_123)


def test_numbers_in_quotes_are_texts_and_counted_as_columns_read_them() -> None:
    found = evidence('"12"', '"-1.5"', '"1e3"', f'"{"1" * 40}"', '"-"', '" 1"')
    assert (found.kinds[ValueKind.TEXT], found.numeric) == (6, 4)


def test_numbers_are_those_that_a_column_of_times_would_read() -> None:
    assert evidence("0", "-1.5", '"1e3"', "9223372036854775808", '"x"', "true", "[1]").numbers == 3


def test_the_longest_is_in_bytes_of_what_would_be_stored() -> None:
    assert evidence('"äöü"').longest == 6
    assert evidence('{"a" : [1, 2]}').longest == len('{"a":[1,2]}')


def test_lines_that_conversion_refuses_are_counted_by_its_reasons() -> None:
    sample = survey([b"{", b"[]", b'{"a": 1, "a": 2}', b"\xff", b"  ", b"{}"])
    assert sample.rejected == {"bad_json": 1, "not_object": 1, "duplicate_key": 1, "bad_utf8": 1}
    assert sample.lines == 1


def test_keys_without_end_are_not_kept() -> None:
    sample = survey(b'{"k%d": 1}' % number for number in range(MOST_KEYS + 1))
    assert len(sample.keys) == MOST_KEYS
    assert sample.has_more_keys

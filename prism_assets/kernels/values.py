"""The value rules of the column types, one value at a time: the exact meaning that every faster way must match.

A rule takes a JSON value and its text as written, and returns the stored value, or the reason why there is none.
Stored values are text, int (integers, days, milliseconds), float, Decimal and bool. A cut string is stored *and*
counted. Whole numbers are exact however they are written, `9007199254740993.0` and `1e18` too; only the fraction of a
unix time is the fraction of a double. NaN, Infinity and -Infinity without quotes are no JSON. They are null in every
column, and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from prism_assets.domain.days.lengths import CUT, TOO_LONG
from prism_assets.kernels import times
from prism_assets.kernels.numbers import scaled
from prism_assets.kernels.times import TimeOptions

UNFIT = "unfit"
OUT_OF_RANGE = "out_of_range"
NOT_FINITE = "not_finite"

Result = tuple[Any, str | None]
Rule = Callable[[Any, str], Result]

_NUMERIC = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_NAMED_NUMBERS = ("NaN", "Infinity", "-Infinity")
_BOOLEANS = {"true": True, "t": True, "false": False, "f": False}
_STRING_OR_SPACE = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+', re.DOTALL)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_EXACT = Context(prec=40)


class Number(str):
    """A number as written."""

    __slots__ = ()


class Constant(str):
    """NaN, Infinity or -Infinity written without quotes."""

    __slots__ = ()


scan_once: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=Constant
).scan_once  # type: ignore[attr-defined]


def cut(text: str, length: int) -> str:
    """Returns the longest beginning of a text with at most `length` bytes of UTF-8."""
    return text.encode()[:length].decode(errors="ignore")


def compact(raw: str) -> str:
    """Returns JSON text without insignificant whitespace. Numbers and escapes stay as written."""
    if " " in raw or "\t" in raw or "\r" in raw or "\n" in raw:
        return _STRING_OR_SPACE.sub(r"\1", raw)
    return raw


def boolean_rule(value: Any, _raw: str) -> Result:
    """The rule of booleans: true and false, also as text."""
    if value is True or value is False:
        return value, None
    if type(value) is str and value in _BOOLEANS:
        return _BOOLEANS[value], None
    return None, UNFIT


def string_rule(length: int) -> Rule:
    """Returns the rule of texts, and of the JSON text of other values: cut at a character to `length` bytes."""

    def rule(value: Any, raw: str) -> Result:
        if type(value) is not str and _has_constant(raw):
            return None, NOT_FINITE
        text: str = value if type(value) is str else compact(raw)
        if len(text) * 4 <= length or len(text.encode()) <= length:
            return text, None
        return cut(text, length), CUT

    return rule


def json_rule(length: int) -> Rule:
    """Returns the rule of JSON text. A text of more than `length` bytes is null."""

    def rule(_value: Any, raw: str) -> Result:
        if _has_constant(raw):
            return None, NOT_FINITE
        text = compact(raw)
        if len(text) * 4 <= length or len(text.encode()) <= length:
            return text, None
        return None, TOO_LONG

    return rule


def _has_constant(raw: str) -> bool:
    """Whether a JSON text has NaN or an infinity without quotes."""
    if "NaN" not in raw and "Infinity" not in raw:
        return False
    bare = _STRING.sub("", raw)
    return "NaN" in bare or "Infinity" in bare


def number_text(value: Any) -> str | None:
    """Returns the text of a number or of a numeric string, or None for other values."""
    if type(value) is Number or (type(value) is str and _NUMERIC.fullmatch(value)):
        return str(value)
    return None


def whole_number_rule(lowest: int, highest: int) -> Rule:
    """Returns the rule of whole numbers. Fractions are dropped."""

    def rule(value: Any, _raw: str) -> Result:
        text = number_text(value)
        if text is None:
            return None, UNFIT
        whole, _ = scaled(text)
        if whole is None or not lowest <= whole <= highest:
            return None, OUT_OF_RANGE
        return whole, None

    return rule


def float_rule(overflow: float) -> Rule:
    """Returns the rule of numbers below `overflow`, the first number that is infinite as stored."""

    def rule(value: Any, _raw: str) -> Result:
        text = number_text(value)
        if text is None:
            return None, NOT_FINITE if type(value) is str and value in _NAMED_NUMBERS else UNFIT
        number = float(text)
        return (number, None) if abs(number) < overflow else (None, NOT_FINITE)

    return rule


def decimal_rule(precision: int, scale: int) -> Rule:
    """Returns the rule of decimals. Fraction digits beyond the scale are dropped."""
    limit = 10**precision

    def rule(value: Any, _raw: str) -> Result:
        text = number_text(value)
        if text is None:
            return None, UNFIT
        units, _ = scaled(text, scale)
        if units is None or abs(units) >= limit:
            return None, OUT_OF_RANGE
        return Decimal(units).scaleb(-scale, _EXACT), None

    return rule


def timestamp_rule(options: TimeOptions) -> Rule:
    """Returns the rule of instants: milliseconds in UTC."""
    offset, unit = options.source_offset, options.unit

    def rule(value: Any, _raw: str) -> Result:
        if type(value) is str:
            instant = times.parse_timestamp(value, offset)
            if instant is not None:
                return instant, None
        instant = _unix_time(number_text(value), unit)
        return instant, UNFIT if instant is None else None

    return rule


def _unix_time(text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    whole, exact = scaled(text)
    if whole is None:
        return None
    return times.unix_int(whole, unit) if exact else times.unix_float(float(text), unit)


def date_rule(options: TimeOptions) -> Rule:
    """Returns the rule of days. An instant counts as its day in the table's zone."""
    timestamp, zone = timestamp_rule(options), options.zone

    def rule(value: Any, raw: str) -> Result:
        day = None
        if type(value) is str:
            day = times.parse_date(value)
            day = times.parse_basic_date(value) if day is None else day
        if day is None:
            instant, _ = timestamp(value, raw)
            day = None if instant is None else times.day_of(instant, zone)
        return day, UNFIT if day is None else None

    return rule

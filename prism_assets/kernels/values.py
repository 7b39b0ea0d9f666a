"""The value rules of the column types, one value at a time: the exact meaning that every faster way must match.

A rule takes a JSON value and its text as written, and gives the stored value, or the reason why there is none.
Stored are: text, int (integers, days, milliseconds), float, Decimal, bool. A cut string is stored *and* counted.
Whole numbers are exact however they are written, `9007199254740993.0` and `1e18` too; only the fraction of a unix time
is that of a double. NaN, Infinity and -Infinity without quotes are no JSON and in no column a value: null, and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from prism_assets.domain.tables import DEFAULT_LENGTH, INTEGER_TYPES, Column, TableDefinition
from prism_assets.kernels import times
from prism_assets.kernels.numbers import scaled

UNFIT = "unfit"
OUT_OF_RANGE = "out_of_range"
NOT_FINITE = "not_finite"
TOO_LONG = "too_long"
CUT = "cut"

Result = tuple[Any, str | None]
Rule = Callable[[Any, str], Result]

# Doubles from here on become infinite when rounded to a single.
REAL_OVERFLOW = 3.4028235677973366e38

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


def rule_of(column: Column, table: TableDefinition) -> Rule:
    """The rule of a column's type."""
    if column.type in INTEGER_TYPES:
        return _integer_rule(INTEGER_TYPES[column.type])
    rules: dict[str, Callable[[], Rule]] = {
        "string": lambda: _string_rule(length_of(column)),
        "json": lambda: _json_rule(length_of(column)),
        "boolean": lambda: boolean,
        "real": lambda: _float_rule(REAL_OVERFLOW),
        "double": lambda: _float_rule(float("inf")),
        "decimal": lambda: _decimal_rule(column.precision or 38, column.scale or 0),
        "timestamp": lambda: _timestamp_rule(column),
        "date": lambda: _date_rule(column, table.zone),
    }
    return rules[column.type]()


def length_of(column: Column) -> int:
    """The greatest number of bytes that the column holds."""
    return DEFAULT_LENGTH if column.length is None else column.length


def source_offset(column: Column) -> int:
    """Milliseconds of the offset of times that name none."""
    return times.offset_ms(column.source_offset or "+00:00") or 0


def cut(text: str, length: int) -> str:
    """The longest beginning of a text that holds at most `length` bytes of UTF-8."""
    return text.encode()[:length].decode(errors="ignore")


def compact(raw: str) -> str:
    """JSON text without insignificant whitespace; numbers and escapes stay as written."""
    if " " in raw or "\t" in raw or "\r" in raw or "\n" in raw:
        return _STRING_OR_SPACE.sub(r"\1", raw)
    return raw


def boolean(value: Any, _raw: str) -> Result:
    """The rule of booleans."""
    if value is True or value is False:
        return value, None
    if type(value) is str and value in _BOOLEANS:
        return _BOOLEANS[value], None
    return None, UNFIT


def _string_rule(length: int) -> Rule:
    def rule(value: Any, raw: str) -> Result:
        if type(value) is not str and _has_constant(raw):
            return None, NOT_FINITE
        text: str = value if type(value) is str else compact(raw)
        if len(text) * 4 <= length or len(text.encode()) <= length:
            return text, None
        return cut(text, length), CUT

    return rule


def _json_rule(length: int) -> Rule:
    def rule(_value: Any, raw: str) -> Result:
        if _has_constant(raw):
            return None, NOT_FINITE
        text = compact(raw)
        if len(text) * 4 <= length or len(text.encode()) <= length:
            return text, None
        return None, TOO_LONG

    return rule


def _has_constant(raw: str) -> bool:
    """Whether NaN or an infinity stands anywhere in a JSON text without quotes."""
    if "NaN" not in raw and "Infinity" not in raw:
        return False
    bare = _STRING.sub("", raw)
    return "NaN" in bare or "Infinity" in bare


def _number_text(value: Any) -> str | None:
    """The text of a number or a numeric string."""
    if type(value) is Number or (type(value) is str and _NUMERIC.fullmatch(value)):
        return str(value)
    return None


def _integer_rule(bits: int) -> Rule:
    top = 1 << (bits - 1)

    def rule(value: Any, _raw: str) -> Result:
        text = _number_text(value)
        if text is None:
            return None, UNFIT
        whole, _ = scaled(text)
        if whole is None or not -top <= whole < top:
            return None, OUT_OF_RANGE
        return whole, None

    return rule


def _float_rule(overflow: float) -> Rule:
    def rule(value: Any, _raw: str) -> Result:
        text = _number_text(value)
        if text is None:
            return None, NOT_FINITE if type(value) is str and value in _NAMED_NUMBERS else UNFIT
        number = float(text)
        return (number, None) if abs(number) < overflow else (None, NOT_FINITE)

    return rule


def _decimal_rule(precision: int, scale: int) -> Rule:
    """More fraction digits than the scale are dropped; more integer digits than fit are out of range."""
    limit = 10**precision

    def rule(value: Any, _raw: str) -> Result:
        text = _number_text(value)
        if text is None:
            return None, UNFIT
        units, _ = scaled(text, scale)
        if units is None or abs(units) >= limit:
            return None, OUT_OF_RANGE
        return Decimal(units).scaleb(-scale, _EXACT), None

    return rule


def _timestamp_rule(column: Column) -> Rule:
    """Instants in milliseconds, UTC. The column's zone offset says where the time is shown, not what is stored."""
    offset, unit = source_offset(column), column.time_unit or "seconds"

    def rule(value: Any, _raw: str) -> Result:
        if type(value) is str:
            instant = times.parse_timestamp(value, offset)
            if instant is not None:
                return instant, None
        instant = _unix_time(_number_text(value), unit)
        return instant, UNFIT if instant is None else None

    return rule


def _unix_time(text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    whole, exact = scaled(text)
    if whole is None:
        return None
    return times.unix_int(whole, unit) if exact else times.unix_float(float(text), unit)


def _date_rule(column: Column, zone: ZoneInfo) -> Rule:
    timestamp = _timestamp_rule(column)

    def rule(value: Any, raw: str) -> Result:
        day = times.parse_date(value) if type(value) is str else None
        if day is None:
            instant, _ = timestamp(value, raw)
            day = None if instant is None else times.day_of(instant, zone)
        return day, UNFIT if day is None else None

    return rule

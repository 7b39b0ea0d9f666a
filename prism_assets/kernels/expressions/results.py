"""Types the results of expressions by the rules of their column, as if they were values in a line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial

import numpy as np
import pyarrow as pa

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    JsonType,
    NestedType,
    RealType,
    StringType,
    TimestampType,
)
from prism_assets.kernels import columns
from prism_assets.kernels.json.rows import NOTHING, Value
from prism_assets.kernels.numbers import of_single
from prism_assets.kernels.typed import Layout, Misfits, misfits_of, type_column, type_one_by_one
from prism_assets.kernels.values import UNFIT, Constant, Number, scan_once

_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_HUGE = frozenset({"HUGEINT", "UHUGEINT", "UBIGINT", "BIGNUM", "VARINT", "INTEGER_LITERAL"})
_TEXT = frozenset({"VARCHAR", "UUID", "DATE", "TIME", "INTERVAL", "BIT", "BITSTRING", '"NULL"', "NULL"})
_NULL = frozenset({'"NULL"', "NULL"})
_NESTED = re.compile(r"(STRUCT|MAP|UNION)\(.*|.*\[\d*\]", re.DOTALL)
_NAMES_AND_FLOATS = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\bFLOAT\b""")
"""The type FLOAT, and quoted names, which may also be FLOAT."""
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_INSTANT = "TIMESTAMP WITH TIME ZONE"
"""An instant in no zone, as strptime makes of a text with an offset."""
_BEYOND = (1 << 63) - 1
"""Microseconds outside all years. They stand for infinite times."""
_PER_MS = 1000
_WHITESPACE = " \t\r\n"


class Kind(Enum):
    """The form in which a result leaves DuckDB."""

    BOOLEAN = auto()
    WHOLE = auto()
    NUMBER = auto()
    """A number of any size, as text."""
    DOUBLE = auto()
    SINGLE = auto()
    """A single-precision number, as a double. It is written with its significant digits."""
    TEXT = auto()
    JSON = auto()
    """JSON text."""
    INSTANT = auto()
    """Microseconds since the epoch."""


def fetched(sql_type: str, column: Column, value: str) -> tuple[Kind, str] | None:
    """Returns kind and SQL to fetch a result of this type for a column, or None if the column cannot take it."""
    if isinstance(column.type, NestedType):
        is_json = sql_type == "JSON" or _NESTED.fullmatch(sql_type) or sql_type in _NULL
        return (Kind.JSON, f"CAST(to_json({_written_singles(sql_type, value)}) AS VARCHAR)") if is_json else None
    if sql_type == "BOOLEAN":
        return Kind.BOOLEAN, value
    if sql_type in _WHOLE:
        return Kind.WHOLE, f"CAST({value} AS BIGINT)"
    if sql_type in _HUGE or sql_type.startswith("DECIMAL"):
        return Kind.NUMBER, f"CAST({value} AS VARCHAR)"
    if sql_type in ("FLOAT", "DOUBLE"):
        is_written = isinstance(column.type, DecimalType | StringType | JsonType)
        return Kind.SINGLE if sql_type == "FLOAT" and is_written else Kind.DOUBLE, f"CAST({value} AS DOUBLE)"
    if sql_type == _INSTANT and isinstance(column.type, TimestampType | DateType):
        microseconds = f"epoch_us({value})"
        return (
            Kind.INSTANT,
            f"CASE WHEN isfinite({value}) THEN {microseconds} WHEN {value} IS NOT NULL THEN {_BEYOND} END",
        )
    if sql_type in _TIMESTAMPS and isinstance(column.type, TimestampType | DateType):
        at, microseconds = f"CAST({value} AS TIMESTAMP)", f"epoch_us(CAST({value} AS TIMESTAMP))"
        if sql_type == "TIMESTAMP_NS":  # a cast rounds to the nearest microsecond, and fails at the ends of the range
            at, whole = value, f"epoch_ns({value})"
            microseconds = f"{whole} // 1000 - CAST({whole} % 1000 < 0 AS BIGINT)"
        return Kind.INSTANT, f"CASE WHEN isfinite({at}) THEN {microseconds} WHEN {at} IS NOT NULL THEN {_BEYOND} END"
    if sql_type in _TEXT or sql_type in _TIMESTAMPS or sql_type.startswith("ENUM"):
        return (Kind.JSON if isinstance(column.type, JsonType) else Kind.TEXT), f"CAST({value} AS VARCHAR)"
    if sql_type == "JSON":
        return Kind.JSON, f"CAST({value} AS VARCHAR)"
    if _NESTED.fullmatch(sql_type):
        return Kind.JSON, f"CAST(to_json({_written_singles(sql_type, value)}) AS VARCHAR)"
    return None


def _written_singles(sql_type: str, value: str) -> str:
    """Returns SQL that turns nested single-precision numbers into doubles with the same digits. to_json alone would
    widen 0.1 with noise.
    """
    text, double = (_NAMES_AND_FLOATS.sub(partial(_with_floats, name), sql_type) for name in ("VARCHAR", "DOUBLE"))
    return value if text == sql_type else f"CAST(CAST({value} AS {text}) AS {double})"


def _with_floats(name: str, found: re.Match[str]) -> str:
    return name if found[0] == "FLOAT" else found[0]


def typed(layout: Layout, position: int, kind: Kind, found: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    """Converts the results of one column to its type, exactly like values of lines."""
    column = layout.columns[position]
    whole = layout.rules[position].whole
    match kind:
        case Kind.TEXT:
            return type_column(layout, position, found)
        case Kind.BOOLEAN if isinstance(column.type, BooleanType):
            return type_column(layout, position, found)
        case Kind.WHOLE if whole is not None:
            return type_column(layout, position, found.cast(whole, safe=False))
        case Kind.DOUBLE if isinstance(column.type, DoubleType | RealType):
            return type_column(layout, position, found)
        case Kind.JSON:
            return _json_values(layout, position, found)
        case Kind.INSTANT:
            return _instants(layout, position, found)
        case _:
            return type_one_by_one(layout, position, _as_in_lines(found, _WRITTEN[kind]))


def _as_in_lines(found: pa.Array, written: Callable[[object], Value]) -> Iterable[Value]:
    return (NOTHING if value is None else written(value) for value in found.to_pylist())


def _boolean(value: object) -> Value:
    return value, "true" if value else "false"


def _number(value: object) -> Value:
    return Number(value), str(value)


def _double(value: object) -> Value:
    number = float(value)  # type: ignore[arg-type]  # it is one
    if not math.isfinite(number):
        name = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return Constant(name), name
    return Number(repr(number)), repr(number)


def _single(value: object) -> Value:
    return _double(of_single(value))  # type: ignore[arg-type]  # it is one


def _json_values(layout: Layout, position: int, found: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    """Converts JSON text as if it were part of a line. Text that is no JSON does not fit."""
    read = [None if text is None else _scanned(text.strip(_WHITESPACE)) for text in found.to_pylist()]
    array, misfits = type_one_by_one(layout, position, (value or NOTHING for value in read))
    malformed = [row for row, value in enumerate(read) if value is None and found[row].is_valid]
    return array, [*misfits, *([Misfits(position, UNFIT, np.array(malformed, np.int64))] if malformed else [])]


def _scanned(text: str) -> Value | None:
    try:
        value, end = scan_once(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    return (value, text) if end == len(text) else None


_WRITTEN: dict[Kind, Callable[[object], Value]] = {
    Kind.BOOLEAN: _boolean,
    Kind.WHOLE: _number,
    Kind.NUMBER: _number,
    Kind.DOUBLE: _double,
    Kind.SINGLE: _single,
}


def _instants(layout: Layout, position: int, found: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    instants = columns.in_years(columns.floored(found, _PER_MS))
    is_date = isinstance(layout.columns[position].type, DateType)
    result = columns.days_of(instants, layout.table.zone) if is_date else instants
    return result.array, misfits_of(position, result)

"""What kinds of values a key has in a sample of lines, and how the values are best read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from prism_assets.domain.tables import INTEGER_TYPES, Column
from prism_assets.kernels.json.rows import Fields, RejectedError, read_line
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.values import Number

SAMPLE = 24
# A number of so many characters may not fit 64 bits.
_HUGE = 19
# A kind is rare if fewer than one in so many values have it.
_RARE = 8

# How often each key had which kind.
Kinds = dict[str, Counter[str]]
# How to read each key: an Arrow type, or None where the JSON text itself is needed.
Plan = dict[str, pa.DataType | None]

_WHOLE_NUMBERS = ("timestamp", "date", *INTEGER_TYPES)
_NUMBERS = ("real", "double")
_DEFAULTS: dict[str, pa.DataType | None] = {
    **dict.fromkeys(INTEGER_TYPES, pa.int64()),
    **dict.fromkeys(_NUMBERS, pa.float64()),
    "boolean": pa.bool_(),
    "json": None,
}


def kind_of(value: Any) -> str | None:
    """The kind of a JSON value: string, whole, huge, fraction, boolean or other; None for null."""
    if value is None:
        return None
    if type(value) is Number:
        whole = "whole" if len(value) < _HUGE else "huge"
        return whole if value.lstrip("-").isdigit() else "fraction"
    if isinstance(value, bool):
        return "boolean"
    return "string" if type(value) is str else "other"


def look_at(fields: Fields, kinds: Kinds) -> None:
    """Adds the kinds of one line's values."""
    for source, (value, _) in fields.items():
        kind = kind_of(value)
        if kind is not None:
            kinds.setdefault(source, Counter())[kind] += 1


def sample_kinds(layout: Layout, lines: Iterable[bytes]) -> Kinds:
    """The kinds of values that each key has in some lines; malformed lines say nothing."""
    wanted = dict.fromkeys(layout.sources, "")
    kinds: Kinds = {}
    for line in lines:
        try:
            look_at(read_line(line, wanted), kinds)
        except RejectedError:
            continue
    return kinds


def plan_of(layout: Layout, kinds: Kinds) -> Plan:
    """Chooses how each key is read, so that it serves all columns that read the key."""
    plan: Plan = {}
    for column in layout.columns:
        chosen = _choice(column, _common(kinds.get(column.source, Counter())))
        if column.source in plan and plan[column.source] != chosen:
            chosen = None
        plan[column.source] = chosen
    return plan


def _common(kinds: Counter[str]) -> set[str]:
    """The kinds that are not rare: lines with a rare one take the exact way. A fraction is never rare."""
    return {kind for kind, count in kinds.items() if count * _RARE > kinds.total() or kind == "fraction"}


def _choice(column: Column, kinds: set[str]) -> pa.DataType | None:
    if not kinds:
        return _DEFAULTS.get(column.type, pa.string())
    if kinds == {"string"}:
        return None if column.type == "json" else pa.string()
    if kinds == {"boolean"}:
        return pa.bool_() if column.type == "boolean" else None
    if kinds <= {"whole", "huge", "fraction"}:
        return _number_choice(column, kinds)
    return None


def _number_choice(column: Column, kinds: set[str]) -> pa.DataType | None:
    if column.type in _NUMBERS:
        return pa.float64()
    if column.type in _WHOLE_NUMBERS and kinds == {"whole"}:
        return pa.int64()
    return pa.float64() if column.type in ("timestamp", "date") and "huge" not in kinds else None

"""Finds the kinds of values of each key in a sample of lines, and the best way to read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, auto
from typing import Any

import pyarrow as pa

from prism_assets.kernels.type_rules import ReadAs
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.values import Number, scan_once

SAMPLE = 24
# Numbers with this many characters may not fit 64 bits.
_HUGE = 19
# A kind is rare if fewer than one in this many values have it.
_RARE = 8


class Kind(IntEnum):
    """The kind of a JSON value. The members are integers, because Python hashes those faster and kinds are counted."""

    STRING = auto()
    WHOLE = auto()
    """A number without fraction or exponent that surely fits 64 bits."""
    HUGE = auto()
    """A number without fraction or exponent with too many digits to be sure."""
    FRACTION = auto()
    BOOLEAN = auto()
    OTHER = auto()


# Counts of kinds by key.
Kinds = dict[str, Counter[Kind]]
# How to read each key: an Arrow type, or None for its JSON text.
Plan = dict[str, pa.DataType | None]


def kind_of(value: Any) -> Kind | None:
    """Returns the kind of a JSON value, or None for null."""
    if value is None:
        return None
    if type(value) is Number:
        whole = Kind.WHOLE if len(value) < _HUGE else Kind.HUGE
        return whole if value.lstrip("-").isdigit() else Kind.FRACTION
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.STRING if type(value) is str else Kind.OTHER


def sample_kinds(layout: Layout, lines: Iterable[bytes]) -> Kinds:
    """Counts the kinds of each key's values in some lines. Ignores malformed lines.

    The counts decide only how values are read fastest, so for a duplicate key the last value is enough.
    """
    read = [_fields_of(line) for line in lines]
    kinds: Kinds = {}
    for source in layout.sources:
        found = (kind_of(fields.get(source)) for fields in read)
        counts = Counter(kind for kind in found if kind is not None)
        if counts:
            kinds[source] = counts
    return kinds


def _fields_of(line: bytes) -> dict[str, Any]:
    try:
        fields, _ = scan_once(line.decode().lstrip(), 0)
    except (ValueError, StopIteration, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def plan_of(layout: Layout, kinds: Kinds) -> Plan:
    """Chooses how to read each key, so that it serves all columns reading the key."""
    plan: Plan = {}
    for position, source in layout.lookups.plain.items():
        chosen = _choice(layout.rules[position].read_as, _common(kinds.get(source, Counter())))
        if source in plan and plan[source] != chosen:
            chosen = None
        plan[source] = chosen
    return plan


def _common(kinds: Counter[Kind]) -> set[Kind]:
    """Returns the frequent kinds. Lines with a rare kind take the exact reader. Fractions always count as frequent."""
    return {kind for kind, count in kinds.items() if count * _RARE > kinds.total() or kind is Kind.FRACTION}


def _choice(read_as: ReadAs, kinds: set[Kind]) -> pa.DataType | None:
    if not kinds:
        return read_as.nothing
    if kinds == {Kind.STRING}:
        return read_as.strings
    if kinds == {Kind.BOOLEAN}:
        return read_as.booleans
    if kinds == {Kind.WHOLE}:
        return read_as.whole
    if kinds <= {Kind.WHOLE, Kind.FRACTION}:
        return read_as.fractions
    return read_as.huge if kinds <= {Kind.WHOLE, Kind.FRACTION, Kind.HUGE} else None

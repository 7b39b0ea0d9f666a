"""Counts the slots of nested values from their texts, before anything is built of them.

All elements and entries count as they are written: nulls, misfits, and those of maps with a key that is too long. If a
key of a struct occurs twice, the first value counts. So the compiled kernel finds the same count in one walk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.columns import types
from prism_assets.domain.columns.types import (
    ColumnType,
    ListType,
    MapType,
    NestedType,
    StructType,
    all_parts,
    slots_below,
)
from prism_assets.kernels.values import Constant, Number

_Counter = Callable[[Any], int]


class _Members(list[tuple[str, Any]]):
    """The members of an object. A key may occur twice."""

    __slots__ = ()


_scan_members: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    object_pairs_hook=_Members, parse_float=Number, parse_int=Number, parse_constant=Constant
).scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True)
class SlotCounter:
    """Counts the slots of values of one type."""

    widest: int
    """The slots of one element or entry, if all lists and maps of the type had it."""
    counter: _Counter | None
    """Counts the slots of a value. None if the type has no lists and maps."""

    @classmethod
    def of(cls, kind: NestedType) -> SlotCounter:
        """Returns the counter of a type."""
        kinds = [kind, *(part.type for part in all_parts(kind))]
        return cls(sum(slots_below(kind) for kind in kinds if not isinstance(kind, StructType)), _counter(kind))

    def most(self, raw: str) -> int:
        """Returns a number that the slots of a JSON text do not exceed."""
        # An element or entry has two characters at least, with the comma or the bracket after it.
        return len(raw) // 2 * self.widest

    def count(self, raw: str) -> int:
        """Returns the slots that the elements and entries in a JSON text take."""
        return self.counter(_scan_members(raw, 0)[0]) if self.counter and raw else 0


def too_large(counters: Sequence[SlotCounter], texts: Sequence[str]) -> Sequence[bool]:
    """Returns which nested values of a line are null: those that take more slots than the ones before them leave."""
    left = types.MOST_SLOTS
    if sum(counter.most(raw) for counter, raw in zip(counters, texts, strict=True)) <= left:
        return [False] * len(texts)
    answers = []
    for counter, raw in zip(counters, texts, strict=True):
        slots = counter.count(raw)
        answers.append(slots > left)
        left -= 0 if slots > left else slots
    return answers


def _counter(kind: ColumnType) -> _Counter | None:
    match kind:
        case StructType(fields):
            counted = [(part.source or part.name, _counter(part.type)) for part in fields]
            return _of_fields([(key, counter) for key, counter in counted if counter is not None])
        case ListType(element):
            return _of_elements(slots_below(kind), _counter(element.type))
        case MapType(_, value):
            return _of_entries(slots_below(kind), _counter(value.type))
    return None


def _of_fields(fields: list[tuple[str, _Counter]]) -> _Counter | None:
    def count(value: Any) -> int:
        if type(value) is not _Members:
            return 0
        first = dict(reversed(value))
        return sum(counter(first.get(key)) for key, counter in fields)

    return count if fields else None


def _of_elements(slots: int, inner: _Counter | None) -> _Counter:
    def count(value: Any) -> int:
        if type(value) is not list:
            return 0
        return slots * len(value) + (sum(map(inner, value)) if inner else 0)

    return count


def _of_entries(slots: int, inner: _Counter | None) -> _Counter:
    def count(value: Any) -> int:
        if type(value) is not _Members:
            return 0
        return slots * len(value) + (sum(inner(item) for _, item in value) if inner else 0)

    return count

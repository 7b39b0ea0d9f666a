"""Structs, lists and maps for the nested values of a sample.

At most one in a hundred values may have another form; it would be null and counted. Objects with few keys like names
are structs, other objects with values of one scalar kind are maps. Everything else stays json, which takes every value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from prism_assets.domain.columns.parts import path_below
from prism_assets.domain.columns.type_names import ELEMENT, KEY, VALUE
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    ColumnType,
    Field,
    ListType,
    MapType,
    NestedType,
    StringType,
    StructType,
)
from prism_assets.domain.streams.survey import Inside, KeyEvidence, ValueKind
from prism_assets.domain.tables.drafted_types import ALMOST_ALL, leaf_type, length_for, loss_in, others_than, wide_type
from prism_assets.domain.text import counted

_LIKE_A_NAME = re.compile(r"[A-Za-z_@$][A-Za-z0-9_]{0,63}")
_LIKE_AN_ID = re.compile(r"(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}|[0-9A-HJKMNP-TV-Z]{26}")
"""Hexadecimal digits, and ULIDs."""
_NUMBER = re.compile(r"[0-9]+")
_MOST_NUMBERED = 8
"""Fields whose names differ in a number only, such as `line_1` and `line_2`."""
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 50  # of 64, because numbers are appended


@dataclass(frozen=True)
class DraftedField:
    """A field for the struct at a path of an existing table."""

    within: str
    field: Field
    comment: str
    """The evidence in the sample."""


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Returns the name, with a number if it is taken."""
    chosen, number = wanted, 2
    while chosen in taken:
        chosen, number = f"{wanted}_{number}", number + 1
    return chosen


def names_for(keys: Collection[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Returns a unique valid name for each key, in snake case, with a number if it is taken."""
    names: dict[str, str] = {}
    used = set(taken)
    for key in keys:
        words = _NO_WORD.sub("_", _NEW_WORD.sub("_", key).lower()).strip("_")
        base = words if words[:1].isalpha() else f"c_{words}"
        names[key] = free_name(base[:_LONGEST_NAME].rstrip("_"), used)
        used.add(names[key])
    return names


def nested_type(evidence: KeyEvidence) -> NestedType | None:
    """Returns the type of nested values, or None if only json keeps almost all of them."""
    inside = evidence.inside
    if inside is None:
        return None
    if inside.objects >= ALMOST_ALL * evidence.values and not inside.doubled:
        return _struct(inside) or _map(inside)
    if inside.arrays >= ALMOST_ALL * evidence.values and inside.elements is not None:
        element = _part(ELEMENT, inside.elements) or _scalar(ELEMENT, inside.elements)
        return None if element is None else ListType(element)
    return None


def _struct(inside: Inside) -> StructType | None:
    if inside.has_more_keys or not inside.keys or not _are_names(inside.keys):
        return None
    names = names_for(inside.keys)
    return StructType(tuple(_field(names[key], evidence) for key, evidence in inside.keys.items()))


def _are_names(keys: Collection[str]) -> bool:
    """Whether all keys are like names of fields, and not like ids."""
    if any(not _LIKE_A_NAME.fullmatch(key) or _LIKE_AN_ID.fullmatch(key) for key in keys):
        return False
    return len(keys) - len({_NUMBER.sub("", key) for key in keys}) < _MOST_NUMBERED


def _map(inside: Inside) -> MapType | None:
    value = _scalar(VALUE, inside.values)
    return None if value is None else MapType(Field(name=KEY, type=StringType(), length=DEFAULT_LENGTH), value)


def _field(name: str, evidence: KeyEvidence) -> Field:
    """Returns a field of a struct. A value of mixed kinds is a text or json."""
    return _part(name, evidence, evidence.key) or _leaf(name, evidence, evidence.key)


def _part(name: str, evidence: KeyEvidence, source: str | None = None) -> Field | None:
    kind = nested_type(evidence)
    return None if kind is None else Field(name=name, source=source, type=kind)


def _scalar(name: str, evidence: KeyEvidence) -> Field | None:
    """Returns the part for values of one scalar kind, or None for mixed ones."""
    if not evidence.values or evidence.kinds[ValueKind.NESTED]:
        return None
    part = _leaf(name, evidence)
    return part if others_than(evidence, part.type).total() <= (1 - ALMOST_ALL) * evidence.values else None


def new_field(name: str, evidence: KeyEvidence, *, wide: bool = False) -> Field:
    """Returns a field for a struct of an existing table. A `wide` one leaves room for values beyond a small sample."""
    if not wide:
        return _field(name, evidence)
    kind = wide_type(evidence, leaf_type(evidence, name, is_time=False)[0])
    return Field(name=name, source=evidence.key, type=kind, length=DEFAULT_LENGTH if kind.takes_length else None)


def _leaf(name: str, evidence: KeyEvidence, source: str | None = None) -> Field:
    kind, unit = leaf_type(evidence, name, is_time=False)
    length = length_of_texts(evidence, kind)
    return Field(name=name, source=source, type=kind, length=length, time_unit=None if unit == "seconds" else unit)


def length_of_texts(evidence: KeyEvidence, kind: ColumnType) -> int | None:
    """Returns the length for values of a type; for json and unseen texts the greatest. None for types without."""
    if isinstance(kind, StringType) and evidence.values:
        return length_for(evidence.longest)
    return DEFAULT_LENGTH if kind.takes_length else None


def losses_in(evidence: KeyEvidence, kind: ColumnType, path: str) -> Iterator[str]:
    """Yields sentences on values of the sample that the type shortens or loses, with their paths."""
    inside = evidence.inside
    if not kind.parts or inside is None:
        if loss := loss_in(evidence, kind):
            yield f"{path}: {loss}"
        return
    others = evidence.values - (inside.arrays if isinstance(kind, ListType) else inside.objects)
    if others:
        yield f"{path}: {counted(others, 'value is', 'values are')} null, of another kind"
    for part in kind.parts:
        found = _evidence_of(part, kind, inside)
        if found is not None:
            yield from losses_in(found, part.type, path_below(path, kind, part))


def _evidence_of(part: Field, kind: ColumnType, inside: Inside) -> KeyEvidence | None:
    match kind:
        case StructType():
            return inside.keys.get(part.source or part.name)
        case MapType():
            return inside.values if part == kind.value else None
    return inside.elements


def is_short(kind: ColumnType) -> bool:
    """Whether Spark's notation says everything about a type: fields read the keys of their names."""
    return all(
        part.source in (None, part.name) and part.time_unit is None and is_short(part.type) for part in kind.parts
    )

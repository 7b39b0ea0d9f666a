"""The value rules of nested types: one value at a time, with the misfits of its parts by their paths.

A part that does not fit is null, and the parts around it and beside it stay. A second occurrence of a key that a field
reads, or of a key of a map, sets the whole line aside. A value with too many elements is null. Nothing in it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from prism_assets.domain.columns.parts import path_below
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    Field,
    ListType,
    MapType,
    NestedType,
    StructType,
    slots_below,
)
from prism_assets.domain.days.lengths import TOO_LONG
from prism_assets.domain.streams.reasons import DUPLICATE_KEY
from prism_assets.kernels.columns import Typed, to_array
from prism_assets.kernels.field_ids import field_with_id
from prism_assets.kernels.json.picks import elements_of
from prism_assets.kernels.json.rows import EveryKey, Others, RejectedError, read_object
from prism_assets.kernels.nested_slots import SlotCounter, too_large
from prism_assets.kernels.values import NOT_FINITE, UNFIT, Constant, Rule


@dataclass
class _Notes:
    """What a value has beside its stored form."""

    misfits: dict[tuple[str, str], None] = field(default_factory=dict)
    """Paths below the column with reasons, each once."""
    others: OtherKeys | None = None
    """Keys that no field reads. None if nobody asks."""
    slots: int = 0
    """Slots of elements and entries."""

    def unfit(self, path: str, value: Any) -> None:
        """Notes a value of another form than its type."""
        self.misfits[path, NOT_FINITE if type(value) is Constant else UNFIT] = None


OtherKeys = list[tuple[str, str, Any]]
"""Paths of structs below the column, with a key that no field reads, and its value."""
_Reader = Callable[[Any, str, _Notes], Any]


@dataclass(frozen=True)
class NestedValue:
    """A value as it is stored: a tuple for a struct, in the order of Arrow, a list, a list of pairs for a map."""

    stored: Any
    misfits: tuple[tuple[str, str], ...]
    """Paths below the column, `""` for the column itself, with reasons."""
    slots: int = 0
    """Slots that elements and entries take in Arrow's arrays."""


NULL = NestedValue(None, ())
TOO_LARGE = NestedValue(None, (("", TOO_LONG),))


@dataclass(frozen=True)
class NestedRule:
    """The rule of one nested column. `column` names it where a line is set aside."""

    column: str
    arrow: pa.DataType
    read_parts: _Reader
    slots: SlotCounter

    @classmethod
    def of(cls, column: str, kind: NestedType, leaf: Callable[[Field], tuple[pa.DataType, Rule]]) -> NestedRule:
        """Returns the rule of a type. `leaf` returns Arrow's type and the rule of a part without parts."""
        return cls(column, arrow_type(kind, leaf), _reader(column, "", kind, leaf), SlotCounter.of(kind))

    def read(self, value: Any, raw: str, others: OtherKeys | None = None) -> NestedValue:
        """Reads a JSON value with its text, which is not too large. Raises RejectedError for a duplicate key.

        `others` collects keys that no field reads.
        """
        if value is None:
            return NULL
        notes = _Notes(others=others)
        stored = self.read_parts(value, raw, notes)
        return NestedValue(stored, tuple(notes.misfits), notes.slots)

    def read_alone(self, value: Any, raw: str) -> NestedValue:
        """Reads a JSON value that no others of a line are beside."""
        (is_large,) = too_large([self.slots], [raw])
        return TOO_LARGE if is_large else self.read(value, raw)

    def exact(self, value: Any, raw: str) -> tuple[Any, str | None]:
        """Returns the stored value, and the first reason of a misfit."""
        found = self.read_alone(value, raw)
        return found.stored, found.misfits[0][1] if found.misfits else None


def arrow_type(
    kind: NestedType, leaf: Callable[[Field], tuple[pa.DataType, Rule]], *, current_names: bool = False
) -> pa.DataType:
    """Returns the stored Arrow type: each part with its id, the fields of structs in the order of their ids.

    Fields have their names in objects, or the current ones.
    """

    def stored(part: Field, *, nullable: bool = True) -> pa.Field:
        if isinstance(part.type, NestedType):
            inner = arrow_type(part.type, leaf, current_names=current_names)
        else:
            inner = leaf(part)[0]
        name = part.name if current_names else part.stored_name
        return field_with_id(name, inner, part.field_id, nullable=nullable)

    match kind:
        case StructType():
            return pa.struct([stored(part) for part in kind.by_id])
        case ListType(element):
            return pa.list_(stored(element))
        case MapType(key, value):
            return pa.map_(stored(key, nullable=False), stored(value))


def _reader(column: str, path: str, kind: NestedType, leaf: Callable[[Field], tuple[pa.DataType, Rule]]) -> _Reader:
    def part_reader(part: Field) -> _Reader:
        below = path_below(path, kind, part)
        if isinstance(part.type, NestedType):
            return _reader(column, below, part.type, leaf)
        return _leaf_reader(below, leaf(part)[1])

    match kind:
        case StructType():
            return _struct_reader(column, path, kind, part_reader)
        case ListType(element):
            return _list_reader(path, slots_below(kind), part_reader(element))
        case MapType(_, value):
            return _map_reader(column, path, kind, part_reader(value))


def _leaf_reader(path: str, rule: Rule) -> _Reader:
    def read(value: Any, raw: str, notes: _Notes) -> Any:
        if value is None:
            return None
        stored, reason = (None, NOT_FINITE) if type(value) is Constant else rule(value, raw)
        if reason is not None:
            notes.misfits[path, reason] = None
        return stored

    return read


def _of_form(form: type, path: str, read_text: Callable[[str, _Notes], Any]) -> _Reader:
    """Returns the reader of a level: null stays null, and so does a value of another form, which is noted."""

    def read(value: Any, raw: str, notes: _Notes) -> Any:
        if value is None:
            return None
        if type(value) is not form:
            notes.unfit(path, value)
            return None
        return read_text(raw, notes)

    return read


def _struct_reader(column: str, path: str, kind: StructType, reader_of: Callable[[Field], _Reader]) -> _Reader:
    sources = {part.name: part.source or part.name for part in kind.fields}
    wanted = {sources[part.name]: column + path_below(path, kind, part) for part in reversed(kind.fields)}
    readers = [(sources[part.name], reader_of(part)) for part in kind.by_id]

    def read(raw: str, notes: _Notes) -> Any:
        others: Others | None = None if notes.others is None else []
        fields = read_object(raw, 1, wanted, others)
        if others and notes.others is not None:
            notes.others += [(path, key, found) for key, found in others]
        return tuple(read_part(*fields.get(key, (None, "")), notes) for key, read_part in readers)

    return _of_form(dict, path, read)


def _list_reader(path: str, slots: int, read_element: _Reader) -> _Reader:
    def read(raw: str, notes: _Notes) -> Any:
        elements = [read_element(element, text, notes) for element, text in elements_of(raw)]
        notes.slots += slots * len(elements)
        return elements

    return _of_form(list, path, read)


def _map_reader(column: str, path: str, kind: MapType, read_value: _Reader) -> _Reader:
    longest = DEFAULT_LENGTH if kind.key.length is None else kind.key.length
    below, slots = path_below(path, kind, kind.value), slots_below(kind)
    wanted = EveryKey(column + below)

    def read(raw: str, notes: _Notes) -> Any:
        fields = read_object(raw, 1, wanted)
        if any(len(name) * 4 > longest and len(name.encode()) > longest for name in fields):
            notes.misfits[below, TOO_LONG] = None
            return None
        notes.slots += slots * len(fields)
        return [(name, read_value(found, text, notes)) for name, (found, text) in fields.items()]

    return _of_form(dict, path, read)


@dataclass
class NestedBuilder:
    """Collects the values of one nested column one by one."""

    rule: NestedRule
    values: list[Any] = field(default_factory=list)
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, value: Any, raw: str) -> None:
        """Adds a JSON value with its text. A value with a duplicate key is null, as no line can be set aside."""
        try:
            read = self.rule.read_alone(value, raw)
        except RejectedError:
            read = NestedValue(None, (("", DUPLICATE_KEY),))
        self.add_read(read)

    def add_read(self, read: NestedValue) -> None:
        """Adds a value that the rule has read."""
        for misfit in read.misfits:
            self.found.setdefault(misfit, []).append(len(self.values))
        self.values.append(read.stored)

    def typed(self) -> Typed:
        """Returns the values as an Arrow array, and the rows with misfits, by path and reason in alphabetical order.

        So the first misfit of a row is the same, whatever rows are before it in the block.
        """
        inside = {misfit: np.array(rows, np.int64) for misfit, rows in sorted(self.found.items())}
        return Typed(to_array(self.values, self.rule.arrow), {}, inside)

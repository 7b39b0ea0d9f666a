"""The exact reader: reads line by line and decides every case of bad input. The compiled kernel must agree with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from prism_assets.domain.columns.parts import is_in_map, path_of_key
from prism_assets.domain.streams.reasons import UNDEFINED_FIELD
from prism_assets.domain.streams.sources import Constant, Fact
from prism_assets.domain.tables.drift import MOST_KEYS, FieldKind, shown_key
from prism_assets.kernels.columns import ColumnBuilder, Indices
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block, Lines, OuterValues, find_lines
from prism_assets.kernels.json.picks import MessageFact, constant_value, line_fact
from prism_assets.kernels.json.routing import own_lines
from prism_assets.kernels.json.rows import NOTHING, Fields, Others, Reject, RejectedError, Value, read_line
from prism_assets.kernels.json.undefined import UndefinedFields, kind_of, noted, sampled_lines
from prism_assets.kernels.messages.columns import absent_times, fact_column, mixed_misfits
from prism_assets.kernels.messages.facts import MessageFacts
from prism_assets.kernels.nested import TOO_LARGE, NestedBuilder, NestedValue, OtherKeys
from prism_assets.kernels.nested_slots import too_large
from prism_assets.kernels.typed import (
    Layout,
    Mask,
    Misfits,
    TypedRows,
    builders,
    misfits_of,
    type_column,
    type_one_by_one,
)


def read_lines(layout: Layout, block: Block, most_slots: int = sys.maxsize) -> BlockRows:
    """Reads the lines of a block one by one, up to the one whose nested values bring the slots to the most."""
    lines = find_lines(block)
    if not len(lines):
        return BlockRows(lines, [], [], 0, UndefinedFields())
    places = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
    texts = [block.data[start:end] for start, end in places]
    own = own_lines(layout.route, texts)
    rows, rejects, undefined, count = _read(layout, texts, lines.numbers, own, block.outer, block.messages, most_slots)
    is_cut = count < len(lines)
    if is_cut:
        lines = Lines(lines.starts[:count], lines.ends[:count], lines.numbers[:count])
    return BlockRows(lines, [rows], rejects, 0, undefined, np.flatnonzero(~own[:count]), is_cut)


def _read(
    layout: Layout,
    lines: Sequence[bytes],
    numbers: Indices,
    own: Mask,
    outer: Sequence[OuterValues],
    messages: MessageFacts | None,
    most_slots: int,
) -> tuple[TypedRows, list[Reject], UndefinedFields, int]:
    """Reads lines. Also returns how many were read."""
    lookups, readers = layout.lookups, builders(layout)
    next_outer = 0
    plain = [(reader, key) for position, key in lookups.plain.items() if (reader := _flat(readers[position]))]
    picks = list(lookups.picks.values())
    flat_picks = [(reader, place) for place, p in enumerate(lookups.picks) if (reader := _flat(readers[p]))]
    nested = _NestedColumns(layout, readers)
    time = layout.partition
    picked_time = list(lookups.picks).index(time) if time in lookups.picks else None
    kept: list[int] = []
    absent: list[bool] = []
    rejects: list[Reject] = []
    undefined, looked = UndefinedFields(), sampled_lines(numbers)
    count, slots = len(lines), 0
    for position, line in enumerate(lines):
        while next_outer < len(outer) and outer[next_outer].first <= numbers[position]:
            lookups.around.values = outer[next_outer].values
            next_outer += 1
        if not own[position]:
            continue
        others: Others | None = [] if layout.freezes or looked[position] else None
        try:
            fields = read_line(line, lookups.wanted, others)
            picked = [pick(fields, int(numbers[position])) for pick in picks]
            inside = nested.read(fields, picked, notes=others is not None)
        except RejectedError as rejected:
            rejects.append(Reject(position, rejected.reason, rejected.column))
            continue
        first = None if others is None else _note_undefined(undefined, others, nested, int(numbers[position]))
        if first is not None and layout.freezes:
            rejects.append(Reject(position, UNDEFINED_FIELD, first))
            continue
        kept.append(position)
        for reader, key in plain:
            reader.add(*fields.get(key, NOTHING))
        for reader, place in flat_picks:
            reader.add(*picked[place])
        nested.add(inside)
        if time in lookups.plain:
            absent.append(fields.get(lookups.plain[time], NOTHING)[0] is None)
        elif picked_time is not None:
            absent.append(picked[picked_time][0] is None)
        slots += sum(value.slots for value in inside)
        if slots >= most_slots:
            count = position + 1
            break
    positions = np.array(kept, np.int64)
    missing = np.array(absent, bool) if absent else np.zeros(len(kept), bool)
    rows = _typed_rows(layout, readers, positions, numbers[positions], missing, messages)
    return rows, rejects, undefined, count


def _note_undefined(undefined: UndefinedFields, others: Others, nested: _NestedColumns, number: int) -> str | None:
    """Counts the keys of a line that no column and no field reads. Returns the first one, with its path."""
    first = None
    for key, kind in noted(others):
        undefined.add(key, kind, 1, number)
        first = first or key
    for within, key, kind in nested.undefined:
        if not is_in_map(within):
            undefined.add(key, kind, 1, number, within)
    return nested.first_undefined if first is None else first


def _typed_rows(
    layout: Layout,
    readers: Sequence[ColumnBuilder | NestedBuilder],
    positions: Indices,
    numbers: Indices,
    absent: Mask,
    messages: MessageFacts | None,
) -> TypedRows:
    """Returns the rows that were read. `positions` and `numbers` are those of their lines."""
    typed = [reader.typed() for reader in readers]
    facts = layout.lookups.facts
    columns = {position: column.array for position, column in enumerate(typed) if position not in facts}
    misfits = [bad for position, column in enumerate(typed) for bad in misfits_of(position, column)]
    return with_facts(layout, positions, numbers, columns, misfits, absent, messages)


def _flat(reader: ColumnBuilder | NestedBuilder) -> ColumnBuilder | None:
    return reader if isinstance(reader, ColumnBuilder) else None


class _NestedColumns:
    """The nested columns of a layout. All are read before any is added, because one may set the line aside."""

    def __init__(self, layout: Layout, readers: Sequence[ColumnBuilder | NestedBuilder]) -> None:
        lookups = layout.lookups
        self._columns: list[tuple[NestedBuilder, str, int | str]] = []
        """Builders, names, and where the value is: a key, or a place among the picked values."""
        picked = {position: place for place, position in enumerate(lookups.picks)}
        for position, reader in enumerate(readers):
            where = lookups.plain.get(position, picked.get(position))
            if isinstance(reader, NestedBuilder) and where is not None:
                self._columns.append((reader, layout.columns[position].name, where))
        self._slots = [reader.rule.slots for reader, _, _ in self._columns]
        self.undefined: dict[tuple[str, str, FieldKind], None] = {}
        """Paths of structs in the last line, with keys that no field reads and their kinds, each once."""

    @property
    def first_undefined(self) -> str | None:
        """The path of the first key that no field reads."""
        return next((path_of_key(within, key) for within, key, _ in self.undefined), None)

    def read(self, fields: Fields, picked: Sequence[Value], *, notes: bool) -> Sequence[NestedValue]:
        """Reads the nested values of a line. Raises RejectedError for a duplicate key.

        `notes` says whether keys that no field reads are collected.
        """
        self.undefined = {}
        values = [
            fields.get(where, NOTHING) if isinstance(where, str) else picked[where] for _, _, where in self._columns
        ]
        are_large = too_large(self._slots, [raw for _, raw in values])
        read = []
        for (reader, name, _), value, is_large in zip(self._columns, values, are_large, strict=True):
            others: OtherKeys | None = [] if notes else None
            read.append(TOO_LARGE if is_large else reader.rule.read(*value, others))
            self._note(name, others or ())
        return read

    def _note(self, column: str, others: Sequence[tuple[str, str, Any]]) -> None:
        for path, key, value in others:
            kind = kind_of(value)
            if kind is not None and len(self.undefined) < MOST_KEYS:
                self.undefined[column + path, shown_key(key), kind] = None

    def add(self, read: Sequence[NestedValue]) -> None:
        """Adds the values of a line that becomes a row."""
        for (reader, _, _), value in zip(self._columns, read, strict=True):
            reader.add_read(value)


def with_facts(
    layout: Layout,
    positions: Indices,
    numbers: Indices,
    columns: Mapping[int, pa.Array],
    misfits: Sequence[Misfits],
    absent: Mask,
    messages: MessageFacts | None,
) -> TypedRows:
    """Adds the columns that need nothing of the lines to those that were read.

    `positions` and `numbers` are those of the lines that are rows.
    """
    misfits = mixed_misfits(layout, messages, numbers, columns, misfits)
    every = dict(columns)
    for position, column, bad in _fact_columns(layout, numbers, messages):
        every[position] = column
        misfits.extend(bad)
    missing = absent_times(layout, messages, numbers)
    arrays = [every[position] for position in range(len(layout.columns))]
    return TypedRows(positions, arrays, misfits, absent if missing is None else missing)


def _fact_columns(
    layout: Layout, numbers: Indices, messages: MessageFacts | None
) -> Iterable[tuple[int, pa.Array, list[Misfits]]]:
    """Yields columns whose values do not depend on the lines' content, by position, for the given line numbers."""
    for position, fact in layout.lookups.facts.items():
        if isinstance(fact, MessageFact):
            yield position, *fact_column(layout, position, fact, messages, numbers)
        elif fact != Fact("@line"):
            value = constant_value(fact) if isinstance(fact, Constant) else layout.facts[fact.name]
            yield position, *_repeated(layout, position, value, len(numbers))
        elif (whole := layout.rules[position].whole) is not None and pa.types.is_integer(whole):
            yield position, *type_column(layout, position, pa.array(numbers, pa.int64()))
        else:
            yield position, *type_one_by_one(layout, position, map(line_fact, numbers.tolist()))


def _repeated(layout: Layout, position: int, fact: Value, count: int) -> tuple[pa.Array, list[Misfits]]:
    array, misfits = type_one_by_one(layout, position, [fact])
    every = np.arange(count, dtype=np.int64)
    return array.take(pa.array(np.zeros(count, np.int64))), [replace(misfit, rows=every) for misfit in misfits]

"""Reads blocks with the compiled kernel: the whole way from bytes to typed columns in one pass.

Python adds the columns that need no line, and the days and zones of times, because it has the database of zones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.columns import types
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import Field, StructType
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.sources import (
    Constant,
    Fact,
    Key,
    Outer,
    Path,
    Pattern,
    Rest,
    Source,
    key_and_steps,
)
from prism_assets.domain.tables.drift import FieldKind
from prism_assets.kernels.columns import Indices, Typed, days_of
from prism_assets.kernels.compiled import Kernel, KernelFailed, integers
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block, Lines
from prism_assets.kernels.json.lines import with_facts
from prism_assets.kernels.json.picks import MessageFact, sources_in
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.json.undefined import UndefinedFields
from prism_assets.kernels.messages.facts import MessageFacts
from prism_assets.kernels.nested_arrays import with_part
from prism_assets.kernels.type_rules import TypeRules, rules_of
from prism_assets.kernels.typed import Layout, Mask, Misfits, TypedRows

_MILLISECONDS = pa.timestamp("ms", "UTC")


class CompiledReader:
    """Reads the blocks of one object."""

    def __init__(self, layout: Layout, module: Any) -> None:
        columns = layout.columns
        self._layout = layout
        self._read = [position for position in range(len(columns)) if position not in layout.lookups.facts]
        """Positions of the columns that the kernel reads."""
        keys = layout.lookups.keys
        places = {pattern: place for place, pattern in enumerate(keys.patterns)}
        described = [
            (
                columns[position].name,
                layout.rules[position].compiled,
                [_described(source, layout, places) for source in self._sources(position)],
            )
            for position in self._read
        ]
        self._kernel = module.Reader(
            described,
            list(keys.items()),
            patterns=(list(keys.patterns.values()), keys.matching),
            rest=keys.rest,
            partition=self._read.index(layout.partition) if layout.partition in self._read else None,
            freezes=layout.freezes,
            route=_route(layout.route),
            most_slots=types.MOST_SLOTS,
        )

    @classmethod
    def of(cls, layout: Layout, kernel: Kernel) -> CompiledReader | None:
        """Returns the reader of a layout, or None if Python must read its lines.

        The kernel does not know types without a compiled rule.
        """
        is_known = all(rules.compiled is not None for rules in layout.rules)
        if kernel.module is None or not is_known:
            return None
        try:
            return cls(layout, kernel.module)
        except UnicodeEncodeError:  # a key with half a surrogate pair, which no line has
            return None

    def read(self, block: Block, most_slots: int = sys.maxsize) -> BlockRows:
        """Reads a block up to the line whose nested values bring the slots to the most. Raises KernelFailed."""
        try:
            outer = [(item.first, [text.encode() for _, text in item.values]) for item in block.outer]
            read = self._kernel.read(block.data, block.first_line, outer, most_slots)
        except (RuntimeError, ValueError) as error:
            raise KernelFailed(str(error)) from error
        lines = Lines(*(integers(found) for found in (read.starts, read.ends, read.numbers)))
        undefined = UndefinedFields()
        for within, key, kind, count, line in read.undefined:
            undefined.add(key, FieldKind(kind), count, line, within)
        rejects = [Reject(*rejected) for rejected in read.rejected]
        parts = [self._typed(read, lines, block.messages)] if len(lines) else []
        return BlockRows(lines, parts, rejects, len(lines), undefined, integers(read.elsewhere), read.is_cut)

    def _sources(self, position: int) -> tuple[Source | MessageFact, ...]:
        return sources_in(self._layout.columns[position], messages=self._layout.messages)

    def _typed(self, read: Any, lines: Lines, messages: MessageFacts | None) -> TypedRows:
        kept = integers(read.kept)
        columns = {position: pa.array(array) for position, array in zip(self._read, read.columns, strict=True)}
        misfits = [
            Misfits(self._read[place], reason, integers(rows), path) for place, path, reason, rows in read.misfits
        ]
        for settled in self._settled(read):
            column = columns[settled.position]
            columns[settled.position] = with_part(column, settled.places, settled.filled)
            misfits += settled.misfits
        absent: Mask = np.asarray(pa.array(read.absent).to_numpy(zero_copy_only=False))
        return with_facts(self._layout, kept, lines.numbers[kept], columns, _together(misfits), absent, messages)

    def _settled(self, read: Any) -> Iterator[_Settled]:
        """Yields the values that the kernel leaves to Python."""
        for part, instants in read.instants:
            typed = Typed(pa.array(instants).view(_MILLISECONDS), {})
            yield self._settled_part(part, days_of(typed, self._layout.table.zone))
        for part, texts in read.undecided:
            builder = self._rules(part[0], part[2]).builder()
            for text in texts:
                builder.add(text, "")
            yield self._settled_part(part, builder.typed())

    def _settled_part(self, part: tuple[int, str, list[int], Any, Any], typed: Typed) -> _Settled:
        place, path, places, entries, rows = part
        return _Settled(self._read[place], path, places, integers(entries), integers(rows), typed)

    def _rules(self, place: int, places: Sequence[int]) -> TypeRules:
        """Returns the rules of a column, or of a part of it."""
        column: Column | Field = self._layout.columns[self._read[place]]
        for number in places:
            parts = column.type.by_id if isinstance(column.type, StructType) else column.type.parts
            column = parts[number]
        return rules_of(column, self._layout.table.zone)


@dataclass(frozen=True)
class _Settled:
    """Values of a column, or of a part of it, that Python has typed."""

    position: int
    path: str
    places: Sequence[int]
    """The places of the part and of those around it, among the parts of each level."""
    entries: Indices
    """The places of the values in the array of the part."""
    rows: Indices
    typed: Typed

    def filled(self, array: pa.Array) -> pa.Array:
        """Returns the array of the part with the values."""
        mask = np.zeros(len(array), bool)
        mask[self.entries] = True
        return pc.replace_with_mask(array, pa.array(mask), self.typed.array)

    @property
    def misfits(self) -> list[Misfits]:
        """The rows whose values did not fit."""
        found = self.typed.misfits.items()
        return [Misfits(self.position, reason, self.rows[bad], self.path) for reason, bad in found if len(bad)]


def _route(route: Route | None) -> tuple[str, list[str | int], list[str], bool] | None:
    """Describes to the kernel which lines belong to the table."""
    if route is None or route.field is None:
        return None
    key, steps = key_and_steps(route.field)
    return key, list(steps), list(route.values), route.otherwise


def _described(source: Source | MessageFact, layout: Layout, places: Mapping[Pattern, int]) -> tuple[Any, ...]:
    """Describes a source to the kernel. `places` are the numbers of patterns."""
    match source:
        case Key(name):
            return "key", name, ()
        case Path(first, steps):
            return "key", first, steps
        case Outer() | MessageFact():
            return "outer", layout.lookups.around.sources[source]
        case Fact("@line"):
            return ("line",)
        case Fact(name):
            return "shared", layout.facts[name][1]
        case Constant(json):
            return "shared", json
        case Pattern():
            return "pattern", places[source]
        case Rest():
            return ("rest",)


def _together(misfits: list[Misfits]) -> list[Misfits]:
    """Returns misfits in the order of columns, paths and reasons, each with a row once."""
    rows: dict[tuple[int, str, str], list[Indices]] = {}
    for misfit in sorted(misfits, key=lambda misfit: (misfit.column, misfit.path, misfit.reason)):
        rows.setdefault((misfit.column, misfit.path, misfit.reason), []).append(misfit.rows)
    return [
        Misfits(column, reason, np.unique(np.concatenate(found)), path)
        for (column, path, reason), found in rows.items()
    ]

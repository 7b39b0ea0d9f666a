"""Typed rows: the result of both ways of reading lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.columns.column import Column
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import FREEZE
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.kernels.columns import ColumnBuilder, Indices, Typed
from prism_assets.kernels.json.picks import Facts, Lookups
from prism_assets.kernels.nested import NestedBuilder
from prism_assets.kernels.type_rules import TypeRules, rules_of

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Misfits:
    """The rows with a value of a column that did not fit, for one reason."""

    column: int
    reason: str
    rows: Indices
    path: str = ""
    """The part of a nested column, such as `.id` or `[].sku`."""


@dataclass(frozen=True)
class TypedRows:
    """Rows of one block."""

    lines: Indices
    """Positions among the lines of the block."""
    columns: list[pa.Array]
    misfits: list[Misfits]
    absent: Mask
    """The rows without a time."""


@dataclass(frozen=True)
class Layout:
    """Columns of a table in an order, with everything needed to read and store them."""

    table: TableDefinition
    columns: tuple[Column, ...]
    rules: tuple[TypeRules, ...]
    partition: int
    """The position of the partition column, or -1 for none."""
    facts: Facts
    """The facts about the staging object. Only reading needs them."""
    route: Route | None = None
    """The route of the object's stream, if it divides lines."""
    messages: bool = False
    """Whether the object is of a topic: then sources may be facts about messages."""

    @classmethod
    def of(cls, table: TableDefinition, facts: Facts | None = None, stream: Stream | None = None) -> Layout:
        """Returns the layout of stored objects: columns by column id. `stream` is the stream of an object to read."""
        route = stream.route if stream is not None and stream.route is not None and stream.route.field else None
        messages = stream is not None and stream.topic is not None
        return cls._of(table, RowProgram.of(table).stored, facts or {}, route, messages)

    @classmethod
    def _of(
        cls, table: TableDefinition, columns: tuple[Column, ...], facts: Facts, route: Route | None, messages: bool
    ) -> Layout:
        names = [column.name for column in columns]
        partition = names.index(table.partition_column) if table.partition_column in names else -1
        rules = tuple(rules_of(column, table.zone) for column in columns)
        return cls(table, columns, rules, partition, facts, route, messages)

    @cached_property
    def program(self) -> RowProgram:
        """The steps from a line to its row."""
        return RowProgram.of(self.table)

    @cached_property
    def reading(self) -> Layout:
        """The layout of lines: this one, if nothing is computed and everything is stored."""
        reads = self.program.reads
        return self if reads == self.columns else self._of(self.table, reads, self.facts, self.route, self.messages)

    @cached_property
    def lookups(self) -> Lookups:
        """Where columns find their values in a line."""
        return Lookups.of(self.columns, self.facts, messages=self.messages)

    @property
    def freezes(self) -> bool:
        """Whether lines with a field without a column are set aside."""
        return self.table.contract.new_fields == FREEZE


def builders(layout: Layout) -> list[ColumnBuilder | NestedBuilder]:
    """Returns one empty builder per column."""
    return [rules.builder() for rules in layout.rules]


def type_column(layout: Layout, position: int, found: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    """Types many values of a column: strings, 64-bit numbers or booleans, as the rules of its type take them."""
    rules = layout.rules[position]
    if found.null_count == len(found):
        return pa.nulls(len(found), rules.arrow), []
    typed = rules.by_column(found)
    if typed is None:
        return type_one_by_one(layout, position, ((text, "") for text in found.to_pylist()))
    return typed.array, misfits_of(position, typed)


def type_one_by_one(layout: Layout, position: int, found: Iterable[tuple[Any, str]]) -> tuple[pa.Array, list[Misfits]]:
    """Gives JSON values, each with its text, the type of a column."""
    builder = layout.rules[position].builder()
    for value, text in found:
        builder.add(value, text)
    typed = builder.typed()
    return typed.array, misfits_of(position, typed)


def misfits_of(position: int, typed: Typed) -> list[Misfits]:
    """Returns the misfits of the column in a position."""
    inside = [Misfits(position, reason, rows, path) for (path, reason), rows in typed.inside.items()]
    return [*(Misfits(position, reason, rows) for reason, rows in typed.misfits.items() if len(rows)), *inside]

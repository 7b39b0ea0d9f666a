"""Rows whose values have got their types: what both ways of reading lines hand on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.tables import Column, TableDefinition
from prism_assets.kernels.columns import Indices, InexactError
from prism_assets.kernels.type_rules import TypeRules, rules_of
from prism_assets.kernels.values import NOT_FINITE, Constant, Rule

Mask = npt.NDArray[np.bool_]


class TextNeededError(Exception):
    """The columns of a key cannot be judged from what was read; its JSON text is needed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source


@dataclass(frozen=True)
class Misfits:
    """The rows in which a column's value did not fit, for one reason."""

    column: int
    reason: str
    rows: Indices


@dataclass(frozen=True)
class TypedRows:
    """Rows of one block. `lines` are positions among the block's lines, `absent` says where the time is missing."""

    lines: Indices
    columns: list[pa.Array]
    misfits: list[Misfits]
    absent: Mask


@dataclass(frozen=True)
class Layout:
    """The columns of a table in the order in which they are stored, and what reading them takes."""

    table: TableDefinition
    columns: tuple[Column, ...]
    rules: tuple[TypeRules, ...]
    partition: int

    @classmethod
    def of(cls, table: TableDefinition) -> Layout:
        """The layout of a table: columns by column id."""
        columns = tuple(sorted(table.columns, key=lambda column: column.column_id))
        names = [column.name for column in columns]
        rules = tuple(rules_of(column, table.zone) for column in columns)
        return cls(table, columns, rules, names.index(table.partition_column))

    @property
    def sources(self) -> tuple[str, ...]:
        """The JSON keys that are read, each once."""
        return tuple(dict.fromkeys(column.source for column in self.columns))


@dataclass
class ColumnBuilder:
    """Collects the values of one column one by one."""

    position: int
    rule: Rule
    arrow: pa.DataType
    values: list[Any] = field(default_factory=list)
    reasons: dict[str, list[int]] = field(default_factory=dict)

    def add(self, value: Any, raw: str) -> None:
        """Adds a JSON value (None for null or none) with its text."""
        if value is None:
            self.values.append(None)
            return
        stored, reason = (None, NOT_FINITE) if type(value) is Constant else self.rule(value, raw)
        if reason is not None:
            self.reasons.setdefault(reason, []).append(len(self.values))
        self.values.append(stored)

    def array(self) -> pa.Array:
        """The values as an Arrow array of the stored type."""
        return to_array(self.values, self.arrow)

    def misfits(self) -> list[Misfits]:
        """The rows that did not fit, by reason."""
        return [Misfits(self.position, reason, np.array(rows, np.int64)) for reason, rows in self.reasons.items()]


def to_array(stored: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Makes an Arrow array of stored values as the rules give them: instants and days are integers."""
    if pa.types.is_temporal(arrow):
        return pa.array(stored, f"int{arrow.bit_width}").view(arrow)
    if pa.types.is_float32(arrow):
        return pa.array(stored, pa.float64()).cast(arrow)
    return pa.array(stored, arrow)


def builders(layout: Layout) -> list[ColumnBuilder]:
    """One empty builder per column."""
    return [ColumnBuilder(position, rules.exact, rules.arrow) for position, rules in enumerate(layout.rules)]


def type_column(layout: Layout, position: int, read: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    """Gives a column that was read as strings, 64-bit numbers or booleans its type.

    Raises TextNeededError if that takes more than what was read.
    """
    rules = layout.rules[position]
    if read.null_count == len(read):
        return pa.nulls(len(read), rules.arrow), []
    try:
        typed = rules.by_column(read)
    except InexactError:
        raise TextNeededError(layout.columns[position].source) from None
    if typed is None:
        return type_one_by_one(layout, position, ((text, "") for text in read.to_pylist()))
    return typed.array, [Misfits(position, reason, rows) for reason, rows in typed.misfits.items() if len(rows)]


def type_one_by_one(layout: Layout, position: int, found: Iterable[tuple[Any, str]]) -> tuple[pa.Array, list[Misfits]]:
    """Gives JSON values, each with its text, the type of a column."""
    rules = layout.rules[position]
    builder = ColumnBuilder(position, rules.exact, rules.arrow)
    for value, text in found:
        builder.add(value, text)
    return builder.array(), builder.misfits()


def all_misfits(columns: Iterable[ColumnBuilder]) -> Iterator[Misfits]:
    """The misfits of several builders."""
    for column in columns:
        yield from column.misfits()

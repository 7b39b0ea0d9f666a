"""Rows whose values have got their types: what both ways of reading lines hand on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.tables import Column, TableDefinition
from prism_assets.kernels.values import NOT_FINITE, Constant, Rule, rule_of

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_STORED = {
    "string": pa.string(),
    "json": pa.string(),
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "date": pa.date32(),
}


def stored_type(column: Column) -> pa.DataType:
    """The Arrow type whose physical Parquet type is the one that the column has for ever."""
    if column.type == "decimal":
        return pa.decimal128(column.precision or 38, column.scale or 0)
    return _STORED[column.type]


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
    rules: tuple[Rule, ...]
    partition: int

    @classmethod
    def of(cls, table: TableDefinition) -> Layout:
        """The layout of a table: columns by column id."""
        columns = tuple(sorted(table.columns, key=lambda column: column.column_id))
        names = [column.name for column in columns]
        rules = tuple(rule_of(column, table) for column in columns)
        return cls(table, columns, rules, names.index(table.partition_column))

    @property
    def sources(self) -> tuple[str, ...]:
        """The JSON keys that are read, each once."""
        return tuple(dict.fromkeys(column.source for column in self.columns))


@dataclass
class ColumnBuilder:
    """Collects the values of one column one by one."""

    position: int
    column: Column
    rule: Rule
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
        return to_array(self.values, self.column)

    def misfits(self) -> list[Misfits]:
        """The rows that did not fit, by reason."""
        return [Misfits(self.position, reason, np.array(rows, np.int64)) for reason, rows in self.reasons.items()]


def to_array(values: Sequence[Any], column: Column) -> pa.Array:
    """Makes an Arrow array of stored values as the rules give them."""
    target = stored_type(column)
    if column.type == "timestamp":
        return pa.array(values, pa.int64()).view(target)
    if column.type == "date":
        return pa.array(values, pa.int32()).view(target)
    if column.type == "real":
        return pa.array(values, pa.float64()).cast(target)
    return pa.array(values, target)


def builders(layout: Layout) -> list[ColumnBuilder]:
    """One empty builder per column."""
    return list(map(ColumnBuilder, range(len(layout.columns)), layout.columns, layout.rules))


def all_misfits(columns: Iterable[ColumnBuilder]) -> Iterator[Misfits]:
    """The misfits of several builders."""
    for column in columns:
        yield from column.misfits()

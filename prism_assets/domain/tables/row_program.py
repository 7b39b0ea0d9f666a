"""The plan from line to row: columns to read, compute and store, and conditions for rows.

Lines are read, values computed, rows kept or rejected, and stored columns typed and judged, in this order. The plan is
derived from a table's definition. Kernels carry it out, and `table apply` checks its expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prism_assets.domain.columns.column import Column
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import Rejection

KEEP_FIELD = "keep"
"""The name of `keep` in problems and in places of the table file."""


def value_field(column: str) -> str:
    """Returns the name of a column's value in problems and places."""
    return f"{column}.value"


def name_field(column: str) -> str:
    """Returns the name of a whole column in problems and places."""
    return f"{column}.name"


def source_field(column: str) -> str:
    """Returns the name of a column's source in problems and places."""
    return f"{column}.source"


def reject_field(number: int) -> str:
    """Returns the name of a rejection's condition in problems and places, counted from 0."""
    return f"reject[{number}].when"


@dataclass(frozen=True)
class Expression:
    """One SQL expression of a table, with its field in the table file. `names` are the columns it may use."""

    field: str
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class RowProgram:
    """The steps from line to row."""

    stored: tuple[Column, ...]
    """The table's columns in the order of objects."""
    reads: tuple[Column, ...]
    """Columns read from lines, stored ones first."""
    values: tuple[Column, ...]
    """Columns to compute, in this order."""
    keep: str | None
    """A row is kept if this is true."""
    reject: tuple[Rejection, ...]
    """A row is quarantined for the first of these that is true."""
    hidden: tuple[Column, ...] = ()
    """Sensitive columns of the table and its other streams. A producer may send one of their keys although no column
    here reads it.
    """

    @classmethod
    def of(cls, table: TableDefinition) -> RowProgram:
        """Returns the program of a table."""
        stored = tuple(sorted(table.columns, key=lambda column: column.column_id))
        everything = {column.name: column for column in (*stored, *table.unstored)}
        reads = tuple(column for column in everything.values() if column.value is None)
        values = tuple(everything[name] for name in table.computed)
        hidden = tuple(column for column in table.sensitive_columns if column.value is None)
        return cls(stored, reads, values, table.keep, table.reject, hidden)

    @property
    def computes(self) -> bool:
        """Whether there is any expression. Otherwise every row is kept."""
        return bool(self.values or self.keep is not None or self.reject)

    @property
    def needs_checks(self) -> bool:
        """Whether the table file needs a check beyond its syntax, because of expressions or key patterns."""
        return self.computes or any(column.sources for column in self.reads)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, stored ones first. Misfits refer to this order."""
        stored = {column.name for column in self.stored}
        return (*self.stored, *(column for column in (*self.reads, *self.values) if column.name not in stored))

    @property
    def sensitive(self) -> frozenset[str]:
        """Names of columns whose values only their readers may see."""
        return frozenset(column.name for column in self.columns if column.hides)

    def expressions(self) -> Iterator[Expression]:
        """Yields all expressions in the order of their computation."""
        names = [column.name for column in self.reads]
        for column in self.values:
            yield Expression(value_field(column.name), column.value or "", tuple(names))
            names.append(column.name)
        if self.keep is not None:
            yield Expression(KEEP_FIELD, self.keep, tuple(names))
        for number, rejection in enumerate(self.reject):
            yield Expression(reject_field(number), rejection.when, tuple(names))

"""What happens between a line and its row: which columns are read, computed and stored, and which rows go on.

Lines are read, values computed, rows kept or rejected, and what is stored is typed and judged, in this order. This is
the plan of it, made of a table's definition; kernels carry it out, `table apply` checks its expressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prism_assets.domain.columns import Column
from prism_assets.domain.table_options import Rejection
from prism_assets.domain.tables import TableDefinition

KEEP_FIELD = "keep"
"""How `keep` is named where a problem of it is told, and where its place in the table file is looked up."""


def value_field(column: str) -> str:
    """The same of the value of a column."""
    return f"{column}.value"


def name_field(column: str) -> str:
    """The same of a column as a whole."""
    return f"{column}.name"


def source_field(column: str) -> str:
    """The same of the source of a column."""
    return f"{column}.source"


def reject_field(number: int) -> str:
    """The same of the condition of a rejection, counted from 0."""
    return f"reject[{number}].when"


@dataclass(frozen=True)
class Expression:
    """One SQL expression of a table and the field of the table file that holds it; `names` are what it may use."""

    field: str
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class RowProgram:
    """The steps from line to row. `stored` are the columns of the table in the order in which objects hold them.

    `reads` are read from lines, those that are stored first, and `values` computed one after the other. A row is kept
    where `keep` is true, and set aside for the first of `reject` that is true. `hidden` are the sensitive columns as
    the table and its other streams read them: a producer may send a key of theirs that no column of this program reads.
    """

    stored: tuple[Column, ...]
    reads: tuple[Column, ...]
    values: tuple[Column, ...]
    keep: str | None
    reject: tuple[Rejection, ...]
    hidden: tuple[Column, ...] = ()

    @classmethod
    def of(cls, table: TableDefinition) -> RowProgram:
        """The program of a table."""
        stored = tuple(sorted(table.columns, key=lambda column: column.column_id))
        everything = {column.name: column for column in (*stored, *table.unstored)}
        reads = tuple(column for column in everything.values() if column.value is None)
        values = tuple(everything[name] for name in table.computed)
        hidden = tuple(column for column in table.sensitive_columns if column.value is None)
        return cls(stored, reads, values, table.keep, table.reject, hidden)

    @property
    def computes(self) -> bool:
        """Whether there is any expression; without one nothing is computed and every row kept."""
        return bool(self.values or self.keep is not None or self.reject)

    @property
    def needs_checks(self) -> bool:
        """Whether reading the table file is not enough to judge it: it may have expressions, or patterns of keys."""
        return self.computes or any(column.sources for column in self.reads)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, those that are stored first: in this order misfits count them."""
        stored = {column.name for column in self.stored}
        return (*self.stored, *(column for column in (*self.reads, *self.values) if column.name not in stored))

    @property
    def sensitive(self) -> frozenset[str]:
        """The names of the columns whose values nobody but their readers may see."""
        return frozenset(column.name for column in self.columns if column.sensitive)

    def expressions(self) -> Iterator[Expression]:
        """All expressions, in the order in which they are computed."""
        names = [column.name for column in self.reads]
        for column in self.values:
            yield Expression(value_field(column.name), column.value or "", tuple(names))
            names.append(column.name)
        if self.keep is not None:
            yield Expression(KEEP_FIELD, self.keep, tuple(names))
        for number, rejection in enumerate(self.reject):
            yield Expression(reject_field(number), rejection.when, tuple(names))

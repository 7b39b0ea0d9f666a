"""Which changes of columns the rows that are stored allow, and why the others are refused.

Objects hold columns by id and name. Readers by id, as those of Iceberg, follow a column whatever it is called. Readers
of what Glue shows look its name up in each object: no name may stand for two columns in the objects they are sent to.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from prism_assets.domain.tables import Column, TableDefinition


@dataclass(frozen=True, kw_only=True)
class HeldName:
    """A name that columns of before have in objects: of so many days, the first and the last of which are known.

    `waiting` counts staging objects that are still to be converted under a definition with such a column.
    """

    days: int
    first: datetime.date | None
    last: datetime.date | None
    waiting: int = 0


@dataclass(frozen=True)
class StoredColumns:
    """What is stored of a table beside its definition: names that are held, and columns that erasures name, by id."""

    held: Mapping[str, HeldName] = field(default_factory=dict)
    erased_by: Mapping[int, int] = field(default_factory=dict)


NOTHING_STORED = StoredColumns()


def kept_columns(table: TableDefinition, old: TableDefinition) -> tuple[Column, ...]:
    """The columns that came by the contract, and that the file does not have: they stay, as rows have them."""
    named = {column.name for column in table.columns}
    return tuple(column for column in old.columns if column.evolved and column.name not in named)


def column_problems(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> Iterator[str]:
    """Why the columns of a file cannot follow on those in force, a line each."""
    known = {column.name: column for column in old.columns}
    kept = {column.column_id for column in kept_columns(table, old)}
    for column in table.columns:
        if before := known.get(column.name):
            yield from _changed(before, column)
        elif held := stored.held.get(column.name):
            yield _taken(str(old.name), column.name, held)
    names = {column.name for column in table.columns}
    for column in old.columns:
        if column.name in names or column.column_id in kept:
            continue
        if erasure := stored.erased_by.get(column.column_id):
            yield (
                f"{column.name} is missing, and erasure {erasure} names it: rows that it took out would come again, "
                "late or with a rebuild; keep the column"
            )


def _changed(before: Column, after: Column) -> Iterator[str]:
    if before.type != after.type:
        yield f"{after.name} is {before.type.name} and cannot become {after.type.name}; add a column instead"
    elif before.length is not None and after.length is not None and after.length < before.length:
        yield (
            f"{after.name} has the length {before.length}, which values in objects may have, and cannot be cut to "
            f"{after.length}; add a column instead"
        )


def _taken(table: str, name: str, held: HeldName) -> str:
    said = f"{name} was another column, whose values readers of Glue would take for those of the new one: "
    if held.days:
        days = f"of {held.first}" if held.days == 1 else f"of {held.days} days from {held.first} to {held.last}"
        since = "" if held.days == 1 else f" --since {held.first}"
        return (
            f"{said}objects {days} have it under that name; choose another name, or have them made again: "
            f"`prism rebuild {table} --date {held.last}{since}` when the days are closed, and `prism catalog`"
        )
    return (
        f"{said}{held.waiting} staging objects are still to be converted with it; choose another name, or run "
        "`prism stream` first"
    )


def erased_by(rules: Collection[tuple[int, Collection[int]]]) -> Mapping[int, int]:
    """The first erasure that names a column, by column id; given are erasures with the columns that they name."""
    found: dict[int, int] = {}
    for erasure_id, columns in sorted(rules):
        for column_id in columns:
            found.setdefault(column_id, erasure_id)
    return found

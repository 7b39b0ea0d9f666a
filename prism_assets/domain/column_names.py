"""Other names of columns: those that a column had, and those that some readers still know it by.

Whoever names a column by one of them is told its name. A guess by the look of the name could be another column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from prism_assets.domain.columns import Column
from prism_assets.domain.names import did_you_mean

OtherNames = Mapping[str, str]
"""What is said of a name that a column does not have here, by that name."""
NO_OTHERS: OtherNames = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FormerColumnName:
    """A column by its id was called `name` in definitions before `since`, and in none after that."""

    column_id: int
    name: str
    since: datetime


def names_in_file(columns: Iterable[Column]) -> OtherNames:
    """The names that columns had as their file says."""
    columns = list(columns)
    own = {column.name for column in columns}
    return {
        column.was: f"{column.was} is called {column.name} in this file"
        for column in columns
        if column.was is not None and column.was not in own
    }


def names_in_force(
    columns: Collection[Column], former: Iterable[FormerColumnName], seen_in_glue: Mapping[int, str]
) -> OtherNames:
    """The names that columns of a definition in force had before; the last of several that two columns had.

    `seen_in_glue` says, by column id, by which names readers of Glue know a column that is on the way to its name.
    """
    by_id = {column.column_id: column.name for column in columns}
    own = set(by_id.values())
    return {
        item.name: f"{item.name} is called {by_id[item.column_id]} since {item.since:%Y-%m-%d %H:%M}Z"
        + seen_in_glue.get(item.column_id, "")
        for item in sorted(former, key=lambda one: one.since)
        if item.column_id in by_id and item.name not in own
    }


def unknown_column(name: str, known: Collection[str], others: OtherNames) -> str:
    """What follows `NAME is not among the columns`: how the column is called, or which one looks like it."""
    return f"; {others[name]}" if name in others else did_you_mean(name, known)

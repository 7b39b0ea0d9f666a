"""Other names of columns: earlier ones, and the ones that some readers still use.

A command that meets one of them answers with the column's name. The most similar name could be another column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from prism_assets.domain.columns import Column
from prism_assets.domain.names import did_you_mean

OtherNames = Mapping[str, str]
"""Sentences about columns, by other names of theirs."""
NO_OTHERS: OtherNames = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FormerColumnName:
    """A column was called `name` in definitions before `since`."""

    column_id: int
    name: str
    since: datetime


def names_in_file(columns: Iterable[Column]) -> OtherNames:
    """The earlier names that a table file states with `was`."""
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
    """Earlier names of the columns in force. A name that two columns had belongs to the later one.

    `seen_in_glue` holds, by column id, the end of the sentence: which names readers of Glue see, and until when.
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
    """Ends the sentence `NAME is not among the columns`: with the column's name, or with the most similar one."""
    return f"; {others[name]}" if name in others else did_you_mean(name, known)

"""Other names of columns: former names, and names still used by some readers.

A command that receives one answers with the column's name. The most similar name could be another column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from prism_assets.domain.columns.column import Column
from prism_assets.domain.names import did_you_mean

OtherNames = Mapping[str, str]
"""Sentences about columns by their other names."""
NO_OTHERS: OtherNames = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class FormerColumnName:
    """A column had the name `name` in definitions before `since`."""

    column_id: int
    name: str
    since: datetime


def names_in_file(columns: Iterable[Column]) -> OtherNames:
    """Returns sentences for former names in a table file (`was`)."""
    columns = list(columns)
    in_file = {column.name for column in columns}
    return {
        column.was: f"{column.was} is called {column.name} in this file"
        for column in columns
        if column.was is not None and column.was not in in_file
    }


def names_in_force(
    columns: Collection[Column], former: Iterable[FormerColumnName], seen_in_glue: Mapping[int, str]
) -> OtherNames:
    """Returns sentences for former names of current columns. A name of two columns belongs to the later one.

    `seen_in_glue` holds by column id the end of the sentence: the names for readers of Glue, and until when.
    """
    by_id = {column.column_id: column.name for column in columns}
    current = set(by_id.values())
    return {
        item.name: f"{item.name} is called {by_id[item.column_id]} since {item.since:%Y-%m-%d %H:%M}Z"
        + seen_in_glue.get(item.column_id, "")
        for item in sorted(former, key=lambda one: one.since)
        if item.column_id in by_id and item.name not in current
    }


def unknown_column(name: str, known: Collection[str], others: OtherNames) -> str:
    """Completes the sentence `NAME is not among the columns`, with the column's name or the most similar one."""
    return f"; {others[name]}" if name in others else did_you_mean(name, known)

"""Other names of columns: former names, and names still used by some readers.

A command that receives one answers with the column's name. The most similar name could be another column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Protocol, TypeVar

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


class _InFile(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def was(self) -> str | None: ...


_Stored = TypeVar("_Stored", bound=_InFile)


def followed_by_name(in_file: Collection[_InFile], stored: Iterable[_Stored]) -> dict[str, _Stored]:
    """Returns the stored column, or part of a column, that each one of a file continues, by the name in the file.

    They match by name, or else by `was`. For one that is stored under its own name, `was` is ignored.
    """
    current = {item.name: item for item in stored}
    names = {item.name for item in in_file}
    found = {}
    for item in in_file:
        same = current.get(item.name)
        if same is None and item.was is not None and item.was not in names:
            same = current.get(item.was)
        if same is not None:
            found[item.name] = same
    return found


def renamed_to_taken(former: str, name: str, what: str) -> str:
    """Returns why the column or field `former` cannot be renamed: `name` is another one in force."""
    return (
        f"{former} cannot become {name}, which is another {what} in force; choose a free name, or remove `was` from "
        f"{name}, and say `source` if it is to be read from another key"
    )


def read_from_former(name: str, was: str) -> str:
    """Returns why `was` cannot stay at a column or field that already has its name, but another key."""
    return (
        f"{name} has that name already, and `was: {was}` would have it read from the key {was}; remove it, or say "
        f"`source: {was}`"
    )


def is_shorter(length: int | None, before: int | None) -> bool:
    """Whether texts in objects may be longer than the length of a file."""
    return length is not None and before is not None and length < before


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

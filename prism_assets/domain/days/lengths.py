"""Sentences about values longer than their column: the loss and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import paths_of
from prism_assets.domain.columns.types import DEFAULT_LENGTH, MOST_SLOTS, Field, JsonType
from prism_assets.domain.text import counted

CUT = "cut"
"""A text was stored without its end."""
TOO_LONG = "too_long"
"""A JSON value is null, because half of it would be no JSON. So is a nested value with too many elements."""


class UnfitCount(Protocol):
    """How many values of a column did not fit for one reason."""

    @property
    def column(self) -> str:
        """The column's name."""

    @property
    def reason(self) -> str:
        """Why they did not fit."""

    @property
    def count(self) -> int:
        """Number of values."""


def length_warnings(columns: Iterable[Column], unfit: Iterable[UnfitCount]) -> tuple[str, ...]:
    """Returns a sentence for each column with values shortened or lost by its length. `columns`: the current ones."""
    columns = list(columns)
    by_name: dict[str, Column | Field] = {column.name: column for column in columns}
    by_name |= {path: part for column in columns for path, part in paths_of(column.name, column.type)}
    return tuple(_warning(item, by_name) for item in unfit if item.reason in (CUT, TOO_LONG))


def _warning(item: UnfitCount, by_name: Mapping[str, Column | Field]) -> str:
    column, what, longer = by_name.get(item.column), "value", "longer"
    if _is_of_key(item, column):
        column, what, longer = by_name[f"{item.column.removesuffix('}')}key}}"], "map", "with a key longer"
    if item.reason == CUT:
        lost = f"{item.column}: {counted(item.count, 'value was', 'values were')} cut"
    else:
        lost = f"{item.column}: {counted(item.count, f'{what} is', f'{what}s are')} null"
    if isinstance(column, Column) and column.type.parts:
        return f"{lost}, with more than {MOST_SLOTS:,} slots in lists and maps: leave out fields, or make it json"
    if column is None or column.length is None:
        return f"{lost}, {longer} than the column was"
    if column.length < DEFAULT_LENGTH:
        advice = f"write a greater `length`, at most {DEFAULT_LENGTH:,}"
    elif isinstance(column, Column) and column.value is not None:
        advice = "this is the greatest length: compute something shorter"
    else:
        advice = "this is the greatest length: read parts of it by paths in columns of their own"
    return f"{lost}, {longer} than {column.length:,} bytes: {advice}"


def _is_of_key(item: UnfitCount, part: Column | Field | None) -> bool:
    """Whether a map is null because of a key: keys count for the values, of which only json is null if it is long."""
    is_of_values = item.reason == TOO_LONG and item.column.endswith("{}")
    return is_of_values and part is not None and not isinstance(part.type, JsonType)

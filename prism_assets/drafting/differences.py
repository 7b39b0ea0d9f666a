"""Compares the rows of two definitions of a table, line by line, on the same sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from prism_assets.kernels.trial import FILTERED, ObjectTrial, plain

_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Example:
    """One differing value, and the place of its line."""

    object: str
    line: int
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class ColumnDifference:
    """How many lines, among rows under both definitions, have another value in a column.

    If one definition lacks the column, its values count as null. Sensitive columns have no examples.
    """

    column: str
    differing: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class Differences:
    """How a table file's result on a sample differs from the stored `version` of the table."""

    version: int
    rows_before: int
    both: int
    """Lines that are rows under both."""
    moves: Mapping[str, int]
    """Counts of lines by their changed fate, as `row → filtered`."""
    columns: tuple[ColumnDifference, ...]


@dataclass
class _Column:
    differing: int = 0
    examples: list[Example] = field(default_factory=list)


def differences(
    version: int, names: Sequence[str], before: Sequence[ObjectTrial], after: Sequence[ObjectTrial]
) -> Differences:
    """Compares two trials of the same objects."""
    moves = Counter[str]()
    columns: dict[str, _Column] = {}
    both = 0
    for name, old, new in zip(names, before, after, strict=True):
        moves.update(_moves(old, new))
        both += _compare(name, old, new, columns)
    return Differences(
        version=version,
        rows_before=sum(len(item.numbers) for item in before),
        both=both,
        moves=dict(sorted(moves.items())),
        columns=tuple(
            ColumnDifference(column=name, differing=found.differing, examples=tuple(found.examples))
            for name, found in columns.items()
            if found.differing
        ),
    )


def _moves(old: ObjectTrial, new: ObjectTrial) -> Counter[str]:
    was, now = old.fates(), new.fates()
    fates = ((was.get(line, FILTERED), now.get(line, FILTERED)) for line in was | now)
    return Counter(f"{before} → {after}" for before, after in fates if before != after)


def _compare(name: str, old: ObjectTrial, new: ObjectTrial, columns: dict[str, _Column]) -> int:
    """Counts differing values in lines that are rows under both. Returns the number of such lines."""
    numbers, left, right = np.intersect1d(old.numbers, new.numbers, return_indices=True)
    before, after = old.rows.take(pa.array(left)), new.rows.take(pa.array(right))
    hidden = old.layout.program.sensitive | new.layout.program.sensitive
    for column in dict.fromkeys((*before.column_names, *after.column_names)):
        found = columns.setdefault(column, _Column())
        pairs = zip(_values(before, column), _values(after, column), strict=True)
        for number, (was, now) in zip(numbers.tolist(), pairs, strict=True):
            if was == now:
                continue
            found.differing += 1
            if column not in hidden and len(found.examples) < _EXAMPLES:
                found.examples.append(Example(object=name, line=number, before=plain(was), after=plain(now)))
    return len(numbers)


def _values(rows: pa.Table, column: str) -> list[Any]:
    if column not in rows.column_names:
        return [None] * rows.num_rows
    values: list[Any] = rows.column(column).to_pylist()
    return values

"""Finds erased rows of changes and of records, by keys alone: so a record goes together with all of its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.erasures.rules import ColumnValues, ErasureRule
from prism_assets.domain.records.folding import ErasedRecords
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.field_ids import field_id, has_id
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP
from prism_assets.kernels.records.sessions import Numbers
from prism_assets.kernels.typed import Mask

NO_RULES: Sequence[ErasureRule] = ()


@dataclass(frozen=True)
class ErasedRows:
    """Which rows are erased, by which erasure (the first of several), and how many are undecided."""

    mask: Mask
    rules: Numbers
    undecided: int

    def counted(self, objects: Numbers) -> Iterator[ErasedRecords]:
        """The matches of each erasure. `objects` has the object of each row."""
        for rule in np.unique(self.rules[self.mask]).tolist():
            own = objects[self.mask & (self.rules == rule)]
            yield ErasedRecords(erasure_id=rule, objects=len(np.unique(own)), records=len(own))


def find_erased(rules: Sequence[ErasureRule], rows: pa.Table) -> ErasedRows:
    """Computes the predicates over rows with the columns of the key. Kernels may have added columns of their own.

    One query has at most the rows of a row group, because limits of time and memory are meant for one. Rows that lack
    the values of a predicate are left out.
    """
    found = np.zeros(rows.num_rows, np.int64)
    undecided = np.zeros(rows.num_rows, bool)
    for rule in rules:
        with Predicate(rule) as predicate:
            for start in range(0, rows.num_rows, MERGED_ROW_GROUP):
                part = rows.slice(start, MERGED_ROW_GROUP)
                asked = _may_match(rule, part)
                answer = predicate.matches(_by_id(part.filter(pa.array(asked))), int(asked.sum()))
                places = start + np.flatnonzero(asked)
                matching = places[answer.matching]
                found[matching[found[matching] == 0]] = rule.erasure_id
                undecided[places[answer.undecided]] = True
    mask = found > 0
    return ErasedRows(mask, found, int((undecided & ~mask).sum()))


def _by_id(rows: pa.Table) -> dict[int, pa.ChunkedArray]:
    """The stored columns, by id. A kernel's own columns have no id, and no predicate names them."""
    stored = ((place, field) for place, field in enumerate(rows.schema) if has_id(field))
    return {field_id(field): rows.column(place) for place, field in stored}


def _may_match(rule: ErasureRule, rows: pa.Table) -> Mask:
    """The rows with the values that the predicate requires, as statistics exclude whole objects."""
    columns = _by_id(rows)
    mask = np.ones(rows.num_rows, bool)
    for wanted in rule.values:
        column = columns.get(wanted.column_id)
        if column is not None and (values := _values_like(column.type, wanted)) is not None:
            mask &= pc.is_in(column.cast(values.type), value_set=values).to_numpy()
    return mask


def _values_like(kind: pa.DataType, wanted: ColumnValues) -> pa.Array | None:
    """The values in the type of a column; None for a column of another type, which the predicate may cast."""
    is_text = isinstance(wanted.values[0], str)
    if is_text and pa.types.is_string(kind):
        return pa.array(wanted.values, pa.string())
    if not is_text and pa.types.is_integer(kind):
        return pa.array([value for value in wanted.values if -(1 << 63) <= int(value) < 1 << 63], pa.int64())
    return None

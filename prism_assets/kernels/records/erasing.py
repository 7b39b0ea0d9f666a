"""Which rows of changes and of records are erased: told by keys alone, so that a record goes with all its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.erasures import ColumnValues, ErasureRule
from prism_assets.domain.folding import ErasedRecords
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP, column_id, has_id
from prism_assets.kernels.records.sessions import Numbers
from prism_assets.kernels.typed import Mask

NO_RULES: Sequence[ErasureRule] = ()


@dataclass(frozen=True)
class ErasedRows:
    """Of some rows which are erased, by which erasure, the first one of several, and of how many nobody can tell."""

    mask: Mask
    rules: Numbers
    undecided: int

    def counted(self, objects: Numbers) -> Iterator[ErasedRecords]:
        """What each erasure matches; `objects` says in which object each row is."""
        for rule in np.unique(self.rules[self.mask]).tolist():
            own = objects[self.mask & (self.rules == rule)]
            yield ErasedRecords(erasure_id=rule, objects=len(np.unique(own)), records=len(own))


def find_erased(rules: Sequence[ErasureRule], rows: pa.Table) -> ErasedRows:
    """Computes the predicates over rows with the columns of the key. A kernel may have added columns for itself.

    So many rows at a time as a row group has, which is what a predicate's time and memory are meant for, and of them
    those alone that have values of the predicate.
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
    """The columns of objects, by id. A kernel's own columns have none, and no predicate names them."""
    stored = ((place, field) for place, field in enumerate(rows.schema) if has_id(field))
    return {column_id(field): rows.column(place) for place, field in stored}


def _may_match(rule: ErasureRule, rows: pa.Table) -> Mask:
    """All rows but those that lack a value which the predicate says that rows have: as statistics exclude objects."""
    columns = _by_id(rows)
    mask = np.ones(rows.num_rows, bool)
    for wanted in rule.values:
        column = columns.get(wanted.column_id)
        if column is not None and (values := _values_like(column.type, wanted)) is not None:
            mask &= pc.is_in(column.cast(values.type), value_set=values).to_numpy()
    return mask


def _values_like(kind: pa.DataType, wanted: ColumnValues) -> pa.Array | None:
    """The values, where they are of the type of a column; None where it is another one, which a predicate may cast."""
    is_text = isinstance(wanted.values[0], str)
    if is_text and pa.types.is_string(kind):
        return pa.array(wanted.values, pa.string())
    if not is_text and pa.types.is_integer(kind):
        return pa.array([value for value in wanted.values if -(1 << 63) <= int(value) < 1 << 63], pa.int64())
    return None

"""Which rows of changes and of records are erased: told by keys alone, so that a record goes with all its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.folding import ErasedRecords
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.parquet.format import column_id
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
    """Computes the predicates over rows that have the columns of the key."""
    found = np.zeros(rows.num_rows, np.int64)
    undecided = np.zeros(rows.num_rows, bool)
    columns = {column_id(field): rows.column(place) for place, field in enumerate(rows.schema)} if rules else {}
    for rule in rules:
        with Predicate(rule) as predicate:
            answer = predicate.matches(columns, rows.num_rows)
        found[answer.matching & (found == 0)] = rule.erasure_id
        undecided |= answer.undecided
    mask = found > 0
    return ErasedRows(mask, found, int((undecided & ~mask).sum()))

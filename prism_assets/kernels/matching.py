"""Searches an object for rows that erasures match: first by statistics of row groups, then by few columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet as pq

from prism_assets.domain.files.data_file import DataFile
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.field_ids import field_id
from prism_assets.kernels.parquet.leaves import Leaf, leaves_by_id
from prism_assets.kernels.typed import Mask
from prism_assets.kernels.unread import reading


@dataclass
class MatchingRows:
    """The rows of one object that predicates match."""

    masks: list[Mask | None] = field(default_factory=list)
    """For each row group the rows that match; None where none does."""
    matching: int = 0
    matching_last: int = 0
    """Rows that the last predicate matches."""
    undecided: int = 0
    """Rows for which a predicate has no result, and no other matches."""
    groups_read: int = 0
    rows: int = 0
    """All rows of the object."""


def find_matching(said: DataFile, file: pq.ParquetFile, predicates: Sequence[Predicate]) -> MatchingRows:
    """Searches all row groups; UnreadInputs if one cannot be read."""
    found = MatchingRows(rows=file.metadata.num_rows)
    names = {field_id(column): column.name for column in file.schema_arrow}
    leaves = leaves_by_id(file.metadata)
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group)
        possible = [item for item in predicates if not _is_excluded(item, statistics, names, leaves)]
        found.masks.append(
            _search(said, file, group, names, possible, predicates[-1], found)
            if possible and statistics.num_rows
            else None
        )
    return found


def _is_excluded(
    predicate: Predicate, group: pq.RowGroupMetaData, names: Collection[int], leaves: Mapping[int, Leaf]
) -> bool:
    """Whether the statistics of a row group prove that none of its rows matches."""
    for wanted in predicate.rule.values:
        if wanted.column_id not in names:
            return True  # a column that the object lacks is null in all rows
        leaf = leaves.get(wanted.column_id)
        statistics = group.column(leaf.place).statistics if leaf else None
        if statistics is not None and statistics.has_min_max and wanted.lie_outside(statistics.min, statistics.max):
            return True
    return False


def _search(
    said: DataFile,
    file: pq.ParquetFile,
    group: int,
    names: dict[int, str],
    predicates: Sequence[Predicate],
    last: Predicate,
    found: MatchingRows,
) -> Mask | None:
    """Reads only the columns in predicates."""
    ids = sorted({number for item in predicates for number in item.column_ids if number in names})
    with reading(said):
        read = file.read_row_group(group, [names[number] for number in ids], use_threads=False)
    columns = {number: read.column(names[number]) for number in ids}
    rows = file.metadata.row_group(group).num_rows
    matching, undecided = np.zeros(rows, bool), np.zeros(rows, bool)
    for item in predicates:
        matches = item.matches(columns, rows)
        matching |= matches.matching
        if item is last:
            found.matching_last += int(matches.matching.sum())
        undecided |= matches.undecided
    found.groups_read += 1
    found.matching += int(matching.sum())
    found.undecided += int((undecided & ~matching).sum())
    return matching if matching.any() else None

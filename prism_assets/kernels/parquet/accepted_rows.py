"""Collects the accepted rows of one staging object: in memory, or as sorted runs on disk if they are too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.json.accept import Accepted
from prism_assets.kernels.parquet.format import SMALL_ROW_GROUP, SMALL_SAMPLE, dictionary_columns, schema_of
from prism_assets.kernels.parquet.large_strings import LARGE, enlarged
from prism_assets.kernels.parquet.sorted_runs import SortedRuns, payload
from prism_assets.kernels.parquet.sorting import order_of
from prism_assets.kernels.typed import Layout

Indices = npt.NDArray[np.int64]

_ROW = 32
"""Bytes of a row beside its values, held and during sorting: line, date and position."""


@dataclass(frozen=True)
class Limits:
    """Memory limits for one staging object in bytes, and the time limit of its expressions."""

    rows: int = 128 << 20
    """More bytes of rows than this go to disk as a sorted run. Sorting and encoding needs three times as much again.
    Also limits a row group.
    """
    piece: int = 1 << 20
    """How much of one run is read at a time."""
    portion: int = 16 << 20
    """How much of all runs is sorted at a time."""
    quarantine: int = 16 << 20
    """Compressed bytes of quarantined lines."""
    expression_seconds: float = 60.0
    """Time limit of all expressions for one block of lines."""


@dataclass(frozen=True)
class DayRows:
    """The sorted rows of one event date, by row group."""

    day: int
    row_groups: Iterator[pa.Table]


class AcceptedRows:
    """Collects rows in line order, block by block, and returns them by date, sorted."""

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self.schema = schema_of(layout)
        self.count = 0
        self._sort_by = layout.table.stored_order
        self._limits = limits
        self._held: list[Accepted] = []
        self._held_bytes = 0
        self._runs: SortedRuns | None = None
        self._dictionaries: list[str] | None = None

    @property
    def on_disk(self) -> bool:
        """Whether some rows are on disk."""
        return self._runs is not None

    def add(self, accepted: Accepted) -> None:
        """Adds rows. Their lines follow those of all earlier blocks."""
        self._held.append(accepted)
        self._held_bytes += payload(accepted.columns) + _ROW * len(accepted.numbers)
        self.count += len(accepted.numbers)

    def settle(self) -> None:
        """Called between blocks. Writes a run if the held rows exceed the limit."""
        if self._held_bytes > self._limits.rows:
            self._write_run()

    def close(self) -> None:
        """Releases all memory and files."""
        self._held.clear()
        if self._runs:
            self._runs.close()

    def dictionaries(self) -> list[str]:
        """Returns the columns worth a dictionary, judged by the first rows. Known once `by_day` has started."""
        return self._dictionaries or []

    def by_day(self) -> Iterator[DayRows]:
        """Yields the dates in order. Releases memory on the way, so it can be called only once."""
        if self._runs is None:
            yield from self._days_in_memory()
            return
        if self._held:
            self._write_run()
        for day, (count, size) in self._runs.days().items():
            per_group = min(SMALL_ROW_GROUP, max(1, self._limits.rows * count // max(1, size)))
            yield DayRows(day, _regrouped(self._runs.portions(day), per_group))

    def _days_in_memory(self) -> Iterator[DayRows]:
        if not self.count:
            return
        table, days, numbers = self._take_held()
        for day in np.unique(days).tolist():
            rows = np.flatnonzero(days == day)
            yield DayRows(
                day, _groups_of(table, rows[order_of(table, rows, self._sort_by, numbers[rows])], self.schema)
            )

    def _write_run(self) -> None:
        table, days, numbers = self._take_held()
        self._runs = self._runs or SortedRuns(
            self.schema, self._sort_by, piece_bytes=self._limits.piece, portion_bytes=self._limits.portion
        )
        self._runs.write(table.cast(self.schema), days, numbers)

    def _take_held(self) -> tuple[pa.Table, npt.NDArray[np.int32], Indices]:
        """Returns and releases the held rows: one table, event dates, and line numbers."""
        numbers = np.concatenate([part.numbers for part in self._held])
        days = np.concatenate([part.days for part in self._held])
        table = _joined(self._held, self.schema)
        if self._dictionaries is None:
            self._dictionaries = dictionary_columns(table, SMALL_SAMPLE)
        self._held_bytes = 0
        return table, days, numbers


def _joined(parts: list[Accepted], schema: pa.Schema) -> pa.Table:
    """Joins all rows into one table of contiguous columns. Each part releases a column once it is joined."""
    large = sum(column.nbytes for part in parts for column in part.columns) > LARGE
    schema = enlarged(schema) if large else schema
    columns = []
    for field in reversed(schema):
        chunks = [part.columns.pop().cast(field.type) for part in parts]
        columns.append(chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, field.type).combine_chunks())
    parts.clear()
    return pa.Table.from_arrays(columns[::-1], schema=schema)


def _groups_of(table: pa.Table, rows: Indices, schema: pa.Schema) -> Iterator[pa.Table]:
    for start in range(0, len(rows), SMALL_ROW_GROUP):
        yield _taken(table, rows[start : start + SMALL_ROW_GROUP]).cast(schema)


def _taken(table: pa.Table, rows: Indices) -> pa.Table:
    """Returns these rows. Consecutive rows, as in logs written in order, are not copied."""
    in_order = len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return table.slice(int(rows[0]), len(rows)) if in_order else table.take(pa.array(rows))


def _regrouped(portions: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yields the same rows in tables of `size` rows."""
    held: list[pa.Table] = []
    count = 0
    for portion in portions:
        held.append(portion)
        count += portion.num_rows
        while count >= size:
            rows = pa.concat_tables(held)
            held, count = [rows.slice(size)], count - size
            group = rows.slice(0, size).combine_chunks()
            del rows  # the copies of one group are enough in memory
            yield group
            del group
    if count:
        yield pa.concat_tables(held).combine_chunks()

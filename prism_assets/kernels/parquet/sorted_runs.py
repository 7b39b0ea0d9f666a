"""Sorted runs of rows in a temporary file, merged by day: an external sort for objects too big for memory.

A run is the content of memory at one time, sorted by event date and then like small objects, in pieces of about 1 MiB.
All rows of a date have one total order: by the sort columns, the run, and the position in it. So ties stay in line
order. The starts of pieces divide this order into portions of a limited size. Each portion is read from all runs,
sorted and returned. Memory holds one portion and one piece per run, for any number of rows and ties.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.nested_arrays import leaf_at, parts_in
from prism_assets.kernels.parquet.sorting import order_of
from prism_assets.kernels.scratch import disk_errors, new_file

Indices = npt.NDArray[np.int64]
_Key = tuple[tuple[tuple[bool, Any], ...], int, int]
"""A row's place in the order of its date: sort columns (nulls last), run, and number in the run."""


@dataclass(frozen=True)
class _RunPiece:
    """Consecutive rows of one run and date, and their position in the file."""

    run: int
    day: int
    first: int
    row_count: int
    payload: int
    start: int
    stop: int
    key: _Key


class SortedRuns:
    """Sorted runs with one schema. Not thread-safe."""

    def __init__(self, schema: pa.Schema, sort_by: Sequence[str], *, piece_bytes: int, portion_bytes: int) -> None:
        self._schema = schema
        self._sort_by = sort_by
        self._piece_bytes = piece_bytes
        self._portion_bytes = portion_bytes
        self._file = new_file()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema, options=options)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))  # writes the schema
        self._pieces: list[_RunPiece] = []
        self._runs = 0

    def close(self) -> None:
        """Closes and thereby deletes the file."""
        self._file.close()

    def write(self, table: pa.Table, days: npt.NDArray[np.int32], numbers: Indices) -> None:
        """Writes one run of unsorted rows. Their lines follow those of earlier runs."""
        per_piece = max(1, self._piece_bytes * table.num_rows // max(1, payload(table.columns)))
        with disk_errors():
            written = 0
            for day in np.unique(days).tolist():
                rows = np.flatnonzero(days == day)
                rows = rows[order_of(table, rows, self._sort_by, numbers[rows])]
                for start in range(0, len(rows), per_piece):
                    piece = table.take(pa.array(rows[start : start + per_piece]))
                    self._write_piece(piece, day, written)
                    written += piece.num_rows
            self._file.flush()
        self._runs += 1

    def _write_piece(self, rows: pa.Table, day: int, first: int) -> None:
        start = self._file.tell()
        self._writer.write_batch(rows.combine_chunks().to_batches()[0])
        key = (self._sort_values(rows, 0), self._runs, first)
        size = payload(rows.columns)
        self._pieces.append(_RunPiece(self._runs, day, first, rows.num_rows, size, start, self._file.tell(), key))

    def days(self) -> dict[int, tuple[int, int]]:
        """Returns each date with its rows and payload bytes, the earliest first."""
        found: dict[int, tuple[int, int]] = {}
        for piece in self._pieces:
            rows, size = found.get(piece.day, (0, 0))
            found[piece.day] = rows + piece.row_count, size + piece.payload
        return dict(sorted(found.items()))

    def portions(self, day: int) -> Iterator[pa.Table]:
        """Yields the rows of one date in order, in portions."""
        pieces = [piece for piece in self._pieces if piece.day == day]
        readers = [_RunReader(self, [piece for piece in pieces if piece.run == run]) for run in range(self._runs)]
        for bound in [*self._bounds(pieces), None]:
            rows = pa.concat_tables([part for reader in readers for part in reader.before(bound)]).combine_chunks()
            order = np.arange(rows.num_rows)
            yield rows.take(pa.array(order_of(rows, order, self._sort_by, order)))

    def _bounds(self, pieces: Sequence[_RunPiece]) -> Iterator[_Key]:
        """Yields starts of pieces about one portion's bytes apart."""
        size = 0
        for piece in sorted(pieces, key=lambda piece: piece.key):
            if size >= self._portion_bytes:
                yield piece.key
                size = 0
            size += piece.payload

    def read(self, piece: _RunPiece) -> pa.Table:
        """Returns the rows of a piece."""
        data = os.pread(self._file.fileno(), piece.stop - piece.start, piece.start)
        return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)])

    def key_of(self, piece: _RunPiece, rows: pa.Table, row: int) -> _Key:
        """Returns the place of a row in a piece."""
        return self._sort_values(rows, row), piece.run, piece.first + row

    def _sort_values(self, rows: pa.Table, row: int) -> tuple[tuple[bool, Any], ...]:
        values = (_comparable(_value(rows, name, row)) for name in self._sort_by)
        return tuple((value is None, 0 if value is None else value) for value in values)


class _RunReader:
    """Reads the pieces of one run and date one by one, as far as needed."""

    def __init__(self, runs: SortedRuns, pieces: Sequence[_RunPiece]) -> None:
        self._runs = runs
        self._left = list(reversed(pieces))
        self._rows: pa.Table | None = None
        self._done = 0

    def before(self, bound: _Key | None) -> Iterator[pa.Table]:
        """Yields the remaining rows before a place, or all remaining rows for None."""
        while self._left and (bound is None or self._left[-1].key < bound):
            piece = self._left[-1]
            self._rows = rows = self._runs.read(piece) if self._rows is None else self._rows
            start, self._done = self._done, self._find(piece, rows, bound)
            yield rows.slice(start, self._done - start)
            if self._done < piece.row_count:
                return
            self._left.pop()
            self._rows, self._done = None, 0

    def _find(self, piece: _RunPiece, rows: pa.Table, bound: _Key | None) -> int:
        """Returns how many rows of a piece come before a place."""
        low, high = self._done, piece.row_count
        if bound is None:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._runs.key_of(piece, rows, middle) < bound:
                low = middle + 1
            else:
                high = middle
        return low


def _value(rows: pa.Table, path: str, row: int) -> pa.Scalar:
    """Returns the value of a column, or of a leaf in a struct, in one row."""
    return leaf_at(rows.slice(row, 1), path)[0] if "." in path else rows.column(path)[row]


def _comparable(scalar: pa.Scalar) -> Any:
    """Returns a value with the column's order in Python. For text, code points and UTF-8 bytes order alike."""
    return scalar.value if pa.types.is_timestamp(scalar.type) else scalar.as_py()


def payload(columns: Sequence[pa.Array] | Sequence[pa.ChunkedArray]) -> int:
    """Returns the bytes of the values in columns. Equal values give equal sums in any array layout."""
    return sum(_payload(chunk) for column in columns for chunk in getattr(column, "chunks", [column]))


def _payload(array: pa.Array) -> int:
    if not len(array):
        return 0
    if pa.types.is_nested(array.type):
        own = 0 if pa.types.is_struct(array.type) else 4 * len(array)
        return own + sum(_payload(part) for part in parts_in(array))
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        width = 8 if pa.types.is_large_string(array.type) else 4
        offsets = np.frombuffer(array.buffers()[1], f"i{width}", len(array) + array.offset + 1)
        return 4 * len(array) + int(offsets[-1] - offsets[array.offset])
    return len(array) * -(-int(array.type.bit_width) // 8)

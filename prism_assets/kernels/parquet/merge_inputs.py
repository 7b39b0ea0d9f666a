"""The inputs of a merge: their columns, the order of their rows, and a window that keeps only overlapping ones in
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.parquet.format import column_id, field_of, identity, is_copy, with_own_names, without_copies
from prism_assets.kernels.parquet.large_strings import LARGE, enlarged
from prism_assets.kernels.parquet.sorting import sort_keys, sorted_positions
from prism_assets.kernels.parquet.stored import open_file
from prism_assets.kernels.typed import Mask

Indices = npt.NDArray[np.int64]

_DECODERS = 2
"""With a free core, two threads decode inputs in half the time."""


@dataclass(frozen=True)
class Input:
    """One row group of an object to merge, fetched and not yet decoded. Copies of columns are left out."""

    data_file: DataFile
    body: pa.Buffer
    metadata: pq.FileMetaData
    row_group: int
    row_count: int
    """Rows that remain."""
    schema: pa.Schema
    erased: Mask | None = None
    """Mask of rows to leave out. None for no row."""

    @classmethod
    def opened(cls, data_file: DataFile, body: bytes) -> list[Input]:
        """Opens a fetched object by row groups. Raises InvariantBroken if its number of rows differs."""
        file = open_file(data_file, pa.BufferReader(buffer := pa.py_buffer(body)))
        counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        schema = without_copies(file.schema_arrow)
        return [cls(data_file, buffer, file.metadata, group, count, schema) for group, count in enumerate(counts)]

    def without(self, erased: Mask | None) -> Input:
        """Returns the row group without the rows of a mask."""
        return self if erased is None else replace(self, erased=erased, row_count=int((~erased).sum()))

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """Decodes the remaining rows, or some of their columns."""
        rows = self.read_all(columns)
        return rows if self.erased is None else rows.filter(pa.array(~self.erased))

    def divided(self) -> tuple[pa.Table, pa.Table]:
        """Decodes all rows. Returns the remaining ones and the erased ones."""
        rows = self.read_all()
        if self.erased is None:
            return rows, rows.slice(0, 0)
        return rows.filter(pa.array(~self.erased)), rows.filter(pa.array(self.erased))

    def read_all(self, columns: list[str] | None = None) -> pa.Table:
        """Decodes all rows with a separate reader.

        A reader caches fetched data, and a second thread with the same reader could read freed memory.
        """
        file = pq.ParquetFile(pa.BufferReader(self.body), metadata=self.metadata)
        return file.read_row_group(self.row_group, self.schema.names if columns is None else columns, use_threads=False)


def union_schema(schemas: Sequence[pa.Schema], table: TableDefinition) -> pa.Schema:
    """Returns all columns of the inputs by column id, with names and types of the table, or else of the last input."""
    fields = {column_id(field): field for schema in dict.fromkeys(schemas) for field in schema if not is_copy(field)}
    defined = {column.column_id: field_of(column) for column in table.columns}
    return with_own_names(pa.schema([defined.get(number, fields[number]) for number in sorted(fields)]))


def aligned(read: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with the columns of a schema, matched by `identity`. Missing columns are null."""
    if read.schema.equals(schema, check_metadata=True):
        return read
    places = {identity(field): position for position, field in enumerate(read.schema)}
    columns = []
    for field in schema:
        position = places.get(identity(field))
        if position is None:
            columns.append(pa.chunked_array([pa.nulls(read.num_rows, field.type)]))
        else:
            columns.append(read.column(position).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def merge_order(inputs: Sequence[Input], schema: pa.Schema, names: Sequence[str]) -> Indices:
    """Returns the order of the rows of all inputs by the named columns.

    A stable sort: equal rows keep the order of the inputs. It merges sorted inputs as runs.
    """
    wanted = [field for field in schema if field.name in names]
    part = pa.schema(wanted)
    ids = {column_id(field) for field in wanted}

    def read(entry: Input) -> pa.Table:
        return aligned(entry.read([field.name for field in entry.schema if column_id(field) in ids]), part)

    with ThreadPoolExecutor(_DECODERS) as pool:
        tables = list(pool.map(read, inputs))
    joined = pa.concat_tables(tables) if tables else part.empty_table()
    keys = [key for name in names if name in joined.column_names for key in sort_keys(joined.column(name))]
    return sorted_positions(keys) if keys else np.arange(joined.num_rows)


class Window:
    """The decoded inputs that later portions of the output still need. Portions are taken in order."""

    def __init__(self, inputs: Sequence[Input], schema: pa.Schema, order: Indices) -> None:
        self._inputs = inputs
        self._schema = schema
        self._order = order
        counts = [entry.row_count for entry in inputs]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Numbers of 16 bits, if large enough, sort several times as fast.
        small = len(inputs) <= np.iinfo(np.uint16).max
        self._owners = np.repeat(np.arange(len(inputs), dtype=np.uint16 if small else np.int64), counts)
        self._left = np.array(counts, np.int64)
        self._bytes = np.zeros(len(inputs), np.int64)
        self._decoded: dict[int, pa.Table] = {}

    def take(self, start: int, stop: int) -> pa.Table:
        """Returns the rows at positions [start, stop) of the order.

        Cuts out each input's part first, mostly one slice, then joins and orders only these parts. Joining whole inputs
        would need their memory a second time.
        """
        wanted = self._order[start:stop]
        owners = self._owners[wanted]
        counts = np.bincount(owners, minlength=len(self._inputs))
        needed = np.flatnonzero(counts)
        self._decode(needed.tolist())
        by_owner = np.argsort(owners, kind="stable")
        places = np.empty(len(by_owner), np.int64)
        places[by_owner] = np.arange(len(by_owner))
        groups = np.split(wanted[by_owner], np.cumsum(counts[needed])[:-1])
        pieces = [
            _rows(self._decoded[number], rows - self._starts[number])
            for number, rows in zip(needed.tolist(), groups, strict=True)
        ]
        if self._bytes[needed].sum() > LARGE:
            pieces = [piece.cast(enlarged(self._schema)) for piece in pieces]
        taken = pa.concat_tables(pieces).take(pa.array(places)).cast(self._schema)
        self._let_go(counts)
        return taken

    def _decode(self, needed: list[int]) -> None:
        fresh = [number for number in needed if number not in self._decoded]
        with ThreadPoolExecutor(_DECODERS) as pool:
            tables = pool.map(lambda number: aligned(self._inputs[number].read(), self._schema), fresh)
            for number, table in zip(fresh, tables, strict=True):
                self._decoded[number] = table
                self._bytes[number] = table.nbytes

    def _let_go(self, counts: Indices) -> None:
        self._left -= counts
        for number in [number for number in self._decoded if not self._left[number]]:
            del self._decoded[number]


def _rows(table: pa.Table, rows: Indices) -> pa.Table:
    """Returns rows of a table, as a slice if they are consecutive, as in a sorted input."""
    if rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))

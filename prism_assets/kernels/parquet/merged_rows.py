"""The rows of all inputs of a merge, in order, with one table for each row group of the output.

Inputs within the budget of memory are decoded once and joined once, and each row group is one take. Above the budget
the output is made in windows between two times. The sort columns of all inputs give the order. Each window then decodes
its inputs, keeps its own rows, and joins these. Inputs that few windows share are decoded about once. Only the sort
columns of all rows are in memory at once, and only until their order is known.

The compiled kernel decodes and joins the columns that it knows (`compiled_inputs.py`), and Arrow the others.

Columns of texts with dictionaries keep these until a row group is taken. The footer knows the bytes of a dictionary,
but not the bytes of its values repeated: a few kilobytes could grow to gigabytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.kernels.nested_arrays import columns_of, conformed, has_leaf, leaf_at, leaf_types
from prism_assets.kernels.parquet.compiled_inputs import CompiledInputs
from prism_assets.kernels.parquet.format import identity
from prism_assets.kernels.parquet.large_strings import LARGE, enlarged_type
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets.kernels.parquet.sorting import sort_keys, sorted_positions

Indices = npt.NDArray[np.int64]

BUDGET = 512 << 20
"""Decoded bytes of inputs at one time. A merge also holds one joined column, the encoded inputs and output, and two
row groups.
"""
_DECODERS = 2
"""Threads that decode columns, or inputs by Arrow, at one time."""
_AT_ONCE = 8

_Item = TypeVar("_Item")


class MergedRows:
    """The rows of inputs, ordered by the named columns; rows with equal keys keep the order of the inputs."""

    def __init__(
        self, inputs: Sequence[Input], schema: pa.Schema, names: Sequence[str], *, compiled: bool = True
    ) -> None:
        self._compiled = compiled
        self._inputs = inputs
        self._schema = schema
        self._names = [name for name in names if has_leaf(schema, name)]
        counts = [entry.row_count for entry in inputs]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._coded = {column for entry in inputs for column in entry.coded_columns()}
        self._bytes = [entry.decoded_bytes(schema) for entry in inputs]

    def row_groups(self, least: int) -> Iterator[pa.Table]:
        """Yields the rows in row groups of nearly equal size; none is below `least` if the rows suffice."""
        count = int(self._starts[-1])
        groups = max(1, count // least)
        ends = [count * number // groups for number in range(groups + 1)]
        if not count:
            return
        if sum(self._bytes) <= BUDGET:
            joined = self._join(range(len(self._inputs)), None)
            order = joined.order(self._names)
            for start, end in itertools.pairwise(ends):
                yield joined.take(order[start:end])
            return
        order = self.order()
        for window in self._windows(order, ends):
            yield from self._window(order, window)

    def order(self) -> Indices:
        """Returns the order of all rows. Decodes only the columns of the order."""
        columns = columns_of(self._names)
        part = pa.schema([field for field in self._schema if field.name in columns])
        return self._join(range(len(self._inputs)), None, part).order(self._names)

    def _windows(self, order: Indices, ends: Sequence[int]) -> Iterator[list[int]]:
        """Yields the ends of the row groups of each window, after its start. A window has at least one row group."""
        counts = np.diff(self._starts)
        of_row = np.repeat(np.array(self._bytes) / np.maximum(1, counts), counts)
        window, held = [ends[0]], 0.0
        for start, end in itertools.pairwise(ends):
            size = float(of_row[order[start:end]].sum())
            if len(window) > 1 and held + size > BUDGET:
                yield window
                window, held = [start], 0.0
            window.append(end)
            held += size
        yield window

    def _window(self, order: Indices, ends: Sequence[int]) -> Iterator[pa.Table]:
        wanted = order[ends[0] : ends[-1]]
        by_row = np.argsort(wanted)
        rows = wanted[by_row]
        places = np.empty(len(rows), np.int64)
        places[by_row] = np.arange(len(rows))
        bounds = np.searchsorted(rows, self._starts)
        joined = self._join(np.flatnonzero(np.diff(bounds)).tolist(), np.split(rows, bounds[1:-1]))
        for start, end in itertools.pairwise(ends):
            yield joined.take(places[start - ends[0] : end - ends[0]])

    def _join(self, numbers: Sequence[int], rows: Sequence[Indices] | None, schema: pa.Schema | None = None) -> _Joined:
        schema = self._schema if schema is None else schema
        inputs = [self._inputs[number] for number in numbers]
        wanted = [None if rows is None else self._wanted(number, rows[number]) for number in numbers]
        compiled = CompiledInputs(inputs, wanted) if self._compiled else None

        def join(field: pa.Field) -> pa.Array | None:
            if compiled is None:
                return None
            if pa.types.is_nested(field.type):
                return compiled.nested(field, self._coded)
            return compiled.column(field, coded=identity(field) in self._coded)

        with ThreadPoolExecutor(_DECODERS) as pool:
            columns = dict(zip(schema.names, pool.map(join, schema), strict=True))
        rest = pa.schema([field for field in schema if columns[field.name] is None])
        columns |= self._join_by_arrow(inputs, wanted, rest)
        count = sum(entry.row_count if rows is None else len(rows) for entry, rows in zip(inputs, wanted, strict=True))
        return _Joined([columns[name] for name in schema.names], schema, count)

    def _wanted(self, number: int, rows: Indices) -> Indices | None:
        """Returns the wanted rows of an input, counted from its first one. None for all."""
        return None if len(rows) == self._inputs[number].row_count else rows - self._starts[number]

    def _join_by_arrow(
        self, inputs: Sequence[Input], wanted: Sequence[Indices | None], schema: pa.Schema
    ) -> dict[str, pa.Array]:
        """Decodes input by input, with all columns of a schema."""
        if not schema:
            return {}

        def read(number: int) -> pa.Table:
            table = inputs[number].read(schema, self._coded)
            rows = wanted[number]
            return table if rows is None else _cut(table, rows)

        tables = _decoded(read, range(len(inputs)))
        parts = [[chunk for table in tables for chunk in table.column(n).chunks] for n in range(len(schema))]
        # Each column's parts go once they are joined, so that memory holds one column twice and not all of them.
        tables.clear()
        parts.reverse()
        return {field.name: _joined(parts.pop(), field.type) for field in schema}


class _Joined:
    """The rows of some inputs in one array a column, or an array of numbers and a dictionary."""

    def __init__(self, columns: Sequence[pa.Array], schema: pa.Schema, row_count: int) -> None:
        self._columns = columns
        self._schema = schema
        self._row_count = row_count

    def order(self, names: Sequence[str]) -> Indices:
        """Returns the order of the rows by the named columns, ties in their own order."""
        columns = [self._columns[self._schema.get_field_index(name)] for name in columns_of(names)]
        table = pa.Table.from_arrays(columns, names=columns_of(names))
        keys = [key for name in names for key in sort_keys(leaf_at(table, name))]
        return sorted_positions(keys) if keys else np.arange(self._row_count)

    def take(self, rows: Indices) -> pa.Table:
        """Returns rows as one table."""
        places = pa.array(rows)
        taken = [_taken(column, places) for column in self._columns]
        columns = [
            column if column.type == field.type else conformed(column, field.type)
            for column, field in zip(taken, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)


def _decoded(read: Callable[[_Item], pa.Table], items: Sequence[_Item]) -> list[pa.Table]:
    """Decodes all items in order. A thread takes several at a time, because a handover takes a twentieth of a read."""

    def several(start: int) -> list[pa.Table]:
        return [read(item) for item in items[start : start + _AT_ONCE]]

    with ThreadPoolExecutor(_DECODERS) as pool:
        return [table for tables in pool.map(several, range(0, len(items), _AT_ONCE)) for table in tables]


def _cut(table: pa.Table, rows: Indices) -> pa.Table:
    """Returns a copy of some rows. A slice, or a whole dictionary, would keep other rows in memory."""
    places = pa.array(rows)
    columns = [_used(column.combine_chunks().take(places)) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _used(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column
    used = column.indices.unique().drop_null()
    return pa.DictionaryArray.from_arrays(pc.index_in(column.indices, used), column.dictionary.take(used))


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if not parts:
        return pa.nulls(0, kind)
    if pa.types.is_dictionary(parts[0].type):
        united = pa.chunked_array(parts).unify_dictionaries().chunks
        numbers = pa.concat_arrays([chunk.indices for chunk in united])
        return pa.DictionaryArray.from_arrays(numbers, united[0].dictionary)
    if pa.types.is_nested(kind):
        # Arrow joins the dictionaries of texts inside.
        parts = pa.chunked_array(parts).unify_dictionaries().chunks
    if any(map(pa.types.is_string, leaf_types(kind))) and sum(part.nbytes for part in parts) > LARGE:
        parts = [part.cast(enlarged_type(part.type)) for part in parts]
    return pa.concat_arrays(parts)


def _taken(column: pa.Array, places: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary.take(column.indices.take(places))
    return column.take(places)

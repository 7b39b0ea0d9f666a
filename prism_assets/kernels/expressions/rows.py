"""Runs a table's program on the rows of a block: computes, keeps or rejects, and types the stored columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.columns.column import Column
from prism_assets.domain.errors import ExpressionsFailed
from prism_assets.domain.streams.reasons import KEEP_FAILED, REJECT_FAILED
from prism_assets.kernels.expressions.compiled import (
    ANY_ROW,
    KEEP,
    MICROSECONDS,
    Compiled,
    compiled,
    failed,
    reject,
    seen_type,
)
from prism_assets.kernels.expressions.results import typed
from prism_assets.kernels.expressions.session import RowFailure, Secrets, Session
from prism_assets.kernels.expressions.tree import ExpressionError
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.nested_arrays import conformed
from prism_assets.kernels.typed import Layout, Mask, Misfits, TypedRows

VALUE_ERROR = "value_error"
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Computed:
    """The result for one block."""

    rows: TypedRows
    """The kept rows, typed as stored."""
    rejects: list[Reject]
    """Lines to quarantine."""
    filtered: npt.NDArray[np.int64]
    """Positions of lines left out by `keep`."""


class Computation:
    """Runs a program on the blocks of one object, with `seconds` for each block. The first expression loads DuckDB."""

    def __init__(self, layout: Layout, seconds: float, secret_of: Secrets) -> None:
        self._layout = layout
        self._program = layout.program
        self._seconds = seconds
        self._secret_of = secret_of
        names = [column.name for column in self._program.columns]
        self._positions = {name: number for number, name in enumerate(names)}
        self._read = [column.name for column in self._program.reads]
        self._defined = {column.name: column for column in self._program.reads}
        self._opened: Session | None = None
        self._tries = False

    def close(self) -> None:
        """Releases DuckDB."""
        if self._opened is not None:
            self._opened.close()

    def check(self) -> None:
        """Raises ExpressionsFailed if an expression cannot be computed for any rows."""
        if self._program.computes:
            _ = self._query

    def compute(self, rows: TypedRows) -> Computed:
        """Makes rows of the lines read. Raises ExpressionsFailed or MissingSecret."""
        if self._layout.reading is self._layout and not self._program.computes:
            return Computed(rows, [], _NOTHING)
        if not len(rows.lines):
            return Computed(_no_rows(self._layout), [], _NOTHING)
        if not self._program.computes:
            return Computed(self._stored(rows, None, np.ones(len(rows.lines), bool)), [], _NOTHING)
        answer = self._session.answer_in_parts(self._answer, self._seen(rows), self._nothing)
        kept = np.ones(len(rows.lines), bool)
        rejects = []
        filtered = _NOTHING
        for reason, mask in self._leaving(answer):
            leaving = mask & kept
            kept &= ~mask
            if reason is None:
                filtered = rows.lines[leaving]
            else:
                rejects += [Reject(line, reason, None) for line in rows.lines[leaving].tolist()]
        return Computed(self._stored(rows, answer, kept), rejects, filtered)

    def _nothing(self, seen: pa.Table) -> pa.Table:
        """Returns the answer for a row for which all expressions fail."""
        self._tries = True
        none = self._session.answer(self._query.trying_query, seen.slice(0, 0))
        failures = {failed(name) for name in none.column_names}
        columns = [pa.array([True]) if field.name in failures else pa.nulls(1, field.type) for field in none.schema]
        return pa.table(columns, schema=none.schema)

    def _answer(self, seen: pa.Table, ends: float) -> pa.Table:
        """Returns the results of one query. After one failure for a row, each expression is tried row by row."""
        if not self._tries:
            try:
                return self._session.answer(self._query.query, seen, ends=ends)
            except RowFailure:
                self._tries = True
        try:
            return self._session.answer(self._query.trying_query, seen, ends=ends)
        except RowFailure as failure:
            raise ExpressionsFailed(
                f"the expressions of the table cannot be computed: DuckDB has a {failure}"
            ) from None

    @cached_property
    def _query(self) -> Compiled:
        try:
            return compiled(self._program)
        except ExpressionError as error:
            raise ExpressionsFailed(
                f"an expression of {self._layout.table.name} cannot be computed: {error}; install a newer "
                "prism_assets, or, if it belongs to a stream that has left the table file, add the stream and its "
                "columns there again"
            ) from None

    @cached_property
    def _session(self) -> Session:
        self._opened = Session(self._query.secrets, self._secret_of, self._seconds)
        return self._opened

    def _seen(self, rows: TypedRows) -> pa.Table:
        """Returns the columns used by expressions, in the types they see."""
        columns = dict(zip(self._read, rows.columns, strict=True))
        used = {name: _seen(columns[name], self._defined[name]) for name in self._query.inputs}
        return pa.table(used or {ANY_ROW: pa.nulls(len(rows.lines), pa.bool_())})

    def _leaving(self, answer: pa.Table) -> Iterator[tuple[str | None, Mask]]:
        """Yields masks of leaving rows with the reason, None for filtered ones. The first reason of a row counts."""
        if self._program.keep is not None:
            yield KEEP_FAILED, _failures(answer, KEEP)
            yield None, ~_mask(answer, KEEP)
        for number, rejection in enumerate(self._program.reject):
            yield REJECT_FAILED, _failures(answer, reject(number))
            yield rejection.reason, _mask(answer, reject(number))

    def _stored(self, rows: TypedRows, answer: pa.Table | None, kept: Mask) -> TypedRows:
        """Returns the kept rows with their stored columns, and the misfits of all columns."""
        chosen = None if kept.all() else pa.array(kept)
        read = rows.columns if chosen is None else [column.filter(chosen) for column in rows.columns]
        columns = dict(zip(self._read, read, strict=True))
        misfits = [
            Misfits(self._positions[self._read[bad.column]], bad.reason, _renumbered(bad.rows, kept), bad.path)
            for bad in rows.misfits
        ]
        lines, absent = (rows.lines, rows.absent) if chosen is None else (rows.lines[kept], rows.absent[kept])
        if answer is not None:
            found = answer if chosen is None else answer.filter(chosen)
            for name, kind in self._query.kinds:
                position, values = self._positions[name], _whole(found, name)
                columns[name], bad = typed(self._layout, position, kind, values)
                misfits += [*bad, Misfits(position, VALUE_ERROR, _failed_rows(found, name))]
                if position == self._layout.partition:
                    absent = _nulls(values) & ~_failures(found, name)
        in_order = [columns[column.name] for column in self._layout.columns]
        return TypedRows(lines, in_order, [bad for bad in misfits if len(bad.rows)], absent)


def _no_rows(layout: Layout) -> TypedRows:
    return TypedRows(_NOTHING, [pa.nulls(0, rules.arrow) for rules in layout.rules], [], np.zeros(0, bool))


def _seen(column: pa.Array, defined: Column) -> pa.Array:
    if pa.types.is_nested(column.type):
        return conformed(column, seen_type(defined))
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", "UTC")).view(MICROSECONDS)


def _whole(answer: pa.Table, name: str) -> pa.Array:
    column = answer.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)  # combine_chunks would copy it
    chunks = column.combine_chunks()
    return chunks if isinstance(chunks, pa.Array) else pa.concat_arrays(chunks.chunks)


def _mask(answer: pa.Table, name: str) -> Mask:
    """Returns a mask of true values. Nulls count as false."""
    return np.asarray(answer.column(name).fill_null(False).to_numpy(), bool)


def _failures(answer: pa.Table, name: str) -> Mask:
    """Returns a mask of failures. The query without trying has none."""
    if failed(name) not in answer.column_names:
        return np.zeros(answer.num_rows, bool)
    return _mask(answer, failed(name))


def _failed_rows(answer: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return np.flatnonzero(_failures(answer, name)) if failed(name) in answer.column_names else _NOTHING


def _nulls(column: pa.Array) -> Mask:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)


def _renumbered(rows: npt.NDArray[np.int64], kept: Mask) -> npt.NDArray[np.int64]:
    """Returns the positions of rows among the kept ones."""
    places = np.cumsum(kept) - 1
    return np.asarray(places[rows[kept[rows]]], np.int64)

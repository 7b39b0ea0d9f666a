"""Predicates of erasures: checks a new one, and computes it over rows of objects and over lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.names import NO_OTHERS, OtherNames
from prism_assets.domain.erasures.rules import ColumnValues, ErasureRule
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.expressions.compiled import ANY_ROW, MICROSECONDS, seen_type
from prism_assets.kernels.expressions.session import ROWS, RowFailure, Session, connect, secret_of_worker
from prism_assets.kernels.expressions.tree import COMPUTED, ExpressionError, check, not_computed, values_of
from prism_assets.kernels.field_ids import field_id
from prism_assets.kernels.nested_arrays import conformed, parts_of, with_parts
from prism_assets.kernels.typed import Mask

SECONDS = 60.0
"""The time limit of one predicate for one row group or block of lines."""


def make_erasure_rule(table: TableDefinition, text: str, others: OtherNames = NO_OTHERS) -> ErasureRule:
    """Returns a rule with this predicate over a table's columns, not yet recorded. Raises WrongUse with the problem.

    `others` has a sentence for each former column name, to end the error about this name.
    """
    if not text.strip():
        raise WrongUse("--where is empty: say which rows are to be erased, such as --where 'user_id = 42'")
    columns = {column.name: column for column in table.columns}
    connection = connect()
    try:
        nested = [column.name for column in table.columns if column.type.parts]
        uses = check(connection, text, columns, others, nested=nested)
        named = [column for name, column in columns.items() if name in uses.columns]
        values = values_of(connection, text)
        sql_type = _type_of(text, named)
    except ExpressionError as error:
        raise WrongUse(f"--where: {error}") from None
    finally:
        connection.close()
    if not named:
        raise WrongUse("--where names no column of the table: it would match every row or none")
    if sql_type != "BOOLEAN":
        raise WrongUse(f"--where: it must be true or false, and is of DuckDB's type {sql_type}")
    documents = tuple(json.dumps(replace(column, widening=None).to_document(), sort_keys=True) for column in named)
    return ErasureRule(
        erasure_id=0,
        predicate=text.strip(),
        columns=documents,
        values=tuple(
            ColumnValues(column_id=column.column_id, values=values[column.name])
            for column in named
            if column.name in values and _is_plain(column)
        ),
        secrets=tuple(sorted(uses.secrets)),
    )


def _type_of(text: str, columns: Sequence[Column]) -> str:
    import duckdb

    connection = connect()
    seen = {column.name: pa.array([], seen_type(column)) for column in columns}
    connection.register(ROWS, pa.table(seen or {ANY_ROW: pa.array([], pa.bool_())}))
    try:
        row = connection.execute(f"{COMPUTED}{text}\n) AS v FROM {ROWS}").fetchone()
    except duckdb.Error as error:
        raise not_computed(text, error) from None
    finally:
        connection.close()
    return str(row[1]) if row else ""


@dataclass(frozen=True)
class Matches:
    """Masks of matching rows, and of rows for which the predicate fails. A null result does not match."""

    matching: Mask
    undecided: Mask


class Predicate:
    """The predicate of one rule in use. For one thread; close it."""

    def __init__(self, rule: ErasureRule, seconds: float = SECONDS) -> None:
        self.rule = rule
        self.columns = rule.defined
        self._query = (
            "SELECT coalesce(tried.v, false) AS matching, tried IS NULL AS undecided FROM "
            f"(SELECT TRY(struct_pack(v := ({rule.predicate}\n))) AS tried FROM {ROWS})"
        )
        self._session = Session(rule.secrets, secret_of_worker, seconds)

    def __enter__(self) -> Predicate:
        """Returns the predicate."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases DuckDB."""
        self._session.close()

    @property
    def column_ids(self) -> frozenset[int]:
        """The columns used by the predicate."""
        return frozenset(column.column_id for column in self.columns)

    def matches(self, columns: Mapping[int, Any], count: int) -> Matches:
        """Returns the matches among rows, given as Arrow columns by id. A missing column is null in every row.

        If a column was widened after the rule was made, the rule sees values in the column's former type if they fit,
        so that its meaning stays the same. Rows with other values are seen in the wider type.
        """
        if not count:
            return Matches(np.zeros(0, bool), np.zeros(0, bool))
        seen = {column.name: _seen(column, columns.get(column.column_id), count) for column in self.columns}
        matches = self._run({name: values.known for name, values in seen.items()})
        beyond = np.zeros(count, bool)
        for values in seen.values():
            beyond |= values.beyond
        if not beyond.any():
            return matches
        try:
            wide = self._run({name: values.found for name, values in seen.items()})
        except RowFailure:  # the rule was made for a narrower type, and its meaning for a wider one is unknown
            wide = Matches(np.zeros(count, bool), np.ones(count, bool))
        return Matches(
            np.where(beyond, wide.matching, matches.matching), np.where(beyond, wide.undecided, matches.undecided)
        )

    def _answer(self, seen: pa.Table, ends: float) -> pa.Table:
        return self._session.answer(self._query, seen, ends=ends)

    def _run(self, seen: Mapping[str, Any]) -> Matches:
        answer = self._session.answer_in_parts(self._answer, pa.table(dict(seen)), _undecided)
        return Matches(*(np.asarray(column.to_numpy(), bool) for column in answer.columns))


def _undecided(_row: pa.Table) -> pa.Table:
    """Returns the answer for a row for which the predicate fails."""
    return pa.table({"matching": [False], "undecided": [True]})


def _is_plain(column: Column) -> bool:
    """Whether the column's statistics have the type expressions see."""
    kind = seen_type(column)
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


@dataclass(frozen=True)
class _SeenColumn:
    """A column in the rule's type, null where values are `beyond` this type, and the column as found."""

    known: Any
    found: Any
    beyond: Mask


def _seen(column: Column, found: Any, count: int) -> _SeenColumn:
    kind = seen_type(column)
    none = np.zeros(count, bool)
    if found is None:
        nulls = pa.nulls(count, kind)
        return _SeenColumn(nulls, nulls, none)
    if pa.types.is_timestamp(kind):
        instants = found.cast(pa.timestamp("us", "UTC"))
        chunks = instants.chunks if isinstance(instants, pa.ChunkedArray) else [instants]
        times = pa.chunked_array([chunk.view(MICROSECONDS) for chunk in chunks], MICROSECONDS)
        return _SeenColumn(times, times, none)
    if pa.types.is_nested(kind):
        values = conformed(found, _wide_enough(kind, found.type))
        return _SeenColumn(values, values, none)
    if not _is_wider(found.type, kind):
        values = found.cast(kind)
        return _SeenColumn(values, values, none)
    beyond = pc.fill_null(_beyond(found, kind), False)
    known = pc.if_else(beyond, pa.scalar(None, found.type), found).cast(kind, safe=False)
    return _SeenColumn(known, found, np.asarray(beyond.to_numpy(zero_copy_only=False), bool))


def _wide_enough(kind: pa.DataType, found: pa.DataType) -> pa.DataType:
    """Returns the type in which a rule sees the values of a nested column: with wider leaves if they were widened."""
    if not pa.types.is_nested(kind):
        return found if _is_wider(found, kind) else kind
    by_id = {field_id(part): part for part in parts_of(found)}
    parts = [
        part.with_type(_wide_enough(part.type, by_id[field_id(part)].type)) if field_id(part) in by_id else part
        for part in parts_of(kind)
    ]
    return with_parts(kind, parts)


def _is_wider(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column was widened after its rule recorded it as `kind`."""
    if pa.types.is_decimal(found) and pa.types.is_decimal(kind):
        return bool(found.precision > kind.precision)
    both = all(map(pa.types.is_integer, (found, kind))) or all(map(pa.types.is_floating, (found, kind)))
    return bool(both and found.bit_width > kind.bit_width)


def _beyond(found: Any, kind: pa.DataType) -> Any:
    """Returns a mask of values outside a narrower type. For doubles, these are values it would round."""
    if pa.types.is_floating(kind):
        rounded = found.cast(kind, safe=False).cast(found.type)
        return pc.and_not(pc.not_equal(rounded, found), pc.is_nan(found))
    if pa.types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        least = -most
    else:
        least, most = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    return pc.or_(pc.less(found, pa.scalar(least, found.type)), pc.greater(found, pa.scalar(most, found.type)))

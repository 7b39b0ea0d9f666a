"""Explains a record of a join table: every change of its key in the log, and which change won."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from prism_assets.domain.columns.column import SENSITIVE
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.joins import (
    CHANGE_DELETED,
    CHANGE_GROUP,
    CHANGE_LINE,
    CHANGE_OBJECT,
    OF_CHANGES,
    JoinOptions,
)
from prism_assets.domain.records.model import Change, Record, RecordModel, Values
from prism_assets.domain.sql_quoting import quote_identifier, quote_text
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import RowsReader, run_query


@dataclass(frozen=True, kw_only=True)
class ExplainedKey:
    """The records of one key in time order, settled or not. Each record lists the fate of its changes.

    Values of sensitive columns are masked, because people paste the explanation into tickets.
    """

    key: tuple[str, ...]
    records: tuple[Record, ...]
    without_record: tuple[Change, ...]
    """Changes without a sequence. They belong to no record."""

    @property
    def lines(self) -> list[str]:
        """The explanation for people, a paragraph per record."""
        if not self.records and not self.without_record:
            return [f"{', '.join(self.key)}: the log shows no change of this key"]
        found = [line for number, record in enumerate(self.records, 1) for line in _lines_of(number, record)]
        return [
            *found,
            *(f"  {_where(change)} has no sequence: it counts for no record" for change in self.without_record),
        ]


def explain_key(reader: LakeReader | RowsReader, table: TableDefinition, key: Sequence[str]) -> ExplainedKey:
    """Reads all changes of one key that the log still holds, and judges them."""
    join = _join_of(table)
    if len(key) != len(join.key):
        raise WrongUse(f"the key of {table.name} is {', '.join(join.key)}: give --key once for each, in this order")
    is_key = " AND ".join(
        f"CAST({quote_identifier(name)} AS VARCHAR) = {quote_text(value)}"
        for name, value in zip(join.key, key, strict=True)
    )
    changes = load_changes(reader, table, is_key)
    model = RecordModel(join, {column.name: column.type for column in table.columns}, table.partition_column)
    sensitive = frozenset(column.name for column in table.columns if column.hides)
    return ExplainedKey(
        key=tuple(key),
        records=tuple(_without_values(record, sensitive) for record in model.records_of(changes)),
        without_record=tuple(
            replace(change, values=_masked(change.values, sensitive))
            for change in changes
            if not model.is_part_of_a_record(change)
        ),
    )


def _without_values(record: Record, sensitive: Collection[str]) -> Record:
    """Masks sensitive values in a record and its changes. The record was judged by all values."""
    fates = (
        replace(fate, change=replace(fate.change, values=_masked(fate.change.values, sensitive)))
        for fate in record.fates
    )
    return replace(record, values=_masked(record.values, sensitive), fates=tuple(fates))


def _masked(values: Values, sensitive: Collection[str]) -> Values:
    return {name: SENSITIVE if name in sensitive and value is not None else value for name, value in values.items()}


def load_changes(reader: LakeReader | RowsReader, table: TableDefinition, condition: str = "true") -> list[Change]:
    """Returns the changes in a join table's log for which an SQL condition is true, as catalog readers see them."""
    names = [column.name for column in table.columns]
    selected = ", ".join(map(quote_identifier, (*names, *OF_CHANGES)))
    log = log_name(table.name)
    found = run_query(reader, f"SELECT {selected} FROM {quote_identifier(log.schema, log.table)} WHERE {condition}")
    return [_change(dict(zip((*names, *OF_CHANGES), row, strict=True)), table.partition_column) for row in found.rows]


def _change(row: Mapping[str, Any], partition_column: str) -> Change:
    return Change(
        group=row[CHANGE_GROUP],
        identity=(row[CHANGE_OBJECT], row[CHANGE_LINE]),
        time=_milliseconds(row[partition_column]),
        values={name: value for name, value in row.items() if name not in (partition_column, *OF_CHANGES)},
        deleted=row[CHANGE_DELETED],
    )


def _milliseconds(time: Any) -> int:
    """Converts a timestamp to milliseconds. A date counts from midnight."""
    at = time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)
    return round((at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp() * 1_000)


def _join_of(table: TableDefinition) -> JoinOptions:
    if table.join is None:
        raise WrongUse(f"{table.name} is no join table: each of its rows is a line of its own")
    return table.join


def _lines_of(number: int, record: Record) -> list[str]:
    first, last = _instant(record.first_event), _instant(record.last_event)
    state = "visible" if record.is_visible else "not visible: the groups that show it were deleted or never arrived"
    values = ", ".join(f"{name} = {_shown(value)}" for name, value in record.values.items())
    lines = [f"record {number}: {first} to {last}, {state}", f"  {values}"]
    for fate in record.fates:
        gives = f"; gives {', '.join(fate.columns)}" if fate.columns else ""
        lines.append(f"  {'wins ' if fate.won else 'loses'} {_where(fate.change)}: {fate.why}{gives}")
    return lines


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _where(change: Change) -> str:
    number, line = change.identity
    return f"{change.group} {_instant(change.time)} (line {line} of object {number})"


def _instant(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1_000, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"

"""The two tables of a join table: the log of changes, fed by streams, and the records.

The log is an ordinary log table. Each row is a change of one group: it has the group's columns, nulls in the columns of
other groups, and the columns `_p_*`.
"""

from __future__ import annotations

from dataclasses import replace

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import DEFAULT_LENGTH, BigIntType, BooleanType, ColumnType, StringType
from prism_assets.domain.names import TableName
from prism_assets.domain.records.join_file import groups_of_columns
from prism_assets.domain.records.joins import (
    CHANGE_DELETED,
    CHANGE_GROUP,
    CHANGE_LINE,
    CHANGE_OBJECT,
    JoinOptions,
    hidden_column_id,
)
from prism_assets.domain.service_limits import GLUE_DESCRIPTION
from prism_assets.domain.streams.sources import constant
from prism_assets.domain.streams.stream import Stream, StreamColumn
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import ChangeLog, Contract

SUFFIX = "_changes"
"""Appended to a join table's name for its log of changes."""


def tables_of(table: TableDefinition) -> tuple[TableDefinition, ...]:
    """Returns the tables defined by a file. A join table has two, first the records, then the changes."""
    return (table,) if table.join is None else (records_of(table), changes_of(table))


def log_name(name: TableName) -> TableName:
    """Returns the name of a join table's log of changes."""
    return TableName(name.schema, f"{name.table}{SUFFIX}")


def records_of(table: TableDefinition) -> TableDefinition:
    """Returns the records table of a join table. It has no streams and reads no lines."""
    join = _join_of(table)
    return replace(
        table,
        streams=(),
        columns=tuple(replace(column, source=column.name, sources=(), value=None) for column in table.columns),
        unstored=(),
        computed=(),
        keep=None,
        reject=(),
        contract=Contract(),
        merge=replace(table.merge, sort_by=join.key),
        freshness=None,
        changes_days=None,
    )


def _described(table: TableDefinition) -> str:
    """Returns the log's description, cut to Glue's limit."""
    whole = f"Changes of {table.name}{f': {table.description}' if table.description else ''}"
    return whole.encode()[:GLUE_DESCRIPTION].decode(errors="ignore")


def changes_of(table: TableDefinition) -> TableDefinition:
    """Returns the log of changes of a join table.

    Columns keep the ids of the records' columns. Ids of columns `_p_*` are the same in all tables.
    """
    join = _join_of(table)
    lateness = None if join.window_seconds is None else join.lateness_seconds
    return replace(
        table,
        name=log_name(table.name),
        description=_described(table),
        streams=tuple(_with_columns(stream, table, join) for stream in table.streams),
        columns=(*table.columns, *_HIDDEN),
        retention_days=table.changes_days,
        join=None,
        change_log=ChangeLog(lateness_seconds=lateness),
        records=table.name,
        changes_days=None,
        was=None if table.was is None else log_name(table.was),
    )


def _join_of(table: TableDefinition) -> JoinOptions:
    if table.join is None:
        raise ValueError(f"{table.name} is no join table")
    return table.join


def _hidden(name: str, kind: ColumnType, source: str) -> Column:
    return Column(
        name=name,
        type=kind,
        source=source,
        sources=(source,),
        length=DEFAULT_LENGTH if kind.takes_length else None,
        required=True,
        column_id=hidden_column_id(name),
    )


# Required, to keep out changes of a stream without a group, and changes whose delete condition is unknown.
_HIDDEN = (
    _hidden(CHANGE_GROUP, StringType(), constant(None)),
    _hidden(CHANGE_DELETED, BooleanType(), constant(False)),
    _hidden(CHANGE_OBJECT, BigIntType(), "@object_id"),
    _hidden(CHANGE_LINE, BigIntType(), "@line"),
)


def _with_columns(stream: Stream, table: TableDefinition, join: JoinOptions) -> Stream:
    """Returns the stream with its values of the columns `_p_*`, and nulls for columns of other groups."""
    owners = groups_of_columns(join, table.partition_column)
    foreign = [column.name for column in table.columns if owners.get(column.name, stream.group) != stream.group]
    constants = [_constant(CHANGE_GROUP, stream.group), *(_constant(name, None) for name in foreign)]
    if stream.delete is not None:
        value = f"coalesce(({stream.delete}\n), false)"
        constants.append(StreamColumn(name=CHANGE_DELETED, source=CHANGE_DELETED, value=value))
    return replace(stream, columns=(*stream.columns, *constants))


def _constant(name: str, value: str | None) -> StreamColumn:
    source = constant(value)
    return StreamColumn(name=name, source=source, sources=(source,))

"""What `apply` changes about a table: each change is a value that is shown to people, carried out and tested.

What comes into force is the definition of before with the changes made to it, in their order, and nothing else: so what
was shown is what happens. A new kind of change is a class here, its case in `changes_between` and in `_changed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prism_assets.domain.column_transitions import ColumnRename, ColumnWidening, RenameState
from prism_assets.domain.names import TableName
from prism_assets.domain.tables import GRACE_DAYS, Column, Contract, IcebergOptions, Stream, TableDefinition
from prism_assets.domain.types import FILE_FORMATS, ColumnType
from prism_assets.domain.words import counted


@dataclass(frozen=True)
class CreateTable:
    """A table with its columns; its streams come with changes of their own."""

    table: TableDefinition


@dataclass(frozen=True)
class RenameTable:
    """Another name for readers; everything of the table stays where it is. Glue shows both names for so many days."""

    before: TableName
    name: TableName
    grace_days: int


@dataclass(frozen=True)
class AddStream:
    """A stream is read from now on, maybe one of another table, `moved_from`. Its name may be that of one before."""

    stream: Stream
    moved_from: str | None = None


@dataclass(frozen=True)
class ChangeStream:
    """A stream of before is stopped or read again, discarded, named or read otherwise."""

    before: Stream
    stream: Stream


@dataclass(frozen=True)
class RemoveStream:
    """A stream is read no longer, but for what has arrived; or by another table, `moved_to`."""

    stream: Stream
    moved_to: str | None = None


@dataclass(frozen=True)
class AddColumn:
    """A column that no object has yet, at its place among the others; its id is still to be given."""

    column: Column
    position: int


@dataclass(frozen=True)
class DropColumn:
    """A column that readers see no more; objects have it until they are made again, and its id is never given again."""

    column: Column


@dataclass(frozen=True)
class RenameColumn:
    """Another name for readers by id; those of Glue follow by `rename`. None where no object has the former name."""

    before: str
    name: str
    rename: ColumnRename | None


@dataclass(frozen=True)
class AdvanceRename:
    """A renamed column is further on the way to its new name; None at the end of it."""

    name: str
    former: str
    rename: ColumnRename | None


@dataclass(frozen=True)
class ReadColumn:
    """Values of a column come from another key from now on, from other ones, or from another expression."""

    name: str
    before: str
    source: str
    sources: tuple[str, ...]
    value: str | None


@dataclass(frozen=True)
class WidenColumn:
    """A wider type; objects of before follow by `widening`. None where no object has values of the former type."""

    name: str
    before: ColumnType
    type: ColumnType
    widening: ColumnWidening | None = None


@dataclass(frozen=True)
class EndWidening:
    """No object has values of the former type any more."""

    name: str
    former: ColumnType
    type: ColumnType


@dataclass(frozen=True)
class LengthenColumn:
    """Values of a column may be longer from now on."""

    name: str
    before: int
    length: int


@dataclass(frozen=True)
class ReorderColumns:
    """The columns in another order, by their names: objects have them in that of their ids."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ChangeSetting:
    """Another value for a field of the definition: a setting, or what may change about its columns and streams."""

    field: str
    value: object


Change = (
    CreateTable
    | RenameTable
    | AddStream
    | ChangeStream
    | RemoveStream
    | AddColumn
    | DropColumn
    | RenameColumn
    | AdvanceRename
    | ReadColumn
    | WidenColumn
    | EndWidening
    | LengthenColumn
    | ReorderColumns
    | ChangeSetting
)


@dataclass(frozen=True)
class Moves:
    """Streams that change their table, by URL: the tables that they come from, and those that they go to."""

    origins: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)


NOTHING_MOVES = Moves()


def changes_between(
    old: TableDefinition | None, new: TableDefinition, moves: Moves = NOTHING_MOVES
) -> tuple[Change, ...]:
    """The changes that make `new` of `old`, or of nothing. Columns that are known have their ids, new ones have 0."""
    changes: list[Change] = []
    at = old
    for change in _wanted(old, new, moves):
        changes.append(change)
        at = _changed(at, change)
    if at is not None:
        names = tuple(column.name for column in new.columns)
        if names != tuple(column.name for column in at.columns):
            changes.append(ReorderColumns(names))
            at = _changed(at, changes[-1])
        changes += [ChangeSetting(name, getattr(new, name)) for name in _differences(at, new)]
    return tuple(changes)


def _wanted(old: TableDefinition | None, new: TableDefinition, moves: Moves) -> Iterator[Change]:
    if old is None:
        yield CreateTable(dataclasses.replace(new, streams=()))
    else:
        if str(old.name) != str(new.name):
            yield RenameTable(old.name, new.name, new.grace_days)
        yield from _wanted_columns(old, new)
    before = {stream.url: stream for stream in old.streams} if old else {}
    for stream in new.streams:
        if stream.url not in before:
            yield AddStream(stream, moves.origins.get(stream.url))
        elif stream != before[stream.url]:
            yield ChangeStream(before[stream.url], stream)
    for stream in before.values():
        if stream.url not in {item.url for item in new.streams}:
            yield RemoveStream(stream, moves.targets.get(stream.url))


def _wanted_columns(old: TableDefinition, new: TableDefinition) -> Iterator[Change]:
    after = {column.column_id: column for column in new.columns if column.column_id}
    for before in old.columns:
        column = after.get(before.column_id)
        if column is None:
            yield DropColumn(before)
            continue
        if before.name != column.name or before.stored_as != column.stored_as:
            yield RenameColumn(before.name, column.name, column.rename)
        elif before.rename and before.rename != column.rename:
            yield AdvanceRename(column.name, before.rename.former, column.rename)
        if _read_from(before) != _read_from(column):
            yield ReadColumn(column.name, _read_from(before), column.source, column.sources, column.value)
        if before.type != column.type:
            yield WidenColumn(column.name, before.type, column.type, column.widening)
        elif before.widening and column.widening is None:
            yield EndWidening(column.name, before.widening.former, column.type)
        if before.length is not None and column.length is not None and before.length < column.length:
            yield LengthenColumn(column.name, before.length, column.length)
    for position, column in enumerate(new.columns):
        if not column.column_id:
            yield AddColumn(column, position)


def _read_from(column: Column | ReadColumn) -> str:
    """Where values come from, for people: what the file says, or the key that it means."""
    if column.value is not None:
        return f"the expression {column.value}"
    return ", ".join(column.sources) or f"the key {column.source}"


def applied(old: TableDefinition | None, changes: Sequence[Change]) -> TableDefinition:
    """The definition after the changes; the first change of nothing creates the table."""
    table = old
    for change in changes:
        table = _changed(table, change)
    if table is None:
        raise ValueError("nothing was created")
    return table


def _changed(table: TableDefinition | None, change: Change) -> TableDefinition:
    if isinstance(change, CreateTable):
        return change.table
    if table is None:
        raise ValueError("a table is created before it is changed")
    match change:
        case RenameTable(_, name):
            return dataclasses.replace(table, name=name)
        case AddStream(stream):
            return dataclasses.replace(table, streams=(*table.streams, stream))
        case ChangeStream(before, stream):
            return dataclasses.replace(
                table, streams=tuple(stream if item == before else item for item in table.streams)
            )
        case RemoveStream(stream):
            return dataclasses.replace(table, streams=tuple(item for item in table.streams if item != stream))
        case AddColumn(column, position):
            columns = (*table.columns[:position], column, *table.columns[position:])
            return dataclasses.replace(table, columns=columns)
        case DropColumn(column):
            return dataclasses.replace(table, columns=tuple(item for item in table.columns if item != column))
        case RenameColumn(before, name, rename):
            return _with_column(table, before, name=name, stored_as=None, rename=rename)
        case AdvanceRename(name, _, rename):
            return _with_column(table, name, rename=rename)
        case ReadColumn(name, _, source, sources, value):
            return _with_column(table, name, source=source, sources=sources, value=value)
        case WidenColumn(name, _, kind, widening):
            return _with_column(table, name, type=kind, widening=widening)
        case EndWidening(name):
            return _with_column(table, name, widening=None)
        case LengthenColumn(name, _, length):
            return _with_column(table, name, length=length)
        case ReorderColumns(names):
            return dataclasses.replace(table, columns=tuple(map(table.column, names)))
        case ChangeSetting(field, value):
            return dataclasses.replace(table, **{field: value})  # type: ignore[arg-type]  # a value of that field


def _with_column(table: TableDefinition, known: str, **changed: Any) -> TableDefinition:
    columns = tuple(dataclasses.replace(item, **changed) if item.name == known else item for item in table.columns)
    return dataclasses.replace(table, columns=columns)


def _differences(before: TableDefinition, after: TableDefinition) -> list[str]:
    """The fields that are not equal; those of the file alone are not compared."""
    return [
        field.name
        for field in dataclasses.fields(after)
        if field.compare and getattr(before, field.name) != getattr(after, field.name)
    ]


def describe(name: str, changes: Sequence[Change]) -> tuple[str, ...]:
    """The changes of a table for people, a line each; settings without a line of their own share one."""
    lines: list[str] = []
    settings: list[str] = []
    for change in changes:
        if line := _line(name, change):
            lines.append(line)
        elif isinstance(change, ChangeSetting):
            settings.append(change.field)
    return (*lines, *([f"update {name}: {', '.join(settings)}"] if settings else []))


def _line(name: str, change: Change) -> str | None:
    match change:
        case CreateTable(table):
            return f"create table {name} with {counted(len(table.columns), 'column')}"
        case RenameTable(before, renamed, days):
            shown = (
                f"Glue shows both names for {counted(days, 'day')}" if days else "Glue forgets the former name at once"
            )
            return f"rename {before} to {renamed}: its objects stay where they are, and {shown}"
        case AddStream(stream, str(origin)):
            return f"move stream {stream.name} at {stream.url} from {origin} to {name}: what no batch has claimed yet"
        case AddStream(stream):
            return f"create stream {stream.name} of {name} at {stream.url}{_format(stream)}"
        case ChangeStream(before, stream):
            form = _format(stream) if before.format != stream.format else ""
            return f"{_stream_change(before, stream)} stream {stream.name} of {name} at {stream.url}{form}"
        case RemoveStream(stream, str(target)):
            return f"end stream {stream.name} of {name} at {stream.url}, which feeds {target} from now on"
        case RemoveStream(stream):
            return f"end stream {stream.name} of {name} at {stream.url}: what has arrived there is still converted"
        case AddColumn(column):
            return f"add column {column.name} {column.type.name} to {name}"
        case DropColumn(column):
            return (
                f"drop column {column.name} of {name}: readers see it no more, objects hold its values, and the name "
                "stays taken, until their days are rebuilt"
            )
        case RenameColumn(before, renamed, ColumnRename() as rename):
            verb = f"rename column {before}" if before != renamed else f"have readers of Glue find column {renamed}"
            to = f" to {renamed}" if before != renamed else " by this name"
            return (
                f"{verb} of {name}{to}: objects of before are rewritten, until then Glue shows {rename.former}, and "
                f"behind it both names for {GRACE_DAYS} days"
            )
        case RenameColumn(before, renamed):
            return f"rename column {before} of {name} to {renamed}"
        case AdvanceRename(renamed, former, rename):
            return f"{_advance(renamed, former, rename)} of {name}"
        case ReadColumn(column_name, before):
            return f"read column {column_name} of {name} from {_read_from(change)}, and no more from {before}"
        case WidenColumn(column_name, before, kind, ColumnWidening()):
            return (
                f"widen column {column_name} of {name} from {before.name} to {kind.name}: objects of before are "
                "rewritten; until that is done Redshift Spectrum, and other readers of Glue that do not widen by "
                "themselves, fail on the column in days with such objects"
            )
        case WidenColumn(column_name, before, kind):
            return f"widen column {column_name} of {name} from {before.name} to {kind.name}"
        case EndWidening(column_name, former, kind):
            return f"end the widening of column {column_name} of {name} to {kind.name}: no object has {former.name} now"
        case LengthenColumn(column_name, before, length):
            return f"lengthen column {column_name} of {name} from {before} to {length} bytes"
        case ReorderColumns(names):
            return f"reorder the columns of {name}: {', '.join(names)}"
        case ChangeSetting("file_format", int(file_format)):
            return f"store timestamps of {name} in {FILE_FORMATS[file_format]} from now on"
        case ChangeSetting("iceberg", IcebergOptions() as options):
            return f"publish {name} as an Iceberg table, too, with {_options(options)}"
        case ChangeSetting("iceberg", None):
            return f"publish {name} as an Iceberg table no longer"
        case ChangeSetting("keep", str(condition)):
            return f"keep rows of {name} only where {condition}"
        case ChangeSetting("keep", None):
            return f"keep all rows of {name}"
        case ChangeSetting("contract", Contract() as contract):
            return f"contract of {name}: new fields {contract.new_fields}, misfits {contract.misfits}"
        case ChangeSetting("retention_days", int(days)):
            return f"keep days of {name} for {counted(days, 'day')}"
        case ChangeSetting("retention_days", None):
            return f"keep all days of {name} that are not expired yet"
        case ChangeSetting("retired", bool(retired)):
            return f"retire {name}: nothing more is taken in" if retired else f"take {name} into use again"
        case ChangeSetting("ducklake", bool(shown)):
            return f"show {name} to clients of DuckLake" if shown else f"hide {name} from clients of DuckLake"
        case ChangeSetting("symlink", bool(shown)):
            if shown:
                return f"show {name} by symlinks, too, for Athena, Trino and Hive"
            return f"show {name} by symlinks no longer: the catalog run behind it takes it out of that database"
        case ChangeSetting():
            return None


def _advance(name: str, former: str, rename: ColumnRename | None) -> str:
    match rename.state if rename else None:
        case RenameState.DRAINING:
            return f"find column {name} beside {former} in every object"
        case RenameState.BOTH_SHOWN:
            return f"show column {name} beside {former} in Glue"
        case RenameState.DRAINING_FORMER:
            return f"show column {name} without {former} in Glue"
        case _:
            return f"write column {name} without {former} into objects"


def _format(stream: Stream) -> str:
    given = stream.format
    return f" of protobuf messages {given.message} (descriptor set {given.fingerprint})" if given else ""


def _stream_change(before: Stream, after: Stream) -> str:
    if before.enabled != after.enabled:
        return "read again" if after.enabled else "stop, and have objects wait, at"
    if before.discard != after.discard:
        return "discard what arrives at" if after.discard else "convert again what arrives at"
    return "change"


def _options(options: IcebergOptions) -> str:
    """All options as table files say them; metrics only where they are named."""
    told = {**vars(options), "metrics": f"[{', '.join(options.metrics)}]"}
    return ", ".join(f"{option}: {value}" for option, value in told.items() if value != "[]")

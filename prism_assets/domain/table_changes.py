"""What `apply` changes about a table: each change is a value that is shown to people, carried out and tested.

What comes into force is the definition of before with the changes made to it, in their order, and nothing else: so what
was shown is what happens. A new kind of change is a class here, found by `changes_between` (`table_diff.py`).
"""
# ruff: noqa: D102  # what the two methods of every class do stands in Change

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.column_transitions import ColumnRename, ColumnWidening, RenameState, WideningState
from prism_assets.domain.columns import Column
from prism_assets.domain.names import TableName
from prism_assets.domain.streams import Stream
from prism_assets.domain.table_options import EVOLVE, IcebergOptions
from prism_assets.domain.tables import GRACE_DAYS, TableDefinition
from prism_assets.domain.types import FILE_FORMATS, ColumnType
from prism_assets.domain.words import counted


class Change(ABC):
    """One thing that becomes otherwise about a table."""

    @abstractmethod
    def line(self, table: str) -> str | None:
        """What people are told of it, with the name of the table; None if it shares a line with others."""

    @abstractmethod
    def apply_to(self, table: TableDefinition) -> TableDefinition:
        """The definition behind it."""


@dataclass(frozen=True)
class CreateTable(Change):
    """A table with its columns; its streams come with changes of their own."""

    table: TableDefinition

    def line(self, table: str) -> str:
        return f"create table {table} with {counted(len(self.table.columns), 'column')}"

    def apply_to(self, table: TableDefinition | None) -> TableDefinition:
        return self.table


@dataclass(frozen=True)
class RenameTable(Change):
    """Another name for readers; everything of the table stays where it is. Glue shows both names for so many days."""

    before: TableName
    name: TableName
    grace_days: int

    def line(self, table: str) -> str:
        days = self.grace_days
        shown = f"Glue shows both names for {counted(days, 'day')}" if days else "Glue forgets the former name at once"
        return f"rename {self.before} to {self.name}: its objects stay where they are, and {shown}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, name=self.name)


@dataclass(frozen=True)
class AddStream(Change):
    """A stream is read from now on, maybe one of another table, `moved_from`. Its name may be that of one before."""

    stream: Stream
    moved_from: str | None = None

    def line(self, table: str) -> str:
        new = self.stream
        if self.moved_from is None:
            return f"create stream {new.name} of {table} at {new.url}{_format(new)}"
        return f"move stream {new.name} at {new.url} from {self.moved_from} to {table}: what no batch has claimed yet"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, streams=(*table.streams, self.stream))


@dataclass(frozen=True)
class ChangeStream(Change):
    """A stream of before is stopped or read again, discarded, named or read otherwise."""

    before: Stream
    stream: Stream

    def line(self, table: str) -> str:
        stream = self.stream
        form = _format(stream) if self.before.format != stream.format else ""
        return f"{self._verb} stream {stream.name} of {table} at {stream.url}{form}"

    @property
    def _verb(self) -> str:
        if self.before.enabled != self.stream.enabled:
            return "read again" if self.stream.enabled else "stop, and have objects wait, at"
        if self.before.discard != self.stream.discard:
            return "discard what arrives at" if self.stream.discard else "convert again what arrives at"
        return "change"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        streams = tuple(self.stream if item == self.before else item for item in table.streams)
        return dataclasses.replace(table, streams=streams)


@dataclass(frozen=True)
class RemoveStream(Change):
    """A stream is read no longer, but for what has arrived; or by another table, `moved_to`."""

    stream: Stream
    moved_to: str | None = None

    def line(self, table: str) -> str:
        ended = f"end stream {self.stream.name} of {table} at {self.stream.url}"
        if self.moved_to is None:
            return f"{ended}: what has arrived there is still converted"
        return f"{ended}, which feeds {self.moved_to} from now on"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, streams=tuple(item for item in table.streams if item != self.stream))


@dataclass(frozen=True)
class AddColumn(Change):
    """A column that no object has yet, at its place among the others; its id is still to be given."""

    column: Column
    position: int

    def line(self, table: str) -> str:
        return f"add column {self.column.name} {self.column.type.name} to {table}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        columns = (*table.columns[: self.position], self.column, *table.columns[self.position :])
        return dataclasses.replace(table, columns=columns)


@dataclass(frozen=True)
class DropColumn(Change):
    """A column that readers see no more; objects have it until they are made again, and its id is never given again."""

    column: Column

    def line(self, table: str) -> str:
        return (
            f"drop column {self.column.name} of {table}: readers see it no more, objects hold its values, and the name "
            "stays taken, until their days are rebuilt"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, columns=tuple(item for item in table.columns if item != self.column))


@dataclass(frozen=True)
class RenameColumn(Change):
    """Another name for readers by id; those of Glue follow by `rename`. None where no object has the former name."""

    before: str
    name: str
    rename: ColumnRename | None

    def line(self, table: str) -> str:
        if self.rename is None:
            return f"rename column {self.before} of {table} to {self.name}"
        what = (
            f"rename column {self.before} of {table} to {self.name}"
            if self.before != self.name
            else f"have readers of Glue find column {self.name} of {table} by this name"
        )
        return (
            f"{what}: Iceberg, DuckLake, `prism erase` and table files have the new name at once; older objects are "
            f"rewritten, and until then readers of Glue, `prism query` among them, see {self.rename.former}, then both "
            f"names for {GRACE_DAYS} days, then {self.name} alone"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.before, name=self.name, stored_as=None, rename=self.rename)


@dataclass(frozen=True)
class AdvanceRename(Change):
    """A renamed column is further on the way to its new name; None at the end of it."""

    name: str
    former: str
    rename: ColumnRename | None

    def line(self, table: str) -> str:
        match self.rename.state if self.rename else None:
            case RenameState.DRAINING:
                return f"find column {self.name} beside {self.former} in every object of {table}"
            case RenameState.BOTH_SHOWN:
                return f"show column {self.name} beside {self.former} in Glue of {table}"
            case RenameState.DRAINING_FORMER:
                return f"show column {self.name} without {self.former} in Glue of {table}"
            case _:
                return f"write column {self.name} without {self.former} into objects of {table}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, rename=self.rename)


@dataclass(frozen=True)
class ReadColumn(Change):
    """Values of a column come from another key from now on, from other ones, or from another expression."""

    name: str
    before: str
    source: str
    sources: tuple[str, ...]
    value: str | None

    def line(self, table: str) -> str:
        return f"read column {self.name} of {table} from {read_from(self)}, and no more from {self.before}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, source=self.source, sources=self.sources, value=self.value)


@dataclass(frozen=True)
class WidenColumn(Change):
    """A wider type; objects and Glue follow by `widening`. None where no object has values of the former type."""

    name: str
    before: ColumnType
    type: ColumnType
    widening: ColumnWidening | None = None

    def line(self, table: str) -> str:
        widened = f"widen column {self.name} of {table} from {self.before.name} to {self.type.name}"
        if self.widening is None:
            return widened
        if self.widening.copy_type:
            return (
                f"{widened}: merged objects are copied so, and when all are, the copies take their place at once; "
                f"until then the column stays {self.before.name} for all"
            )
        return (
            f"{widened}: objects are written so when every catalog shows it, and those of before are rewritten; until "
            "that is done Redshift Spectrum, and other readers of Glue that do not widen by themselves, fail on the "
            "column in days with such objects"
        )

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        if self.widening is None:
            return _with_column(table, self.name, type=self.type)
        return _with_column(table, self.name, widening=self.widening)


@dataclass(frozen=True)
class AdvanceWidening(Change):
    """The wider type, which no object has that readers are sent to, comes nearer, or another way."""

    name: str
    type: ColumnType
    widening: ColumnWidening

    def line(self, table: str) -> str:
        column, minutes = (
            f"column {self.name} of {table} as {self.type.name}",
            self.widening.flip_limit.total_seconds() / 60,
        )
        match self.widening.state:
            case WideningState.FLIPPING:
                return (
                    f"begin to flip {column}: new objects wait, {minutes:.0f} minutes at most, until all days are "
                    "closed, merged and copied"
                )
            case WideningState.COPYING:
                return f"give up to flip {column} for now: new objects are taken in again"
            case _:
                return f"show {column} at once, and write objects so when every catalog does"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, widening=self.widening)


@dataclass(frozen=True)
class FlipColumn(Change):
    """The wider type, with the copies in the place of all objects that readers are sent to."""

    name: str
    type: ColumnType

    def line(self, table: str) -> str:
        return f"flip column {self.name} of {table} to {self.type.name}: its copies take the place of all objects"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, type=self.type, widening=None)


@dataclass(frozen=True)
class WriteWidened(Change):
    """Objects are written with the wider type from now on, which every catalog shows; those of before by `widening`."""

    name: str
    type: ColumnType
    widening: ColumnWidening

    def line(self, table: str) -> str:
        return f"write column {self.name} of {table} as {self.type.name}, which every catalog shows"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, type=self.type, widening=self.widening)


@dataclass(frozen=True)
class EndWidening(Change):
    """No object has values of the former type any more."""

    name: str
    former: ColumnType
    type: ColumnType

    def line(self, table: str) -> str:
        ended = f"end the widening of column {self.name} of {table} to {self.type.name}"
        return f"{ended}: no object has {self.former.name} now"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, widening=None)


@dataclass(frozen=True)
class LengthenColumn(Change):
    """Values of a column may be longer from now on."""

    name: str
    before: int
    length: int

    def line(self, table: str) -> str:
        return f"lengthen column {self.name} of {table} from {self.before} to {self.length} bytes"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, length=self.length)


@dataclass(frozen=True)
class ShortenColumn(Change):
    """Values of a column may not be so long any more; of a table that was never read."""

    name: str
    before: int
    length: int

    def line(self, table: str) -> str:
        return f"shorten column {self.name} of {table} from {self.before} to {self.length} bytes: {_NEVER_READ}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return _with_column(table, self.name, length=self.length)


@dataclass(frozen=True)
class ReplaceColumn(Change):
    """A column in the place of another, of a table that was never read; its id is still to be given."""

    before: Column
    column: Column

    def line(self, table: str) -> str:
        before, after = (f"{column.name} {column.type.name}" for column in (self.before, self.column))
        return f"replace column {before} of {table} by {after}: {_NEVER_READ}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        columns = tuple(self.column if item == self.before else item for item in table.columns)
        return dataclasses.replace(table, columns=columns)


_NEVER_READ = "no object of the table was ever read"


@dataclass(frozen=True)
class ReorderColumns(Change):
    """The columns in another order, by their names: objects have them in that of their ids."""

    names: tuple[str, ...]

    def line(self, table: str) -> str:
        return f"reorder the columns of {table}: {', '.join(self.names)}"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, columns=tuple(map(table.column, self.names)))


@dataclass(frozen=True)
class ChangeSetting(Change):
    """Another value for a field of the definition: a setting, or what may change about its columns and streams."""

    field: str
    value: Any

    def line(self, table: str) -> str | None:
        value = self.value
        match self.field:
            case "file_format":
                return f"store timestamps of {table} in {FILE_FORMATS[value]} from now on"
            case "iceberg":
                shown = f", too, with {_options(value)}" if value else " no longer"
                return f"publish {table} as an Iceberg table{shown}"
            case "keep":
                return f"keep all rows of {table}" if value is None else f"keep rows of {table} only where {value}"
            case "partition_column":
                return f"divide rows of {table} into days by {value}: {_NEVER_READ}"
            case "timezone":
                return f"divide rows of {table} into days of {value}: {_NEVER_READ}"
            case "contract":
                most = f", {value.most_columns} columns at most" if value.new_fields == EVOLVE else ""
                return f"contract of {table}: new fields {value.new_fields}{most}, misfits {value.misfits}"
            case "retention_days":
                if value is None:
                    return f"keep all days of {table} that are not expired yet"
                return f"keep days of {table} for {counted(value, 'day')}"
            case "retired":
                return f"retire {table}: nothing more is taken in" if value else f"take {table} into use again"
            case "ducklake":
                return f"show {table} to clients of DuckLake" if value else f"hide {table} from clients of DuckLake"
            case "symlink":
                if value:
                    return f"show {table} by symlinks, too, for Athena, Trino and Hive"
                return f"show {table} by symlinks no longer: the catalog run behind it takes it out of that database"
            case _:
                return None

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, **{self.field: self.value})


def applied(old: TableDefinition | None, changes: Sequence[Change]) -> TableDefinition:
    """The definition after the changes; the first change of nothing creates the table."""
    table = old
    for change in changes:
        if isinstance(change, CreateTable):
            table = change.table
        elif table is None:
            raise ValueError("a table is created before it is changed")
        else:
            table = change.apply_to(table)
    if table is None:
        raise ValueError("nothing was created")
    return table


def describe(name: str, changes: Sequence[Change]) -> tuple[str, ...]:
    """The changes of a table for people, a line each; settings without a line of their own share one."""
    lines: list[str] = []
    settings: list[str] = []
    for change in changes:
        if line := change.line(name):
            lines.append(line)
        elif isinstance(change, ChangeSetting):
            settings.append(change.field)
    return (*lines, *([f"update {name}: {', '.join(settings)}"] if settings else []))


def read_from(column: Column | ReadColumn) -> str:
    """Where values come from, for people: what the file says, or the key that it means."""
    if column.value is not None:
        return f"the expression {column.value}"
    return ", ".join(column.sources) or f"the key {column.source}"


def _with_column(table: TableDefinition, known: str, **changed: Any) -> TableDefinition:
    columns = tuple(dataclasses.replace(item, **changed) if item.name == known else item for item in table.columns)
    return dataclasses.replace(table, columns=columns)


def _format(stream: Stream) -> str:
    given = stream.format
    return f" of protobuf messages {given.message} (descriptor set {given.fingerprint})" if given else ""


def _options(options: IcebergOptions) -> str:
    """All options as table files say them; metrics only where they are named."""
    told = {**vars(options), "metrics": f"[{', '.join(options.metrics)}]"}
    return ", ".join(f"{option}: {value}" for option, value in told.items() if value != "[]")

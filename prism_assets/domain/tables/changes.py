"""Changes of a table by `apply`. Each change is a value that is shown, carried out and tested.

The earlier definition takes effect with exactly these changes in order, so the lines shown are complete. A new kind of
change is a class here, or in `column_change_kinds.py` for columns. `changes_between` (`table_diff.py`) finds it.
"""
# ruff: noqa: D102  # Change says what the two methods of every class do

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.columns.types import FILE_FORMATS
from prism_assets.domain.names import TableName
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat, ProtobufFormat, Stream
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat
from prism_assets.domain.streams.topic import Topic
from prism_assets.domain.tables.change import NEVER_READ, Change
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import EVOLVE, IcebergOptions
from prism_assets.domain.text import counted


@dataclass(frozen=True)
class CreateTable(Change):
    """A new table with its columns. Its streams are separate changes."""

    table: TableDefinition

    def line(self, table: str) -> str:
        return f"create table {table} with {counted(len(self.table.columns), 'column')}"

    def apply_to(self, table: TableDefinition | None) -> TableDefinition:
        return self.table


@dataclass(frozen=True)
class RenameTable(Change):
    """A new name for readers. All objects stay. Glue shows both names for `grace_days`."""

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
    """A new stream, perhaps taken from the table `moved_from`. Its name may have belonged to an earlier stream."""

    stream: Stream
    moved_from: str | None = None
    moved_id: int | None = None
    """The id of the stream that moves."""

    def line(self, table: str) -> str:
        new = self.stream
        if self.moved_from is None:
            shape = f"{_format(new)}{_patterns(new)}{_route(new)}{_options_of_topic(new)}"
            return f"create stream {new.name} of {table} at {new.url}{shape}"
        return f"move stream {new.name} at {new.url} from {self.moved_from} to {table}: objects not yet claimed"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, streams=(*table.streams, self.stream))


@dataclass(frozen=True)
class ChangeStream(Change):
    """A changed stream: stopped, restarted, discarded, renamed, or read differently."""

    before: Stream
    stream: Stream

    def line(self, table: str) -> str:
        stream = self.stream
        form = _format(stream) if self.before.format != stream.format else ""
        what = "objects wait" if stream.topic is None else "messages wait in Kafka, as long as it keeps them"
        waiting = f": {what}" if self.before.enabled and not stream.enabled else ""
        return (
            f"{self._verb} stream {stream.name} of {table} at {stream.url}{form}{self._other_patterns}"
            f"{self._other_route}{self._other_topic}{waiting}"
        )

    @property
    def _other_route(self) -> str:
        if self.before.route == self.stream.route:
            return ""
        return f"{_route(self.stream) or ', without a route'}: for objects claimed from now on"

    @property
    def _other_patterns(self) -> str:
        """Waiting objects are still read. The next listing finds objects left out so far."""
        if _choice(self.before) == _choice(self.stream):
            return ""
        now = _patterns(self.stream) or ", without patterns"
        return f"{now}: the next listing checks every object again; waiting objects are still read"

    @property
    def _other_topic(self) -> str:
        """The start matters at the registration of the topic only."""
        before, after = self.before.topic, self.stream.topic
        if before is None or after is None or before == after:
            return ""
        began = " (where it has not begun)" if before.start != after.start else ""
        return _options_of_topic(self.stream, self.before) + began

    @property
    def _verb(self) -> str:
        if self.before.enabled != self.stream.enabled:
            return "read again" if self.stream.enabled else "stop"
        if self.before.discard != self.stream.discard:
            return "discard objects of" if self.stream.discard else "convert objects again of"
        return "change"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        streams = tuple(self.stream if item == self.before else item for item in table.streams)
        return dataclasses.replace(table, streams=streams)


@dataclass(frozen=True)
class RemoveStream(Change):
    """A stream that ends, except for objects already there, or that moves to the table `moved_to`."""

    stream: Stream
    moved_to: str | None = None

    def line(self, table: str) -> str:
        ended = f"end stream {self.stream.name} of {table} at {self.stream.url}"
        if self.moved_to is None:
            return f"{ended}: objects already there are still converted"
        return f"{ended}, which feeds {self.moved_to} from now on"

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, streams=tuple(item for item in table.streams if item != self.stream))


@dataclass(frozen=True)
class ChangeSetting(Change):
    """A new value for a field of the definition."""

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
                return f"divide rows of {table} into days by {value}: {NEVER_READ}"
            case "timezone":
                return f"divide rows of {table} into days of {value}: {NEVER_READ}"
            case "contract":
                most = f", {value.most_columns} columns at most" if value.new_fields == EVOLVE else ""
                return f"contract of {table}: new fields {value.new_fields}{most}, misfits {value.misfits}"
            case "retention_days":
                if value is None:
                    return f"keep all unexpired days of {table}"
                return f"keep days of {table} for {counted(value, 'day')}"
            case "retired":
                return f"retire {table}: nothing more is taken in" if value else f"take {table} into use again"
            case "ducklake":
                return f"show {table} to clients of DuckLake" if value else f"hide {table} from clients of DuckLake"
            case "symlink":
                if value:
                    return f"show {table} by symlinks, too, for Athena, Trino and Hive"
                return f"show {table} by symlinks no longer: the next catalog run removes it from that database"
            case _:
                return None

    def apply_to(self, table: TableDefinition) -> TableDefinition:
        return dataclasses.replace(table, **{self.field: self.value})


def applied(old: TableDefinition | None, changes: Sequence[Change]) -> TableDefinition:
    """Returns the definition after the changes. The first change of no table creates it."""
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
    """Returns the changes of a table for people, one line each. Settings without a line of their own share one."""
    lines: list[str] = []
    settings: list[str] = []
    for change in changes:
        if line := change.line(name):
            lines.append(line)
        elif isinstance(change, ChangeSetting):
            settings.append(change.field)
    return (*lines, *([f"update {name}: {', '.join(settings)}"] if settings else []))


def _format(stream: Stream) -> str:
    match stream.format:
        case ProtobufFormat() as given:
            return f" of protobuf messages {given.message} (descriptor set {given.fingerprint})"
        case DocumentFormat(records=records):
            return f" of documents with records at {records}"
        case ParquetFormat():
            return " of Parquet"
        case CsvFormat(header=True):
            return " of text lines below a header"
        case CsvFormat(columns=columns):
            return f" of text lines with {counted(len(columns), 'field')}"
        case RegexFormat(regex=regex):
            return f" of text lines that match {regex}"
    return ""


def _choice(stream: Stream) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Returns what chooses the objects of a stream by their keys."""
    return stream.include, stream.exclude, stream.since


def _patterns(stream: Stream) -> str:
    """Returns a stream's patterns and first day in the notation of table files, or ""."""
    patterns_by_key = {"include": stream.include, "exclude": stream.exclude}
    shown = "".join(f", {key}: [{', '.join(patterns)}]" for key, patterns in patterns_by_key.items() if patterns)
    return shown if stream.since is None else f"{shown}, since: {stream.since}"


def _options(options: IcebergOptions) -> str:
    """Returns all options in the notation of table files; metrics only if columns are named."""
    shown = {**vars(options), "metrics": f"[{', '.join(options.metrics)}]"}
    return ", ".join(f"{option}: {value}" for option, value in shown.items() if value != "[]")


def _route(stream: Stream) -> str:
    """Returns a stream's route in the notation of table files, with the parts of other tables, or ""."""
    if stream.route is None:
        return ""
    others = stream.route.values if stream.route.otherwise else stream.route.taken_keys
    besides = f" beside {', '.join(others)}" if others else ""
    return f", route: {stream.route.describe()}{besides}"


def _options_of_topic(stream: Stream, before: Stream | None = None) -> str:
    """Returns the options of a topic that differ from earlier ones, or from the defaults, in order; or ""."""
    if stream.topic is None:
        return ""
    earlier = before.topic if before and before.topic else Topic(cluster=stream.topic.cluster, name=stream.topic.name)
    known = vars(earlier)
    changed = {name: value for name, value in vars(stream.topic).items() if value != known[name]}
    # The start of a new topic decides on its first row, so it is always told.
    told = {"start": stream.topic.start, **changed} if before is None else changed
    return "".join(f", {name}: {value}" for name, value in told.items())

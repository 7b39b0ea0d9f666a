"""Tables of the published design, and their table files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    BigIntType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    RealType,
    SmallIntType,
    StringType,
    TimestampType,
)
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.drafted_columns import quoted

_ALIKE = (StringType, BooleanType, SmallIntType, IntegerType, BigIntType, RealType, DoubleType, TimestampType)
_TYPES = {kind.keyword: kind for kind in _ALIKE} | {DateType.keyword: StringType}
"""Types by the names of the design. The design stores dates as texts of ten characters."""
_DATE_LENGTH = 10
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)")
_NAMED_ZONES = {9: "Asia/Tokyo", 0: "UTC"}


@dataclass(frozen=True, kw_only=True)
class AdoptedStream:
    """A stream of the design's loader."""

    name: str
    bucket: str
    prefix: str
    disabled: bool
    discard: bool

    @property
    def url(self) -> str:
        """The folder of the objects. The loader also records the folder `queue` inside, where no object lies."""
        return f"s3://{self.bucket}/{self.prefix.removesuffix('/').removesuffix('/queue')}/"


@dataclass(frozen=True, kw_only=True)
class AdoptedColumn:
    """A column of a stream, in the words of the design."""

    name: str
    source_name: str | None
    """The key in the lines, or None for the name of the column."""
    type: str
    length: int | None
    source_offset: str | None
    zone_offset: str | None
    is_partition_source: bool


@dataclass(frozen=True, kw_only=True)
class AdoptedTable:
    """A table with its streams and columns."""

    table_id: int
    name: TableName
    merge_interval: int
    streams: tuple[AdoptedStream, ...]
    columns: tuple[AdoptedColumn, ...]


@dataclass(frozen=True, kw_only=True)
class AdoptedFile:
    """The text of a table file, with notes for a person."""

    name: TableName
    text: str
    notes: tuple[str, ...]


def draft_adopted(table: AdoptedTable, since: date | None) -> AdoptedFile:
    """Returns the file of a table. Timestamps stay milliseconds, and columns keep their order.

    With `since` the new table reads from that day on, and the former installation the days before.
    """
    time = next((column for column in table.columns if column.is_partition_source), None)
    zone, notes = _zone(time)
    if time is None:
        notes = [*notes, "no column decides the day of a row: name one as `partition`"]
    lines = [
        f"schema: {quoted(table.name.schema)}",
        f"table: {quoted(table.name.table)}",
        "timestamps: milliseconds",
        "streams:",
        *_stream_lines(table.streams, since),
        f"partition: {{column: {quoted(time.name) if time else 'time'}, timezone: {zone}}}",
        "columns:",
    ]
    for column in table.columns:
        if column.type.lower() in _TYPES:
            lines.append(_column_line(column))
        else:
            notes = [*notes, f"column {column.name} of type {column.type} is left out, as in the former table"]
    lines.append(f"merge: {{interval: {table.merge_interval}}}")
    notes = [" ".join(note.split()) for note in notes]  # a line break would end the comment
    comments = [f"# {note}" for note in notes]
    return AdoptedFile(name=table.name, text="\n".join([*comments, *lines, ""]), notes=tuple(notes))


def _stream_lines(streams: Sequence[AdoptedStream], since: date | None) -> Iterator[str]:
    """Yields one stream for each folder. The stream is stopped if all former streams of its folder are stopped."""
    by_url: dict[str, list[AdoptedStream]] = {}
    for stream in streams:
        by_url.setdefault(stream.url, []).append(stream)
    for url, items in by_url.items():
        first = items[0]
        options = ", enabled: false" if all(item.disabled for item in items) else ""
        options += ", discard: true" if all(item.discard for item in items) else ""
        options += f', since: "{since}"' if since is not None else ""
        yield f"  - {{name: {quoted(first.name)}, url: {quoted(url)}{options}}}"


def _column_line(column: AdoptedColumn) -> str:
    kind, is_date = _TYPES[column.type.lower()], column.type.lower() == DateType.keyword
    length = _DATE_LENGTH if is_date else column.length if kind.takes_length else None
    parts = [f"name: {quoted(column.name)}", f"type: {kind.keyword}"]
    parts += [f"length: {min(length, DEFAULT_LENGTH)}"] if length is not None else []
    source = column.source_name or column.name
    parts += [f"source: {quoted(source)}"] if source != column.name else []
    parts += (
        [f"source_offset: {quoted(column.source_offset)}"] if column.source_offset and kind.takes_time_options else []
    )
    parts += ["required: true"] if column.is_partition_source else []
    return f"  - {{{', '.join(parts)}}}"


def _zone(time: AdoptedColumn | None) -> tuple[str, list[str]]:
    """Returns the time zone of days, from the offset of the partition's source column."""
    offset = time.zone_offset if time else None
    if offset in (None, "", "Z"):
        return "UTC", []
    match = _OFFSET.fullmatch(offset or "")
    if match is None or match["minutes"] != "00":
        return "UTC", [f"the offset {offset} has no time zone of whole hours: name the zone of days as `timezone`"]
    hours = int(match["sign"] + match["hours"])
    return _NAMED_ZONES.get(hours, f"Etc/GMT{-hours:+d}"), []

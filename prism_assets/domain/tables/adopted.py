"""Drafts table files from streams and columns of the published design."""

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
"""Types by the names of the design. It stores dates as texts of ten characters, and its readers know them as such."""
_DATE_LENGTH = 10
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)")
_NAMED_ZONES = {9: "Asia/Tokyo", 0: "UTC"}


@dataclass(frozen=True, kw_only=True)
class ColumnToAdopt:
    """A column, in the words of the design."""

    name: str
    source: str
    type: str
    length: int | None
    source_offset: str | None
    zone_offset: str | None
    is_partition_source: bool


@dataclass(frozen=True, kw_only=True)
class StreamToAdopt:
    """A stream and the folder of its objects."""

    name: str
    url: str
    enabled: bool
    discard: bool


@dataclass(frozen=True, kw_only=True)
class AdoptedFile:
    """The text of a table file, and what a person should look at."""

    name: TableName
    text: str
    notes: tuple[str, ...]


def adopt_table(
    name: TableName,
    merge_interval: int,
    streams: Sequence[StreamToAdopt],
    columns: Sequence[ColumnToAdopt],
    since: date | None,
) -> AdoptedFile:
    """Returns the file of a table. Timestamps stay milliseconds, and columns keep their order.

    With `since` the new table reads from that day on, and the former installation the days before.
    """
    time = next((column for column in columns if column.is_partition_source), None)
    zone, notes = _zone(time)
    if time is None:
        notes = [*notes, "no column decides the day of a row: name one as `partition`"]
    lines = [
        f"schema: {quoted(name.schema)}",
        f"table: {quoted(name.table)}",
        "timestamps: milliseconds",
        "streams:",
        *_stream_lines(streams, since),
        f"partition: {{column: {quoted(time.name) if time else 'time'}, timezone: {zone}}}",
        "columns:",
    ]
    for column in columns:
        if column.type.lower() in _TYPES:
            lines.append(_column_line(column))
        else:
            notes = [*notes, f"column {column.name} of type {column.type} is left out, as in the former table"]
    lines.append(f"merge: {{interval: {merge_interval}}}")
    told = [f"# {note}" for note in notes]
    return AdoptedFile(name=name, text="\n".join([*told, *lines, ""]), notes=tuple(notes))


def _stream_lines(streams: Sequence[StreamToAdopt], since: date | None) -> Iterator[str]:
    """Yields the streams, one for each folder. A stopped stream among others of a folder does not stop it."""
    by_url: dict[str, list[StreamToAdopt]] = {}
    for stream in streams:
        by_url.setdefault(stream.url, []).append(stream)
    for url, items in by_url.items():
        first = items[0]
        options = "" if any(item.enabled for item in items) else ", enabled: false"
        options += ", discard: true" if all(item.discard for item in items) else ""
        options += f', since: "{since}"' if since is not None else ""
        yield f"  - {{name: {quoted(first.name)}, url: {quoted(url)}{options}}}"


def _column_line(column: ColumnToAdopt) -> str:
    kind, is_date = _TYPES[column.type.lower()], column.type.lower() == DateType.keyword
    length = _DATE_LENGTH if is_date else column.length if kind.takes_length else None
    parts = [f"name: {quoted(column.name)}", f"type: {kind.keyword}"]
    parts += [f"length: {min(length, DEFAULT_LENGTH)}"] if length is not None else []
    parts += [f"source: {quoted(column.source)}"] if column.source != column.name else []
    parts += [f'source_offset: "{column.source_offset}"'] if column.source_offset and kind.takes_time_options else []
    parts += ["required: true"] if column.is_partition_source else []
    return f"  - {{{', '.join(parts)}}}"


def _zone(time: ColumnToAdopt | None) -> tuple[str, list[str]]:
    """Returns the time zone of days, by the offset of the column that decides them."""
    offset = time.zone_offset if time else None
    if offset in (None, "", "Z"):
        return "UTC", []
    match = _OFFSET.fullmatch(offset or "")
    if match is None or match["minutes"] != "00":
        return "UTC", [f"the offset {offset} has no time zone of whole hours: name the zone of days as `timezone`"]
    hours = int(match["sign"] + match["hours"])
    return _NAMED_ZONES.get(hours, f"Etc/GMT{-hours:+d}"), []

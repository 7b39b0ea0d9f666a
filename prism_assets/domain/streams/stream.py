"""Streams: where a table's objects arrive, their format, and how they are read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.streams.documents import RecordSteps, record_steps
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat, TextFormat
from prism_assets.domain.streams.topic import Topic, topic_url
from prism_assets.domain.tables.stored_documents import check_known, read_part

_OMITTED_IF_EMPTY = ("columns", "format", "group", "delete", "include", "exclude", "since", "route", "topic")
"""Fields of a stream that stored definitions leave out without content."""


@dataclass(frozen=True, kw_only=True)
class ProtobufFormat:
    """Objects hold protobuf messages of one type, each after its length as a varint."""

    message: str
    descriptor_set: str
    """A FileDescriptorSet with the type and all imports, in base64. Definitions carry it, so objects are read with the
    set at their first claim, even after the file is gone.
    """

    @property
    def fingerprint(self) -> str:
        """The first 12 digits of the descriptor set's SHA-256, for people to compare."""
        return hashlib.sha256(base64.b64decode(self.descriptor_set)).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class DocumentFormat:
    """Objects hold documents of JSON, whose records become rows."""

    records: str
    """The way from a document to its records, such as `$.Records[*]`."""

    @property
    def steps(self) -> RecordSteps:
        """The steps of the way."""
        return record_steps(self.records)


@dataclass(frozen=True, kw_only=True)
class ParquetFormat:
    """Objects are files of Parquet, and their rows are read as JSON objects."""

    container: str = "parquet"


Format = ProtobufFormat | DocumentFormat | ParquetFormat | TextFormat

_FORMATS: Mapping[str, type[Format]] = {
    "message": ProtobufFormat,
    "records": DocumentFormat,
    "container": ParquetFormat,
    "delimiter": CsvFormat,
    "regex": RegexFormat,
}
"""The formats, each by a field that only it has."""


@dataclass(frozen=True, kw_only=True)
class StreamColumn:
    """The source of a column's values in one stream's objects. The fields are those of Column."""

    name: str
    source: str
    sources: tuple[str, ...] = ()
    value: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Returns the column for stored definitions."""
        return {name: value for name, value in vars(self).items() if value not in ((), None)}


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A place where a table's objects arrive: everything under `s3://bucket/key_prefix`, or a topic of Kafka."""

    name: str
    bucket: str
    key_prefix: str
    enabled: bool = True
    """Objects of a disabled stream wait."""
    discard: bool = False
    """Objects count as done and are never read."""
    format: Format | None = None
    """None for JSON lines."""
    columns: tuple[StreamColumn, ...] = ()
    """Columns read differently in this stream."""
    group: str | None = None
    """For join tables: the group written by the stream."""
    delete: str | None = None
    """For join tables: an SQL expression, true for lines that delete."""
    include: tuple[str, ...] = ()
    """Glob patterns on keys below the prefix (see `intake.py`)."""
    exclude: tuple[str, ...] = ()
    """Glob patterns on keys below the prefix (see `intake.py`)."""
    since: str | None = None
    """The first day of keys that are read by themselves, such as 2026-11-01. `prism history` brings in earlier ones."""
    route: Route | None = None
    """The stream's share of a prefix with several tables. None: everything."""
    topic: Topic | None = None
    """The topic whose messages are the lines. Its `bucket` and `key_prefix` are those of the stream."""

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`, or `kafka://cluster/topic`."""
        if self.topic is not None:
            return topic_url(self.topic.cluster, self.topic.name)
        return f"s3://{self.bucket}/{self.key_prefix}"

    @property
    def message(self) -> str | None:
        """The type of the messages, or None for JSON."""
        return self.format.message if isinstance(self.format, ProtobufFormat) else None

    @property
    def records(self) -> str | None:
        """The way from a document to its records, or None for lines and messages."""
        return self.format.records if isinstance(self.format, DocumentFormat) else None

    @property
    def cut(self) -> tuple[str, str | bool]:
        """How objects are cut into records. Objects keep it, because the number of a record hangs on it.

        How a line of text is divided into fields may change: the lines stay the same.
        """
        match self.format:
            case ProtobufFormat(message=message):
                return "messages", message
            case DocumentFormat(records=records):
                return "records", records
            case ParquetFormat():
                return "rows", False
            case CsvFormat(header=header):
                return "text", header
            case RegexFormat():
                return "text", False
            case None:
                return "lines", False

    @property
    def division(self) -> tuple[object, ...] | None:
        """What decides which lines of shared objects the stream takes. None if it takes all lines of its objects.

        The format decides, too, because it makes the value of the field that the route reads.
        """
        if self.route is None or self.route.by is None:
            return None
        return self.route.field, self.route.values, self.route.otherwise, self.format

    def holds(self, bucket: str, key: str) -> bool:
        """Whether an object belongs to the stream.

        Spool objects lie in the bucket of the lake, whatever its name. Samples of a topic have the place of the stream.
        """
        if self.topic is not None and self.topic.holds(key):
            return True
        return bucket == self.bucket and key.startswith(self.key_prefix)

    def to_document(self) -> dict[str, Any]:
        """Returns the stream for stored definitions. Fields without content are left out."""
        document = {
            **vars(self),
            "columns": [column.to_document() for column in self.columns],
            "format": self.format and vars(self.format),
            "route": self.route and self.route.to_document(),
            "topic": self.topic and self.topic.to_document(),
        }
        return {name: value for name, value in document.items() if name not in _OMITTED_IF_EMPTY or value}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> Stream:
        """Reads a stream of a stored definition. Raises InvariantBroken for an unknown field."""
        what = f"the definition of a stream of {table}"
        check_known(cls, document, what)
        columns = tuple(read_part(StreamColumn, column, what) for column in document.get("columns", ()))
        stored = document.get("format")
        form = _read_format(stored, what) if stored else None
        topic = read_part(Topic, document["topic"], what) if document.get("topic") else None
        patterns = {name: tuple(document.get(name, ())) for name in ("include", "exclude")}
        route = read_part(Route, document["route"], what) if document.get("route") else None
        return cls(**{**document, "columns": columns, "format": form, "route": route, "topic": topic, **patterns})


def _read_format(stored: Mapping[str, Any], what: str) -> Format:
    kind = next((kind for field, kind in _FORMATS.items() if field in stored), ProtobufFormat)
    return read_part(kind, stored, what)

"""Streams: where the objects of a table arrive, what they hold, and how they are read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.documents import check_known, read_part

_SILENT_OF_STREAM = ("columns", "format", "group", "delete", "include", "exclude")


@dataclass(frozen=True, kw_only=True)
class ProtobufFormat:
    """Objects hold protobuf messages of one type, each behind its length as a varint.

    `descriptor_set` is a FileDescriptorSet with the type and all that it imports, in base64: definitions carry it, so
    that objects are read as they were when they were first claimed, wherever the file has gone.
    """

    message: str
    descriptor_set: str

    @property
    def fingerprint(self) -> str:
        """The first 12 digits of the descriptor set's SHA-256, which people can compare."""
        return hashlib.sha256(base64.b64decode(self.descriptor_set)).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class StreamColumn:
    """Where the values of a column come from in the objects of one stream; the fields are those of Column."""

    name: str
    source: str
    sources: tuple[str, ...] = ()
    value: str | None = None

    def to_document(self) -> dict[str, Any]:
        """As definitions store it."""
        return {name: value for name, value in vars(self).items() if value not in ((), None)}


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Where objects of a table arrive: everything under `s3://bucket/key_prefix`.

    They hold lines of JSON if they have no other `format`. Objects of a stream that is not `enabled` wait, those of one
    with `discard` are counted done and never read. `columns` are read otherwise than in the table's other streams.
    `include` and `exclude` are glob patterns on keys below the prefix (`intake.py` says what they leave out).
    Those of a join table write one `group`, and lines for which the SQL expression `delete` is true delete.
    """

    name: str
    bucket: str
    key_prefix: str
    enabled: bool = True
    discard: bool = False
    format: ProtobufFormat | None = None
    columns: tuple[StreamColumn, ...] = ()
    group: str | None = None
    delete: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.key_prefix}"

    @property
    def message(self) -> str | None:
        """The type of the messages in its objects; None of lines of JSON."""
        return None if self.format is None else self.format.message

    def holds(self, bucket: str, key: str) -> bool:
        """Whether an object lies under it."""
        return bucket == self.bucket and key.startswith(self.key_prefix)

    def to_document(self) -> dict[str, Any]:
        """As definitions store it; what says nothing is left out, as versions that know none of it read it, too."""
        document = {
            **vars(self),
            "columns": [column.to_document() for column in self.columns],
            "format": self.format and vars(self.format),
        }
        return {name: value for name, value in document.items() if name not in _SILENT_OF_STREAM or value}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> Stream:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
        what = f"the definition of a stream of {table}"
        check_known(cls, document, what)
        columns = tuple(read_part(StreamColumn, column, what) for column in document.get("columns", ()))
        stored = document.get("format")
        form = read_part(ProtobufFormat, stored, what) if stored else None
        patterns = {name: tuple(document.get(name, ())) for name in ("include", "exclude")}
        return cls(**{**document, "columns": columns, "format": form, **patterns})

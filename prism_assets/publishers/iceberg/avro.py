"""Avro files of manifests and manifest lists. Their schemas are resolved once a process.

PyIceberg parses and resolves the schema of every file it reads or writes. For a small file this takes longer than the
entries. All our manifests share one schema, because the schema depends only on the column `dt`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFile, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader
from pyiceberg.avro.writer import Writer
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

T = TypeVar("T", bound=Record)

_SCHEMA_KEY = "avro.schema"
_SCHEMAS_KEPT = 64
_BLOCK = 1_000


def read_manifests(files: FileIO, manifest_list: str) -> list[ManifestFile]:
    """Returns the manifests of a snapshot. Bypasses PyIceberg's cache, which grows with every table of a process."""
    with _AvroInput[ManifestFile](files, manifest_list, _reader_of_list) as found:
        return list(found)


def read_entries(files: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Returns the files listed by a manifest, without the files its snapshot removed."""
    with _AvroInput[ManifestEntry](files, manifest.manifest_path, _reader_of_manifest) as found:
        live = [entry for entry in found if entry.status is not ManifestEntryStatus.DELETED]
    return [_inherit_from_manifest(entry, manifest) for entry in live]


def read_bounded(files: FileIO, location: str) -> list[str]:
    """Returns the addresses of all files in a manifest with column bounds, removed files included.

    Returns an empty list for a manifest list, another kind of Avro file.
    """
    try:
        with _AvroInput[ManifestEntry](files, location, _reader_of_entries) as found:
            files_of = (entry.data_file for entry in found)
            return [item.file_path for item in files_of if item.lower_bounds or item.upper_bounds]
    except _NoManifestError:
        return []


class _NoManifestError(ValueError):
    """The Avro file is no manifest."""


class _AvroInput(AvroFile[T]):
    """Reads an Avro file with the cached reader of its schema."""

    def __init__(self, files: FileIO, location: str, reader_of: Any) -> None:
        super().__init__(files.new_input(location))
        self._reader_of = reader_of

    def __enter__(self) -> _AvroInput[T]:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = _header_reader().read(self.decoder)
        if _SCHEMA_KEY not in self.header.meta:
            raise ValueError(f"{self.input_file.location} does not say its Avro schema")
        self.reader = self._reader_of(self.header.meta[_SCHEMA_KEY])
        return self


@cache
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _reader_of_list(schema: str) -> Reader:
    types: dict[int, Any] = {-1: ManifestFile, 508: PartitionFieldSummary}
    return resolve_reader(_parsed(schema), MANIFEST_LIST_FILE_SCHEMAS[2], types, {517: ManifestContent})


def _reader_of_entries(schema: str) -> Reader:
    if all(field["name"] != "data_file" for field in json.loads(schema)["fields"]):
        raise _NoManifestError
    return _reader_of_manifest(schema)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _reader_of_manifest(schema: str) -> Reader:
    types: dict[int, Any] = {-1: ManifestEntry, 2: DataFile}
    enums: dict[int, Any] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    return resolve_reader(_parsed(schema), MANIFEST_ENTRY_SCHEMAS[2], types, enums)


def _parsed(schema: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(schema))


@dataclass(frozen=True)
class Layout:
    """How one kind of Avro file is written."""

    name: str
    schema: Schema
    """The schema of its records."""
    writer: Writer
    """The writer of its records."""
    text: str
    """The schema as JSON for the file's header."""

    @classmethod
    def of(cls, name: str, schema: Schema) -> Layout:
        """Returns the layout of a schema."""
        text = json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))
        return cls(name, schema, construct_writer(schema), text)


@cache
def list_layout() -> Layout:
    """Returns the layout of manifest lists."""
    return Layout.of("manifest_file", MANIFEST_LIST_FILE_SCHEMAS[2])


def manifest_layout(partition_type: StructType) -> Layout:
    """Returns the layout of manifests. Callers keep the result, because making it is slow."""
    data_file = data_file_with_partition(format_version=2, partition_type=partition_type)
    return Layout.of("manifest_entry", manifest_entry_schema_with_data_file(format_version=2, data_file=data_file))


class Output(AvroOutputFile[T]):
    """Writes many records per block. PyIceberg writes one per block, at twice the time and space."""

    def __init__(self, output_file: OutputFile, layout: Layout, metadata: dict[str, str]) -> None:
        super().__init__(output_file, Schema(), layout.name, metadata={**metadata, _SCHEMA_KEY: layout.text})
        self.file_schema, self.writer = layout.schema, layout.writer
        self._waiting: list[T] = []

    def _write_header(self) -> None:
        _header_writer().write(self.encoder, AvroFileHeader(MAGIC, self.metadata, self.sync_bytes))

    def write_block(self, objects: list[T]) -> None:
        """Takes one record. Writes a block once `_BLOCK` records wait."""
        self._waiting += objects
        if len(self._waiting) >= _BLOCK:
            self._flush()

    def __exit__(self, *error: Any) -> None:
        self._flush()
        super().__exit__(*error)

    def _flush(self) -> None:
        if self._waiting:
            super().write_block(self._waiting)
            self._waiting = []

    @property
    def bytes_so_far(self) -> int:
        """Bytes written, without the unfinished block."""
        return self.output_stream.tell()


@cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)

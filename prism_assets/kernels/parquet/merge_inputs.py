"""The inputs of a merge: their columns, their rows, and their size in memory before they are decoded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.field_ids import field_id
from prism_assets.kernels.nested_arrays import between_parts, conformed, parts_of, with_parts
from prism_assets.kernels.parquet.format import field_of, identity, is_copy, with_own_names, without_copies
from prism_assets.kernels.parquet.stored import open_file
from prism_assets.kernels.typed import Mask

Identity = int | str
"""The key of a column across objects, as returned by `identity`."""
_CODED = pa.dictionary(pa.int32(), pa.string())
_TEXT_ROW = 8
"""Bytes of a text beside its characters: an offset or a number in a dictionary, both doubled by a join."""
_PART = 24
"""The most bytes of a value in a nested column beside its characters: its own, and offsets of lists around it."""


@dataclass(frozen=True)
class Input:
    """One row group of an object to merge, fetched and not yet decoded. Copies of columns are left out."""

    data_file: DataFile
    body: pa.Buffer
    metadata: pq.FileMetaData
    row_group: int
    row_count: int
    """Rows that remain."""
    schema: pa.Schema
    erased: Mask | None = None
    """Mask of rows to leave out. None for no row."""

    @classmethod
    def opened(cls, data_file: DataFile, body: bytes) -> list[Input]:
        """Opens a fetched object by row groups. Raises InvariantBroken if its number of rows differs."""
        file = open_file(data_file, pa.BufferReader(buffer := pa.py_buffer(body)))
        counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        if sum(counts) != file.metadata.num_rows:
            raise InvariantBroken(f"{data_file.key}: its row groups have other rows than its footer says")
        schema = without_copies(file.schema_arrow)
        return [cls(data_file, buffer, file.metadata, group, count, schema) for group, count in enumerate(counts)]

    def without(self, erased: Mask | None) -> Input:
        """Returns the row group without the rows of a mask."""
        return self if erased is None else replace(self, erased=erased, row_count=int((~erased).sum()))

    def read(self, schema: pa.Schema, coded: Collection[Identity] = ()) -> pa.Table:
        """Decodes the remaining rows with the columns of a schema. Columns in `coded` keep their dictionaries."""
        wanted = {identity(field) for field in schema}
        columns = [field for field in self.schema if identity(field) in wanted]
        texts = [path for path, text in _texts(columns) if text in coded]
        rows = self.read_all([field.name for field in columns], texts)
        if self.erased is not None:
            rows = rows.filter(pa.array(~self.erased))
        return aligned(rows, schema, coded)

    def coded_columns(self) -> set[Identity]:
        """Returns the texts with a dictionary, columns and parts of columns. Empty dictionaries do not count."""
        names = {chunk.path_in_schema for chunk in self._chunks() if chunk.has_dictionary_page and not _is_null(chunk)}
        return {text for path, text in _texts(self.schema) if path in names}

    def decoded_bytes(self, schema: pa.Schema) -> int:
        """Returns the most bytes that the rows take in memory, with the columns of a schema and with dictionaries."""
        rows = self.metadata.row_group(self.row_group).num_rows
        widths = [_width(field.type) for field in schema if not pa.types.is_nested(field.type)]
        nested = {field.name for field in self.schema if pa.types.is_nested(field.type)}
        parts = sum(
            chunk.num_values * _PART for chunk in self._chunks() if chunk.path_in_schema.partition(".")[0] in nested
        )
        texts = sum(chunk.total_uncompressed_size for chunk in self._chunks() if chunk.physical_type == "BYTE_ARRAY")
        return int(rows * sum(widths) + parts + texts)

    def _chunks(self) -> list[pq.ColumnChunkMetaData]:
        group = self.metadata.row_group(self.row_group)
        return [group.column(number) for number in range(group.num_columns)]

    def divided(self) -> tuple[pa.Table, pa.Table]:
        """Decodes all rows. Returns the remaining ones and the erased ones."""
        rows = self.read_all()
        if self.erased is None:
            return rows, rows.slice(0, 0)
        return rows.filter(pa.array(~self.erased)), rows.filter(pa.array(self.erased))

    def read_all(self, columns: list[str] | None = None, coded: Sequence[str] = ()) -> pa.Table:
        """Decodes all rows with a separate reader. Columns in `coded` keep their dictionaries.

        A reader caches fetched data, and a second thread with the same reader could read freed memory.
        """
        file = pq.ParquetFile(pa.BufferReader(self.body), metadata=self.metadata, read_dictionary=coded)
        return file.read_row_group(self.row_group, self.schema.names if columns is None else columns, use_threads=False)


def _is_null(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is not None and statistics.null_count == chunk.num_values


def union_schema(schemas: Sequence[pa.Schema], table: TableDefinition) -> pa.Schema:
    """Returns all columns of the inputs by column id, with names and types of the table, or else of the last input.

    Nested columns have all parts of the inputs, and those of the table.
    """
    found: dict[int, list[pa.Field]] = {}
    for schema in dict.fromkeys(schemas):
        for field in schema:
            if not is_copy(field):
                found.setdefault(field_id(field), []).append(field)
    for column in table.columns:
        if column.column_id in found:
            found[column.column_id].append(field_of(column))
    return with_own_names(pa.schema([_united(found[number]) for number in sorted(found)]))


def _united(fields: Sequence[pa.Field]) -> pa.Field:
    """Returns the last of some fields with one id, with the parts of all."""
    last = fields[-1]
    if not pa.types.is_nested(last.type) or all(field.type.equals(last.type, check_metadata=True) for field in fields):
        return last
    parts: dict[int, list[pa.Field]] = {}
    for field in fields:
        for part in parts_of(field.type):
            parts.setdefault(field_id(part), []).append(part)
    numbers = sorted(parts) if pa.types.is_struct(last.type) else parts
    return last.with_type(with_parts(last.type, [_united(parts[number]) for number in numbers]))


def aligned(read: pa.Table, schema: pa.Schema, coded: Collection[Identity] = ()) -> pa.Table:
    """Returns the rows with the columns of a schema, matched by `identity`, parts by id. Missing ones are null.

    Columns of texts in `coded` have dictionaries.
    """
    wanted = pa.schema([_coded(field, coded) for field in schema]) if coded else schema
    if read.schema.equals(wanted, check_metadata=True):
        return read
    places = {identity(field): position for position, field in enumerate(read.schema)}
    columns = []
    for field in wanted:
        position = places.get(identity(field))
        if position is None:
            columns.append(pa.chunked_array([pa.nulls(read.num_rows, field.type)]))
        else:
            columns.append(conformed(read.column(position), field.type))
    return pa.Table.from_arrays(columns, schema=wanted)


def _coded(field: pa.Field, coded: Collection[Identity]) -> pa.Field:
    """Returns a field with dictionaries for texts in `coded`, also in its parts."""
    if pa.types.is_string(field.type):
        return field.with_type(_CODED) if identity(field) in coded else field
    parts = [_coded(part, coded) for part in parts_of(field.type)]
    return field.with_type(with_parts(field.type, parts)) if parts else field


def _texts(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, Identity]]:
    """Yields all texts, columns and parts of columns: the path in Parquet, and the identity."""
    for field in fields:
        if pa.types.is_string(field.type):
            yield above + field.name, identity(field)
        elif pa.types.is_nested(field.type):
            yield from _texts(parts_of(field.type), f"{above}{field.name}.{between_parts(field.type)}")


def _width(kind: pa.DataType) -> int:
    return _TEXT_ROW if pa.types.is_string(kind) else -(-int(kind.bit_width) // 8)

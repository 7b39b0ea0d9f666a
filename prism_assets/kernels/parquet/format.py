"""The lake's Parquet format: field ids, zstd, statistics, page index, and a fixed physical type per column.

Only timestamps vary. Their unit depends on the object's file format: microseconds or milliseconds. Iceberg's readers
compare literals with a file's statistics in microseconds, whatever the file declares (apache/iceberg 18173).

A renamed column is stored under both names. The copy under the former name comes after all columns. `field_of` marks
columns with a copy. Only the encoder writes copies, and code that reads rows skips them (`without_copies`). So each
copy is always written from the current column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.types import MICROSECONDS, MILLISECONDS
from prism_assets.domain.errors import InvariantBroken
from prism_assets.kernels.field_ids import COPY_IDS, field_id, field_with_id
from prism_assets.kernels.nested_arrays import leaf_types, leaves, parts_of, with_leaves, with_new_ids
from prism_assets.kernels.scratch import disk_errors, mapped, new_file
from prism_assets.kernels.type_rules import stored_type
from prism_assets.kernels.typed import Layout

SMALL_ROW_GROUP = 1 << 20
MERGED_ROW_GROUP = 1 << 17
"""The fewest rows of a row group in a merged object with enough rows. No row group has twice as many."""
SMALL_SAMPLE = 1 << 10
MERGED_SAMPLE = 1 << 14

# Level 3 takes 1.4 times as long. On logs with random keys it saves nothing.
_LEVEL = 1
_GLANCE = 256
HIDDEN = "_p_"
"""Name prefix of columns that readers of records do not see."""
_UNITS = {MILLISECONDS: "ms", MICROSECONDS: "us"}
_COPIED_AS = b"prism:copied_as"
"""Field metadata with the name of the column's copy. Stored objects do not contain it."""


def field_of(column: Column) -> pa.Field:
    """Returns the field of a column with its id, marked with the name of its copy if there is one."""
    field = field_with_id(column.stored_name, stored_type(column), column.column_id)
    if column.copied_as is None:
        return field
    return field.with_metadata({**field.metadata, _COPIED_AS: column.copied_as.encode()})


def identity(field: pa.Field) -> int | str:
    """Returns the key for matching columns of objects: the id of a table's column, or the name of a column `_p_*`.

    Names of table columns may change or be reused. Ids of `_p_*` columns derive from their names and may collide.
    """
    return str(field.name) if field.name.startswith(HIDDEN) else field_id(field)


def schema_of(layout: Layout) -> pa.Schema:
    """Returns the schema of a table's objects."""
    columns = zip(layout.columns, layout.rules, strict=True)
    return pa.schema([field_of(column).with_type(rules.arrow) for column, rules in columns])


def _copies(schema: pa.Schema) -> list[tuple[int, pa.Field]]:
    """Returns the copies in an object with this schema: the column's position and the copy's field."""

    def copied(number: int) -> int:
        return COPY_IDS[0] + number

    return [
        (place, field_with_id(name.decode(), with_new_ids(field.type, copied), copied(field_id(field))))
        for place, field in enumerate(schema)
        if (name := (field.metadata or {}).get(_COPIED_AS))
    ]


def is_copy(field: pa.Field) -> bool:
    """Whether a stored column is a copy under a former name."""
    return field_id(field) in COPY_IDS


def without_copies(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of a stored object without copies."""
    return pa.schema([field for field in schema if not is_copy(field)])


def with_own_names(schema: pa.Schema) -> pa.Schema:
    """Returns the schema. Raises InvariantBroken for duplicate names, because readers would refuse the whole object."""
    if twice := sorted(_doubled(schema)):
        raise InvariantBroken(f"two columns of one object would be called {', '.join(twice)}; nothing was written")
    return schema


def _doubled(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yields the paths of columns, and of fields of structs, that have a name of another one."""
    fields = list(fields)
    yield from (above + name for name, times in Counter(field.name for field in fields).items() if times > 1)
    for field in fields:
        if pa.types.is_nested(field.type):
            yield from _doubled(parts_of(field.type), f"{above}{field.name}.")


def in_format(schema: pa.Schema, file_format: int) -> pa.Schema:
    """Returns a schema in a file format's timestamp unit. Kernels work in milliseconds."""
    instant = pa.timestamp(_UNITS[file_format], "UTC")

    def stored(kind: pa.DataType) -> pa.DataType:
        return instant if pa.types.is_timestamp(kind) else kind

    return pa.schema([field.with_type(with_leaves(field.type, stored)) for field in schema])


def format_of(schema: pa.Schema) -> int | None:
    """Returns the file format of a stored object. None without timestamps, because then it is valid in any format."""
    kinds = (kind for field in schema for kind in leaf_types(field.type))
    units = {kind.unit for kind in kinds if pa.types.is_timestamp(kind)}
    return next((file_format for file_format, unit in _UNITS.items() if unit in units), None)


class Encoder:
    """Encodes one Parquet object in memory or on disk. Equal rows in equal portions give equal bytes."""

    def __init__(
        self, schema: pa.Schema, dictionaries: Sequence[str], file_format: int, *, on_disk: bool = False
    ) -> None:
        copies = _copies(schema)
        self._copied = [place for place, _ in copies]
        self._schema = in_format(with_own_names(pa.schema([*schema, *(field for _, field in copies)])), file_format)
        copied = [
            field.name + path.removeprefix(schema[place].name)
            for place, field in copies
            for path in dictionaries
            if path.split(".")[0] == schema[place].name
        ]
        self._file = new_file() if on_disk else None
        self._sink = pa.PythonFile(self._file, "w") if on_disk else pa.BufferOutputStream()
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=[*dictionaries, *copied],
            write_statistics=True,
            write_page_index=True,
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def write(self, table: pa.Table) -> None:
        """Writes rows as one row group."""
        with disk_errors() if self._file else nullcontext():
            if self._copied:
                columns = [*table.columns, *map(table.column, self._copied)]
                table = pa.Table.from_arrays(columns, names=self._schema.names)
            self._writer.write_table(table.cast(self._schema), row_group_size=max(1, table.num_rows))

    def finish(self) -> pa.Buffer:
        """Returns the whole object."""
        with disk_errors() if self._file else nullcontext():
            self._writer.close()
        return mapped(self._file) if self._file else self._sink.getvalue()

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer with the statistics of all row groups. Only after `finish`."""
        (metadata,) = self._metadata
        return metadata


def dictionary_columns(table: pa.Table, sample: int) -> list[str]:
    """Returns the leaves worth a dictionary by their paths, judged by the first `sample` rows.

    A dictionary saves bytes and time once most values occur at least twice.
    """
    return [
        path
        for name, column in zip(table.column_names, table.columns, strict=True)
        for path, leaf in _leaves(name, column.slice(0, sample))
        if _repeats(leaf)
    ]


def _leaves(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray | pa.Array]]:
    if pa.types.is_nested(column.type):
        return leaves(name, column.combine_chunks())
    return iter([(name, column)])


def _repeats(column: pa.ChunkedArray | pa.Array) -> bool:
    if pa.types.is_boolean(column.type):
        return False
    # A few rows are enough to recognize keys with distinct values, the majority of columns.
    first = column.slice(0, _GLANCE)
    if len(first) < len(column) and _distinct(first) == len(first):
        return False
    return _distinct(column) * 2 <= len(column)


def _distinct(column: pa.ChunkedArray) -> int:
    """Returns `pc.count_distinct` in half of the time."""
    return len(column.unique()) - bool(column.null_count)

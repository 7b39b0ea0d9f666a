"""Parquet as the lake stores it: field ids, zstd, statistics, page index, and one physical type per column for ever.

But for timestamps, whose unit is that of the object's file format: microseconds, as Iceberg's readers compare literals
with the statistics of a file in microseconds whatever the file says (apache/iceberg 18173), or milliseconds.

A renamed column is stored under both names, the former one as a copy behind all columns. Which columns have one is told
by the field that `field_of` makes; the encoder alone writes copies, whatever reads rows leaves them out
(`without_copies`), and so each is made anew of its column, as it is by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prism_assets.domain.columns import Column
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.types import MICROSECONDS, MILLISECONDS
from prism_assets.kernels.fingerprint import COPY_IDS, FIELD_ID
from prism_assets.kernels.scratch import mapped, new_file, telling
from prism_assets.kernels.type_rules import stored_type
from prism_assets.kernels.typed import Layout

SMALL_ROW_GROUP = 1 << 20
MERGED_ROW_GROUP = 1 << 17
"""The fewest rows of a row group of a merged object that has as many; none has twice as many."""
SMALL_SAMPLE = 1 << 10
MERGED_SAMPLE = 1 << 14

# Level 3 takes 1.4 times as long and, on logs with random keys, saves nothing.
_LEVEL = 1
_GLANCE = 256
HIDDEN = "_p_"
"""How the names of all columns begin that readers of records do not see."""
_UNITS = {MILLISECONDS: "ms", MICROSECONDS: "us"}
_COPIED_AS = b"prism:copied_as"
"""Where a field says under which name its column is copied. No object says it."""


def field_of(column: Column) -> pa.Field:
    """The field of a column, with its id, and with the name of its copy if there is to be one."""
    field = field_with_id(column.stored_name, stored_type(column), column.column_id)
    if column.copied_as is None:
        return field
    return field.with_metadata({**field.metadata, _COPIED_AS: column.copied_as.encode()})


def field_with_id(name: str, kind: pa.DataType, column_id: int) -> pa.Field:
    """A field that may be null, with its id."""
    return pa.field(name, kind, metadata={FIELD_ID: str(column_id).encode()})


def column_id(field: pa.Field) -> int:
    """The id of a stored column."""
    return int((field.metadata or {})[FIELD_ID])


def has_id(field: pa.Field) -> bool:
    """Whether a field is a column of objects, and none that a kernel computed for itself."""
    return FIELD_ID in (field.metadata or {})


def identity(field: pa.Field) -> int | str:
    """What tells the columns of objects: the ids of those of the table, the names of columns `_p_*`.

    Names of the former may change, or be given again; ids of the latter are made of their names, and may meet.
    """
    return str(field.name) if field.name.startswith(HIDDEN) else column_id(field)


def schema_of(layout: Layout) -> pa.Schema:
    """The schema of the objects of a table."""
    columns = zip(layout.columns, layout.rules, strict=True)
    return pa.schema([field_of(column).with_type(rules.arrow) for column, rules in columns])


def _copies(schema: pa.Schema) -> list[tuple[int, pa.Field]]:
    """The copies that an object with this schema has: the place of the column, and the field."""
    return [
        (place, field_with_id(name.decode(), field.type, COPY_IDS[0] + column_id(field)))
        for place, field in enumerate(schema)
        if (name := (field.metadata or {}).get(_COPIED_AS))
    ]


def is_copy(field: pa.Field) -> bool:
    """Whether a stored column is a copy of another one, under its former name."""
    return column_id(field) in COPY_IDS


def without_copies(schema: pa.Schema) -> pa.Schema:
    """The columns of a stored object that are columns of its table, or were."""
    return pa.schema([field for field in schema if not is_copy(field)])


def with_own_names(schema: pa.Schema) -> pa.Schema:
    """The same schema; InvariantBroken if two columns have one name: readers by id would refuse the whole object."""
    twice = sorted(name for name, times in Counter(schema.names).items() if times > 1)
    if twice:
        raise InvariantBroken(f"two columns of one object would be called {', '.join(twice)}; nothing was written")
    return schema


def in_format(schema: pa.Schema, file_format: int) -> pa.Schema:
    """The schema of an object of a file format: kernels work with timestamps in milliseconds."""
    kind = pa.timestamp(_UNITS[file_format], "UTC")
    return pa.schema([field.with_type(kind) if pa.types.is_timestamp(field.type) else field for field in schema])


def format_of(schema: pa.Schema) -> int | None:
    """The file format of a stored object; None if it has no timestamps, and so is the same in any."""
    units = {field.type.unit for field in schema if pa.types.is_timestamp(field.type)}
    return next((file_format for file_format, unit in _UNITS.items() if unit in units), None)


class Encoder:
    """Encodes one Parquet object, in memory or on disk. Equal rows in equal portions give equal bytes."""

    def __init__(
        self, schema: pa.Schema, dictionaries: Sequence[str], file_format: int, *, on_disk: bool = False
    ) -> None:
        copies = _copies(schema)
        self._copied = [place for place, _ in copies]
        self._schema = in_format(with_own_names(pa.schema([*schema, *(field for _, field in copies)])), file_format)
        copied = [field.name for place, field in copies if schema[place].name in dictionaries]
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
        with telling() if self._file else nullcontext():
            if self._copied:
                columns = [*table.columns, *map(table.column, self._copied)]
                table = pa.Table.from_arrays(columns, names=self._schema.names)
            self._writer.write_table(table.cast(self._schema), row_group_size=max(1, table.num_rows))

    def finish(self) -> pa.Buffer:
        """The whole object."""
        with telling() if self._file else nullcontext():
            self._writer.close()
        return mapped(self._file) if self._file else self._sink.getvalue()

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer of the object, with the statistics of its row groups; only after `finish`."""
        (metadata,) = self._metadata
        return metadata


def dictionary_columns(table: pa.Table, sample: int) -> list[str]:
    """The columns in which values repeat so often, in the first `sample` rows, that a dictionary pays.

    It pays in bytes and in time from the second occurrence of most values on.
    """
    return [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if _repeats(column.slice(0, sample))
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(column.type):
        return False
    # A few rows tell apart keys, of which each is another one: most columns that need no closer look.
    first = column.slice(0, _GLANCE)
    if len(first) < len(column) and pc.count_distinct(first).as_py() == len(first):
        return False
    return bool(pc.count_distinct(column).as_py() * 2 <= len(column))

"""Statements on a database of the published design. They only read.

The folder db/ of https://github.com/cookpad/prism, and the statements in shared/, have the names of tables and columns.
Tables named strload_* belong to the loader of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.adopted import AdoptedColumn, AdoptedStream, AdoptedTable

_NEEDED = ("prism_tables", "prism_partitions", "prism_small_objects", "prism_merge_ranges", "prism_staging_objects")
_OF_LOADER = ("prism_tables_strload_streams", "strload_tables", "strload_streams", "strload_columns")


def missing_tables(connection: Connection) -> list[str]:
    """Returns the missing tables of the design and of its loader."""
    found = set(connection.execute(text(_TABLES), {"names": [*_NEEDED, *_OF_LOADER]}).scalars())
    return [name for name in (*_NEEDED, *_OF_LOADER) if name not in found]


_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_name = ANY(:names) AND table_schema = ANY(current_schemas(false))
"""


def load_tables(connection: Connection) -> list[AdoptedTable]:
    """Returns all tables by name, each with the columns of its first initialized stream."""
    rows = connection.execute(text(_ADOPTED)).all()
    return [
        AdoptedTable(
            table_id=row.prism_table_id,
            name=TableName(row.schema_name, row.table_name, row.physical_schema_name, row.physical_table_name),
            merge_interval=row.merge_interval,
            streams=_streams(connection, row.prism_table_id),
            columns=_columns(connection, row.prism_table_id),
        )
        for row in rows
    ]


_ADOPTED = """
SELECT prism_table_id, schema_name, table_name, physical_schema_name, physical_table_name, merge_interval
FROM prism_tables ORDER BY schema_name, table_name
"""


def _streams(connection: Connection, table_id: int) -> tuple[AdoptedStream, ...]:
    rows = connection.execute(text(_STREAMS), {"table": table_id})
    return tuple(AdoptedStream(**row._mapping) for row in rows)


_STREAMS = """
SELECT s.stream_name AS name, t.s3_bucket AS bucket, t.s3_prefix AS prefix, s.disabled, s.discard
FROM prism_tables_strload_streams m JOIN strload_streams s USING (stream_id)
JOIN strload_tables t ON t.table_id = s.table_id
WHERE m.prism_table_id = :table ORDER BY s.stream_id
"""


def _columns(connection: Connection, table_id: int) -> tuple[AdoptedColumn, ...]:
    rows = connection.execute(text(_COLUMNS), {"table": table_id})
    return tuple(AdoptedColumn(**row._mapping) for row in rows)


_COLUMNS = """
SELECT c.column_name AS name, c.source_name, c.value_type AS type, c.value_length AS length, c.source_offset,
    c.zone_offset, coalesce(c.partition_source, false) AS is_partition_source
FROM strload_columns c
WHERE c.stream_id = (SELECT min(s.stream_id) FROM prism_tables_strload_streams m JOIN strload_streams s USING (stream_id)
    WHERE m.prism_table_id = :table AND s.initialized)
ORDER BY c.column_id
"""

# Objects below the folders of a table's streams. The design records no unreadable lines, so objects count as a whole.
WITHOUT_ROWS = """
SELECT m.prism_table_id AS table_id, CAST(NULL AS date) AS day, count(*) AS found,
    format('s3://%s/%s', min(o.bucket_name), min(o.object_key)) AS example
FROM prism_tables_strload_streams m JOIN strload_streams s USING (stream_id)
JOIN strload_tables t ON t.table_id = s.table_id
JOIN prism_staging_objects o ON o.bucket_name = t.s3_bucket
    AND starts_with(o.object_key, regexp_replace(rtrim(t.s3_prefix, '/'), '/queue$', '') || '/')
WHERE m.prism_table_id = ANY(:tables) AND NOT s.discard AND NOT EXISTS (SELECT 1 FROM prism_small_objects b
    WHERE b.prism_staging_object_id = o.prism_staging_object_id)
GROUP BY m.prism_table_id ORDER BY 1
"""


def count_unknown(connection: Connection) -> int:
    """Counts the objects without a stream."""
    if connection.execute(text("SELECT to_regclass('prism_unknown_staging_objects') IS NULL")).scalar_one():
        return 0
    return int(connection.execute(text("SELECT count(*) FROM prism_unknown_staging_objects")).scalar_one())


@dataclass(frozen=True, kw_only=True)
class AdoptedDay:
    """A day of a table."""

    partition_id: int
    date: date
    switched: bool
    version: int
    """The manifest that readers see: the upper bound of its last merged object."""


def load_days(connection: Connection, table_id: int) -> list[AdoptedDay]:
    """Returns the days of a table in order."""
    rows = connection.execute(text(_DAYS), {"table": table_id})
    return [AdoptedDay(**row._mapping) for row in rows]


_DAYS = """
SELECT prism_partition_id AS partition_id, partition_date AS date, switched, current_manifest_version AS version
FROM prism_partitions WHERE prism_table_id = :table ORDER BY partition_date
"""


@dataclass(frozen=True, kw_only=True)
class AdoptedRange:
    """A merged object, by its bounds."""

    lower_bound: int
    upper_bound: int
    content_length: int


@dataclass(frozen=True, kw_only=True)
class AdoptedObject:
    """A small object."""

    object_id: int
    staging_object_id: int
    """The number in the key."""
    delayed: bool
    content_length: int


def load_ranges(connection: Connection, partition_id: int) -> Sequence[AdoptedRange]:
    """Returns the merged objects of a day in order, without the sentinel."""
    rows = connection.execute(text(_RANGES), {"id": partition_id})
    return [AdoptedRange(**row._mapping) for row in rows]


_RANGES = """
SELECT lower_bound, upper_bound, content_length FROM prism_merge_ranges
WHERE prism_partition_id = :id AND lower_bound IS NOT NULL ORDER BY upper_bound
"""


def load_small_objects(connection: Connection, partition_id: int, above: int) -> Sequence[AdoptedObject]:
    """Returns the small objects of a day above an id, in order."""
    rows = connection.execute(text(_SMALL), {"id": partition_id, "above": above})
    return [AdoptedObject(**row._mapping) for row in rows]


_SMALL = """
SELECT prism_small_object_id AS object_id, prism_staging_object_id AS staging_object_id, delayed, content_length
FROM prism_small_objects WHERE prism_partition_id = :id AND prism_small_object_id > :above
ORDER BY prism_small_object_id
"""

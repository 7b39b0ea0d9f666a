"""Statements on a database of the published design. They only read.

The folder db/ of https://github.com/cookpad/prism, and the statements in shared/, have the names of tables and columns.
Tables named strload_* belong to the loader of the design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.adopted import AdoptedColumn, AdoptedStream, AdoptedTable

_NEEDED: Mapping[str, Sequence[str]] = {
    "prism_tables": (
        "prism_table_id",
        "schema_name",
        "table_name",
        "physical_schema_name",
        "physical_table_name",
        "merge_interval",
    ),
    "prism_partitions": (
        "prism_partition_id",
        "prism_table_id",
        "partition_date",
        "current_manifest_version",
        "desired_manifest_version",
        "last_live_object_id",
        "switched",
    ),
    "prism_small_objects": (
        "prism_small_object_id",
        "prism_staging_object_id",
        "prism_partition_id",
        "delayed",
        "content_length",
        "upload_start_time",
    ),
    "prism_merge_ranges": ("prism_partition_id", "lower_bound", "upper_bound", "content_length", "update_time"),
    "prism_staging_objects": ("prism_staging_object_id", "bucket_name", "object_key"),
    "prism_merge_jobs": ("prism_partition_id",),
    "prism_tables_strload_streams": ("prism_table_id", "stream_id"),
    "strload_tables": ("table_id", "s3_bucket", "s3_prefix"),
    "strload_streams": ("stream_id", "table_id", "stream_name", "disabled", "discard", "initialized"),
    "strload_columns": (
        "column_id",
        "stream_id",
        "column_name",
        "source_name",
        "value_type",
        "value_length",
        "source_offset",
        "zone_offset",
        "partition_source",
    ),
}
"""The tables of the design and of its loader, with the columns that statements here and of audits read."""


def missing_parts(connection: Connection) -> list[str]:
    """Returns the tables that the database lacks, and then the columns, as `table.column`."""
    found: dict[str, set[str]] = {}
    for row in connection.execute(text(_COLUMNS_FOUND), {"names": list(_NEEDED)}):
        found.setdefault(row.table_name, set()).add(row.column_name)
    columns = [f"{table}.{name}" for table in found for name in _NEEDED[table] if name not in found[table]]
    return [*(table for table in _NEEDED if table not in found), *columns]


_COLUMNS_FOUND = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_name = ANY(:names) AND table_schema = ANY(current_schemas(false))
"""


def load_tables(connection: Connection) -> list[AdoptedTable]:
    """Returns all tables by name, each with the columns of its first initialized stream.

    Raises WrongUse for a NULL in a required column of a table, stream or column.
    """
    rows = connection.execute(text(_ADOPTED)).all()
    for row in rows:
        _refuse_nulls(row, "prism_tables", ("schema_name", "table_name", "merge_interval"))
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
    rows = connection.execute(text(_STREAMS), {"table": table_id}).all()
    for row in rows:
        _refuse_nulls(row, f"streams of prism_table_id {table_id}", ("name", "bucket", "prefix"))
    return tuple(AdoptedStream(**row._mapping) for row in rows)


_STREAMS = """
SELECT s.stream_name AS name, t.s3_bucket AS bucket, t.s3_prefix AS prefix, coalesce(s.disabled, false) AS disabled,
    coalesce(s.discard, false) AS discard
FROM prism_tables_strload_streams m JOIN strload_streams s USING (stream_id)
JOIN strload_tables t ON t.table_id = s.table_id
WHERE m.prism_table_id = :table ORDER BY s.stream_id
"""


def _columns(connection: Connection, table_id: int) -> tuple[AdoptedColumn, ...]:
    rows = connection.execute(text(_COLUMNS), {"table": table_id}).all()
    for row in rows:
        _refuse_nulls(row, f"columns of prism_table_id {table_id}", ("name", "type"))
    return tuple(AdoptedColumn(**row._mapping) for row in rows)


def _refuse_nulls(row: Row[Any], where: str, names: Sequence[str]) -> None:
    for name in names:
        if row._mapping[name] is None:
            raise WrongUse(f"{where}: {name} is NULL in the row ({', '.join(map(str, row))}): complete or delete it")


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
WHERE m.prism_table_id = ANY(:tables) AND s.discard IS NOT TRUE AND NOT EXISTS (SELECT 1 FROM prism_small_objects b
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
    """Returns the days of a table in order. Leaves out rows without a date, because no key can name their day."""
    rows = connection.execute(text(_DAYS), {"table": table_id})
    return [AdoptedDay(**row._mapping) for row in rows]


_DAYS = """
SELECT prism_partition_id AS partition_id, partition_date AS date, coalesce(switched, false) AS switched,
    coalesce(current_manifest_version, -1) AS version
FROM prism_partitions WHERE prism_table_id = :table AND partition_date IS NOT NULL ORDER BY partition_date
"""


@dataclass(frozen=True, kw_only=True)
class AdoptedRange:
    """A merged object, by its bounds."""

    lower_bound: int
    upper_bound: int
    content_length: int | None


@dataclass(frozen=True, kw_only=True)
class AdoptedObject:
    """A small object."""

    staging_object_id: int
    """The number in the key."""
    delayed: bool
    content_length: int | None


def load_ranges(connection: Connection, partition_id: int) -> Sequence[AdoptedRange]:
    """Returns the merged objects of a day in order, without the sentinel."""
    rows = connection.execute(text(_RANGES), {"id": partition_id})
    return [AdoptedRange(**row._mapping) for row in rows]


_RANGES = """
SELECT lower_bound, upper_bound, content_length FROM prism_merge_ranges
WHERE prism_partition_id = :id AND lower_bound IS NOT NULL AND upper_bound IS NOT NULL ORDER BY upper_bound
"""


def split_small_objects(connection: Connection, partition_id: int, above: int, size: int) -> list[int]:
    """Divides the small objects of a day above an id into parts of `size`. Returns the last staging object of each."""
    values = {"id": partition_id, "above": above, "size": size}
    return list(connection.execute(text(_SPLIT), values).scalars())


_SPLIT = """
SELECT number FROM (
    SELECT prism_staging_object_id AS number, row_number() OVER (ORDER BY prism_staging_object_id) AS place
    FROM prism_small_objects WHERE prism_partition_id = :id AND prism_small_object_id > :above
        AND prism_staging_object_id IS NOT NULL) q
WHERE place % :size = 0 ORDER BY number
"""


def load_small_objects(
    connection: Connection, partition_id: int, above: int, after: int, until: int
) -> Sequence[AdoptedObject]:
    """Returns the small objects of a day above an id, of the staging objects with after < number <= until."""
    values = {"id": partition_id, "above": above, "after": after, "until": until}
    return [AdoptedObject(**row._mapping) for row in connection.execute(text(_SMALL), values)]


_SMALL = """
SELECT prism_staging_object_id AS staging_object_id, coalesce(delayed, false) AS delayed, content_length
FROM prism_small_objects WHERE prism_partition_id = :id AND prism_small_object_id > :above
    AND prism_staging_object_id > :after AND prism_staging_object_id <= :until
"""

# Rows with a NULL in a column that names an object.
WITHOUT_NAME = """
SELECT table_id, day, sum(found) AS found, min(example) AS example FROM (
    SELECT prism_table_id AS table_id, partition_date AS day, count(*) AS found,
        format('prism_partitions %s has no date', min(prism_partition_id)) AS example
    FROM prism_partitions WHERE partition_date IS NULL GROUP BY 1, 2
    UNION ALL
    SELECT p.prism_table_id, p.partition_date, count(*),
        format('prism_small_objects %s has no staging object', min(s.prism_small_object_id))
    FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
    WHERE s.prism_staging_object_id IS NULL GROUP BY 1, 2
    UNION ALL
    SELECT p.prism_table_id, p.partition_date, count(*), 'a range has no upper bound'
    FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
    WHERE r.upper_bound IS NULL GROUP BY 1, 2) q
WHERE table_id = ANY(:tables) GROUP BY table_id, day ORDER BY 1, 2
"""

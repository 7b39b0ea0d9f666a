"""Statements on prism_tables, prism_table_definitions, prism_table_columns and prism_streams."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, text

from prism_assets.domain.column_changes import HeldName
from prism_assets.domain.column_transitions import FLIP_LIMIT
from prism_assets.domain.columns import Column
from prism_assets.domain.names import TableName
from prism_assets.domain.streams import Stream
from prism_assets.domain.tables import Definitions, TableDefinition
from prism_assets.metadata.claims import NEVER_CLAIMED


@dataclass(frozen=True)
class KnownStream:
    """A stream with its ids; `removed` if no table file names it any more."""

    stream_id: int
    table_id: int
    stream: Stream
    removed: bool = False


def load_definitions(connection: Connection) -> list[TableDefinition]:
    """The definitions in force, by name. Reads without locks."""
    rows = connection.execute(text(_IN_FORCE))
    return [_parsed(row.definition) for row in rows]


_IN_FORCE = """
SELECT CAST(d.definition AS text) AS definition FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
ORDER BY t.schema_name, t.table_name
"""


def load_versions(connection: Connection, wanted: Collection[tuple[int, int]]) -> Definitions:
    """The definitions of the given (table id, version) pairs. Reads without locks: versions never change."""
    rows = connection.execute(
        text(_VERSIONS),
        {"tables": [table for table, _ in wanted], "versions": [version for _, version in wanted]},
    )
    return {(row.prism_table_id, row.version): _parsed(row.definition) for row in rows}


@lru_cache(maxsize=1_000)
def _parsed(document: str) -> TableDefinition:
    """A definition as it is stored. Ticks load those of all tables again and again, and get the same ones."""
    return TableDefinition.from_document(json.loads(document))


_VERSIONS = """
SELECT prism_table_id, version, CAST(definition AS text) AS definition FROM prism_table_definitions
JOIN unnest(CAST(:tables AS bigint[]), CAST(:versions AS integer[])) AS wanted (table_id, version_)
    ON prism_table_id = wanted.table_id AND version = wanted.version_
"""


def load_naming_versions(
    connection: Connection, wanted: Collection[tuple[int, int, int]]
) -> dict[tuple[int, int, int], int]:
    """The last definition before a version that names a stream, by (table id, stream id, version), where one does.

    Reads without locks: versions never change, nor where a stream is.
    """
    ordered = sorted(wanted)
    values = {name: [item[place] for item in ordered] for place, name in enumerate(("tables", "streams", "versions"))}
    rows = connection.execute(text(_NAMING), values)
    return {(row.table_id, row.stream_id, row.version): row.named for row in rows}


_NAMING = """
SELECT w.table_id, w.stream_id, w.version, max(d.version) AS named
FROM unnest(CAST(:tables AS bigint[]), CAST(:streams AS bigint[]), CAST(:versions AS integer[]))
    AS w (table_id, stream_id, version)
JOIN prism_streams s ON s.prism_stream_id = w.stream_id
JOIN prism_table_definitions d ON d.prism_table_id = w.table_id AND d.version < w.version
    AND d.definition -> 'streams' @> jsonb_build_array(
        jsonb_build_object('bucket', s.bucket_name, 'key_prefix', s.key_prefix))
GROUP BY 1, 2, 3
"""


def load_current(connection: Connection, table: TableDefinition) -> TableDefinition:
    """The definition of a table that is in force now, which is mostly the given one. Reads without locks."""
    version = int(connection.execute(text(_CURRENT_VERSION), {"table": table.table_id}).scalar_one())
    if version == table.version:
        return table
    return load_versions(connection, [(table.table_id, version)])[table.table_id, version]


_CURRENT_VERSION = "SELECT definition_version FROM prism_tables WHERE prism_table_id = :table"


def load_join(connection: Connection, table_id: int) -> tuple[TableDefinition, TableDefinition]:
    """The records of a join table and the log of its changes, as they are in force. Reads without locks."""
    found = {table.table_id: table for table in load_definitions(connection)}
    log = connection.execute(text(_LOG_OF), {"table": table_id}).scalar_one()
    return found[table_id], found[log]


_LOG_OF = "SELECT prism_table_id FROM prism_tables WHERE changes_of = :table"


def insert_table(connection: Connection, table: TableDefinition, now: datetime, changes_of: int | None = None) -> int:
    """Creates the row of a table, which Glue is to show, and which may log the changes of another; returns its id.

    Locks no other row.
    """
    table_id = int(
        connection.execute(
            text(_INSERT_TABLE),
            {
                "schema": table.name.schema,
                "table": table.name.table,
                "now": now,
                "interval": table.merge.interval,
                "physical_schema": table.name.physical_schema,
                "physical_table": table.name.physical_table,
                "changes_of": changes_of,
            },
        ).scalar_one()
    )
    connection.execute(text(_SHOW_TABLE), {"table": table_id})
    return table_id


_INSERT_TABLE = """
INSERT INTO prism_tables
    (schema_name, table_name, create_time, merge_interval, physical_schema_name, physical_table_name, changes_of)
VALUES (:schema, :table, :now, :interval, :physical_schema, :physical_table, :changes_of)
RETURNING prism_table_id
"""
_SHOW_TABLE = "INSERT INTO prism_table_publications (prism_table_id, publisher) VALUES (:table, 'glue')"


@dataclass(frozen=True)
class FormerName:
    """A name that a table had before, and that Glue still shows: until `end_time`, and the catalog run behind it.

    `removed_from` are the publishers that have forgotten it; it is told as long as there is another one.
    """

    table_id: int
    name: TableName
    end_time: datetime
    has_ended: bool
    removed_from: tuple[str, ...] = ()


def load_former_names(connection: Connection) -> list[FormerName]:
    """The names of before that the catalog is to show, or to forget, by table. Reads without locks."""
    return [
        FormerName(
            row.prism_table_id,
            TableName(row.schema_name, row.table_name, row.physical_schema, row.physical_table),
            row.end_time,
            row.has_ended,
            tuple(row.removed_from),
        )
        for row in connection.execute(text(_FORMER_NAMES))
    ]


_FORMER_NAMES = """
SELECT f.prism_table_id, f.schema_name, f.table_name, f.end_time, f.end_time <= clock_timestamp() AS has_ended,
    ARRAY(SELECT jsonb_array_elements_text(coalesce(to_jsonb(f) -> 'removed_from', '[]'))) AS removed_from,
    coalesce(t.physical_schema_name, t.schema_name) AS physical_schema,
    coalesce(t.physical_table_name, t.table_name) AS physical_table
FROM prism_former_names f JOIN prism_tables t USING (prism_table_id)
WHERE f.remove_time IS NULL ORDER BY f.prism_table_id, f.schema_name, f.table_name
"""


def with_former_names(connection: Connection, definitions: Sequence[TableDefinition]) -> list[TableDefinition]:
    """Definitions with the names of before that the catalog is to show."""
    found: dict[int, list[TableName]] = {}
    for item in load_former_names(connection):
        if not item.has_ended:
            found.setdefault(item.table_id, []).append(item.name)
    return [replace(table, former=tuple(found.get(table.table_id, ()))) for table in definitions]


def rename_table(connection: Connection, table_id: int, before: TableName, name: TableName, grace_days: int) -> None:
    """Gives a table another name, and has the catalog show the one of before for so many days. Locks the table's row."""
    values = {
        "table": table_id,
        "schema": name.schema,
        "name": name.table,
        "physical_schema": name.physical_schema,
        "physical_table": name.physical_table,
        "former_schema": before.schema,
        "former_name": before.table,
        "days": grace_days,
    }
    for statement in (_RENAME, _FORGET_PRESENT, _KEEP_FORMER):
        connection.execute(text(statement), values)


_RENAME = """
UPDATE prism_tables SET schema_name = :schema, table_name = :name, physical_schema_name = :physical_schema,
    physical_table_name = :physical_table
WHERE prism_table_id = :table
"""
_FORGET_PRESENT = """
DELETE FROM prism_former_names WHERE prism_table_id = :table AND schema_name = :schema AND table_name = :name
"""
_KEEP_FORMER = """
INSERT INTO prism_former_names (prism_table_id, schema_name, table_name, end_time)
VALUES (:table, :former_schema, :former_name, clock_timestamp() + make_interval(days => :days))
ON CONFLICT (prism_table_id, schema_name, table_name) DO UPDATE SET end_time = EXCLUDED.end_time, remove_time = NULL,
    removed_from = '{}'
"""


def record_removed_name(connection: Connection, table_id: int, name: TableName, publisher: str) -> None:
    """Records that a publisher shows a name of before no more. Locks its row."""
    values = {"table": table_id, "schema": name.schema, "name": name.table, "publisher": publisher}
    connection.execute(text(_REMOVED), values)
    end_removed_names(connection, table_id)


_REMOVED = """
UPDATE prism_former_names SET removed_from = array_append(removed_from, :publisher)
WHERE prism_table_id = :table AND schema_name = :schema AND table_name = :name AND remove_time IS NULL
    AND NOT :publisher = ANY(removed_from)
"""


def end_removed_names(connection: Connection, table_id: int) -> None:
    """Sets free the names of before of a table that none of its publishers shows any more. Locks their rows."""
    connection.execute(text(_END_REMOVED), {"table": table_id})


_END_REMOVED = """
UPDATE prism_former_names f SET remove_time = clock_timestamp()
WHERE f.prism_table_id = :table AND f.remove_time IS NULL AND f.removed_from <> '{}' AND NOT EXISTS (
    SELECT 1 FROM prism_table_publications t
    WHERE t.prism_table_id = f.prism_table_id AND NOT t.publisher = ANY(f.removed_from))
"""


def save_version(connection: Connection, table: TableDefinition, now: datetime) -> None:
    """Stores a definition under its version and puts it in force. Locks the table's row.

    While the table flips no batch begins with an object of it: for twice FLIP_LIMIT at most, should no catalog run end
    it.
    """
    connection.execute(
        text(_INSERT_VERSION),
        {"table": table.table_id, "version": table.version, "definition": table.to_json(), "now": now},
    )
    connection.execute(
        text(_PUT_IN_FORCE),
        {
            "table": table.table_id,
            "version": table.version,
            "interval": table.merge.interval,
            "flipping": table.is_flipping,
            "seconds": 2 * FLIP_LIMIT.total_seconds(),
        },
    )


_INSERT_VERSION = """
INSERT INTO prism_table_definitions (prism_table_id, version, definition, create_time)
VALUES (:table, :version, CAST(:definition AS jsonb), :now)
"""
_PUT_IN_FORCE = """
UPDATE prism_tables SET definition_version = :version, merge_interval = :interval, intake_paused_until = CASE WHEN :flipping
    THEN coalesce(intake_paused_until, clock_timestamp() + make_interval(secs => :seconds)) END
WHERE prism_table_id = :table
"""


def save_columns(connection: Connection, table: TableDefinition, now: datetime) -> None:
    """Inserts new columns, updates the changeable facts of known ones, and notes which are gone. Ids are never reused.

    Locks the rows of the columns.
    """
    connection.execute(
        text(_SAVE_COLUMN),
        [_column_row(table, column, position, now) for position, column in enumerate(table.columns)],
    )
    kept = [column.column_id for column in table.columns]
    connection.execute(text(_DROP_OTHERS), {"table": table.table_id, "kept": kept, "now": now})


_SAVE_COLUMN = """
INSERT INTO prism_table_columns (prism_table_id, column_id, name, source_name, type, length, source_offset,
    zone_offset, time_unit, required, position, add_time)
VALUES (:table, :id, :name, :source, :type, :length, :source_offset, :zone_offset, :time_unit, :required, :position,
    :now)
ON CONFLICT (prism_table_id, column_id) DO UPDATE SET name = EXCLUDED.name, source_name = EXCLUDED.source_name,
    type = EXCLUDED.type, length = EXCLUDED.length, source_offset = EXCLUDED.source_offset,
    zone_offset = EXCLUDED.zone_offset, time_unit = EXCLUDED.time_unit, required = EXCLUDED.required,
    position = EXCLUDED.position
"""


_DROP_OTHERS = """
UPDATE prism_table_columns SET drop_time = :now
WHERE prism_table_id = :table AND drop_time IS NULL AND column_id <> ALL(CAST(:kept AS integer[]))
"""


def _column_row(table: TableDefinition, column: Column, position: int, now: datetime) -> dict[str, object]:
    return {
        "table": table.table_id,
        "id": column.column_id,
        "name": column.name,
        "source": column.source,
        "type": column.type.name,
        "length": column.length,
        "source_offset": column.source_offset,
        "zone_offset": column.zone_offset,
        "time_unit": column.time_unit,
        "required": column.required,
        "position": position,
        "now": now,
    }


def highest_column_id(connection: Connection, table_id: int) -> int:
    """The highest column id a table ever used, dropped columns included; 0 for none. Reads without locks."""
    return int(connection.execute(text(_HIGHEST_COLUMN), {"table": table_id}).scalar_one())


_HIGHEST_COLUMN = "SELECT coalesce(max(column_id), 0) FROM prism_table_columns WHERE prism_table_id = :table"


def load_column_names(connection: Connection, table_id: int) -> set[str]:
    """The names that columns of a table have, or ever had, in objects, copies of them too. Reads without locks."""
    return set(connection.execute(text(_COLUMN_NAMES), {"table": table_id}).scalars())


_COLUMN_NAMES = """
SELECT DISTINCT n.name FROM prism_table_definitions d
CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
CROSS JOIN LATERAL (VALUES (coalesce(c ->> 'stored_as', c ->> 'name')), (c -> 'rename' ->> 'former')) n (name)
WHERE d.prism_table_id = :table AND n.name IS NOT NULL
"""


def load_held_names(connection: Connection, table_id: int, names: Mapping[str, int]) -> dict[str, HeldName]:
    """Those of the names that objects of a table may have for columns: what readers of Glue are sent to, or may be soon.

    Given with each name is the id of the column that may have it, 0 for none. Merged objects have the columns, by id, of
    the small ones that they were made of, under names of any later definition: that of the merge, of one before for a
    column that is gone, or of one that is in flight. So a name is held by rows of each column that ever had it since
    they were made, and is free when their days are rebuilt. A day that was rebuilt holds what it held until each
    publisher whose readers go by names shows it as it is now. Reads without locks, of each day by its index.
    """
    if not names:
        return {}
    values = {"table": table_id, "names": sorted(names), "own": [names[name] for name in sorted(names)]}
    rows = connection.execute(text(_HELD_NAMES), values)
    return {
        row.name: HeldName(days=row.days, first=row.first, last=row.last, waiting=row.waiting)
        for row in rows
        if row.days or row.waiting
    }


_HELD_NAMES = """
WITH columns AS MATERIALIZED (
    SELECT d.version, CAST(c ->> 'column_id' AS integer) AS id, coalesce(c ->> 'stored_as', c ->> 'name') AS name,
        c -> 'rename' ->> 'former' AS former
    FROM prism_table_definitions d CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
    WHERE d.prism_table_id = :table
),
named AS (
    SELECT n.name, c.id, max(c.version) AS last_version
    FROM unnest(CAST(:names AS text[]), CAST(:own AS integer[])) AS n (name, own)
    JOIN columns c ON n.name IN (c.name, c.former) AND c.id <> n.own
    GROUP BY n.name, c.id
),
held AS (
    SELECT n.name, array_agg(DISTINCT c.version) AS with_column,
        array_agg(DISTINCT c.version) FILTER (WHERE c.version <= n.last_version) AS versions
    FROM named n JOIN columns c ON c.id = n.id
    GROUP BY n.name
)
SELECT h.name, count(p.date) AS days, min(p.date) AS first, max(p.date) AS last,
    (SELECT count(*) FROM prism_staging_objects o WHERE o.prism_table_id = :table
        AND o.state IN ('pending', 'claimed') AND o.definition_version = ANY(h.versions)) AS waiting
FROM held h LEFT JOIN prism_partition_states p ON p.table_id = :table
    AND (NOT p.expired OR EXISTS (SELECT 1 FROM prism_publications q
        WHERE q.prism_partition_id = p.partition_id AND q.publisher <> 'iceberg' AND q.version >= 0))
    AND (NOT p.expired AND EXISTS (SELECT 1 FROM prism_publications q
            WHERE q.prism_partition_id = p.partition_id AND q.publisher <> 'iceberg' AND q.version >= 0
                AND q.revision < p.revision)
        OR EXISTS (SELECT 1 FROM prism_small_objects s
            WHERE s.prism_partition_id = p.partition_id AND s.definition_version = ANY(h.versions))
        OR EXISTS (SELECT 1 FROM prism_merge_ranges r
            WHERE r.prism_partition_id = p.partition_id AND r.definition_version = ANY(h.versions))
        AND EXISTS (SELECT 1 FROM prism_small_objects s
            WHERE s.prism_partition_id = p.partition_id AND s.definition_version = ANY(h.with_column)))
GROUP BY h.name, h.versions
"""


def is_empty(connection: Connection, table_id: int) -> bool:
    """Whether no object of a table was ever written or begun. The caller keeps batches from starting; reads without locks."""
    return bool(connection.execute(text(_IS_EMPTY), {"table": table_id}).scalar_one())


_IS_EMPTY = """
SELECT NOT EXISTS (SELECT 1 FROM prism_partitions WHERE prism_table_id = :table)
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects WHERE prism_table_id = :table
        AND (definition_version IS NOT NULL OR first_batch_id IS NOT NULL))
"""


def load_streams(connection: Connection) -> list[KnownStream]:
    """All streams, those that are stopped or removed included. Reads without locks.

    Also in a database that is not migrated yet, for a dry run.
    """
    rows = connection.execute(text(_STREAMS))
    return [
        KnownStream(
            row.prism_stream_id,
            row.prism_table_id,
            Stream(
                name=row.stream_name,
                bucket=row.bucket_name,
                key_prefix=row.key_prefix,
                enabled=row.enabled,
                discard=row.discard,
            ),
            row.is_removed,
        )
        for row in rows
    ]


_STREAMS = """
SELECT s.*, coalesce(CAST(to_jsonb(s) ->> 'removed' AS boolean), NOT enabled) AS is_removed FROM prism_streams s
ORDER BY prism_stream_id
"""


def lock_streams(connection: Connection) -> None:
    """Locks all streams, in the order of their ids, as who registers objects does: nobody registers any meanwhile."""
    connection.execute(text("SELECT 1 FROM prism_streams ORDER BY prism_stream_id FOR UPDATE"))


def remove_streams(connection: Connection, table: TableDefinition) -> None:
    """Ends the streams of a table that its file names no more; they are not lost, and may be named again.

    Objects that wait there are still converted, read as the last definition says that named their stream. The caller
    has locked the streams.
    """
    kept = {
        "table": table.table_id,
        "buckets": [stream.bucket for stream in table.streams],
        "prefixes": [stream.key_prefix for stream in table.streams],
    }
    connection.execute(text(_REMOVE_OTHERS), kept)


_REMOVE_OTHERS = """
UPDATE prism_streams SET enabled = false, removed = true
WHERE prism_table_id = :table AND NOT removed AND (bucket_name, key_prefix) NOT IN
    (SELECT * FROM unnest(CAST(:buckets AS text[]), CAST(:prefixes AS text[])))
"""


def save_streams(connection: Connection, table_id: int, streams: Iterable[Stream]) -> None:
    """Creates streams and updates the switches of known ones, which may have been those of another table.

    Objects that no batch has claimed yet go along; what one has begun stays with its table. The caller has locked the
    streams, and no batch is starting; locks the rows of objects that go along.
    """
    kept = [
        {
            "table": table_id,
            "name": stream.name,
            "bucket": stream.bucket,
            "prefix": stream.key_prefix,
            "enabled": stream.enabled,
            "discard": stream.discard,
        }
        for stream in streams
    ]
    if kept:
        connection.execute(text(_SAVE_STREAM), kept)
    connection.execute(text(_TAKE_ALONG), {"table": table_id})


_SAVE_STREAM = """
INSERT INTO prism_streams (prism_table_id, stream_name, bucket_name, key_prefix, enabled, discard)
VALUES (:table, :name, :bucket, :prefix, :enabled, :discard)
ON CONFLICT (bucket_name, key_prefix) DO UPDATE SET prism_table_id = EXCLUDED.prism_table_id,
    moved = prism_streams.moved OR prism_streams.prism_table_id <> EXCLUDED.prism_table_id, stream_name = EXCLUDED.stream_name, enabled = EXCLUDED.enabled, discard = EXCLUDED.discard, removed = false
"""
_TAKE_ALONG = f"""
UPDATE prism_staging_objects o SET prism_table_id = s.prism_table_id
FROM prism_streams s
WHERE s.prism_table_id = :table AND NOT s.removed AND o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
    AND {NEVER_CLAIMED} AND o.prism_table_id <> s.prism_table_id
"""

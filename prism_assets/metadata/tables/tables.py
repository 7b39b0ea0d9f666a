"""Statements on prism_tables, prism_table_definitions and prism_table_columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, text

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.held_names import HeldName
from prism_assets.domain.columns.types import ColumnType, all_parts
from prism_assets.domain.tables.definition import Definitions, TableDefinition
from prism_assets.metadata.intake.claims import DECIDED_VERSION, NEVER_CLAIMED


def load_definitions(connection: Connection) -> list[TableDefinition]:
    """Returns the definitions in force, by name. Reads without locks."""
    rows = connection.execute(text(_IN_FORCE))
    return [_parsed(row.definition) for row in rows]


_IN_FORCE = """
SELECT CAST(d.definition AS text) AS definition FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
ORDER BY t.schema_name, t.table_name
"""


def load_versions(connection: Connection, wanted: Collection[tuple[int, int]]) -> Definitions:
    """Returns the definitions of (table id, version) pairs. Reads without locks, because versions never change."""
    rows = connection.execute(
        text(_VERSIONS),
        {"tables": [table for table, _ in wanted], "versions": [version for _, version in wanted]},
    )
    return {(row.prism_table_id, row.version): _parsed(row.definition) for row in rows}


@lru_cache(maxsize=1_000)
def _parsed(document: str) -> TableDefinition:
    """Parses a stored definition.

    Sensor ticks load all tables again and again, and get the same objects from the cache.
    """
    return TableDefinition.from_document(json.loads(document))


_VERSIONS = """
SELECT prism_table_id, version, CAST(definition AS text) AS definition FROM prism_table_definitions
JOIN unnest(CAST(:tables AS bigint[]), CAST(:versions AS integer[])) AS wanted (table_id, version_)
    ON prism_table_id = wanted.table_id AND version = wanted.version_
"""


def load_naming_versions(
    connection: Connection, wanted: Collection[tuple[int, int, int]]
) -> dict[tuple[int, int, int], int]:
    """Returns the last earlier definition with the stream, by (table id, stream id, version); leaves out those without
    one.

    Reads without locks, because neither versions nor the places of streams change.
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
    """Returns the definition of a table in force, mostly the given one. Reads without locks."""
    version = int(connection.execute(text(_CURRENT_VERSION), {"table": table.table_id}).scalar_one())
    if version == table.version:
        return table
    return load_versions(connection, [(table.table_id, version)])[table.table_id, version]


_CURRENT_VERSION = "SELECT definition_version FROM prism_tables WHERE prism_table_id = :table"


def keep_columns_since(connection: Connection, table_id: int, version: int) -> bool:
    """Whether every column still has its name and type of a version of the definition. Reads without locks."""
    current = int(connection.execute(text(_CURRENT_VERSION), {"table": table_id}).scalar_one())
    if current == version:
        return True
    known = load_versions(connection, [(table_id, version), (table_id, current)])
    return known[table_id, current].keeps_columns_of(known[table_id, version])


def load_join(connection: Connection, table_id: int) -> tuple[TableDefinition, TableDefinition]:
    """Returns the definitions in force of a join table's records and of its log of changes. Reads without locks."""
    found = {table.table_id: table for table in load_definitions(connection)}
    log = connection.execute(text(_LOG_OF), {"table": table_id}).scalar_one()
    return found[table_id], found[log]


_LOG_OF = "SELECT prism_table_id FROM prism_tables WHERE changes_of = :table"


def insert_table(connection: Connection, table: TableDefinition, now: datetime, changes_of: int | None = None) -> int:
    """Inserts a table, to be shown in Glue. `changes_of` names the records if the table is a log of changes.

    Returns its id. Locks no other row.
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


def save_version(connection: Connection, table: TableDefinition, now: datetime) -> None:
    """Stores a definition under its version and puts it in force. Locks the table's row.

    During a flip no batch claims new objects of the table. This pause ends after twice the flip's limit, even if no
    catalog run ends the flip.
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
            "seconds": 2 * table.flip_limit.total_seconds(),
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
    """Inserts new columns and their parts, updates the changeable facts of known ones, and marks dropped ones.

    Ids are never reused. Dropped columns come first, because a new column may take the name of one. Locks the rows of
    the columns.
    """
    kept = [column.column_id for column in table.columns]
    kept += [part.field_id for column in table.columns for part in all_parts(column.type)]
    connection.execute(text(_DROP_OTHERS), {"table": table.table_id, "kept": kept, "now": now})
    connection.execute(
        text(_SAVE_COLUMN),
        [
            row
            for position, column in enumerate(table.columns)
            for row in (
                _column_row(table, column, position, now),
                *_part_rows(table, column.type, column.column_id, now),
            )
        ],
    )


_SAVE_COLUMN = """
INSERT INTO prism_table_columns (prism_table_id, column_id, name, source_name, type, length, source_offset,
    zone_offset, time_unit, required, position, add_time, parent_id)
VALUES (:table, :id, :name, :source, :type, :length, :source_offset, :zone_offset, :time_unit, :required, :position,
    :now, :parent)
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
        "parent": None,
        "now": now,
    }


def _part_rows(table: TableDefinition, kind: ColumnType, parent: int, now: datetime) -> Iterator[dict[str, object]]:
    """Yields the rows of all parts of a nested column."""
    for position, part in enumerate(kind.parts):
        yield {
            "table": table.table_id,
            "id": part.field_id,
            "name": part.name,
            "source": part.source or part.name,
            "type": part.type.name,
            "length": part.length,
            "source_offset": part.source_offset,
            "zone_offset": None,
            "time_unit": part.time_unit,
            "required": False,
            "position": position,
            "parent": parent,
            "now": now,
        }
        yield from _part_rows(table, part.type, part.field_id, now)


def highest_column_id(connection: Connection, table_id: int) -> int:
    """Returns the highest id of a column or a part a table ever used, or 0. Reads without locks."""
    return int(connection.execute(text(_HIGHEST_COLUMN), {"table": table_id}).scalar_one())


_HIGHEST_COLUMN = "SELECT coalesce(max(column_id), 0) FROM prism_table_columns WHERE prism_table_id = :table"


def load_column_names(connection: Connection, table_id: int) -> set[str]:
    """Returns all column names that objects of a table have or ever had, copies included. Reads without locks."""
    return set(connection.execute(text(_COLUMN_NAMES), {"table": table_id}).scalars())


_COLUMN_NAMES = """
SELECT DISTINCT n.name FROM prism_table_definitions d
CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
CROSS JOIN LATERAL (VALUES (coalesce(c ->> 'stored_as', c ->> 'name')), (c -> 'rename' ->> 'former')) n (name)
WHERE d.prism_table_id = :table AND n.name IS NOT NULL
"""


def load_held_names(connection: Connection, table_id: int, names: Mapping[str, int]) -> dict[str, HeldName]:
    """Returns the names still used for another column in objects that readers of Glue may get.

    `names` maps each wanted name to the id of its column, 0 for none. Names of fields of structs have the id of the
    column or the part around them in front: `3.id`. A merged object has the columns, by id, of its
    small objects. Their names may be those of any later definition: of the merge, of an earlier version for a dropped
    column, or of a version in use by a running task. So a name is held by rows of every column that had it since these
    rows were made; nobody knows the columns of archived small objects, so these may hold any. It becomes free when their
    days are rebuilt. A rebuilt day still holds its earlier names until every
    publisher whose readers go by names shows the new objects. Reads without locks, one index lookup per day.
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


_HELD_NAMES = f"""
WITH columns AS MATERIALIZED (
    SELECT d.version, CAST(c ->> 'column_id' AS integer) AS id, coalesce(c ->> 'stored_as', c ->> 'name') AS name,
        c -> 'rename' ->> 'former' AS former
    FROM prism_table_definitions d CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
    WHERE d.prism_table_id = :table
    UNION ALL
    SELECT d.version, CAST(p ->> 'id' AS integer),
        (p ->> 'parent') || '.' || coalesce(p ->> 'stored_as', p ->> 'name'), NULL
    FROM prism_table_definitions d CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
    CROSS JOIN jsonb_array_elements(c -> 'fields') p
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
        AND (o.state IN ('pending', 'claimed') OR o.state = 'failed' AND o.claim_version IS NOT NULL)
        AND {DECIDED_VERSION} = ANY(h.versions)) AS waiting
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
        AND (EXISTS (SELECT 1 FROM prism_small_objects s
            WHERE s.prism_partition_id = p.partition_id AND s.definition_version = ANY(h.with_column))
            OR EXISTS (SELECT 1 FROM prism_merge_ranges a
                WHERE a.prism_partition_id = p.partition_id AND a.archived_objects > 0)))
GROUP BY h.name, h.versions
"""


def was_never_read(connection: Connection, table_id: int) -> bool:
    """Whether no batch ever claimed a staging object of a table, or of the other table of a join table.

    The caller keeps batches from starting. Reads without locks.
    """
    return bool(connection.execute(text(_WAS_NEVER_READ), {"table": table_id}).scalar_one())


_WAS_NEVER_READ = f"""
SELECT NOT EXISTS (SELECT 1 FROM prism_partitions p WHERE p.prism_table_id = t.prism_table_id)
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o
        WHERE o.prism_table_id = coalesce(l.prism_table_id, t.prism_table_id)
            AND (o.definition_version IS NOT NULL OR NOT {NEVER_CLAIMED}))
FROM prism_tables t LEFT JOIN prism_tables l ON l.changes_of = t.prism_table_id
WHERE t.prism_table_id = (SELECT coalesce(changes_of, prism_table_id) FROM prism_tables WHERE prism_table_id = :table)
"""

"""Statements on the names of tables: current ones, and former ones that catalogs still show for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True)
class FormerName:
    """A former name of a table. Glue still shows it until `end_time` and the next catalog run."""

    table_id: int
    name: TableName
    end_time: datetime
    has_ended: bool
    removed_from: tuple[str, ...] = ()
    """Publishers that no longer show the name. It stays on record while another publisher shows it."""


def load_former_names(connection: Connection) -> list[FormerName]:
    """Returns the former names that catalogs should show or remove, by table. Reads without locks."""
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
    f.removed_from,
    coalesce(t.physical_schema_name, t.schema_name) AS physical_schema,
    coalesce(t.physical_table_name, t.table_name) AS physical_table
FROM prism_former_names f JOIN prism_tables t USING (prism_table_id)
WHERE f.remove_time IS NULL ORDER BY f.prism_table_id, f.schema_name, f.table_name
"""


def with_former_names(connection: Connection, definitions: Sequence[TableDefinition]) -> list[TableDefinition]:
    """Returns definitions with the former names that catalogs should show."""
    found: dict[int, list[TableName]] = {}
    for item in load_former_names(connection):
        if not item.has_ended:
            found.setdefault(item.table_id, []).append(item.name)
    return [replace(table, former=tuple(found.get(table.table_id, ()))) for table in definitions]


def rename_table(connection: Connection, table_id: int, before: TableName, name: TableName, grace_days: int) -> None:
    """Renames a table, and keeps its former name in catalogs for `grace_days`. Locks the table's row."""
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
    """Records that a publisher no longer shows a former name. Locks its row."""
    values = {"table": table_id, "schema": name.schema, "name": name.table, "publisher": publisher}
    connection.execute(text(_REMOVED), values)
    end_removed_names(connection, table_id)


_REMOVED = """
UPDATE prism_former_names SET removed_from = array_append(removed_from, :publisher)
WHERE prism_table_id = :table AND schema_name = :schema AND table_name = :name AND remove_time IS NULL
    AND NOT :publisher = ANY(removed_from)
"""


def end_removed_names(connection: Connection, table_id: int) -> None:
    """Frees former names of a table after every publisher has removed them. Locks their rows."""
    connection.execute(text(_END_REMOVED), {"table": table_id})


_END_REMOVED = """
UPDATE prism_former_names f SET remove_time = clock_timestamp()
WHERE f.prism_table_id = :table AND f.remove_time IS NULL AND f.removed_from <> '{}' AND NOT EXISTS (
    SELECT 1 FROM prism_table_publications t
    WHERE t.prism_table_id = f.prism_table_id AND NOT t.publisher = ANY(f.removed_from))
"""

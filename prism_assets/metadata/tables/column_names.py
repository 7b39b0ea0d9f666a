"""Statements on columns' names in earlier definitions. All read without locks."""

from __future__ import annotations

from sqlalchemy import Connection, text

from prism_assets.domain.columns.names import FormerColumnName


def load_former_column_names(connection: Connection, table_id: int) -> list[FormerColumnName]:
    """Returns former names of current columns, each with the time of the definition that ended it."""
    rows = connection.execute(text(_FORMER), {"table": table_id})
    return [FormerColumnName(column_id=row.id, name=row.name, since=row.since) for row in rows]


_FORMER = """
WITH columns AS MATERIALIZED (
    SELECT d.version, CAST(c ->> 'column_id' AS integer) AS id, c ->> 'name' AS name
    FROM prism_table_definitions d CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
    WHERE d.prism_table_id = :table
)
SELECT o.id, o.name, (SELECT d.create_time FROM prism_table_definitions d
    WHERE d.prism_table_id = :table AND d.version > max(o.version) ORDER BY d.version LIMIT 1) AS since
FROM columns o JOIN prism_tables t ON t.prism_table_id = :table
JOIN columns c ON c.version = t.definition_version AND c.id = o.id AND c.name <> o.name
GROUP BY o.id, o.name
"""

"""Statements on days that Glue does not show yet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from sqlalchemy import Connection, text


def load_new_days(connection: Connection, days: Collection[tuple[int, date]]) -> set[tuple[int, date]]:
    """Returns the days, of these pairs of table and date, that wait for their first publication. Reads without locks."""
    pairs = {"tables": [table for table, _ in days], "days": [day for _, day in days]}
    return {(row.table_id, row.date) for row in connection.execute(text(_NEW_DAYS), pairs)}


_IS_NEW = "s.current_version < 0 AND NOT s.expired AND s.last_live_object_id IS NULL"
_NEW_DAYS = f"""
SELECT s.table_id, s.date
FROM unnest(CAST(:tables AS bigint[]), CAST(:days AS date[])) AS d (table_id, date)
JOIN prism_partition_states s ON s.table_id = d.table_id AND s.date = d.date
WHERE {_IS_NEW}
"""


def load_new_days_of_tables(connection: Connection, table_ids: Collection[int]) -> set[tuple[int, date]]:
    """Returns the days of these tables that have rows and wait for their first publication. Reads without locks."""
    rows = connection.execute(text(_NEW_DAYS_OF_TABLES), {"tables": list(table_ids)})
    return {(row.table_id, row.date) for row in rows}


_NEW_DAYS_OF_TABLES = f"""
SELECT s.table_id, s.date FROM prism_partition_states s
WHERE s.table_id = ANY(:tables) AND NOT s.switched AND s.last_object_id > 0 AND {_IS_NEW}
"""

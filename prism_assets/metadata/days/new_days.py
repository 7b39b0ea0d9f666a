"""Statements on days that Glue does not show yet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from sqlalchemy import Connection, text


def load_new_days(connection: Connection, days: Collection[tuple[int, date]]) -> set[tuple[int, date]]:
    """Returns the days, of these pairs of table and date, that wait for their first publication. Reads without locks."""
    pairs = {"tables": [table for table, _ in days], "days": [day for _, day in days]}
    return {(row.table_id, row.date) for row in connection.execute(text(_NEW_DAYS), pairs)}


_NEW_DAYS = """
SELECT s.table_id, s.date
FROM unnest(CAST(:tables AS bigint[]), CAST(:days AS date[])) AS d (table_id, date)
JOIN prism_partition_states s ON s.table_id = d.table_id AND s.date = d.date
WHERE s.current_version < 0 AND NOT s.expired AND s.last_live_object_id IS NULL
"""

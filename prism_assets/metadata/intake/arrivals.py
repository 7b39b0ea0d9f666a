"""Seconds from the arrival of staging objects until their rows are readable. Reads without locks.

Objects of a history do not count: they are as old as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import Connection, Row, text


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Rows of one small object, and the seconds since S3 received their staging object."""

    table_id: int
    date: date
    rows: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ShownObjects:
    """Small objects of one partition made readable by a publication: lower < id <= upper, without an upper limit for
    None.
    """

    table_id: int
    date: date
    lower: int
    upper: int | None
    delayed_only: bool


def arrivals_of_batches(
    connection: Connection, table_ids: Collection[int], batch_ids: Collection[int]
) -> list[Arrival]:
    """Returns the rows made readable by finished batches alone.

    These are rows of open days already in the catalog. All others wait for a publication.
    """
    rows = connection.execute(text(_OF_BATCHES), {"tables": list(table_ids), "batches": list(batch_ids)})
    return [_arrival(row) for row in rows]


# By the index on finish times, because these objects have no index on batches.
_OF_BATCHES = """
SELECT o.prism_table_id AS table_id, p.partition_date AS date, s.row_count AS rows,
    extract(epoch FROM s.commit_time - coalesce(o.send_time, o.first_receive_time)) AS seconds
FROM prism_staging_objects o JOIN prism_small_objects s USING (prism_staging_object_id)
JOIN prism_partitions p USING (prism_partition_id)
JOIN prism_publications q USING (prism_partition_id)
WHERE o.state = 'done' AND q.publisher = 'glue' AND o.prism_table_id = ANY(:tables)
    AND o.finish_time >= (SELECT min(start_time) FROM prism_stream_batches WHERE prism_stream_batch_id = ANY(:batches))
    AND o.prism_stream_batch_id = ANY(:batches) AND p.last_live_object_id IS NULL AND q.version >= 0 AND NOT s.delayed
    AND o.history_date IS NULL
"""


def _arrival(row: Row[Any]) -> Arrival:
    return Arrival(table_id=row.table_id, date=row.date, rows=row.rows, seconds=float(row.seconds))


def arrivals_shown(connection: Connection, shown: Collection[ShownObjects]) -> list[Arrival]:
    """Returns the rows first shown by publications made just now."""
    rows = connection.execute(
        text(_SHOWN),
        {
            "tables": [item.table_id for item in shown],
            "dates": [item.date for item in shown],
            "lowers": [item.lower for item in shown],
            "uppers": [item.upper for item in shown],
            "delayed": [item.delayed_only for item in shown],
        },
    )
    return [_arrival(row) for row in rows]


_SHOWN = """
SELECT w.table_id, w.day AS date, s.row_count AS rows,
    extract(epoch FROM clock_timestamp() - coalesce(o.send_time, o.first_receive_time)) AS seconds
FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[]), CAST(:lowers AS bigint[]), CAST(:uppers AS bigint[]),
    CAST(:delayed AS boolean[])) AS w (table_id, day, lower, upper, delayed)
JOIN prism_partitions p ON p.prism_table_id = w.table_id AND p.partition_date = w.day
JOIN prism_small_objects s ON s.prism_partition_id = p.prism_partition_id AND s.prism_small_object_id > w.lower
    AND (w.upper IS NULL OR s.prism_small_object_id <= w.upper) AND (s.delayed OR NOT w.delayed)
JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE o.history_date IS NULL
"""

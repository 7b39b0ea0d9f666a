"""Delayed small objects: claimed after their day was marked for closing. Reads without locks.

The partition's row says what they wait for: objects up to `published_object_id` are readable, and objects up to
`desired_manifest_version` are merged. No other position exists.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class DelayedDay:
    """Delayed objects of one closed or switched partition that readers cannot see yet, or that are not merged."""

    table_id: int
    date: date
    unpublished_objects: int
    unpublished_rows: int
    oldest_unpublished: datetime | None
    """Commit time of the first one readers cannot see."""
    unmerged_objects: int
    unmerged_rows: int


def delayed_days(connection: Connection, table_ids: Collection[int]) -> list[DelayedDay]:
    """Returns all days with delayed objects that are unreadable or unmerged, by table and date."""
    rows = connection.execute(text(_DELAYED), {"tables": list(table_ids)})
    return [
        DelayedDay(
            table_id=row.prism_table_id,
            date=row.partition_date,
            unpublished_objects=row.unpublished,
            unpublished_rows=int(row.unpublished_rows),
            oldest_unpublished=row.oldest,
            unmerged_objects=row.unmerged,
            unmerged_rows=int(row.unmerged_rows),
        )
        for row in rows
        if row.unpublished or row.unmerged
    ]


# Each half of the union has a partial index; an OR could not use them. Delayed objects have an index of their own, so a
# day with a postponed merge costs one look-up for any number of objects.
_DELAYED = """
SELECT p.prism_table_id, p.partition_date, s.* FROM (
    SELECT partition_id AS prism_partition_id, table_id AS prism_table_id, date AS partition_date,
        coalesce(published_object_id, 0) AS published_id, desired_version AS merged_id FROM prism_partition_states
    WHERE table_id = ANY(:tables) AND last_live_object_id IS NOT NULL AND last_object_id > desired_version
    UNION
    SELECT p.prism_partition_id, p.prism_table_id, p.partition_date, q.published_object_id, p.desired_manifest_version
    FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
    WHERE q.dirty AND q.publisher = 'glue' AND p.prism_table_id = ANY(:tables) AND p.last_live_object_id IS NOT NULL
        AND q.published_object_id < p.last_object_id) p
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE o.prism_small_object_id > p.published_id) AS unpublished,
        coalesce(sum(o.row_count) FILTER (WHERE o.prism_small_object_id > p.published_id), 0) AS unpublished_rows,
        min(o.commit_time) FILTER (WHERE o.prism_small_object_id > p.published_id) AS oldest,
        count(*) FILTER (WHERE o.prism_small_object_id > p.merged_id) AS unmerged,
        coalesce(sum(o.row_count) FILTER (WHERE o.prism_small_object_id > p.merged_id), 0) AS unmerged_rows
    FROM prism_small_objects o WHERE o.prism_partition_id = p.prism_partition_id AND o.delayed
        AND o.prism_small_object_id > least(p.published_id, p.merged_id)) s
ORDER BY p.prism_table_id, p.partition_date
"""

"""Statements that tell what the stages have left lying: objects that were given up, objects that wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class UnconvertedObjects:
    """Staging objects of one table that are not converted; `example` names the latest of each kind and its error.

    Those that were given up are tried again by somebody's hand; `parked` ones by themselves, at `parked_until` at the
    earliest. `overwritten` are converted, and not in their later version. `waiting` are pending, or just being
    converted. What somebody has accepted as it is counts nowhere.
    """

    table_id: int
    given_up: int
    given_up_example: str | None
    parked: int
    parked_until: datetime | None
    parked_example: str | None
    overwritten: int
    overwritten_example: str | None
    waiting: int
    waiting_example: str | None


def unconverted_objects(connection: Connection, table_ids: Collection[int]) -> list[UnconvertedObjects]:
    """What is not converted of each table, where there is anything. Reads partial indexes, without locks."""
    rows = connection.execute(text(_UNCONVERTED), {"tables": list(table_ids)})
    return [UnconvertedObjects(**row._mapping) for row in rows]


_UNCONVERTED = """
SELECT u.prism_table_id AS table_id, given_up, g.example AS given_up_example, parked, parked_until,
    p.example AS parked_example, overwritten, n.example AS overwritten_example, waiting, w.example AS waiting_example
FROM (
    SELECT prism_table_id,
        count(*) FILTER (WHERE failed AND NOT comes_again) AS given_up,
        max(id) FILTER (WHERE failed AND NOT comes_again) AS latest_given_up,
        count(*) FILTER (WHERE failed AND comes_again) AS parked,
        min(retry_time) FILTER (WHERE failed AND comes_again) AS parked_until,
        max(id) FILTER (WHERE failed AND comes_again) AS latest_parked,
        count(*) FILTER (WHERE overwritten) AS overwritten, max(id) FILTER (WHERE overwritten) AS latest_overwritten,
        count(*) FILTER (WHERE NOT failed AND NOT overwritten) AS waiting,
        max(id) FILTER (WHERE NOT failed AND NOT overwritten AND tried) AS latest_waiting
    FROM (
        SELECT prism_table_id, prism_staging_object_id AS id, retry_time, false AS failed, false AS overwritten,
            last_error IS NOT NULL AS tried, false AS comes_again
        FROM prism_staging_objects WHERE state IN ('pending', 'claimed') AND prism_table_id = ANY(:tables)
        UNION ALL
        SELECT prism_table_id, prism_staging_object_id, retry_time, true, false, true, retry_time IS NOT NULL
        FROM prism_staging_objects WHERE state = 'failed' AND NOT dismissed AND prism_table_id = ANY(:tables)
        UNION ALL
        SELECT prism_table_id, prism_staging_object_id, NULL, false, true, false, false FROM prism_staging_objects
        WHERE overwritten_time IS NOT NULL AND NOT dismissed AND state = 'done' AND prism_table_id = ANY(:tables)
    ) o GROUP BY prism_table_id
) u
LEFT JOIN LATERAL (SELECT format('s3://%s/%s: %s', bucket_name, object_key, last_error) AS example
    FROM prism_staging_objects WHERE prism_staging_object_id = latest_given_up) g ON true
LEFT JOIN LATERAL (SELECT format('s3://%s/%s: %s', bucket_name, object_key, last_error) AS example
    FROM prism_staging_objects WHERE prism_staging_object_id = latest_parked) p ON true
LEFT JOIN LATERAL (SELECT format('s3://%s/%s', bucket_name, object_key) AS example
    FROM prism_staging_objects WHERE prism_staging_object_id = latest_overwritten) n ON true
LEFT JOIN LATERAL (SELECT format('s3://%s/%s: %s', bucket_name, object_key, last_error) AS example
    FROM prism_staging_objects WHERE prism_staging_object_id = latest_waiting) w ON true
ORDER BY u.prism_table_id
"""

"""Statements on staging objects that are not read, or whose later version is not read, with the reason."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sqlalchemy import Connection, text

from prism_assets.metadata.intake.staging_objects import CAME_AGAIN


class Unread(str, Enum):
    """Why an object is not read."""

    GIVEN_UP = "given_up"
    """A person has to act."""
    RETRIED_LATER = "retried_later"
    """Given up for now, and retried automatically."""
    OVERWRITTEN = "overwritten"
    """Overwritten after its conversion. A person has to act."""
    READ_BEFORE = "read_before"
    """Came again after its metadata had left for the archive. A person has to act."""
    LONG_OUTAGE = "long_outage"
    """Waiting: its store has long refused every request. Retried automatically."""

    @property
    def needs_a_person(self) -> bool:
        """Whether nothing changes until somebody acts."""
        return self in (Unread.GIVEN_UP, Unread.OVERWRITTEN, Unread.READ_BEFORE)


@dataclass(frozen=True, kw_only=True)
class UnreadObjects:
    """Objects of one table left unread for one reason. Accepted objects do not count."""

    table_id: int
    why: Unread
    objects: int
    retry_time: datetime | None
    """The first automatic retry."""
    examples: tuple[str, ...]
    """The latest three at most, with their errors."""


def load_unread(connection: Connection, table_ids: Collection[int]) -> list[UnreadObjects]:
    """Returns the unread objects by table and reason, for status, checks and doctor. Reads partial indexes, without
    locks.
    """
    rows = connection.execute(text(_UNREAD), {"tables": list(table_ids)})
    return [
        UnreadObjects(
            table_id=row.prism_table_id,
            why=Unread(row.why),
            objects=row.objects,
            retry_time=row.retry_time,
            examples=tuple(row.examples),
        )
        for row in rows
    ]


# Counts the objects by id, and looks up only the three examples. `why` is the value of an Unread. `outages` counts
# successive refusals charged to nobody; objects with ten or more are reported, and have an index.
_UNREAD = f"""
SELECT u.prism_table_id, u.why, u.objects, u.retry_time, e.examples FROM (
    SELECT prism_table_id, why, count(*) AS objects, min(retry_time) AS retry_time,
        (array_agg(prism_staging_object_id ORDER BY prism_staging_object_id DESC))[1:3] AS latest
    FROM (
        SELECT prism_table_id, prism_staging_object_id, retry_time,
            CASE WHEN retry_time IS NULL THEN 'given_up' ELSE 'retried_later' END AS why
        FROM prism_staging_objects WHERE state = 'failed' AND NOT dismissed AND prism_table_id = ANY(:tables)
        UNION ALL
        SELECT prism_table_id, prism_staging_object_id, NULL,
            CASE WHEN {CAME_AGAIN} THEN 'read_before' ELSE 'overwritten' END
        FROM prism_staging_objects
        WHERE overwritten_time IS NOT NULL AND NOT dismissed AND state = 'done' AND prism_table_id = ANY(:tables)
        UNION ALL
        SELECT prism_table_id, prism_staging_object_id, retry_time, 'long_outage'
        FROM prism_staging_objects WHERE state = 'pending' AND outages >= 10 AND prism_table_id = ANY(:tables)
    ) o GROUP BY prism_table_id, why
) u CROSS JOIN LATERAL (
    SELECT array_agg(format('s3://%s/%s: %s', bucket_name, object_key,
        CASE u.why WHEN 'overwritten' THEN 'it was written again after it had been converted'
            WHEN 'read_before' THEN 'it was read before, and its metadata is in the archive'
            ELSE last_error END) ORDER BY prism_staging_object_id DESC) AS examples
    FROM prism_staging_objects WHERE prism_staging_object_id = ANY(u.latest)
) e ORDER BY u.prism_table_id, u.why
"""

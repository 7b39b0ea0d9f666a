"""Counts of objects to convert. Reads without locks and by partial indexes, because sensors ask at every tick."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.streams.topic import URL_PREFIX
from prism_assets.domain.text import counted
from prism_assets.metadata.intake.claims import BEGUN_BEFORE_STREAM_LEFT, IS_DUE, MAY_BEGIN, NOT_BEGUN
from prism_assets.metadata.intake.streams import STREAM_URL


@dataclass(frozen=True, kw_only=True)
class PendingCount:
    """Staging objects of a table."""

    table_id: int
    pending: int
    """Objects a batch could claim now."""
    abandoned: int
    """Objects held by a dead batch, or with uploads to remove."""


def count_pending(connection: Connection, lease_seconds: float, at_most: int = 1_000) -> list[PendingCount]:
    """Returns tables with work for Stream. Counts at most `at_most` objects per stream, so a backlog costs no more."""
    rows = connection.execute(text(_PENDING), {"lease": lease_seconds, "most": at_most})
    return [
        PendingCount(table_id=row.prism_table_id, pending=int(row.pending), abandoned=int(row.abandoned))
        for row in rows
    ]


# Streams that are read: objects of their own table that it has claimed or may claim, except during its flip. Discarded
# streams: objects to count as done. Objects of a stream that has moved to another table belong to the table that
# claimed them. These conditions equal those of claims. Then: objects of dead batches, objects due for an automatic
# retry, and objects with uploads to remove, under the condition of `due_uploads`.
_PENDING = f"""
SELECT prism_table_id, sum(pending) AS pending, sum(abandoned) AS abandoned FROM (
    SELECT s.prism_table_id, w.pending, 0 AS abandoned FROM prism_streams s JOIN prism_tables t USING (prism_table_id)
    CROSS JOIN LATERAL (SELECT count(*) AS pending FROM (
        SELECT 1 FROM prism_staging_objects o WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
            AND o.prism_table_id = s.prism_table_id
            AND (s.intake = 'convert' AND {MAY_BEGIN}
                OR s.intake = 'discard' AND {NOT_BEGUN})
            AND {IS_DUE} LIMIT :most) q) w
    WHERE s.intake <> 'wait' AND w.pending > 0
    UNION ALL
    SELECT o.prism_table_id, count(*), 0 FROM prism_streams s JOIN prism_staging_objects o USING (prism_stream_id)
    WHERE {BEGUN_BEFORE_STREAM_LEFT} AND {IS_DUE}
    GROUP BY o.prism_table_id
    UNION ALL
    SELECT o.prism_table_id, 0, count(*) FROM prism_stream_batches b
    JOIN prism_staging_objects o ON o.prism_stream_batch_id = b.prism_stream_batch_id AND o.state = 'claimed'
    WHERE b.state = 'running' AND b.heartbeat_time < clock_timestamp() - make_interval(secs => :lease)
    GROUP BY o.prism_table_id
    UNION ALL
    SELECT prism_table_id, count(*), 0 FROM prism_staging_objects
    WHERE state = 'failed' AND retry_time <= clock_timestamp() GROUP BY prism_table_id
    UNION ALL
    SELECT prism_table_id, 0, count(*) FROM prism_abandoned_uploads a
    WHERE a.remove_time <= clock_timestamp() AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o
        WHERE o.prism_staging_object_id = a.prism_staging_object_id AND o.generation = a.generation
            AND o.state IN ('pending', 'claimed'))
    GROUP BY prism_table_id
) u GROUP BY prism_table_id ORDER BY prism_table_id
"""


def count_backlog(connection: Connection, at_most: int) -> int:
    """Returns the pending objects of all streams except stopped ones, including objects in a pause. Stops at `at_most`."""
    return int(connection.execute(text(_BACKLOG), {"most": at_most}).scalar_one())


_BACKLOG = """
SELECT count(*) FROM (
    SELECT 1 FROM prism_streams s JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
    WHERE s.intake <> 'wait' AND o.state = 'pending' LIMIT :most
) q
"""


@dataclass(frozen=True, kw_only=True)
class StagingCounts:
    """Unfinished staging objects of a table, without unclaimed objects of stopped streams (see `count_stopped`)."""

    table_id: int
    pending: int
    held_up: int
    """Pending objects no batch may claim before the table's flip ends."""
    claimed: int
    latest_error: str | None
    """The error of an object already tried."""


def count_unfinished(connection: Connection) -> list[StagingCounts]:
    """Returns the counts of tables with unfinished objects."""
    return [StagingCounts(**row._mapping) for row in connection.execute(text(_UNFINISHED))]


_UNFINISHED = f"""
SELECT u.prism_table_id AS table_id, pending, held_up, claimed, CASE WHEN latest_tried IS NOT NULL
    THEN format('s3://%s/%s: %s', o.bucket_name, o.object_key, o.last_error) END AS latest_error
FROM (
    SELECT o.prism_table_id, count(*) FILTER (WHERE o.state = 'pending') AS pending,
        count(*) FILTER (WHERE o.state = 'pending' AND NOT {MAY_BEGIN}) AS held_up,
        count(*) FILTER (WHERE o.state = 'claimed') AS claimed,
        max(o.prism_staging_object_id) FILTER (WHERE o.last_error IS NOT NULL) AS latest_tried
    FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
    JOIN prism_tables t ON t.prism_table_id = o.prism_table_id
    WHERE o.state IN ('pending', 'claimed')
        AND NOT (s.intake = 'wait' AND {NOT_BEGUN})
    GROUP BY o.prism_table_id
) u LEFT JOIN prism_staging_objects o ON o.prism_staging_object_id = u.latest_tried
"""


@dataclass(frozen=True, kw_only=True)
class StoppedStream:
    """A stopped stream, and its waiting objects not claimed by any batch."""

    table_id: int
    stream: str
    url: str
    objects: int

    @property
    def sentence(self) -> str:
        """The waiting objects and the remedy."""
        discarded = "" if self.url.startswith(URL_PREFIX) else ", `discard: true` beside it counts them done"
        return (
            f"{counted(self.objects, 'object waits', 'objects wait')} at {self.url}, as stream {self.stream} is "
            f"stopped: `enabled: true` in the table file has them converted{discarded}"
        )


def count_stopped(connection: Connection, table_ids: Collection[int]) -> list[StoppedStream]:
    """Returns stopped streams with waiting objects, by table and id."""
    rows = connection.execute(text(_STOPPED), {"tables": list(table_ids)})
    return [StoppedStream(**row._mapping) for row in rows]


_STOPPED = f"""
SELECT s.prism_table_id AS table_id, s.stream_name AS stream, {STREAM_URL} AS url,
    w.objects
FROM prism_streams s CROSS JOIN LATERAL (
    SELECT count(*) AS objects FROM prism_staging_objects o WHERE o.prism_stream_id = s.prism_stream_id
        AND o.state = 'pending' AND {NOT_BEGUN}
) w
WHERE s.intake = 'wait' AND s.prism_table_id = ANY(:tables) AND w.objects > 0
ORDER BY s.prism_table_id, s.prism_stream_id
"""


def count_waiting(connection: Connection, table_ids: Collection[int], before: datetime) -> dict[int, int]:
    """Returns, by table, objects first seen up to a time that wait or are being converted.

    Ignores stopped streams, and objects of a history, for which nobody waits.
    """
    rows = connection.execute(text(_WAITING), {"tables": list(table_ids), "before": before})
    return {row.prism_table_id: row.objects for row in rows}


_WAITING = f"""
SELECT o.prism_table_id, count(*) AS objects FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.state IN ('pending', 'claimed') AND o.prism_table_id = ANY(:tables) AND o.first_receive_time <= :before
    AND o.history_date IS NULL
    AND NOT (s.intake = 'wait' AND {NOT_BEGUN})
GROUP BY o.prism_table_id
"""


def unfinished_before(connection: Connection, table_id: int, closing_batch_id: int | None) -> int:
    """Returns how many pending or claimed staging objects of a table a batch up to the mark saw first.

    Without a mark, counts objects seen by any batch.
    """
    values = {"table": table_id, "mark": closing_batch_id}
    return int(connection.execute(text(_UNFINISHED_BEFORE), values).scalar_one())


_UNFINISHED_BEFORE = """
SELECT count(*) FROM prism_staging_objects
WHERE prism_table_id = :table AND state IN ('pending', 'claimed') AND first_batch_id IS NOT NULL
    AND (CAST(:mark AS bigint) IS NULL OR first_batch_id <= :mark)
"""

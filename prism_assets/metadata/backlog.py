"""Counts of what waits to be converted. Reads without locks, by partial indexes: sensors ask that at every tick."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.words import counted
from prism_assets.metadata.claims import IS_BEGUN, IS_DUE, MAY_BEGIN, NEVER_CLAIMED


@dataclass(frozen=True, kw_only=True)
class PendingCount:
    """Staging objects of a table that a batch could claim now, and those that an attempt has left to be looked after.

    Those are the ones that a dead batch still holds, and those whose uploads are to be removed.
    """

    table_id: int
    pending: int
    abandoned: int


def count_pending(connection: Connection, lease_seconds: float, at_most: int = 1_000) -> list[PendingCount]:
    """Tables with work for Stream; counting stops at `at_most` objects a stream, so that a backlog costs no more."""
    rows = connection.execute(text(_PENDING), {"lease": lease_seconds, "most": at_most})
    return [
        PendingCount(table_id=row.prism_table_id, pending=int(row.pending), abandoned=int(row.abandoned))
        for row in rows
    ]


# Of a stream that is read: what its own table has claimed, or may claim, unless it flips; of a discarded one, what is to
# be counted done. What was begun at a stream that goes another way now is its table's. So far by the conditions of
# claims. Then what dead batches hold, what is due to be tried again, and what has uploads to be removed: the last as
# `due_uploads` has it.
_PENDING = f"""
SELECT prism_table_id, sum(pending) AS pending, sum(abandoned) AS abandoned FROM (
    SELECT s.prism_table_id, w.pending, 0 AS abandoned FROM prism_streams s JOIN prism_tables t USING (prism_table_id)
    CROSS JOIN LATERAL (SELECT count(*) AS pending FROM (
        SELECT 1 FROM prism_staging_objects o WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
            AND o.prism_table_id = s.prism_table_id
            AND (s.intake = 'convert' AND {MAY_BEGIN}
                OR s.intake = 'discard' AND {NEVER_CLAIMED})
            AND {IS_DUE} LIMIT :most) q) w
    WHERE s.intake <> 'wait' AND w.pending > 0
    UNION ALL
    SELECT o.prism_table_id, count(*), 0 FROM prism_streams s JOIN prism_staging_objects o USING (prism_stream_id)
    WHERE {IS_BEGUN} AND {IS_DUE}
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
    """Pending objects of all streams but stopped ones, those that wait for another try included; stops at `at_most`."""
    return int(connection.execute(text(_BACKLOG), {"most": at_most}).scalar_one())


_BACKLOG = """
SELECT count(*) FROM (
    SELECT 1 FROM prism_streams s JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
    WHERE s.intake <> 'wait' AND o.state = 'pending' LIMIT :most
) q
"""


@dataclass(frozen=True, kw_only=True)
class StagingCounts:
    """How many staging objects of a table wait or are being converted; `latest_error` is that of one that was tried.

    Those that no batch has claimed and whose stream is stopped are not among them: see `count_stopped`. Of the pending
    ones some may be `held_up`: no batch begins with them before a flip of the table has ended.
    """

    table_id: int
    pending: int
    held_up: int
    claimed: int
    latest_error: str | None


def count_unfinished(connection: Connection) -> list[StagingCounts]:
    """Unfinished objects by table, where there are any."""
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
        AND NOT (s.intake = 'wait' AND {NEVER_CLAIMED})
    GROUP BY o.prism_table_id
) u LEFT JOIN prism_staging_objects o ON o.prism_staging_object_id = u.latest_tried
"""


@dataclass(frozen=True, kw_only=True)
class StoppedStream:
    """A stream that its table file has stopped, and how many objects wait there that no batch has claimed."""

    table_id: int
    stream: str
    url: str
    objects: int

    @property
    def sentence(self) -> str:
        """What waits, and what ends that."""
        return (
            f"{counted(self.objects, 'object waits', 'objects wait')} at {self.url}, as stream {self.stream} is "
            "stopped: `enabled: true` in the table file has them converted, `discard: true` beside it counts them done"
        )


def count_stopped(connection: Connection, table_ids: Collection[int]) -> list[StoppedStream]:
    """The stopped streams of some tables at which objects wait, by table and id."""
    rows = connection.execute(text(_STOPPED), {"tables": list(table_ids)})
    return [StoppedStream(**row._mapping) for row in rows]


_STOPPED = f"""
SELECT s.prism_table_id AS table_id, s.stream_name AS stream, format('s3://%s/%s', s.bucket_name, s.key_prefix) AS url,
    w.objects
FROM prism_streams s CROSS JOIN LATERAL (
    SELECT count(*) AS objects FROM prism_staging_objects o WHERE o.prism_stream_id = s.prism_stream_id
        AND o.state = 'pending' AND {NEVER_CLAIMED}
) w
WHERE s.intake = 'wait' AND s.prism_table_id = ANY(:tables) AND w.objects > 0
ORDER BY s.prism_table_id, s.prism_stream_id
"""


def count_waiting(connection: Connection, table_ids: Collection[int], before: datetime) -> dict[int, int]:
    """How many objects first seen up to a time wait to be converted, or are just being: by table, where there are.

    Without those that wait at a stopped stream.
    """
    rows = connection.execute(text(_WAITING), {"tables": list(table_ids), "before": before})
    return {row.prism_table_id: row.objects for row in rows}


_WAITING = f"""
SELECT o.prism_table_id, count(*) AS objects FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.state IN ('pending', 'claimed') AND o.prism_table_id = ANY(:tables) AND o.first_receive_time <= :before
    AND NOT (s.intake = 'wait' AND {NEVER_CLAIMED})
GROUP BY o.prism_table_id
"""


def unfinished_before(connection: Connection, table_id: int, closing_batch_id: int | None) -> int:
    """How many staging objects of a table that a batch up to the mark saw first are still pending or claimed.

    Without a mark, those that any batch saw.
    """
    values = {"table": table_id, "mark": closing_batch_id}
    return int(connection.execute(text(_UNFINISHED_BEFORE), values).scalar_one())


_UNFINISHED_BEFORE = """
SELECT count(*) FROM prism_staging_objects
WHERE prism_table_id = :table AND state IN ('pending', 'claimed') AND first_batch_id IS NOT NULL
    AND (CAST(:mark AS bigint) IS NULL OR first_batch_id <= :mark)
"""

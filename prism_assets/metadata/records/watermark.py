"""Statements on the watermarks of join tables. A record older than the watermark may settle: no change can reach it.

A change is accepted unless it is older than the watermark at the first claim of its object. The watermark moves only
while no batch starts. So each batch starts either before or after the move, and a fold that reads the settling limit
sees the objects of all earlier batches.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.streams.topic import BUCKET_PREFIX
from prism_assets.metadata.intake.streams import IN_USE

MARGIN_SECONDS = 300
"""Seconds the watermark stays behind the last complete discovery, because the clocks of S3 and of hosts differ."""


def find_movable(connection: Connection, log_ids: Collection[int] | None) -> list[int]:
    """Returns the join tables whose watermark can move now: all, or the tables with one of these logs of changes.

    Reads without locks.
    """
    values = {"logs": None if log_ids is None else list(log_ids), "margin": MARGIN_SECONDS}
    return list(connection.execute(text(_MOVABLE), values).scalars())


def move(connection: Connection, table_ids: Collection[int]) -> None:
    """Moves the watermarks of join tables, given by the ids of their records, as far as possible, and never back.

    The caller holds the epoch lock exclusively, so no batch starts meanwhile and all earlier ones are visible. Locks
    the rows of the tables.
    """
    connection.execute(text(_MOVE), {"tables": list(table_ids), "margin": MARGIN_SECONDS})


# Everything that could be read in the stream `s` before this time is registered: by a listing of the whole stream begun
# later, or by positions in all partitions of its topic. Null if there is no such time, or the listing is unfinished.
# Listings that resume at the last key do not count, because keys come in any order.
_COMPLETE = f"""
CASE WHEN starts_with(s.bucket_name, '{BUCKET_PREFIX}') THEN (
    SELECT CASE WHEN bool_and(p.complete_time IS NOT NULL) THEN min(p.complete_time) END
    FROM prism_topics t JOIN prism_topic_partitions p USING (prism_topic_id)
    WHERE t.prism_stream_id = s.prism_stream_id AND NOT t.ended)
WHEN x.resume_key IS NULL THEN x.full_scan_time END
"""
_SENT = "coalesce(o.sent_after, o.send_time, o.first_receive_time)"
# Everything sent before this time is discovered, and none of it waits or is being converted. A stream in use without a
# complete time holds the watermark. An object waiting at a stopped stream also holds it. Served by an index.
_WANTED = f"""
SELECT c.changes_of AS table_id, c.prism_table_id AS log_id,
    least(waiting.since, listed.time - margin.length, clock_timestamp() - margin.length) AS clock
FROM prism_tables c
CROSS JOIN LATERAL (SELECT make_interval(secs => :margin) AS length) margin
CROSS JOIN LATERAL (
    SELECT min({_SENT}) AS since FROM prism_staging_objects o
    WHERE o.prism_table_id = c.prism_table_id AND o.state IN ('pending', 'claimed')
) waiting
CROSS JOIN LATERAL (
    SELECT min(f.time) AS time, coalesce(bool_and(f.time IS NOT NULL), true) AS is_whole FROM (
        SELECT {_COMPLETE} AS time FROM prism_streams s LEFT JOIN prism_stream_scans x USING (prism_stream_id)
        WHERE s.prism_table_id = c.prism_table_id AND {IN_USE}
    ) f
) listed
WHERE c.changes_of IS NOT NULL AND listed.is_whole
"""
_MOVABLE = f"""
SELECT r.prism_table_id FROM ({_WANTED}) w JOIN prism_tables r ON r.prism_table_id = w.table_id
WHERE (r.watermark IS NULL OR r.watermark < w.clock)
    AND (CAST(:logs AS bigint[]) IS NULL OR w.log_id = ANY(CAST(:logs AS bigint[])))
ORDER BY r.prism_table_id
"""
_MOVE = f"""
UPDATE prism_tables r SET watermark = w.clock FROM ({_WANTED}) w
WHERE r.prism_table_id = w.table_id AND r.prism_table_id = ANY(:tables)
    AND (r.watermark IS NULL OR r.watermark < w.clock)
"""


def load(connection: Connection, table_id: int) -> datetime | None:
    """Returns the watermark of a join table, given by the id of its records, or None if it never moved. No locks."""
    time: datetime | None = connection.execute(text(_LOAD), {"table": table_id}).scalar_one()
    return time


_LOAD = "SELECT watermark FROM prism_tables WHERE prism_table_id = :table"


def settle_before(connection: Connection, table_id: int) -> datetime | None:
    """Returns the limit of settling in a join table, given by the id of its records. None if nothing may settle.

    Records before the limit settle, because no change can meet them any more. The limit is the table's watermark, or an
    earlier one. An object not yet finished by its batch, or with set-aside changes, holds the limit at the watermark of
    its first claim: its changes are still to come and are accepted by that watermark.

    Ask before reading the changes, so that changes committed in between are among those read. One statement, without
    locks.
    """
    time: datetime | None = connection.execute(text(_SETTLE_BEFORE), {"table": table_id}).scalar_one()
    return time


_SETTLE_BEFORE = """
SELECT CASE WHEN begun.is_known THEN least(r.watermark, begun.clock) END
FROM prism_tables r CROSS JOIN LATERAL (
    SELECT min(o.watermark) AS clock,
        r.watermark IS NOT NULL AND coalesce(bool_and(o.watermark IS NOT NULL), true) AS is_known
    FROM (
        SELECT o.watermark FROM prism_tables c JOIN prism_staging_objects o USING (prism_table_id)
        WHERE c.changes_of = r.prism_table_id AND o.state IN ('pending', 'claimed') AND o.first_batch_id IS NOT NULL
        UNION ALL
        SELECT o.watermark FROM prism_tables c JOIN prism_partitions p USING (prism_table_id)
        JOIN prism_set_aside_changes a USING (prism_partition_id) JOIN prism_small_objects s USING (prism_small_object_id)
        JOIN prism_staging_objects o USING (prism_staging_object_id)
        WHERE c.changes_of = r.prism_table_id
    ) o
) begun
WHERE r.prism_table_id = :table
"""


@dataclass(frozen=True, kw_only=True)
class ClockHold:
    """The oldest waiting object and the stream listed longest ago: they hold the watermark of a join table."""

    time: datetime
    """The watermark. If it never moved, the creation of the table."""
    object_url: str | None
    """None if no object waits."""
    sent: datetime | None
    stream: str | None
    """None if no stream is read."""
    listed: datetime | None
    """None if the stream was never listed as a whole, or its topic was never read to the end."""
    is_topic: bool
    """The stream reads a topic."""


def load_hold(connection: Connection, table_id: int) -> ClockHold:
    """Returns the reasons that hold a join table's watermark, given by the id of its records. Reads without locks."""
    return ClockHold(**connection.execute(text(_HOLD), {"table": table_id}).one()._mapping)


_HOLD = f"""
SELECT coalesce(r.watermark, r.create_time) AS time, waiting.object_url, waiting.sent, listed.stream, listed.listed,
    coalesce(listed.is_topic, false) AS is_topic
FROM prism_tables r JOIN prism_tables c ON c.changes_of = r.prism_table_id
LEFT JOIN LATERAL (
    SELECT format('s3://%s/%s', o.bucket_name, o.object_key) AS object_url,
        {_SENT} AS sent
    FROM prism_staging_objects o WHERE o.prism_table_id = c.prism_table_id AND o.state IN ('pending', 'claimed')
    ORDER BY 2, 1 LIMIT 1
) waiting ON true
LEFT JOIN LATERAL (
    SELECT s.stream_name AS stream, {_COMPLETE} AS listed, starts_with(s.bucket_name, '{BUCKET_PREFIX}') AS is_topic
    FROM prism_streams s LEFT JOIN prism_stream_scans x USING (prism_stream_id)
    WHERE s.prism_table_id = c.prism_table_id AND {IN_USE}
    ORDER BY 2 NULLS FIRST, 1 LIMIT 1
) listed ON true
WHERE r.prism_table_id = :table
"""

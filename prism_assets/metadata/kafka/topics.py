"""Statements on prism_topics, and the registration of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.streams.topic import BUCKET_PREFIX
from prism_assets.metadata.intake.streams import IN_USE


@dataclass(frozen=True, kw_only=True)
class TopicStream:
    """A stream that reads a topic, with the registered topic if there is one."""

    stream_id: int
    table_id: int
    topic_pk: int | None
    """The row of the topic, or None before the first registration and after `prism kafka restart`."""
    cluster_id: str | None
    topic_id: str | None
    next_start: str | None
    """Where the topic begins that follows one ended by `prism kafka restart`. None: by the table file."""
    partitions: int
    """The registered partitions."""
    has_error: bool
    """Whether the last look at the topic failed."""


def load_topic_streams(connection: Connection) -> dict[tuple[int, str, str], TopicStream]:
    """Returns the streams of topics by table, bucket and prefix, without removed ones. Reads without locks."""
    rows = connection.execute(text(_STREAMS), {"topics": f"{BUCKET_PREFIX}%"})
    return {
        (row.prism_table_id, row.bucket_name, row.key_prefix): TopicStream(
            stream_id=row.prism_stream_id,
            table_id=row.prism_table_id,
            topic_pk=row.prism_topic_id,
            cluster_id=row.cluster_id,
            topic_id=row.topic_id,
            next_start=row.next_start,
            partitions=row.partitions,
            has_error=row.has_error,
        )
        for row in rows
    }


_STREAMS = f"""
SELECT s.prism_stream_id, s.prism_table_id, s.bucket_name, s.key_prefix, t.prism_topic_id, t.cluster_id, t.topic_id,
    (SELECT e.next_start FROM prism_topics e WHERE e.prism_stream_id = s.prism_stream_id AND e.ended
        ORDER BY e.prism_topic_id DESC LIMIT 1) AS next_start,
    (SELECT count(*) FROM prism_topic_partitions p WHERE p.prism_topic_id = t.prism_topic_id) AS partitions,
    t.last_error IS NOT NULL OR x.last_error IS NOT NULL AS has_error
FROM prism_streams s
LEFT JOIN prism_topics t ON t.prism_stream_id = s.prism_stream_id AND NOT t.ended
LEFT JOIN prism_stream_scans x ON x.prism_stream_id = s.prism_stream_id
WHERE s.bucket_name LIKE :topics AND {IN_USE}
ORDER BY s.prism_stream_id
"""


def load_tables_of(connection: Connection, cluster: str) -> dict[int, int]:
    """Returns the registered topics of a cluster that streams in use read, each with its table. Reads without locks."""
    rows = connection.execute(text(_TABLES), {"bucket": f"{BUCKET_PREFIX}{cluster}"})
    return {row.prism_topic_id: row.prism_table_id for row in rows}


_TABLES = f"""
SELECT t.prism_topic_id, s.prism_table_id FROM prism_streams s JOIN prism_topics t USING (prism_stream_id)
WHERE s.bucket_name = :bucket AND NOT t.ended AND t.last_error IS NULL AND {IN_USE}
"""


def register(
    connection: Connection,
    stream_id: int,
    *,
    cluster_id: str,
    topic_id: str,
    topic_name: str,
    first_offsets: Mapping[int, int],
) -> bool:
    """Registers a topic, or adds its new partitions. Returns False if another topic is registered meanwhile.

    `first_offsets` has the offset at which each new partition begins. Locks the row of the stream, so two workers
    register one after the other, and the second one finds the partitions of the first.
    """
    if connection.execute(text(_LOCK_STREAM), {"stream": stream_id}).scalar() is None:
        return False
    values = {"stream": stream_id, "cluster": cluster_id, "topic": topic_id, "name": topic_name}
    row = connection.execute(text(_ACTIVE), values).one_or_none()
    if row is None:
        row = connection.execute(text(_INSERT), values).one_or_none()
    if row is None or (row.cluster_id, row.topic_id) != (cluster_id, topic_id):
        return False
    parts = sorted(first_offsets.items())
    added = {"pk": row.prism_topic_id, "numbers": [n for n, _ in parts], "offsets": [offset for _, offset in parts]}
    connection.execute(text(_ADD_PARTITIONS), added)
    connection.execute(text(_ADD_STARTS), added)
    return True


_LOCK_STREAM = "SELECT 1 FROM prism_streams WHERE prism_stream_id = :stream AND NOT removed FOR UPDATE"
_ACTIVE = """
SELECT prism_topic_id, cluster_id, topic_id FROM prism_topics WHERE prism_stream_id = :stream AND NOT ended
"""
# A topic that a person ended may be read again: its row begins to read where it stopped.
_INSERT = """
INSERT INTO prism_topics (prism_stream_id, cluster_id, topic_id, topic_name)
VALUES (:stream, :cluster, :topic, :name)
ON CONFLICT (prism_stream_id, cluster_id, topic_id) DO UPDATE SET ended = false, last_error = NULL, error_time = NULL
RETURNING prism_topic_id, cluster_id, topic_id
"""
_ADD_PARTITIONS = """
INSERT INTO prism_topic_partitions (prism_topic_id, partition, next_offset)
SELECT :pk, n.number, n.next FROM unnest(CAST(:numbers AS integer[]), CAST(:offsets AS bigint[])) AS n (number, next)
ON CONFLICT DO NOTHING
"""
_ADD_STARTS = """
INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind)
SELECT :pk, p.partition, NULL, p.next_offset, 'start' FROM prism_topic_partitions p
WHERE p.prism_topic_id = :pk AND p.partition = ANY(CAST(:numbers AS integer[]))
    AND NOT EXISTS (SELECT 1 FROM prism_offset_ranges r
        WHERE r.prism_topic_id = p.prism_topic_id AND r.partition = p.partition)
"""


def save_error(connection: Connection, topic_pk: int, reason: str) -> None:
    """Stores why a topic cannot be read: it was deleted or recreated. Workers give its partitions back. Locks its row.

    The error goes when the same topic is found again, or when a person restarts the stream.
    """
    connection.execute(text(_SAVE_ERROR), {"pk": topic_pk, "reason": reason})


_SAVE_ERROR = """
UPDATE prism_topics SET last_error = :reason, error_time = coalesce(error_time, clock_timestamp())
WHERE prism_topic_id = :pk AND NOT ended AND last_error IS DISTINCT FROM :reason
"""


def clear_error(connection: Connection, topic_pk: int) -> None:
    """Clears the error of a topic that the brokers have as it was registered. Locks its row."""
    connection.execute(text(_CLEAR_ERROR), {"pk": topic_pk})


_CLEAR_ERROR = """
UPDATE prism_topics SET last_error = NULL, error_time = NULL WHERE prism_topic_id = :pk AND last_error IS NOT NULL
"""

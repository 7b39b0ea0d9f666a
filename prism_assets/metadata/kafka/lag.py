"""Topics with their partitions, as status, findings and checks show them. Reads without locks.

Ages are measured by the clock of PostgreSQL, which also times heartbeats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, text

from prism_assets.domain.streams.topic import BUCKET_PREFIX, topic_url
from prism_assets.metadata.intake.streams import IN_USE
from prism_assets.metadata.kafka.partitions import STOPPED


@dataclass(frozen=True, kw_only=True)
class PartitionLag:
    """One partition of a topic: its position, and the figures that its worker wrote last."""

    partition: int
    next_offset: int
    end_offset: int | None
    """The last stable offset when a worker last looked. None before the first look."""
    lag_seconds: float | None
    """Seconds that messages wait unread: 0 at the end. None where no worker has looked yet."""
    state: str
    last_error: str | None
    error_time: datetime | None
    worker: str | None
    silent_seconds: float
    """Seconds since the last heartbeat of a worker, or since the registration."""

    @property
    def lag_offsets(self) -> int | None:
        """Offsets from the position to the end. They count markers of transactions and compacted messages, too."""
        return None if self.end_offset is None else max(0, self.end_offset - self.next_offset)

    @property
    def is_stopped(self) -> bool:
        """Whether the partition waits for a person."""
        return self.state == STOPPED


@dataclass(frozen=True, kw_only=True)
class TopicLag:
    """A topic that feeds a stream in use, with its partitions."""

    table_id: int
    stream_id: int
    stream: str
    cluster: str
    topic: str
    topic_pk: int | None
    """The row of the topic. None until a worker has registered the topic."""
    cluster_id: str | None
    topic_id: str | None
    waiting_seconds: float
    """Seconds since the registration, or since the definition of the table where there is none."""
    last_error: str | None
    """Why nothing of the topic is read: it was deleted or recreated."""
    error_time: datetime | None
    look_error: str | None
    """Why no worker could look at the topic. The finding of silent streams reports it."""
    partitions: tuple[PartitionLag, ...]

    @property
    def url(self) -> str:
        """`kafka://cluster/topic`."""
        return topic_url(self.cluster, self.topic)

    @property
    def lag_offsets(self) -> int:
        """The sum over all partitions with known ends."""
        return sum(item.lag_offsets or 0 for item in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """The longest wait of a partition."""
        return max((item.lag_seconds for item in self.partitions if item.lag_seconds is not None), default=None)


def load_lags(connection: Connection, table_ids: Collection[int]) -> list[TopicLag]:
    """Returns the topics of enabled streams of some tables, by table and stream, each with its partitions."""
    rows = connection.execute(text(_LAGS), {"tables": list(table_ids), "topics": f"{BUCKET_PREFIX}%"})
    found: dict[int, list[Row[tuple[object, ...]]]] = {}
    for row in rows:
        found.setdefault(row.prism_stream_id, []).append(row)
    return [_topic(of_stream) for of_stream in found.values()]


def _topic(rows: list[Row[tuple[object, ...]]]) -> TopicLag:
    first = rows[0]
    return TopicLag(
        table_id=first.prism_table_id,
        stream_id=first.prism_stream_id,
        stream=first.stream_name,
        cluster=first.bucket_name.removeprefix(BUCKET_PREFIX),
        topic=first.key_prefix.removesuffix("/"),
        topic_pk=first.prism_topic_id,
        cluster_id=first.cluster_id,
        topic_id=first.topic_id,
        waiting_seconds=first.waiting_seconds,
        last_error=first.topic_error,
        error_time=first.topic_error_time,
        look_error=first.look_error,
        partitions=tuple(_partition(row) for row in rows if row.partition is not None),
    )


def _partition(row: Row[tuple[object, ...]]) -> PartitionLag:
    return PartitionLag(
        partition=row.partition,
        next_offset=row.next_offset,
        end_offset=row.end_offset,
        lag_seconds=row.lag_seconds,
        state=row.state,
        last_error=row.last_error,
        error_time=row.error_time,
        worker=row.worker,
        silent_seconds=row.silent_seconds,
    )


# Messages wait since the time up to which everything was read, and not longer than since the last message that was read.
# The first alone would grow while a backlog is read, the second alone in a quiet topic.
_LAGS = f"""
SELECT s.prism_table_id, s.prism_stream_id, s.stream_name, s.bucket_name, s.key_prefix,
    t.prism_topic_id, t.cluster_id, t.topic_id, t.last_error AS topic_error, t.error_time AS topic_error_time,
    x.last_error AS look_error,
    extract(epoch FROM clock_timestamp() - coalesce(t.register_time, d.create_time))::float8 AS waiting_seconds,
    p.partition, p.next_offset, p.end_offset, p.state, p.last_error, p.error_time, p.worker,
    CASE WHEN p.end_offset <= p.next_offset THEN 0
        ELSE extract(epoch FROM clock_timestamp()
            - coalesce(greatest(p.complete_time, p.last_message_time), t.register_time))::float8
        END AS lag_seconds,
    extract(epoch FROM clock_timestamp() - coalesce(p.heartbeat_time, t.register_time))::float8 AS silent_seconds
FROM prism_streams s
JOIN prism_tables b USING (prism_table_id)
JOIN prism_table_definitions d ON d.prism_table_id = b.prism_table_id AND d.version = b.definition_version
LEFT JOIN prism_topics t ON t.prism_stream_id = s.prism_stream_id AND NOT t.ended
LEFT JOIN prism_stream_scans x ON x.prism_stream_id = s.prism_stream_id
LEFT JOIN prism_topic_partitions p ON p.prism_topic_id = t.prism_topic_id
WHERE s.prism_table_id = ANY(:tables) AND s.bucket_name LIKE :topics AND {IN_USE}
ORDER BY s.prism_table_id, s.stream_name, p.partition
"""

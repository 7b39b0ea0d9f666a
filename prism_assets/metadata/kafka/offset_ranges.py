"""Statements on prism_offset_ranges: one gapless chain of offsets for each partition, from its start.

The keys of the table refuse an overlap, a gap and a fork, whatever a worker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost

_IDLE_SECONDS = 10
"""A worker that stands still inside its transaction loses the session before its lease of 15 s."""


@dataclass(frozen=True, kw_only=True)
class ReadRange:
    """Offsets of one partition that were read: `from_offset` up to before `to_offset`."""

    partition: int
    token: str
    from_offset: int
    to_offset: int
    records: int
    """Messages among them. The other offsets are markers, aborted and compacted messages."""
    leader_epoch: int | None
    last_message_time: datetime | None


@dataclass(frozen=True, kw_only=True)
class SpooledObject:
    """A spool object to register."""

    bucket: str
    key: str
    content_length: int
    put_time: datetime


def limit_waits(connection: Connection) -> None:
    """Lets PostgreSQL end this transaction after 10 s without a statement, or of waiting for a lock. Call it first."""
    for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
        connection.execute(text(f"SET LOCAL {name} = '{_IDLE_SECONDS}s'"))


def hold_topic(connection: Connection, topic_pk: int) -> int:
    """Shares the locks of a topic and of its stream until the transaction ends, and returns the stream.

    Meanwhile the stream keeps its table, and nobody restarts it. Everything that changes a topic takes the locks in
    this order: stream, topic, partitions. Raises LeaseLost if the topic ended or no table file names the stream.
    """
    number = connection.execute(text(_HOLD), {"pk": topic_pk}).scalar()
    if number is None:
        raise LeaseLost("the stream was removed or restarted meanwhile; nothing of its messages was committed")
    return int(number)


_HOLD = """
SELECT s.prism_stream_id FROM prism_streams s JOIN prism_topics t USING (prism_stream_id)
WHERE t.prism_topic_id = :pk AND NOT t.ended AND NOT s.removed FOR SHARE OF s, t
"""


def lock_positions(connection: Connection, topic_pk: int, ranges: Sequence[ReadRange]) -> None:
    """Locks the rows of partitions, in order, and compares them with the ranges that a worker read.

    Raises LeaseLost if another worker has a partition, or if the position moved: nothing may be committed then.
    """
    rows = connection.execute(text(_LOCK), {"pk": topic_pk, "numbers": [item.partition for item in ranges]})
    found = {row.partition: (row.token, row.next_offset) for row in rows}
    lost = sorted(item.partition for item in ranges if found.get(item.partition) != (item.token, item.from_offset))
    if lost:
        raise LeaseLost(
            f"partitions {', '.join(map(str, lost))} belong to another worker, or moved on; nothing of these messages "
            "was committed, and their next reader reads them again"
        )


_LOCK = """
SELECT partition, CAST(lease_token AS text) AS token, next_offset FROM prism_topic_partitions
WHERE prism_topic_id = :pk AND partition = ANY(CAST(:numbers AS integer[])) ORDER BY partition FOR UPDATE
"""


def register_object(
    connection: Connection, stream_id: int, topic_pk: int, spooled: SpooledObject, ranges: Sequence[ReadRange]
) -> int:
    """Inserts a spool object as a staging object of its stream, and returns its id.

    The caller holds the stream and the rows of the partitions. The messages could be read after the complete times of
    their partitions, or they would have been registered before.
    """
    values = {
        "stream": stream_id,
        "pk": topic_pk,
        "numbers": [item.partition for item in ranges if item.records],
        "bucket": spooled.bucket,
        "key": spooled.key,
        "length": spooled.content_length,
        "time": spooled.put_time,
    }
    return int(connection.execute(text(_REGISTER), values).scalar_one())


_REGISTER = """
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, content_length, send_time,
    sent_after, first_receive_time)
SELECT prism_stream_id, prism_table_id, :bucket, :key, :length, :time,
    (SELECT least(min(coalesce(complete_time, to_timestamp(0))), :time) FROM prism_topic_partitions
    WHERE prism_topic_id = :pk AND partition = ANY(CAST(:numbers AS integer[]))), :time
FROM prism_streams
WHERE prism_stream_id = :stream
RETURNING prism_staging_object_id
"""


def append(connection: Connection, topic_pk: int, ranges: Sequence[ReadRange], staging_object_id: int | None) -> None:
    """Adds ranges to the chains of their partitions, and moves the positions. The caller holds the rows.

    Ranges without records have no object.
    """
    ordered = sorted(ranges, key=lambda item: item.partition)
    values = {
        "pk": topic_pk,
        "object": staging_object_id,
        "numbers": [item.partition for item in ordered],
        "froms": [item.from_offset for item in ordered],
        "tos": [item.to_offset for item in ordered],
        "records": [item.records for item in ordered],
        "epochs": [item.leader_epoch for item in ordered],
        "times": [item.last_message_time for item in ordered],
    }
    connection.execute(text(_APPEND), values)
    connection.execute(text(_MOVE), values)


_ITEMS = """
unnest(CAST(:numbers AS integer[]), CAST(:froms AS bigint[]), CAST(:tos AS bigint[]), CAST(:records AS bigint[]),
    CAST(:epochs AS integer[]), CAST(:times AS timestamptz[])) AS i (number, begin, until, records, epoch, last)
"""
_APPEND = f"""
INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind, prism_staging_object_id,
    records, leader_epoch)
SELECT :pk, i.number, i.begin, i.until, 'read', CASE WHEN i.records > 0 THEN CAST(:object AS bigint) END, i.records, i.epoch
FROM {_ITEMS}
"""
_MOVE = f"""
UPDATE prism_topic_partitions p SET next_offset = i.until, leader_epoch = coalesce(i.epoch, p.leader_epoch),
    heartbeat_time = clock_timestamp(), last_message_time = coalesce(i.last, p.last_message_time),
    end_offset = greatest(p.end_offset, i.until)
FROM {_ITEMS}
WHERE p.prism_topic_id = :pk AND p.partition = i.number
"""

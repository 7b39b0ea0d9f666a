"""Decisions of people about topics: skipped offsets and ended topics."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class LockedPartition:
    """The position of a partition, under its lock."""

    next_offset: int
    state: str


def lock_partition(connection: Connection, topic_pk: int, partition: int) -> LockedPartition | None:
    """Locks a partition of an active topic. Returns None for an ended topic or an unknown partition.

    Shares the lock of the topic's row first, so no restart ends the topic meanwhile. A running flush holds the
    partition's row, so this call waits for the flush.
    """
    given = {"topic": topic_pk, "partition": partition}
    if connection.execute(text(_SHARE_TOPIC), given).one_or_none() is None:
        return None
    row = connection.execute(text(_LOCK_PARTITION), given).one_or_none()
    return None if row is None else LockedPartition(next_offset=row.next_offset, state=row.state)


_SHARE_TOPIC = "SELECT 1 FROM prism_topics WHERE prism_topic_id = :topic AND NOT ended FOR SHARE"
_LOCK_PARTITION = """
SELECT next_offset, state FROM prism_topic_partitions
WHERE prism_topic_id = :topic AND partition = :partition FOR UPDATE
"""


def skip(connection: Connection, topic_pk: int, partition: int, to_offset: int, reason: str) -> None:
    """Moves the position to `to_offset`, records the reason, and frees the partition for any worker.

    The lease ends, so the current reader commits nothing of its buffer. The epoch ends, because after a truncation the
    broker would refuse the epoch again. A move to the position itself writes no range. The caller holds the row of the
    partition.
    """
    given = {"topic": topic_pk, "partition": partition, "to": to_offset, "reason": reason}
    connection.execute(text(_SKIPPED_RANGE), given)
    connection.execute(text(_MOVE), given)


_SKIPPED_RANGE = """
INSERT INTO prism_offset_ranges (prism_topic_id, partition, from_offset, to_offset, kind, reason)
SELECT prism_topic_id, partition, next_offset, :to, 'skipped', :reason FROM prism_topic_partitions
WHERE prism_topic_id = :topic AND partition = :partition AND next_offset < :to
"""
_MOVE = """
UPDATE prism_topic_partitions SET next_offset = :to, leader_epoch = NULL, state = 'reading', last_error = NULL,
    error_time = NULL, worker = NULL, lease_token = NULL
WHERE prism_topic_id = :topic AND partition = :partition
"""


def end_topic(connection: Connection, topic_pk: int, next_start: str) -> bool:
    """Ends a topic. The stream's next topic begins at `next_start`. Returns False for an ended topic.

    Ends the leases of all partitions, so current readers commit nothing of their buffers. Locks the topic, then the
    partitions in order, as a flush does.
    """
    given = {"topic": topic_pk, "start": next_start}
    ended = connection.execute(text(_END), given).rowcount
    if ended:
        connection.execute(text(_LOCK_PARTITIONS), given)
        connection.execute(text(_RELEASE), given)
    return bool(ended)


_LOCK_PARTITIONS = """
SELECT 1 FROM prism_topic_partitions WHERE prism_topic_id = :topic ORDER BY partition FOR UPDATE
"""
_END = "UPDATE prism_topics SET ended = true, next_start = :start WHERE prism_topic_id = :topic AND NOT ended"
_RELEASE = "UPDATE prism_topic_partitions SET worker = NULL, lease_token = NULL WHERE prism_topic_id = :topic"

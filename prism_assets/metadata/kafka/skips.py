"""Decisions of people about topics: offsets that are not read, and topics that end."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class LockedPartition:
    """The position of a partition, under its lock."""

    next_offset: int
    state: str


def lock_partition(connection: Connection, topic_pk: int, partition: int) -> LockedPartition | None:
    """Locks a partition of a topic that has not ended. Returns None if there is none.

    Waits for a flush, which locks the same row. Locks the row of the topic in share mode first, so that no restart ends
    it meanwhile.
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
    """Moves the position to `to_offset`, with a range that says why, and lets any worker take the partition.

    The lease ends, so a worker that reads the partition commits nothing of its buffer. The epoch ends, too: after a
    truncated log the broker would refuse it again. At the position itself no range is written. The caller holds the row
    of the partition.
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
    """Ends a topic. The next registration of its stream begins at `next_start`. Returns False if it had ended.

    Takes the leases of all partitions, so a worker that reads the topic commits nothing of its buffer. Locks the topic,
    then its partitions in order, as a flush does.
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

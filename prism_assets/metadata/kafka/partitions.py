"""Statements on prism_topic_partitions: positions in topics, and leases of workers.

A motionless worker loses the lease by time alone. The next worker gets a new token, so a flush under the old token
changes nothing. All times are the database's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.leases import do_not_wait_for_the_disk

STOPPED = "stopped"
"""The state of a partition waiting for a person. All others are `reading`."""


@dataclass(frozen=True, kw_only=True)
class KnownPartition:
    """A partition with its reader."""

    topic_pk: int
    partition: int
    is_stopped: bool
    worker: str | None
    silent_seconds: float | None
    """Time since the last sign of life of the reader, or since the registration without one."""


@dataclass(frozen=True, kw_only=True)
class TakenPartition:
    """A partition in the hands of a worker. No other one has its token."""

    topic_pk: int
    partition: int
    token: str
    next_offset: int
    leader_epoch: int | None


def load_partitions(connection: Connection, topic_pks: Collection[int]) -> list[KnownPartition]:
    """Returns the partitions of topics, in order. Reads without locks."""
    return [
        KnownPartition(
            topic_pk=row.prism_topic_id,
            partition=row.partition,
            is_stopped=row.state == STOPPED,
            worker=row.worker if row.lease_token is not None else None,
            silent_seconds=None if row.silent is None else max(float(row.silent), 0.0),
        )
        for row in connection.execute(text(_PARTITIONS), {"pks": list(topic_pks)})
    ]


_PARTITIONS = """
SELECT p.prism_topic_id, p.partition, p.state, p.worker, p.lease_token,
    extract(epoch FROM clock_timestamp() - coalesce(p.heartbeat_time, t.register_time)) AS silent
FROM prism_topic_partitions p JOIN prism_topics t USING (prism_topic_id)
WHERE p.prism_topic_id = ANY(:pks) ORDER BY p.prism_topic_id, p.partition
"""


def take(
    connection: Connection, wanted: Collection[tuple[int, int]], worker: str, lease_seconds: float
) -> list[TakenPartition]:
    """Takes free partitions, partitions of silent workers, and partitions held by this worker before an error.

    Locks the rows with SKIP LOCKED, so taking waits for nobody. Stopped partitions are left out.
    """
    ordered = sorted(wanted)
    rows = connection.execute(
        text(_TAKE),
        {
            "pks": [pk for pk, _ in ordered],
            "numbers": [number for _, number in ordered],
            "worker": worker,
            "lease": lease_seconds,
        },
    )
    return [
        TakenPartition(
            topic_pk=row.prism_topic_id,
            partition=row.partition,
            token=row.token,
            next_offset=row.next_offset,
            leader_epoch=row.leader_epoch,
        )
        for row in rows
    ]


_TAKE = """
WITH free AS MATERIALIZED (
    SELECT p.prism_topic_id, p.partition FROM prism_topic_partitions p
    JOIN unnest(CAST(:pks AS bigint[]), CAST(:numbers AS integer[])) AS w (pk, number)
        ON w.pk = p.prism_topic_id AND w.number = p.partition
    WHERE p.state = 'reading' AND (p.lease_token IS NULL OR p.worker = :worker
        OR p.heartbeat_time < clock_timestamp() - make_interval(secs => :lease))
    ORDER BY p.prism_topic_id, p.partition FOR UPDATE OF p SKIP LOCKED
)
UPDATE prism_topic_partitions p
SET lease_token = gen_random_uuid(), worker = :worker, heartbeat_time = clock_timestamp()
FROM free f WHERE f.prism_topic_id = p.prism_topic_id AND f.partition = p.partition
RETURNING p.prism_topic_id, p.partition, CAST(p.lease_token AS text) AS token, p.next_offset, p.leader_epoch
"""


def beat(
    connection: Connection,
    tokens: Sequence[str],
    ends: Mapping[tuple[int, int], int] | None = None,
    seen: datetime | None = None,
) -> set[str]:
    """Renews leases, and notes the last stable offsets. Returns the tokens still held.

    `seen` is a time before the brokers were asked for the offsets. Once a position reaches the offset, all messages
    readable at `seen` are registered, and the watermarks of join tables may pass `seen`. Without `seen` no time is
    noted. Locks the rows of the partitions.
    """
    do_not_wait_for_the_disk(connection)
    noted = sorted((ends or {}).items())
    rows = connection.execute(
        text(_BEAT),
        {
            "tokens": list(tokens),
            "pks": [place[0] for place, _ in noted],
            "numbers": [place[1] for place, _ in noted],
            "ends": [end for _, end in noted],
            "seen": seen,
        },
    )
    return {row.token for row in rows}


# A goal stands until it is reached, so that a partition that is always behind has complete times, too.
_HAS_NEW_GOAL = """
h.stable IS NOT NULL AND CAST(:seen AS timestamptz) IS NOT NULL AND coalesce(p.next_offset >= p.goal_offset, true)
"""
_BEAT = f"""
WITH held AS MATERIALIZED (
    SELECT p.prism_topic_id, p.partition, e.stable FROM prism_topic_partitions p
    LEFT JOIN unnest(CAST(:pks AS bigint[]), CAST(:numbers AS integer[]), CAST(:ends AS bigint[]))
        AS e (pk, number, stable) ON e.pk = p.prism_topic_id AND e.number = p.partition
    WHERE p.lease_token = ANY(CAST(:tokens AS uuid[]))
    ORDER BY p.prism_topic_id, p.partition FOR UPDATE OF p
)
UPDATE prism_topic_partitions p
SET heartbeat_time = clock_timestamp(), end_offset = coalesce(h.stable, p.end_offset),
    complete_time = CASE WHEN p.next_offset >= p.goal_offset THEN p.goal_time ELSE p.complete_time END,
    goal_offset = CASE WHEN {_HAS_NEW_GOAL} THEN h.stable ELSE p.goal_offset END,
    goal_time = CASE WHEN {_HAS_NEW_GOAL} THEN least(CAST(:seen AS timestamptz), clock_timestamp()) ELSE p.goal_time END
FROM held h WHERE h.prism_topic_id = p.prism_topic_id AND h.partition = p.partition
RETURNING CAST(p.lease_token AS text) AS token
"""


def release(connection: Connection, tokens: Sequence[str]) -> None:
    """Gives partitions back. Locks their rows. Those that another worker took meanwhile stay there."""
    connection.execute(text(_RELEASE), {"tokens": list(tokens)})


_RELEASE = """
UPDATE prism_topic_partitions SET lease_token = NULL, worker = NULL
WHERE lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def stop(connection: Connection, token: str, reason: str) -> None:
    """Stops a partition until a person decides, and gives it back. Locks its row."""
    connection.execute(text(_STOP), {"token": token, "reason": reason})


_STOP = """
UPDATE prism_topic_partitions SET state = 'stopped', last_error = :reason, error_time = clock_timestamp(),
    lease_token = NULL, worker = NULL
WHERE lease_token = CAST(:token AS uuid)
"""

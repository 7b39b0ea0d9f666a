"""Statements on prism_topic_partitions: positions, and the leases of the workers that read them.

A worker that stood still for longer than its lease finds its token gone, and its flush changes nothing. All times are
the database's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

STOPPED = "stopped"
"""The state of a partition that waits for a person. Any other one is `reading`."""


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
    """Takes partitions that nobody reads, whose reader is silent, or that this worker held before an error.

    Locks their rows with SKIP LOCKED, so taking waits for nobody. A stopped partition waits for a person.
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
    """Renews leases, and notes the last stable offsets. Returns the tokens that the worker still has.

    `seen` is a time before the offsets were asked for. Once the position of a partition reaches its offset, everything
    that could be read by then is registered: the watermark of a join table rests on it. Without `seen` no such time is
    noted. Locks the rows of the partitions.
    """
    connection.execute(text("SET LOCAL synchronous_commit = off"))
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

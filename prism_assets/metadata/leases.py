"""Statements on prism_leases: the right to work at a table or a partition alone, while its holder shows that it lives.

A holder that dies or stands still loses it by time alone, and finds its token gone before it changes anything more. All
times are the database's. Taking a lease waits for nobody.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost


class LeaseKind(enum.Enum):
    """What a lease is for: to publish a table, also as Iceberg, collect its garbage, erase rows, fold its changes or adopt
    its older days; to repair or rebuild a day.
    """

    CATALOG = "catalog"
    ICEBERG = "iceberg"
    REPAIR = "repair"
    GC = "gc"
    REBUILD = "rebuild"
    ERASE = "erase"
    FOLD = "fold"
    ADOPT = "adopt"


@dataclass(frozen=True)
class Lease:
    """A lease as its holder knows it. Nobody else has its token."""

    kind: LeaseKind
    subject_id: int
    token: str


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lease, and since when; `silent_seconds` is how long ago it last showed that it lives."""

    worker: str
    since: datetime
    silent_seconds: float

    def __str__(self) -> str:
        return f"{self.worker}, since {self.since:%Y-%m-%d %H:%M:%S}Z"


def in_brackets(holder: Holder | None) -> str:
    """` (the holder)`, for a sentence on work that was skipped; nothing if it just ended."""
    return f" ({holder})" if holder else ""


def take(
    connection: Connection, kind: LeaseKind, subject_ids: Collection[int], worker: str, lease_seconds: float
) -> list[Lease]:
    """Takes the leases that are free, or whose holder was silent for too long.

    Rows are inserted in id order. One that is locked is its holder's: it is passed over, also by the insert, which would
    wait for the end of an update of the same key. To be called in a transaction of its own.
    """
    _do_not_wait_for_the_disk(connection)
    wanted = {"kind": kind.value, "worker": worker, "lease": lease_seconds}
    free = connection.execute(text(_TAKE_FREE), {**wanted, "ids": sorted(subject_ids)})
    taken = {row.subject_id: Lease(kind, row.subject_id, row.token) for row in free}
    rest = sorted(set(subject_ids) - set(taken))
    if rest:
        left = connection.execute(text(_TAKE_SILENT), {**wanted, "ids": rest})
        taken |= {row.subject_id: Lease(kind, row.subject_id, row.token) for row in left}
    return list(taken.values())


_TAKE_FREE = """
INSERT INTO prism_leases (kind, subject_id, lease_token, worker, start_time, heartbeat_time)
SELECT :kind, id, gen_random_uuid(), :worker, clock_timestamp(), clock_timestamp()
FROM unnest(CAST(:ids AS bigint[])) AS w (id)
WHERE NOT EXISTS (SELECT 1 FROM prism_leases l WHERE l.kind = :kind AND l.subject_id = w.id)
ORDER BY id
ON CONFLICT DO NOTHING
RETURNING subject_id, CAST(lease_token AS text) AS token
"""
_TAKE_SILENT = """
WITH silent AS MATERIALIZED (
    SELECT kind, subject_id FROM prism_leases
    WHERE kind = :kind AND subject_id = ANY(:ids)
        AND heartbeat_time < clock_timestamp() - make_interval(secs => :lease)
    ORDER BY subject_id FOR UPDATE SKIP LOCKED
)
UPDATE prism_leases l SET lease_token = gen_random_uuid(), worker = :worker,
    start_time = clock_timestamp(), heartbeat_time = clock_timestamp()
FROM silent s
WHERE l.kind = s.kind AND l.subject_id = s.subject_id
RETURNING l.subject_id, CAST(l.lease_token AS text) AS token
"""


def hold(connection: Connection, lease: Lease) -> None:
    """Renews a lease and keeps its row locked till the transaction ends; LeaseLost if another worker has it now.

    What the transaction does is thus done by the holder, and who takes the lease over comes after it.
    """
    if not renew(connection, [lease]):
        raise LeaseLost("another run has taken this work over meanwhile; nothing more was changed")


def renew(connection: Connection, leases: Sequence[Lease]) -> int:
    """Shows that the holder lives; returns how many of the leases are still its own. Locks their rows."""
    return connection.execute(text(_RENEW), _named(leases)).rowcount


_RENEW = """
UPDATE prism_leases SET heartbeat_time = clock_timestamp()
WHERE kind = ANY(:kinds) AND subject_id = ANY(:ids) AND lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def release(connection: Connection, leases: Sequence[Lease]) -> None:
    """Gives leases back, in a transaction of its own; those that another worker has taken over stay its own."""
    _do_not_wait_for_the_disk(connection)
    connection.execute(text(_RELEASE), _named(leases))


_RELEASE = """
DELETE FROM prism_leases
WHERE kind = ANY(:kinds) AND subject_id = ANY(:ids) AND lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def _do_not_wait_for_the_disk(connection: Connection) -> None:
    """A lease that a crash of the server forgets is lost to its holder, too, and one that stays runs out."""
    connection.execute(text("SET LOCAL synchronous_commit = off"))


def _named(leases: Sequence[Lease]) -> dict[str, object]:
    return {
        "kinds": sorted({lease.kind.value for lease in leases}),
        "ids": [lease.subject_id for lease in leases],
        "tokens": [lease.token for lease in leases],
    }


def holders(connection: Connection, kind: LeaseKind, subject_ids: Collection[int]) -> dict[int, Holder]:
    """Who holds which lease, by id; free ones are left out. Reads without locks."""
    rows = connection.execute(text(_HOLDERS), {"kind": kind.value, "ids": list(subject_ids)})
    return {
        row.subject_id: Holder(worker=row.worker, since=row.start_time, silent_seconds=max(float(row.silent), 0.0))
        for row in rows
    }


_HOLDERS = """
SELECT subject_id, worker, start_time, extract(epoch FROM clock_timestamp() - heartbeat_time) AS silent
FROM prism_leases
WHERE kind = :kind AND subject_id = ANY(:ids)
"""

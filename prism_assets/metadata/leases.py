"""Statements on prism_leases: the exclusive right to work on a table or a partition while the holder is alive.

A dead or motionless holder loses the lease by time alone, and finds its token gone before any further change. All times
are the database's. Taking a lease waits for nobody.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.errors import LeaseLost


class LeaseKind(enum.Enum):
    """The purpose of a lease. A drop of a table waits for all but GC and WORKER (`metadata/tables/drops.py`)."""

    CATALOG = "catalog"
    """Publication of a table in Glue."""
    ICEBERG = "iceberg"
    """Publication of a table as Iceberg."""
    REPAIR = "repair"
    """Repair of a day."""
    GC = "gc"
    REBUILD = "rebuild"
    """Rebuild of a day."""
    ERASE = "erase"
    FOLD = "fold"
    """Every rewrite of the records of a join table. Their erasure also holds ERASE."""
    HISTORY = "history"
    """Registration and conversion of old objects of a table by `prism history`."""
    ADOPT = "adopt"
    """Adoption of older days of a table."""
    LIVE = "live"
    """A live worker converts the objects of a table. Sensors leave the table out, a drop waits, and no commit reads it."""
    WORKER = "worker"
    """The presence of a live worker, under a random number, with the tables that it wants."""


@dataclass(frozen=True)
class Lease:
    """A lease in the hands of its holder. No other worker has its token."""

    kind: LeaseKind
    subject_id: int
    token: str


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The holder of a lease."""

    worker: str
    since: datetime
    silent_seconds: float
    """Time since its last sign of life."""

    def __str__(self) -> str:
        return f"{self.worker}, since {self.since:%Y-%m-%d %H:%M:%S}Z"


def in_brackets(holder: Holder | None) -> str:
    """Returns ` (the holder)`, for a sentence on skipped work, or nothing if the holder has just ended."""
    return f" ({holder})" if holder else ""


def take(
    connection: Connection, kind: LeaseKind, subject_ids: Collection[int], worker: str, lease_seconds: float
) -> list[Lease]:
    """Takes the leases that are free, or whose holder was silent for too long.

    Inserts rows in id order. A locked row is in use by its holder and is skipped. The insert leaves out existing rows,
    because it would wait for an update of the same key. Call it in a separate transaction.
    """
    do_not_wait_for_the_disk(connection)
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
    """Renews a lease and locks its row until the transaction ends. Raises LeaseLost if another worker has the lease.

    The lock orders the changes: those of this transaction come before those of any later holder.
    """
    if not renew(connection, [lease]):
        raise LeaseLost("another run has taken this work over meanwhile; nothing more was changed")


def renew(connection: Connection, leases: Sequence[Lease]) -> int:
    """Renews leases. Returns how many the worker still holds. Locks their rows."""
    return len(renew_held(connection, leases))


def renew_held(connection: Connection, leases: Sequence[Lease]) -> list[Lease]:
    """Renews leases. Returns the leases that the worker still holds. Locks their rows."""
    rows = connection.execute(text(_RENEW), _named(leases))
    held = {(row.kind, row.subject_id) for row in rows}
    return [lease for lease in leases if (lease.kind.value, lease.subject_id) in held]


_RENEW = """
UPDATE prism_leases SET heartbeat_time = clock_timestamp()
WHERE kind = ANY(:kinds) AND subject_id = ANY(:ids) AND lease_token = ANY(CAST(:tokens AS uuid[]))
RETURNING kind, subject_id
"""


def release(connection: Connection, leases: Sequence[Lease]) -> None:
    """Releases leases in a separate transaction. Leases taken over by another worker stay with that worker.

    Locks the rows of the leases.
    """
    do_not_wait_for_the_disk(connection)
    connection.execute(text(_RELEASE), _named(leases))


_RELEASE = """
DELETE FROM prism_leases
WHERE kind = ANY(:kinds) AND subject_id = ANY(:ids) AND lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def do_not_wait_for_the_disk(connection: Connection) -> None:
    """A crash of the server may undo the last transactions.

    A forgotten lease is lost to its holder, too; a restored one expires.
    """
    connection.execute(text("SET LOCAL synchronous_commit = off"))


def _named(leases: Sequence[Lease]) -> dict[str, object]:
    return {
        "kinds": sorted({lease.kind.value for lease in leases}),
        "ids": [lease.subject_id for lease in leases],
        "tokens": [lease.token for lease in leases],
    }


def holders(connection: Connection, kind: LeaseKind, subject_ids: Collection[int]) -> dict[int, Holder]:
    """Returns the holders of leases, by id, without free ones. Reads without locks."""
    return holders_by_kind(connection, [kind], subject_ids)[kind]


def holders_by_kind(
    connection: Connection, kinds: Collection[LeaseKind], subject_ids: Collection[int]
) -> dict[LeaseKind, dict[int, Holder]]:
    """Returns the holders of leases of several kinds, by id. Reads without locks."""
    found: dict[LeaseKind, dict[int, Holder]] = {kind: {} for kind in kinds}
    wanted = {"kinds": sorted(kind.value for kind in kinds), "ids": list(subject_ids)}
    for row in connection.execute(text(_HOLDERS), wanted):
        found[LeaseKind(row.kind)][row.subject_id] = _holder(row)
    return found


_HOLDERS = """
SELECT kind, subject_id, worker, start_time, extract(epoch FROM clock_timestamp() - heartbeat_time) AS silent
FROM prism_leases
WHERE kind = ANY(:kinds) AND subject_id = ANY(:ids)
"""


def load_all_holders(connection: Connection, kind: LeaseKind) -> dict[int, Holder]:
    """Returns the holders of all leases of a kind, by subject. Silent ones count, too. Reads without locks."""
    rows = connection.execute(text(_ALL_HOLDERS), {"kind": kind.value})
    return {row.subject_id: _holder(row) for row in rows}


def _holder(row: Row[Any]) -> Holder:
    return Holder(worker=row.worker, since=row.start_time, silent_seconds=max(float(row.silent), 0.0))


_ALL_HOLDERS = """
SELECT subject_id, worker, start_time, extract(epoch FROM clock_timestamp() - heartbeat_time) AS silent
FROM prism_leases WHERE kind = :kind ORDER BY subject_id
"""


@dataclass(frozen=True, kw_only=True)
class Presence:
    """The presence of a live worker."""

    holder: Holder
    wanted: frozenset[int] | None
    """The tables it works for, or None for all."""


def want_tables(connection: Connection, presences: Collection[Lease], table_ids: Collection[int] | None) -> None:
    """Notes the tables that a live worker works for, None for all. The caller holds the row of its presence."""
    wanted = None if table_ids is None else sorted(table_ids)
    numbers = [lease.subject_id for lease in presences]
    connection.execute(text(_WANT), {"kind": LeaseKind.WORKER.value, "ids": numbers, "wanted": wanted})


_WANT = """
UPDATE prism_leases SET wanted_tables = CAST(:wanted AS bigint[]) WHERE kind = :kind AND subject_id = ANY(:ids)
"""


def load_presences(connection: Connection) -> dict[int, Presence]:
    """Returns all live workers by their numbers. Silent ones count, too. Reads without locks."""
    rows = connection.execute(text(_PRESENCES), {"kind": LeaseKind.WORKER.value})
    return {
        row.subject_id: Presence(
            holder=_holder(row), wanted=None if row.wanted_tables is None else frozenset(row.wanted_tables)
        )
        for row in rows
    }


_PRESENCES = """
SELECT subject_id, worker, start_time, extract(epoch FROM clock_timestamp() - heartbeat_time) AS silent, wanted_tables
FROM prism_leases WHERE kind = :kind ORDER BY subject_id
"""


def forget_workers(connection: Connection, kinds: Collection[LeaseKind], workers: Collection[str]) -> None:
    """Deletes leases of dead workers by name, in id order. Skips locked rows."""
    do_not_wait_for_the_disk(connection)
    named = {"kinds": sorted(kind.value for kind in kinds), "workers": sorted(workers)}
    connection.execute(text(_FORGET_WORKERS), named)


_FORGET_WORKERS = """
DELETE FROM prism_leases WHERE (kind, subject_id) IN (
    SELECT kind, subject_id FROM prism_leases WHERE kind = ANY(:kinds) AND worker = ANY(:workers)
    ORDER BY kind, subject_id FOR UPDATE SKIP LOCKED)
"""


def forget_silent(connection: Connection, kinds: Collection[LeaseKind], seconds: float) -> None:
    """Deletes leases whose holders were silent for longer than `seconds`, in id order. Skips locked rows."""
    do_not_wait_for_the_disk(connection)
    connection.execute(text(_FORGET_SILENT), {"kinds": sorted(kind.value for kind in kinds), "seconds": seconds})


_FORGET_SILENT = """
DELETE FROM prism_leases WHERE (kind, subject_id) IN (
    SELECT kind, subject_id FROM prism_leases
    WHERE kind = ANY(:kinds) AND heartbeat_time < clock_timestamp() - make_interval(secs => :seconds)
    ORDER BY kind, subject_id FOR UPDATE SKIP LOCKED)
"""

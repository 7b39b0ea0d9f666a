"""Statements on prism_stream_batches. Leases use the database's clock, never `--now`.

A batch is identified by id and token, because ids may repeat after a failover to a lagging replica; tokens do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost


@dataclass(frozen=True)
class Batch:
    """A started batch: the right to convert its claimed objects until the lease expires."""

    batch_id: int
    token: UUID


@dataclass(frozen=True)
class DeadBatch:
    """A batch that lost its lease. `probed`: the engine worked just before the batch gave it the objects."""

    batch_id: int
    probed: bool


def insert_batch(connection: Connection, worker: str) -> Batch:
    """Starts a batch. The caller shares the epoch lock, so no partition is being marked."""
    row = connection.execute(text(_INSERT), {"worker": worker}).one()
    return Batch(**row._mapping)


_INSERT = """
INSERT INTO prism_stream_batches (start_time, heartbeat_time, state, worker)
VALUES (clock_timestamp(), clock_timestamp(), 'running', :worker)
RETURNING prism_stream_batch_id AS batch_id, token
"""


def heartbeat(connection: Connection, batch: Batch) -> bool:
    """Renews the lease. Returns False if the batch is no longer running. Locks its row, like every change of a batch."""
    return _change(connection, _HEARTBEAT, batch)


_HEARTBEAT = """
UPDATE prism_stream_batches SET heartbeat_time = clock_timestamp()
WHERE prism_stream_batch_id = :batch AND token = :token AND state = 'running'
"""


def note_probe(connection: Connection, batch: Batch) -> None:
    """Records that the engine works before the batch gives it objects that may kill it. Raises LeaseLost."""
    if not _change(connection, _NOTE_PROBE, batch):
        raise _lost(batch)


_NOTE_PROBE = """
UPDATE prism_stream_batches SET probed = true, heartbeat_time = clock_timestamp()
WHERE prism_stream_batch_id = :batch AND token = :token AND state = 'running'
"""


def lock_running(connection: Connection, batch: Batch) -> None:
    """Locks the batch's row for its commit. Raises LeaseLost if the batch was declared dead or is unknown."""
    state = connection.execute(text(_LOCK), {"batch": batch.batch_id, "token": batch.token}).scalar()
    if state != "running":
        raise _lost(batch)


_LOCK = """
SELECT state FROM prism_stream_batches
WHERE prism_stream_batch_id = :batch AND token = :token
FOR UPDATE
"""


def lock_all_running(connection: Connection) -> None:
    """Locks the rows of all running batches by ascending id, so that no batch changes its objects meanwhile.

    The caller keeps batches from starting, and holds no lock for which the commit of a batch waits.
    """
    connection.execute(text(_LOCK_ALL))


_LOCK_ALL = """
SELECT 1 FROM prism_stream_batches WHERE state = 'running' ORDER BY prism_stream_batch_id FOR UPDATE
"""


def finish_batch(connection: Connection, batch: Batch) -> None:
    """Marks the locked batch as done. Raises LeaseLost if it is not running."""
    if not _change(connection, _FINISH, batch):
        raise _lost(batch)


_FINISH = """
UPDATE prism_stream_batches SET state = 'done', finish_time = clock_timestamp()
WHERE prism_stream_batch_id = :batch AND token = :token AND state = 'running'
"""


def end_as_dead(connection: Connection, batch: Batch) -> bool:
    """Declares the caller's own running batch dead. Returns False if it is not running."""
    return _change(connection, _END_AS_DEAD, batch)


_END_AS_DEAD = """
UPDATE prism_stream_batches SET state = 'dead', finish_time = clock_timestamp()
WHERE prism_stream_batch_id = :batch AND token = :token AND state = 'running'
"""


def _change(connection: Connection, statement: str, batch: Batch) -> bool:
    return bool(connection.execute(text(statement), {"batch": batch.batch_id, "token": batch.token}).rowcount)


def _lost(batch: Batch) -> LeaseLost:
    return LeaseLost(f"batch {batch.batch_id} lost its lease and was given to others; it changed nothing")


def declare_dead(connection: Connection, lease_seconds: float) -> list[DeadBatch]:
    """Declares batches with an expired lease dead and returns them. SKIP LOCKED spares a batch that is just committing."""
    rows = connection.execute(text(_DECLARE_DEAD), {"lease": lease_seconds})
    return [DeadBatch(**row._mapping) for row in rows]


_DECLARE_DEAD = """
UPDATE prism_stream_batches SET state = 'dead', finish_time = clock_timestamp()
WHERE prism_stream_batch_id IN (
    SELECT prism_stream_batch_id FROM prism_stream_batches
    WHERE state = 'running' AND heartbeat_time < clock_timestamp() - make_interval(secs => :lease)
    FOR UPDATE SKIP LOCKED)
RETURNING prism_stream_batch_id AS batch_id, probed
"""


def has_finished_after(connection: Connection, batch_id: int) -> bool:
    """Whether a later batch was committed, so batches work in general. Takes no locks."""
    return bool(connection.execute(text(_FINISHED_AFTER), {"batch": batch_id}).scalar_one())


_FINISHED_AFTER = """
SELECT EXISTS (SELECT 1 FROM prism_stream_batches WHERE prism_stream_batch_id > :batch AND state = 'done')
"""

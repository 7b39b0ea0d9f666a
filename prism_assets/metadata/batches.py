"""Statements on prism_stream_batches. Leases run on the database's own clock, never on a `--now`."""

from __future__ import annotations

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost


def insert_batch(connection: Connection, worker: str) -> int:
    """Starts a batch; the caller shares the epoch lock, so no partition is being marked."""
    return int(
        connection.execute(
            text(
                "INSERT INTO prism_stream_batches (start_time, heartbeat_time, state, worker) "
                "VALUES (clock_timestamp(), clock_timestamp(), 'running', :worker) RETURNING prism_stream_batch_id"
            ),
            {"worker": worker},
        ).scalar_one()
    )


def heartbeat(connection: Connection, batch_id: int) -> bool:
    """Renews the lease; False if the batch is no longer running."""
    return bool(
        connection.execute(
            text(
                "UPDATE prism_stream_batches SET heartbeat_time = clock_timestamp() "
                "WHERE prism_stream_batch_id = :batch AND state = 'running'"
            ),
            {"batch": batch_id},
        ).rowcount
    )


def lock_running(connection: Connection, batch_id: int) -> None:
    """Locks the batch row for its commit; LeaseLost if the batch was declared dead meanwhile."""
    state = connection.execute(
        text("SELECT state FROM prism_stream_batches WHERE prism_stream_batch_id = :batch FOR UPDATE"),
        {"batch": batch_id},
    ).scalar_one()
    if state != "running":
        raise LeaseLost(f"batch {batch_id} lost its lease and was given to others; it changed nothing")


def finish_batch(connection: Connection, batch_id: int) -> None:
    """Marks the locked batch as done."""
    connection.execute(
        text(
            "UPDATE prism_stream_batches SET state = 'done', finish_time = clock_timestamp() "
            "WHERE prism_stream_batch_id = :batch"
        ),
        {"batch": batch_id},
    )


def abandon(connection: Connection, batch_id: int) -> bool:
    """Declares a running batch of the caller's own dead; False if it is not running any more."""
    return bool(
        connection.execute(
            text(
                "UPDATE prism_stream_batches SET state = 'dead', finish_time = clock_timestamp() "
                "WHERE prism_stream_batch_id = :batch AND state = 'running'"
            ),
            {"batch": batch_id},
        ).rowcount
    )


def declare_dead(connection: Connection, lease_seconds: float) -> list[int]:
    """Declares batches dead whose heartbeat is older than the lease, and returns their ids.

    SKIP LOCKED leaves out a batch that is committing right now.
    """
    return list(
        connection.execute(
            text(
                "UPDATE prism_stream_batches SET state = 'dead', finish_time = clock_timestamp() "
                "WHERE prism_stream_batch_id IN (SELECT prism_stream_batch_id FROM prism_stream_batches "
                "WHERE state = 'running' AND heartbeat_time < clock_timestamp() - make_interval(secs => :lease) "
                "FOR UPDATE SKIP LOCKED) RETURNING prism_stream_batch_id"
            ),
            {"lease": lease_seconds},
        ).scalars()
    )

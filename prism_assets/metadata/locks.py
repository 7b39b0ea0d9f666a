"""Advisory locks that end with their transaction."""

from __future__ import annotations

from sqlalchemy import Connection, text

_EPOCH = 7_170_002


def share_epoch(connection: Connection) -> None:
    """Taken by the start of every batch, till its transaction ends: no partition gets its closing mark meanwhile."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": _EPOCH})


def hold_epoch(connection: Connection) -> None:
    """Taken by marking: waits until no batch is starting, so `max(batch id)` is final and later batches see the mark."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _EPOCH})

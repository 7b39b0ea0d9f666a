"""Advisory locks: their numbers, and functions that take them. All end with their transaction: see `postgres.py`."""

from __future__ import annotations

from sqlalchemy import Connection, text

MIGRATION = 7_170_001
EPOCH = 7_170_002
APPLY = 7_170_004
RUN_CLASS = 7_170_005
"""The class of the locks of runs; the second number is a hash of the run's id."""


def share_epoch(connection: Connection) -> None:
    """Taken by the start of every batch, till its transaction ends: no partition gets its closing mark meanwhile."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": EPOCH})


def hold_epoch(connection: Connection) -> None:
    """Taken by marking, and by whoever makes a rule: waits until no batch is starting.

    So `max(batch id)` is final, and later batches see the mark, or the rule.
    """
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": EPOCH})


def hold_apply(connection: Connection) -> None:
    """Taken by `prism table apply`, till its transaction ends: one of them works at a time."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": APPLY})

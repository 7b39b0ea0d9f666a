"""Advisory locks: their numbers, and functions that take them. All end with their transaction (see `postgres.py`)."""

from __future__ import annotations

from sqlalchemy import Connection, text

MIGRATION = 7_170_001
EPOCH = 7_170_002
APPLY = 7_170_004
RUN_CLASS = 7_170_005
"""The class of run locks. Their second number is a hash of the run's id."""


def share_epoch(connection: Connection) -> None:
    """Taken by the start of every batch until its transaction ends. Meanwhile no partition gets its closing mark."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": EPOCH})


def hold_epoch(connection: Connection) -> None:
    """Taken by marking, and by creating a rule. Waits until no batch is starting.

    Then `max(batch id)` is final, and later batches see the mark or the rule.
    """
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": EPOCH})


def hold_apply(connection: Connection) -> None:
    """Taken by `prism table apply` until its transaction ends, so only one works at a time."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": APPLY})

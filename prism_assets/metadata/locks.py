"""Advisory locks. Their numbers stand here and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.metadata.database import Database

_PAUSE = 0.2
_EPOCH = 7_170_002
_CATALOG_CLASS = 7_170_003
_REPAIR_CLASS = 7_170_006


def share_epoch(connection: Connection) -> None:
    """Taken by the start of every batch, till its transaction ends: no partition gets its closing mark meanwhile."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": _EPOCH})


def hold_epoch(connection: Connection) -> None:
    """Taken by marking: waits until no batch is starting, so `max(batch id)` is final and later batches see the mark."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _EPOCH})


class CatalogLock:
    """The right to publish one table. `check` proves that the session that holds it is still alive."""

    def __init__(self, connection: Connection, table_id: int) -> None:
        self._connection = connection
        self._table_id = table_id

    def check(self) -> None:
        """Raises LeaseLost (or DatabaseUnavailable) if the lock went with its session."""
        held = self._connection.execute(
            text(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() "
                "AND classid = :class AND objid = :id AND granted"
            ),
            {"class": _CATALOG_CLASS, "id": self._table_id},
        ).scalar_one()
        if not held:
            raise LeaseLost("the catalog lock of the table was lost; nothing more was published")


@contextmanager
def catalog_lock(database: Database, table_id: int, patience: float = 0.0) -> Iterator[CatalogLock | None]:
    """Holds the session lock of one table's catalog run; yields None if another run holds it for so many seconds.

    Two runs at once could move a partition back to an older manifest.
    """
    end = time.monotonic() + patience
    statement, values = text("SELECT pg_try_advisory_lock(:class, :id)"), {"class": _CATALOG_CLASS, "id": table_id}
    with database.connect() as connection:
        while not (taken := connection.execute(statement, values).scalar_one()) and time.monotonic() < end:
            time.sleep(_PAUSE)
        try:
            yield CatalogLock(connection, table_id) if taken else None
        finally:
            if taken and not connection.invalidated:
                connection.execute(
                    text("SELECT pg_advisory_unlock(:class, :id)"), {"class": _CATALOG_CLASS, "id": table_id}
                )


@contextmanager
def repair_locks(database: Database, partition_ids: Collection[int]) -> Iterator[frozenset[int]]:
    """Holds the session locks of the partitions that no other repair is at, and yields their ids.

    None is waited for. The rows themselves are not locked: reading, merging and publishing go on meanwhile.
    """
    with database.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT id FROM unnest(CAST(:ids AS bigint[])) AS p (id) WHERE pg_try_advisory_lock(:class, id::integer)"
            ),
            {"ids": sorted(partition_ids), "class": _REPAIR_CLASS},
        )
        taken = frozenset(rows.scalars())
        try:
            yield taken
        finally:
            if not connection.invalidated:
                connection.execute(
                    text(
                        "SELECT pg_advisory_unlock(:class, id::integer) FROM unnest(CAST(:ids AS bigint[])) AS p (id)"
                    ),
                    {"ids": sorted(taken), "class": _REPAIR_CLASS},
                )

"""Statements on rebuilds: rewrites that make days again from their staging objects.

A day is rebuilt by the holder of its lease alone. What is ready of it is recorded part by part (`rebuilt_objects.py`),
so that a rebuild that died is gone on with.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.rewrites import Rewrite, RewriteKind
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rewrites


@dataclass(frozen=True, kw_only=True)
class Rebuild(Rewrite):
    """A rebuild that is under way; `resumed` if another worker began it.

    It leaves out rows of the erasures of its table up to `erasure_id`.
    """

    resumed: bool = False


def begin(connection: Connection, partition: Partition, version: int, worker: str, lease: Lease, above: int) -> Rebuild:
    """Begins a rebuild of a day, or goes on with one under the same definition and erasures; any other is dropped.

    `above` is the highest number in keys of the day that lie in the lake: after a restore PostgreSQL knows some of them
    no longer. Locks the row of the partition. The caller holds the lease of the day.
    """
    partitions.lock_partition(connection, partition.partition_id)
    running = connection.execute(text(_RUNNING), {"partition": partition.partition_id}).one_or_none()
    if running is not None:
        erasure_id = erasures.last_id(connection, partition.table_id)
        if (running.definition_version, running.erasure_id) == (version, erasure_id):
            values = {"rewrite": running.rewrite_id, "token": lease.token}
            connection.execute(text(_TAKE_OVER), values)
            connection.execute(text(_LOOK_AGAIN), values)
            return Rebuild(**running._mapping, kind=RewriteKind.REBUILD, resumed=True)
        drop(connection, running.rewrite_id)
    begun = rewrites.begin(
        connection,
        partition,
        RewriteKind.REBUILD,
        definition_version=version,
        worker=worker,
        lease_token=lease.token,
        above=above,
    )
    return Rebuild(**vars(begun))


_RUNNING = """
SELECT prism_rewrite_id AS rewrite_id, prism_table_id AS table_id, prism_partition_id AS partition_id,
    definition_version, erasure_id
FROM prism_rewrites WHERE prism_partition_id = :partition AND kind = 'rebuild' AND state = 'running' FOR UPDATE
"""
_TAKE_OVER = "UPDATE prism_rewrites SET lease_token = CAST(:token AS uuid) WHERE prism_rewrite_id = :rewrite"
# What was missing may have been restored.
_LOOK_AGAIN = "DELETE FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rewrite AND missing"


def drop(connection: Connection, rewrite_id: int) -> None:
    """Ends a rebuild without a change: what it wrote is garbage from now on. Locks its row."""
    rewrites.drop(connection, rewrite_id)
    forget_ready(connection, rewrite_id)


def forget_ready(connection: Connection, rewrite_id: int) -> None:
    """Forgets the converted objects of a rebuild that is over."""
    connection.execute(text(_FORGET_READY), {"rewrite": rewrite_id})


_FORGET_READY = "DELETE FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rewrite"


def drop_forgotten(connection: Connection, table_id: int, before: datetime, lease_seconds: float) -> None:
    """Drops the rewrites of days of a table that began before an instant and that nobody is at. Locks their rows.

    Otherwise what they wrote would stay for ever: a rebuild might be gone on with, and others might commit.
    """
    for rewrite_id in rewrites.find_forgotten(connection, table_id, before, lease_seconds):
        drop(connection, rewrite_id)

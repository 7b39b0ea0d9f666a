"""Statements on rebuilds: rewrites that make days again from their staging objects.

Only the holder of a day's lease rebuilds it. Converted objects are recorded in parts (`rebuilt_objects.py`), so that
the next call continues after a death.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.rewrites import Rewrite, RewriteKind
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rewrites


@dataclass(frozen=True, kw_only=True)
class Rebuild(Rewrite):
    """A running rebuild. It leaves out rows of its table's erasures up to `erasure_id`."""

    resumed: bool = False
    """Another worker began it."""


def begin(connection: Connection, partition: Partition, version: int, worker: str, lease: Lease, above: int) -> Rebuild:
    """Begins a rebuild of a day, or continues one under the same definition and erasures. Drops any other.

    `above` is the highest number in keys of the day in the lake, because a restored PostgreSQL may have lost some
    numbers. Locks the row of the partition. The caller holds the lease of the day.
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
        rewrites.drop(connection, running.rewrite_id)
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
# Missing objects may have been restored.
_LOOK_AGAIN = "DELETE FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rewrite AND missing"

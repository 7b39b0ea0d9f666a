"""Statements on prism_rebuilds: days that are made again from their staging objects.

A day is rebuilt by the holder of its lease alone. What is ready of it is recorded part by part (`rebuilt_objects.py`),
so that a rebuild that died is gone on with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.partitions import Partition
from prism_assets.metadata import erasures, partitions


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """A rebuild that is under way. `generation` is its number in keys; `resumed` if another worker began it.

    It leaves out rows of the erasures of its table up to `erasure_id`, which are all that there were when it began.
    """

    rebuild_id: int
    partition_id: int
    generation: int
    definition_version: int
    erasure_id: int
    resumed: bool = False


def begin(connection: Connection, partition: Partition, version: int, worker: str, highest: int) -> Rebuild:
    """Begins a rebuild of a day, or goes on with one under the same definition and erasures; any other is dropped.

    `highest` is the highest number in keys of the day that lie in the lake: after a restore PostgreSQL knows some of
    them no longer.

    Locks the row of the partition, so that nothing else takes its number, and then that of the table, as batches do, so
    that no two rebuilds of it get one. The caller holds the lease of the day.
    """
    partitions.lock_partition(connection, partition.partition_id)
    connection.execute(text(_LOCK_TABLE), {"table": partition.table_id})
    running = connection.execute(text(_RUNNING), {"partition": partition.partition_id}).one_or_none()
    erasure_id = erasures.last_id(connection, partition.table_id)
    if running is not None:
        if (running.definition_version, running.erasure_id) == (version, erasure_id):
            connection.execute(text(_LOOK_AGAIN), {"rebuild": running.rebuild_id})
            return Rebuild(**running._mapping, resumed=True)
        drop(connection, running.rebuild_id)
    row = connection.execute(
        text(_BEGIN),
        {
            "table": partition.table_id,
            "partition": partition.partition_id,
            "version": version,
            "erasure": erasure_id,
            "worker": worker,
            "highest": highest,
        },
    ).one()
    return Rebuild(**row._mapping)


_LOCK_TABLE = "SELECT 1 FROM prism_tables WHERE prism_table_id = :table FOR NO KEY UPDATE"
_RUNNING = """
SELECT prism_rebuild_id AS rebuild_id, prism_partition_id AS partition_id, generation, definition_version, erasure_id
FROM prism_rebuilds WHERE prism_partition_id = :partition AND state = 'running' FOR UPDATE
"""
# What was missing may have been restored.
_LOOK_AGAIN = "DELETE FROM prism_rebuilt_objects WHERE prism_rebuild_id = :rebuild AND missing"
# Above all that staging objects of the table were begun anew, and above what keys of merged objects of the day have.
_BEGIN = """
INSERT INTO prism_rebuilds
    (prism_table_id, prism_partition_id, generation, definition_version, erasure_id, state, worker)
SELECT CAST(:table AS bigint), CAST(:partition AS bigint), 1 + greatest(CAST(:highest AS integer),
        (SELECT max(generation) FROM prism_rebuilds WHERE prism_table_id = :table),
        (SELECT max(generation) FROM prism_staging_objects WHERE prism_table_id = :table),
        (SELECT max(revision) FROM prism_merge_ranges WHERE prism_partition_id = :partition),
        (SELECT rebuild FROM prism_partitions WHERE prism_partition_id = :partition)),
    CAST(:version AS integer), CAST(:erasure AS bigint), 'running', :worker
RETURNING prism_rebuild_id AS rebuild_id, prism_partition_id AS partition_id, generation, definition_version, erasure_id
"""


def lock_running(connection: Connection, rebuild: Rebuild) -> None:
    """Keeps a rebuild from ending otherwise till the transaction ends; LeaseLost if it is over."""
    if not connection.execute(text(_LOCK_RUNNING), {"rebuild": rebuild.rebuild_id}).rowcount:
        raise LeaseLost("another run has ended this rebuild meanwhile; nothing was changed")


_LOCK_RUNNING = "SELECT 1 FROM prism_rebuilds WHERE prism_rebuild_id = :rebuild AND state = 'running' FOR UPDATE"


def drop(connection: Connection, rebuild_id: int) -> None:
    """Ends a rebuild without a change: what it wrote is garbage from now on. Locks its row."""
    _end(connection, rebuild_id, "dropped")


def finish(connection: Connection, rebuild: Rebuild) -> None:
    """Ends a rebuild that has taken the place of what was there."""
    _end(connection, rebuild.rebuild_id, "done")


def _end(connection: Connection, rebuild_id: int, state: str) -> None:
    connection.execute(text(_END), {"rebuild": rebuild_id, "state": state})
    for table in ("prism_rebuilt_objects", "prism_rebuilt_ranges"):
        connection.execute(text(f"DELETE FROM {table} WHERE prism_rebuild_id = :rebuild"), {"rebuild": rebuild_id})


_END = """
UPDATE prism_rebuilds SET state = :state, finish_time = clock_timestamp()
WHERE prism_rebuild_id = :rebuild AND state = 'running'
"""


def drop_forgotten(connection: Connection, table_id: int, before: datetime, lease_seconds: float) -> int:
    """Drops the rebuilds of a table that began before an instant and that nobody is at; returns how many.

    Locks their rows. Otherwise what they wrote would stay for ever, as they might be gone on with.
    """
    values = {"table": table_id, "before": before, "lease": lease_seconds}
    rows = connection.execute(text(_FORGOTTEN), values).scalars().all()
    for rebuild_id in rows:
        drop(connection, rebuild_id)
    return len(rows)


_FORGOTTEN = """
SELECT prism_rebuild_id FROM prism_rebuilds r
WHERE prism_table_id = :table AND state = 'running' AND start_time < :before AND NOT EXISTS (
    SELECT 1 FROM prism_leases l WHERE l.kind = 'rebuild' AND l.subject_id = r.prism_partition_id
        AND l.heartbeat_time >= clock_timestamp() - make_interval(secs => :lease))
ORDER BY prism_rebuild_id FOR UPDATE
"""


def load_numbers(connection: Connection, partition_ids: Collection[int]) -> Mapping[int, Mapping[int, bool]]:
    """The numbers of the rebuilds of partitions, by partition id, and whether each is under way. Without locks."""
    found: dict[int, dict[int, bool]] = {}
    for row in connection.execute(text(_NUMBERS), {"ids": list(partition_ids)}):
        found.setdefault(row.prism_partition_id, {})[row.generation] = row.is_running
    return found


_NUMBERS = """
SELECT prism_partition_id, generation, state = 'running' AS is_running FROM prism_rebuilds
WHERE prism_partition_id = ANY(:ids)
"""

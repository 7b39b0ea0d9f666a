"""Statements on staging objects that are spool objects, for their deletion after `spool_days`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class RegisteredSpool:
    """A registered spool object."""

    definition_version: int | None
    """The definition of its conversion."""
    done_time: datetime | None
    """When it was converted. None while it waits, is converted, or has failed."""
    is_erased_from: bool
    """An erasure without a proof may read it."""


def load(connection: Connection, table_id: int, bucket: str, keys: Collection[str]) -> Mapping[str, RegisteredSpool]:
    """Returns the registered objects among keys, by key.

    Locks the rows in the order of keys, like replays: an object restarts before this call, or not at all.
    """
    rows = connection.execute(text(_LOAD), {"table": table_id, "bucket": bucket, "keys": list(keys)})
    return {
        row.object_key: RegisteredSpool(
            definition_version=row.definition_version,
            done_time=row.done_time,
            is_erased_from=row.is_erased_from,
        )
        for row in rows
    }


_LOAD = """
SELECT o.object_key, o.definition_version,
    CASE WHEN o.state = 'done' THEN coalesce(o.finish_time, o.first_receive_time) END AS done_time,
    EXISTS (SELECT 1 FROM prism_erasure_sources s JOIN prism_erasures e USING (prism_erasure_id)
        WHERE s.prism_staging_object_id = o.prism_staging_object_id AND e.state <> 'proved') AS is_erased_from
FROM prism_staging_objects o
WHERE o.prism_table_id = :table AND o.bucket_name = :bucket AND o.object_key = ANY(CAST(:keys AS text[]))
ORDER BY o.object_key FOR UPDATE OF o
"""


def are_read_again(connection: Connection, table_id: int) -> bool:
    """Whether a rebuild or a repair of the table runs, or is to go on. Reads without locks."""
    return bool(connection.execute(text(_ARE_READ_AGAIN), {"table": table_id}).scalar_one())


_ARE_READ_AGAIN = """
SELECT EXISTS (SELECT 1 FROM prism_rewrites
    WHERE prism_table_id = :table AND state = 'running' AND kind IN ('rebuild', 'repair'))
"""


def end_silent_leases(connection: Connection, table_id: int, before: datetime) -> None:
    """Takes the partitions of a table from workers without a sign of life since an instant. Locks their rows.

    A worker that stood still between its PUT and its commit then commits nothing, and its object is an orphan for ever.
    """
    connection.execute(text(_END_SILENT), {"table": table_id, "before": before})


_END_SILENT = """
WITH silent AS MATERIALIZED (
    SELECT p.prism_topic_id, p.partition FROM prism_topic_partitions p
    JOIN prism_topics t USING (prism_topic_id) JOIN prism_streams s USING (prism_stream_id)
    WHERE s.prism_table_id = :table AND p.lease_token IS NOT NULL AND p.heartbeat_time < :before
    ORDER BY p.prism_topic_id, p.partition FOR UPDATE OF p
)
UPDATE prism_topic_partitions p SET lease_token = NULL, worker = NULL
FROM silent WHERE silent.prism_topic_id = p.prism_topic_id AND silent.partition = p.partition
"""


def forget_ranges_of(connection: Connection, table_id: int, bucket: str, keys: Collection[str]) -> None:
    """Separates ranges of offsets from deleted spool objects, so that `range_upkeep.join` can join them.

    Locks the rows of the ranges.
    """
    connection.execute(text(_FORGET_RANGES), {"table": table_id, "bucket": bucket, "keys": list(keys)})


_FORGET_RANGES = """
UPDATE prism_offset_ranges r SET prism_staging_object_id = NULL
FROM prism_staging_objects o
WHERE o.prism_table_id = :table AND o.bucket_name = :bucket AND o.object_key = ANY(CAST(:keys AS text[]))
    AND r.prism_staging_object_id = o.prism_staging_object_id
"""

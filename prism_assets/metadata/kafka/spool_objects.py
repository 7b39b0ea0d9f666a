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


def find_passed(
    connection: Connection, table_id: int, orphans: Mapping[str, tuple[str, int, int]]
) -> Mapping[str, bool]:
    """Returns keys without a row whose topic the table has read, each with whether no worker can commit it any more.

    `orphans` has the id of the topic, and partition and offset of the first message, by key. A commit begins at the
    position of the partition, and positions only grow. Reads without locks.
    """
    values = {
        "table": table_id,
        "keys": list(orphans),
        "ids": [topic for topic, _, _ in orphans.values()],
        "partitions": [partition for _, partition, _ in orphans.values()],
        "offsets": [offset for _, _, offset in orphans.values()],
    }
    return {row.key: row.is_passed for row in connection.execute(text(_PASSED), values)}


_PASSED = """
SELECT k.key, bool_and(coalesce(p.next_offset > k.first_offset, false) OR t.ended OR s.removed) AS is_passed
FROM unnest(CAST(:keys AS text[]), CAST(:ids AS text[]), CAST(:partitions AS integer[]), CAST(:offsets AS bigint[]))
    AS k (key, topic_id, partition, first_offset)
JOIN prism_streams s ON s.prism_table_id = :table
JOIN prism_topics t ON t.prism_stream_id = s.prism_stream_id AND replace(t.topic_id, '/', '_') = k.topic_id
LEFT JOIN prism_topic_partitions p ON p.prism_topic_id = t.prism_topic_id AND p.partition = k.partition
GROUP BY k.key
"""


def separate_ranges(connection: Connection, table_id: int, bucket: str, keys: Collection[str]) -> None:
    """Separates ranges of offsets from deleted spool objects, so that `range_upkeep.join` can join them.

    Locks the rows of the ranges.
    """
    connection.execute(text(_SEPARATE_RANGES), {"table": table_id, "bucket": bucket, "keys": list(keys)})


_SEPARATE_RANGES = """
UPDATE prism_offset_ranges r SET prism_staging_object_id = NULL
FROM prism_staging_objects o
WHERE o.prism_table_id = :table AND o.bucket_name = :bucket AND o.object_key = ANY(CAST(:keys AS text[]))
    AND r.prism_staging_object_id = o.prism_staging_object_id
"""

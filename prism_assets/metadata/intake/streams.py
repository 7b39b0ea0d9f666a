"""Statements on prism_streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.intake.claims import NEVER_CLAIMED


@dataclass(frozen=True)
class KnownStream:
    """A stream with its ids."""

    stream_id: int
    table_id: int
    stream: Stream
    removed: bool = False
    """No table file names it any more."""


def load_streams(connection: Connection) -> list[KnownStream]:
    """Returns all streams, including stopped and removed ones. Reads without locks."""
    rows = connection.execute(text(_STREAMS))
    return [
        KnownStream(
            row.prism_stream_id,
            row.prism_table_id,
            Stream(
                name=row.stream_name,
                bucket=row.bucket_name,
                key_prefix=row.key_prefix,
                enabled=row.enabled,
                discard=row.discard,
                include=tuple(row.include_patterns),
                exclude=tuple(row.exclude_patterns),
            ),
            row.removed,
        )
        for row in rows
    ]


_STREAMS = "SELECT * FROM prism_streams ORDER BY prism_stream_id"


def lock_streams(connection: Connection) -> None:
    """Locks all streams by ascending id, like the registration of objects, so that nobody registers any meanwhile."""
    connection.execute(text("SELECT 1 FROM prism_streams ORDER BY prism_stream_id FOR UPDATE"))


def remove_streams(connection: Connection, table: TableDefinition) -> None:
    """Removes streams that the table's file no longer names. A file may name them again later.

    Waiting objects are still converted, and read by the last definition with their stream. The caller holds the
    streams.
    """
    kept = {
        "table": table.table_id,
        "buckets": [stream.bucket for stream in table.streams],
        "prefixes": [stream.key_prefix for stream in table.streams],
    }
    connection.execute(text(_REMOVE_OTHERS), kept)


_REMOVE_OTHERS = """
UPDATE prism_streams SET enabled = false, removed = true
WHERE prism_table_id = :table AND NOT removed AND (bucket_name, key_prefix) NOT IN
    (SELECT * FROM unnest(CAST(:buckets AS text[]), CAST(:prefixes AS text[])))
"""


def save_streams(connection: Connection, table_id: int, streams: Iterable[Stream]) -> None:
    """Creates streams, and updates switches and patterns of known ones, possibly of another table so far.

    A stream with new patterns gets a complete listing next, because objects left out may now be read. Objects no batch
    has claimed yet move to the new table; claimed ones stay. The caller holds the streams, and no batch starts. Locks
    the rows of the moved objects.
    """
    kept = [
        {
            "table": table_id,
            "name": stream.name,
            "bucket": stream.bucket,
            "prefix": stream.key_prefix,
            "enabled": stream.enabled,
            "discard": stream.discard,
            "include": list(stream.include),
            "exclude": list(stream.exclude),
        }
        for stream in streams
    ]
    if kept:
        connection.execute(text(_LIST_AGAIN), kept)
        connection.execute(text(_SAVE_STREAM), kept)
    connection.execute(text(_TAKE_ALONG), {"table": table_id})


_LIST_AGAIN = """
UPDATE prism_stream_scans x SET full_scan_time = to_timestamp(0), resume_key = NULL, resume_time = NULL,
    left_out = '{}'
FROM prism_streams s
WHERE s.prism_stream_id = x.prism_stream_id AND s.bucket_name = :bucket AND s.key_prefix = :prefix
    AND (s.include_patterns, s.exclude_patterns) <> (CAST(:include AS text[]), CAST(:exclude AS text[]))
"""
_SAVE_STREAM = """
INSERT INTO prism_streams
    (prism_table_id, stream_name, bucket_name, key_prefix, enabled, discard, include_patterns, exclude_patterns)
VALUES (:table, :name, :bucket, :prefix, :enabled, :discard, :include, :exclude)
ON CONFLICT (bucket_name, key_prefix) DO UPDATE SET prism_table_id = EXCLUDED.prism_table_id,
    moved = prism_streams.moved OR prism_streams.prism_table_id <> EXCLUDED.prism_table_id, stream_name = EXCLUDED.stream_name, enabled = EXCLUDED.enabled, discard = EXCLUDED.discard,
    include_patterns = EXCLUDED.include_patterns, exclude_patterns = EXCLUDED.exclude_patterns, removed = false
"""
_TAKE_ALONG = f"""
UPDATE prism_staging_objects o SET prism_table_id = s.prism_table_id
FROM prism_streams s
WHERE s.prism_table_id = :table AND NOT s.removed AND o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
    AND {NEVER_CLAIMED} AND o.prism_table_id <> s.prism_table_id
"""

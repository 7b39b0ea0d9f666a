"""Statements on prism_streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.streams import Stream
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.claims import NEVER_CLAIMED


@dataclass(frozen=True)
class KnownStream:
    """A stream with its ids; `removed` if no table file names it any more."""

    stream_id: int
    table_id: int
    stream: Stream
    removed: bool = False


def load_streams(connection: Connection) -> list[KnownStream]:
    """All streams, those that are stopped or removed included. Reads without locks."""
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
    """Locks all streams, in the order of their ids, as who registers objects does: nobody registers any meanwhile."""
    connection.execute(text("SELECT 1 FROM prism_streams ORDER BY prism_stream_id FOR UPDATE"))


def remove_streams(connection: Connection, table: TableDefinition) -> None:
    """Ends the streams of a table that its file names no more; they are not lost, and may be named again.

    Objects that wait there are still converted, read as the last definition says that named their stream. The caller
    has locked the streams.
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
    """Creates streams and updates switches and patterns of known ones, which may have been those of another table.

    A stream with other patterns is listed as a whole next: objects that were left out may come in. Objects that no
    batch has claimed yet go along; what one has begun stays with its table. The caller has locked the streams, and no
    batch is starting; locks the rows of objects that go along.
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

"""Statements on prism_streams."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.streams.topic import BUCKET_PREFIX, URL_PREFIX, topic_at
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.intake.claims import NEVER_CLAIMED

STREAM_URL = f"""
CASE WHEN starts_with(s.bucket_name, '{BUCKET_PREFIX}')
    THEN format('{URL_PREFIX}%s/%s', substr(s.bucket_name, {len(BUCKET_PREFIX) + 1}), rtrim(s.key_prefix, '/'))
    ELSE format('s3://%s/%s', s.bucket_name, s.key_prefix) END
"""
"""The URL of the stream `s`."""
IN_USE = "s.enabled AND NOT s.discard AND NOT s.removed"
"""Whether objects or messages of the stream `s` are to become rows."""


@dataclass(frozen=True)
class KnownStream:
    """A stream with its ids. A topic lacks the options of its table file."""

    stream_id: int
    table_id: int
    stream: Stream
    removed: bool = False
    """No table file names it any more."""
    records: str = ""
    """The path to the records of its objects."""
    history: DateRange | None = None
    """The first and last day of the history, with a part that is being registered. None once it is cancelled."""


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
                since=None if row.since is None else row.since.isoformat(),
                route=_route(row.route_key, row.taken_keys),
                topic=topic_at(row.bucket_name, row.key_prefix),
            ),
            row.removed,
            row.records,
            None if row.history_from is None else DateRange(row.history_from, row.known_until),
        )
        for row in rows
    ]


def _route(key: str | None, taken_keys: Sequence[str]) -> Route | None:
    """Returns the part of a route that chooses objects. Definitions have the part that chooses lines."""
    return Route(key=key, taken_keys=tuple(taken_keys)) if key is not None or taken_keys else None


_STREAMS = """
SELECT *, greatest(history_until, history_registers_until) AS known_until FROM prism_streams ORDER BY prism_stream_id
"""


def load_begun(connection: Connection, places: Collection[tuple[str, str]]) -> list[tuple[int, int]]:
    """Returns the streams of some prefixes with the tables that have begun objects of them, as ids.

    Looks for one object of each stream and table by indexes, however many there are. Reads without locks.
    """
    values = {"buckets": [bucket for bucket, _ in places], "prefixes": [prefix for _, prefix in places]}
    return [(row.prism_stream_id, row.prism_table_id) for row in connection.execute(text(_BEGUN), values)]


# Each state has an index of its own. Objects of a stream belong to other tables only if it has moved.
_BEGUN = f"""
SELECT s.prism_stream_id, t.prism_table_id
FROM prism_streams s JOIN prism_tables t ON t.prism_table_id = s.prism_table_id OR s.moved
WHERE (s.bucket_name, s.key_prefix) IN
        (SELECT * FROM unnest(CAST(:buckets AS text[]), CAST(:prefixes AS text[])))
    AND (EXISTS (SELECT 1 FROM prism_staging_objects o
            WHERE o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = t.prism_table_id AND o.state = 'done'
                AND o.definition_version IS NOT NULL)
        OR EXISTS (SELECT 1 FROM prism_staging_objects o
            WHERE o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = t.prism_table_id
                AND o.state = 'pending' AND NOT {NEVER_CLAIMED})
        OR EXISTS (SELECT 1 FROM prism_staging_objects o
            WHERE o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = t.prism_table_id AND o.state = 'claimed')
        OR EXISTS (SELECT 1 FROM prism_staging_objects o
            WHERE o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = t.prism_table_id AND o.state = 'failed'
                AND (o.definition_version IS NOT NULL OR NOT {NEVER_CLAIMED})))
"""


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


def save_streams(
    connection: Connection, table_id: int, streams: Iterable[Stream], moved_ids: Collection[int] = ()
) -> None:
    """Creates streams, updates switches and patterns of known ones, and moves streams of other tables to this one.

    A stream with new patterns gets a complete listing next, because objects left out may now be read. Objects no batch
    has claimed yet move to the new table; claimed ones stay. The history of a moved or stopped stream ends: its objects
    wait for Stream. The caller holds the streams, and no batch starts. Locks
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
            "since": stream.since,
            "key": stream.route and stream.route.key,
            "taken": list(stream.route.taken_keys) if stream.route else [],
            "records": stream.records or "",
        }
        for stream in streams
    ]
    if moved_ids:
        connection.execute(text(_MOVE), {"table": table_id, "streams": list(moved_ids)})
    if kept:
        connection.execute(text(_LIST_AGAIN), kept)
        connection.execute(text(_SAVE_STREAM), kept)
    for statement in (_END_HISTORY, _FORGET_DOUBLES, _TAKE_ALONG):
        connection.execute(text(statement), {"table": table_id})


_MOVE = """
UPDATE prism_streams SET prism_table_id = :table, moved = true, history_from = NULL, history_until = NULL,
    history_registers_until = NULL
WHERE prism_stream_id = ANY(:streams)
"""
_LIST_AGAIN = """
UPDATE prism_stream_scans x SET full_scan_time = to_timestamp(0), resume_key = NULL, resume_time = NULL,
    left_out = '{}'
FROM prism_streams s
WHERE s.prism_stream_id = x.prism_stream_id AND s.prism_table_id = :table
    AND s.bucket_name = :bucket AND s.key_prefix = :prefix
    AND (s.include_patterns, s.exclude_patterns, s.since, s.route_key, s.taken_keys) IS DISTINCT FROM
        (CAST(:include AS text[]), CAST(:exclude AS text[]), CAST(:since AS date), CAST(:key AS text),
            CAST(:taken AS text[]))
"""
_SAVE_STREAM = """
INSERT INTO prism_streams
    (prism_table_id, stream_name, bucket_name, key_prefix, enabled, discard, include_patterns, exclude_patterns,
    since, route_key, taken_keys, records)
VALUES (:table, :name, :bucket, :prefix, :enabled, :discard, :include, :exclude, CAST(:since AS date), :key, :taken,
    :records)
ON CONFLICT (bucket_name, key_prefix, prism_table_id) DO UPDATE SET stream_name = EXCLUDED.stream_name,
    enabled = EXCLUDED.enabled, discard = EXCLUDED.discard, include_patterns = EXCLUDED.include_patterns,
    exclude_patterns = EXCLUDED.exclude_patterns, since = EXCLUDED.since, route_key = EXCLUDED.route_key, taken_keys = EXCLUDED.taken_keys,
    records = EXCLUDED.records, removed = false
"""
# Only a table with a stream that it reads brings in its history. Other objects wait for Stream, as new ones do.
_END_HISTORY = """
UPDATE prism_staging_objects o SET state = 'pending', history_date = NULL
FROM prism_streams s
WHERE s.prism_table_id = :table AND NOT s.removed AND o.prism_stream_id = s.prism_stream_id
    AND o.state = 'history' AND o.history_date IS NOT NULL
    AND (o.prism_table_id <> s.prism_table_id OR s.intake <> 'convert')
"""
# The new table may know an object by another stream of its own.
_FORGET_DOUBLES = f"""
DELETE FROM prism_staging_objects o USING prism_streams s
WHERE s.prism_table_id = :table AND NOT s.removed AND o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
    AND {NEVER_CLAIMED} AND o.prism_table_id <> s.prism_table_id
    AND EXISTS (SELECT 1 FROM prism_staging_objects k WHERE k.bucket_name = o.bucket_name
        AND k.object_key = o.object_key AND k.prism_table_id = s.prism_table_id)
"""
_TAKE_ALONG = f"""
UPDATE prism_staging_objects o SET prism_table_id = s.prism_table_id
FROM prism_streams s
WHERE s.prism_table_id = :table AND NOT s.removed AND o.prism_stream_id = s.prism_stream_id AND o.state = 'pending'
    AND {NEVER_CLAIMED} AND o.prism_table_id <> s.prism_table_id
"""

"""Statements on prism_staging_objects, except claims and ends of attempts, and on prism_unknown_staging_objects."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.streams.routes import Route
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertResult
from prism_assets.metadata.intake.claims import NOT_BEGUN

AS_NEW = "first_batch_id = NULL, definition_version = NULL"
"""Assignments that make an object new again, together with a new generation. Used by every statement that restarts one.

The object loses its first batch, because a partition may have closed without it: its rows of that day are then delayed.
The next batch that claims it decides again on definition and erasures.
"""
UNCHARGED = "attempts = 0, outages = 0, rewrites = 0, retry_time = NULL, dismissed = false"
"""Assignments that clear all charges against an object."""
CAME_AGAIN = "first_batch_id IS NULL AND overwritten_time IS NOT NULL"
"""Whether a row is of an object of the archive that came again. No batch has read this row."""
NEVER_CONVERTED = "to_timestamp(0)"
"""The finish time of such a row, so that no figure of conversions counts it."""
_LATEST_OBJECTS = 10_000
"""Enough to include a converted object, and few enough to scan."""


@dataclass(frozen=True, kw_only=True)
class FoundObject:
    """An object found by a listing or an event. Lengths in bytes."""

    bucket: str
    key: str
    etag: str | None
    content_length: int
    send_time: datetime | None


def known_among(
    connection: Connection, stream_id: int, found: Sequence[FoundObject]
) -> tuple[list[FoundObject], list[FoundObject]]:
    """Divides objects into those known to a stream, or in the archive, and all others. Reads without locks."""
    values = {
        "stream": stream_id,
        "buckets": [item.bucket for item in found],
        "keys": [item.key for item in found],
    }
    places = set(connection.execute(text(_KNOWN_AMONG), values).scalars())
    known = [item for place, item in enumerate(found, 1) if place in places]
    return known, [item for place, item in enumerate(found, 1) if place not in places]


def has_news(connection: Connection, stream_id: int, found: Sequence[FoundObject]) -> bool:
    """Whether `register` may change anything for listed objects of a stream. Reads without locks.

    Listings ask first, because most find the objects of their last turn. True is no promise: `register` decides by its
    own conditions. False is one: no object is new, differs in ETag or length, or failed and was sent later.
    """
    return bool(connection.execute(text(_HAS_NEWS), _values(stream_id, found)).scalar_one())


# An object is known to a stream if its table has a row of it, or if the stream found it for an earlier table. At most one
# of the rows of an object is known to a stream: a table takes no stream over whose objects it has.
_IS_KNOWN = """
(o.prism_stream_id = :stream OR o.prism_table_id = (
    SELECT k.prism_table_id FROM prism_streams k WHERE k.prism_stream_id = :stream))
"""
IS_ARCHIVED = """
EXISTS (SELECT 1 FROM prism_archived_keys a WHERE a.key_digest = prism_key_digest(f.bucket, f.key)
    AND (a.prism_stream_id = stream.prism_stream_id OR a.prism_table_id = stream.prism_table_id))
"""
"""Whether the metadata of the object `f` is in the archive. Knows keys for `stream` as _IS_KNOWN knows rows."""
_KNOWN_AMONG = f"""
SELECT f.place
FROM prism_streams stream
CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[])) WITH ORDINALITY AS f (bucket, key, place)
WHERE stream.prism_stream_id = :stream AND (EXISTS (
    SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN}
    OFFSET 0) OR {IS_ARCHIVED})
"""
# A superset of the conditions of _NOTE_FOUND, _INSERT, _NOTE_ARCHIVED, _REFRESH, _RESTART and _NOTE_OVERWRITTEN below.
# OFFSET 0 makes the planner look up each key by index, here and above; it may read all objects otherwise.
_HAS_NEWS = f"""
SELECT EXISTS (SELECT 1 FROM prism_streams WHERE prism_stream_id = :stream AND NOT found_any)
    OR EXISTS (
        SELECT 1
        FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]),
            CAST(:lengths AS bigint[]), CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
        LEFT JOIN LATERAL (
            SELECT o.prism_staging_object_id, o.etag, o.content_length, o.send_time, o.state FROM prism_staging_objects o
            WHERE o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN}
            OFFSET 0
        ) o ON true
        WHERE o.prism_staging_object_id IS NULL
            OR o.etag IS DISTINCT FROM f.etag
            OR o.content_length <> f.length
            OR (o.state = 'failed' AND f.sent > o.send_time))
"""


def register(
    connection: Connection,
    stream_id: int,
    found: Sequence[FoundObject],
    now: datetime,
    *,
    route: Route | None = None,
    listed: bool = False,
) -> int:
    """Inserts the objects unknown to a stream and returns how many were new.

    An object whose metadata is in the archive is not read again. It is noted for status and checks (`note_archived`).

    `route` is the route of the stream by which the objects were chosen. If it has changed since, nothing is inserted:
    the next listing of the stream is a complete one.

    Known objects that still wait are refreshed. Known objects given up earlier restart if they were uploaded again.
    `listed` is true for a listing: its objects exist now, while events come late and in any order.

    Known keys are left out before the insert, so that repeats burn no ids. ON CONFLICT settles a race between two
    scans; the refresh sees the rows of the other scan because it is a separate statement. Shares the lock of the
    stream's row until the transaction ends: an object belongs to the stream's table at this time, or to none if the
    table files no longer name the stream.
    """
    if found:
        connection.execute(text(_NOTE_FOUND), {"stream": stream_id})
    chosen = {"key": route and route.key, "taken": list(route.taken_keys) if route else []}
    added = connection.execute(text(_INSERT), {**_values(stream_id, found), **chosen, "now": now}).rowcount
    if added < len(found):
        update_known(connection, stream_id, found, now, listed=listed)
    return added


def update_known(
    connection: Connection, stream_id: int, found: Sequence[FoundObject], now: datetime, *, listed: bool = False
) -> None:
    """Does for known objects what `register` does, and registers none to be read. Locks changed rows by their keys."""
    values = _values(stream_id, found)
    note_archived(connection, stream_id, found, now)  # shares the lock of the stream's row, so it comes first
    connection.execute(text(_REFRESH), values)
    connection.execute(text(_RESTART), {**values, "listed": listed})
    connection.execute(text(_NOTE_OVERWRITTEN), {**values, "now": now, "listed": listed})


def _values(stream_id: int, found: Sequence[FoundObject]) -> dict[str, object]:
    return {
        "stream": stream_id,
        "buckets": [item.bucket for item in found],
        "keys": [item.key for item in found],
        "etags": [item.etag for item in found],
        "lengths": [item.content_length for item in found],
        "sent": [item.send_time for item in found],
    }


# Once in the life of a stream, before the shared lock on its row: two sharers would wait for each other.
_NOTE_FOUND = "UPDATE prism_streams SET found_any = true WHERE prism_stream_id = :stream AND NOT found_any"
_INSERT = f"""
WITH stream AS (
    SELECT prism_stream_id, prism_table_id FROM prism_streams WHERE prism_stream_id = :stream AND NOT removed
        AND route_key IS NOT DISTINCT FROM CAST(:key AS text) AND taken_keys = CAST(:taken AS text[])
    FOR SHARE
)
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time)
SELECT stream.prism_stream_id, stream.prism_table_id, f.bucket, f.key, f.etag, f.length, f.sent, :now
FROM stream CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
    CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
WHERE NOT EXISTS (SELECT 1 FROM prism_staging_objects o
    WHERE o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN})
    AND NOT {IS_ARCHIVED}
ORDER BY f.key
ON CONFLICT (bucket_name, object_key, prism_table_id) DO NOTHING
"""
# If an object was written again before its first claim, the newer version counts; a read under the older ETag would
# find nothing. After the first claim it stays as it is, so that each attempt reads the same bytes. Later send time
# means newer; listings know whole seconds only. Locks the changed rows in the order of their keys, like the insert. A
# batch that claims objects meanwhile passes over these rows, and rows it claimed first no longer match.
_REFRESH = f"""
UPDATE prism_staging_objects o SET etag = n.etag, content_length = n.length, send_time = n.sent, read_version = NULL
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.length, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN}
    WHERE o.state IN ('pending', 'history') AND o.first_batch_id IS NULL
        AND (o.etag IS DISTINCT FROM f.etag OR o.content_length <> f.length)
        AND (o.send_time IS NULL OR f.sent > o.send_time
            OR (f.sent = date_trunc('second', f.sent) AND f.sent >= date_trunc('second', o.send_time)))
    ORDER BY o.object_key FOR UPDATE OF o
) n
WHERE o.prism_staging_object_id = n.id
"""
# A given-up object, uploaded again after a repair, counts as new even if somebody had accepted that it is not read.
_RESTART = f"""
UPDATE prism_staging_objects o SET state = 'pending', generation = generation + 1, {AS_NEW}, {UNCHARGED},
    etag = n.etag, content_length = n.length, send_time = n.sent, read_version = NULL
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.length, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN}
    WHERE o.state = 'failed' AND f.etag IS NOT NULL
        AND (f.sent > o.send_time OR (o.etag IS DISTINCT FROM f.etag OR o.content_length <> f.length)
            AND (CAST(:listed AS boolean) OR (o.send_time IS NULL OR f.sent > o.send_time
                OR (f.sent = date_trunc('second', f.sent) AND f.sent >= date_trunc('second', o.send_time)))))
    ORDER BY o.object_key FOR UPDATE OF o
) n
WHERE o.prism_staging_object_id = n.id
"""
# A converted object keeps its converted version when it is written again. An object of the archive stays unread in every
# version, and so does a discarded object. Each later version is noted once, for the status. Listed versions exist,
# whatever their time: S3 dates a multipart upload by its beginning. An event without an ETag proves nothing.
_NOTE_OVERWRITTEN = f"""
UPDATE prism_staging_objects o SET overwritten_time = :now, overwritten_etag = n.etag, overwritten_send_time = n.sent,
    dismissed = false
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN}
    WHERE o.state = 'done' AND (o.first_batch_id IS NOT NULL OR o.overwritten_time IS NOT NULL)
        AND o.etag IS NOT NULL AND f.etag IS NOT NULL
        AND (o.etag IS DISTINCT FROM f.etag OR o.content_length <> f.length)
        AND f.etag IS DISTINCT FROM o.overwritten_etag
        AND (CAST(:listed AS boolean) OR (greatest(o.send_time, o.overwritten_send_time) IS NULL
            OR f.sent > greatest(o.send_time, o.overwritten_send_time)
            OR (f.sent = date_trunc('second', f.sent)
                AND f.sent >= date_trunc('second', greatest(o.send_time, o.overwritten_send_time)))))
    ORDER BY o.object_key FOR UPDATE OF o
) n
WHERE o.prism_staging_object_id = n.id
"""


def note_archived(connection: Connection, stream_id: int, found: Sequence[FoundObject], now: datetime) -> None:
    """Notes objects of the archive that come again, so that status and checks report them.

    No version of them is read, because its rows might be in the table already. The new rows are done and overwritten,
    without a batch (`CAME_AGAIN`). Shares the lock of the stream's row.
    """
    connection.execute(text(_NOTE_ARCHIVED), {**_values(stream_id, found), "now": now})


# An event without an ETag is left out: it names no version.
_NOTE_ARCHIVED = f"""
WITH stream AS (
    SELECT prism_stream_id, prism_table_id FROM prism_streams
    WHERE prism_stream_id = :stream AND NOT removed AND intake = 'convert' FOR SHARE
)
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time, state, finish_time, lines_in, rows_out, rows_quarantined, overwritten_time,
    overwritten_etag, overwritten_send_time)
SELECT stream.prism_stream_id, stream.prism_table_id, f.bucket, f.key, f.etag, f.length, f.sent, :now, 'done',
    {NEVER_CONVERTED}, 0, 0, 0, :now, f.etag, f.sent
FROM stream CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]),
    CAST(:lengths AS bigint[]), CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
WHERE f.etag IS NOT NULL AND {IS_ARCHIVED}
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o
        WHERE o.bucket_name = f.bucket AND o.object_key = f.key AND {_IS_KNOWN})
ORDER BY f.key
ON CONFLICT (bucket_name, object_key, prism_table_id) DO NOTHING
"""


def register_unknown(connection: Connection, item: FoundObject, message: str, now: datetime) -> None:
    """Notes an object without a stream, or with an unreadable name. Locks no existing row."""
    connection.execute(
        text(_INSERT_UNKNOWN),
        {
            "bucket": item.bucket,
            "key": item.key,
            "etag": item.etag,
            "length": item.content_length,
            "sent": item.send_time,
            "now": now,
            "message": message,
        },
    )


_INSERT_UNKNOWN = """
INSERT INTO prism_unknown_staging_objects
    (bucket_name, object_key, etag, content_length, send_time, first_receive_time, message)
VALUES (:bucket, :key, :etag, :length, :sent, :now, :message)
ON CONFLICT (bucket_name, object_key) DO NOTHING
"""


def discard(connection: Connection, table_ids: Collection[int] | None, at_most: int) -> int:
    """Counts unclaimed objects of discarded streams as done, without a line. Returns how many.

    Locks their rows, with SKIP LOCKED.
    """
    return connection.execute(
        text(_DISCARD), {"tables": None if table_ids is None else list(table_ids), "most": at_most}
    ).rowcount


_DISCARD = f"""
UPDATE prism_staging_objects SET state = 'done', finish_time = clock_timestamp(), lines_in = 0, rows_out = 0, rows_quarantined = 0,
    rows_filtered = 0, definition_version = NULL
WHERE prism_staging_object_id IN (
    SELECT o.prism_staging_object_id FROM prism_streams s
    JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
    WHERE s.intake = 'discard' AND o.state = 'pending' AND {NOT_BEGUN}
        AND (CAST(:tables AS bigint[]) IS NULL OR s.prism_table_id = ANY(CAST(:tables AS bigint[])))
    LIMIT :most FOR UPDATE OF o SKIP LOCKED)
"""


def find_ids(
    connection: Connection, name: tuple[str | None, str], table_ids: Collection[int] | None
) -> Mapping[str, Sequence[int]]:
    """Returns the ids of the objects with this (bucket or None for any, key), by bucket. Reads without locks.

    Each table that reads the object has one. `table_ids` are the tables to look at, None for all.
    """
    bucket, key = name
    values = {"bucket": bucket, "key": key, "tables": None if table_ids is None else list(table_ids)}
    return {row.bucket_name: row.ids for row in connection.execute(text(_IDS), values)}


# Spool objects lie in the bucket of the lake, which no stream names.
_IDS = """
SELECT bucket_name, array_agg(prism_staging_object_id ORDER BY prism_staging_object_id) AS ids
FROM prism_staging_objects
WHERE object_key = :key AND bucket_name = ANY(
    SELECT b.bucket_name FROM (SELECT bucket_name FROM prism_streams UNION SELECT bucket_name FROM prism_installation) b
    WHERE CAST(:bucket AS text) IS NULL OR b.bucket_name = :bucket)
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
GROUP BY bucket_name
"""


def keys_of_converted(connection: Connection, bucket: str, limit: int) -> list[str]:
    """Returns keys of a bucket's latest converted objects, among the objects registered last. Takes no locks."""
    values = {"bucket": bucket, "many": _LATEST_OBJECTS, "limit": limit}
    return list(connection.execute(text(_CONVERTED), values).scalars())


_CONVERTED = """
SELECT object_key FROM prism_staging_objects
WHERE state = 'done' AND bucket_name = :bucket
    AND prism_staging_object_id > (SELECT max(prism_staging_object_id) FROM prism_staging_objects) - :many
ORDER BY prism_staging_object_id DESC LIMIT :limit
"""


def finish(connection: Connection, batch_id: int, results: Sequence[ConvertResult]) -> None:
    """Moves objects of a batch from claimed to done with their ledger. Raises LeaseLost unless the batch holds them
    all.

    The caller locks the batch's row. Lines in, rows out, quarantined, filtered and erased lines, and lines elsewhere are
    six separate counts; none is derived from the others.
    """
    changed = connection.execute(
        text(_FINISH),
        {
            "batch": batch_id,
            "ids": [result.staging_object_id for result in results],
            "lines": [result.lines_in for result in results],
            "rows": [result.rows_out for result in results],
            "quarantined": [result.lines_quarantined for result in results],
            "filtered": [result.lines_filtered for result in results],
            "erased": [result.lines_erased for result in results],
            "elsewhere": [result.lines_elsewhere for result in results],
            "errors": [
                json.dumps([asdict(error) for error in result.value_errors]) if result.value_errors else None
                for result in results
            ],
        },
    ).rowcount
    if changed != len(results):
        raise LeaseLost(
            f"batch {batch_id} holds only {changed} of {counted(len(results), 'object')}; it changed nothing"
        )


_FINISH = """
UPDATE prism_staging_objects o SET state = 'done', finish_time = clock_timestamp(), lines_in = f.lines, rows_out = f.rows,
    rows_quarantined = f.quarantined, rows_filtered = f.filtered, rows_erased = f.erased,
    rows_elsewhere = f.elsewhere, value_errors = CAST(f.errors AS jsonb),
    last_error = NULL, retry_time = NULL, batch_limit = NULL
FROM unnest(CAST(:ids AS bigint[]), CAST(:lines AS bigint[]), CAST(:rows AS bigint[]), CAST(:quarantined AS bigint[]),
    CAST(:filtered AS bigint[]), CAST(:erased AS bigint[]), CAST(:elsewhere AS bigint[]), CAST(:errors AS text[]))
    AS f (id, lines, rows, quarantined, filtered, erased, elsewhere, errors)
WHERE o.prism_staging_object_id = f.id AND o.prism_stream_batch_id = :batch AND o.state = 'claimed'
"""

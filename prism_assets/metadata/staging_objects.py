"""Statements on prism_staging_objects, but for claims and ends of attempts, and on prism_unknown_staging_objects."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.words import counted
from prism_assets.domain.work.convert import ConvertResult
from prism_assets.metadata.claims import NEVER_CLAIMED

AS_NEW = "first_batch_id = NULL, definition_version = NULL"
"""What makes an object one that has just come, beside a generation of its own, in every statement that begins it anew.

It has no first batch, as a partition may have been closed without it: what it holds for that day is delayed then. And
the batch that claims it next decides again by which definition and which erasures it is converted.
"""
UNCHARGED = "attempts = 0, outages = 0, rewrites = 0, retry_time = NULL, dismissed = false"
"""Nothing is held against an object any more."""
_LATEST_OBJECTS = 10_000
"""Enough to find one that was converted, and few enough to be looked through."""


@dataclass(frozen=True, kw_only=True)
class FoundObject:
    """An object that a listing or an event named; lengths in bytes."""

    bucket: str
    key: str
    etag: str | None
    content_length: int
    send_time: datetime | None


def register(
    connection: Connection,
    stream_id: int,
    found: Sequence[FoundObject],
    now: datetime,
    *,
    listed: bool = False,
) -> int:
    """Inserts the objects that are not known yet and returns how many were new.

    Of known ones those that waited are refreshed, and those that were given up begin anew where they came again.

    `listed` if the objects were there just now, and not named by events, which come late and in any order.
    Known keys are left out first, so that repeats burn no ids; ON CONFLICT settles a race between two scans. What the
    other scan inserted meanwhile is seen by the refresh, as that is a statement of its own. Shares the lock of the
    stream's row till the end of the transaction: an object belongs to the table that its stream then feeds, and comes
    to none where the stream has left the table files.
    """
    values = {
        "buckets": [item.bucket for item in found],
        "keys": [item.key for item in found],
        "etags": [item.etag for item in found],
        "lengths": [item.content_length for item in found],
        "sent": [item.send_time for item in found],
    }
    if found:
        connection.execute(text(_NOTE_FOUND), {"stream": stream_id})
    added = connection.execute(text(_INSERT), {**values, "stream": stream_id, "now": now}).rowcount
    if added < len(found):
        connection.execute(text(_REFRESH), values)
        connection.execute(text(_BEGIN_ANEW), {**values, "listed": listed})
        connection.execute(text(_NOTE_OVERWRITTEN), {**values, "now": now, "listed": listed})
    return added


# Once in the life of a stream, and before its row is locked for sharing: two that share it would wait for each other.
_NOTE_FOUND = "UPDATE prism_streams SET found_any = true WHERE prism_stream_id = :stream AND NOT found_any"
_INSERT = """
WITH stream AS (
    SELECT prism_stream_id, prism_table_id FROM prism_streams WHERE prism_stream_id = :stream AND NOT removed FOR SHARE
)
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time)
SELECT stream.prism_stream_id, stream.prism_table_id, f.bucket, f.key, f.etag, f.length, f.sent, :now
FROM stream CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
    CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
WHERE NOT EXISTS (SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key)
ORDER BY f.key
ON CONFLICT (bucket_name, object_key) DO NOTHING
"""
# An object that was written again before any batch claimed it is the newer one: read under the older ETag it would be
# none. From its first claim on it stays as it is, so that each attempt reads the same bytes. What came later is newer;
# listings know whole seconds only. Locks the rows it changes, in the order of their keys, as inserting does; a batch
# that claims one of them passes over it meanwhile, and one that it claimed first no longer fits.
_REFRESH = """
UPDATE prism_staging_objects o SET etag = n.etag, content_length = n.length, send_time = n.sent, read_version = NULL
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.length, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key
    WHERE o.state = 'pending' AND o.first_batch_id IS NULL
        AND (o.etag IS DISTINCT FROM f.etag OR o.content_length <> f.length)
        AND (o.send_time IS NULL OR f.sent > o.send_time
            OR (f.sent = date_trunc('second', f.sent) AND f.sent >= date_trunc('second', o.send_time)))
    ORDER BY o.object_key FOR UPDATE OF o
) n
WHERE o.prism_staging_object_id = n.id
"""
# One that was given up and came again, mended or restored, is an object like a new one, also where somebody had accepted
# that it is not read.
_BEGIN_ANEW = f"""
UPDATE prism_staging_objects o SET state = 'pending', generation = generation + 1, {AS_NEW}, {UNCHARGED},
    etag = n.etag, content_length = n.length, send_time = n.sent, read_version = NULL
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.length, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key
    WHERE o.state = 'failed' AND f.etag IS NOT NULL
        AND (f.sent > o.send_time OR (o.etag IS DISTINCT FROM f.etag OR o.content_length <> f.length)
            AND (CAST(:listed AS boolean) OR (o.send_time IS NULL OR f.sent > o.send_time
                OR (f.sent = date_trunc('second', f.sent) AND f.sent >= date_trunc('second', o.send_time)))))
    ORDER BY o.object_key FOR UPDATE OF o
) n
WHERE o.prism_staging_object_id = n.id
"""
# One that was written again behind its conversion stays what was converted, and a discarded one is what nobody reads; that there is more is noted once for each
# version that is seen, to be told. What a listing shows is there, whatever its time: S3 dates an object that was uploaded
# in parts by the beginning of its upload. An event without an ETag proves nothing.
_NOTE_OVERWRITTEN = """
UPDATE prism_staging_objects o SET overwritten_time = :now, overwritten_etag = n.etag, overwritten_send_time = n.sent,
    dismissed = false
FROM (
    SELECT o.prism_staging_object_id AS id, f.etag, f.sent
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]),
        CAST(:sent AS timestamptz[])) AS f (bucket, key, etag, length, sent)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key
    WHERE o.state = 'done' AND o.first_batch_id IS NOT NULL AND o.etag IS NOT NULL AND f.etag IS NOT NULL
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


def register_unknown(connection: Connection, item: FoundObject, message: str, now: datetime) -> None:
    """Notes an object that belongs to no stream or whose name cannot be read. Locks no row that was there."""
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
    """Counts objects done, without a line, that no batch has claimed and whose stream is discarded; returns how many.

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
    WHERE s.intake = 'discard' AND o.state = 'pending' AND {NEVER_CLAIMED}
        AND (CAST(:tables AS bigint[]) IS NULL OR s.prism_table_id = ANY(CAST(:tables AS bigint[])))
    LIMIT :most FOR UPDATE OF o SKIP LOCKED)
"""


def find_ids(connection: Connection, name: tuple[str | None, str]) -> list[int]:
    """Ids of the objects with this (bucket or None for any, key), at most two. Reads without locks."""
    bucket, key = name
    return list(connection.execute(text(_IDS), {"bucket": bucket, "key": key}).scalars())


_IDS = """
SELECT prism_staging_object_id FROM prism_staging_objects
WHERE object_key = :key AND bucket_name = ANY(
    SELECT DISTINCT bucket_name FROM prism_streams WHERE CAST(:bucket AS text) IS NULL OR bucket_name = :bucket)
LIMIT 2
"""


def keys_of_converted(connection: Connection, bucket: str, limit: int) -> list[str]:
    """Keys of the last objects of a bucket that were read, among the last that were registered. Without locks."""
    values = {"bucket": bucket, "many": _LATEST_OBJECTS, "limit": limit}
    return list(connection.execute(text(_CONVERTED), values).scalars())


_CONVERTED = """
SELECT object_key FROM prism_staging_objects
WHERE state = 'done' AND bucket_name = :bucket
    AND prism_staging_object_id > (SELECT max(prism_staging_object_id) FROM prism_staging_objects) - :many
ORDER BY prism_staging_object_id DESC LIMIT :limit
"""


def finish(connection: Connection, batch_id: int, results: Sequence[ConvertResult]) -> None:
    """Moves objects of a batch from claimed to done with their ledger, or raises LeaseLost if it does not hold them all.

    The batch row is locked by the caller. Lines in, rows out, quarantined, filtered and erased lines are five counts, none
    derived.
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
    rows_quarantined = f.quarantined, rows_filtered = f.filtered, rows_erased = f.erased, value_errors = CAST(f.errors AS jsonb),
    last_error = NULL, retry_time = NULL, batch_limit = NULL
FROM unnest(CAST(:ids AS bigint[]), CAST(:lines AS bigint[]), CAST(:rows AS bigint[]), CAST(:quarantined AS bigint[]),
    CAST(:filtered AS bigint[]), CAST(:erased AS bigint[]), CAST(:errors AS text[]))
    AS f (id, lines, rows, quarantined, filtered, erased, errors)
WHERE o.prism_staging_object_id = f.id AND o.prism_stream_batch_id = :batch AND o.state = 'claimed'
"""

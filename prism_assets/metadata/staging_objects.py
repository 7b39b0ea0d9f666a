"""Statements on prism_staging_objects and prism_unknown_staging_objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.words import counted
from prism_assets.domain.work.convert import ConvertResult

_TURN_OF_SUSPECTS = 8
"""Every so-many-th batch begins with objects that a batch died with, however many others keep coming."""
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


@dataclass(frozen=True, kw_only=True)
class ClaimedObject:
    """A staging object that belongs to a running batch.

    Of the erasures of its table it respects those up to `erasure_id`; all, with None, where it was begun before that
    was kept. It holds what the definition `read_version` says. Where its table names its stream no more, `named_version` is the
    last definition that did.
    """

    staging_object_id: int
    stream_name: str
    table_id: int
    definition_version: int
    read_version: int
    named_version: int | None
    bucket: str
    key: str
    etag: str | None
    content_length: int
    send_time: datetime | None
    first_receive_time: datetime
    first_batch_id: int
    attempts: int
    outages: int
    rewrites: int
    generation: int
    batch_limit: int | None
    retained_from: date | None
    settle_clock: datetime | None
    erasure_id: int | None


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
    added = connection.execute(text(_INSERT), {**values, "stream": stream_id, "now": now}).rowcount
    if added < len(found):
        connection.execute(text(_REFRESH), values)
        connection.execute(text(_BEGIN_ANEW), {**values, "listed": listed})
        connection.execute(text(_NOTE_OVERWRITTEN), {**values, "now": now, "listed": listed})
    return added


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
UPDATE prism_staging_objects o SET etag = n.etag, content_length = n.length, send_time = n.sent
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
    etag = n.etag, content_length = n.length, send_time = n.sent
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


def claim_pending(
    connection: Connection, batch_id: int, table_ids: Collection[int] | None, max_objects: int, max_bytes: int
) -> list[ClaimedObject]:
    """Claims pending objects for a batch, fairly over the streams, up to a count and a number of bytes.

    Locks the rows it picks with SKIP LOCKED, so that two batches never claim one object (an unlocked read lets
    two workers run the same work). Objects that a batch died with come when there are no others, or when it is their
    turn, in smaller batches and among themselves. One that was begun anew waits until what its former start uploaded
    is removed: readers would see its rows twice.
    """
    kinds = [_claim_unsuspected, _claim_suspects]
    if batch_id % _TURN_OF_SUSPECTS == 0:
        kinds.reverse()
    for claim in kinds:
        if claimed := claim(connection, batch_id, table_ids, max_objects, max_bytes):
            return claimed
    return []


def _claim_unsuspected(
    connection: Connection, batch_id: int, table_ids: Collection[int] | None, max_objects: int, max_bytes: int
) -> list[ClaimedObject]:
    """What batches have begun at streams that go another way now, then the others, fairly.

    Streams that still have objects share what the first round left over.
    """
    begun = connection.execute(text(_PICK_BEGUN), {"tables": _listed(table_ids), "limit": max_objects}).all()
    picked, left_bytes = _within(begun, max_objects, max_bytes, started=False)
    claimed = _mark_claimed(connection, batch_id, picked)
    streams = _streams_with_pending(connection, table_ids)
    while streams and len(claimed) < max_objects and left_bytes > 0:
        share = max(1, (max_objects - len(claimed)) // len(streams))
        chosen = {"streams": list(streams), "tables": list(streams.values()), "share": share}
        rows = _round_robin(connection.execute(text(_PICK), chosen).all())
        picked, left_bytes = _within(rows, max_objects - len(claimed), left_bytes, started=bool(claimed))
        claimed += _mark_claimed(connection, batch_id, picked)
        if len(picked) < len(rows):
            break
        taken = Counter(row.prism_stream_id for row in rows)
        streams = {stream: table for stream, table in streams.items() if taken[stream] == share}
    return claimed


# Sensors ask by the same conditions for what is pending: `backlog.count_pending`.
MAY_BEGIN = """
    (o.first_batch_id IS NOT NULL OR t.intake_paused_until IS NULL OR t.intake_paused_until <= clock_timestamp())
"""
"""Whether a batch may claim the object `o` of the table `t`: of one that flips only what a batch has claimed once."""
IS_DUE = """
    (o.retry_time IS NULL OR o.retry_time <= clock_timestamp())
    AND (o.generation = 0 OR NOT EXISTS (SELECT 1 FROM prism_abandoned_uploads a
        WHERE a.prism_staging_object_id = o.prism_staging_object_id AND a.generation < o.generation
            AND NOT a.removed))
"""
"""Whether the pending object `o` rests no more, and, if it was begun anew, what a former start uploaded is removed."""
IS_BEGUN = """
    (s.intake <> 'convert' OR s.moved) AND (s.intake <> 'convert' OR o.prism_table_id <> s.prism_table_id)
    AND o.state = 'pending' AND (o.first_batch_id IS NOT NULL OR o.generation > 0)
"""
"""Whether the object `o` is to be finished, whatever its stream `s` is now: stopped, discarded, or another table's.

It is for the table that it was claimed for, so that no day of that waits for a stream that nobody reads.
"""
_PICK_BEGUN = f"""
SELECT o.prism_staging_object_id, o.prism_stream_id, o.content_length
FROM prism_streams s JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
WHERE {IS_BEGUN} AND o.batch_limit IS NULL AND {IS_DUE}
    AND (CAST(:tables AS bigint[]) IS NULL OR o.prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY o.prism_staging_object_id LIMIT :limit FOR UPDATE OF o SKIP LOCKED
"""
_PICK = f"""
SELECT o.prism_staging_object_id, o.prism_stream_id, o.content_length
FROM unnest(CAST(:streams AS bigint[]), CAST(:tables AS bigint[])) AS s (id, table_id)
JOIN prism_tables t ON t.prism_table_id = s.table_id
CROSS JOIN LATERAL (
    SELECT * FROM prism_staging_objects o
    WHERE o.prism_stream_id = s.id AND o.state = 'pending' AND o.batch_limit IS NULL
        AND o.prism_table_id = s.table_id AND {MAY_BEGIN} AND {IS_DUE}
    ORDER BY o.prism_staging_object_id LIMIT :share FOR UPDATE SKIP LOCKED
) AS o
"""


def _claim_suspects(
    connection: Connection, batch_id: int, table_ids: Collection[int] | None, max_objects: int, max_bytes: int
) -> list[ClaimedObject]:
    """Claims objects that a batch died with: as many as the least of their limits allows.

    Those with the fewest attempts come first: one that ends each run must not keep the others from their turn.
    """
    rows = connection.execute(
        text(_PICK_SUSPECTS),
        {"tables": _listed(table_ids), "limit": max_objects},
    ).all()
    count, limit = 0, max_objects
    for row in rows:
        limit = min(limit, row.batch_limit)
        if count >= limit:
            break
        count += 1
    picked, _ = _within(rows[:count], count, max_bytes, started=False)
    return _mark_claimed(connection, batch_id, picked)


_PICK_SUSPECTS = f"""
SELECT prism_staging_object_id, content_length, batch_limit FROM prism_staging_objects o
WHERE state = 'pending' AND batch_limit IS NOT NULL AND {IS_DUE}
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY attempts, prism_staging_object_id LIMIT :limit FOR UPDATE SKIP LOCKED
"""


def _listed(table_ids: Collection[int] | None) -> list[int] | None:
    return None if table_ids is None else list(table_ids)


def _streams_with_pending(connection: Connection, table_ids: Collection[int] | None) -> dict[int, int]:
    """The streams that have objects to be converted, with the tables that they feed."""
    rows = connection.execute(text(_STREAMS), {"tables": _listed(table_ids)})
    return {row.prism_stream_id: row.prism_table_id for row in rows}


_STREAMS = """
SELECT s.prism_stream_id, s.prism_table_id FROM prism_streams s
WHERE s.intake = 'convert' AND (CAST(:tables AS bigint[]) IS NULL OR s.prism_table_id = ANY(CAST(:tables AS bigint[])))
    AND EXISTS (SELECT 1 FROM prism_staging_objects o
        WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending')
ORDER BY s.prism_stream_id
"""


def _round_robin(rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    """First objects of all streams first, so that a limit on bytes falls on all of them alike."""
    seen: Counter[int] = Counter()
    ranked = []
    for row in rows:
        ranked.append((seen[row.prism_stream_id], row))
        seen[row.prism_stream_id] += 1
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _within(rows: Sequence[Row[Any]], count: int, size: int, *, started: bool) -> tuple[list[int], int]:
    """Takes ids while count and bytes allow; the first object of a batch is always taken, however big."""
    picked: list[int] = []
    for row in rows:
        if len(picked) >= count or (row.content_length > size and (picked or started)):
            break
        picked.append(row.prism_staging_object_id)
        size -= row.content_length
    return picked, size


def _mark_claimed(connection: Connection, batch_id: int, ids: Sequence[int]) -> list[ClaimedObject]:
    """In the order in which they were picked, whatever the plan of the update makes of it."""
    rows = connection.execute(text(_MARK_CLAIMED), {"batch": batch_id, "ids": list(ids)})
    claimed = {row.staging_object_id: ClaimedObject(**row._mapping) for row in rows}
    return [claimed[staging_object_id] for staging_object_id in ids]


# The last definition that named the stream of an object, where its table does so no more.
_NAMED_VERSION = """
    CASE WHEN s.removed OR s.prism_table_id <> o.prism_table_id THEN (
        SELECT max(d.version) FROM prism_table_definitions d WHERE d.prism_table_id = o.prism_table_id
            AND d.definition -> 'streams' @> jsonb_build_array(
                jsonb_build_object('bucket', s.bucket_name, 'key_prefix', s.key_prefix))) END
"""
_CLAIMED_OBJECT = f"""
    o.prism_staging_object_id AS staging_object_id, s.stream_name, o.prism_table_id AS table_id,
    o.definition_version, coalesce(o.read_version, o.definition_version) AS read_version,
    {_NAMED_VERSION} AS named_version, o.bucket_name AS bucket, o.object_key AS key, o.etag, o.content_length, o.send_time, o.first_receive_time, o.first_batch_id, o.attempts,
    o.outages, o.rewrites, o.generation, o.batch_limit, o.retained_from, o.settle_clock,
    o.erasure_id
"""
_MARK_CLAIMED = f"""
UPDATE prism_staging_objects o SET state = 'claimed', prism_stream_batch_id = :batch,
    first_batch_id = coalesce(o.first_batch_id, :batch),
    definition_version = coalesce(o.definition_version, t.definition_version),
    read_version = CASE WHEN o.definition_version IS NULL THEN {_NAMED_VERSION} ELSE o.read_version END,
    retained_from = CASE WHEN o.first_batch_id IS NULL THEN t.retained_from ELSE o.retained_from END,
    settle_clock = CASE WHEN o.first_batch_id IS NULL THEN r.settle_clock ELSE o.settle_clock END,
    erasure_id = CASE WHEN o.first_batch_id IS NULL THEN (SELECT coalesce(max(e.prism_erasure_id), 0)
        FROM prism_erasures e WHERE e.prism_table_id = o.prism_table_id) ELSE o.erasure_id END
FROM prism_tables t LEFT JOIN prism_tables r ON r.prism_table_id = t.changes_of, prism_streams s
WHERE o.prism_staging_object_id = ANY(:ids) AND t.prism_table_id = o.prism_table_id
    AND s.prism_stream_id = o.prism_stream_id
RETURNING {_CLAIMED_OBJECT}
"""


def discard(connection: Connection, table_ids: Collection[int] | None, at_most: int) -> int:
    """Counts objects done, without a line, that no batch has claimed and whose stream is discarded; returns how many.

    Locks their rows, with SKIP LOCKED.
    """
    return connection.execute(text(_DISCARD), {"tables": _listed(table_ids), "most": at_most}).rowcount


_DISCARD = """
UPDATE prism_staging_objects SET state = 'done', finish_time = clock_timestamp(), lines_in = 0, rows_out = 0, rows_quarantined = 0,
    rows_filtered = 0, definition_version = NULL
WHERE prism_staging_object_id IN (
    SELECT o.prism_staging_object_id FROM prism_streams s
    JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
    WHERE s.intake = 'discard' AND o.state = 'pending' AND o.first_batch_id IS NULL AND o.generation = 0
        AND (CAST(:tables AS bigint[]) IS NULL OR s.prism_table_id = ANY(CAST(:tables AS bigint[])))
    LIMIT :most FOR UPDATE OF o SKIP LOCKED)
"""


def load_claimed(connection: Connection, staging_object_ids: Collection[int]) -> dict[int, ClaimedObject]:
    """Staging objects by id as a batch claimed them once, whatever became of them. Reads without locks."""
    rows = connection.execute(text(_CLAIMED), {"ids": list(staging_object_ids)})
    return {row.staging_object_id: ClaimedObject(**row._mapping) for row in rows}


_CLAIMED = f"""
SELECT {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_staging_object_id = ANY(:ids)
"""


def load_of_batches(connection: Connection, batch_ids: Collection[int]) -> list[tuple[int, ClaimedObject]]:
    """The objects that batches still hold, each with its batch. The caller has locked the rows of the batches."""
    rows = [dict(row._mapping) for row in connection.execute(text(_OF_BATCHES), {"batches": list(batch_ids)})]
    return [(row.pop("batch_id"), ClaimedObject(**row)) for row in rows]


_OF_BATCHES = f"""
SELECT o.prism_stream_batch_id AS batch_id, {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_stream_batch_id = ANY(:batches) AND o.state = 'claimed'
ORDER BY o.prism_staging_object_id
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


def lock_waiting(connection: Connection, staging_object_id: int) -> ClaimedObject | None:
    """Locks a pending object that a batch had claimed before, and returns it; None if it is none."""
    row = connection.execute(text(_LOCK_WAITING), {"id": staging_object_id}).one_or_none()
    return None if row is None else ClaimedObject(**row._mapping)


_LOCK_WAITING = f"""
SELECT {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_staging_object_id = :id AND o.state = 'pending' AND o.first_batch_id IS NOT NULL
FOR UPDATE OF o
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

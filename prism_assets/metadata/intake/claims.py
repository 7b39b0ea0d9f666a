"""Statements by which batches claim staging objects, and the decisions of a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

_TURN_OF_SUSPECTS = 8
"""Each batch with an id divisible by this begins with objects of dead batches, however many others arrive."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A range of sizes of staging objects, in bytes, with both ends."""

    least: int = 0
    most: int = (1 << 63) - 1


NO_SIZE = Sizes(least=1, most=0)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which pending objects a batch may claim. A live worker has an engine for each kind, and a batch runs on one."""

    unsuspected: Sizes = Sizes()
    """Objects without a dead batch."""
    suspects: Sizes = Sizes()
    """Objects of dead batches."""
    history: bool = False
    """Only objects that `prism history` registered and no batch has begun."""


EVERYTHING = Wanted()
HISTORY = Wanted(history=True)


@dataclass(frozen=True, kw_only=True)
class ClaimedObject:
    """A staging object of a running batch.

    Its conversion leaves out the rows of erasures up to `respected_erasure_id`. `read_version` is the definition of its
    first conversion.
    """

    staging_object_id: int
    stream_name: str
    table_id: int
    definition_version: int
    read_version: int
    stream_id: int
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
    watermark: datetime | None
    respected_erasure_id: int


def claim_pending(
    connection: Connection,
    batch_id: int,
    table_ids: Collection[int] | None,
    max_objects: int,
    max_bytes: int,
    wanted: Wanted = EVERYTHING,
) -> list[ClaimedObject]:
    """Claims pending objects for a batch, fairly over the streams, up to a count and a number of bytes.

    Locks the picked rows with SKIP LOCKED: after an unlocked read two batches could claim one object. Objects of dead
    batches come when there are no others, or at their turn, in smaller batches and without other objects. A restarted
    object waits until the uploads of its former start are removed, because readers would see its rows twice.
    """
    if wanted.history:
        return _claim_history(connection, batch_id, table_ids, max_objects, max_bytes)
    kinds = [(_claim_unsuspected, wanted.unsuspected), (_claim_suspects, wanted.suspects)]
    if batch_id % _TURN_OF_SUSPECTS == 0:
        kinds.reverse()
    for claim, sizes in kinds:
        if sizes == NO_SIZE:
            continue
        if claimed := claim(connection, batch_id, table_ids, max_objects, max_bytes, sizes):
            return claimed
    return []


def _claim_unsuspected(
    connection: Connection,
    batch_id: int,
    table_ids: Collection[int] | None,
    max_objects: int,
    max_bytes: int,
    sizes: Sizes,
) -> list[ClaimedObject]:
    """Claims objects once begun whose streams were since stopped, discarded or moved, then others, fairly.

    Tables get equal shares, and so do the streams of a table. Streams with further objects share the rest.
    """
    within = {"least": sizes.least, "most": sizes.most}
    begun = connection.execute(text(_PICK_BEGUN), {"tables": _listed(table_ids), "limit": max_objects, **within}).all()
    picked, left_bytes = _within(begun, max_objects, max_bytes, started=False)
    claimed = _mark_claimed(connection, batch_id, picked)
    streams = _streams_with_pending(connection, table_ids)
    while streams and len(claimed) < max_objects and left_bytes > 0:
        shares = _shares(streams, max_objects - len(claimed))
        chosen = {"streams": list(streams), "tables": list(streams.values()), "shares": list(shares.values()), **within}
        rows = _round_robin(connection.execute(text(_PICK), chosen).all(), streams)
        picked, left_bytes = _within(rows, max_objects - len(claimed), left_bytes, started=bool(claimed))
        claimed += _mark_claimed(connection, batch_id, picked)
        if len(picked) < len(rows):
            break
        taken = Counter(row.prism_stream_id for row in rows)
        streams = {stream: table for stream, table in streams.items() if taken[stream] == shares[stream]}
    return claimed


def has_pending(connection: Connection, table_ids: Collection[int], wanted: Wanted = EVERYTHING) -> bool:
    """Whether a wanted object of these tables waits for a batch now. Takes no locks, and no number of a batch."""
    sizes = {
        "least": wanted.unsuspected.least,
        "most": wanted.unsuspected.most,
        "suspects_least": wanted.suspects.least,
        "suspects_most": wanted.suspects.most,
    }
    return bool(connection.execute(text(_HAS_PENDING), {"tables": list(table_ids), **sizes}).scalar_one())


def _shares(streams: Mapping[int, int], objects: int) -> dict[int, int]:
    """Returns how many objects each stream may give. `streams` maps streams to their tables."""
    of_table = Counter(streams.values())
    return {stream: max(1, objects // len(of_table) // of_table[table]) for stream, table in streams.items()}


# Sensors ask by the same conditions for what is pending: `backlog.count_pending`.
MAY_BEGIN = """
    (o.first_batch_id IS NOT NULL OR o.claim_version IS NOT NULL
        OR t.intake_paused_until IS NULL OR t.intake_paused_until <= clock_timestamp())
"""
"""Whether a batch may claim the object `o` of the table `t`: during a flip only objects with an earlier definition.

The flip waits for these, so they do not wait for the flip.
"""
IS_DUE = """
    (o.retry_time IS NULL OR o.retry_time <= clock_timestamp())
    AND (o.generation = 0 OR NOT EXISTS (SELECT 1 FROM prism_abandoned_uploads a
        WHERE a.prism_staging_object_id = o.prism_staging_object_id AND a.generation < o.generation
            AND NOT a.removed))
"""
"""Whether the pause of the pending object `o` is over, and uploads of an earlier start are removed."""
NEVER_CLAIMED = "(o.first_batch_id IS NULL AND o.generation = 0 AND o.claim_version IS NULL)"
"""Whether no batch ever claimed the object `o`, in any generation, and no table waits to claim it under a former route.
Such an object follows its stream to another table.
"""
NOT_BEGUN = "(o.first_batch_id IS NULL AND o.generation = 0)"
"""Whether no batch of its table ever claimed the object `o`. Such an object waits while its stream is stopped, and is
done without a line if its stream is discarded, also where another table of its prefix has read it.
"""
DECIDED_VERSION = "coalesce(o.definition_version, o.claim_version)"
"""The definition of rows of the object `o`, if it is decided. A later claim takes this one, too."""
BEGUN_BEFORE_STREAM_LEFT = """
    (s.intake <> 'convert' OR s.moved) AND (s.intake <> 'convert' OR o.prism_table_id <> s.prism_table_id)
    AND o.state = 'pending' AND (o.first_batch_id IS NOT NULL OR o.generation > 0 OR o.claim_version IS NOT NULL)
    AND (o.first_batch_id IS NOT NULL OR o.generation > 0 OR s.intake = 'convert')
"""
"""Whether the object `o` was begun and its stream `s` has since been stopped, discarded or moved to another table.

Such an object is still converted for the table that claimed it. Otherwise a day of this table would wait for it for
ever. This is not the opposite of NOT_BEGUN: it leaves out begun objects of streams that their table still reads.
"""
_WAITS = f"""
    SELECT 1 FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
    JOIN prism_tables t ON t.prism_table_id = o.prism_table_id
    WHERE o.state = 'pending' AND o.prism_table_id = ANY(:tables) AND {MAY_BEGIN} AND {IS_DUE}
"""
# Each part has an index of its own. A part for all sizes reads the index of pending objects up to the first one.
_HAS_PENDING = f"""
SELECT EXISTS ({_WAITS} AND o.batch_limit IS NOT NULL AND o.content_length BETWEEN :suspects_least AND :suspects_most)
    OR EXISTS ({_WAITS} AND o.batch_limit IS NULL AND o.content_length BETWEEN :least AND :most
        AND (s.intake = 'convert' AND o.prism_table_id = s.prism_table_id OR {BEGUN_BEFORE_STREAM_LEFT}))
"""
_PICK_BEGUN = f"""
SELECT o.prism_staging_object_id, o.prism_stream_id, o.content_length
FROM prism_streams s JOIN prism_staging_objects o ON o.prism_stream_id = s.prism_stream_id
WHERE {BEGUN_BEFORE_STREAM_LEFT} AND o.batch_limit IS NULL AND {IS_DUE} AND o.content_length BETWEEN :least AND :most
    AND (CAST(:tables AS bigint[]) IS NULL OR o.prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY o.prism_staging_object_id LIMIT :limit FOR UPDATE OF o SKIP LOCKED
"""
_PICK = f"""
SELECT o.prism_staging_object_id, o.prism_stream_id, o.content_length
FROM unnest(CAST(:streams AS bigint[]), CAST(:tables AS bigint[]), CAST(:shares AS bigint[])) AS s (id, table_id, share)
JOIN prism_tables t ON t.prism_table_id = s.table_id
CROSS JOIN LATERAL (
    SELECT * FROM prism_staging_objects o
    WHERE o.prism_stream_id = s.id AND o.state = 'pending' AND o.batch_limit IS NULL
        AND o.prism_table_id = s.table_id AND {MAY_BEGIN} AND {IS_DUE}
        AND o.content_length BETWEEN :least AND :most
    ORDER BY o.prism_staging_object_id LIMIT s.share FOR UPDATE SKIP LOCKED
) AS o
"""


def _claim_suspects(
    connection: Connection,
    batch_id: int,
    table_ids: Collection[int] | None,
    max_objects: int,
    max_bytes: int,
    sizes: Sizes,
) -> list[ClaimedObject]:
    """Claims objects of dead batches, as many as the least of their limits allows.

    Objects with the fewest attempts come first, so that one fatal object does not block the others.
    """
    rows = connection.execute(
        text(_PICK_SUSPECTS),
        {"tables": _listed(table_ids), "limit": max_objects, "least": sizes.least, "most": sizes.most},
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
WHERE state = 'pending' AND batch_limit IS NOT NULL AND {IS_DUE} AND content_length BETWEEN :least AND :most
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY attempts, prism_staging_object_id LIMIT :limit FOR UPDATE SKIP LOCKED
"""


def _claim_history(
    connection: Connection, batch_id: int, table_ids: Collection[int] | None, max_objects: int, max_bytes: int
) -> list[ClaimedObject]:
    """Claims objects of histories, the oldest days first."""
    rows = connection.execute(text(_PICK_HISTORY), {"tables": _listed(table_ids), "limit": max_objects}).all()
    picked, _ = _within(rows, max_objects, max_bytes, started=False)
    return _mark_claimed(connection, batch_id, picked)


_PICK_HISTORY = f"""
SELECT o.prism_staging_object_id, o.content_length
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
JOIN prism_tables t ON t.prism_table_id = o.prism_table_id
WHERE o.state = 'history' AND o.history_date IS NOT NULL AND s.intake = 'convert' AND {MAY_BEGIN}
    AND (CAST(:tables AS bigint[]) IS NULL OR o.prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY o.prism_table_id, o.history_date, o.prism_staging_object_id LIMIT :limit FOR UPDATE OF o SKIP LOCKED
"""


def _listed(table_ids: Collection[int] | None) -> list[int] | None:
    return None if table_ids is None else list(table_ids)


def _streams_with_pending(connection: Connection, table_ids: Collection[int] | None) -> dict[int, int]:
    """Returns the streams with objects to convert, and their tables."""
    rows = connection.execute(text(_STREAMS), {"tables": _listed(table_ids)})
    return {row.prism_stream_id: row.prism_table_id for row in rows}


_STREAMS = """
SELECT s.prism_stream_id, s.prism_table_id FROM prism_streams s
WHERE s.intake = 'convert' AND (CAST(:tables AS bigint[]) IS NULL OR s.prism_table_id = ANY(CAST(:tables AS bigint[])))
    AND EXISTS (SELECT 1 FROM prism_staging_objects o
        WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending')
ORDER BY s.prism_stream_id
"""


def _round_robin(rows: Sequence[Row[Any]], tables: Mapping[int, int]) -> list[Row[Any]]:
    """Orders objects so that tables take turns, and within a table its streams.

    A limit on bytes then affects all alike.
    """
    by_stream = _in_turn(rows, lambda row: row.prism_stream_id)
    return _in_turn(by_stream, lambda row: tables[row.prism_stream_id])


def _in_turn(rows: Sequence[Row[Any]], whose: Callable[[Row[Any]], int]) -> list[Row[Any]]:
    seen: Counter[int] = Counter()
    turns = []
    for row in rows:
        turns.append(seen[whose(row)])
        seen[whose(row)] += 1
    return [row for _, row in sorted(zip(turns, rows, strict=True), key=lambda pair: pair[0])]


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
    """Marks objects in the order of the choice, whatever the plan of the update."""
    rows = connection.execute(text(_MARK_CLAIMED), {"batch": batch_id, "ids": list(ids)})
    claimed = {row.staging_object_id: ClaimedObject(**row._mapping) for row in rows}
    return [claimed[staging_object_id] for staging_object_id in ids]


_CLAIMED_OBJECT = """
    o.prism_staging_object_id AS staging_object_id, s.stream_name, o.prism_table_id AS table_id,
    o.definition_version, coalesce(o.read_version, o.definition_version) AS read_version,
    o.prism_stream_id AS stream_id, o.bucket_name AS bucket, o.object_key AS key, o.etag, o.content_length, o.send_time,
    o.first_receive_time, o.first_batch_id, o.attempts, o.outages, o.rewrites, o.generation, o.batch_limit,
    o.retained_from, o.watermark, o.respected_erasure_id
"""
_MARK_CLAIMED = f"""
UPDATE prism_staging_objects o SET state = 'claimed', prism_stream_batch_id = :batch,
    first_batch_id = coalesce(o.first_batch_id, :batch),
    definition_version = CASE WHEN o.first_batch_id IS NULL
        THEN coalesce(o.claim_version, t.definition_version) ELSE o.definition_version END,
    retained_from = CASE WHEN o.first_batch_id IS NULL THEN t.retained_from ELSE o.retained_from END,
    watermark = CASE WHEN o.first_batch_id IS NULL THEN r.watermark ELSE o.watermark END,
    respected_erasure_id = CASE WHEN o.first_batch_id IS NULL THEN (SELECT coalesce(max(e.prism_erasure_id), 0)
        FROM prism_erasures e WHERE e.prism_table_id = o.prism_table_id) ELSE o.respected_erasure_id END
FROM prism_tables t LEFT JOIN prism_tables r ON r.prism_table_id = t.changes_of, prism_streams s
WHERE o.prism_staging_object_id = ANY(:ids) AND t.prism_table_id = o.prism_table_id
    AND s.prism_stream_id = o.prism_stream_id
RETURNING {_CLAIMED_OBJECT}
"""


def load_claimed(connection: Connection, staging_object_ids: Collection[int]) -> dict[int, ClaimedObject]:
    """Returns staging objects by id, as a batch claimed them, in any later state. Reads without locks."""
    rows = connection.execute(text(_CLAIMED), {"ids": list(staging_object_ids)})
    return {row.staging_object_id: ClaimedObject(**row._mapping) for row in rows}


_CLAIMED = f"""
SELECT {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_staging_object_id = ANY(:ids)
"""


def load_of_batches(connection: Connection, batch_ids: Collection[int]) -> list[tuple[int, ClaimedObject]]:
    """Returns the objects still held by batches, each with its batch. The caller holds the rows of the batches."""
    rows = [dict(row._mapping) for row in connection.execute(text(_OF_BATCHES), {"batches": list(batch_ids)})]
    return [(row.pop("batch_id"), ClaimedObject(**row)) for row in rows]


_OF_BATCHES = f"""
SELECT o.prism_stream_batch_id AS batch_id, {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_stream_batch_id = ANY(:batches) AND o.state = 'claimed'
ORDER BY o.prism_staging_object_id
"""


def lock_waiting(connection: Connection, staging_object_id: int) -> ClaimedObject | None:
    """Locks and returns a pending object claimed earlier by a batch, or returns None."""
    row = connection.execute(text(_LOCK_WAITING), {"id": staging_object_id}).one_or_none()
    return None if row is None else ClaimedObject(**row._mapping)


_LOCK_WAITING = f"""
SELECT {_CLAIMED_OBJECT}
FROM prism_staging_objects o JOIN prism_streams s USING (prism_stream_id)
WHERE o.prism_staging_object_id = :id AND o.state = 'pending' AND o.first_batch_id IS NOT NULL
FOR UPDATE OF o
"""

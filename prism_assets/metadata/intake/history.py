"""Statements on the history of tables: old objects for `prism history`.

An old object has the state `history` until a batch of `prism history` claims the object. No other batch claims objects
in this state. A claimed object is an ordinary one: if its batch dies, Stream converts it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.tables.accepted import DateRange
from prism_assets.metadata.intake.staging_objects import IS_ARCHIVED, FoundObject, note_archived

_UNFINISHED = "history_date IS NOT NULL AND state IN ('history', 'pending', 'claimed')"
"""The condition of an index by table and day."""


@dataclass(frozen=True, kw_only=True)
class DatedObject:
    """An old object, with the day in its key."""

    found: FoundObject
    day: date


@dataclass(frozen=True, kw_only=True)
class Registered:
    """Objects of one registration."""

    new: int
    set_back: int
    """Objects that waited for Stream, and wait for a history now."""


def register(
    connection: Connection, stream_id: int, table_id: int, objects: Sequence[DatedObject], now: datetime
) -> Registered:
    """Registers old objects of a stream. Begun and finished objects stay as they are. Repeats change nothing.

    Registers nothing for a stream that its table alone no longer reads. Shares the lock of the stream's row, like
    discovery, in a statement before the others: these see what an apply changed meanwhile. Objects that wait for their
    first batch are set back. A batch that is claiming them comes first: their rows are skipped.
    """
    values = {
        "stream": stream_id,
        "table": table_id,
        "buckets": [item.found.bucket for item in objects],
        "keys": [item.found.key for item in objects],
        "etags": [item.found.etag for item in objects],
        "lengths": [item.found.content_length for item in objects],
        "sent": [item.found.send_time for item in objects],
        "days": [item.day for item in objects],
        "now": now,
    }
    connection.execute(text(_SHARE), values)
    if not connection.execute(text(_MAY_HAVE_HISTORY), values).scalar_one():
        return Registered(new=0, set_back=0)
    new = connection.execute(text(_INSERT), values).rowcount
    if new == len(objects):
        return Registered(new=new, set_back=0)
    note_archived(connection, stream_id, [item.found for item in objects], now)
    return Registered(new=new, set_back=connection.execute(text(_SET_BACK), values).rowcount)


_SHARE = "SELECT 1 FROM prism_streams WHERE prism_stream_id = :stream FOR SHARE"
_MAY_HAVE_HISTORY = """
SELECT EXISTS (SELECT 1 FROM prism_streams s WHERE prism_stream_id = :stream AND NOT removed AND intake = 'convert'
    AND prism_table_id = :table
    AND NOT EXISTS (SELECT 1 FROM prism_streams k WHERE k.bucket_name = s.bucket_name AND k.key_prefix = s.key_prefix
        AND k.prism_stream_id <> s.prism_stream_id AND NOT k.removed))
"""
_INSERT = f"""
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time, state, history_date)
SELECT stream.prism_stream_id, stream.prism_table_id, f.bucket, f.key, f.etag, f.length, f.sent, :now, 'history', f.day
FROM prism_streams stream CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]),
    CAST(:lengths AS bigint[]), CAST(:sent AS timestamptz[]), CAST(:days AS date[]))
    AS f (bucket, key, etag, length, sent, day)
WHERE stream.prism_stream_id = :stream
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key
    AND (o.prism_stream_id = stream.prism_stream_id OR o.prism_table_id = stream.prism_table_id))
    AND NOT {IS_ARCHIVED}
ORDER BY f.day, f.key
ON CONFLICT (bucket_name, object_key, prism_table_id) DO NOTHING
"""
# Objects begun once stay with Stream, because days may wait for them.
_SET_BACK = """
UPDATE prism_staging_objects o SET state = 'history', history_date = n.day
FROM (
    SELECT o.prism_staging_object_id AS id, f.day
    FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:days AS date[])) AS f (bucket, key, day)
    JOIN prism_staging_objects o ON o.bucket_name = f.bucket AND o.object_key = f.key AND o.prism_stream_id = :stream
    WHERE o.state = 'pending' AND o.first_batch_id IS NULL AND o.generation = 0 AND o.claim_version IS NULL
    ORDER BY o.object_key FOR UPDATE OF o SKIP LOCKED
) n
WHERE o.prism_staging_object_id = n.id
"""


def begin(connection: Connection, stream_id: int, days: DateRange) -> None:
    """Notes that old objects of some days are registered from now on. Locks the row of the stream.

    The days come before their objects: after a death between them, discovery counts the rest as too late. The last day
    of an earlier part keeps its place until `finish`, because it waits for the objects.
    """
    connection.execute(text(_BEGIN), {"stream": stream_id, "first": days.first, "last": days.last})


def finish(connection: Connection, stream_id: int, days: DateRange) -> None:
    """Notes that the old objects of some days are registered. Locks the row of the stream."""
    connection.execute(text(_FINISH), {"stream": stream_id, "last": days.last})


# `least` and `greatest` pass over nulls.
_BEGIN = """
UPDATE prism_streams SET history_from = least(history_from, CAST(:first AS date)),
    history_until = coalesce(history_until, CAST(:last AS date)),
    history_registers_until = greatest(history_registers_until, CAST(:last AS date))
WHERE prism_stream_id = :stream
"""
_FINISH = """
UPDATE prism_streams SET history_until = greatest(history_until, CAST(:last AS date)),
    history_registers_until = CASE WHEN history_registers_until > CAST(:last AS date) THEN history_registers_until END
WHERE prism_stream_id = :stream AND history_from IS NOT NULL
"""


def count_unfinished(connection: Connection, table_id: int, day: date) -> int | None:
    """Counts unfinished objects of a table's history with the day or the next one in their keys, by index.

    An object of the next day often has the last rows of a day. Returns 0 if only such objects are missing, because the
    day is the last one of a part of the history. Returns None if the day waits for nothing.
    """
    row = connection.execute(text(_OF_DAY), {"table": table_id, "day": day}).one()
    return int(row.objects) if row.objects or row.ends_part else None


_ENDS_PART = """
EXISTS (SELECT 1 FROM prism_streams s WHERE s.prism_table_id = :table AND NOT s.removed AND s.intake = 'convert'
    AND s.history_until = {day} AND s.history_until + 1 < s.since)
"""
_OF_DAY = f"""
SELECT (SELECT count(*) FROM prism_staging_objects WHERE prism_table_id = :table AND {_UNFINISHED}
        AND history_date BETWEEN :day AND CAST(:day AS date) + 1) AS objects,
    {_ENDS_PART.format(day="CAST(:day AS date)")} AS ends_part
"""


def find_waiting_days(connection: Connection, table_id: int, days: Collection[date]) -> set[date]:
    """Returns the days that wait for objects of their history. One statement, as callers hold locks. By index."""
    return set(connection.execute(text(_WAITING_DAYS), {"table": table_id, "days": list(days)}).scalars())


_WAITING_DAYS = f"""
SELECT d.day FROM unnest(CAST(:days AS date[])) AS d (day)
WHERE EXISTS (SELECT 1 FROM prism_staging_objects WHERE prism_table_id = :table AND {_UNFINISHED}
        AND history_date BETWEEN d.day AND d.day + 1 OFFSET 0)
    OR {_ENDS_PART.format(day="d.day")}
"""


def find_part_ends(connection: Connection, table_ids: Collection[int]) -> list[tuple[int, date]]:
    """Returns tables with the last day of a part of their history, where it is open. Reads without locks."""
    rows = connection.execute(text(_PART_ENDS), {"tables": list(table_ids)})
    return [(row.prism_table_id, row.history_until) for row in rows]


_PART_ENDS = """
SELECT DISTINCT s.prism_table_id, s.history_until
FROM prism_streams s JOIN prism_partitions p ON p.prism_table_id = s.prism_table_id
    AND p.partition_date = s.history_until AND p.closing_batch_id IS NULL AND p.last_live_object_id IS NULL
WHERE s.prism_table_id = ANY(:tables) AND NOT s.removed AND s.intake = 'convert' AND s.history_until + 1 < s.since
ORDER BY s.prism_table_id
"""


def is_paused(connection: Connection, table_id: int) -> bool:
    """Whether no batch may begin an object of the table now, because of a flip of its columns."""
    return bool(connection.execute(text(_IS_PAUSED), {"table": table_id}).scalar_one())


_IS_PAUSED = """
SELECT coalesce(intake_paused_until > clock_timestamp(), false) FROM prism_tables WHERE prism_table_id = :table
"""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """The unfinished history of a table."""

    table_id: int
    waiting: int
    """Objects that no batch has claimed."""
    begun: int
    bytes: int
    first: date
    last: date

    @property
    def objects(self) -> int:
        """All unfinished objects."""
        return self.waiting + self.begun


def load_rest(connection: Connection, table_ids: Collection[int]) -> list[Rest]:
    """Returns the rest of tables with an unfinished history. Reads without locks, by index."""
    rows = connection.execute(text(_REST), {"tables": list(table_ids)})
    return [Rest(**row._mapping) for row in rows]


_REST = f"""
SELECT prism_table_id AS table_id, count(*) FILTER (WHERE state = 'history') AS waiting,
    count(*) FILTER (WHERE state <> 'history') AS begun, sum(content_length) AS bytes,
    min(history_date) AS first, max(history_date) AS last
FROM prism_staging_objects
WHERE prism_table_id = ANY(:tables) AND {_UNFINISHED}
GROUP BY prism_table_id ORDER BY prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The objects of a cancelled history."""

    forgotten: int
    """Objects of days before `since`."""
    given_back: int
    """Objects that wait for Stream: without `since`, a listing would register them again."""


def cancel(connection: Connection, table_id: int) -> Cancelled:
    """Ends the history of a table: forgets its objects that no batch has claimed, or gives them to Stream.

    Locks the rows of the streams, and then those of the objects.
    """
    connection.execute(text(_END), {"table": table_id})
    given_back = connection.execute(text(_GIVE_BACK), {"table": table_id}).rowcount
    return Cancelled(forgotten=forget_waiting(connection, table_id), given_back=given_back)


_END = """
UPDATE prism_streams SET history_from = NULL, history_until = NULL, history_registers_until = NULL WHERE prism_table_id = :table
"""
_GIVE_BACK = """
UPDATE prism_staging_objects o SET state = 'pending', history_date = NULL
FROM prism_streams s
WHERE o.prism_table_id = :table AND o.state = 'history' AND o.history_date IS NOT NULL
    AND s.prism_stream_id = o.prism_stream_id AND (s.since IS NULL OR o.history_date >= s.since)
"""


def forget_waiting(connection: Connection, table_id: int) -> int:
    """Deletes and counts the unclaimed rows of a table's history. Locks the rows."""
    return connection.execute(text(_FORGET), {"table": table_id}).rowcount


_FORGET = """
DELETE FROM prism_staging_objects
WHERE prism_table_id = :table AND state = 'history' AND history_date IS NOT NULL
"""


def count_known(connection: Connection, stream_id: int, found: Sequence[FoundObject]) -> int:
    """Counts objects that `prism history` need not read. Reads without locks.

    A batch has begun or finished them, or their metadata is in the archive.
    """
    values = {
        "stream": stream_id,
        "buckets": [item.bucket for item in found],
        "keys": [item.key for item in found],
    }
    return int(connection.execute(text(_COUNT_KNOWN), values).scalar_one())


_COUNT_KNOWN = f"""
SELECT count(*) FROM prism_streams stream
CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[])) AS f (bucket, key)
WHERE stream.prism_stream_id = :stream AND ({IS_ARCHIVED} OR EXISTS (
    SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key
        AND o.prism_table_id = stream.prism_table_id
        AND (o.state IN ('claimed', 'done', 'failed') OR o.first_batch_id IS NOT NULL OR o.generation > 0)
    OFFSET 0))
"""

"""Statements on the history of tables: old objects that `prism history` registers and converts behind all others.

Such an object has the state `history` until a batch of `prism history` claims it. No other batch sees it before. Begun,
it is like any other object, whatever becomes of its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.intake.staging_objects import FoundObject

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
    """Objects that waited for a batch of Stream, and now wait for `prism history`."""


def register(
    connection: Connection, stream_id: int, table_id: int, objects: Sequence[DatedObject], now: datetime
) -> Registered:
    """Registers old objects of a stream. Other objects, begun or done, stay as they are. Repeats change nothing.

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
    set_back = 0 if new == len(objects) else connection.execute(text(_SET_BACK), values).rowcount
    return Registered(new=new, set_back=set_back)


_SHARE = "SELECT 1 FROM prism_streams WHERE prism_stream_id = :stream FOR SHARE"
_MAY_HAVE_HISTORY = """
SELECT EXISTS (SELECT 1 FROM prism_streams s WHERE prism_stream_id = :stream AND NOT removed AND intake = 'convert'
    AND prism_table_id = :table
    AND NOT EXISTS (SELECT 1 FROM prism_streams k WHERE k.bucket_name = s.bucket_name AND k.key_prefix = s.key_prefix
        AND k.prism_stream_id <> s.prism_stream_id AND NOT k.removed))
"""
_INSERT = """
INSERT INTO prism_staging_objects (prism_stream_id, prism_table_id, bucket_name, object_key, etag, content_length,
    send_time, first_receive_time, state, history_date)
SELECT stream.prism_stream_id, stream.prism_table_id, f.bucket, f.key, f.etag, f.length, f.sent, :now, 'history', f.day
FROM prism_streams stream CROSS JOIN unnest(CAST(:buckets AS text[]), CAST(:keys AS text[]), CAST(:etags AS text[]),
    CAST(:lengths AS bigint[]), CAST(:sent AS timestamptz[]), CAST(:days AS date[]))
    AS f (bucket, key, etag, length, sent, day)
WHERE stream.prism_stream_id = :stream
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key
    AND (o.prism_stream_id = stream.prism_stream_id OR o.prism_table_id = stream.prism_table_id))
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


def count_unfinished(connection: Connection, table_id: int, day: date) -> int:
    """Counts unfinished objects of a table's history with the day or the next one in their keys, by index.

    An object of the next day often has the last rows of a day.
    """
    return int(connection.execute(text(_COUNT_OF_DAY), {"table": table_id, "day": day}).scalar_one())


_COUNT_OF_DAY = f"""
SELECT count(*) FROM prism_staging_objects
WHERE prism_table_id = :table AND {_UNFINISHED} AND history_date BETWEEN :day AND CAST(:day AS date) + 1
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


def forget_waiting(connection: Connection, table_id: int) -> int:
    """Deletes the rows of a table's history that no batch has claimed. Returns how many. Locks them."""
    return connection.execute(text(_FORGET), {"table": table_id}).rowcount


_FORGET = """
DELETE FROM prism_staging_objects
WHERE prism_table_id = :table AND state = 'history' AND history_date IS NOT NULL
"""


def count_known(connection: Connection, stream_id: int, found: Sequence[FoundObject]) -> int:
    """Counts the objects that a batch has begun, or finished. Reads without locks."""
    values = {
        "stream": stream_id,
        "buckets": [item.bucket for item in found],
        "keys": [item.key for item in found],
    }
    return int(connection.execute(text(_COUNT_KNOWN), values).scalar_one())


_COUNT_KNOWN = """
SELECT count(*) FROM unnest(CAST(:buckets AS text[]), CAST(:keys AS text[])) AS f (bucket, key)
CROSS JOIN LATERAL (
    SELECT 1 FROM prism_staging_objects o WHERE o.bucket_name = f.bucket AND o.object_key = f.key
        AND o.prism_table_id = (SELECT prism_table_id FROM prism_streams WHERE prism_stream_id = :stream)
        AND (o.state IN ('claimed', 'done', 'failed') OR o.first_batch_id IS NOT NULL OR o.generation > 0)
    OFFSET 0
) o
"""

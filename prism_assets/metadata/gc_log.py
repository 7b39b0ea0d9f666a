"""Statements on prism_gc_log: what garbage collection is about to delete, what it deleted, when, and why.

An object is marked before it is deleted, and its deletion is recorded after it. A run that dies in between leaves
marks, which the next run settles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.garbage import Garbage

_OVERDUE_SECONDS = 2 * 86_400.0
"""By then the run of the next day has settled the marks of one that died."""
_FORGOTTEN_AT_ONCE = 100_000


def mark(connection: Connection, table_id: int, bucket: str, garbage: Sequence[Garbage]) -> None:
    """Marks objects that are about to be deleted; one that is marked already keeps its row. Locks the rows."""
    if not garbage:
        return
    connection.execute(
        text(_MARK),
        {
            "table": table_id,
            "bucket": bucket,
            "keys": [item.key for item in garbage],
            "lengths": [item.content_length for item in garbage],
            "dates": [item.date for item in garbage],
            "modified": [item.last_modified for item in garbage],
            "reasons": [item.reason.value for item in garbage],
        },
    )


_MARK = """
INSERT INTO prism_gc_log
    (prism_table_id, bucket_name, object_key, content_length, partition_date, last_modified, reason, mark_time)
SELECT CAST(:table AS bigint), CAST(:bucket AS text), f.*, clock_timestamp()
FROM unnest(CAST(:keys AS text[]), CAST(:lengths AS bigint[]), CAST(:dates AS date[]),
    CAST(:modified AS timestamptz[]), CAST(:reasons AS text[])) AS f
ON CONFLICT (bucket_name, object_key) WHERE delete_time IS NULL
    DO UPDATE SET mark_time = EXCLUDED.mark_time, reason = EXCLUDED.reason
"""


def load_marked(connection: Connection, table_id: int) -> set[str]:
    """The keys of a table that were marked, and whose deletion is not recorded. Reads without locks."""
    return set(connection.execute(text(_MARKED), {"table": table_id}).scalars())


_MARKED = "SELECT object_key FROM prism_gc_log WHERE prism_table_id = :table AND delete_time IS NULL"


def record_deletion(connection: Connection, bucket: str, keys: Collection[str]) -> None:
    """Records that marked objects are deleted. Locks the rows."""
    connection.execute(text(_RECORD), {"bucket": bucket, "keys": list(keys)})


_RECORD = """
UPDATE prism_gc_log SET delete_time = clock_timestamp()
WHERE bucket_name = :bucket AND object_key = ANY(:keys) AND delete_time IS NULL
"""


def unmark(connection: Connection, bucket: str, keys: Collection[str]) -> None:
    """Takes back the marks of objects that were not deleted. Locks the rows."""
    connection.execute(text(_UNMARK), {"bucket": bucket, "keys": list(keys)})


_UNMARK = "DELETE FROM prism_gc_log WHERE bucket_name = :bucket AND object_key = ANY(:keys) AND delete_time IS NULL"


def forget_before(connection: Connection, table_id: int, at: datetime) -> int:
    """Forgets the oldest deletions of a table from before an instant, at most 100,000; returns how many. Locks the rows."""
    return connection.execute(text(_FORGET), {"table": table_id, "at": at, "most": _FORGOTTEN_AT_ONCE}).rowcount


_FORGET = """
DELETE FROM prism_gc_log WHERE prism_gc_log_id IN (
    SELECT prism_gc_log_id FROM prism_gc_log WHERE prism_table_id = :table AND delete_time < :at
    ORDER BY delete_time LIMIT :most)
"""


def count_overdue(connection: Connection, seconds: float = _OVERDUE_SECONDS) -> dict[int, int]:
    """How many objects were marked so long ago and are not deleted, by table, where there are any. No locks."""
    rows = connection.execute(text(_OVERDUE), {"seconds": seconds})
    return {row.prism_table_id: row.objects for row in rows}


_OVERDUE = """
SELECT prism_table_id, count(*) AS objects FROM prism_gc_log
WHERE delete_time IS NULL AND mark_time < clock_timestamp() - make_interval(secs => :seconds)
GROUP BY prism_table_id
"""

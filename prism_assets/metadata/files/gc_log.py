"""Statements on prism_gc_log: objects about to be deleted, and deleted objects with time and reason.

An object is marked before its deletion, and the deletion is recorded afterwards. A run that dies in between leaves
marks, and the next run settles them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.files.garbage import Garbage

_OVERDUE_SECONDS = 2 * 86_400.0
"""By then the next day's run has settled the marks of a dead run."""
_FORGOTTEN_AT_ONCE = 100_000


def mark(connection: Connection, table_id: int, bucket: str, garbage: Sequence[Garbage]) -> None:
    """Marks objects about to be deleted. Marked objects keep their row. Locks the rows."""
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
    """Returns marked keys of a table without a recorded deletion. Reads without locks."""
    return set(connection.execute(text(_MARKED), {"table": table_id}).scalars())


_MARKED = "SELECT object_key FROM prism_gc_log WHERE prism_table_id = :table AND delete_time IS NULL"


def record_deletion(connection: Connection, bucket: str, keys: Collection[str]) -> None:
    """Records the deletion of marked objects. Locks the rows."""
    connection.execute(text(_RECORD), {"bucket": bucket, "keys": list(keys)})


_RECORD = """
UPDATE prism_gc_log SET delete_time = clock_timestamp()
WHERE bucket_name = :bucket AND object_key = ANY(:keys) AND delete_time IS NULL
"""


def unmark(connection: Connection, bucket: str, keys: Collection[str]) -> None:
    """Removes marks of objects that were not deleted. Locks the rows."""
    connection.execute(text(_UNMARK), {"bucket": bucket, "keys": list(keys)})


_UNMARK = "DELETE FROM prism_gc_log WHERE bucket_name = :bucket AND object_key = ANY(:keys) AND delete_time IS NULL"


def forget_before(connection: Connection, table_id: int, at: datetime) -> int:
    """Deletes the oldest log rows of a table from before an instant, at most 100,000. Returns how many. Locks the rows."""
    return connection.execute(text(_FORGET), {"table": table_id, "at": at, "most": _FORGOTTEN_AT_ONCE}).rowcount


_FORGET = """
DELETE FROM prism_gc_log WHERE prism_gc_log_id IN (
    SELECT prism_gc_log_id FROM prism_gc_log WHERE prism_table_id = :table AND delete_time < :at
    ORDER BY delete_time LIMIT :most)
"""


def count_overdue(connection: Connection, seconds: float = _OVERDUE_SECONDS) -> dict[int, int]:
    """Returns, by table, how many objects were marked long ago and are not deleted. Takes no locks."""
    rows = connection.execute(text(_OVERDUE), {"seconds": seconds})
    return {row.prism_table_id: row.objects for row in rows}


_OVERDUE = """
SELECT prism_table_id, count(*) AS objects FROM prism_gc_log
WHERE delete_time IS NULL AND mark_time < clock_timestamp() - make_interval(secs => :seconds)
GROUP BY prism_table_id
"""

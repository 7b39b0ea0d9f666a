"""Statements on prism_abandoned_uploads: what attempts may have uploaded for a start of an object that is over.

Nothing that is committed later ever lies under these keys, because an object that starts again has another generation.
So they may be removed at any time, by anybody, twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

_SECOND_REMOVAL_SECONDS = 3_600.0
"""By then a task that outlived its driver has come to its end."""


@dataclass(frozen=True, kw_only=True)
class AbandonedUpload:
    """The event dates under which an object may have been uploaded in one generation, both included."""

    staging_object_id: int
    generation: int
    table_id: int
    first_date: date
    last_date: date


def abandon_uploads(connection: Connection, uploads: Sequence[AbandonedUpload]) -> None:
    """Notes uploads for removal, in the transaction in which their objects are given up or begun anew."""
    if not uploads:
        return
    connection.execute(
        text(_ABANDON),
        {
            "ids": [item.staging_object_id for item in uploads],
            "generations": [item.generation for item in uploads],
            "tables": [item.table_id for item in uploads],
            "firsts": [item.first_date for item in uploads],
            "lasts": [item.last_date for item in uploads],
        },
    )


_ABANDON = """
INSERT INTO prism_abandoned_uploads
    (prism_staging_object_id, generation, prism_table_id, first_date, last_date, remove_time)
SELECT f.*, clock_timestamp()
FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[]), CAST(:tables AS bigint[]),
    CAST(:firsts AS date[]), CAST(:lasts AS date[])) AS f
ON CONFLICT (prism_staging_object_id, generation) DO UPDATE
SET remove_time = EXCLUDED.remove_time, removed = false
"""


def due_uploads(connection: Connection, table_ids: Collection[int] | None, limit: int) -> list[AbandonedUpload]:
    """What is to be removed now, the longest due first. Reads without locks: removing twice is harmless."""
    rows = connection.execute(text(_DUE), {"tables": None if table_ids is None else list(table_ids), "limit": limit})
    return [AbandonedUpload(**row._mapping) for row in rows]


_DUE = """
SELECT prism_staging_object_id AS staging_object_id, generation, prism_table_id AS table_id, first_date, last_date
FROM prism_abandoned_uploads
WHERE remove_time <= clock_timestamp()
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
ORDER BY remove_time LIMIT :limit
"""


def postpone_removal(connection: Connection, uploads: Sequence[AbandonedUpload], seconds: float) -> None:
    """Puts off what the store would not remove, so that the removal of others does not wait for it. Locks the rows."""
    if uploads:
        connection.execute(text(_POSTPONE), {**_values(uploads), "seconds": seconds})


_POSTPONE = """
UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp() + make_interval(secs => :seconds)
WHERE (prism_staging_object_id, generation) IN
    (SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])))
"""


def note_removal(connection: Connection, uploads: Sequence[AbandonedUpload]) -> None:
    """Notes that keys were removed: after the first time they are looked at once more, after the second no more.

    Locks the rows.
    """
    values = _values(uploads)
    connection.execute(text(_FORGET), values)
    connection.execute(text(_LOOK_ONCE_MORE), {**values, "seconds": _SECOND_REMOVAL_SECONDS})


_FORGET = """
DELETE FROM prism_abandoned_uploads
WHERE removed AND remove_time <= clock_timestamp() AND (prism_staging_object_id, generation) IN
    (SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])))
"""
_LOOK_ONCE_MORE = """
UPDATE prism_abandoned_uploads SET removed = true,
    remove_time = clock_timestamp() + make_interval(secs => :seconds)
WHERE NOT removed AND (prism_staging_object_id, generation) IN
    (SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])))
"""


def _values(uploads: Sequence[AbandonedUpload]) -> dict[str, list[int]]:
    return {
        "ids": [item.staging_object_id for item in uploads],
        "generations": [item.generation for item in uploads],
    }


def count_overdue(connection: Connection, seconds: float = 3_600.0) -> dict[int, int]:
    """How many objects have keys that should have been removed so long ago, by table, where there are any. No locks."""
    rows = connection.execute(text(_OVERDUE), {"seconds": seconds})
    return {row.prism_table_id: row.objects for row in rows}


_OVERDUE = """
SELECT prism_table_id, count(*) AS objects FROM prism_abandoned_uploads
WHERE NOT removed AND remove_time < clock_timestamp() - make_interval(secs => :seconds)
GROUP BY prism_table_id
"""

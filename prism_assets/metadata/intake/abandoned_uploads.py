"""Statements on prism_abandoned_uploads: possible uploads of attempts from an earlier generation of an object.

No later commit ever uses these keys, because a restarted object has another generation. So anybody may remove them at
any time, even twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

_SECOND_REMOVAL_SECONDS = 3_600.0
"""By then a task that outlived its driver has ended."""


@dataclass(frozen=True, kw_only=True)
class AbandonedUpload:
    """The event dates of an object's possible uploads in one generation, both included."""

    staging_object_id: int
    generation: int
    table_id: int
    first_date: date
    last_date: date


def abandon_uploads(connection: Connection, uploads: Sequence[AbandonedUpload]) -> None:
    """Notes uploads for removal, in the transaction that gives up or restarts their objects."""
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
    """Returns due uploads, the longest due first. Reads without locks, because a second removal is harmless."""
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
    """Postpones uploads the store did not remove, so that others need not wait. Locks the rows."""
    if uploads:
        connection.execute(text(_POSTPONE), {**_values(uploads), "seconds": seconds})


_POSTPONE = """
UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp() + make_interval(secs => :seconds)
WHERE (prism_staging_object_id, generation) IN
    (SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])))
"""


def note_removal(connection: Connection, uploads: Sequence[AbandonedUpload]) -> None:
    """Notes a removal of keys. After the first one they are removed once more later; after the second the rows go.

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
    """Counts objects with keys overdue for this long, by table. Takes no locks."""
    rows = connection.execute(text(_OVERDUE), {"seconds": seconds})
    return {row.prism_table_id: row.objects for row in rows}


_OVERDUE = """
SELECT prism_table_id, count(*) AS objects FROM prism_abandoned_uploads
WHERE NOT removed AND remove_time < clock_timestamp() - make_interval(secs => :seconds)
GROUP BY prism_table_id
"""

"""Statements on prism_abandoned_uploads: what attempts may have uploaded for a start of an object that is over.

Nothing that is committed later ever lies under these keys: an object that is begun anew has another generation, and the
database refuses small objects of a former one. So they may be removed at any time, by anybody, twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

_SECOND_REMOVAL_SECONDS = 3_600.0
"""By then a task that outlived its driver has come to its end."""

# Not that of an object that is under way in the same generation: a command of an older version began it anew.
IS_DUE = """a.remove_time <= clock_timestamp() AND NOT EXISTS (SELECT 1 FROM prism_staging_objects o
    WHERE o.prism_staging_object_id = a.prism_staging_object_id AND o.generation = a.generation
        AND o.state IN ('pending', 'claimed'))"""
"""What tells that uploads `a` are to be removed now."""


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
        text(
            "INSERT INTO prism_abandoned_uploads "
            "(prism_staging_object_id, generation, prism_table_id, first_date, last_date, remove_time) "
            "SELECT f.*, clock_timestamp() FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[]), "
            "CAST(:tables AS bigint[]), CAST(:firsts AS date[]), CAST(:lasts AS date[])) AS f "
            "ON CONFLICT (prism_staging_object_id, generation) DO UPDATE "
            "SET remove_time = EXCLUDED.remove_time, removed = false"
        ),
        {
            "ids": [item.staging_object_id for item in uploads],
            "generations": [item.generation for item in uploads],
            "tables": [item.table_id for item in uploads],
            "firsts": [item.first_date for item in uploads],
            "lasts": [item.last_date for item in uploads],
        },
    )


def due_uploads(connection: Connection, table_ids: Collection[int] | None, limit: int) -> list[AbandonedUpload]:
    """What is to be removed now, the longest due first. Reads without locks: removing twice is harmless."""
    rows = connection.execute(
        text(
            f"SELECT * FROM prism_abandoned_uploads a WHERE {IS_DUE} "
            "AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[]))) "
            "ORDER BY remove_time LIMIT :limit"
        ),
        {"tables": None if table_ids is None else list(table_ids), "limit": limit},
    )
    return [
        AbandonedUpload(
            staging_object_id=row.prism_staging_object_id,
            generation=row.generation,
            table_id=row.prism_table_id,
            first_date=row.first_date,
            last_date=row.last_date,
        )
        for row in rows
    ]


def postpone_removal(connection: Connection, uploads: Sequence[AbandonedUpload], seconds: float) -> None:
    """Puts off what the store would not remove, so that the removal of others does not wait for it."""
    if not uploads:
        return
    connection.execute(
        text(
            "UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp() + make_interval(secs => :seconds) "
            f"WHERE {_THESE}"
        ),
        {**_values(uploads), "seconds": seconds},
    )


def load_committed(
    connection: Connection, uploads: Sequence[AbandonedUpload]
) -> dict[tuple[int, int], set[tuple[date, bool]]]:
    """What is committed of uploads all the same: by (staging object id, generation), each (date, delayed).

    A worker of an older version did that before the database refused it. Reads without locks: nobody does it any more.
    """
    rows = connection.execute(
        text(
            "SELECT f.id, f.generation, p.partition_date, s.delayed FROM "
            "unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])) AS f (id, generation) "
            "JOIN prism_small_objects s ON s.prism_staging_object_id = f.id AND s.generation = f.generation "
            "JOIN prism_partitions p USING (prism_partition_id)"
        ),
        _values(uploads),
    )
    found: dict[tuple[int, int], set[tuple[date, bool]]] = {}
    for row in rows:
        found.setdefault((row.id, row.generation), set()).add((row.partition_date, row.delayed))
    return found


def note_removal(connection: Connection, uploads: Sequence[AbandonedUpload]) -> None:
    """Notes that keys were removed: after the first time they are looked at once more, after the second no more."""
    values = _values(uploads)
    connection.execute(
        text(f"DELETE FROM prism_abandoned_uploads WHERE removed AND remove_time <= clock_timestamp() AND {_THESE}"),
        values,
    )
    connection.execute(
        text(
            "UPDATE prism_abandoned_uploads SET removed = true, "
            f"remove_time = clock_timestamp() + make_interval(secs => :seconds) WHERE NOT removed AND {_THESE}"
        ),
        {**values, "seconds": _SECOND_REMOVAL_SECONDS},
    )


_THESE = (
    "(prism_staging_object_id, generation) IN "
    "(SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])))"
)


def _values(uploads: Sequence[AbandonedUpload]) -> dict[str, list[int]]:
    return {
        "ids": [item.staging_object_id for item in uploads],
        "generations": [item.generation for item in uploads],
    }


def count_overdue(connection: Connection, seconds: float = 3_600.0) -> dict[int, int]:
    """How many objects have keys that should have been removed so long ago, by table, where there are any."""
    rows = connection.execute(
        text(
            "SELECT prism_table_id, count(*) AS objects FROM prism_abandoned_uploads WHERE NOT removed "
            "AND remove_time < clock_timestamp() - make_interval(secs => :seconds) GROUP BY prism_table_id"
        ),
        {"seconds": seconds},
    )
    return {row.prism_table_id: row.objects for row in rows}

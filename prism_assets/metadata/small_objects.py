"""Statements on prism_small_objects and prism_quarantine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.work import ConvertTask, SmallObject


@dataclass(frozen=True, kw_only=True)
class KnownSmallObject:
    """A committed small object. Bytes and rows are those of its Parquet object."""

    object_id: int
    staging_object_id: int
    generation: int
    delayed: bool
    content_length: int
    row_count: int
    fingerprint: int


def insert_small_objects(
    connection: Connection,
    objects: Sequence[tuple[ConvertTask, SmallObject]],
    partition_ids: Mapping[tuple[int, date], int],
) -> dict[int, int]:
    """Inserts small objects given with the task that wrote them; returns the highest id by partition.

    The caller holds the locks of all touched partition rows, so inside a partition ids become visible in ascending
    order; a merge that reads `id > upper bound` never passes over one (ids taken before the lock would).
    """
    if not objects:
        return {}
    rows = connection.execute(
        text(
            "INSERT INTO prism_small_objects (prism_staging_object_id, generation, prism_partition_id, delayed, "
            "content_length, upload_start_time, row_count, min_time, max_time, fingerprint) "
            "SELECT * FROM unnest(CAST(:staging AS bigint[]), CAST(:generations AS integer[]), "
            "CAST(:partitions AS bigint[]), CAST(:delayed AS boolean[]), "
            "CAST(:lengths AS bigint[]), CAST(:started AS timestamptz[]), CAST(:rows AS bigint[]), "
            "CAST(:mins AS timestamptz[]), CAST(:maxs AS timestamptz[]), CAST(:fingerprints AS bigint[])) "
            "RETURNING prism_partition_id, prism_small_object_id"
        ),
        {
            "staging": [task.staging_object_id for task, _ in objects],
            "generations": [task.generation for task, _ in objects],
            "partitions": [partition_ids[task.table_id, small.date] for task, small in objects],
            "delayed": [small.delayed for _, small in objects],
            "lengths": [small.content_length for _, small in objects],
            "started": [small.upload_start_time for _, small in objects],
            "rows": [small.row_count for _, small in objects],
            "mins": [small.min_time for _, small in objects],
            "maxs": [small.max_time for _, small in objects],
            "fingerprints": [small.fingerprint for _, small in objects],
        },
    )
    highest: dict[int, int] = {}
    for row in rows:
        highest[row.prism_partition_id] = max(highest.get(row.prism_partition_id, 0), row.prism_small_object_id)
    return highest


def count_unmerged_live(connection: Connection, partition_id: int, upper_bound: int) -> int:
    """How many live small objects of a partition lie above its merged ranges. Reads without locks."""
    return int(
        connection.execute(
            text(
                "SELECT count(*) FROM prism_small_objects WHERE prism_partition_id = :partition "
                "AND prism_small_object_id > :upper AND NOT delayed"
            ),
            {"partition": partition_id, "upper": upper_bound},
        ).scalar_one()
    )


def load_above(
    connection: Connection, partition_id: int, lower_bound: int, limit: int | None
) -> list[KnownSmallObject]:
    """The committed small objects of a partition with id > lower_bound, by id."""
    rows = connection.execute(
        text(
            "SELECT * FROM prism_small_objects WHERE prism_partition_id = :partition AND prism_small_object_id > :lower "
            "ORDER BY prism_small_object_id LIMIT :limit"
        ),
        {"partition": partition_id, "lower": lower_bound, "limit": limit},
    )
    return [
        KnownSmallObject(
            object_id=row.prism_small_object_id,
            staging_object_id=row.prism_staging_object_id,
            generation=row.generation,
            delayed=row.delayed,
            content_length=row.content_length,
            row_count=row.row_count,
            fingerprint=row.fingerprint,
        )
        for row in rows
    ]


def find_strays(
    connection: Connection, partition_id: int, uploads: Collection[tuple[int, int]]
) -> set[tuple[int, int]]:
    """Those of the uploads, each (staging object id, generation), that are not committed and never will be.

    Their object was begun anew since, or it is done or given up without them. Reads without locks: that lasts for ever.
    """
    ordered = sorted(uploads)
    rows = connection.execute(
        text(_STRAYS),
        {
            "partition": partition_id,
            "ids": [staging for staging, _ in ordered],
            "generations": [generation for _, generation in ordered],
        },
    )
    return {(row.id, row.generation) for row in rows}


_STRAYS = """
SELECT f.id, f.generation FROM unnest(CAST(:ids AS bigint[]), CAST(:generations AS integer[])) AS f (id, generation)
JOIN prism_staging_objects o ON o.prism_staging_object_id = f.id
WHERE (o.generation > f.generation OR (o.generation = f.generation AND o.state IN ('done', 'failed')))
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s WHERE s.prism_staging_object_id = f.id
        AND s.prism_partition_id = :partition AND s.generation = f.generation)
"""


def find_foreign(connection: Connection, table_id: int, staging_object_ids: Collection[int]) -> set[int]:
    """Those of the ids that are of no staging object of the table. Reads without locks.

    An object is registered before anything is uploaded for it, so what is not known after a listing never was.
    """
    rows = connection.execute(
        text(
            "SELECT f.id FROM unnest(CAST(:ids AS bigint[])) AS f (id) WHERE NOT EXISTS ("
            "SELECT 1 FROM prism_staging_objects o WHERE o.prism_staging_object_id = f.id AND o.prism_table_id = :table)"
        ),
        {"ids": sorted(staging_object_ids), "table": table_id},
    )
    return set(rows.scalars())


def set_length(connection: Connection, object_id: int, before: int, after: int) -> bool:
    """Records the length of a repaired object, in bytes; False if it is no longer what it was `before`.

    The caller holds the partition's row, which publishing takes to read lengths.
    """
    return bool(
        connection.execute(
            text(
                "UPDATE prism_small_objects SET content_length = :after "
                "WHERE prism_small_object_id = :id AND content_length = :before"
            ),
            {"id": object_id, "before": before, "after": after},
        ).rowcount
    )

"""Statements on prism_publications: what each publisher shows of each partition, as far as it was recorded.

`dirty` says that a publication may be due: whoever changes what a closed partition should show sets it, under the row
lock of the partition, and the record of a publication clears it, under the same lock. What is due is decided from the
rows themselves (`publication_due`); open partitions are looked at by every catalog run anyway. Only Glue marks and asks
for rows of its own yet: another publisher brings its name to `mark_dirty` and to the view prism_partition_states.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.partitions import Publication

GLUE = "glue"


def mark_dirty(connection: Connection, partition_ids: Collection[int]) -> None:
    """Has the closed ones of some partitions looked at by the next catalog run. The caller holds their rows."""
    connection.execute(text(_MARK), {"partitions": sorted(partition_ids), "publisher": GLUE})


_MARK = """
INSERT INTO prism_publications AS q (prism_partition_id, publisher, version, published_object_id, revision, dirty)
SELECT prism_partition_id, :publisher, -1, 0, 0, true FROM prism_partitions
WHERE prism_partition_id = ANY(:partitions) AND last_live_object_id IS NOT NULL ORDER BY prism_partition_id
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty
"""


def advance(
    connection: Connection, partition_id: int, publisher: str, publication: Publication, now: datetime, *, dirty: bool
) -> bool:
    """Records what a publisher shows now, upwards only; False if a newer publication is recorded already.

    The caller holds the partition's row; `dirty` if another publication is due by now.
    """
    done = connection.execute(
        text(_ADVANCE),
        {
            "partition": partition_id,
            "publisher": publisher,
            "version": publication.version,
            "last": publication.published_object_id,
            "revision": publication.revision,
            "dirty": dirty,
            "now": now,
        },
    )
    return bool(done.rowcount)


_ADVANCE = """
INSERT INTO prism_publications AS q
    (prism_partition_id, publisher, version, published_object_id, revision, dirty, publish_time)
VALUES (:partition, :publisher, :version, :last, :revision, :dirty, :now)
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET version = excluded.version,
    published_object_id = excluded.published_object_id, revision = excluded.revision, dirty = excluded.dirty,
    publish_time = excluded.publish_time
WHERE q.version <= excluded.version AND q.published_object_id <= excluded.published_object_id
    AND q.revision <= excluded.revision
"""

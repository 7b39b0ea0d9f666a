"""Statements on prism_publications: each publisher's recorded content of each partition.

`dirty` means a publication may be due. A trigger on prism_partitions sets it, in the transaction and under the row lock
of any change in the content of a closed partition. The record of a publication clears it under the same lock.
`publication_due` decides from the rows themselves. Every catalog run checks open partitions anyway. The view
prism_partition_states has Glue's rows. Iceberg's days are dirty while open, too, and are read with its tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import GLUE, NEW_VERSION, Partition, Publication


def as_shown_by(connection: Connection, publisher: str, found: Sequence[Partition]) -> list[Partition]:
    """Returns partitions of the view with a publisher's recorded publication. Reads without locks."""
    if publisher == GLUE or not found:
        return list(found)
    rows = connection.execute(text(_SHOWN_BY), {"ids": [item.partition_id for item in found], "publisher": publisher})
    shown = {row.prism_partition_id: row for row in rows}
    return [
        replace(
            item,
            current_version=row.version if row else NEW_VERSION,
            published_object_id=row.published_object_id if row else None,
            published_revision=row.revision if row else 0,
        )
        for item in found
        for row in [shown.get(item.partition_id)]
    ]


_SHOWN_BY = """
SELECT * FROM prism_publications WHERE prism_partition_id = ANY(:ids) AND publisher = :publisher
"""


def oldest_version(connection: Connection, partition: Partition) -> int:
    """Returns the least version of a partition shown by any catalog, for `needed_above`. Reads without locks."""
    found = connection.execute(text(_OLDEST), {"partition": partition.partition_id}).scalar_one()
    return min(partition.current_version, partition.current_version if found is None else int(found))


_OLDEST = """
SELECT min(version) FROM prism_publications
WHERE prism_partition_id = :partition AND publisher <> 'iceberg' AND version >= 0
"""


def advance(
    connection: Connection,
    partition_id: int,
    publisher: str,
    publication: Publication,
    now: datetime,
    *,
    dirty: bool,
    repairs: int = 0,
) -> bool:
    """Records a publisher's new publication. Returns False if a newer one is recorded already.

    The caller holds the partition's row. `dirty`: another publication is due already. `repairs`: the last repair after
    which the publisher named no old length any more, for publishers with a history.
    """
    done = connection.execute(
        text(_ADVANCE),
        {
            "partition": partition_id,
            "publisher": publisher,
            "version": publication.version,
            "last": publication.published_object_id,
            "revision": publication.revision,
            "repairs": repairs,
            "dirty": dirty,
            "now": now,
        },
    )
    return bool(done.rowcount)


_ADVANCE = """
INSERT INTO prism_publications AS q
    (prism_partition_id, publisher, version, published_object_id, revision, repairs, dirty, publish_time)
VALUES (:partition, :publisher, :version, :last, :revision, :repairs, :dirty, :now)
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET version = excluded.version,
    published_object_id = excluded.published_object_id, revision = excluded.revision, repairs = excluded.repairs,
    dirty = excluded.dirty, publish_time = excluded.publish_time
WHERE q.version <= excluded.version AND q.published_object_id <= excluded.published_object_id
    AND q.revision <= excluded.revision
"""


def withdraw(connection: Connection, partition_id: int, publisher: str, now: datetime) -> None:
    """Records that a publisher no longer shows an expired day. The caller holds the partition's row."""
    connection.execute(text(_WITHDRAW), {"partition": partition_id, "publisher": publisher, "now": now})


_WITHDRAW = """
INSERT INTO prism_publications
    (prism_partition_id, publisher, version, published_object_id, revision, dirty, publish_time, withdraw_time)
VALUES (:partition, :publisher, -1, 0, 0, false, :now, clock_timestamp())
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET version = excluded.version,
    published_object_id = excluded.published_object_id, revision = excluded.revision, dirty = excluded.dirty,
    publish_time = excluded.publish_time, withdraw_time = excluded.withdraw_time
"""


def set_dirty(connection: Connection, partition_id: int, publisher: str, *, dirty: bool) -> None:
    """Records only whether a publication may be due. The caller holds the partition's row."""
    connection.execute(text(_SET_DIRTY), {"partition": partition_id, "publisher": publisher, "dirty": dirty})


_SET_DIRTY = """
INSERT INTO prism_publications AS q (prism_partition_id, publisher, version, published_object_id, revision, dirty)
VALUES (:partition, :publisher, -1, 0, 0, :dirty)
ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = excluded.dirty WHERE q.dirty <> excluded.dirty
"""


def newest_published(connection: Connection, publisher: str, latest: Mapping[int, date]) -> dict[int, date]:
    """Returns the newest visible day of each table up to a given one, by table id. Reads without locks."""
    values = {"publisher": publisher, "tables": list(latest), "latest": list(latest.values())}
    rows = connection.execute(text(_NEWEST_PUBLISHED), values)
    return {row.prism_table_id: row.date for row in rows}


_NEWEST_PUBLISHED = """
SELECT p.prism_table_id, max(p.partition_date) AS date
FROM unnest(CAST(:tables AS bigint[]), CAST(:latest AS date[])) AS t (id, latest)
JOIN prism_partitions p ON p.prism_table_id = t.id AND p.partition_date <= t.latest
JOIN prism_publications q USING (prism_partition_id)
WHERE q.publisher = :publisher AND q.version >= 0
GROUP BY p.prism_table_id
"""

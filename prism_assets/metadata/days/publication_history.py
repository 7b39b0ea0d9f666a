"""Statements on prism_publication_history: when each publication was recorded, by the database's clock.

A trigger adds rows in the transaction that records the publication. From then on readers get no older one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Publication


def load_shown_at(
    connection: Connection, partition_ids: Collection[int], at: datetime
) -> dict[int, dict[str, Publication | None]]:
    """Returns each publisher's publication at an instant, by partition id. None means unknown.

    Covers publishers that show the partition's table, or stopped after that instant. Readers may already have had a
    later publication by then, but no earlier one. Reads without locks.
    """
    rows = connection.execute(text(_SHOWN_AT), {"ids": list(partition_ids), "at": at})
    found: dict[int, dict[str, Publication | None]] = {}
    for row in rows:
        known = None if row.version is None else Publication(row.version, row.published_object_id, row.revision)
        found.setdefault(row.prism_partition_id, {})[row.publisher] = known
    return found


# Iceberg has no such rows; its snapshots contain their own history.
_SHOWN_AT = """
SELECT r.prism_partition_id, r.publisher, h.version, h.published_object_id, h.revision
FROM (
    SELECT p.prism_partition_id, t.publisher FROM prism_partitions p JOIN prism_table_publications t USING (prism_table_id)
    WHERE p.prism_partition_id = ANY(:ids)
    UNION
    SELECT prism_partition_id, publisher FROM prism_publications
    WHERE prism_partition_id = ANY(:ids) AND publisher <> 'iceberg' AND (version >= 0 OR withdraw_time > :at)
) r
LEFT JOIN LATERAL (
    SELECT * FROM prism_publication_history
    WHERE prism_partition_id = r.prism_partition_id AND publisher = r.publisher AND record_time <= :at
    ORDER BY version DESC, published_object_id DESC, revision DESC LIMIT 1
) h ON true
"""


def forget_before(connection: Connection, table_id: int, at: datetime) -> int:
    """Deletes a table's publications that readers no longer used at an instant. Returns how many. Locks these rows."""
    values = {"table": table_id, "at": at}
    return connection.execute(text(_FORGET), values).rowcount


_FORGET = """
DELETE FROM prism_publication_history h USING (
    SELECT DISTINCT ON (q.prism_partition_id, q.publisher) q.*
    FROM prism_publication_history q JOIN prism_partitions p USING (prism_partition_id)
    WHERE p.prism_table_id = :table AND q.record_time <= :at
    ORDER BY q.prism_partition_id, q.publisher, q.version DESC, q.published_object_id DESC, q.revision DESC
) shown
WHERE h.prism_partition_id = shown.prism_partition_id AND h.publisher = shown.publisher
    AND (h.version, h.published_object_id, h.revision)
        < (shown.version, shown.published_object_id, shown.revision)
"""

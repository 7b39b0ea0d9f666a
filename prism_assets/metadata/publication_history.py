"""Statements on prism_publication_history: when each publication was recorded, by the clock of the database.

A trigger adds to it in the transaction that records the publication. Readers are sent to nothing older from then on.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.partitions import Publication


def load_shown_at(
    connection: Connection, partition_ids: Collection[int], publisher: str, at: datetime
) -> dict[int, Publication]:
    """What readers of a publisher were sent to at an instant, by partition id, where that is known. Reads without locks.

    Readers may also have been sent to a later publication by then, never to an earlier one.
    """
    rows = connection.execute(text(_SHOWN_AT), {"ids": list(partition_ids), "publisher": publisher, "at": at})
    return {row.prism_partition_id: Publication(row.version, row.published_object_id, row.revision) for row in rows}


_SHOWN_AT = """
SELECT DISTINCT ON (prism_partition_id) prism_partition_id, version, published_object_id, revision
FROM prism_publication_history
WHERE prism_partition_id = ANY(:ids) AND publisher = :publisher AND record_time <= :at
ORDER BY prism_partition_id, version DESC, published_object_id DESC, revision DESC
"""


def forget_before(connection: Connection, table_id: int, publisher: str, at: datetime) -> int:
    """Deletes what readers of a table were sent to no more at an instant; returns how many. Locks these rows."""
    values = {"table": table_id, "publisher": publisher, "at": at}
    return connection.execute(text(_FORGET), values).rowcount


_FORGET = """
DELETE FROM prism_publication_history h USING (
    SELECT DISTINCT ON (q.prism_partition_id) q.*
    FROM prism_publication_history q JOIN prism_partitions p USING (prism_partition_id)
    WHERE p.prism_table_id = :table AND q.publisher = :publisher AND q.record_time <= :at
    ORDER BY q.prism_partition_id, q.version DESC, q.published_object_id DESC, q.revision DESC
) shown
WHERE h.prism_partition_id = shown.prism_partition_id AND h.publisher = shown.publisher
    AND (h.version, h.published_object_id, h.revision)
        < (shown.version, shown.published_object_id, shown.revision)
"""

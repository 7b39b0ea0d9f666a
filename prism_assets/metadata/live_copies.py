"""Statements on the copies of rewritten objects that lie under their live keys, where readers of open days list."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.files import SmallObject
from prism_assets.domain.keys import TableKeys
from prism_assets.metadata.small_objects import SMALL_OBJECTS, small_object_of


def load_uncopied(connection: Connection, table_id: int) -> list[tuple[int, int]]:
    """(partition id, small object id) of the rewritten objects of open days that readers of the live prefix lack.

    Not those whose old key an Iceberg table still lists: its readers would find another length there. Reads without
    locks; few days of a table are open.
    """
    rows = connection.execute(text(_UNCOPIED), {"table": table_id})
    return [(row.prism_partition_id, row.prism_small_object_id) for row in rows]


_LACKED = """
FROM prism_partitions p JOIN prism_small_objects s USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.last_live_object_id IS NULL AND NOT s.delayed AND s.live_revision < s.rewrite_id
"""
_COUNT_UNCOPIED = f"SELECT count(*) {_LACKED}"
_UNCOPIED = f"""
SELECT s.prism_partition_id, s.prism_small_object_id {_LACKED}
    AND NOT EXISTS (SELECT 1 FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id
        AND q.publisher = 'iceberg' AND q.version >= 0 AND q.revision < p.revision)
ORDER BY 1, 2
"""


def count_uncopied(connection: Connection, table_id: int) -> int:
    """How many rewritten objects of open days readers of the live prefix lack, also those that wait for Iceberg."""
    return int(connection.execute(text(_COUNT_UNCOPIED), {"table": table_id}).scalar_one())


def load_rewritten_days(connection: Connection, table_id: int) -> list[date]:
    """The open days of a table with objects that were rewritten, of which earlier forms stay. Reads without locks."""
    return list(connection.execute(text(_REWRITTEN_DAYS), {"table": table_id}).scalars())


_REWRITTEN_DAYS = """
SELECT p.partition_date FROM prism_partitions p
WHERE p.prism_table_id = :table AND p.last_live_object_id IS NULL AND EXISTS (
    SELECT 1 FROM prism_small_objects s WHERE s.prism_partition_id = p.prism_partition_id AND s.rewrite_id > 0)
ORDER BY 1
"""


def live_revision(connection: Connection, object_id: int, revision: int) -> int | None:
    """The revision of an object that lies under its live key; None if it was rewritten since. Reads without locks."""
    found: int | None = connection.execute(
        text(_LIVE_REVISION), {"id": object_id, "revision": revision}
    ).scalar_one_or_none()
    return found


_LIVE_REVISION = """
SELECT live_revision FROM prism_small_objects WHERE prism_small_object_id = :id AND rewrite_id = :revision
"""


def record_copy(connection: Connection, object_id: int, revision: int) -> None:
    """Records that a rewritten object lies under its live key, too. Locks its row."""
    connection.execute(text(_RECORD_COPY), {"id": object_id, "revision": revision})


_RECORD_COPY = """
UPDATE prism_small_objects SET live_revision = :revision
WHERE prism_small_object_id = :id AND rewrite_id = :revision AND live_revision < :revision
"""


def load_copied(connection: Connection, keys: TableKeys, partition_id: int) -> list[SmallObject]:
    """The rewritten objects of an open day that lie under their live keys, too; none of other days. Without locks."""
    rows = connection.execute(text(_COPIED), {"partition": partition_id})
    return [small_object_of(dict(row._mapping), keys) for row in rows]


_COPIED = f"""
{SMALL_OBJECTS}
WHERE s.prism_partition_id = :partition AND p.last_live_object_id IS NULL AND NOT s.delayed AND s.rewrite_id > 0
    AND s.live_revision = s.rewrite_id
ORDER BY s.prism_small_object_id
"""

"""Upkeep of prism_offset_ranges: old ranges are joined, and those of a dropped table deleted.

A range stays alone while its spool object exists: doctor compares its messages with the ledger of the object. Later it
only proves that no offset was left out, and a joined range proves the same.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, text

_AT_ONCE = 5_000


def find_joinable(connection: Connection, table_id: int) -> list[tuple[int, int]]:
    """Returns partitions of a table's topics with adjacent ranges to join, as (topic, partition). Reads without locks."""
    return [tuple(row) for row in connection.execute(text(_JOINABLE), {"table": table_id})]


# Served by the index of ranges without an object.
_JOINABLE = """
SELECT p.prism_topic_id, p.partition
FROM prism_streams s JOIN prism_topics t USING (prism_stream_id) JOIN prism_topic_partitions p USING (prism_topic_id)
WHERE s.prism_table_id = :table AND EXISTS (
    SELECT 1 FROM prism_offset_ranges a JOIN prism_offset_ranges b
        ON b.prism_topic_id = a.prism_topic_id AND b.partition = a.partition AND b.to_offset = a.from_offset
    WHERE a.prism_topic_id = p.prism_topic_id AND a.partition = p.partition
        AND a.kind = 'read' AND a.prism_staging_object_id IS NULL
        AND b.kind = 'read' AND b.prism_staging_object_id IS NULL)
ORDER BY 1, 2
"""


def join(connection: Connection, topic_pk: int, partition: int, above: int = -1) -> int | None:
    """Joins adjacent ranges without an object, among the first of those that end above an offset.

    Returns the offset from which to go on, or None at the end of the partition. Locks the row of the partition, as
    flushes do, and the rows of the ranges.
    """
    place = {"topic": topic_pk, "partition": partition, "above": above, "most": _AT_ONCE}
    connection.execute(text(_LOCK), place)
    last, count = connection.execute(text(_END_OF_PART), place).one()
    if not count:
        return None
    connection.execute(text(_JOIN), place)
    # The last range of a part may go on in the next one, which begins with it.
    return int(last) - 1 if count == _AT_ONCE else None


_LOCK = """
SELECT 1 FROM prism_topic_partitions WHERE prism_topic_id = :topic AND partition = :partition FOR UPDATE
"""
_FREE = """
SELECT from_offset, to_offset, records FROM prism_offset_ranges
WHERE prism_topic_id = :topic AND partition = :partition AND kind = 'read' AND prism_staging_object_id IS NULL
    AND to_offset > :above
ORDER BY to_offset LIMIT :most
"""
_END_OF_PART = f"SELECT max(to_offset), count(*) FROM ({_FREE}) free"
# One statement, because the chain has no gap at its end. The last range of each run takes the place of the others: the
# deletion is complete before the update begins, so that no two ranges have one beginning.
_JOIN = f"""
WITH runs AS MATERIALIZED (
    SELECT *, count(*) FILTER (WHERE begins) OVER (ORDER BY to_offset) AS run FROM (
        SELECT *, from_offset IS DISTINCT FROM lag(to_offset) OVER (ORDER BY to_offset) AS begins FROM ({_FREE}) free
    ) marked
), joined AS MATERIALIZED (
    SELECT run, min(from_offset) AS from_offset, max(to_offset) AS to_offset, sum(records) AS records
    FROM runs GROUP BY run HAVING count(*) > 1
), gone AS (
    DELETE FROM prism_offset_ranges r USING runs JOIN joined USING (run)
    WHERE r.prism_topic_id = :topic AND r.partition = :partition AND r.to_offset = runs.to_offset
        AND runs.to_offset < joined.to_offset
    RETURNING 1
)
UPDATE prism_offset_ranges r SET from_offset = joined.from_offset, records = joined.records
FROM joined, (SELECT count(*) AS ranges FROM gone) deleted
WHERE r.prism_topic_id = :topic AND r.partition = :partition AND r.to_offset = joined.to_offset AND deleted.ranges > 0
"""


def separate(connection: Connection, staging_object_ids: Collection[int]) -> None:
    """Separates ranges from staging objects whose rows are about to be deleted. Locks the rows of the ranges."""
    connection.execute(text(_SEPARATE), {"ids": list(staging_object_ids)})


_SEPARATE = """
UPDATE prism_offset_ranges SET prism_staging_object_id = NULL WHERE prism_staging_object_id = ANY(:ids)
"""


def forget_some(connection: Connection, table_id: int) -> bool:
    """Deletes some ranges of a dropped table, the last ones of their partitions first. Returns whether any are left.

    Locks their rows.
    """
    return connection.execute(text(_FORGET_SOME), {"table": table_id, "most": _AT_ONCE}).rowcount > 0


_FORGET_SOME = """
DELETE FROM prism_offset_ranges r USING (
    SELECT r.prism_topic_id, r.partition, r.to_offset FROM prism_offset_ranges r
    JOIN prism_topics t USING (prism_topic_id) JOIN prism_streams s USING (prism_stream_id)
    WHERE s.prism_table_id = :table
    ORDER BY r.prism_topic_id, r.partition, r.to_offset DESC LIMIT :most FOR UPDATE OF r
) w
WHERE r.prism_topic_id = w.prism_topic_id AND r.partition = w.partition AND r.to_offset = w.to_offset
"""

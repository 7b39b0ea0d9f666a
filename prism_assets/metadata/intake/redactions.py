"""Statements that take the lines of an erasure out of quarantine."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, text

from prism_assets.domain.work.redact import RedactResult


def load_unsearched_lines(connection: Connection, table_id: int, erasure_id: int) -> dict[int, str]:
    """Returns the keys of quarantined lines not yet searched for an erasure, by staging object id. Takes no locks."""
    rows = connection.execute(text(_UNCLEAN), {"table": table_id, "erasure": erasure_id})
    return {row.id: row.object_key for row in rows}


_UNCLEAN = """
SELECT DISTINCT q.prism_staging_object_id AS id, q.object_key
FROM prism_staging_objects o JOIN prism_quarantine q USING (prism_staging_object_id)
WHERE o.prism_table_id = :table AND o.rows_quarantined > 0 AND q.object_key IS NOT NULL AND q.erasure_id < :erasure
"""


def mark_unsearched(connection: Connection, table_id: int, erasure_id: int, keys: Collection[str]) -> int:
    """Returns quarantined lines, given by their keys, to the search of an erasure, because some match or may match.

    Locks the rows. Returns how many of the keys are recorded.
    """
    values = {"table": table_id, "erasure": erasure_id, "keys": sorted(keys)}
    return int(connection.execute(text(_MARK_UNSEARCHED), values).scalar_one())


_MARK_UNSEARCHED = """
WITH found AS (
    SELECT q.prism_quarantine_id, q.object_key FROM prism_staging_objects o JOIN prism_quarantine q
        USING (prism_staging_object_id)
    WHERE o.prism_table_id = :table AND o.rows_quarantined > 0 AND q.object_key = ANY(CAST(:keys AS text[]))
    ORDER BY q.prism_quarantine_id FOR UPDATE OF q
), marked AS (
    UPDATE prism_quarantine q SET erasure_id = :erasure - 1 FROM found
    WHERE q.prism_quarantine_id = found.prism_quarantine_id AND q.erasure_id >= :erasure
)
SELECT count(DISTINCT object_key) FROM found
"""


def mark_gone(connection: Connection, erasure_id: int, staging_object_id: int, key: str) -> None:
    """Ends the search of quarantined lines in a missing object. Locks the rows.

    Their counts stay, because the lines can no longer be identified.
    """
    values = {"erasure": erasure_id, "id": staging_object_id, "key": key}
    connection.execute(text(_MARK_GONE), values)


_MARK_GONE = """
UPDATE prism_quarantine SET erasure_id = :erasure
WHERE prism_staging_object_id = :id AND object_key = :key AND erasure_id < :erasure
"""


def record_redaction(connection: Connection, erasure_id: int, key: str, result: RedactResult) -> bool:
    """Records the lines left in quarantine of a staging object. Returns False if other lines stand there now.

    Locks the rows. The object's ledger counts the removed lines as erased.
    """
    values = {
        "erasure": erasure_id,
        "id": result.staging_object_id,
        "before": key,
        "after": result.key if result.changed else key,
        "reasons": [count.reason for count in result.left],
        "lines": [count.line_count for count in result.left],
        "erased": result.erased,
        "withheld": result.withheld,
        "left": sum(count.line_count for count in result.left),
    }
    if not connection.execute(text(_LOCK_QUARANTINE), values).all():
        return False
    connection.execute(text(_RECORD_CLEANING), values)
    if result.erased:
        connection.execute(text(_LEDGER), values)
    if result.changed:
        connection.execute(text(_COUNT_LINES), values)
    return True


_LOCK_QUARANTINE = """
SELECT 1 FROM prism_quarantine WHERE prism_staging_object_id = :id AND object_key = :before FOR UPDATE
"""
_RECORD_CLEANING = """
UPDATE prism_quarantine q SET object_key = :after, erasure_id = :erasure,
    line_count = coalesce((SELECT f.lines FROM unnest(CAST(:reasons AS text[]), CAST(:lines AS bigint[]))
        AS f (reason, lines) WHERE f.reason = q.reason), 0)
WHERE prism_staging_object_id = :id AND object_key = :before
"""
_LEDGER = """
UPDATE prism_staging_objects SET rows_quarantined = :left, rows_erased = rows_erased + :erased
WHERE prism_staging_object_id = :id
"""
_COUNT_LINES = """
UPDATE prism_erasures SET lines_erased = lines_erased + :erased, lines_withheld = lines_withheld + :withheld
WHERE prism_erasure_id = :erasure
"""

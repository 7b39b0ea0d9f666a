"""Statements on staging objects whose lines are in quarantine and may be rows under the definition in force."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class ReplayCandidate:
    """A staging object with lines in quarantine that another definition put there; `days` are those it has rows of."""

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    lines: int
    days: tuple[date, ...]

    @property
    def url(self) -> str:
        """`s3://bucket/key`."""
        return f"s3://{self.bucket}/{self.key}"


def load_candidates(
    connection: Connection, table_id: int, version: int, reasons: Collection[str] | None, above: int, limit: int
) -> list[ReplayCandidate]:
    """Objects of a table with quarantined lines, for any of these reasons, by id from one on. Reads without locks."""
    rows = connection.execute(
        text(_CANDIDATES),
        {
            "table": table_id,
            "version": version,
            "reasons": None if reasons is None else list(reasons),
            "above": above,
            "limit": limit,
        },
    )
    return [ReplayCandidate(**{**row._mapping, "days": tuple(row.days)}) for row in rows]


# Lines that a rebuild of another day has left are rows under the definition that their object was read by last.
_MAY_CHANGE = """(o.definition_version <> :version OR EXISTS (SELECT 1 FROM prism_quarantine q
    WHERE q.prism_staging_object_id = o.prism_staging_object_id AND q.reason = 'other_day' AND q.line_count > 0))"""
_CANDIDATES = f"""
SELECT o.prism_staging_object_id AS staging_object_id, o.bucket_name AS bucket, o.object_key AS key, o.etag,
    o.content_length, o.rows_quarantined AS lines, ARRAY(
        SELECT p.partition_date FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
        WHERE s.prism_staging_object_id = o.prism_staging_object_id ORDER BY 1) AS days
FROM prism_staging_objects o
WHERE o.prism_table_id = :table AND o.rows_quarantined > 0 AND o.prism_staging_object_id > :above AND o.state = 'done'
    AND {_MAY_CHANGE}
    AND (CAST(:reasons AS text[]) IS NULL OR EXISTS (SELECT 1 FROM prism_quarantine q
        WHERE q.prism_staging_object_id = o.prism_staging_object_id AND q.line_count > 0
            AND q.reason = ANY(CAST(:reasons AS text[]))))
ORDER BY o.prism_staging_object_id LIMIT :limit
"""


def begin_anew(connection: Connection, staging_object_ids: Collection[int], version: int) -> int:
    """Begins objects anew of which no line is a row, as if they had just come; returns how many.

    What they have in quarantine stays until the batch commits that reads them. Their keys are those of another start,
    which no rebuild has either. Locks their rows in the order of their keys, as those who register them do.
    """
    return connection.execute(text(_BEGIN_ANEW), {"ids": list(staging_object_ids), "version": version}).rowcount


_BEGIN_ANEW = f"""
UPDATE prism_staging_objects o SET state = 'pending', first_batch_id = NULL, definition_version = NULL, attempts = 0,
    outages = 0, rewrites = 0, retry_time = NULL, dismissed = false, rebuilds = o.rebuilds + 1,
    generation = 1 + greatest(o.generation, (SELECT coalesce(max(r.generation), 0) FROM prism_rebuilds r
        WHERE r.prism_table_id = o.prism_table_id))
FROM (
    SELECT o.prism_staging_object_id AS id FROM prism_staging_objects o
    WHERE o.prism_staging_object_id = ANY(:ids) AND o.state = 'done' AND {_MAY_CHANGE}
        AND NOT EXISTS (SELECT 1 FROM prism_small_objects s
            WHERE s.prism_staging_object_id = o.prism_staging_object_id)
    ORDER BY o.object_key FOR UPDATE
) n
WHERE o.prism_staging_object_id = n.id
"""


def count_quarantined(connection: Connection, staging_object_ids: Collection[int]) -> int:
    """How many lines of objects are in quarantine. Reads without locks."""
    return int(connection.execute(text(_QUARANTINED), {"ids": list(staging_object_ids)}).scalar_one())


_QUARANTINED = """
SELECT coalesce(sum(line_count), 0) FROM prism_quarantine WHERE prism_staging_object_id = ANY(:ids)
"""

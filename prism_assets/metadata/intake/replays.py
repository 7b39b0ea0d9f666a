"""Statements on staging objects whose lines are in quarantine and may be rows under the definition in force."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata.intake.staging_objects import AS_NEW, UNCHARGED
from prism_assets.metadata.rewrites.rebuild_sources import LEFT_BY_REBUILD, MAY_HOLD_ERASED


@dataclass(frozen=True, kw_only=True)
class ReplayCandidate:
    """A staging object with lines in quarantine that may be rows: that another definition or a rebuild put there.

    `days` are those it has rows of. `may_hold_erased` if lines of it were erased, or may have been, `is_earlier` if it
    was not read under the definition in force. `other_dates` are days that rebuilds of others have recorded of its
    lines; where they have not, `arrivals` are when the object came.
    """

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    lines: int
    rows: int
    may_hold_erased: bool
    is_earlier: bool
    days: tuple[date, ...]
    other_dates: tuple[date, ...]
    arrivals: tuple[datetime, ...]

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
    lists = ("days", "other_dates", "arrivals")
    return [ReplayCandidate(**{**row._mapping, **{name: tuple(row._mapping[name]) for name in lists}}) for row in rows]


# Lines that a rebuild of another day has left are rows under the definition that their object was read by last.
_MAY_CHANGE = f"""(o.definition_version <> :version OR EXISTS (SELECT 1 FROM prism_quarantine q
    WHERE q.prism_staging_object_id = o.prism_staging_object_id AND {LEFT_BY_REBUILD}))"""
_CANDIDATES = f"""
SELECT o.prism_staging_object_id AS staging_object_id, o.bucket_name AS bucket, o.object_key AS key, o.etag,
    o.content_length, o.rows_quarantined AS lines, o.rows_out AS rows, {MAY_HOLD_ERASED} AS may_hold_erased,
    o.definition_version <> :version AS is_earlier,
    ARRAY(
        SELECT p.partition_date FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
        WHERE s.prism_staging_object_id = o.prism_staging_object_id ORDER BY 1) AS days,
    coalesce(q.dates, '{{}}') AS other_dates,
    CASE WHEN q.reason IS NOT NULL AND q.dates IS NULL
        THEN array_remove(ARRAY[o.send_time, o.first_receive_time], NULL) ELSE '{{}}' END AS arrivals
FROM prism_staging_objects o LEFT JOIN prism_quarantine q
    ON q.prism_staging_object_id = o.prism_staging_object_id AND {LEFT_BY_REBUILD}
WHERE o.prism_table_id = :table AND o.rows_quarantined > 0 AND o.prism_staging_object_id > :above AND o.state = 'done'
    AND {_MAY_CHANGE}
    AND (CAST(:reasons AS text[]) IS NULL OR EXISTS (SELECT 1 FROM prism_quarantine q
        WHERE q.prism_staging_object_id = o.prism_staging_object_id AND q.line_count > 0
            AND q.reason = ANY(CAST(:reasons AS text[]))))
ORDER BY o.prism_staging_object_id LIMIT :limit
"""


def begin_anew(connection: Connection, staging_object_ids: Collection[int], version: int) -> int:
    """Begins objects anew of which no line is a row, as if they had just come; returns how many.

    What they have in quarantine stays until the batch commits that reads them. Their keys are those of another start.
    One of which lines were erased stays: under another definition these might not match.
    Locks their rows in the order of their keys, as those who register them do: behind the locks it is asked again, as a
    rebuild may have made rows of their lines in the commit that was waited for.
    """
    ids = list(staging_object_ids)
    connection.execute(text(_LOCK), {"ids": ids})
    return connection.execute(text(_BEGIN_ANEW), {"ids": ids, "version": version}).rowcount


_LOCK = """
SELECT 1 FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids) ORDER BY object_key FOR UPDATE
"""
_BEGIN_ANEW = f"""
UPDATE prism_staging_objects o SET state = 'pending', {AS_NEW}, {UNCHARGED}, rebuilds = o.rebuilds + 1,
    read_version = coalesce(o.read_version, o.definition_version),
    generation = o.generation + 1
WHERE o.prism_staging_object_id = ANY(:ids) AND o.state = 'done' AND NOT {MAY_HOLD_ERASED} AND {_MAY_CHANGE}
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s
        WHERE s.prism_staging_object_id = o.prism_staging_object_id)
"""


@dataclass(frozen=True, kw_only=True)
class LinesLeft:
    """How many lines are in quarantine for one reason."""

    reason: str
    lines: int


def load_left(connection: Connection, staging_object_ids: Collection[int]) -> list[LinesLeft]:
    """What is in quarantine of objects, the most frequent reason first. Reads without locks."""
    rows = connection.execute(text(_LEFT), {"ids": list(staging_object_ids)})
    return [LinesLeft(reason=row.reason, lines=int(row.lines)) for row in rows]


_LEFT = """
SELECT reason, sum(line_count) AS lines FROM prism_quarantine
WHERE prism_staging_object_id = ANY(:ids) AND line_count > 0
GROUP BY reason ORDER BY 2 DESC, 1
"""


def count_rows(connection: Connection, staging_object_ids: Collection[int]) -> int:
    """How many rows were made of objects that are converted. Reads without locks."""
    return int(connection.execute(text(_ROWS), {"ids": list(staging_object_ids)}).scalar_one())


_ROWS = """
SELECT coalesce(sum(rows_out), 0) FROM prism_staging_objects
WHERE prism_staging_object_id = ANY(:ids) AND state = 'done'
"""

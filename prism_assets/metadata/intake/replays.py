"""Statements on staging objects with quarantined lines that may be rows under the definition in force."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.metadata import locks
from prism_assets.metadata.intake.staging_objects import AS_NEW, UNCHARGED
from prism_assets.metadata.rewrites.rebuild_sources import LEFT_BY_REBUILD, MAY_HOLD_ERASED


@dataclass(frozen=True, kw_only=True)
class ReplayCandidate:
    """A staging object with quarantined lines that may be rows now.

    Another definition quarantined the lines, or a rebuild of another day left them.
    """

    staging_object_id: int
    bucket: str
    key: str
    etag: str | None
    content_length: int
    definition_version: int
    lines: int
    rows: int
    may_hold_erased: bool
    """Some of its lines were erased, or may have been."""
    is_earlier: bool
    """The object was read under an earlier definition."""
    days: tuple[date, ...]
    """The days with rows of the object."""
    other_dates: tuple[date, ...]
    """The days of its lines, as recorded by rebuilds of other days."""
    arrivals: tuple[datetime, ...]
    """When the object came, if no rebuild recorded the days."""

    @property
    def url(self) -> str:
        """`s3://bucket/key`."""
        return f"s3://{self.bucket}/{self.key}"


def load_candidates(
    connection: Connection, table_id: int, version: int, reasons: Collection[str] | None, above: int, limit: int
) -> list[ReplayCandidate]:
    """Returns a page of a table's objects above an id with quarantined lines, for any of the `reasons`, by id.

    Reads without locks.
    """
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


# Lines left by a rebuild of another day are rows under the definition by which their object was read last.
_MAY_CHANGE = f"""(o.definition_version <> :version OR EXISTS (SELECT 1 FROM prism_quarantine q
    WHERE q.prism_staging_object_id = o.prism_staging_object_id AND {LEFT_BY_REBUILD}))"""
_CANDIDATES = f"""
SELECT o.prism_staging_object_id AS staging_object_id, o.bucket_name AS bucket, o.object_key AS key, o.etag,
    o.content_length, o.definition_version, o.rows_quarantined AS lines, o.rows_out AS rows, {MAY_HOLD_ERASED} AS may_hold_erased,
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


def restart(connection: Connection, staging_object_ids: Collection[int], version: int) -> int:
    """Restarts objects without rows as if they were new. Returns how many.

    Nothing restarts if another definition was applied after `version`. The call shares the epoch until the transaction
    ends, so that nobody applies one meanwhile. Their quarantined lines stay until the next batch with the object
    commits. The restart writes under other keys. Objects with erased lines do not restart: under another definition the
    erasure might not match these lines. Spool objects about to be deleted do not restart, either.

    Locks the rows in the order of keys, like the registration of objects. The update checks all conditions again after
    waiting for the locks, because a rebuild may have made rows of these lines in between.
    """
    ids = list(staging_object_ids)
    locks.share_epoch(connection)
    connection.execute(text(_LOCK), {"ids": ids})
    return connection.execute(text(_RESTART), {"ids": ids, "version": version}).rowcount


_LOCK = """
SELECT 1 FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids) ORDER BY object_key FOR UPDATE
"""
_RESTART = f"""
UPDATE prism_staging_objects o SET state = 'pending', {AS_NEW}, {UNCHARGED}, claim_version = NULL,
    rebuilds = o.rebuilds + 1,
    read_version = coalesce(o.read_version, o.definition_version),
    generation = o.generation + 1
WHERE o.prism_staging_object_id = ANY(:ids) AND o.state = 'done' AND NOT {MAY_HOLD_ERASED} AND {_MAY_CHANGE}
    AND (SELECT t.definition_version FROM prism_tables t WHERE t.prism_table_id = o.prism_table_id) = :version
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s
        WHERE s.prism_staging_object_id = o.prism_staging_object_id)
    AND NOT EXISTS (SELECT 1 FROM prism_gc_log g
        WHERE g.bucket_name = o.bucket_name AND g.object_key = o.object_key AND g.delete_time IS NULL)
"""


@dataclass(frozen=True, kw_only=True)
class LinesLeft:
    """How many lines are in quarantine for one reason."""

    reason: str
    lines: int


def load_left(connection: Connection, staging_object_ids: Collection[int]) -> list[LinesLeft]:
    """Returns numbers of quarantined lines of objects by reason, the most frequent first. Reads without locks."""
    rows = connection.execute(text(_LEFT), {"ids": list(staging_object_ids)})
    return [LinesLeft(reason=row.reason, lines=int(row.lines)) for row in rows]


_LEFT = """
SELECT reason, sum(line_count) AS lines FROM prism_quarantine
WHERE prism_staging_object_id = ANY(:ids) AND line_count > 0
GROUP BY reason ORDER BY 2 DESC, 1
"""


def count_rows(connection: Connection, staging_object_ids: Collection[int]) -> int:
    """Returns how many rows came from those of the objects that are converted. Reads without locks."""
    return int(connection.execute(text(_ROWS), {"ids": list(staging_object_ids)}).scalar_one())


_ROWS = """
SELECT coalesce(sum(rows_out), 0) FROM prism_staging_objects
WHERE prism_staging_object_id = ANY(:ids) AND state = 'done'
"""

"""Statements on quarantined lines, and on values that did not fit their column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from sqlalchemy import Connection, text

from prism_assets.domain.work.convert import ConvertResult


@dataclass(frozen=True, kw_only=True)
class QuarantineFilter:
    """Which lots to list: of these tables, for these reasons, quarantined on this day (UTC). None means all."""

    table_ids: Collection[int] | None = None
    reasons: Collection[str] | None = None
    day: date | None = None
    limit: int = 50


@dataclass(frozen=True, kw_only=True)
class QuarantineRow:
    """Lines of one staging object quarantined for one reason."""

    table: str
    staging_object_id: int
    bucket: str
    key: str
    reason: str
    line_count: int
    object_key: str | None
    create_time: datetime


def forget_quarantine(connection: Connection, staging_object_ids: Collection[int]) -> None:
    """Deletes quarantine rows of staging objects, in the transaction that inserts new ones. Locks these rows."""
    if staging_object_ids:
        connection.execute(text(_FORGET), {"ids": list(staging_object_ids)})


_FORGET = "DELETE FROM prism_quarantine WHERE prism_staging_object_id = ANY(:ids)"


def insert_quarantine(connection: Connection, results: Sequence[ConvertResult]) -> None:
    """Records quarantined lines, one row per staging object and reason. Locks the objects against deletion."""
    rows = [
        {
            "staging": result.staging_object_id,
            "reason": count.reason,
            "lines": count.line_count,
            "key": result.quarantine_key,
            "erasure": result.erasure_id,
        }
        for result in results
        for count in result.quarantined
    ]
    if rows:
        connection.execute(text(_INSERT), rows)


_INSERT = """
INSERT INTO prism_quarantine (prism_staging_object_id, reason, line_count, object_key, erasure_id, create_time)
VALUES (:staging, :reason, :lines, :key, :erasure, clock_timestamp())
"""


def load_table_id(connection: Connection, staging_object_id: int) -> int | None:
    """Returns the table of a staging object. Reads without locks."""
    found: int | None = connection.execute(text(_TABLE_ID), {"id": staging_object_id}).scalar_one_or_none()
    return found


_TABLE_ID = "SELECT prism_table_id FROM prism_staging_objects WHERE prism_staging_object_id = :id"


def load_keys(connection: Connection, staging_object_ids: Collection[int]) -> dict[int, str]:
    """Returns the keys of objects with quarantined lines, by staging object. Reads without locks."""
    rows = connection.execute(text(_KEYS), {"ids": list(staging_object_ids)})
    return {row.prism_staging_object_id: row.object_key for row in rows}


_KEYS = """
SELECT DISTINCT prism_staging_object_id, object_key FROM prism_quarantine
WHERE prism_staging_object_id = ANY(:ids) AND object_key IS NOT NULL
"""


def find_kept(connection: Connection, staging_object_ids: Collection[int]) -> set[str]:
    """Returns all keys of objects with quarantined lines of some staging objects. Reads without locks."""
    rows = connection.execute(text(_KEYS), {"ids": list(staging_object_ids)})
    return {row.object_key for row in rows}


def forget_lines(connection: Connection, objects: Mapping[str, int]) -> None:
    """Clears the keys of objects with quarantined lines, before their deletion. Counts remain.

    `objects` maps the keys to ids of staging objects. Runs in the transaction that marks the objects for deletion.
    Locks the rows.
    """
    if objects:
        connection.execute(text(_FORGET_LINES), {"ids": list(objects.values()), "keys": list(objects)})


_FORGET_LINES = """
UPDATE prism_quarantine SET object_key = NULL
WHERE prism_staging_object_id = ANY(:ids) AND object_key = ANY(:keys)
"""


def list_quarantine(connection: Connection, wanted: QuarantineFilter) -> list[QuarantineRow]:
    """Returns quarantined lots, the newest staging objects first. Takes no locks."""
    day = wanted.day
    start = None if day is None else datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    values = {
        "tables": None if wanted.table_ids is None else list(wanted.table_ids),
        "reasons": None if wanted.reasons is None else list(wanted.reasons),
        "start": start,
        "end": None if start is None or day == date.max else start + timedelta(days=1),  # no day follows the last
        "limit": wanted.limit,
    }
    # Lots of a day are found by time; they are few, so lots of other tables may be scanned, too.
    statement = _OF_ALL
    if wanted.table_ids is not None and day is None:
        statement = _OF_TABLES if wanted.reasons is None else _OF_TABLES_FOR_REASONS
    rows = connection.execute(text(statement), values)
    return [QuarantineRow(**row._mapping) for row in rows]


_ROW = """
    p.schema_name || '.' || p.table_name AS "table", q.prism_staging_object_id AS staging_object_id,
    o.bucket_name AS bucket, o.object_key AS key, q.reason, q.line_count, q.object_key, q.create_time
"""
_OF_ALL = f"""
SELECT {_ROW}
FROM prism_quarantine q JOIN prism_staging_objects o USING (prism_staging_object_id)
JOIN prism_tables p ON p.prism_table_id = o.prism_table_id
WHERE (CAST(:tables AS bigint[]) IS NULL OR o.prism_table_id = ANY(CAST(:tables AS bigint[])))
    AND (CAST(:reasons AS text[]) IS NULL OR q.reason = ANY(CAST(:reasons AS text[])))
    AND (CAST(:start AS timestamptz) IS NULL OR q.create_time >= CAST(:start AS timestamptz))
    AND (CAST(:end AS timestamptz) IS NULL OR q.create_time < CAST(:end AS timestamptz))
ORDER BY q.prism_staging_object_id DESC, q.reason DESC LIMIT :limit
"""
# Takes the newest objects of each table first, by an index with only quarantined ones. A plain join would search all
# lots for those of a table with few.
_OF_TABLES = f"""
SELECT {_ROW}
FROM unnest(CAST(:tables AS bigint[])) AS t (id)
CROSS JOIN LATERAL (
    SELECT o.prism_staging_object_id, o.prism_table_id, o.bucket_name, o.object_key FROM prism_staging_objects o
    WHERE o.prism_table_id = t.id AND o.rows_quarantined > 0
    ORDER BY o.prism_staging_object_id DESC LIMIT :limit
) o
JOIN prism_quarantine q ON q.prism_staging_object_id = o.prism_staging_object_id
JOIN prism_tables p ON p.prism_table_id = o.prism_table_id
ORDER BY q.prism_staging_object_id DESC, q.reason DESC LIMIT :limit
"""
# A separate statement, because the planner joins the search for reasons only if it is not part of an OR.
_OF_TABLES_FOR_REASONS = f"""
SELECT {_ROW}
FROM unnest(CAST(:tables AS bigint[])) AS t (id)
CROSS JOIN LATERAL (
    SELECT o.prism_staging_object_id, o.prism_table_id, o.bucket_name, o.object_key FROM prism_staging_objects o
    WHERE o.prism_table_id = t.id AND o.rows_quarantined > 0
        AND EXISTS (SELECT 1 FROM prism_quarantine q
            WHERE q.prism_staging_object_id = o.prism_staging_object_id AND q.reason = ANY(:reasons))
    ORDER BY o.prism_staging_object_id DESC LIMIT :limit
) o
JOIN prism_quarantine q ON q.prism_staging_object_id = o.prism_staging_object_id AND q.reason = ANY(:reasons)
JOIN prism_tables p ON p.prism_table_id = o.prism_table_id
ORDER BY q.prism_staging_object_id DESC, q.reason DESC LIMIT :limit
"""


@dataclass(frozen=True, kw_only=True)
class QuarantineShare:
    """How many of a table's lines converted since some time were quarantined."""

    table_id: int
    lines: int
    """Lines in, without those of other tables: a table that takes 1 of 100 lines is judged by its own."""
    quarantined: int


def quarantine_shares(connection: Connection, table_ids: Collection[int], since: datetime) -> list[QuarantineShare]:
    """Returns shares by table from an index alone. Leaves out tables without converted objects. Reads without locks."""
    rows = connection.execute(text(_SHARES), {"tables": list(table_ids), "since": since})
    return [
        QuarantineShare(table_id=row.prism_table_id, lines=int(row.lines), quarantined=int(row.quarantined))
        for row in rows
    ]


_SHARES = """
SELECT prism_table_id, sum(lines_in - rows_elsewhere) AS lines, sum(rows_quarantined) AS quarantined
FROM prism_staging_objects
WHERE state = 'done' AND prism_table_id = ANY(:tables) AND finish_time >= :since
GROUP BY prism_table_id
"""


def quarantine_reasons(
    connection: Connection, table_ids: Collection[int], since: datetime
) -> dict[int, list[tuple[str, int]]]:
    """Returns lines quarantined since then by table and reason, the most frequent first. Reads without locks."""
    rows = connection.execute(text(_REASONS), {"tables": list(table_ids), "since": since})
    found: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        found.setdefault(row.prism_table_id, []).append((row.reason, int(row.lines)))
    return found


_REASONS = """
SELECT o.prism_table_id, q.reason, sum(q.line_count) AS lines
FROM prism_quarantine q JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE q.create_time >= :since AND o.prism_table_id = ANY(:tables)
GROUP BY o.prism_table_id, q.reason
ORDER BY lines DESC, q.reason
"""


@dataclass(frozen=True, kw_only=True)
class UnfitValues:
    """How many values of a column did not fit for one reason. They are null, or cut to the column's length."""

    table_id: int
    column: str
    reason: str
    count: int


def unfit_values(connection: Connection, table_ids: Collection[int], since: datetime) -> dict[int, list[UnfitValues]]:
    """Returns unfit values converted since some time, by table, the most frequent first. By a partial index, without
    locks.
    """
    rows = connection.execute(text(_UNFIT), {"tables": list(table_ids), "since": since})
    found: dict[int, list[UnfitValues]] = {}
    for row in rows:
        values = UnfitValues(table_id=row.table_id, column=row.column, reason=row.reason, count=int(row.total))
        found.setdefault(values.table_id, []).append(values)
    return found


_UNFIT = """
SELECT o.prism_table_id AS table_id, e."column", e.reason, sum(e.count) AS total FROM prism_staging_objects o
CROSS JOIN LATERAL jsonb_to_recordset(o.value_errors) AS e ("column" text, reason text, count bigint)
WHERE o.prism_table_id = ANY(:tables) AND o.finish_time >= :since AND o.value_errors IS NOT NULL
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 2, 3
"""

"""Statements on what was set aside: lines in quarantine, and values that did not fit their column."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection, text

from prism_assets.domain.work import ConvertResult


@dataclass(frozen=True, kw_only=True)
class QuarantineFilter:
    """Which lots to list: of any of these tables, for any of these reasons, set aside on this day (UTC); None: all."""

    table_ids: Collection[int] | None = None
    reasons: Collection[str] | None = None
    day: date | None = None
    limit: int = 50


@dataclass(frozen=True, kw_only=True)
class QuarantineRow:
    """Lines of one staging object set aside for one reason."""

    table: str
    staging_object_id: int
    bucket: str
    key: str
    reason: str
    line_count: int
    object_key: str | None
    create_time: datetime


def insert_quarantine(connection: Connection, results: Sequence[ConvertResult], now: datetime) -> None:
    """Notes what was set aside, one row a staging object and reason."""
    rows = [
        {
            "staging": result.staging_object_id,
            "reason": count.reason,
            "lines": count.line_count,
            "key": result.quarantine_key,
            "now": now,
        }
        for result in results
        for count in result.quarantined
    ]
    if rows:
        connection.execute(
            text(
                "INSERT INTO prism_quarantine (prism_staging_object_id, reason, line_count, object_key, create_time) "
                "VALUES (:staging, :reason, :lines, :key, :now)"
            ),
            rows,
        )


def quarantine_key(connection: Connection, staging_object_id: int) -> str | None:
    """The key of the object that holds the quarantined lines of a staging object, or None."""
    key: str | None = connection.execute(
        text(
            "SELECT object_key FROM prism_quarantine WHERE prism_staging_object_id = :id "
            "AND object_key IS NOT NULL LIMIT 1"
        ),
        {"id": staging_object_id},
    ).scalar()
    return key


def list_quarantine(connection: Connection, wanted: QuarantineFilter) -> list[QuarantineRow]:
    """Quarantined lots, those of the newest staging objects first. Without locks."""
    values: dict[str, Any] = {"limit": wanted.limit}
    lots, objects = ["true"], "true"
    if wanted.reasons is not None:
        lots.append("q.reason = ANY(:reasons)")
        values["reasons"] = list(wanted.reasons)
        objects = (
            "EXISTS (SELECT 1 FROM prism_quarantine q WHERE q.prism_staging_object_id = o.prism_staging_object_id "
            "AND q.reason = ANY(:reasons))"
        )
    if wanted.day is not None:
        lots.append("q.create_time >= :start AND q.create_time < :end")
        values["start"] = datetime(wanted.day.year, wanted.day.month, wanted.day.day, tzinfo=timezone.utc)
        values["end"] = values["start"] + timedelta(days=1)
    statement = _OF_ALL
    if wanted.table_ids is not None:
        # The lots of a day are found by their time, and are few enough to look at those of other tables, too.
        statement = _OF_TABLES if wanted.day is None else _OF_ALL.replace("{tables}", "o.prism_table_id = ANY(:tables)")
        values["tables"] = list(wanted.table_ids)
    for name, condition in (("{tables}", "true"), ("{lots}", " AND ".join(lots)), ("{objects}", objects)):
        statement = statement.replace(name, condition)
    rows = connection.execute(text(statement), values)
    return [QuarantineRow(**row._mapping) for row in rows]


_SHOWN = """
SELECT p.schema_name || '.' || p.table_name AS "table", q.prism_staging_object_id AS staging_object_id,
    o.bucket_name AS bucket, o.object_key AS key, q.reason, q.line_count, q.object_key, q.create_time
"""
_ORDER = "ORDER BY q.prism_staging_object_id DESC, q.reason DESC LIMIT :limit"
_OF_ALL = f"""
{_SHOWN} FROM prism_quarantine q JOIN prism_staging_objects o USING (prism_staging_object_id)
JOIN prism_tables p ON p.prism_table_id = o.prism_table_id WHERE {{tables}} AND {{lots}} {_ORDER}
"""
# The newest objects of each table first, by an index that holds only those with lines in quarantine: joined as a whole,
# the lots of a table with hardly any would be looked for among those of all.
_OF_TABLES = f"""
{_SHOWN} FROM unnest(CAST(:tables AS bigint[])) AS t (id)
CROSS JOIN LATERAL (
    SELECT o.prism_staging_object_id, o.prism_table_id, o.bucket_name, o.object_key FROM prism_staging_objects o
    WHERE o.prism_table_id = t.id AND o.rows_quarantined > 0 AND {{objects}}
    ORDER BY o.prism_staging_object_id DESC LIMIT :limit
) o
JOIN prism_quarantine q ON q.prism_staging_object_id = o.prism_staging_object_id AND {{lots}}
JOIN prism_tables p ON p.prism_table_id = o.prism_table_id {_ORDER}
"""


@dataclass(frozen=True, kw_only=True)
class UnfitValues:
    """How many values of a column did not fit for one reason; they are null, or cut to its length."""

    table_id: int
    column: str
    reason: str
    count: int


def unfit_values(connection: Connection, table_ids: Collection[int], since: datetime) -> dict[int, list[UnfitValues]]:
    """Values converted since some time that did not fit, by table, the most frequent first. By a partial index."""
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

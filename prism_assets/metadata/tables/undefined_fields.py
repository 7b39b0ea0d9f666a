"""Statements on prism_undefined_fields: fields of lines not read by any column of their table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.tables.drift import FieldKind, PlacedKey, SeenField, within_limit


def count_fields(connection: Connection, seen: Sequence[SeenField], now: datetime) -> None:
    """Adds the fields seen by a batch, in the transaction that commits its objects, so each object counts once.

    Locks the rows of the tables by ascending id. So of two batches with the same keys one waits for the other, and no
    table exceeds its limit of keys. Only an apply also locks these rows, and never together with a partition.
    """
    if not seen:
        return
    table_ids = sorted({field.table_id for field in seen})
    connection.execute(text(_LOCK_TABLES), {"tables": table_ids})
    known = {
        (row.prism_table_id, row.within, row.field_key)
        for row in connection.execute(text(_KEYS), {"tables": table_ids})
    }
    kept = within_limit(seen, known)
    if kept:
        connection.execute(text(_COUNT), [_row(field, now) for field in kept])


_LOCK_TABLES = """
SELECT prism_table_id FROM prism_tables WHERE prism_table_id = ANY(:tables)
ORDER BY prism_table_id FOR NO KEY UPDATE
"""
_KEYS = """
SELECT DISTINCT prism_table_id, within, field_key FROM prism_undefined_fields WHERE prism_table_id = ANY(:tables)
"""
_COUNT = """
INSERT INTO prism_undefined_fields AS f (prism_table_id, within, field_key, kind, field_count, first_time,
    last_time, bucket_name, object_key, line)
VALUES (:table, :within, :key, :kind, :count, :now, :now, :bucket, :object, :line)
ON CONFLICT (prism_table_id, within, field_key, kind) DO UPDATE
SET field_count = f.field_count + EXCLUDED.field_count,
    first_time = least(f.first_time, EXCLUDED.first_time), last_time = greatest(f.last_time, EXCLUDED.last_time),
    bucket_name = EXCLUDED.bucket_name, object_key = EXCLUDED.object_key, line = EXCLUDED.line
"""


def _row(field: SeenField, now: datetime) -> dict[str, object]:
    return {
        "table": field.table_id,
        "within": field.within,
        "key": field.key,
        "kind": field.kind.value,
        "count": field.count,
        "now": now,
        "bucket": field.bucket,
        "object": field.object_key,
        "line": field.line,
    }


def load_fields(connection: Connection, table_ids: Collection[int]) -> list[SeenField]:
    """Returns the counted fields of tables, by place, key and kind. Reads without locks."""
    return [
        SeenField(
            table_id=row.prism_table_id,
            key=row.field_key,
            within=row.within,
            kind=FieldKind(row.kind),
            count=row.field_count,
            bucket=row.bucket_name,
            object_key=row.object_key,
            line=row.line,
            first_time=row.first_time,
            last_time=row.last_time,
        )
        for row in connection.execute(text(_LOAD), {"tables": list(table_ids)})
    ]


_LOAD = """
SELECT * FROM prism_undefined_fields WHERE prism_table_id = ANY(:tables) ORDER BY prism_table_id, within, field_key, kind
"""


def forget_fields(connection: Connection, table_id: int, keys: Collection[PlacedKey]) -> None:
    """Deletes keys that a column now reads. Locks their rows, after the row of the table."""
    places, names = [within for within, _ in keys], [key for _, key in keys]
    connection.execute(text(_FORGET), {"table": table_id, "places": places, "keys": names})


_FORGET = """
DELETE FROM prism_undefined_fields f USING unnest(CAST(:places AS text[]), CAST(:keys AS text[])) AS read (within, key)
WHERE f.prism_table_id = :table AND f.within = read.within AND f.field_key = read.key
"""


def tables_to_evolve(connection: Connection, table_ids: Collection[int] | None) -> list[int]:
    """Returns the tables with undefined fields whose contract makes columns of new fields. None asks for all tables.

    Reads without locks.
    """
    found = connection.execute(text(_TO_EVOLVE), {"tables": None if table_ids is None else list(table_ids)})
    return [row.prism_table_id for row in found]


_TO_EVOLVE = """
SELECT t.prism_table_id FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
WHERE d.definition -> 'contract' ->> 'new_fields' = 'evolve'
    AND (CAST(:tables AS bigint[]) IS NULL OR t.prism_table_id = ANY(:tables))
    AND EXISTS (SELECT FROM prism_undefined_fields f WHERE f.prism_table_id = t.prism_table_id)
ORDER BY t.prism_table_id
"""

"""Compares the ledgers of an object in all tables that divide its lines. Reads without locks.

The ledger of each table may balance although a line is in none of them, or in two. Together they show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, kw_only=True)
class GroupStreams:
    """The streams of a group: all divide the same lines."""

    stream_ids: tuple[int, ...]
    table_ids: tuple[int, ...]
    """The table of each stream."""


@dataclass(frozen=True, kw_only=True)
class Unbalanced:
    """Objects of a group whose ledgers do not fit together, converted under the same definitions."""

    group: int
    """The position of the group."""
    table_ids: tuple[int, ...]
    versions: tuple[int, ...]
    """The definition of each table."""
    partly_rebuilt: bool
    """Some days of an object have rows of another definition than its others."""
    read_apart: bool
    """The tables have read different versions of the object, because it was overwritten."""
    objects: int
    example: str
    """One of them, with its figures."""


def find_unbalanced(connection: Connection, groups: Sequence[GroupStreams], since: datetime | None) -> list[Unbalanced]:
    """Returns objects that all tables of their group have converted, and whose lines these do not divide.

    With `since`, at least one table has converted the object since then. Objects of discarded streams are not judged.
    """
    members = [
        (number, len(group.stream_ids), stream, table)
        for number, group in enumerate(groups)
        for stream, table in zip(group.stream_ids, group.table_ids, strict=True)
    ]
    if not members:
        return []
    columns = {name: list(values) for name, values in zip(_MEMBERS, zip(*members, strict=True), strict=True)}
    rows = connection.execute(text(_RECENT if since else _ALL), {**columns, "since": since})
    return [
        Unbalanced(
            group=row.number,
            table_ids=tuple(row.table_ids),
            versions=tuple(row.versions),
            partly_rebuilt=row.partly_rebuilt,
            read_apart=row.read_apart,
            objects=row.objects,
            example=row.example,
        )
        for row in rows
    ]


_MEMBERS = ("numbers", "sizes", "streams", "tables")
_MEMBER = """
member AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:numbers AS integer[]), CAST(:sizes AS integer[]), CAST(:streams AS bigint[]),
        CAST(:tables AS bigint[])) AS m (number, size, stream, table_id))
"""
_ROWS_OF_OBJECTS = """
SELECT m.number, m.size, o.* FROM member m
JOIN prism_staging_objects o ON o.prism_stream_id = m.stream AND o.prism_table_id = m.table_id
"""
# Objects that some table has finished lately, by the index of done objects, then all rows of these objects.
_ROWS_OF_RECENT_OBJECTS = """
SELECT m.number, m.size, o.* FROM (
    SELECT DISTINCT r.number, f.bucket_name, f.object_key FROM member r
    JOIN prism_staging_objects f ON f.prism_table_id = r.table_id AND f.prism_stream_id = r.stream
    WHERE f.state = 'done' AND f.finish_time >= :since) recent
JOIN member m ON m.number = recent.number
JOIN prism_staging_objects o ON o.bucket_name = recent.bucket_name AND o.object_key = recent.object_key
    AND o.prism_table_id = m.table_id AND o.prism_stream_id = m.stream
"""
_JUDGED = """
judged AS (
    SELECT number, bucket_name, object_key, min(lines_in) AS least, max(lines_in) AS most,
        sum(lines_in - rows_elsewhere) AS taken, count(DISTINCT etag) > 1 AS read_apart,
        array_agg(prism_table_id ORDER BY prism_table_id) AS table_ids,
        array_agg(definition_version ORDER BY prism_table_id) AS versions,
        bool_or(EXISTS (SELECT 1 FROM prism_small_objects s
            WHERE s.prism_staging_object_id = x.prism_staging_object_id
                AND s.definition_version <> x.definition_version)) AS partly_rebuilt
    FROM x
    GROUP BY number, size, bucket_name, object_key
    HAVING count(*) FILTER (WHERE state = 'done' AND definition_version IS NOT NULL) = size
        AND (min(lines_in) <> max(lines_in) OR sum(lines_in - rows_elsewhere) <> min(lines_in)))
SELECT number, table_ids, versions, partly_rebuilt, read_apart, count(*) AS objects,
    (array_agg(format('s3://%s/%s with %s lines, of which the tables take %s', bucket_name, object_key,
        CASE WHEN least = most THEN CAST(least AS text) ELSE format('%s to %s', least, most) END, taken)
        ORDER BY object_key))[1] AS example
FROM judged GROUP BY number, table_ids, versions, partly_rebuilt, read_apart ORDER BY 1, 2, 3, 4, 5
"""
_ALL = f"WITH {_MEMBER}, x AS ({_ROWS_OF_OBJECTS}), {_JUDGED}"
_RECENT = f"WITH {_MEMBER}, x AS ({_ROWS_OF_RECENT_OBJECTS}), {_JUDGED}"

"""Statements that find the staging objects a rebuild of a day reads again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.work.rebuild import DayOfObject
from prism_assets.metadata.rewrites.rebuilds import Rebuild


@dataclass(frozen=True, kw_only=True)
class SourceToRebuild:
    """A staging object that a rebuild of a day reads again."""

    staging_object_id: int
    content_length: int
    lines_in: int
    rebuilds: int
    object_id: int | None
    """The small object of the day, None if the staging object has no row of the day."""
    rewrite_id: int | None
    """The rewrite that wrote this small object."""


@dataclass(frozen=True, kw_only=True)
class DayToRebuild:
    """A day of a table. `partition` is None if the day has no row yet."""

    table_id: int
    date: date
    partition: Partition | None


@dataclass(frozen=True, kw_only=True)
class SourceTotals:
    """Totals of the staging objects read by a rebuild of a day."""

    objects: int
    content_length: int
    of_several_days: int
    """Staging objects with rows of other days, too."""
    left_in_quarantine: int = 0
    """Further objects, whose lines for the day stay in quarantine because other lines of theirs were erased."""


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """The arrival of objects that may have lines of a day without a recorded date: from `first`, before `last`."""

    first: datetime
    last: datetime


MAY_HOLD_ERASED = """
(o.rows_erased > 0 OR EXISTS (SELECT 1 FROM prism_small_objects e
    WHERE e.prism_staging_object_id = o.prism_staging_object_id AND (e.rows_erased > 0
        OR EXISTS (SELECT 1 FROM prism_merge_ranges g WHERE g.prism_partition_id = e.prism_partition_id
            AND g.rows_erased > 0 AND g.lower_bound < e.prism_small_object_id
            AND g.upper_bound >= e.prism_small_object_id))))
"""
"""Whether the staging object `o` may hold erased lines: rows or lines of it were erased, or rows of a merged object
made of it.

Nobody recorded which lines these are, so a new conversion might bring them back. Lines that no erasure could judge were
no rows, and are judged again.
"""
LEFT_BY_REBUILD = "q.reason = 'other_day' AND q.line_count > 0"
"""Whether the quarantine `q` of a staging object has lines that a rebuild left for other days."""
_WAITS_FOR_DAY = f"{LEFT_BY_REBUILD} AND CAST(:day AS date) = ANY(q.dates)"


def find_other_dates(connection: Connection, table_id: int, first: date, last: date) -> list[date]:
    """Returns the days in a period for which rebuilds of other days have left lines. Reads without locks."""
    rows = connection.execute(text(_OTHER_DATES), {"table": table_id, "first": first, "last": last})
    return list(rows.scalars())


_OTHER_DATES = f"""
SELECT DISTINCT d.day FROM prism_quarantine q JOIN prism_staging_objects o USING (prism_staging_object_id)
CROSS JOIN LATERAL unnest(q.dates) AS d (day)
WHERE {LEFT_BY_REBUILD} AND o.prism_table_id = :table AND o.state = 'done' AND NOT {MAY_HOLD_ERASED}
    AND d.day BETWEEN :first AND :last
ORDER BY 1
"""


def find_shared_dates(connection: Connection, table_id: int, first: date, last: date) -> list[date]:
    """Returns the days of rows that other tables have of objects whose other lines may be of this table.

    The table has read these objects under another definition. Reads without locks.
    """
    values = {"table": table_id, "first": first, "last": last}
    return list(connection.execute(text(_SHARED_DATES), values).scalars())


_NEIGHBOURS = """
SELECT g.prism_table_id FROM prism_streams s JOIN prism_streams g
    ON g.bucket_name = s.bucket_name AND g.key_prefix = s.key_prefix AND g.records = s.records
WHERE s.prism_table_id = :table AND g.prism_table_id <> :table
"""
# Objects with rows of a neighbour on the day `p`, and lines that this table has left to others under another definition.
_SHARED = """
FROM prism_small_objects r
JOIN prism_staging_objects k ON k.prism_staging_object_id = r.prism_staging_object_id
JOIN prism_staging_objects c ON c.bucket_name = k.bucket_name AND c.object_key = k.object_key
    AND c.prism_table_id = :table
WHERE r.prism_partition_id = p.prism_partition_id AND c.state = 'done' AND c.rows_elsewhere > 0
"""
_SHARED_DATES = f"""
SELECT DISTINCT p.partition_date FROM prism_partitions p
WHERE p.prism_table_id IN ({_NEIGHBOURS}) AND p.partition_date BETWEEN :first AND :last
    AND EXISTS (SELECT 1 {_SHARED} AND c.definition_version <> (
        SELECT t.definition_version FROM prism_tables t WHERE t.prism_table_id = :table))
ORDER BY 1
"""


def count(connection: Connection, day: DayToRebuild, version: int, arrival: Arrival) -> SourceTotals:
    """Returns the totals of a rebuild of a day under a definition. Reads without locks."""
    partition = day.partition.partition_id if day.partition else None
    values = {"partition": partition, "version": version, "day": day.date}
    held = connection.execute(text(_COUNT_HOLDERS), values).one()
    others = connection.execute(text(_COUNT_OTHERS), {**values, **_window(day, arrival)}).one()
    return SourceTotals(
        objects=held.objects + others.objects,
        content_length=int(held.content_length + others.content_length),
        of_several_days=held.of_several_days,
        left_in_quarantine=others.left_in_quarantine,
    )


# Rebuilds of other days left lines of this one, or of unrecorded days; a rebuild of this day leaves no such line.
# Objects of the definition in force are among them, because a later kernel may read more lines by the same definition.
_WAITING = f"""
waiting AS MATERIALIZED (
    SELECT q.prism_staging_object_id FROM prism_quarantine q
    WHERE {LEFT_BY_REBUILD} AND (q.dates IS NULL OR CAST(:day AS date) = ANY(q.dates)))
"""
# A merged object holds rows of many small objects. If one of them is remade, all are, because garbage collection may
# have deleted the small objects.
_MIXED = f"""
{_WAITING}, mixed AS MATERIALIZED (
    SELECT g.lower_bound, g.upper_bound FROM prism_merge_ranges g
    WHERE g.prism_partition_id = CAST(:partition AS bigint) AND EXISTS (SELECT 1 FROM prism_small_objects m
        WHERE m.prism_partition_id = CAST(:partition AS bigint) AND m.prism_small_object_id > g.lower_bound
            AND m.prism_small_object_id <= g.upper_bound AND (m.definition_version <> :version
                OR m.prism_staging_object_id IN (SELECT prism_staging_object_id FROM waiting))))
"""
_IS_HOLDER = """
s.prism_partition_id = CAST(:partition AS bigint) AND (s.definition_version <> :version
    OR s.prism_staging_object_id IN (SELECT prism_staging_object_id FROM waiting)
    OR EXISTS (SELECT 1 FROM mixed
        WHERE s.prism_small_object_id > mixed.lower_bound AND s.prism_small_object_id <= mixed.upper_bound))
"""
_COUNT_HOLDERS = f"""
WITH {_MIXED} SELECT count(*) AS objects, coalesce(sum(o.content_length), 0) AS content_length,
    count(*) FILTER (WHERE EXISTS (SELECT 1 FROM prism_small_objects t
        WHERE t.prism_staging_object_id = s.prism_staging_object_id
            AND t.prism_partition_id <> CAST(:partition AS bigint))) AS of_several_days
FROM prism_small_objects s JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE {_IS_HOLDER}
"""
# Objects without a row of the day whose lines may become rows of it: rebuilds of other days left lines of this one; or
# the objects came on that day or the next, and have lines quarantined, filtered or of other tables under another
# definition, or left by rebuilds for unrecorded days; or other tables of their prefix have rows of about this day, which
# routes may have given to this table since. The other table may have another time zone.
_MAY_HAVE_ROWS = f"""
FROM prism_staging_objects o
WHERE o.prism_staging_object_id IN (
    SELECT q.prism_staging_object_id FROM prism_quarantine q WHERE {_WAITS_FOR_DAY}
    UNION ALL
    SELECT c.prism_staging_object_id FROM prism_staging_objects c
    WHERE c.prism_table_id = :table AND c.state = 'done' AND c.finish_time >= :first
        AND (c.send_time >= :first AND c.send_time < :last
            OR c.first_receive_time >= :first AND c.first_receive_time < :last)
        AND c.rows_quarantined + c.rows_filtered + c.rows_elsewhere > 0
        AND (c.definition_version <> :version OR EXISTS (SELECT 1 FROM prism_quarantine q
            WHERE q.prism_staging_object_id = c.prism_staging_object_id AND {LEFT_BY_REBUILD}
                AND q.dates IS NULL))
    UNION ALL
    SELECT h.id FROM prism_partitions p CROSS JOIN LATERAL (
        SELECT c.prism_staging_object_id AS id {_SHARED} AND c.definition_version <> :version) h
    WHERE p.prism_table_id IN ({_NEIGHBOURS})
        AND p.partition_date BETWEEN CAST(:day AS date) - 1 AND CAST(:day AS date) + 1)
    AND o.prism_table_id = :table AND o.state = 'done'
    AND NOT EXISTS (SELECT 1 FROM prism_small_objects s
        WHERE s.prism_staging_object_id = o.prism_staging_object_id
            AND s.prism_partition_id = CAST(:partition AS bigint))
"""
_OTHERS = f"{_MAY_HAVE_ROWS} AND NOT {MAY_HOLD_ERASED}"
_COUNT_OTHERS = f"""
SELECT count(*) FILTER (WHERE NOT may_hold_erased) AS objects,
    coalesce(sum(content_length) FILTER (WHERE NOT may_hold_erased), 0) AS content_length,
    count(*) FILTER (WHERE may_hold_erased AND waits) AS left_in_quarantine
FROM (
    SELECT o.content_length, {MAY_HOLD_ERASED} AS may_hold_erased, EXISTS (SELECT 1 FROM prism_quarantine q
        WHERE q.prism_staging_object_id = o.prism_staging_object_id AND {_WAITS_FOR_DAY}) AS waits
    {_MAY_HAVE_ROWS}
) others
"""


def count_contributors_with_erased(connection: Connection, day: DayToRebuild, version: int) -> int:
    """How many of the objects with rows of a day cannot be read again, as rows of them were erased. Without locks."""
    partition = day.partition.partition_id if day.partition else None
    values = {"partition": partition, "version": version, "day": day.date}
    return int(connection.execute(text(_COUNT_HOLDERS_WITH_ERASED), values).scalar_one())


_COUNT_HOLDERS_WITH_ERASED = f"""
WITH {_MIXED} SELECT count(*) FROM prism_small_objects s JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE {_IS_HOLDER} AND {MAY_HOLD_ERASED}
"""


def find_readings(connection: Connection, day: DayToRebuild, version: int, arrival: Arrival) -> list[tuple[int, int]]:
    """Returns the definitions under which the objects of a rebuild were read: one object for each stream and version.

    Reads without locks.
    """
    partition = day.partition.partition_id if day.partition else None
    values = {"partition": partition, "version": version, **_window(day, arrival)}
    return [(row.id, row.version) for row in connection.execute(text(_READINGS), values)]


_READINGS = f"""
WITH {_MIXED} (SELECT DISTINCT ON (o.prism_stream_id, s.definition_version)
    o.prism_staging_object_id AS id, s.definition_version AS version
FROM prism_small_objects s JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE {_IS_HOLDER}
ORDER BY o.prism_stream_id, s.definition_version, o.prism_staging_object_id)
UNION ALL
(SELECT DISTINCT ON (o.prism_stream_id, o.definition_version) o.prism_staging_object_id, o.definition_version {_OTHERS}
ORDER BY o.prism_stream_id, o.definition_version, o.prism_staging_object_id)
"""


def _window(day: DayToRebuild, arrival: Arrival) -> dict[str, object]:
    return {"table": day.table_id, "day": day.date, "first": arrival.first, "last": arrival.last}


def next_contributors(
    connection: Connection, rebuild: Rebuild, day: DayToRebuild, above: int, limit: int
) -> list[SourceToRebuild]:
    """Returns unconverted objects with rows of the day, in order of their small objects, from those above an id.

    An object already read under the definition in force is included if it was merged with others, or if rebuilds of
    other days have left lines of it for this day. Reads without locks.
    """
    values = {
        "above": above,
        "rebuild": rebuild.rewrite_id,
        "partition": rebuild.partition_id,
        "version": rebuild.definition_version,
        "day": day.date,
        "limit": limit,
    }
    return [SourceToRebuild(**row._mapping) for row in connection.execute(text(_NEXT_CONTRIBUTORS), values)]


_NEXT_CONTRIBUTORS = f"""
WITH {_MIXED} SELECT o.prism_staging_object_id AS staging_object_id, o.content_length, o.lines_in, o.rebuilds,
    s.prism_small_object_id AS object_id, s.rewrite_id
FROM prism_small_objects s JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE {_IS_HOLDER}
    AND s.prism_small_object_id > :above AND NOT EXISTS (SELECT 1 FROM prism_rebuilt_objects r
        WHERE r.prism_rewrite_id = :rebuild AND r.prism_staging_object_id = s.prism_staging_object_id)
ORDER BY s.prism_small_object_id LIMIT :limit
"""


def next_arrivals(
    connection: Connection, rebuild: Rebuild, day: DayToRebuild, arrival: Arrival, limit: int
) -> list[SourceToRebuild]:
    """Returns unconverted objects without rows of the day, whose lines may be rows now. Reads without locks."""
    values = {
        "rebuild": rebuild.rewrite_id,
        "partition": rebuild.partition_id,
        "version": rebuild.definition_version,
        "limit": limit,
        **_window(day, arrival),
    }
    return [SourceToRebuild(**row._mapping) for row in connection.execute(text(_NEXT_ARRIVALS), values)]


_NEXT_ARRIVALS = f"""
SELECT o.prism_staging_object_id AS staging_object_id, o.content_length, o.lines_in, o.rebuilds,
    CAST(NULL AS bigint) AS object_id, CAST(NULL AS bigint) AS rewrite_id {_OTHERS}
    AND NOT EXISTS (SELECT 1 FROM prism_rebuilt_objects r
        WHERE r.prism_rewrite_id = :rebuild AND r.prism_staging_object_id = o.prism_staging_object_id)
ORDER BY o.prism_staging_object_id LIMIT :limit
"""


def load_days(connection: Connection, staging_object_ids: Collection[int]) -> dict[int, list[DayOfObject]]:
    """Returns the days with rows of staging objects, by object. Reads without locks."""
    found: dict[int, list[DayOfObject]] = {}
    for row in connection.execute(text(_DAYS), {"ids": list(staging_object_ids)}):
        day = DayOfObject(date=row.date, definition_version=row.definition_version, row_count=row.row_count)
        found.setdefault(row.id, []).append(day)
    return found


_DAYS = """
SELECT s.prism_staging_object_id AS id, p.partition_date AS date, s.definition_version, s.row_count
FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id)
WHERE s.prism_staging_object_id = ANY(:ids) ORDER BY 1, 2
"""

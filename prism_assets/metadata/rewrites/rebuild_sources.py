"""Which staging objects a rebuild of a day reads again."""

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
    """A staging object that a rebuild of a day reads again.

    `object_id` is that of its small object of the day, which `rewrite_id` wrote; None where it has no row of the day.
    `rebuilds` counts how often anything of it was rebuilt, as long as which it is as it was read here.
    """

    staging_object_id: int
    content_length: int
    lines_in: int
    rebuilds: int
    object_id: int | None
    rewrite_id: int | None


@dataclass(frozen=True, kw_only=True)
class DayToRebuild:
    """A day of a table; `partition` is None where it has no row yet."""

    table_id: int
    date: date
    partition: Partition | None


@dataclass(frozen=True, kw_only=True)
class SourceTotals:
    """How much a rebuild of a day reads: staging objects, their bytes, and how many hold rows of other days.

    Beside these, lines that wait for the day stay in quarantine, of `left_in_quarantine` objects: other lines of them
    were erased.
    """

    objects: int
    content_length: int
    of_several_days: int
    left_in_quarantine: int = 0


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """When objects came whose lines may be of a day, though no date is recorded: from `first` till before `last`."""

    first: datetime
    last: datetime


MAY_HOLD_ERASED = """
(o.rows_erased > 0 OR EXISTS (SELECT 1 FROM prism_small_objects e
    WHERE e.prism_staging_object_id = o.prism_staging_object_id AND (e.rows_erased > 0
        OR EXISTS (SELECT 1 FROM prism_merge_ranges g WHERE g.prism_partition_id = e.prism_partition_id
            AND g.rows_erased > 0 AND g.lower_bound < e.prism_small_object_id
            AND g.upper_bound >= e.prism_small_object_id))))
"""
"""Whether the staging object `o` may hold lines that were erased: rows or lines of it were, or rows of what it was
merged to.

Which of its lines these are nobody has recorded, so they might come again. Lines that no erasure could judge were no
rows, and are judged again.
"""
LEFT_BY_REBUILD = "q.reason = 'other_day' AND q.line_count > 0"
"""Whether the quarantine `q` of a staging object holds lines that a rebuild left to other days than its own."""
_WAITS_FOR_DAY = f"{LEFT_BY_REBUILD} AND CAST(:day AS date) = ANY(q.dates)"


def find_other_dates(connection: Connection, table_id: int, first: date, last: date) -> list[date]:
    """The days from one to another that lines wait for which rebuilds of other days have set aside. Without locks."""
    rows = connection.execute(text(_OTHER_DATES), {"table": table_id, "first": first, "last": last})
    return list(rows.scalars())


_OTHER_DATES = f"""
SELECT DISTINCT d.day FROM prism_quarantine q JOIN prism_staging_objects o USING (prism_staging_object_id)
CROSS JOIN LATERAL unnest(q.dates) AS d (day)
WHERE {LEFT_BY_REBUILD} AND o.prism_table_id = :table AND o.state = 'done' AND NOT {MAY_HOLD_ERASED}
    AND d.day BETWEEN :first AND :last
ORDER BY 1
"""


def count(connection: Connection, day: DayToRebuild, version: int, arrival: Arrival) -> SourceTotals:
    """What a rebuild of a day under a definition would read. Reads without locks."""
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


# Rebuilds of other days left lines of this one, or of days that they did not record; none of them is left by a rebuild
# of this day. Objects of the definition in force are among these: a later version of the same definition reads more.
_WAITING = f"""
waiting AS MATERIALIZED (
    SELECT q.prism_staging_object_id FROM prism_quarantine q
    WHERE {LEFT_BY_REBUILD} AND (q.dates IS NULL OR CAST(:day AS date) = ANY(q.dates)))
"""
# A merged object holds the rows of many: where one of these is made again, all are, as garbage collections may have
# deleted the small objects that it was merged from.
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
# Objects without a row of the day, whose lines may be some now: rebuilds of other days left lines of this one; or they
# came on that day, or on the next, and have lines that were set aside or filtered under another definition, or that
# rebuilds left for days that they did not record.
_MAY_HAVE_ROWS = f"""
FROM prism_staging_objects o
WHERE o.prism_staging_object_id IN (
    SELECT q.prism_staging_object_id FROM prism_quarantine q WHERE {_WAITS_FOR_DAY}
    UNION ALL
    SELECT c.prism_staging_object_id FROM prism_staging_objects c
    WHERE c.prism_table_id = :table AND c.state = 'done' AND c.finish_time >= :first
        AND (c.send_time >= :first AND c.send_time < :last
            OR c.first_receive_time >= :first AND c.first_receive_time < :last)
        AND c.rows_quarantined + c.rows_filtered > 0
        AND (c.definition_version <> :version OR EXISTS (SELECT 1 FROM prism_quarantine q
            WHERE q.prism_staging_object_id = c.prism_staging_object_id AND {LEFT_BY_REBUILD}
                AND q.dates IS NULL)))
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


def _window(day: DayToRebuild, arrival: Arrival) -> dict[str, object]:
    return {"table": day.table_id, "day": day.date, "first": arrival.first, "last": arrival.last}


def next_contributors(
    connection: Connection, rebuild: Rebuild, day: DayToRebuild, above: int, limit: int
) -> list[SourceToRebuild]:
    """Objects with rows of the day that are not ready yet, in the order of their small objects, of those above one.

    Those of the definition in force are among them where they are merged with others, or rebuilds of other days have
    left lines of them for this one. Reads without locks.
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
    """Objects without rows of the day whose lines may be some now, and that are not ready yet. Reads without locks."""
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
    """The days that staging objects have rows of, by object. Reads without locks."""
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

"""What the checks of tables ask: one statement a check, for all tables at once. Reads without locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.partitions import Partition
from prism_assets.metadata.partitions import partition_of


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The ledger of the objects of a table that were converted since some time, and those that do not balance.

    Rows out are held against the rows of small objects, lines quarantined against those that are kept. `unbalanced`
    names at most three objects, with their figures.
    """

    table_id: int
    objects: int
    lines_in: int
    rows_out: int
    quarantined: int
    unbalanced_objects: int
    unbalanced: tuple[str, ...]


def balances(connection: Connection, table_ids: Collection[int], since: datetime) -> list[Balance]:
    """Ledgers of what was finished at `since` or later; tables without any are left out."""
    rows = connection.execute(text(_BALANCES), {"tables": list(table_ids), "since": since})
    return [
        Balance(
            table_id=row.prism_table_id,
            objects=row.objects,
            lines_in=int(row.lines_in),
            rows_out=int(row.rows_out),
            quarantined=int(row.quarantined),
            unbalanced_objects=row.unbalanced_objects,
            unbalanced=tuple(row.unbalanced or ()),
        )
        for row in rows
    ]


_BALANCES = """
SELECT prism_table_id, count(*) AS objects, sum(lines_in) AS lines_in, sum(rows_out) AS rows_out,
    sum(rows_quarantined) AS quarantined, count(*) FILTER (WHERE wrong) AS unbalanced_objects,
    (array_agg(sentence ORDER BY prism_staging_object_id) FILTER (WHERE wrong))[1:3] AS unbalanced
FROM (
    SELECT o.*, o.lines_in <> o.rows_out + o.rows_quarantined OR s.rows <> o.rows_out OR q.lines <> o.rows_quarantined
        AS wrong, format('s3://%s/%s: %s lines in, %s rows out of which %s are in small objects, %s quarantined of '
        'which %s are kept', o.bucket_name, o.object_key, o.lines_in, o.rows_out, s.rows, o.rows_quarantined, q.lines)
        AS sentence
    FROM prism_staging_objects o
    CROSS JOIN LATERAL (SELECT coalesce(sum(row_count), 0) AS rows FROM prism_small_objects
        WHERE prism_staging_object_id = o.prism_staging_object_id) s
    CROSS JOIN LATERAL (SELECT coalesce(sum(line_count), 0) AS lines FROM prism_quarantine
        WHERE prism_staging_object_id = o.prism_staging_object_id) q
    WHERE o.state = 'done' AND o.prism_table_id = ANY(:tables) AND o.finish_time >= :since
) ledger GROUP BY prism_table_id
"""


@dataclass(frozen=True, kw_only=True)
class QuarantineShare:
    """How many of the lines converted since some time were set aside."""

    table_id: int
    lines_in: int
    quarantined: int


def quarantine_shares(connection: Connection, table_ids: Collection[int], since: datetime) -> list[QuarantineShare]:
    """Shares by table, from an index alone; tables without converted objects are left out."""
    rows = connection.execute(
        text(
            "SELECT prism_table_id, sum(lines_in) AS lines_in, sum(rows_quarantined) AS quarantined "
            "FROM prism_staging_objects WHERE state = 'done' AND prism_table_id = ANY(:tables) "
            "AND finish_time >= :since GROUP BY prism_table_id"
        ),
        {"tables": list(table_ids), "since": since},
    )
    return [
        QuarantineShare(table_id=row.prism_table_id, lines_in=int(row.lines_in), quarantined=int(row.quarantined))
        for row in rows
    ]


def quarantine_reasons(
    connection: Connection, table_ids: Collection[int], since: datetime
) -> dict[int, list[tuple[str, int]]]:
    """Lines set aside since then by table and reason, the most frequent first."""
    rows = connection.execute(
        text(
            "SELECT o.prism_table_id, q.reason, sum(q.line_count) AS lines FROM prism_quarantine q "
            "JOIN prism_staging_objects o USING (prism_staging_object_id) "
            "WHERE q.create_time >= :since AND o.prism_table_id = ANY(:tables) "
            "GROUP BY o.prism_table_id, q.reason ORDER BY lines DESC, q.reason"
        ),
        {"tables": list(table_ids), "since": since},
    )
    found: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        found.setdefault(row.prism_table_id, []).append((row.reason, int(row.lines)))
    return found


@dataclass(frozen=True, kw_only=True)
class RangeSizes:
    """The merged objects of one closed partition, in order of their ranges; bytes.

    `last_is_late` says that nothing but rows that came after the close is above the range before the last one.
    """

    table_id: int
    date: date
    sizes: tuple[int, ...]
    last_is_late: bool


def range_sizes(connection: Connection, table_ids: Collection[int], since: date) -> list[RangeSizes]:
    """Sizes of the merged objects of closed partitions from `since` on, by table and date."""
    rows = connection.execute(
        text(
            "SELECT p.prism_table_id, p.partition_date, array_agg(r.content_length ORDER BY r.upper_bound) AS sizes, "
            "max(r.lower_bound) >= p.last_live_object_id AS last_is_late FROM prism_partitions p "
            "JOIN prism_merge_ranges r ON r.prism_partition_id = p.prism_partition_id AND r.lower_bound IS NOT NULL "
            "WHERE p.prism_table_id = ANY(:tables) AND p.partition_date >= :since AND p.last_live_object_id IS NOT NULL "
            "GROUP BY p.prism_partition_id ORDER BY p.prism_table_id, p.partition_date"
        ),
        {"tables": list(table_ids), "since": since},
    )
    return [
        RangeSizes(
            table_id=row.prism_table_id,
            date=row.partition_date,
            sizes=tuple(row.sizes),
            last_is_late=row.last_is_late,
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class Unmerged:
    """Small objects of one partition above its last range; `oldest` is when the first of them was committed."""

    table_id: int
    date: date
    objects: int
    oldest: datetime


def unmerged(connection: Connection, table_ids: Collection[int], before: date) -> list[Unmerged]:
    """What is not merged in partitions of days before `before`, by table and date."""
    rows = connection.execute(
        text(
            "SELECT p.prism_table_id, p.partition_date, s.* FROM prism_partitions p CROSS JOIN LATERAL ("
            "SELECT count(*) AS objects, min(commit_time) AS oldest FROM prism_small_objects "
            "WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version) s "
            "WHERE p.prism_table_id = ANY(:tables) AND p.partition_date < :before "
            "AND p.last_object_id > p.desired_manifest_version ORDER BY p.prism_table_id, p.partition_date"
        ),
        {"tables": list(table_ids), "before": before},
    )
    return [
        Unmerged(table_id=row.prism_table_id, date=row.partition_date, objects=row.objects, oldest=row.oldest)
        for row in rows
        if row.objects
    ]


@dataclass(frozen=True, kw_only=True)
class ParkedJob:
    """A merge that failed too often: tried again at `retry_time`, or no more until somebody asks for it."""

    table_id: int
    date: date
    attempts: int
    last_error: str
    retry_time: datetime | None


def parked_jobs(connection: Connection, table_ids: Collection[int]) -> list[ParkedJob]:
    """Parked merge jobs by table and date."""
    rows = connection.execute(
        text(
            "SELECT p.prism_table_id, p.partition_date, j.attempts, coalesce(j.last_error, '') AS last_error, "
            "j.retry_time "
            "FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id) "
            "WHERE j.parked AND j.ongoing_mark = 0 AND p.prism_table_id = ANY(:tables) "
            "ORDER BY p.prism_table_id, p.partition_date"
        ),
        {"tables": list(table_ids)},
    )
    return [
        ParkedJob(
            table_id=row.prism_table_id,
            date=row.partition_date,
            attempts=row.attempts,
            last_error=row.last_error,
            retry_time=row.retry_time,
        )
        for row in rows
    ]


def published_since(connection: Connection, table_ids: Collection[int], since: date) -> list[Partition]:
    """Partitions from `since` on that the catalog names, by table and date."""
    rows = connection.execute(
        text(
            "SELECT * FROM prism_partition_states WHERE table_id = ANY(:tables) AND date >= :since "
            "AND current_version >= 0 ORDER BY table_id, date"
        ),
        {"tables": list(table_ids), "since": since},
    )
    return [partition_of(row) for row in rows]


def first_commits(connection: Connection, partition_ids: Collection[int]) -> dict[int, datetime]:
    """When the first small object of each partition was committed, by partition id: one look at an index for each."""
    rows = connection.execute(
        text(
            "SELECT w.id, s.commit_time FROM unnest(CAST(:ids AS bigint[])) AS w (id) CROSS JOIN LATERAL ("
            "SELECT commit_time FROM prism_small_objects WHERE prism_partition_id = w.id "
            "ORDER BY prism_small_object_id LIMIT 1) s"
        ),
        {"ids": list(partition_ids)},
    )
    return {row.id: row.commit_time for row in rows}

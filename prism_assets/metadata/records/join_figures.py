"""Figures of join tables for checks: finished folds, and changes that wait. All read without locks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.tables.amplification import Amplification

MOST_FOLDS = 5_000
"""The number of last folds of each table to look at."""


def load_logs(connection: Connection, table_ids: Collection[int]) -> dict[int, int]:
    """Returns the logs of changes of join tables, by the ids of their records."""
    rows = connection.execute(text(_LOGS), {"tables": list(table_ids)})
    return {row.changes_of: row.prism_table_id for row in rows}


_LOGS = "SELECT changes_of, prism_table_id FROM prism_tables WHERE changes_of = ANY(:tables)"


def load_send_times(connection: Connection, staging_object_ids: Collection[int]) -> dict[int, float]:
    """Returns when staging objects were sent, or else first known, in seconds since 1970, by id."""
    rows = connection.execute(text(_SEND_TIMES), {"ids": sorted(staging_object_ids)})
    return {row.id: float(row.seconds) for row in rows}


_SEND_TIMES = """
SELECT prism_staging_object_id AS id, extract(epoch FROM coalesce(send_time, first_receive_time)) AS seconds
FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids)
"""


@dataclass(frozen=True, kw_only=True)
class FoldBalance:
    """All changes taken by a table's folds, and their fate."""

    table_id: int
    taken: int
    folded: int
    pending: int
    days: int
    """Days of the log recently taken by a fold. Their small objects state how many changes a fold should have taken."""
    unbalanced_days: int
    unbalanced: tuple[str, ...]
    """At most three days with another number."""


def fold_balances(connection: Connection, table_ids: Collection[int], since: datetime) -> dict[int, FoldBalance]:
    """Returns balances by table. `since` limits the days of the log.

    One statement, so all figures are of one moment.
    """
    rows = connection.execute(text(_BALANCES), {"tables": list(table_ids), "since": since})
    return {
        row.table_id: FoldBalance(
            table_id=row.table_id,
            taken=int(row.taken),
            folded=int(row.folded),
            pending=int(row.pending),
            days=row.days,
            unbalanced_days=row.unbalanced_days,
            unbalanced=tuple(row.unbalanced or ()),
        )
        for row in rows
    }


_BALANCES = """
SELECT c.changes_of AS table_id, f.*, w.*, d.* FROM prism_tables c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(changes_in), 0) AS taken, coalesce(sum(changes_folded), 0) AS folded
    FROM prism_rewrites WHERE prism_table_id = c.changes_of AND state = 'done'
) f
CROSS JOIN LATERAL (
    SELECT coalesce(sum(row_count), 0) AS pending FROM prism_record_objects
    WHERE prism_table_id = c.changes_of AND replaced_by IS NULL AND NOT is_settled AND part = 'pending'
) w
CROSS JOIN LATERAL (
    SELECT count(*) AS days, count(*) FILTER (WHERE l.rows <> x.changes) AS unbalanced_days,
        (array_agg(format('%s: %s changes are in the log and %s were taken', p.partition_date, l.rows, x.changes)
            ORDER BY p.partition_date) FILTER (WHERE l.rows <> x.changes))[1:3] AS unbalanced
    FROM prism_fold_positions x JOIN prism_partitions p USING (prism_partition_id)
        JOIN prism_rewrites g ON g.prism_rewrite_id = x.fold_id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(row_count + rows_erased), 0) AS rows FROM prism_small_objects
        WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id <= x.folded_object_id
            AND prism_small_object_id NOT IN (SELECT a.prism_small_object_id FROM prism_set_aside_changes a
                WHERE a.prism_partition_id = p.prism_partition_id)
    ) l
    WHERE p.prism_table_id = c.prism_table_id AND p.expire_time IS NULL AND g.finish_time >= :since
) d
WHERE c.changes_of = ANY(:tables)
"""


@dataclass(frozen=True, kw_only=True)
class ShownTooLong:
    """Records that readers still see after they should have settled out of sight."""

    table_id: int
    watermark: datetime
    objects: int
    rows: int
    """Rows of the objects with such records."""
    earliest: datetime
    """When the first of these records should have gone."""


def shown_too_long(connection: Connection, slack: Mapping[int, float]) -> dict[int, ShownTooLong]:
    """Returns objects shown to readers whose first record should have gone `slack` seconds before the watermark.

    The result is by table, given by the ids of the records. Includes unreplaced objects, and replaced ones where a
    publication still shows an earlier version. By partial indexes.
    """
    rows = connection.execute(text(_TOO_LONG), {"tables": list(slack), "slack": list(slack.values())})
    return {
        row.table_id: ShownTooLong(**{**row._mapping, "rows": int(row.rows)})
        for row in rows
        if row.objects and row.watermark is not None
    }


_TOO_LONG = """
SELECT r.prism_table_id AS table_id, r.watermark, s.* FROM prism_tables r
JOIN unnest(CAST(:tables AS bigint[]), CAST(:slack AS double precision[])) AS w (id, slack) ON w.id = r.prism_table_id
CROSS JOIN LATERAL (
    SELECT count(*) AS objects, coalesce(sum(o.row_count), 0) AS rows, min(o.earliest_settle) AS earliest FROM (
        SELECT row_count, earliest_settle FROM prism_record_objects
        WHERE prism_table_id = r.prism_table_id AND replaced_by IS NULL AND NOT is_settled AND part = 'visible'
        UNION ALL
        SELECT x.row_count, x.earliest_settle FROM prism_partitions p
        JOIN LATERAL (
            SELECT min(q.version) AS version FROM prism_publications q
            WHERE q.prism_partition_id = p.prism_partition_id AND q.version >= 0
        ) q ON q.version < p.desired_manifest_version
        JOIN prism_record_objects x ON x.prism_partition_id = p.prism_partition_id
            AND x.replaced_by > q.version AND x.fold_id <= q.version AND x.part = 'visible'
        WHERE p.prism_table_id = r.prism_table_id AND p.expire_time IS NULL
    ) o WHERE o.earliest_settle < r.watermark - make_interval(secs => w.slack)
) s
"""


@dataclass(frozen=True, kw_only=True)
class FoldSums:
    """Sums over the folds of a table since some time. `bucket_changes` are the changes of each bucket."""

    table_id: int
    folds: int
    settled: int
    joined: int
    written: Amplification
    bucket_changes: tuple[int, ...]


def fold_sums(
    connection: Connection, table_ids: Collection[int], since: datetime, days: float = 1.0
) -> dict[int, FoldSums]:
    """Returns sums by table over the last folds since `since`, which is `days` ago.

    Tables without folds are left out.
    """
    values = {"tables": list(table_ids), "since": since, "most": MOST_FOLDS}
    return {
        row.table_id: FoldSums(
            table_id=row.table_id,
            folds=row.folds,
            settled=int(row.settled),
            joined=int(row.joined),
            written=Amplification(rows_written=int(row.written), changes_folded=int(row.folded), days=days),
            bucket_changes=tuple(map(int, row.buckets)),
        )
        for row in connection.execute(text(_SUMS), values)
        if row.folds
    }


_SUMS = """
SELECT w.id AS table_id, s.*, ARRAY(
    SELECT sum(b.changes) FROM unnest(s.ids) AS i (id) JOIN prism_rewrites f ON f.prism_rewrite_id = i.id
    CROSS JOIN LATERAL unnest(f.bucket_changes) WITH ORDINALITY AS b (changes, bucket)
    GROUP BY b.bucket ORDER BY b.bucket) AS buckets
FROM unnest(CAST(:tables AS bigint[])) AS w (id)
CROSS JOIN LATERAL (
    SELECT count(*) AS folds, coalesce(sum(records_settled), 0) AS settled, coalesce(sum(records_joined), 0) AS joined,
        coalesce(sum(rows_written), 0) AS written, coalesce(sum(changes_folded), 0) AS folded,
        coalesce(array_agg(prism_rewrite_id), '{}') AS ids
    FROM (
        SELECT * FROM prism_rewrites WHERE prism_table_id = w.id AND state = 'done' AND kind = 'fold'
        ORDER BY prism_rewrite_id DESC LIMIT :most
    ) f WHERE f.finish_time >= :since
) s
"""


def bucket_records(connection: Connection, table_ids: Collection[int]) -> dict[int, dict[int, int]]:
    """Returns how many records of each bucket may still change, by table. By a partial index."""
    found: dict[int, dict[int, int]] = {}
    for row in connection.execute(text(_BUCKET_RECORDS), {"tables": list(table_ids)}):
        found.setdefault(row.prism_table_id, {})[row.bucket_number] = int(row.rows)
    return found


_BUCKET_RECORDS = """
SELECT prism_table_id, bucket_number, sum(row_count) AS rows FROM prism_record_objects
WHERE prism_table_id = ANY(:tables) AND replaced_by IS NULL AND NOT is_settled AND part <> 'pending'
GROUP BY prism_table_id, bucket_number
"""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """The oldest changes that no reader sees, by what they wait for; None if no change waits."""

    table_id: int
    not_folded: datetime | None
    """Waiting for a fold."""
    waits: datetime | None
    """Pending: waiting for a later fold to write their object again."""
    not_published: datetime | None
    """Folded, waiting for the publication of their day."""

    @property
    def oldest(self) -> datetime | None:
        """The earliest of the three."""
        return min((at for at in (self.not_folded, self.waits, self.not_published) if at is not None), default=None)


def unreadable_changes(connection: Connection, table_ids: Collection[int]) -> dict[int, Unreadable]:
    """The oldest changes by table, given by the ids of their records. By indexes."""
    rows = connection.execute(text(_UNREADABLE), {"tables": list(table_ids)})
    return {row.table_id: Unreadable(**row._mapping) for row in rows}


# The first small object above the position of a day is its oldest object not yet taken, apart from set-aside objects,
# which nobody could read. For folded, unpublished changes PostgreSQL knows the end of the fold, but not since when the
# changes wait. Iceberg has a check of its own.
_UNREADABLE = """
SELECT c.changes_of AS table_id, least(u.at, a.at) AS not_folded, w.at AS waits, s.at AS not_published FROM prism_tables c
CROSS JOIN LATERAL (
    SELECT min(o.upload_start_time) AS at FROM prism_partitions p
    LEFT JOIN prism_fold_positions f USING (prism_partition_id)
    CROSS JOIN LATERAL (
        SELECT upload_start_time FROM prism_small_objects
        WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > coalesce(f.folded_object_id, 0)
        ORDER BY prism_small_object_id LIMIT 1
    ) o
    WHERE p.prism_table_id = c.prism_table_id AND p.expire_time IS NULL
        AND p.last_object_id > coalesce(f.folded_object_id, 0)
) u
CROSS JOIN LATERAL (
    SELECT min(o.upload_start_time) AS at FROM prism_partitions p
    JOIN prism_set_aside_changes x USING (prism_partition_id)
    JOIN prism_small_objects o ON o.prism_small_object_id = x.prism_small_object_id
    WHERE p.prism_table_id = c.prism_table_id AND p.expire_time IS NULL
) a
CROSS JOIN LATERAL (
    SELECT min(oldest_change) AS at FROM prism_record_objects
    WHERE prism_table_id = c.changes_of AND replaced_by IS NULL AND NOT is_settled AND part = 'pending'
) w
CROSS JOIN LATERAL (
    SELECT min(g.finish_time) AS at FROM prism_partitions p
    CROSS JOIN LATERAL (
        SELECT min(coalesce(q.version, -1)) AS version FROM prism_table_publications t
        LEFT JOIN prism_publications q ON q.prism_partition_id = p.prism_partition_id AND q.publisher = t.publisher
        WHERE t.prism_table_id = p.prism_table_id
    ) q
    JOIN prism_record_objects x ON x.prism_partition_id = p.prism_partition_id AND x.replaced_by IS NULL
        AND x.part = 'visible' AND x.fold_id > q.version AND x.merges = 0
    JOIN prism_rewrites g ON g.prism_rewrite_id = x.fold_id
    WHERE p.prism_table_id = c.changes_of AND p.expire_time IS NULL AND p.desired_manifest_version > q.version
) s
WHERE c.changes_of = ANY(:tables)
"""

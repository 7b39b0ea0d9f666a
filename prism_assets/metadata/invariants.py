"""Invariants of the rows in PostgreSQL, each as a statement that finds its violations. Reads without locks.

A statement sees one snapshot, and the compared rows change in one transaction. So a batch or a run that commits at the
same time is seen as a whole or not at all. Each statement returns rows of (table, day, number, example).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from prism_assets.domain.names import TableName
from prism_assets.metadata.files.merge_ranges import COVERED_BY_RANGE, RANGE_DIFFERS


@dataclass(frozen=True, kw_only=True)
class Violation:
    """Rows of one table or day that contradict each other: their number, and an example."""

    table_id: int | None
    date: date | None
    count: int
    example: str


def begin_reading(connection: Connection) -> None:
    """Makes PostgreSQL refuse every change in this transaction."""
    connection.execute(text("SET TRANSACTION READ ONLY"))


def is_of_published_design(connection: Connection) -> bool:
    """Whether the schema is the one of the published design, without the additions of this package."""
    return not connection.execute(text(_HAS_LAST_OBJECT)).scalar_one()


_HAS_LAST_OBJECT = """
SELECT EXISTS (SELECT 1 FROM information_schema.columns
    WHERE table_name = 'prism_partitions' AND column_name = 'last_object_id'
        AND table_schema = ANY(current_schemas(false)))
"""


def load_names(connection: Connection) -> dict[int, TableName]:
    """Returns the names of all tables by id, also of tables without a definition."""
    return {
        row.prism_table_id: TableName(
            row.schema_name, row.table_name, row.physical_schema_name, row.physical_table_name
        )
        for row in connection.execute(text(_NAMES))
    }


_NAMES = """
SELECT prism_table_id, schema_name, table_name, physical_schema_name, physical_table_name
FROM prism_tables
ORDER BY schema_name, table_name
"""


def find_violations(connection: Connection, statement: str, table_ids: Collection[int]) -> list[Violation]:
    """Runs one of the statements below. Returns violations by table and day."""
    rows = connection.execute(text(statement), {"tables": list(table_ids)})
    return [
        Violation(table_id=row.table_id, date=row.day, count=int(row.found), example=row.example or "") for row in rows
    ]


# The statements up to the next heading use only columns of the published design.

LIVE_BEHIND_CLOSE = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, s.found,
    format('small object %s lies above %s', s.lowest, p.last_live_object_id) AS example
FROM prism_partitions p CROSS JOIN LATERAL (
    SELECT count(*) AS found, min(prism_small_object_id) AS lowest FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.last_live_object_id
        AND NOT delayed) s
WHERE p.last_live_object_id IS NOT NULL AND s.found > 0 AND p.prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

BROKEN_CHAIN = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, count(*) AS found,
    (array_agg(format('a range begins at %s where %s ends', coalesce(r.lower_bound::text, 'nothing'),
        coalesce(r.before::text, 'nothing')) ORDER BY r.upper_bound))[1] AS example
FROM (SELECT *, lag(upper_bound) OVER (PARTITION BY prism_partition_id ORDER BY upper_bound) AS before
    FROM prism_merge_ranges) r
JOIN prism_partitions p USING (prism_partition_id)
WHERE r.lower_bound IS DISTINCT FROM r.before AND p.prism_table_id = ANY(:tables)
GROUP BY p.prism_table_id, p.partition_date ORDER BY 1, 2
"""

DESIRED_WITHOUT_RANGES = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('version %s is desired, and the ranges end at %s', p.desired_manifest_version, r.upper) AS example
FROM prism_partitions p CROSS JOIN LATERAL (SELECT coalesce(max(upper_bound), 0) AS upper FROM prism_merge_ranges
    WHERE prism_partition_id = p.prism_partition_id) r
WHERE p.desired_manifest_version <> r.upper AND p.prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

CURRENT_BEYOND_DESIRED = """
SELECT prism_table_id AS table_id, partition_date AS day, 1 AS found,
    format('version %s is shown, and %s is desired', current_manifest_version, desired_manifest_version) AS example
FROM prism_partitions WHERE current_manifest_version > desired_manifest_version AND prism_table_id = ANY(:tables)
ORDER BY 1, 2
"""

NEVER_MERGED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, s.found,
    format('small object %s lies above %s', s.lowest, p.desired_manifest_version) AS example
FROM prism_partitions p CROSS JOIN LATERAL (
    SELECT count(*) AS found, min(prism_small_object_id) AS lowest FROM prism_small_objects
    WHERE prism_partition_id = p.prism_partition_id AND prism_small_object_id > p.desired_manifest_version) s
WHERE p.last_live_object_id IS NOT NULL AND s.found > 0 AND p.prism_table_id = ANY(:tables)
    AND NOT EXISTS (SELECT 1 FROM prism_merge_jobs j WHERE j.prism_partition_id = p.prism_partition_id)
ORDER BY 1, 2
"""

# Ranges of the published design have no row counts. But an object uploaded after a range was written cannot be in it.
LATE_IN_RANGE = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, count(*) AS found,
    format('small object %s was uploaded after its range was written', min(s.prism_small_object_id)) AS example
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id)
JOIN prism_small_objects s ON s.prism_partition_id = r.prism_partition_id
    AND s.prism_small_object_id > r.lower_bound AND s.prism_small_object_id <= r.upper_bound
WHERE s.upload_start_time > r.update_time AND p.prism_table_id = ANY(:tables)
GROUP BY p.prism_table_id, p.partition_date ORDER BY 1, 2
"""

# The following statements use columns added to the published design.

# Days of records are exempt: folds raise their desired version, no batch closes them, and they need no certificate.
_IS_LOG = "NOT EXISTS (SELECT 1 FROM prism_tables c WHERE c.changes_of = p.prism_table_id)"

LOG_DESIRED_WITHOUT_RANGES = f"""
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('version %s is desired, and the ranges end at %s', p.desired_manifest_version, r.upper) AS example
FROM prism_partitions p CROSS JOIN LATERAL (SELECT coalesce(max(upper_bound), 0) AS upper FROM prism_merge_ranges
    WHERE prism_partition_id = p.prism_partition_id) r
WHERE p.desired_manifest_version <> r.upper AND {_IS_LOG} AND p.prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

UNBALANCED = """
WITH written AS (SELECT prism_staging_object_id AS id, sum(row_count + rows_erased) AS rows FROM prism_small_objects GROUP BY 1),
    kept AS (SELECT prism_staging_object_id AS id, sum(line_count) AS lines FROM prism_quarantine GROUP BY 1)
SELECT o.prism_table_id AS table_id, CAST(NULL AS date) AS day, count(*) AS found,
    (array_agg(format('s3://%s/%s: %s lines in, %s rows out of which %s are in small objects, %s quarantined of which '
        '%s are kept, %s filtered, %s erased, %s elsewhere', o.bucket_name, o.object_key, o.lines_in, o.rows_out, coalesce(w.rows, 0),
        o.rows_quarantined, coalesce(k.lines, 0), o.rows_filtered, o.rows_erased, o.rows_elsewhere) ORDER BY o.prism_staging_object_id))[1] AS example
FROM prism_staging_objects o
LEFT JOIN written w ON w.id = o.prism_staging_object_id LEFT JOIN kept k ON k.id = o.prism_staging_object_id
WHERE o.state = 'done' AND o.prism_table_id = ANY(:tables) AND (o.lines_in <> o.rows_out + o.rows_quarantined + o.rows_filtered
        + o.rows_erased + o.rows_elsewhere
    OR coalesce(w.rows, 0) <> o.rows_out OR coalesce(k.lines, 0) <> o.rows_quarantined)
GROUP BY o.prism_table_id ORDER BY 1
"""

COMMITTED_AND_UNFINISHED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, count(*) AS found,
    (array_agg(format('s3://%s/%s is %s', o.bucket_name, o.object_key, o.state)))[1] AS example
FROM prism_staging_objects o JOIN prism_small_objects s USING (prism_staging_object_id)
JOIN prism_partitions p USING (prism_partition_id)
WHERE o.state IN ('pending', 'claimed', 'failed') AND p.prism_table_id = ANY(:tables)
GROUP BY p.prism_table_id, p.partition_date ORDER BY 1, 2
"""

# Expired days are exempt here and below, because their rows may have left PostgreSQL for the archive. So may merged rows
# of kept days: ranges count them.
LAST_OBJECT = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('the last small object is %s, on record is %s', s.last, p.last_object_id) AS example
FROM prism_partitions p CROSS JOIN LATERAL (SELECT coalesce(max(prism_small_object_id), 0) AS last
    FROM prism_small_objects WHERE prism_partition_id = p.prism_partition_id) s
WHERE s.last <> p.last_object_id AND p.expire_time IS NULL AND p.prism_table_id = ANY(:tables)
    AND NOT (s.last < p.last_object_id AND EXISTS (SELECT 1 FROM prism_merge_ranges r
        WHERE r.prism_partition_id = p.prism_partition_id AND r.archived_objects > 0
            AND r.upper_bound >= p.last_object_id))
ORDER BY 1, 2
"""

UNEQUAL_RANGES = f"""
SELECT p.prism_table_id AS table_id, p.partition_date AS day, count(*) AS found,
    (array_agg(format('the range (%s, %s] holds %s rows and not the same as the %s rows of its small objects',
        r.lower_bound, r.upper_bound, r.row_count, s.rows) ORDER BY r.upper_bound))[1] AS example
FROM prism_merge_ranges r JOIN prism_partitions p USING (prism_partition_id) {COVERED_BY_RANGE}
WHERE r.lower_bound IS NOT NULL AND p.expire_time IS NULL AND p.prism_table_id = ANY(:tables) AND {RANGE_DIFFERS}
GROUP BY p.prism_table_id, p.partition_date ORDER BY 1, 2
"""

SHOWN_BEYOND_DESIRED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('version %s is shown, and %s is desired', q.version, p.desired_manifest_version) AS example
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
WHERE q.version > p.desired_manifest_version AND p.prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

PUBLISHED_BEYOND = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('object %s is shown, and %s is the last', q.published_object_id, p.last_object_id) AS example
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
WHERE q.published_object_id > greatest(p.last_object_id, p.desired_manifest_version)
    AND p.prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

NOT_TO_BE_PUBLISHED = """
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found,
    format('object %s is shown, and %s is the last', coalesce(q.published_object_id, 0), p.last_object_id) AS example
FROM prism_partitions p JOIN prism_table_publications t USING (prism_table_id) LEFT JOIN prism_publications q
    ON q.prism_partition_id = p.prism_partition_id AND q.publisher = t.publisher
WHERE p.switched AND p.expire_time IS NULL AND NOT coalesce(q.dirty, false) AND p.prism_table_id = ANY(:tables)
    AND p.desired_manifest_version > 0  -- a day of records that are all hidden has none to show
    AND (coalesce(q.published_object_id, 0) < p.last_object_id
        OR coalesce(q.version, -1) < p.desired_manifest_version OR coalesce(q.revision, 0) < p.revision)
ORDER BY 1, 2
"""

NO_CERTIFICATE = f"""
SELECT p.prism_table_id AS table_id, p.partition_date AS day, 1 AS found, '' AS example FROM prism_partitions p
WHERE p.switched AND {_IS_LOG} AND p.prism_table_id = ANY(:tables) AND NOT EXISTS (
    SELECT 1 FROM prism_switch_certificates c WHERE c.prism_partition_id = p.prism_partition_id) ORDER BY 1, 2
"""

MARK_BEYOND_BATCHES = """
SELECT prism_table_id AS table_id, partition_date AS day, 1 AS found,
    format('the mark is %s, the last batch %s', closing_batch_id, b.last) AS example
FROM prism_partitions CROSS JOIN (SELECT coalesce(max(prism_stream_batch_id), 0) AS last FROM prism_stream_batches) b
WHERE closing_batch_id > b.last AND prism_table_id = ANY(:tables) ORDER BY 1, 2
"""

HELD_BY_NOBODY = """
SELECT o.prism_table_id AS table_id, CAST(NULL AS date) AS day, count(*) AS found,
    (array_agg(format('s3://%s/%s', o.bucket_name, o.object_key)))[1] AS example
FROM prism_staging_objects o LEFT JOIN prism_stream_batches b USING (prism_stream_batch_id)
WHERE o.state = 'claimed' AND b.state IS DISTINCT FROM 'running' AND o.prism_table_id = ANY(:tables)
GROUP BY o.prism_table_id ORDER BY 1
"""

# Sequences are not part of the snapshot: `last_value` may be newer than the rows, but never older.
IDS_COME_AGAIN = """
SELECT CAST(NULL AS bigint) AS table_id, CAST(NULL AS date) AS day, 1 AS found,
    format('%s: the greatest id is %s, the next one %s', name, greatest_id, next_id) AS example
FROM (
    SELECT 'prism_small_objects' AS name, (SELECT max(prism_small_object_id) FROM prism_small_objects) AS greatest_id,
        (SELECT last_value + is_called::integer FROM prism_small_objects_prism_small_object_id_seq) AS next_id
    UNION ALL
    SELECT 'prism_stream_batches', (SELECT max(prism_stream_batch_id) FROM prism_stream_batches),
        (SELECT last_value + is_called::integer FROM prism_stream_batches_prism_stream_batch_id_seq)
    UNION ALL
    SELECT 'prism_staging_objects', (SELECT max(prism_staging_object_id) FROM prism_staging_objects),
        (SELECT last_value + is_called::integer FROM prism_staging_objects_prism_staging_object_id_seq)
    UNION ALL
    SELECT 'prism_rewrites', (SELECT max(prism_rewrite_id) FROM prism_rewrites),
        (SELECT last_value + is_called::integer FROM prism_rewrites_prism_rewrite_id_seq)
) ids WHERE greatest_id >= next_id AND CAST(:tables AS bigint[]) IS NOT NULL
"""

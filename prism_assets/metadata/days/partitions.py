"""Statements on prism_partitions and prism_switch_certificates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.days.partitions import GLUE, ObjectTotals, Partition, SwitchEvidence
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.tables.accepted import DateRange


def partition_of(row: Row[Any]) -> Partition:
    """Turns a row of the view prism_partition_states into a Partition."""
    return Partition(**row._mapping)


def ensure_and_lock(connection: Connection, wanted: Collection[tuple[int, date]]) -> dict[tuple[int, date], int]:
    """Creates missing partitions and locks all wanted ones in id order. Returns ids by (table id, date).

    Inserts in one order and locks in id order, so that two commits never wait for each other in a circle.
    """
    ordered = sorted(wanted)
    keys = {"tables": [table for table, _ in ordered], "dates": [day for _, day in ordered]}
    connection.execute(text(_ENSURE), keys)
    rows = connection.execute(text(_LOCK_WANTED), keys)
    return {(row.prism_table_id, row.partition_date): row.prism_partition_id for row in rows}


_ENSURE = """
INSERT INTO prism_partitions (prism_table_id, partition_date)
SELECT w.t, w.d FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[])) AS w (t, d)
WHERE NOT EXISTS (SELECT 1 FROM prism_partitions p WHERE p.prism_table_id = w.t AND p.partition_date = w.d)
ORDER BY w.t, w.d
ON CONFLICT DO NOTHING
"""
_LOCK_WANTED = """
SELECT p.prism_partition_id, p.prism_table_id, p.partition_date FROM prism_partitions p
WHERE (p.prism_table_id, p.partition_date) IN
    (SELECT * FROM unnest(CAST(:tables AS bigint[]), CAST(:dates AS date[])))
ORDER BY p.prism_partition_id FOR UPDATE
"""


def make_marked(connection: Connection, table_id: int, day: date) -> None:
    """Creates a missing day that is over, with its closing mark.

    Objects claimed by later batches are delayed objects there.

    The caller holds the epoch lock exclusively, as for `mark_closing`.
    """
    connection.execute(text(_MAKE_MARKED), {"table": table_id, "day": day})


_MAKE_MARKED = """
INSERT INTO prism_partitions (prism_table_id, partition_date, closing_batch_id)
SELECT :table, :day, coalesce(max(prism_stream_batch_id), 0) FROM prism_stream_batches
ON CONFLICT DO NOTHING
"""


def ensure_and_lock_records(connection: Connection, table_id: int, days: Collection[date]) -> dict[date, int]:
    """Creates missing days of the records of a join table and locks all wanted ones in id order. Returns ids by day.

    These days are switched from the beginning: readers use the objects of a manifest, and no day is merged or closed.
    """
    values = {"table": table_id, "days": sorted(days)}
    connection.execute(text(_ENSURE_RECORDS), values)
    rows = connection.execute(text(_LOCK_DAYS), values)
    return {row.partition_date: row.prism_partition_id for row in rows}


_ENSURE_RECORDS = """
INSERT INTO prism_partitions (prism_table_id, partition_date, closing_batch_id, last_live_object_id, switched)
SELECT :table, w.d, 0, 0, true FROM unnest(CAST(:days AS date[])) AS w (d)
WHERE NOT EXISTS (SELECT 1 FROM prism_partitions p WHERE p.prism_table_id = :table AND p.partition_date = w.d)
ORDER BY w.d
ON CONFLICT DO NOTHING
"""
_LOCK_DAYS = """
SELECT prism_partition_id, partition_date FROM prism_partitions
WHERE prism_table_id = :table AND partition_date = ANY(:days)
ORDER BY prism_partition_id FOR UPDATE
"""


def close_early(connection: Connection, partition_ids: Collection[int]) -> int:
    """Lets catalog runs close open partitions before their days end. Returns how many. Locks their rows in id order."""
    return connection.execute(text(_CLOSE_EARLY), {"ids": list(partition_ids)}).rowcount


_CLOSE_EARLY = """
UPDATE prism_partitions SET close_early = true
WHERE prism_partition_id IN (
    SELECT prism_partition_id FROM prism_partitions
    WHERE prism_partition_id = ANY(:ids) AND last_live_object_id IS NULL AND NOT close_early
    ORDER BY prism_partition_id FOR UPDATE)
"""


def raise_desired(connection: Connection, partition_id: int, version: int) -> None:
    """Asks the catalog to show the ranges up to an upper bound, or the output of a fold.

    The version never decreases. The caller holds the partition's row.
    """
    connection.execute(text(_RAISE_DESIRED), {"id": partition_id, "version": version})


_RAISE_DESIRED = """
UPDATE prism_partitions SET desired_manifest_version = greatest(desired_manifest_version, :version)
WHERE prism_partition_id = :id
"""


def raise_last_object(connection: Connection, highest: Mapping[int, int]) -> None:
    """Records the highest small object ids of partitions. The caller holds their rows."""
    if not highest:
        return
    rows = [{"partition": partition, "last": last} for partition, last in sorted(highest.items())]
    connection.execute(text(_RAISE_LAST_OBJECT), rows)


_RAISE_LAST_OBJECT = """
UPDATE prism_partitions SET last_object_id = greatest(last_object_id, :last)
WHERE prism_partition_id = :partition
"""


def lock_partition(connection: Connection, partition_id: int) -> Partition:
    """Locks one partition row. Returns the partition with its publications, read after the lock was granted."""
    return lock_partitions(connection, [partition_id])[partition_id]


def lock_all(connection: Connection, table_ids: Collection[int]) -> None:
    """Locks all partition rows of some tables, in id order."""
    connection.execute(text(_LOCK_ALL), {"tables": list(table_ids)})


_LOCK_ALL = """
SELECT 1 FROM prism_partitions WHERE prism_table_id = ANY(:tables) ORDER BY prism_partition_id FOR UPDATE
"""


def lock_partitions(connection: Connection, partition_ids: Collection[int]) -> dict[int, Partition]:
    """Locks partition rows in id order. Returns the partitions by id, read after the locks were granted."""
    connection.execute(text(_LOCK), {"ids": list(partition_ids)})
    found = load_partitions(connection, partition_ids)
    if missing := set(partition_ids) - found.keys():
        raise InvariantBroken(f"there is no partition {min(missing)}: rows of others name it")
    return found


_LOCK = """
SELECT 1 FROM prism_partitions WHERE prism_partition_id = ANY(:ids) ORDER BY prism_partition_id FOR UPDATE
"""


def load_partitions(connection: Connection, partition_ids: Collection[int]) -> dict[int, Partition]:
    """Returns partitions by id. Reads without locks."""
    rows = connection.execute(text(_BY_ID), {"ids": list(partition_ids)})
    return {row.partition_id: partition_of(row) for row in rows}


_BY_ID = "SELECT * FROM prism_partition_states WHERE partition_id = ANY(:ids)"


def load_table_partitions(connection: Connection, table_id: int, day: date | None = None) -> list[Partition]:
    """Returns all partitions of a table, or the one of a day, by date. Reads without locks."""
    return load_of_tables(connection, [table_id], day)


def load_of_tables(connection: Connection, table_ids: Collection[int], day: date | None = None) -> list[Partition]:
    """Returns all partitions of some tables, or those of a day, by table and date. Reads without locks."""
    rows = connection.execute(text(_OF_TABLES), {"tables": list(table_ids), "day": day})
    return [partition_of(row) for row in rows]


_OF_TABLES = """
SELECT * FROM prism_partition_states
WHERE table_id = ANY(:tables) AND (CAST(:day AS date) IS NULL OR date = :day)
ORDER BY table_id, date
"""


def load_days(connection: Connection, table_id: int, days: Collection[date]) -> list[Partition]:
    """Returns the partitions of some days of a table, in id order. Reads without locks."""
    rows = connection.execute(text(_OF_DAYS), {"table": table_id, "days": list(days)})
    return [partition_of(row) for row in rows]


_OF_DAYS = "SELECT * FROM prism_partition_states WHERE table_id = :table AND date = ANY(:days) ORDER BY partition_id"


def load_pending(connection: Connection, table_ids: Collection[int], publisher: str = GLUE) -> list[Partition]:
    """Returns the partitions on which a catalog run may have to act, by table and date.

    These are the unswitched partitions, and those dirty for the publisher. Reads without locks, by partial indexes.
    """
    rows = connection.execute(text(_PENDING), {"tables": list(table_ids), "publisher": publisher})
    return [partition_of(row) for row in rows]


_PENDING = """
SELECT * FROM prism_partition_states WHERE table_id = ANY(:tables) AND NOT switched
UNION ALL
SELECT s.* FROM prism_publications q JOIN prism_partition_states s ON s.partition_id = q.prism_partition_id
WHERE q.dirty AND q.publisher = :publisher AND s.switched AND s.table_id = ANY(:tables)
ORDER BY table_id, date
"""


def closing_marks(connection: Connection, days: Mapping[int, DateRange]) -> dict[int, dict[date, int]]:
    """Returns {table id: {date: closing_batch_id}} for partitions with a mark, within some days of each table.

    Call it in the transaction that shares the epoch lock: every later mark is set by a run that sees this batch's id.
    The lateral join looks up each table's days by index; with a plain join the planner reads all partitions.
    """
    rows = connection.execute(
        text(_CLOSING_MARKS),
        {
            "tables": list(days),
            "firsts": [wanted.first for wanted in days.values()],
            "lasts": [wanted.last for wanted in days.values()],
        },
    )
    marks: dict[int, dict[date, int]] = {}
    for row in rows:
        marks.setdefault(row.prism_table_id, {})[row.partition_date] = row.closing_batch_id
    return marks


_CLOSING_MARKS = """
SELECT p.prism_table_id, p.partition_date, p.closing_batch_id
FROM unnest(CAST(:tables AS bigint[]), CAST(:firsts AS date[]), CAST(:lasts AS date[]))
    AS wanted (table_id, first_date, last_date)
CROSS JOIN LATERAL (
    SELECT * FROM prism_partitions
    WHERE prism_table_id = wanted.table_id AND closing_batch_id IS NOT NULL
        AND partition_date BETWEEN first_date AND last_date
    OFFSET 0
) AS p
"""


def mark_closing(connection: Connection, partition_ids: Sequence[int]) -> dict[int, int]:
    """Sets `closing_batch_id = max(batch id)` where no mark exists. Returns the new marks by partition id.

    The caller holds the epoch lock exclusively. No batch is starting, so no batch with a smaller id can follow.
    """
    rows = connection.execute(text(_MARK_CLOSING), {"ids": list(partition_ids)})
    return {row.prism_partition_id: row.closing_batch_id for row in rows}


_MARK_CLOSING = """
UPDATE prism_partitions SET closing_batch_id =
    (SELECT coalesce(max(prism_stream_batch_id), 0) FROM prism_stream_batches)
WHERE prism_partition_id IN (
    SELECT prism_partition_id FROM prism_partitions
    WHERE prism_partition_id = ANY(:ids) AND closing_batch_id IS NULL
    ORDER BY prism_partition_id FOR UPDATE)
RETURNING prism_partition_id, closing_batch_id
"""


def close(connection: Connection, partition_id: int) -> int:
    """Closes a partition. Returns the id of its last live object, 0 for none. The caller holds the partition's row."""
    return int(connection.execute(text(_CLOSE), {"id": partition_id}).scalar_one())


_CLOSE = """
UPDATE prism_partitions SET last_live_object_id = coalesce((SELECT max(prism_small_object_id)
    FROM prism_small_objects WHERE prism_partition_id = :id AND NOT delayed), 0)
WHERE prism_partition_id = :id RETURNING last_live_object_id
"""


def switch_evidence(connection: Connection, partition_id: int) -> SwitchEvidence:
    """Sums up both sides of a switch. Erased rows count on both sides.

    The caller holds the partition's row, so neither side changes.
    """
    ranges = connection.execute(text(_RANGE_TOTALS), {"id": partition_id}).one()
    row = connection.execute(text(_EVIDENCE), {"id": partition_id, "upper": ranges.upper or 0}).one()
    return SwitchEvidence(
        upper_bound=ranges.upper,
        uncovered_live=row.uncovered,
        live=_totals(row.live_objects, row.live_rows, row.live_print),
        covered=_totals(row.covered_objects, row.covered_rows, row.covered_print),
        ranges=_totals(ranges.objects, ranges.rows, ranges.print),
    )


_EVIDENCE = """
SELECT count(*) FILTER (WHERE NOT delayed AND prism_small_object_id > :upper) AS uncovered,
    count(*) FILTER (WHERE NOT delayed) AS live_objects,
    coalesce(sum(row_count + rows_erased) FILTER (WHERE NOT delayed), 0) AS live_rows,
    coalesce(sum(CAST(fingerprint AS numeric) + erased_fingerprint) FILTER (WHERE NOT delayed), 0) AS live_print,
    count(*) FILTER (WHERE prism_small_object_id <= :upper) AS covered_objects,
    coalesce(sum(row_count + rows_erased) FILTER (WHERE prism_small_object_id <= :upper), 0) AS covered_rows,
    coalesce(sum(CAST(fingerprint AS numeric) + erased_fingerprint) FILTER (WHERE prism_small_object_id <= :upper), 0) AS covered_print
FROM prism_small_objects
WHERE prism_partition_id = :id
"""


_RANGE_TOTALS = """
SELECT max(upper_bound) AS upper, count(*) AS objects, coalesce(sum(row_count + rows_erased), 0) AS rows,
    coalesce(sum(CAST(fingerprint AS numeric) + erased_fingerprint), 0) AS print
FROM prism_merge_ranges
WHERE prism_partition_id = :id AND lower_bound IS NOT NULL
"""


def _totals(objects: int, rows: object, fingerprint: object) -> ObjectTotals:
    return ObjectTotals(objects=objects, rows=int(str(rows)), fingerprint=combine([int(str(fingerprint))]))


def switch(connection: Connection, partition_id: int, evidence: SwitchEvidence, now: datetime) -> None:
    """Switches a locked partition and stores the certificate that allowed it."""
    connection.execute(text(_CERTIFY), {**_certified(partition_id, evidence), "now": now})
    connection.execute(text(_SWITCH), {"id": partition_id})


def certify_again(connection: Connection, partition_id: int, evidence: SwitchEvidence) -> None:
    """Renews the certificate of a switched partition after a rebuild of its ranges.

    The caller holds the partition's row.
    """
    connection.execute(text(_CERTIFY_AGAIN), _certified(partition_id, evidence))


def _certified(partition_id: int, evidence: SwitchEvidence) -> dict[str, object]:
    return {
        "id": partition_id,
        "upper": evidence.upper_bound,
        "live_objects": evidence.live.objects,
        "live_rows": evidence.live.rows,
        "live_print": evidence.live.fingerprint,
        "covered_objects": evidence.covered.objects,
        "covered_rows": evidence.covered.rows,
        "covered_print": evidence.covered.fingerprint,
        "range_rows": evidence.ranges.rows,
        "range_print": evidence.ranges.fingerprint,
    }


_CERTIFY = """
INSERT INTO prism_switch_certificates (prism_partition_id, switch_time, upper_bound, live_objects, live_rows,
    live_fingerprint, covered_objects, covered_rows, covered_fingerprint, range_rows, range_fingerprint)
VALUES (:id, :now, :upper, :live_objects, :live_rows, :live_print, :covered_objects, :covered_rows, :covered_print,
    :range_rows, :range_print)
"""
_CERTIFY_AGAIN = """
UPDATE prism_switch_certificates SET upper_bound = :upper, live_objects = :live_objects, live_rows = :live_rows,
    live_fingerprint = :live_print, covered_objects = :covered_objects, covered_rows = :covered_rows,
    covered_fingerprint = :covered_print, range_rows = :range_rows, range_fingerprint = :range_print
WHERE prism_partition_id = :id
"""
_SWITCH = "UPDATE prism_partitions SET switched = true WHERE prism_partition_id = :id"


def load_needed(connection: Connection, table_ids: Collection[int], day: date | None) -> list[Partition]:
    """Returns partitions whose small objects are needed by readers, merges (see `needed_above`) or folds, in id order.

    Reads without locks.
    """
    rows = connection.execute(text(_NEEDED), {"tables": list(table_ids), "day": day})
    return [partition_of(row) for row in rows]


_NEEDED = """
SELECT * FROM prism_partition_states
WHERE table_id = ANY(:tables) AND (CAST(:day AS date) IS NULL OR date = :day) AND last_object_id > 0 AND NOT expired
    AND (NOT switched OR last_object_id > current_version OR EXISTS (
        SELECT 1 FROM prism_publications q
        WHERE q.prism_partition_id = partition_id AND q.publisher <> 'iceberg' AND q.version BETWEEN 0 AND last_object_id - 1)
    OR EXISTS (SELECT 1 FROM prism_tables c WHERE c.prism_table_id = table_id AND c.changes_of IS NOT NULL
        AND (EXISTS (SELECT 1 FROM prism_set_aside_changes a WHERE a.prism_partition_id = partition_id)
            OR last_object_id > coalesce((SELECT f.folded_object_id FROM prism_fold_positions f
                WHERE f.prism_partition_id = partition_id), 0))))
ORDER BY partition_id
"""


def raise_revisions(connection: Connection, partition_ids: Collection[int]) -> None:
    """Marks partitions for republication. Call it when one of their objects got another key or length.

    The caller holds the partitions' rows.
    """
    connection.execute(text(_RAISE_REVISIONS), {"ids": list(partition_ids)})


_RAISE_REVISIONS = "UPDATE prism_partitions SET revision = revision + 1 WHERE prism_partition_id = ANY(:ids)"


def count_repair(connection: Connection, partition_id: int) -> None:
    """Counts a repair: Iceberg snapshots that name the object as it was before end with the next commit.

    The old key has no sound object, or the old length is wrong. The caller holds the partition's row.
    """
    connection.execute(text(_COUNT_REPAIR), {"id": partition_id})


_COUNT_REPAIR = "UPDATE prism_partitions SET repairs = repairs + 1 WHERE prism_partition_id = :id"


def ids_unmerged(connection: Connection, table_ids: Collection[int], day: date | None = None) -> list[int]:
    """Returns partitions with small objects above their last upper bound, in id order, the order of locking.

    Takes no lock.
    """
    return list(connection.execute(text(_UNMERGED), {"tables": list(table_ids), "day": day}).scalars())


_UNMERGED = """
SELECT prism_partition_id FROM prism_partitions
WHERE prism_table_id = ANY(:tables) AND last_object_id > desired_manifest_version
    AND (CAST(:day AS date) IS NULL OR partition_date = :day)
ORDER BY prism_partition_id
"""


def published_since(connection: Connection, table_ids: Collection[int], since: date) -> list[Partition]:
    """Returns the partitions from `since` on that Glue shows, by table and date. Reads without locks."""
    rows = connection.execute(text(_PUBLISHED), {"tables": list(table_ids), "since": since})
    return [partition_of(row) for row in rows]


_PUBLISHED = """
SELECT * FROM prism_partition_states
WHERE table_id = ANY(:tables) AND date >= :since AND current_version >= 0
ORDER BY table_id, date
"""

"""Statements on prism_iceberg_tables and prism_iceberg_log: the recorded content of each Iceberg table.

Records were read back from the catalog. After a death they lag, but they are never ahead. Days that may differ have
dirty rows in prism_publications, set by a trigger in the transaction that changes a partition.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.iceberg.commit import IcebergCommit
from prism_assets.domain.iceberg.snapshots import KnownTable
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days.partitions import partition_of
from prism_assets.metadata.files.merge_ranges import COVERED_BY_RANGE, RANGE_DIFFERS

PUBLISHER = "iceberg"


@dataclass(frozen=True, kw_only=True)
class IcebergState:
    """A table's current definition, its recorded Iceberg table, if any, and the current time."""

    definition: TableDefinition
    known: KnownTable | None
    time: datetime


def load_iceberg_state(connection: Connection, table_id: int) -> IcebergState:
    """Returns the state left by a table's last publication. Reads without locks."""
    row = connection.execute(text(_STATE), {"table": table_id}).one()
    known = connection.execute(text(_KNOWN), {"tables": [table_id]}).one_or_none()
    return IcebergState(
        definition=TableDefinition.from_document(row.definition),
        known=None if known is None else KnownTable(**known._mapping),
        time=row.time,
    )


_STATE = """
SELECT d.definition, clock_timestamp() AS time FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
WHERE t.prism_table_id = :table
"""
_KNOWN = """
SELECT prism_table_id AS table_id, identifier, CAST(table_uuid AS text) AS table_uuid, metadata_location, snapshot_id,
    snapshots, definition_version, state, last_error, pace_time, look_time
FROM prism_iceberg_tables WHERE prism_table_id = ANY(:tables)
"""


def load_known_tables(connection: Connection, table_ids: Collection[int]) -> dict[int, KnownTable]:
    """Returns the recorded Iceberg tables by table id. Reads without locks."""
    rows = connection.execute(text(_KNOWN), {"tables": list(table_ids)})
    return {row.table_id: KnownTable(**row._mapping) for row in rows}


def begin(connection: Connection, table_id: int, identifier: str) -> None:
    """Records that a table is published as Iceberg. Later transactions mark the days they change. Locks no row."""
    connection.execute(text(_BEGIN), {"table": table_id, "identifier": identifier})


_BEGIN = """
INSERT INTO prism_iceberg_tables (prism_table_id, identifier) VALUES (:table, :identifier) ON CONFLICT DO NOTHING
"""


def wait_for_writers(connection: Connection) -> None:
    """Returns once every partition-changing transaction that may have missed `begin` has ended.

    Call it in its own transaction, after `begin` and before the first read of days. Briefly locks prism_partitions
    against writers.
    """
    connection.execute(text("LOCK TABLE prism_partitions IN SHARE MODE"))


def forget(connection: Connection, table_id: int) -> None:
    """Deletes the record of a table no longer published as Iceberg, and of its content. Locks its rows."""
    connection.execute(text(_FORGET_DAYS), {"table": table_id})
    connection.execute(text("DELETE FROM prism_iceberg_tables WHERE prism_table_id = :table"), {"table": table_id})


_FORGET_DAYS = """
DELETE FROM prism_publications q USING prism_partitions p
WHERE p.prism_partition_id = q.prism_partition_id AND q.publisher = 'iceberg' AND p.prism_table_id = :table
"""


def load_days(connection: Connection, table_id: int, *, dirty_only: bool) -> list[Partition]:
    """Returns partitions of a table with their content in Iceberg, by date: all non-empty ones, or only dirty ones.

    Reads without locks, dirty ones by their partial index.
    """
    rows = connection.execute(text(_DIRTY if dirty_only else _ALL), {"table": table_id})
    return [partition_of(row) for row in rows]


ICEBERG_PARTITION = """
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id, p.revision,
    coalesce(q.revision, 0) AS published_revision, p.repairs, coalesce(q.repairs, 0) AS published_repairs,
    p.expire_time IS NOT NULL AS expired"""
"""The fields of a Partition `p` with its content in Iceberg, from its row `q` of prism_publications."""
HAS_ROWS = "greatest(p.last_object_id, p.desired_manifest_version) > 0"
"""Whether a day `p` has content: for logs since the first commit, for records since the first visible one."""
_DIRTY = f"""{ICEBERG_PARTITION}
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
WHERE q.publisher = 'iceberg' AND q.dirty AND p.prism_table_id = :table AND {HAS_ROWS}
ORDER BY p.partition_date
"""
_ALL = f"""{ICEBERG_PARTITION}
FROM prism_partitions p
LEFT JOIN prism_publications q ON q.prism_partition_id = p.prism_partition_id AND q.publisher = 'iceberg'
WHERE p.prism_table_id = :table AND {HAS_ROWS}
ORDER BY p.partition_date
"""


@dataclass(frozen=True, kw_only=True)
class UncertifiedRange:
    """A range whose rows differ from the small objects it covers."""

    upper_bound: int
    rows: int
    covered_rows: int


def find_uncertified(connection: Connection, partition_id: int, above: int) -> UncertifiedRange | None:
    """Returns the first range above `above` that must not replace its small objects.

    Sums up each range's objects by index. Reads without locks, because committed ranges and objects never change.
    """
    row = connection.execute(text(_UNCERTIFIED), {"partition": partition_id, "above": above}).one_or_none()
    return None if row is None else UncertifiedRange(**row._mapping)


_UNCERTIFIED = f"""
SELECT r.upper_bound, r.row_count + r.rows_erased AS rows, s.rows AS covered_rows
FROM prism_merge_ranges r {COVERED_BY_RANGE}
WHERE r.prism_partition_id = :partition AND r.lower_bound IS NOT NULL AND r.upper_bound > :above AND {RANGE_DIFFERS}
ORDER BY r.upper_bound LIMIT 1
"""


def record_commit(connection: Connection, known: KnownTable) -> None:
    """Records the head read back, and that the table is correct. Locks the table's row."""
    connection.execute(text(_RECORD), vars(known))


_RECORD = """
UPDATE prism_iceberg_tables SET identifier = :identifier, table_uuid = CAST(:table_uuid AS uuid),
    metadata_location = :metadata_location, snapshot_id = :snapshot_id, snapshots = :snapshots,
    definition_version = greatest(definition_version, :definition_version),
    state = :state, last_error = :last_error, pace_time = :pace_time, look_time = clock_timestamp()
WHERE prism_table_id = :table_id
"""


def record_state(connection: Connection, table_id: int, state: str, error: str | None) -> None:
    """Records that the catalog was asked, and that the table needs a person, with the reason. Locks the table's row."""
    connection.execute(text(_RECORD_STATE), {"table": table_id, "state": state, "error": error})


_RECORD_STATE = """
UPDATE prism_iceberg_tables SET state = :state, last_error = :error, look_time = clock_timestamp()
WHERE prism_table_id = :table
"""


def log_commit(connection: Connection, commit: IcebergCommit) -> None:
    """Adds a commit to the log, without details known only to its writer. Locks no other row."""
    connection.execute(text(_LOG), vars(commit))


_LOG = """
INSERT INTO prism_iceberg_log (prism_table_id, snapshot_id, operation, files_in, files_out, rows_in, rows_out, seconds,
    outcome, message, foreign_snapshots, worker, commit_time)
VALUES (:table_id, :snapshot_id, :operation, :files_in, :files_out, :rows_in, :rows_out, :seconds, :outcome, :message,
    :foreign_snapshots, :worker, :commit_time)
"""


def load_commits(connection: Connection, table_id: int, limit: int) -> list[IcebergCommit]:
    """Returns the newest commits of a table, the newest first. Reads without locks."""
    rows = connection.execute(text(_COMMITS), {"table": table_id, "limit": limit})
    return [IcebergCommit(**row._mapping) for row in rows]


_COMMITS = """
SELECT prism_table_id AS table_id, snapshot_id, operation, files_in, files_out, rows_in, rows_out, seconds, outcome,
    message, foreign_snapshots, worker, commit_time
FROM prism_iceberg_log WHERE prism_table_id = :table ORDER BY prism_iceberg_log_id DESC LIMIT :limit
"""


@dataclass(frozen=True, kw_only=True)
class DirtyDays:
    """How many days of a table's Iceberg table may be outdated, and the newest of them."""

    table_id: int
    days: int
    newest: date


def count_dirty_days(connection: Connection, table_ids: Collection[int]) -> dict[int, DirtyDays]:
    """Returns tables with dirty days, by table id. Reads without locks, by the partial index of dirty rows."""
    rows = connection.execute(text(_DIRTY_DAYS), {"tables": list(table_ids)})
    return {row.table_id: DirtyDays(**row._mapping) for row in rows}


_DIRTY_DAYS = f"""
SELECT p.prism_table_id AS table_id, count(*) AS days, max(p.partition_date) AS newest
FROM prism_publications q JOIN prism_partitions p USING (prism_partition_id)
WHERE q.publisher = 'iceberg' AND q.dirty AND p.prism_table_id = ANY(:tables)
    AND {HAS_ROWS}
GROUP BY p.prism_table_id
"""

"""Statements on prism_rewrites: every rewrite takes its number here.

All kinds share one sequence, so no two rewrites write under one key. A rewrite runs until it is done or dropped. After
a drop its commit fails, and its objects are garbage.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.errors import LeaseLost, StaleRewrite
from prism_assets.domain.files.rewrites import Rewrite, RewriteKind, RewriteRecord, RewriteState, TableRewrite
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import staged_files
from prism_assets.metadata.tables import tables

_AT_ONCE = 5_000
_MOST_NUMBERS = 1_000_000
"""Numbers that one call skips at most. A key that somebody forged may name any number."""


def begin_of_table(
    connection: Connection,
    table_id: int,
    kind: RewriteKind,
    *,
    definition_version: int,
    worker: str,
    lease_token: str | None = None,
    settle_before: datetime | None = None,
) -> int:
    """Begins a rewrite of a table, not of one day, and returns its number. Drops an earlier one whose worker died.

    The caller holds the table's lease of folds, or the lease of erasures named by `lease_token`.
    """
    connection.execute(text(_DROP_OF_TABLE), {"table": table_id})
    values = {
        "table": table_id,
        "version": definition_version,
        "settle": settle_before,
        "worker": worker,
        "token": lease_token,
        "kind": kind.value,
    }
    return int(connection.execute(text(_BEGIN_OF_TABLE), values).scalar_one())


_DROP_OF_TABLE = """
UPDATE prism_rewrites SET state = 'dropped', finish_time = clock_timestamp()
WHERE prism_table_id = :table AND state = 'running' AND prism_partition_id IS NULL AND kind <> 'widen'
"""
_BEGIN_OF_TABLE = """
INSERT INTO prism_rewrites (prism_table_id, definition_version, settle_before, lease_token, state, worker, kind)
VALUES (:table, :version, :settle, CAST(:token AS uuid), 'running', :worker, :kind)
RETURNING prism_rewrite_id
"""


def begin(
    connection: Connection,
    partition: Partition,
    kind: RewriteKind,
    *,
    definition_version: int,
    worker: str,
    lease_token: str,
    above: int = 0,
) -> Rewrite:
    """Begins a rewrite of a day under the lease named by `lease_token`, with a number above a given one.

    Call it after reading the objects to replace, so that numbers only grow within a place. Waits for commits of the
    day, and keeps its row from being deleted.
    """
    # The lock comes before the number: garbage collection raises the numbers while it holds the rows of the days.
    connection.execute(text(_KEEP_DAY), {"partition": partition.partition_id})
    raise_numbers(connection, above)
    row = connection.execute(
        text(_BEGIN),
        {
            "table": partition.table_id,
            "partition": partition.partition_id,
            "kind": kind.value,
            "version": definition_version,
            "erasure": erasures.last_id(connection, partition.table_id),
            "token": lease_token,
            "worker": worker,
        },
    ).one()
    return Rewrite(
        rewrite_id=row.prism_rewrite_id,
        kind=kind,
        table_id=partition.table_id,
        partition_id=partition.partition_id,
        definition_version=definition_version,
        erasure_id=row.erasure_id,
    )


_KEEP_DAY = "SELECT 1 FROM prism_partitions WHERE prism_partition_id = :partition FOR KEY SHARE"
_BEGIN = """
INSERT INTO prism_rewrites
    (prism_table_id, prism_partition_id, kind, definition_version, erasure_id, lease_token, state, worker)
VALUES (:table, :partition, :kind, :version, :erasure, CAST(:token AS uuid), 'running', :worker)
RETURNING prism_rewrite_id, erasure_id
"""


def raise_numbers(connection: Connection, highest: int) -> None:
    """Raises the sequence above `highest`, at most by a million. Takes no lock: numbers are drawn one by one.

    Setting the sequence instead could set it back under a number that another rewrite draws at that moment.
    """
    if highest > 0:  # most rewrites ask for no number above others
        connection.execute(text(_RAISE_NUMBERS), {"highest": highest, "most": _MOST_NUMBERS})


_RAISE_NUMBERS = """
SELECT count(nextval('prism_rewrites_prism_rewrite_id_seq'))
FROM (SELECT last_value - CAST(NOT is_called AS integer) AS last FROM prism_rewrites_prism_rewrite_id_seq) s
CROSS JOIN LATERAL generate_series(s.last + 1, least(CAST(:highest AS bigint), s.last + :most))
"""


def lock_running(connection: Connection, rewrite_id: int) -> None:
    """Keeps a rewrite from ending until the transaction ends. Raises LeaseLost if it has ended. Locks its row."""
    if not connection.execute(text(_LOCK_RUNNING), {"rewrite": rewrite_id}).rowcount:
        raise LeaseLost("another run has ended this rewrite meanwhile; nothing was changed")


_LOCK_RUNNING = "SELECT 1 FROM prism_rewrites WHERE prism_rewrite_id = :rewrite AND state = 'running' FOR UPDATE"


def check_plan(connection: Connection, rewrite: TableRewrite) -> None:
    """Raises StaleRewrite if an erasure began, or a column took a step, after a rewrite began. Reads without locks.

    Whoever makes other rows shares the epoch lock. So an erasure either has its rule before this check, or searches
    after the commit. A rewrite of the same rows needs no lock: an erasure ends its search only when it has replaced
    every input with rows of it, and the second rule finds that.
    """
    if erasures.last_id(connection, rewrite.table_id) != rewrite.erasure_id:
        raise StaleRewrite("an erasure of the table began meanwhile; nothing was changed: repeat it")
    if not tables.keep_columns_since(connection, rewrite.table_id, rewrite.definition_version):
        raise StaleRewrite("columns were renamed, widened or replaced meanwhile; nothing was changed: repeat it")


def drop(connection: Connection, rewrite_id: int) -> None:
    """Ends a running rewrite without a change. From now on its objects are garbage. Locks its row, and its staged files."""
    if connection.execute(text(_DROP), {"rewrite": rewrite_id}).rowcount:
        staged_files.forget(connection, rewrite_id)
        forget_converted(connection, rewrite_id)


_DROP = """
UPDATE prism_rewrites SET state = 'dropped', finish_time = clock_timestamp()
WHERE prism_rewrite_id = :rewrite AND state = 'running'
"""


def forget_converted(connection: Connection, rewrite_id: int) -> None:
    """Deletes the records of objects that a finished rebuild has converted. Other rewrites have none.

    Locks these records, which nobody changes after the end of the rebuild.
    """
    connection.execute(text(_FORGET_CONVERTED), {"rewrite": rewrite_id})


_FORGET_CONVERTED = "DELETE FROM prism_rebuilt_objects WHERE prism_rewrite_id = :rewrite"


def drop_of_lease(connection: Connection, lease_token: str) -> None:
    """Ends the rewrites under a released lease without a change. Locks their rows."""
    connection.execute(text(_DROP_OF_LEASE), {"token": lease_token})


_DROP_OF_LEASE = """
UPDATE prism_rewrites SET state = 'dropped', finish_time = clock_timestamp()
WHERE lease_token = CAST(:token AS uuid) AND state = 'running'
"""


def finish(connection: Connection, rewrite_id: int, counts: FoldCounts | None = None) -> None:
    """Ends a rewrite after its objects are in place. Raises LeaseLost if it has ended. Locks its row."""
    counts = counts or FoldCounts()
    values = {"rewrite": rewrite_id, **vars(counts), "bucket_changes": list(counts.bucket_changes)}
    if not connection.execute(text(_FINISH), values).rowcount:
        raise LeaseLost("another run has ended this rewrite meanwhile; nothing was changed")


_FINISH = """
UPDATE prism_rewrites SET state = 'done', finish_time = clock_timestamp(), changes_in = :changes_in,
    changes_folded = :changes_folded, changes_unsequenced = :changes_unsequenced, records_settled = :records_settled,
    rows_written = :rows_written, bytes_written = :bytes_written, records_changed = :records_changed,
    records_joined = :records_joined, bucket_changes = :bucket_changes
WHERE prism_rewrite_id = :rewrite AND state = 'running'
"""


def drop_forgotten(connection: Connection, table_id: int, before: datetime, lease_seconds: float) -> None:
    """Drops a table's rewrites of any kind that began before an instant and have no worker. Locks their rows.

    Otherwise their objects would stay for ever, because a rebuild might continue and others might commit. Leaves out
    rewrites under the lease of folds, because the next fold drops them, and widenings.
    """
    values = {"table": table_id, "before": before, "lease": lease_seconds}
    for rewrite_id in connection.execute(text(_FORGOTTEN), values).scalars().all():
        drop(connection, rewrite_id)


_FORGOTTEN = """
SELECT prism_rewrite_id FROM prism_rewrites w
WHERE prism_table_id = :table AND state = 'running' AND lease_token IS NOT NULL AND start_time < :before
    AND NOT EXISTS (SELECT 1 FROM prism_leases l WHERE l.lease_token = w.lease_token
        AND l.heartbeat_time >= clock_timestamp() - make_interval(secs => :lease))
    AND NOT EXISTS (SELECT 1 FROM prism_merge_jobs j WHERE j.lease_token = w.lease_token)
ORDER BY prism_rewrite_id FOR UPDATE
"""


def forget_before(connection: Connection, table_id: int, before: datetime) -> bool:
    """Deletes the rows of rewrites of a table's days ended before an instant, some thousands at most. Locks their rows.

    Returns whether there may be more.

    Garbage collection has long deleted the replaced objects, and needs no number of a current object.
    """
    values = {"table": table_id, "before": before, "most": _AT_ONCE}
    return connection.execute(text(_FORGET), values).rowcount == _AT_ONCE


_FORGET = """
DELETE FROM prism_rewrites WHERE prism_rewrite_id IN (
    SELECT prism_rewrite_id FROM prism_rewrites
    WHERE prism_table_id = :table AND lease_token IS NOT NULL AND state <> 'running' AND finish_time < :before
    ORDER BY finish_time LIMIT :most FOR UPDATE)
"""


def load_records(connection: Connection, table_id: int, rewrite_ids: Collection[int]) -> dict[int, RewriteRecord]:
    """The rewrites of a table with some numbers. Reads without locks, by the primary key."""
    rows = connection.execute(text(_RECORDS), {"table": table_id, "ids": list(rewrite_ids)})
    return {
        row.prism_rewrite_id: RewriteRecord(kind=RewriteKind(row.kind), state=RewriteState(row.state)) for row in rows
    }


_RECORDS = """
SELECT prism_rewrite_id, kind, state FROM prism_rewrites
WHERE prism_rewrite_id = ANY(:ids) AND prism_table_id = :table
"""

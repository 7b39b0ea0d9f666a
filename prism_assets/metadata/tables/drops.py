"""Statements on prism_drops, and those that delete a dropped table's rows in parts, the row of the table last.

All times are the database's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, text

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drops import Drop, DropState
from prism_assets.metadata.intake import history
from prism_assets.metadata.intake.claims import NEVER_CLAIMED

_DAYS_AT_ONCE = 20
_OBJECTS_AT_ONCE = 5_000


def load_drops(connection: Connection, *, open_only: bool = False) -> list[Drop]:
    """Returns all drops, or the unfinished ones: the log of a join table before its records. Reads without locks."""
    return [_drop_of(row) for row in connection.execute(text(_OPEN if open_only else _ALL))]


def _drop_of(row: Row[tuple[object, ...]]) -> Drop:
    return Drop(
        table_id=row.prism_table_id,
        name=TableName(row.schema_name, row.table_name, row.physical_schema_name, row.physical_table_name),
        state=DropState(row.state),
        objects=row.object_count,
        content_length=row.content_length,
        begin_time=row.begin_time,
        hidden_time=row.hidden_time,
        end_time=row.end_time,
        never_read=row.never_read,
    )


_ALL = "SELECT * FROM prism_drops ORDER BY prism_table_id DESC"
_OPEN = "SELECT * FROM prism_drops WHERE state <> 'dropped' ORDER BY prism_table_id DESC"


@dataclass(frozen=True, kw_only=True)
class RecordedRows:
    """Numbers of recorded rows of a table."""

    days: int
    staging_objects: int
    small_objects: int
    merged_objects: int
    erasures: int
    """Erasures of the table."""
    erased_sources: int
    """Staging objects with rows of these erasures, certain and possible ones."""


def count_rows(connection: Connection, table_id: int) -> RecordedRows:
    """Counts the rows a drop deletes, for its plan. Reads without locks, each object of the table once."""
    return RecordedRows(**connection.execute(text(_COUNT), {"table": table_id}).one()._mapping)


_COUNT = """
SELECT (SELECT count(*) FROM prism_partitions WHERE prism_table_id = :table) AS days,
    (SELECT count(*) FROM prism_staging_objects WHERE prism_table_id = :table) AS staging_objects,
    (SELECT count(*) FROM prism_partitions JOIN prism_small_objects USING (prism_partition_id)
        WHERE prism_table_id = :table) AS small_objects,
    (SELECT count(*) FROM prism_partitions JOIN prism_merge_ranges USING (prism_partition_id)
        WHERE prism_table_id = :table AND lower_bound IS NOT NULL) AS merged_objects,
    (SELECT count(*) FROM prism_erasures WHERE prism_table_id = :table) AS erasures,
    (SELECT count(DISTINCT s.prism_staging_object_id) FROM prism_erasures JOIN prism_erasure_sources s
        USING (prism_erasure_id) WHERE prism_table_id = :table) AS erased_sources
"""


def retired_since(connection: Connection, table_id: int) -> datetime | None:
    """Returns when the definition that retired a table came into force, or None if the table is in use."""
    time: datetime | None = connection.execute(text(_RETIRED_SINCE), {"table": table_id}).scalar_one()
    return time


_RETIRED_SINCE = """
SELECT min(create_time) FROM prism_table_definitions
WHERE prism_table_id = :table AND version > (
    SELECT coalesce(max(version), 0) FROM prism_table_definitions
    WHERE prism_table_id = :table AND NOT coalesce(CAST(definition ->> 'retired' AS boolean), false))
"""


def count_unfinished(connection: Connection, table_id: int) -> int:
    """Counts a table's staging objects that wait or are being converted. Reads without locks, by an index."""
    return int(connection.execute(text(_UNFINISHED), {"table": table_id}).scalar_one())


_UNFINISHED = """
SELECT (SELECT count(*) FROM prism_staging_objects WHERE prism_table_id = :table AND state IN ('pending', 'claimed'))
    + (SELECT count(*) FROM prism_staging_objects WHERE prism_table_id = :table AND state = 'history'
        AND history_date IS NOT NULL)
"""


def count_open_erasures(connection: Connection, table_id: int) -> int:
    """Counts the erasures of a table without a proof. Reads without locks."""
    return int(connection.execute(text(_ERASURES), {"table": table_id}).scalar_one())


_ERASURES = "SELECT count(*) FROM prism_erasures WHERE prism_table_id = :table AND state <> 'proved'"


def begin(
    connection: Connection,
    table: TableDefinition,
    objects: int,
    content_length: int,
    worker: str,
    *,
    never_read: bool = False,
) -> None:
    """Records the drop of a table, with its objects. Given-up objects are never tried again.

    The caller keeps batches from starting, and has stored a definition with the drop. Locks the rows of given-up
    staging objects, and of waiting and running merges: these fail.
    """
    name = table.name
    values = {
        "table": table.table_id,
        "schema": name.schema,
        "name": name.table,
        "physical_schema": name.physical_schema,
        "physical_table": name.physical_table,
        "objects": objects,
        "length": content_length,
        "worker": worker,
        "never_read": never_read,
    }
    for statement in (_BEGIN, _GIVE_UP_FOR_GOOD, _DELETE_MERGES):
        connection.execute(text(statement), values)


def delete_merges(connection: Connection, table_id: int) -> None:
    """Deletes merges scheduled by work begun before the drop, because no worker would take them. Locks their rows."""
    connection.execute(text(_DELETE_MERGES), {"table": table_id})


def forget_some_waiting(connection: Connection, table_id: int) -> bool:
    """Deletes the rows of some waiting objects never claimed by a batch. Returns whether more may exist.

    The next listing of their streams is a complete one, and finds the objects again if the table stays. Locks the rows,
    except those a batch is claiming. Uses the index of pending objects.
    """
    values = {"table": table_id, "most": _OBJECTS_AT_ONCE}
    connection.execute(text(_FORGET_SCANS), values)
    history.forget_waiting(connection, table_id)
    return connection.execute(text(_FORGET_SOME_WAITING), values).rowcount == _OBJECTS_AT_ONCE


def forget_waiting_objects(connection: Connection, table_id: int) -> None:
    """Deletes the rows of a table's staging objects never claimed by a batch, and the positions of its streams'
    listings.

    So the next table with one of these streams finds its objects. The caller holds the streams, and keeps batches from
    starting. Locks the rows.
    """
    for statement in (_FORGET_WAITING, _FORGET_SCANS):
        connection.execute(text(statement), {"table": table_id})


_FORGET_WAITING = f"DELETE FROM prism_staging_objects o WHERE prism_table_id = :table AND {NEVER_CLAIMED}"
_FORGET_SOME_WAITING = f"""
DELETE FROM prism_staging_objects WHERE prism_staging_object_id IN (
    SELECT o.prism_staging_object_id FROM prism_staging_objects o
    WHERE o.prism_stream_id IN (SELECT prism_stream_id FROM prism_streams WHERE prism_table_id = :table)
        AND o.state = 'pending' AND o.prism_table_id = :table AND {NEVER_CLAIMED}
    LIMIT :most FOR UPDATE SKIP LOCKED)
"""
_FORGET_SCANS = """
DELETE FROM prism_stream_scans USING prism_streams s
WHERE s.prism_stream_id = prism_stream_scans.prism_stream_id AND s.prism_table_id = :table
"""

_BEGIN = """
INSERT INTO prism_drops (prism_table_id, schema_name, table_name, physical_schema_name, physical_table_name,
    object_count, content_length, worker, never_read)
VALUES (:table, :schema, :name, :physical_schema, :physical_table, :objects, :length, :worker, :never_read)
"""
_GIVE_UP_FOR_GOOD = """
UPDATE prism_staging_objects SET state = 'done', lines_in = 0, rows_out = 0, rows_quarantined = 0, rows_filtered = 0,
    rows_erased = 0, rows_elsewhere = 0, retry_time = NULL
WHERE prism_table_id = :table AND state = 'failed'
"""
_DELETE_MERGES = """
DELETE FROM prism_merge_jobs j USING prism_partitions p
WHERE p.prism_partition_id = j.prism_partition_id AND p.prism_table_id = :table
"""


def record_hidden(connection: Connection, table_id: int) -> bool:
    """Records that no catalog shows a table any more. Returns False, without a record, if one does or may. Locks the
    drop's row.
    """
    return bool(connection.execute(text(_RECORD_HIDDEN), {"table": table_id}).rowcount)


_RECORD_HIDDEN = """
UPDATE prism_drops SET state = 'deleting', hidden_time = clock_timestamp()
WHERE prism_table_id = :table AND state = 'hiding'
    AND NOT EXISTS (SELECT 1 FROM prism_table_publications WHERE prism_table_id = :table)
    AND NOT EXISTS (SELECT 1 FROM prism_iceberg_tables WHERE prism_table_id = :table)
"""


def is_at_rest(connection: Connection, table_id: int, lease_seconds: float) -> bool:
    """Whether no worker may still write objects of a table. Reads without locks.

    Work begun after the drop found no such table. Earlier work is done, or has lost its lease.
    """
    return bool(connection.execute(text(_IS_AT_REST), {"table": table_id, "lease": lease_seconds}).scalar_one())


_IS_AT_REST = """
SELECT NOT EXISTS (SELECT 1 FROM prism_staging_objects
        WHERE prism_table_id = :table AND state IN ('pending', 'claimed'))
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects
        WHERE prism_table_id = :table AND state = 'history' AND history_date IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM prism_merge_jobs JOIN prism_partitions USING (prism_partition_id)
        WHERE prism_table_id = :table)
    AND NOT EXISTS (SELECT 1 FROM prism_leases
        WHERE heartbeat_time >= clock_timestamp() - make_interval(secs => :lease)
            AND (kind IN ('adopt', 'catalog', 'erase', 'fold', 'history', 'iceberg', 'live') AND subject_id = :table
                OR kind IN ('rebuild', 'repair') AND subject_id IN (
                    SELECT prism_partition_id FROM prism_partitions WHERE prism_table_id = :table)))
    AND NOT EXISTS (SELECT 1 FROM prism_topic_partitions JOIN prism_topics USING (prism_topic_id)
        JOIN prism_streams USING (prism_stream_id)
        WHERE prism_table_id = :table AND heartbeat_time >= clock_timestamp() - make_interval(secs => :lease))
    AND NOT EXISTS (SELECT 1 FROM prism_tables WHERE changes_of = :table)
"""


def record_emptied(connection: Connection, table_id: int) -> None:
    """Records that the lake has no object of a table, so its rows may go. Locks the drop's row."""
    connection.execute(
        text("UPDATE prism_drops SET state = 'forgetting' WHERE prism_table_id = :table AND state = 'deleting'"),
        {"table": table_id},
    )


def forget_days(connection: Connection, table_id: int) -> int:
    """Deletes some days of a table with all their rows. Returns how many. Locks their rows."""
    chosen = connection.execute(text(_SOME_DAYS), {"table": table_id, "most": _DAYS_AT_ONCE}).scalars().all()
    for statement in _FORGET_DAYS if chosen else ():
        connection.execute(text(statement), {"days": chosen})
    return len(chosen)


_SOME_DAYS = """
SELECT prism_partition_id FROM prism_partitions WHERE prism_table_id = :table
ORDER BY prism_partition_id LIMIT :most FOR UPDATE
"""
_OF_REBUILDS = "prism_rewrite_id IN (SELECT prism_rewrite_id FROM prism_rewrites WHERE prism_partition_id = ANY(:days))"
_FORGET_DAYS = (
    f"DELETE FROM prism_rebuilt_objects WHERE {_OF_REBUILDS}",
    "DELETE FROM prism_record_moves WHERE from_partition_id = ANY(:days) OR to_partition_id = ANY(:days)",
    *(
        f"DELETE FROM {name} WHERE prism_partition_id = ANY(:days)"
        for name in (
            "prism_staged_files",
            "prism_rewrites",
            "prism_merge_jobs",
            "prism_merge_job_log",
            "prism_merge_ranges",
            "prism_switch_certificates",
            "prism_materializations",
            "prism_publications",
            "prism_publication_history",
            "prism_fold_positions",
            "prism_set_aside_changes",
            "prism_record_objects",
            "prism_small_objects",
            "prism_partitions",
        )
    ),
)


def forget_objects(connection: Connection, table_id: int, above: int) -> int | None:
    """Deletes some staging objects of a table `above` an id. Returns the last id, or None once all are gone.

    Objects of streams that now feed another table stay with this table, as if discarded: otherwise its next listing
    would register them as new. Called after the days are gone. Locks their rows.
    """
    chosen = connection.execute(
        text(_SOME_OBJECTS), {"table": table_id, "above": above, "most": _OBJECTS_AT_ONCE}
    ).scalars()
    ids: Sequence[int] = chosen.all()
    if not ids:
        return None
    for statement in _FORGET_OBJECTS:
        connection.execute(text(statement), {"table": table_id, "ids": ids})
    return ids[-1]


# In the order of the primary key, so that all parts together read the table once.
_SOME_OBJECTS = """
SELECT prism_staging_object_id FROM prism_staging_objects
WHERE prism_table_id = :table AND prism_staging_object_id > :above
ORDER BY prism_staging_object_id LIMIT :most FOR UPDATE
"""
_FORGET_OBJECTS = (
    *(
        f"DELETE FROM {name} WHERE prism_staging_object_id = ANY(:ids)"
        for name in ("prism_abandoned_uploads", "prism_quarantine", "prism_erasure_sources")
    ),
    """
UPDATE prism_staging_objects o SET prism_table_id = s.prism_table_id, state = 'done', lines_in = 0, rows_out = 0,
    rows_quarantined = 0, rows_filtered = 0, rows_erased = 0, rows_elsewhere = 0, value_errors = NULL, first_batch_id = NULL,
    prism_stream_batch_id = NULL, definition_version = NULL
FROM prism_streams s
WHERE o.prism_staging_object_id = ANY(:ids) AND s.prism_stream_id = o.prism_stream_id AND s.prism_table_id <> :table
    AND NOT EXISTS (SELECT 1 FROM prism_staging_objects k WHERE k.bucket_name = o.bucket_name
        AND k.object_key = o.object_key AND k.prism_table_id = s.prism_table_id)
""",
    "DELETE FROM prism_staging_objects WHERE prism_staging_object_id = ANY(:ids) AND prism_table_id = :table",
)


def forget_table(connection: Connection, table_id: int) -> None:
    """Deletes the rest of a table, and ends its drop. Called after its staging objects and most of its ranges are gone.

    A stream with objects read earlier by another table returns to that table, which has ended it. Locks the streams of
    the dropped table, and its row.
    """
    for statement in _FORGET_TABLE:
        connection.execute(text(statement), {"table": table_id})


_TOPICS = (
    "SELECT prism_topic_id FROM prism_topics JOIN prism_streams USING (prism_stream_id) WHERE prism_table_id = :table"
)
_FORGET_TABLE = (
    # The other table may have a stream of its own at the prefix again.
    """
UPDATE prism_staging_objects o SET prism_stream_id = k.prism_stream_id
FROM prism_streams s JOIN prism_streams k ON k.bucket_name = s.bucket_name AND k.key_prefix = s.key_prefix
    AND k.prism_stream_id <> s.prism_stream_id
WHERE s.prism_table_id = :table AND o.prism_stream_id = s.prism_stream_id AND o.prism_table_id = k.prism_table_id
""",
    """
UPDATE prism_streams s SET prism_table_id = o.prism_table_id
FROM (SELECT prism_stream_id, min(prism_table_id) AS prism_table_id FROM prism_staging_objects
    WHERE prism_stream_id IN (SELECT prism_stream_id FROM prism_streams WHERE prism_table_id = :table)
    GROUP BY prism_stream_id) o
WHERE o.prism_stream_id = s.prism_stream_id AND s.prism_table_id = :table
""",
    # Keys of streams that now feed another table stay known there, whatever its days are.
    """
UPDATE prism_archived_keys a SET prism_table_id = s.prism_table_id, last_date = 'infinity' FROM prism_streams s
WHERE a.prism_table_id = :table AND s.prism_stream_id = a.prism_stream_id AND s.prism_table_id <> :table
    AND NOT EXISTS (SELECT 1 FROM prism_archived_keys k
        WHERE k.key_digest = a.key_digest AND k.prism_table_id = s.prism_table_id)
""",
    "DELETE FROM prism_archived_keys WHERE prism_table_id = :table",
    _FORGET_SCANS,
    *(
        f"DELETE FROM {name} WHERE prism_topic_id IN ({_TOPICS})"
        for name in ("prism_offset_ranges", "prism_topic_partitions", "prism_topics")
    ),
    *(
        f"DELETE FROM {name} WHERE prism_table_id = :table"
        for name in (
            "prism_streams",
            "prism_record_objects",
            "prism_rewrites",
            "prism_lake_mappings",
            "prism_table_definitions",
            "prism_table_columns",
            "prism_undefined_fields",
            "prism_former_names",
            "prism_publication_intents",
            "prism_table_publications",
            "prism_iceberg_tables",
            "prism_iceberg_log",
        )
    ),
    "DELETE FROM prism_erasures WHERE prism_table_id = :table AND state <> 'proved'",
    "DELETE FROM prism_tables WHERE prism_table_id = :table",
    "UPDATE prism_drops SET state = 'dropped', end_time = clock_timestamp() WHERE prism_table_id = :table",
)

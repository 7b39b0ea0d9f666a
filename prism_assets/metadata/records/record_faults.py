"""Statements on objects unreadable for folds and merges: set-aside changes, buckets on hold, unmerged settled records.

Folds go on past a set-aside object of changes, and a later fold takes it. Until then no record settles that its changes
could still meet (`watermark`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

_RETRY_SECONDS = 3_600
"""Seconds until a set-aside object is tried again. A repair tries it at once."""


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """A small object of changes that no fold could read."""

    object_id: int
    partition_id: int
    fault: str
    """Why the object could not be read."""
    since: datetime
    is_due: bool
    """The time of the next try has come."""
    is_passed: bool
    """Folds have taken later objects of its day. Before this happens, the object counts as a new one."""

    @property
    def is_to_be_retried(self) -> bool:
        """Whether the next fold takes it in addition to the new objects."""
        return self.is_due and self.is_passed


def set_aside(connection: Connection, faults: Mapping[int, str]) -> None:
    """Lets folds go on without small objects, given by id with the reason why each could not be read.

    Locks their rows. The caller holds the lease of folds.
    """
    values = {"ids": list(faults), "faults": list(faults.values()), "seconds": _RETRY_SECONDS}
    connection.execute(text(_SET_ASIDE), values)


_SET_ASIDE = """
INSERT INTO prism_set_aside_changes AS a (prism_small_object_id, prism_partition_id, fault, retry_time)
SELECT s.prism_small_object_id, s.prism_partition_id, f.fault, clock_timestamp() + make_interval(secs => :seconds)
FROM unnest(CAST(:ids AS bigint[]), CAST(:faults AS text[])) AS f (id, fault)
JOIN prism_small_objects s ON s.prism_small_object_id = f.id
ON CONFLICT (prism_small_object_id) DO UPDATE SET fault = excluded.fault, retry_time = excluded.retry_time
"""


def load_set_aside(connection: Connection, table_id: int) -> list[SetAside]:
    """Returns the set-aside objects of a log of changes, by id. Reads without locks."""
    return [SetAside(**row._mapping) for row in connection.execute(text(_LOAD), {"table": table_id})]


_LOAD = """
SELECT a.prism_small_object_id AS object_id, a.prism_partition_id AS partition_id, a.fault, a.since,
    a.retry_time <= clock_timestamp() AS is_due,
    a.prism_small_object_id <= coalesce(f.folded_object_id, 0) AS is_passed
FROM prism_set_aside_changes a JOIN prism_partitions p USING (prism_partition_id)
LEFT JOIN prism_fold_positions f USING (prism_partition_id)
WHERE p.prism_table_id = :table
ORDER BY a.prism_small_object_id
"""


def end_set_aside(connection: Connection, object_ids: Collection[int]) -> None:
    """Notes that a fold has taken small objects, set aside or not. The caller holds the fold's lease."""
    connection.execute(text(_END), {"ids": list(object_ids)})


_END = "DELETE FROM prism_set_aside_changes WHERE prism_small_object_id = ANY(:ids)"


def retry(connection: Connection, partition_id: int) -> None:
    """Lets the next fold try the set-aside objects of a day of changes. Locks their rows."""
    connection.execute(text(_RETRY), {"partition": partition_id})


_RETRY = """
UPDATE prism_set_aside_changes SET retry_time = clock_timestamp()
WHERE prism_partition_id = :partition AND retry_time > clock_timestamp()
"""


def note_unread(connection: Connection, table_id: int, faults: Mapping[int, str]) -> None:
    """Notes the objects of a table that the last fold could not read, by id with the reason. All others count as read.

    Locks their rows. The caller holds the lease of folds; these rows change only under it.
    """
    values = {"table": table_id, "ids": list(faults), "faults": list(faults.values())}
    connection.execute(text(_FORGET), values)
    connection.execute(text(_NOTE), values)


_FORGET = """
UPDATE prism_record_objects SET fault = NULL
WHERE prism_table_id = :table AND replaced_by IS NULL AND NOT is_settled AND fault IS NOT NULL
    AND prism_record_object_id <> ALL(CAST(:ids AS bigint[]))
"""
_NOTE = """
UPDATE prism_record_objects r SET fault = f.fault
FROM unnest(CAST(:ids AS bigint[]), CAST(:faults AS text[])) AS f (id, fault)
WHERE r.prism_record_object_id = f.id AND r.replaced_by IS NULL
"""


def note_unread_settled(connection: Connection, faults: Mapping[int, str]) -> None:
    """Lets merges go on without objects of settled records, given by id with the reason why each cannot be read.

    Locks their rows. The caller holds the lease of folds.
    """
    connection.execute(text(_NOTE), {"ids": list(faults), "faults": list(faults.values())})


def retry_settled(connection: Connection, table_id: int) -> None:
    """Lets the next merge try all objects of a table's settled records. Locks their rows."""
    connection.execute(text(_RETRY_SETTLED), {"table": table_id})


_RETRY_SETTLED = """
UPDATE prism_record_objects SET fault = NULL
WHERE prism_table_id = :table AND replaced_by IS NULL AND is_settled AND fault IS NOT NULL
"""


@dataclass(frozen=True, kw_only=True)
class UnreadRecords:
    """Counts of a table's unreadable objects and their buckets."""

    objects: int
    buckets: int
    fault: str
    """Of one of the objects."""


def load_unread(connection: Connection, table_id: int, *, settled: bool) -> UnreadRecords | None:
    """Returns the objects unreadable for a table's last fold, or settled objects left out by merges. None if there are
    none.

    Reads without locks, by a partial index.
    """
    row = connection.execute(text(_UNREAD), {"table": table_id, "settled": settled}).one()
    return UnreadRecords(**row._mapping) if row.objects else None


_UNREAD = """
SELECT count(*) AS objects, count(DISTINCT bucket_number) AS buckets, min(fault) AS fault FROM prism_record_objects
WHERE prism_table_id = :table AND replaced_by IS NULL AND is_settled = :settled AND fault IS NOT NULL
"""

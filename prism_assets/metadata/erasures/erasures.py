"""Statements on prism_erasures: rules, their progress, the sources of their rows, and readers of older objects.

A rule is made under the exclusive epoch lock. Batches with a later id respect the rule. Objects begun by earlier
batches are recognized by their batch ids.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.erasures.rules import ColumnValues, Erasure, ErasureRule, ErasureState
from prism_assets.domain.files.data_file import MergedRange


def insert_erasure(connection: Connection, table_id: int, rule: ErasureRule, digest: str) -> int | None:
    """Inserts a rule. Returns its id, or None if the table already has the same one.

    The caller holds the epoch lock.
    """
    values = {
        "table": table_id,
        "predicate": rule.predicate,
        "columns": json.dumps([json.loads(document) for document in rule.columns]),
        "values": json.dumps([[item.column_id, list(item.values)] for item in rule.values]),
        "secrets": list(rule.secrets),
        "digest": digest,
    }
    number: int | None = connection.execute(text(_INSERT), values).scalar()
    return number


_INSERT = """
INSERT INTO prism_erasures
    (prism_table_id, predicate, columns, "values", secrets, digest, after_batch_id, state, create_time)
VALUES (:table, :predicate, CAST(:columns AS jsonb), CAST(:values AS jsonb), CAST(:secrets AS text[]), :digest,
    (SELECT coalesce(max(prism_stream_batch_id), 0) FROM prism_stream_batches), 'rewriting', clock_timestamp())
ON CONFLICT (prism_table_id, digest) DO NOTHING
RETURNING prism_erasure_id
"""


def load_rules(connection: Connection, table_ids: Collection[int]) -> dict[int, tuple[ErasureRule, ...]]:
    """Returns all rules of tables, by table id, the oldest first. Reads without locks, because rules never change."""
    found: dict[int, list[ErasureRule]] = {}
    for row in connection.execute(text(_RULES), {"tables": list(table_ids)}):
        found.setdefault(row.prism_table_id, []).append(_rule(row))
    return {table_id: tuple(rules) for table_id, rules in found.items()}


_RULES = """
SELECT prism_erasure_id, prism_table_id, predicate, columns, "values", secrets FROM prism_erasures
WHERE prism_table_id = ANY(:tables) ORDER BY prism_erasure_id
"""


def last_id(connection: Connection, table_id: int) -> int:
    """Returns the id of a table's newest erasure, or 0. Reads without locks."""
    return int(connection.execute(text(_LAST_ID), {"table": table_id}).scalar_one())


_LAST_ID = "SELECT coalesce(max(prism_erasure_id), 0) FROM prism_erasures WHERE prism_table_id = :table"


def _rule(row: Row[Any]) -> ErasureRule:
    documents = tuple(json.dumps(document, sort_keys=True) for document in row.columns)
    found = row._mapping["values"]  # a row has a method of that name
    return ErasureRule(
        erasure_id=row.prism_erasure_id,
        predicate=row.predicate,
        columns=documents,
        values=_values(found),
        secrets=tuple(row.secrets),
    )


def rule_of_document(document: Mapping[str, Any]) -> ErasureRule:
    """Parses the stored document of an announced erasure into its rule, which is not yet in force."""
    return ErasureRule(
        erasure_id=0,
        predicate=document["predicate"],
        columns=tuple(document["columns"]),
        values=_values(document["values"]),
        secrets=tuple(document["secrets"]),
    )


def _values(found: Sequence[tuple[int, Sequence[int | str]]]) -> tuple[ColumnValues, ...]:
    return tuple(ColumnValues(column_id=number, values=tuple(values)) for number, values in found)


def load_erasures(
    connection: Connection, table_ids: Collection[int] | None = None, *, open_only: bool = False
) -> list[Erasure]:
    """Returns erasures of tables, or of all, the oldest first. `open_only` leaves out proved ones.

    Reads without locks.
    """
    values = {"tables": None if table_ids is None else list(table_ids), "open": open_only}
    return [_erasure(row) for row in connection.execute(text(_ERASURES), values)]


_ERASURES = """
SELECT * FROM prism_erasures
WHERE (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
    AND (NOT :open OR state <> 'proved')
ORDER BY prism_erasure_id
"""


def load_join_rules(
    connection: Connection, records_id: int, changes_id: int
) -> tuple[tuple[ErasureRule, ...], frozenset[int]]:
    """Returns the unproved erasures of both tables of a join table, and the ids of those of the records table.

    An object of either table may hold rows of both. An erasure of records has a twin for the log of changes with the
    same rule and digest; only the erasure of records is returned. Reads without locks.
    """
    found = load_erasures(connection, [records_id, changes_id], open_only=True)
    own = [item for item in found if item.table_id == records_id]
    digests = {item.digest for item in own}
    others = [item for item in found if item.table_id == changes_id and item.digest not in digests]
    return tuple(item.rule for item in (*own, *others)), frozenset(item.erasure_id for item in own)


def _erasure(row: Row[Any]) -> Erasure:
    return Erasure(
        erasure_id=row.prism_erasure_id,
        table_id=row.prism_table_id,
        rule=_rule(row),
        digest=row.digest,
        after_batch_id=row.after_batch_id,
        state=ErasureState(row.state),
        create_time=row.create_time,
        rewritten_time=row.rewritten_time,
        published_time=row.published_time,
        proved_time=row.proved_time,
        look_time=row.look_time,
        objects_rewritten=row.objects_rewritten,
        rows_erased=row.rows_erased,
        lines_erased=row.lines_erased,
        lines_withheld=row.lines_withheld,
        proof=row.proof,
        last_error=row.last_error,
        open_rows=row.open_rows,
        open_objects=row.open_objects,
        open_time=row.open_time,
        open_partitions=tuple(row.open_partitions),
    )


def has_rule(connection: Connection, table_id: int, digest: str) -> bool:
    """Whether a table has a rule with this digest. Reads without locks."""
    found = connection.execute(text(_HAS_RULE), {"table": table_id, "digest": digest})
    return found.first() is not None


_HAS_RULE = "SELECT 1 FROM prism_erasures WHERE prism_table_id = :table AND digest = :digest"


def count_begun_before(connection: Connection, erasure: Erasure) -> int:
    """Counts objects begun before an erasure's rule that may still commit.

    The objects belong to the erasure's table or, for records, to their log of changes. Reads without locks. The number only falls: an object that restarts gets another first batch.
    """
    values = {"table": erasure.table_id, "batch": erasure.after_batch_id}
    return int(connection.execute(text(_BEGUN_BEFORE), values).scalar_one())


_BEGUN_BEFORE = """
SELECT count(*) FROM prism_tables t JOIN prism_staging_objects o USING (prism_table_id)
WHERE (t.prism_table_id = :table OR t.changes_of = :table) AND o.state IN ('pending', 'claimed')
    AND o.first_batch_id <= :batch
"""


def advance(connection: Connection, erasure: Erasure, state: ErasureState) -> None:
    """Moves an erasure to a later state and clears its last error. Locks its row."""
    connection.execute(text(_ADVANCE.format(time=_TIMES[state])), {"id": erasure.erasure_id, "state": state.value})


_TIMES = {ErasureState.PUBLISHING: "rewritten_time", ErasureState.WAITING: "published_time"}
_ADVANCE = """
UPDATE prism_erasures SET state = :state, {time} = clock_timestamp(), last_error = NULL, look_time = NULL,
    open_partitions = '{{}}'
WHERE prism_erasure_id = :id AND state <> 'proved'
"""


def search_again(connection: Connection, erasure: Erasure) -> None:
    """Restarts the search of an unproved erasure. Locks its row."""
    connection.execute(text(_SEARCH_AGAIN), {"id": erasure.erasure_id})


_SEARCH_AGAIN = """
UPDATE prism_erasures SET state = 'rewriting', rewritten_time = NULL, published_time = NULL
WHERE prism_erasure_id = :id AND state <> 'proved'
"""


def record_proof(connection: Connection, erasure: Erasure, proof: Mapping[str, Any]) -> None:
    """Ends an erasure with its proof. Locks its row."""
    connection.execute(text(_PROVE), {"id": erasure.erasure_id, "proof": json.dumps(proof)})


_PROVE = """
UPDATE prism_erasures SET state = 'proved', proved_time = clock_timestamp(), proof = CAST(:proof AS jsonb),
    last_error = NULL, look_time = clock_timestamp()
WHERE prism_erasure_id = :id AND state = 'waiting'
"""


def note_look(
    connection: Connection, erasure: Erasure, error: str | None, *, open_partitions: Collection[int] = ()
) -> None:
    """Records the obstacle of an erasure, or None, the time of the check, and the open days it waits for. Locks its row."""
    values = {"id": erasure.erasure_id, "error": error, "partitions": sorted(open_partitions)}
    connection.execute(text(_NOTE), values)


_NOTE = """
UPDATE prism_erasures SET last_error = :error, look_time = clock_timestamp(),
    open_partitions = CAST(:partitions AS bigint[])
WHERE prism_erasure_id = :id AND state <> 'proved'
"""


def count_rewritten(connection: Connection, erasure_id: int, objects: int, rows: int) -> None:
    """Adds to the totals of an erasure, in the transaction that replaces the objects. Locks its row."""
    connection.execute(text(_COUNT), {"id": erasure_id, "objects": objects, "rows": rows})


_COUNT = """
UPDATE prism_erasures SET objects_rewritten = objects_rewritten + :objects, rows_erased = rows_erased + :rows
WHERE prism_erasure_id = :id
"""


def record_open_days(connection: Connection, erasure_id: int, objects: int, rows: int) -> None:
    """Records the objects and rows found in open days, to be rewritten after their close. Locks the erasure's row."""
    connection.execute(text(_RECORD_OPEN_DAYS), {"id": erasure_id, "objects": objects, "rows": rows})


_RECORD_OPEN_DAYS = """
UPDATE prism_erasures SET open_objects = :objects, open_rows = :rows, open_time = clock_timestamp()
WHERE prism_erasure_id = :id
"""


@dataclass(frozen=True)
class OpenDay:
    """An open day with an object that may hold rows of an erasure."""

    partition_id: int
    date: date
    close_early: bool


def load_open_days(
    connection: Connection, table_id: int, *, counted_since: datetime | None = None
) -> dict[int, list[OpenDay]]:
    """Returns the open days that erasures of a table wait for, by erasure id.

    `counted_since` limits them to erasures whose rows in open days were counted since then. Objects not yet read may
    hold no such row.

    Reads without locks: few days are open, and their objects are found by index.
    """
    found: dict[int, list[OpenDay]] = {}
    for row in connection.execute(text(_OPEN_DAYS), {"table": table_id, "since": counted_since}):
        found.setdefault(row.erasure_id, []).append(OpenDay(row.partition_id, row.date, row.close_early))
    return found


_OPEN_DAYS = """
SELECT e.prism_erasure_id AS erasure_id, p.prism_partition_id AS partition_id, p.partition_date AS date, p.close_early
FROM prism_erasures e JOIN prism_partitions p USING (prism_table_id)
WHERE e.prism_table_id = :table AND e.state = 'rewriting' AND p.last_live_object_id IS NULL
    AND (CAST(:since AS timestamptz) IS NULL OR e.open_time >= CAST(:since AS timestamptz))
    AND EXISTS (SELECT 1 FROM prism_small_objects s
        WHERE s.prism_partition_id = p.prism_partition_id AND s.erasure_id < e.prism_erasure_id)
ORDER BY e.prism_erasure_id, p.partition_date
"""


@dataclass(frozen=True)
class ClosedDay:
    """A day that was open when an erasure last looked, and has closed since."""

    erasure_id: int
    table_id: int
    date: date


def load_closed_days(
    connection: Connection, erasure_ids: Collection[int], pause: timedelta, lease_seconds: float
) -> list[ClosedDay]:
    """The days that some erasures waited for, and that are closed now. Reads without locks.

    An erasure whose last look failed, less than `pause` ago, has none, and neither has one of a table whose erasures
    another call works on: a run could only leave them to this call.
    """
    rows = connection.execute(text(_CLOSED_DAYS), {"ids": list(erasure_ids), "pause": pause, "lease": lease_seconds})
    return [ClosedDay(row.prism_erasure_id, row.prism_table_id, row.partition_date) for row in rows]


_CLOSED_DAYS = """
SELECT e.prism_erasure_id, e.prism_table_id, p.partition_date
FROM prism_erasures e JOIN prism_partitions p ON p.prism_partition_id = ANY(e.open_partitions)
WHERE e.prism_erasure_id = ANY(:ids) AND e.state = 'rewriting'
    AND p.last_live_object_id IS NOT NULL AND p.expire_time IS NULL
    AND (e.last_error IS NULL OR e.look_time < clock_timestamp() - CAST(:pause AS interval))
    AND NOT EXISTS (SELECT 1 FROM prism_leases l WHERE l.kind = 'erase' AND l.subject_id = e.prism_table_id
        AND l.heartbeat_time >= clock_timestamp() - make_interval(secs => :lease))
ORDER BY e.prism_erasure_id, p.partition_date
"""


def add_sources(connection: Connection, found: Collection[tuple[int, int, bool]]) -> None:
    """Records staging objects with rows of erasures, as (erasure id, staging object id, whether this is certain).

    Locks known records, in the order of both ids.
    """
    if not found:
        return
    rows = sorted(set(found))
    values = {name: [row[place] for row in rows] for place, name in enumerate(("erasures", "objects", "certain"))}
    connection.execute(text(_ADD_SOURCES), values)


_ADD_SOURCES = """
INSERT INTO prism_erasure_sources AS known (prism_erasure_id, prism_staging_object_id, certain)
SELECT * FROM unnest(CAST(:erasures AS bigint[]), CAST(:objects AS bigint[]), CAST(:certain AS boolean[]))
ON CONFLICT (prism_erasure_id, prism_staging_object_id) DO UPDATE SET certain = true
    WHERE excluded.certain AND NOT known.certain
"""


def add_possible_sources(connection: Connection, erasure_id: int, partition_id: int, range_: MergedRange) -> None:
    """Records the staging objects behind a merged object with rows of an erasure.

    At least one of them holds these rows. Locks no row.
    """
    values = {"id": erasure_id, "partition": partition_id, "lower": range_.lower_bound, "upper": range_.upper_bound}
    connection.execute(text(_ADD_POSSIBLE), values)


_ADD_POSSIBLE = """
INSERT INTO prism_erasure_sources (prism_erasure_id, prism_staging_object_id, certain)
SELECT DISTINCT :id, prism_staging_object_id, false FROM prism_small_objects
WHERE prism_partition_id = :partition AND prism_small_object_id > :lower AND prism_small_object_id <= :upper
ON CONFLICT DO NOTHING
"""


def is_known(connection: Connection, erasure_id: int) -> bool:
    """Whether an erasure with this id exists. Reads without locks."""
    found = connection.execute(text("SELECT 1 FROM prism_erasures WHERE prism_erasure_id = :id"), {"id": erasure_id})
    return found.first() is not None


def load_sources(connection: Connection, erasure_id: int) -> list[tuple[str, bool]]:
    """Returns the URLs of staging objects that hold rows of an erasure, or may. Certain ones come first. No locks."""
    rows = connection.execute(text(_SOURCES), {"id": erasure_id})
    return [(f"s3://{row.bucket_name}/{row.object_key}", row.certain) for row in rows]


_SOURCES = """
SELECT o.bucket_name, o.object_key, e.certain
FROM prism_erasure_sources e JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE e.prism_erasure_id = :id ORDER BY e.certain DESC, o.prism_staging_object_id
"""


def load_rewritten_time(connection: Connection, table_id: int) -> datetime | None:
    """Returns when the last unproved erasure of a table had rewritten all objects, or None without such an erasure.

    Earlier listings may contain its rows. Reads without locks.
    """
    found: datetime | None = connection.execute(text(_REWRITTEN), {"table": table_id}).scalar_one()
    return found


_REWRITTEN = """
SELECT max(rewritten_time) FROM prism_erasures WHERE prism_table_id = :table AND state <> 'proved'
"""


def count_records_behind(connection: Connection, erasure: Erasure) -> int:
    """Counts publications of records that show an object replaced before the erasure had rewritten all objects.

    Publications of records are numbered by folds, so `count_behind` cannot judge them. Reads without locks, by the
    index of a day's objects.
    """
    values = {"table": erasure.table_id, "time": erasure.rewritten_time}
    return int(connection.execute(text(_RECORDS_BEHIND), values).scalar_one())


_RECORDS_BEHIND = """
SELECT count(*) FROM prism_partitions p JOIN prism_publications q USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND q.version >= 0 AND EXISTS (
    SELECT 1 FROM prism_record_objects x JOIN prism_rewrites g ON g.prism_rewrite_id = x.replaced_by
    WHERE x.prism_partition_id = p.prism_partition_id AND x.part = 'visible' AND x.fold_id <= q.version
        AND x.replaced_by > q.version AND g.finish_time <= :time)
"""


def count_behind(connection: Connection, table_id: int) -> int:
    """Counts publications of a table that name objects older than the last rewrite of their day.

    Reads without locks.
    """
    return int(connection.execute(text(_BEHIND), {"table": table_id}).scalar_one())


_BEHIND = """
SELECT count(*) FROM prism_partitions p JOIN prism_publications q USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND q.version >= 0 AND q.revision < p.revision
    AND (q.publisher = 'iceberg' OR p.last_live_object_id IS NOT NULL)
"""

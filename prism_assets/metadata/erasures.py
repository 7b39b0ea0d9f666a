"""Statements on prism_erasures, and on what objects are known to hold no row of them.

A rule is made under the exclusive epoch lock: what batches begin later respects it, and what was begun before is told
by the ids of these.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from prism_assets.domain.erasures import ColumnValues, Erasure, ErasureRule, ErasureState
from prism_assets.domain.files import DataFile, MergedRange, SmallObject
from prism_assets.domain.keys import TableKeys
from prism_assets.domain.work.erase import CleanResult
from prism_assets.metadata.column_metrics import to_jsonb
from prism_assets.metadata.small_objects import SMALL_OBJECTS, small_object_of


def insert_erasure(connection: Connection, table_id: int, rule: ErasureRule, digest: str) -> int | None:
    """Makes a rule; its id, or None if the table has the same one already. The caller holds the epoch lock."""
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
    """All rules of some tables, by table id, the oldest first. Reads without locks: see above."""
    found: dict[int, list[ErasureRule]] = {}
    for row in connection.execute(text(_RULES), {"tables": list(table_ids)}):
        found.setdefault(row.prism_table_id, []).append(_rule(row))
    return {table_id: tuple(rules) for table_id, rules in found.items()}


_RULES = """
SELECT prism_erasure_id, prism_table_id, predicate, columns, "values", secrets FROM prism_erasures
WHERE prism_table_id = ANY(:tables) ORDER BY prism_erasure_id
"""


def _rule(row: Row[Any]) -> ErasureRule:
    documents = tuple(json.dumps(document, sort_keys=True) for document in row.columns)
    found = row._mapping["values"]  # a row has a method of that name
    return ErasureRule(
        erasure_id=row.prism_erasure_id,
        predicate=row.predicate,
        columns=documents,
        values=tuple(ColumnValues(column_id=number, values=tuple(values)) for number, values in found),
        secrets=tuple(row.secrets),
    )


def load_erasures(
    connection: Connection, table_ids: Collection[int] | None = None, *, open_only: bool = False
) -> list[Erasure]:
    """Erasures of some tables, or of all, the oldest first; with `open_only` those that are not proved. No locks."""
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
    """The erasures that are not proved of both tables of a join table: an object of either may hold what they match.

    One of records has a twin of changes, with the same rule and digest; of such the first is taken, that of records.
    The ids of those of records come along. Reads without locks.
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
    )


def count_begun_before(connection: Connection, erasure: Erasure) -> int:
    """How many objects of its table, or of the changes of its records, were begun before its rule and may still commit.

    Reads without locks: they only become fewer, as one that begins anew has another first batch.
    """
    values = {"table": erasure.table_id, "batch": erasure.after_batch_id}
    return int(connection.execute(text(_BEGUN_BEFORE), values).scalar_one())


_BEGUN_BEFORE = """
SELECT count(*) FROM prism_tables t JOIN prism_staging_objects o USING (prism_table_id)
WHERE (t.prism_table_id = :table OR t.changes_of = :table) AND o.state IN ('pending', 'claimed')
    AND o.first_batch_id <= :batch
"""


def advance(connection: Connection, erasure: Erasure, state: ErasureState) -> None:
    """Moves an erasure on, upwards only, and forgets its last error. Locks its row."""
    connection.execute(text(_ADVANCE.format(time=_TIMES[state])), {"id": erasure.erasure_id, "state": state.value})


_TIMES = {ErasureState.PUBLISHING: "rewritten_time", ErasureState.WAITING: "published_time"}
_ADVANCE = """
UPDATE prism_erasures SET state = :state, {time} = clock_timestamp(), last_error = NULL, look_time = NULL
WHERE prism_erasure_id = :id AND state <> 'proved'
"""


def record_proof(connection: Connection, erasure: Erasure, proof: Mapping[str, Any]) -> None:
    """Ends an erasure. Locks its row."""
    connection.execute(text(_PROVE), {"id": erasure.erasure_id, "proof": json.dumps(proof)})


_PROVE = """
UPDATE prism_erasures SET state = 'proved', proved_time = clock_timestamp(), proof = CAST(:proof AS jsonb),
    last_error = NULL, look_time = clock_timestamp()
WHERE prism_erasure_id = :id AND state = 'waiting'
"""


def note_error(connection: Connection, erasure: Erasure, error: str | None) -> None:
    """Notes what keeps an erasure from going on, and when that was looked at. Locks its row."""
    connection.execute(text(_NOTE), {"id": erasure.erasure_id, "error": error})


_NOTE = """
UPDATE prism_erasures SET last_error = :error, look_time = clock_timestamp()
WHERE prism_erasure_id = :id AND state <> 'proved'
"""


def count_rewritten(connection: Connection, erasure_id: int, objects: int, rows: int) -> None:
    """Adds to what an erasure has done, in the transaction that does it. Locks its row."""
    connection.execute(text(_COUNT), {"id": erasure_id, "objects": objects, "rows": rows})


_COUNT = """
UPDATE prism_erasures SET objects_rewritten = objects_rewritten + :objects, rows_erased = rows_erased + :rows
WHERE prism_erasure_id = :id
"""


def add_sources(connection: Connection, erasure_id: int, staging_object_ids: Collection[int]) -> None:
    """Notes staging objects that hold rows of an erasure for certain."""
    if staging_object_ids:
        connection.execute(text(_ADD_SOURCES), {"id": erasure_id, "ids": sorted(set(staging_object_ids))})


_ADD_SOURCES = """
INSERT INTO prism_erasure_sources (prism_erasure_id, prism_staging_object_id, certain)
SELECT :id, s, true FROM unnest(CAST(:ids AS bigint[])) AS f (s)
ON CONFLICT (prism_erasure_id, prism_staging_object_id) DO UPDATE SET certain = true
"""


def add_possible_sources(connection: Connection, erasure_id: int, partition_id: int, range_: MergedRange) -> None:
    """Notes the staging objects that a merged object with rows of an erasure was made of: some of them hold these."""
    values = {"id": erasure_id, "partition": partition_id, "lower": range_.lower_bound, "upper": range_.upper_bound}
    connection.execute(text(_ADD_POSSIBLE), values)


_ADD_POSSIBLE = """
INSERT INTO prism_erasure_sources (prism_erasure_id, prism_staging_object_id, certain)
SELECT DISTINCT :id, prism_staging_object_id, false FROM prism_small_objects
WHERE prism_partition_id = :partition AND prism_small_object_id > :lower AND prism_small_object_id <= :upper
ON CONFLICT DO NOTHING
"""


def is_known(connection: Connection, erasure_id: int) -> bool:
    """Whether there is, or was, an erasure of this id. No locks."""
    found = connection.execute(text("SELECT 1 FROM prism_erasures WHERE prism_erasure_id = :id"), {"id": erasure_id})
    return found.first() is not None


def load_sources(connection: Connection, erasure_id: int) -> list[tuple[str, bool]]:
    """The addresses of staging objects that hold rows of an erasure, or may, the certain ones first. No locks."""
    rows = connection.execute(text(_SOURCES), {"id": erasure_id})
    return [(f"s3://{row.bucket_name}/{row.object_key}", row.certain) for row in rows]


_SOURCES = """
SELECT o.bucket_name, o.object_key, e.certain
FROM prism_erasure_sources e JOIN prism_staging_objects o USING (prism_staging_object_id)
WHERE e.prism_erasure_id = :id ORDER BY e.certain DESC, o.prism_staging_object_id
"""


def replace_small_object(connection: Connection, before: SmallObject, after: DataFile, erasure_id: int) -> bool:
    """Records the object that a small one was rewritten to; False if it is not the one that was read any more.

    Its definition stays that under which its rows were made. The caller holds the partition's row, which publishing and
    merging take to read what there is.
    """
    values = {**_rewritten(after), "id": before.object_id, "before": before.revision, "said": before.fingerprint}
    told = {"erasure": erasure_id, "revision": _revision_of(after)}
    return bool(connection.execute(text(_REPLACE_SMALL), {**values, **told}).rowcount)


_REPLACE_SMALL = """
UPDATE prism_small_objects SET revision = :revision, content_length = :content_length, row_count = :row_count,
    fingerprint = :fingerprint, file_format = :file_format, metrics = CAST(:metrics AS jsonb),
    rows_erased = :rows_erased, erased_fingerprint = :erased_fingerprint, erasure_id = :erasure
WHERE prism_small_object_id = :id AND revision = :before AND fingerprint = :said
"""


def replace_range(
    connection: Connection,
    partition_id: int,
    before: MergedRange,
    after: DataFile,
    erasure_id: int,
    definition_version: int,
) -> bool:
    """Records the object that a merged one was rewritten to; False if its range was extended or rewritten meanwhile.

    It is left also where a merge wrote it under a later definition. The caller holds the partition's row.
    """
    values = {**_rewritten(after), "partition": partition_id, "lower": before.lower_bound, "upper": before.upper_bound}
    told = {"before": before.revision, "said": before.fingerprint, "erasure": erasure_id, "version": definition_version}
    told["revision"] = _revision_of(after)
    return bool(connection.execute(text(_REPLACE_RANGE), {**values, **told}).rowcount)


_REPLACE_RANGE = """
UPDATE prism_merge_ranges SET revision = :revision, content_length = :content_length, row_count = :row_count,
    fingerprint = :fingerprint, file_format = :file_format, metrics = CAST(:metrics AS jsonb),
    rows_erased = :rows_erased, erased_fingerprint = :erased_fingerprint, erasure_id = :erasure,
    definition_version = :version, update_time = clock_timestamp()
WHERE prism_partition_id = :partition AND lower_bound = :lower AND upper_bound = :upper AND revision = :before
    AND fingerprint = :said AND definition_version <= :version
"""


def _rewritten(after: DataFile) -> dict[str, object]:
    names = (
        "content_length", "row_count", "fingerprint", "file_format", "rows_erased", "erased_fingerprint",
    )  # fmt: skip
    return {**{name: getattr(after, name) for name in names}, "metrics": to_jsonb(after.metrics)}


def _revision_of(after: DataFile) -> int:
    """That of its key."""
    assert isinstance(after, SmallObject | MergedRange)
    return after.revision


def mark_clean(
    connection: Connection,
    partition_id: int,
    erasure_id: int,
    small: Sequence[SmallObject],
    ranges: Sequence[MergedRange],
) -> None:
    """Records of objects that were looked through that they hold no row of an erasure. Locks their rows.

    Objects never change under a revision, so they are the ones that were read.
    """
    values = {
        "erasure": erasure_id,
        "ids": [item.object_id for item in small],
        "revisions": [item.revision for item in small],
    }
    connection.execute(text(_CLEAN_SMALL), values)
    values = {
        "erasure": erasure_id,
        "partition": partition_id,
        "lowers": [item.lower_bound for item in ranges],
        "uppers": [item.upper_bound for item in ranges],
        "revisions": [item.revision for item in ranges],
    }
    connection.execute(text(_CLEAN_RANGES), values)


_CLEAN_SMALL = """
UPDATE prism_small_objects s SET erasure_id = :erasure
FROM unnest(CAST(:ids AS bigint[]), CAST(:revisions AS integer[])) AS f (id, revision)
WHERE s.prism_small_object_id = f.id AND s.revision = f.revision AND s.erasure_id < :erasure
"""
_CLEAN_RANGES = """
UPDATE prism_merge_ranges r SET erasure_id = :erasure
FROM unnest(CAST(:lowers AS bigint[]), CAST(:uppers AS bigint[]), CAST(:revisions AS integer[]))
    AS f (lower, upper, revision)
WHERE r.prism_partition_id = :partition AND r.lower_bound = f.lower AND r.upper_bound = f.upper
    AND r.revision = f.revision AND r.erasure_id < :erasure
"""


def last_rebuilds(connection: Connection, partition_ids: Collection[int]) -> dict[int, int]:
    """The highest number that a rebuild of partitions has, whatever became of it, or whatever else took one. No locks."""
    rows = connection.execute(text(_LAST_REBUILDS), {"ids": list(partition_ids)})
    return {row.prism_partition_id: row.generation for row in rows}


_LAST_REBUILDS = """
SELECT p.prism_partition_id, greatest(p.rebuild, (SELECT max(r.generation) FROM prism_rebuilds r
    WHERE r.prism_partition_id = p.prism_partition_id)) AS generation
FROM prism_partitions p WHERE p.prism_partition_id = ANY(:ids)
"""


def load_uncopied(connection: Connection, table_id: int) -> list[tuple[int, int]]:
    """(partition id, small object id) of the rewritten objects of open days that readers of the live prefix lack.

    Not those whose old key an Iceberg table still lists: its readers would find another length there. Reads without
    locks; few days of a table are open.
    """
    rows = connection.execute(text(_UNCOPIED), {"table": table_id})
    return [(row.prism_partition_id, row.prism_small_object_id) for row in rows]


_UNCOPIED = """
SELECT s.prism_partition_id, s.prism_small_object_id FROM prism_partitions p JOIN prism_small_objects s USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.last_live_object_id IS NULL AND NOT s.delayed AND s.live_revision < s.revision
    AND NOT EXISTS (SELECT 1 FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id
        AND q.publisher = 'iceberg' AND q.version >= 0 AND q.revision < p.revision)
ORDER BY 1, 2
"""


def is_uncopied(connection: Connection, object_id: int, revision: int) -> bool:
    """Whether a rewritten object is still the one that is recorded, and not under its live key. Reads without locks."""
    return bool(connection.execute(text(_IS_UNCOPIED), {"id": object_id, "revision": revision}).scalar_one_or_none())


_IS_UNCOPIED = """
SELECT live_revision < revision FROM prism_small_objects WHERE prism_small_object_id = :id AND revision = :revision
"""


def record_copy(connection: Connection, object_id: int, revision: int) -> None:
    """Records that a rewritten object lies under its live key, too. Locks its row."""
    connection.execute(text(_RECORD_COPY), {"id": object_id, "revision": revision})


_RECORD_COPY = """
UPDATE prism_small_objects SET live_revision = :revision
WHERE prism_small_object_id = :id AND revision = :revision AND live_revision < :revision
"""


def load_copied(connection: Connection, keys: TableKeys, partition_id: int) -> list[SmallObject]:
    """The rewritten objects of an open day that lie under their live keys, too; none of other days. Without locks."""
    rows = connection.execute(text(_COPIED), {"partition": partition_id})
    return [small_object_of(row._mapping, keys) for row in rows]


_COPIED = f"""
{SMALL_OBJECTS}
WHERE s.prism_partition_id = :partition AND p.last_live_object_id IS NULL AND NOT s.delayed AND s.revision > 0
    AND s.live_revision = s.revision
ORDER BY s.prism_small_object_id
"""


def is_copied(connection: Connection, object_id: int, revision: int) -> bool:
    """Whether a rewritten object is still the one that is recorded, and under its live key. Reads without locks."""
    return bool(connection.execute(text(_IS_COPIED), {"id": object_id, "revision": revision}).scalar_one_or_none())


_IS_COPIED = """
SELECT live_revision = revision FROM prism_small_objects WHERE prism_small_object_id = :id AND revision = :revision
"""


def load_unclean_quarantine(connection: Connection, table_id: int, erasure_id: int) -> dict[int, str]:
    """The keys of quarantined lines that were not searched for an erasure, by staging object id. Without locks."""
    rows = connection.execute(text(_UNCLEAN), {"table": table_id, "erasure": erasure_id})
    return {row.id: row.object_key for row in rows}


_UNCLEAN = """
SELECT DISTINCT q.prism_staging_object_id AS id, q.object_key
FROM prism_staging_objects o JOIN prism_quarantine q USING (prism_staging_object_id)
WHERE o.prism_table_id = :table AND o.rows_quarantined > 0 AND q.object_key IS NOT NULL AND q.erasure_id < :erasure
"""


def record_cleaning(connection: Connection, erasure_id: int, key: str, result: CleanResult) -> bool:
    """Records what is left of the quarantined lines of a staging object; False if they are others by now.

    Locks the rows. The ledger of the object has the lines that went as erased ones.
    """
    values = {
        "erasure": erasure_id,
        "id": result.staging_object_id,
        "before": key,
        "after": result.key if result.changed else key,
        "reasons": [count.reason for count in result.left],
        "lines": [count.line_count for count in result.left],
        "erased": result.erased,
        "withheld": result.withheld,
        "left": sum(count.line_count for count in result.left),
    }
    if not connection.execute(text(_LOCK_QUARANTINE), values).all():
        return False
    connection.execute(text(_RECORD_CLEANING), values)
    if result.erased:
        connection.execute(text(_LEDGER), values)
    if result.changed:
        connection.execute(text(_COUNT_LINES), values)
    return True


_LOCK_QUARANTINE = """
SELECT 1 FROM prism_quarantine WHERE prism_staging_object_id = :id AND object_key = :before FOR UPDATE
"""
_RECORD_CLEANING = """
UPDATE prism_quarantine q SET object_key = :after, erasure_id = :erasure,
    line_count = coalesce((SELECT f.lines FROM unnest(CAST(:reasons AS text[]), CAST(:lines AS bigint[]))
        AS f (reason, lines) WHERE f.reason = q.reason), 0)
WHERE prism_staging_object_id = :id AND object_key = :before
"""
_LEDGER = """
UPDATE prism_staging_objects SET rows_quarantined = :left, rows_erased = rows_erased + :erased
WHERE prism_staging_object_id = :id
"""
_COUNT_LINES = """
UPDATE prism_erasures SET lines_erased = lines_erased + :erased, lines_withheld = lines_withheld + :withheld
WHERE prism_erasure_id = :erasure
"""


def load_rewritten_time(connection: Connection, table_id: int) -> datetime | None:
    """When the last erasure of a table that is not proved had rewritten everything; None if there is none such.

    What was listed before may hold rows of it. Reads without locks.
    """
    found: datetime | None = connection.execute(text(_REWRITTEN), {"table": table_id}).scalar_one()
    return found


_REWRITTEN = """
SELECT max(rewritten_time) FROM prism_erasures WHERE prism_table_id = :table AND state <> 'proved'
"""


def count_records_behind(connection: Connection, erasure: Erasure) -> int:
    """The same for the records of a join table, whose publications are of the fold that wrote last. Reads without locks.

    Behind is who shows an object that was replaced by when all was rewritten. By the index of the objects of a day.
    """
    values = {"table": erasure.table_id, "time": erasure.rewritten_time}
    return int(connection.execute(text(_RECORDS_BEHIND), values).scalar_one())


_RECORDS_BEHIND = """
SELECT count(*) FROM prism_partitions p JOIN prism_publications q USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND q.version >= 0 AND EXISTS (
    SELECT 1 FROM prism_record_objects x JOIN prism_folds g ON g.prism_fold_id = x.replaced_by
    WHERE x.prism_partition_id = p.prism_partition_id AND x.part = 'visible' AND x.fold_id <= q.version
        AND x.replaced_by > q.version AND g.finish_time <= :time)
"""


def count_behind(connection: Connection, table_id: int) -> int:
    """How many publications of a table send readers to objects older than a rewriting. Reads without locks.

    Readers of an open day list it, and its objects were put in place; Iceberg lists such days, too.
    """
    return int(connection.execute(text(_BEHIND), {"table": table_id}).scalar_one())


_BEHIND = """
SELECT count(*) FROM prism_partitions p JOIN prism_publications q USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.expire_time IS NULL AND q.version >= 0 AND q.revision < p.revision
    AND (q.publisher = 'iceberg' OR p.last_live_object_id IS NOT NULL)
"""

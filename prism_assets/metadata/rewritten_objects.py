"""Statements on what erasures rewrote: objects, their copies for readers of open days, and quarantined lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, text

from prism_assets.domain.files import DataFile, MergedRange, SmallObject
from prism_assets.domain.keys import TableKeys
from prism_assets.domain.work.erase import CleanResult
from prism_assets.metadata.column_metrics import to_jsonb
from prism_assets.metadata.small_objects import SMALL_OBJECTS, small_object_of


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


_LACKED = """
FROM prism_partitions p JOIN prism_small_objects s USING (prism_partition_id)
WHERE p.prism_table_id = :table AND p.last_live_object_id IS NULL AND NOT s.delayed AND s.live_revision < s.revision
"""
_COUNT_UNCOPIED = f"SELECT count(*) {_LACKED}"
_UNCOPIED = f"""
SELECT s.prism_partition_id, s.prism_small_object_id {_LACKED}
    AND NOT EXISTS (SELECT 1 FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id
        AND q.publisher = 'iceberg' AND q.version >= 0 AND q.revision < p.revision)
ORDER BY 1, 2
"""


def count_uncopied(connection: Connection, table_id: int) -> int:
    """How many rewritten objects of open days readers of the live prefix lack, also those that wait for Iceberg."""
    return int(connection.execute(text(_COUNT_UNCOPIED), {"table": table_id}).scalar_one())


def live_revision(connection: Connection, object_id: int, revision: int) -> int | None:
    """The revision of an object that lies under its live key; None if it was rewritten since. Reads without locks."""
    found: int | None = connection.execute(
        text(_LIVE_REVISION), {"id": object_id, "revision": revision}
    ).scalar_one_or_none()
    return found


_LIVE_REVISION = """
SELECT live_revision FROM prism_small_objects WHERE prism_small_object_id = :id AND revision = :revision
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

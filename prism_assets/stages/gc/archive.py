"""Moves old rows from PostgreSQL to the lake in parts: writes, then deletes. Under the lease of garbage collection.

Only unused rows move: those of objects whose days all are old, and the log of merges. An old day expired long ago and
left nothing in the lake; or it was merged long ago, and the small objects themselves have left the lake. A staging
object still in its bucket keeps its rows: a rebuild can read it. A death between writing and deleting leaves rows in
both places; the next run writes them again, perhaps to another object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import date, datetime

from prism_assets.domain.errors import MissingBucket, ObjectMissing
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.work.archive import ArchiveTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.files import archive
from prism_assets.metadata.files.archive import OldDay, OldObject, RowsToArchive
from prism_assets.metadata.leases import Lease
from prism_assets.stages.bisect import error_of, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.gc.report import Archived

_THREADS = 16
_PART = 100
"""Objects requested between two checks of their buckets."""
_ENOUGH_THERE = 10
"""After this many existing staging objects of a day the others are not requested: most will exist."""
_MOST_OBJECTS = 5_000_000
"""Objects after which a run stops, about those of two days, so that a night does not become a week of requests."""
_MOST_DAYS_IN_VAIN = 5
"""After this many days in a row without a row to move, the run stops."""


def find_old_days(
    context: StageContext,
    table: TableDefinition,
    *,
    expired_before: datetime,
    merged_before: datetime,
    days_in_lake: Collection[date],
) -> list[OldDay]:
    """Returns old days with rows to archive, without expired days that have an object in the lake."""
    with context.database.begin() as connection:
        found = archive.load_old_days(
            connection, table.table_id, expired_before=expired_before, merged_before=merged_before
        )
    return [day for day in found if not day.is_expired or day.date not in days_in_lake]


def archive_old_rows(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    days: Sequence[OldDay],
    sources_in_lake: Collection[int],
    before: datetime,
) -> Archived:
    """Archives the log of merges before an instant, and rows of old days. Leaves out the objects of `sources_in_lake`.

    Deletes the digests of keys whose days have expired before the instant, too. Each night begins with other days,
    because some days may never have a row to move.
    """
    merges = _archive_merges(context, table, lease, before)
    _forget_keys(context, table, lease, before)
    ids = [day.partition_id for day in days]
    objects = in_vain = 0
    first = before.toordinal() * _MOST_DAYS_IN_VAIN % len(days) if days else 0
    for day in (*days[first:], *days[:first]):
        archived = _archive_day(context, table, lease, day, ids, sources_in_lake, _MOST_OBJECTS - objects)
        objects += archived
        in_vain = 0 if archived else in_vain + 1
        if in_vain == _MOST_DAYS_IN_VAIN or objects >= _MOST_OBJECTS:
            break
    return Archived(objects=objects, merges=merges)


def _archive_day(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    day: OldDay,
    days: Collection[int],
    sources_in_lake: Collection[int],
    most: int,
) -> int:
    """Archives the rows of a day's objects that no longer exist in their buckets, about `most`. Returns how many."""
    archived = 0
    for gone in _gone_objects(context, day, days, sources_in_lake):
        with context.database.begin() as connection:
            rows = archive.load_rows(connection, gone)
        _write(context, table, rows)
        failpoint("gc.after_archive")
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            archived += archive.forget_objects(connection, gone, days)
            failpoint("gc.in_forget_objects")
        failpoint("gc.after_forget_objects")
        if archived >= most:
            break
    return archived


def _gone_objects(
    context: StageContext, day: OldDay, days: Collection[int], sources_in_lake: Collection[int]
) -> Iterator[list[int]]:
    """Yields the ids of a day's old staging objects without an object in their bucket, page by page."""
    above = there = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        while there < _ENOUGH_THERE:
            with context.database.begin() as connection:
                page = archive.find_old_objects(connection, day.partition_id, days, above)
            if page is None:
                return
            above = page.last
            gone: list[int] = []
            objects = [item for item in page.objects if item.staging_object_id not in sources_in_lake]
            for start in range(0, len(objects), _PART):
                part = objects[start : start + _PART]
                found = _lie_there(context, pool, part)
                gone += [item.staging_object_id for item, lies in zip(part, found, strict=True) if not lies]
                there += sum(found)
                if there >= _ENOUGH_THERE:
                    break
            if gone:
                yield gone


def _lie_there(context: StageContext, pool: Executor, items: Sequence[OldObject]) -> list[bool]:
    """Returns which objects exist. Objects of a missing bucket count as existing, because it may come back with them.

    A store reports only a missing object, even if the whole bucket is missing.
    """

    def lies(item: OldObject) -> bool:
        try:
            context.stores.head(item.bucket, item.key)
        except (ObjectMissing, MissingBucket):
            return False
        return True

    buckets = {item.bucket for item in items}
    away = _away(context, buckets)
    found = list(pool.map(lies, items))
    away |= _away(context, buckets)
    return [there or item.bucket in away for item, there in zip(items, found, strict=True)]


def _away(context: StageContext, buckets: Collection[str]) -> set[str]:
    found = set()
    for bucket in buckets:
        try:
            context.stores.check_bucket(bucket)
        except MissingBucket:
            found.add(bucket)
    return found


def _archive_merges(context: StageContext, table: TableDefinition, lease: Lease, before: datetime) -> int:
    archived = 0
    while True:
        with context.database.begin() as connection:
            ids = archive.find_old_merges(connection, table.table_id, before)
            rows = [archive.load_merges(connection, ids)] if ids else []
        if not rows:
            return archived
        _write(context, table, rows)
        failpoint("gc.after_archive_merges")
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            archived += archive.forget_merges(connection, ids)
        failpoint("gc.after_forget_merges")


def _forget_keys(context: StageContext, table: TableDefinition, lease: Lease, before: datetime) -> None:
    """Deletes digests in parts. After a death the next run goes on."""
    more = True
    while more:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            more = archive.forget_keys(connection, table.table_id, before) > 0
        failpoint("gc.after_forget_keys")


def _write(context: StageContext, table: TableDefinition, found: Sequence[RowsToArchive]) -> None:
    """Writes rows to the lake, one object per kind. Raises if one cannot be written."""
    keys = context.lake.keys(table)
    tasks = [
        ArchiveTask(
            key=keys.archived_rows(rows.kind, rows.ids),
            columns=rows.columns,
            rows=rows.rows,
            table_id=table.table_id,
            definition_version=table.version,
        )
        for rows in found
    ]
    failures = [done.failure for done in run_bisected(context.engine, tasks, by_version(table)) if done.failure]
    if failures:
        raise error_of(failures, f"rows of {table.name} could not be archived: {failures[0].message}")

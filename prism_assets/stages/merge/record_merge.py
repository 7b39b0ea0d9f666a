"""Merges settled records of join tables: many objects of a day, of all buckets and quarter-hours, to few even ones.

A merge holds the lease of folds. Its number from prism_rewrites stands in its keys and becomes the version of the
changed day. Versions only rise, so numbers must commit in the order in which they are given, and no fold may run at the
same time. Merges replace only settled objects, and folds never read these again. No row moves between days, so catalogs
may show the changed days in any order.

A dead merge leaves objects under keys that no other merge writes, and garbage collection removes them. Nothing else
changes, and the next merge plans again. Replaced objects are collected after the reader lease, as after a fold.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.folding import RecordObject, RecordPart
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.text import counted
from prism_assets.domain.work.write import WriteResult
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.records import record_faults, record_objects
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.bisect import run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.leases import leased
from prism_assets.stages.merge.record_merge_plan import RecordMergeDay, has_settled, plan_days, record_merge_tasks
from prism_assets.stages.merge.report import MergedPartition, MergeReport
from prism_assets.stages.rewrite.begin import begin_record_rewrite
from prism_assets.stages.rewrite.numbers import run_under_free_number


def merge_records(
    context: StageContext,
    *,
    names: Collection[str] | None = None,
    day: datetime.date | None = None,
    wait_seconds: float = 0.0,
    retry: bool = False,
) -> Iterator[MergeReport]:
    """Merges settled records of the named join tables, or of all. Yields a report after each merge.

    A failing day or table stops no other. Merges go on without unreadable objects until a call with `retry`. A table
    held by a fold is waited for, for `wait_seconds`, and then left for the next run. Folds may run between two merges.
    A repetition changes nothing more.
    """
    sound, held = without_held(context, [table for table in context.choose_tables(names) if table.join is not None])
    if held:
        yield MergeReport(record_problems=held)
    for table in sound:
        if has_settled(table):
            if retry:
                with context.database.begin() as connection:
                    record_faults.retry_settled(connection, table.table_id)
            yield from _merge_table(context, table, day, wait_seconds)


def _merge_table(
    context: StageContext, table: TableDefinition, day: datetime.date | None, wait_seconds: float
) -> Iterator[MergeReport]:
    failed = set[datetime.date]()
    while True:
        try:
            with context.database.begin() as connection:
                if _next(plan_days(connection, table.table_id, context.lake, day), failed) is None:
                    return
            with leased(context, LeaseKind.FOLD, [table.table_id], wait_seconds) as held:
                if not held:
                    context.progress(
                        f"merge: a fold is working on {table.name}; the next run merges its settled records"
                    )
                    return
                done = _merge_next(context, held[table.table_id], day, failed)
        except PrismError as error:
            yield MergeReport(record_problems=(Problem.of(error, str(table.name)),))
            return
        if done is None:
            return
        failed |= {problem.date for problem in done.record_problems if problem.date}
        yield done


def _next(planned: Iterable[RecordMergeDay], failed: Collection[datetime.date]) -> RecordMergeDay | None:
    return next((item for item in planned if item.plan.is_due and item.date not in failed), None)


def _merge_next(
    context: StageContext, lease: Lease, day: datetime.date | None, left: Collection[datetime.date]
) -> MergeReport | None:
    """Merges the first due day. Returns None if nothing is due.

    A death after the first transaction leaves a running rewrite, and the next merge drops it.
    """
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        chosen = _next(plan_days(connection, lease.subject_id, context.lake, day), left)
        if chosen is None:
            return None
        table = chosen.table
        begin = partial(begin_record_rewrite, context, lease=lease, table=table, kind=RewriteKind.MERGE_RECORDS)
        merge_id = begin(connection)
        failpoint("merge.in_begin_records")
    failpoint("merge.after_begin_records")

    def run(number: int) -> list[WriteResult]:
        return list(run_bisected(context.engine, record_merge_tasks(chosen, number, context.lake), by_version(table)))

    merge_id, results = run_under_free_number(context, table, merge_id, run, begin)
    failpoint("merge.after_execute_records")
    failed = [result for result in results if result.failure]
    written = _commit(context, lease, chosen, merge_id, results)
    failpoint("merge.after_commit_records")
    merged = (_merged(chosen, written),) if written or chosen.plan.kept else ()
    return MergeReport(
        jobs=len(merged),
        merged=merged,
        record_problems=tuple(_problem(chosen, result) for result in failed if not result.unread),
        record_faults=tuple(_problem(chosen, result) for result in failed if result.unread),
    )


def _problem(day: RecordMergeDay, result: WriteResult) -> Problem:
    failure = result.failure
    assert failure is not None
    return Problem(table=str(day.table.name), date=day.date, reason=failure.message, transient=failure.transient)


def _commit(
    context: StageContext, lease: Lease, day: RecordMergeDay, merge_id: int, results: Sequence[WriteResult]
) -> list[RecordObject]:
    """Replaces the inputs by the written objects, in one transaction. Returns the written objects.

    Locks the lease, then the partition's row, then the replaced objects. A death before the end changes nothing. If the
    day has expired, or groups failed, their inputs stay. Unreadable objects are noted, so that later merges go on
    without them.
    """
    by_key = {item.key: item.object_id for group in day.plan.groups for item in group}
    unread = {by_key[item.key]: item.reason for result in results for item in result.unread}
    if unread:
        context.stores.check_bucket(context.lake.bucket)
    written = [_merged_object(day, merge_id, result.number, result.written) for result in results if result.written]
    groups = [day.plan.groups[item.part_number] for item in written]
    for item, group in zip(written, groups, strict=True):
        _check_sums(day, item, group)
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        partition = partitions.lock_partition(connection, day.partition_id)
        taken = (item.object_id for group in (day.plan.kept, *groups) for item in group)
        record_objects.lock_objects(connection, [*unread, *taken])
        record_faults.note_unread_settled(connection, unread)
        if partition.expired or not (written or day.plan.kept):
            rewrites.drop(connection, merge_id)
            return []
        record_objects.mark_merged(connection, [item.object_id for item in day.plan.kept])
        if written:
            record_objects.replace(connection, [item.object_id for group in groups for item in group], merge_id)
            record_objects.insert_written(connection, day.table.table_id, written, {day.date: day.partition_id})
            failpoint("merge.in_commit_records")
            partitions.raise_desired(connection, day.partition_id, merge_id)
        rewrites.finish(connection, merge_id, FoldCounts.of(written))
    return written


def _merged_object(day: RecordMergeDay, merge_id: int, part_number: int, written: DataFile) -> RecordObject:
    """Returns the record of a group's object. Its records have settled; they are of all buckets and cohorts."""
    group = day.plan.groups[part_number]
    facts = {field.name: getattr(written, field.name) for field in fields(DataFile)}
    return RecordObject(
        **{**facts, "erasure_id": min(item.erasure_id for item in group)},
        date=day.date,
        part=RecordPart.VISIBLE,
        bucket_number=0,
        cohort=part_number,
        fold_id=merge_id,
        earliest_settle=min((item.earliest_settle for item in group if item.earliest_settle), default=None),
        latest_settle=max((item.latest_settle for item in group if item.latest_settle), default=None),
        is_settled=True,
        merges=1 + max(item.merges for item in group),
        is_merged=day.plan.is_final(written.content_length, day.table.merge),
        joined_rows=sum(item.joined_rows for item in group),
        definition_version=day.table.version,
    )


def _check_sums(day: RecordMergeDay, written: RecordObject, group: Sequence[RecordObject]) -> None:
    """Raises InvariantBroken if rows or fingerprint of an object differ from the sums over its inputs."""
    expected = sum(item.row_count for item in group), combine(item.fingerprint for item in group)
    if (written.row_count, written.fingerprint) != expected:
        raise InvariantBroken(
            f"{day.table.name} {day.date}: the rows of {written.key} differ from those of the "
            f"{counted(len(group), 'object')} merged into it; nothing was changed"
        )


def _merged(day: RecordMergeDay, written: Sequence[RecordObject]) -> MergedPartition:
    inputs = [item for done in written for item in day.plan.groups[done.part_number]]
    return MergedPartition(
        table_id=day.table.table_id,
        date=day.date,
        objects_in=len(inputs),
        rows=sum(item.row_count for item in written),
        bytes_in=sum(item.content_length for item in inputs),
        sizes_in=tuple(item.content_length for item in inputs),
        sizes=tuple(item.content_length for item in written),
        plan=day.describe(),
        left_behind=day.plan.left_behind,
        reason=day.plan.reason,
    )

"""Fold: takes the new changes of a join table, and replaces record objects by those made with the changes.

No reader is sent to new objects before the commit, one transaction for all days of a table; the next catalog run
publishes each day. A dead fold leaves objects under keys no other fold writes, and garbage collection removes them. Its
changes stay untaken: the next fold takes them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.folding import FoldResult, RecordPart
from prism_assets.domain.records.join_delays import added
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.text import counted
from prism_assets.domain.work import UnreadObject
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.records import folds, record_faults, record_moves, record_objects
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import rewrites
from prism_assets.metadata.tables import tables
from prism_assets.stages.bisect import error_of, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.findings.records import find_record_faults
from prism_assets.stages.fold.plan import FoldPlan, fold_tasks, plan_fold
from prism_assets.stages.fold.report import Fold, FoldReport, SkippedTable
from prism_assets.stages.leases import find_holder, leased
from prism_assets.stages.rewrite.begin import begin_record_rewrite
from prism_assets.stages.rewrite.numbers import run_under_free_number


def run_fold(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    ignore_pace: bool = False,
    wait_seconds: float = 0.0,
) -> FoldReport:
    """Folds all changes of every due join table; with `ignore_pace`, regardless of the last fold.

    A failing table stops no other: the report has the reason, and the next run starts again. A table held by another
    run is waited for, for `wait_seconds`, and then skipped. A repetition changes nothing.
    """
    started = time.monotonic()
    context.check_lake()
    sound, held = without_held(context, [table for table in context.choose_tables(names) if table.join is not None])
    report = FoldReport(problems=held)
    for table in sound:
        report = _fold_leased(context, table, report, now, ignore_pace, wait_seconds)
    return replace(report, seconds=time.monotonic() - started)


def _fold_leased(
    context: StageContext,
    table: TableDefinition,
    report: FoldReport,
    now: datetime,
    ignore_pace: bool,
    wait_seconds: float,
) -> FoldReport:
    done: list[Fold] = []
    try:
        with leased(context, LeaseKind.FOLD, [table.table_id], wait_seconds) as held:
            if not held:
                holder = find_holder(context, LeaseKind.FOLD, table.table_id)
                return replace(report, skipped=(*report.skipped, SkippedTable(table=str(table.name), holder=holder)))
            for fold in _folds(context, held[table.table_id], now, ignore_pace=ignore_pace):
                done.append(fold)
        with context.database.begin() as connection:
            found = find_record_faults(connection, table)
            told = [Problem(table=str(table.name), reason=item.text) for item in found]
    except PrismError as error:
        problem = Problem.of(error, str(table.name))
        return replace(report, folds=(*report.folds, *done), problems=(*report.problems, problem))
    return replace(report, folds=(*report.folds, *done), faults=(*report.faults, *told))


def _folds(context: StageContext, lease: Lease, now: datetime, *, ignore_pace: bool) -> Iterator[Fold]:
    """Folds until all changes are taken."""
    while (fold := _fold(context, lease, now, ignore_pace=ignore_pace)) is not None:
        context.progress(f"fold: {fold}")
        yield fold
        if fold.is_whole:
            return
        ignore_pace = True


def fold_all(context: StageContext, lease: Lease, now: datetime) -> list[Fold]:
    """Folds all changes under a table's lease, regardless of the last fold."""
    return list(_folds(context, lease, now, ignore_pace=True))


def fold_without_erased(context: StageContext, lease: Lease, now: datetime) -> Fold:
    """Makes one fold for erasures, under a table's lease, without the matching rows of any object it reads."""
    fold = _fold(context, lease, now, ignore_pace=True, is_erasing=True)
    assert fold is not None
    return fold


def _fold(
    context: StageContext, lease: Lease, now: datetime, *, ignore_pace: bool, is_erasing: bool = False
) -> Fold | None:
    """Makes one fold, or returns None if nothing is due. Reads the definition under the lease.

    A death after the first transaction leaves a fold for the next one to drop; after the second, the fold is complete.
    """
    started = time.monotonic()
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        table, changes = tables.load_join(connection, lease.subject_id)
        plan = plan_fold(
            connection,
            table,
            changes,
            context.lake,
            now=now,
            most_objects=context.settings.fold_max_objects,
            most_bytes=context.settings.fold_max_bytes,
            ignore_pace=ignore_pace,
            is_erasing=is_erasing,
        )
        if plan.reason is None:
            return None
        begin = partial(
            begin_record_rewrite,
            context,
            lease=lease,
            table=table,
            kind=RewriteKind.FOLD,
            settle_before=plan.settle_before,
        )
        fold_id = begin(connection)
        failpoint("fold.in_begin")
    failpoint("fold.after_begin")

    def run(number: int) -> list[FoldResult]:
        return list(run_bisected(context.engine, fold_tasks(plan, number, now), by_version(table)))

    fold_id, results = run_under_free_number(context, table, fold_id, run, begin)
    failpoint("fold.after_execute")
    if faults := {item.object_id: item.reason for item in _unread(results) if item.is_changes}:
        _set_aside(context, lease, fold_id, faults, {item.object_id: item.key for item in plan.changes}, changes)
        return _fold(context, lease, now, ignore_pace=True, is_erasing=is_erasing)
    if failed := [result for result in results if result.failure]:
        raise _error_of(failed)
    days = _commit(context, lease, plan, fold_id, results)
    failpoint("fold.after_commit")
    return Fold(
        table=str(table.name),
        table_id=table.table_id,
        fold_id=fold_id,
        reason=plan.reason,
        counts=_counts(results, plan.options.buckets),
        pending=sum(result.pending for result in results),
        join_delays=added(result.join_delays for result in results),
        days=tuple(sorted(days)),
        is_whole=plan.is_whole,
        undecided=sum(result.undecided for result in results),
        seconds=time.monotonic() - started,
    )


def _unread(results: Sequence[FoldResult]) -> list[UnreadObject]:
    return [item for result in results for item in result.unread]


def _set_aside(
    context: StageContext,
    lease: Lease,
    fold_id: int,
    faults: Mapping[int, str],
    planned: Mapping[int, str],
    changes: TableDefinition,
) -> None:
    """Ends a fold with unreadable changes, so that the next one goes on without them.

    Changes that an erasure has meanwhile rewritten under other keys than `planned` are read there by the next fold. A
    death in the transaction leaves a fold for the next one to drop, with the same result.
    """
    context.stores.check_bucket(context.lake.bucket)
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        present = small_objects.load_these(connection, context.lake.keys(changes), faults)
        same = {item.object_id for item in present if item.key == planned[item.object_id]}
        record_faults.set_aside(connection, {number: why for number, why in faults.items() if number in same})
        rewrites.drop(connection, fold_id)


def _commit(
    context: StageContext, lease: Lease, plan: FoldPlan, fold_id: int, results: Sequence[FoldResult]
) -> set[date]:
    """Replaces the inputs by the written objects, in one transaction. Returns the changed days.

    Locks the lease, then the rows of the partitions in id order, then the replaced objects. A death before the commit
    leaves everything unchanged. Notes the objects searched completely for erasures.
    """
    searched = max(plan.own_erasures, default=0) if not any(result.undecided for result in results) else 0
    written = [replace(item, erasure_id=searched) for result in results for item in result.written]
    replaced = {number for result in results for number in result.replaced}
    shown = [item for item in plan.records if item.object_id in replaced] + written
    days = {item.date for item in shown if item.part is RecordPart.VISIBLE}
    moves = {move for result in results for move in result.moves}
    dates = days | {item.date for item in written if item.part is not RecordPart.PENDING}
    dates |= {day for move in moves for day in (move.from_date, move.to_date)}
    _check_balance(plan, results)
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        partition_ids = partitions.ensure_and_lock_records(connection, plan.table.table_id, dates)
        record_objects.replace(connection, replaced, fold_id)
        record_objects.insert_written(connection, plan.table.table_id, written, partition_ids)
        record_objects.mark_searched(connection, _looked_through(plan, results) - replaced, searched)
        record_faults.note_unread(
            connection, plan.table.table_id, {item.object_id: item.reason for item in _unread(results)}
        )
        record_objects.settle(connection, [number for result in results for number in result.settled_objects])
        record_faults.end_set_aside(connection, [item.object_id for item in plan.changes])
        record_moves.insert(connection, fold_id, moves, partition_ids)
        for item in (item for result in results for item in result.erased if item.erasure_id in plan.own_erasures):
            erasures.count_rewritten(connection, item.erasure_id, item.objects, item.records)
        failpoint("fold.in_commit")
        for day in sorted(days):
            partitions.raise_desired(connection, partition_ids[day], fold_id)
        folds.advance(connection, fold_id, plan.days, plan.uppers, plan.taken_rows)
        folds.add_changes(connection, fold_id, plan.rows_again)
        rewrites.finish(connection, fold_id, _counts(results, plan.options.buckets))
    return days


def _looked_through(plan: FoldPlan, results: Sequence[FoldResult]) -> set[int]:
    """Returns the objects of completely readable buckets."""
    unread = {item.object_id for item in _unread(results)}
    waiting = {item.bucket_number for item in plan.records if item.object_id in unread}
    return {item.object_id for item in plan.records if item.bucket_number not in waiting}


def _check_balance(plan: FoldPlan, results: Sequence[FoldResult]) -> None:
    """Raises InvariantBroken unless each taken change is folded or waits, and belongs to one bucket."""
    waited = sum(item.row_count for item in plan.records if item.part is RecordPart.PENDING)
    taken = sum(item.row_count for item in plan.changes)
    read = sum(result.changes for result in results)
    ended = sum(result.folded + result.pending for result in results)
    if read != taken or ended != taken + waited:
        raise InvariantBroken(
            f"{plan.table.name}: of {counted(taken, 'new change')} {read} are in a bucket, and with {waited} that "
            f"waited {ended} are folded or wait; nothing was changed"
        )


def _counts(results: Sequence[FoldResult], buckets: int) -> FoldCounts:
    of_buckets = dict(pair for result in results for pair in result.bucket_changes)
    return replace(
        FoldCounts.of(
            [item for result in results for item in result.written],
            changes_folded=sum(result.folded for result in results),
        ),
        changes_in=sum(result.changes for result in results),
        changes_unsequenced=sum(result.unsequenced for result in results),
        records_settled=sum(result.settled for result in results),
        records_changed=sum(result.changed for result in results),
        records_joined=sum(result.joined for result in results),
        bucket_changes=tuple(of_buckets.get(bucket, 0) for bucket in range(buckets)) if of_buckets else (),
    )


def _error_of(failed: Sequence[FoldResult]) -> PrismError:
    """Returns the error of unfolded buckets, with the first message.

    It is transient if waiting may help all of them.
    """
    failures = [result.failure for result in failed if result.failure]
    text = f"{counted(len(failures), 'part')} of the records could not be folded, the first as {failures[0].message}"
    return error_of(failures, text, "; give Spark's Python workers more memory, or set PRISM_FOLD_MAX_BYTES lower")

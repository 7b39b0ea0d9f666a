"""Rebuilds the records of a join table from all changes in its log that folds have taken.

First a fold takes all new changes. Then all records are computed once, without writing, and compared with the current
ones (`domain/records/rebuild.py`). Days that differ or have an unreadable object are computed again and written. One
transaction replaces their objects, and ends all pending changes, which are part of the written records. Without
differences nothing changes, so a second rebuild does nothing.

The whole rebuild holds the lease of folds. Its number comes from the sequence of folds, as in merges of records, so
readers, catalogs and garbage collection know the current objects. No reader is sent to new objects before the commit. A
death leaves objects without any reference, and everything else unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import (
    InvariantBroken,
    StoreUnavailable,
    TerminalError,
)
from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.folding import ChangesObject, RecordMove, RecordObject, RecordPart
from prism_assets.domain.records.rebuild import (
    RecordRebuildResult,
    RecordRebuildTask,
    added_sums,
    different_days,
    rebuild_tasks,
)
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.records import folds, record_faults, record_moves, record_objects
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import rewrites
from prism_assets.metadata.tables import tables
from prism_assets.objectstore.lake import Lake
from prism_assets.stages.bisect import error_of, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.run import fold_all
from prism_assets.stages.leases import find_holder, leased, takeover_seconds
from prism_assets.stages.rebuild.report import RebuiltRecords, RecordsPlan
from prism_assets.stages.rewrite.begin import begin_record_rewrite
from prism_assets.stages.rewrite.numbers import run_under_free_number

_ATTEMPTS = 5
"""How often further objects may become unreadable before the rebuild gives up."""


@dataclass(frozen=True, kw_only=True)
class _RebuildInputs:
    """The inputs of a rebuild: all changes taken by folds, and all current records."""

    table: TableDefinition
    changes: tuple[ChangesObject, ...]
    records: tuple[RecordObject, ...]
    """Objects of records made only of changes in the log."""
    changes_from: datetime | None
    """The log has changes from this time on only. None if it has all."""
    kept: tuple[RecordObject, ...]
    """Objects with older records, to which later changes may belong."""
    settle_before: datetime | None
    expired: frozenset[date]
    erasures: tuple[ErasureRule, ...]
    own_erasures: frozenset[int]

    @property
    def waiting(self) -> list[RecordObject]:
        """Objects of pending changes. The log has all these changes, too."""
        return [item for item in self.records if item.part is RecordPart.PENDING]


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The result of computing all records."""

    tasks: tuple[RecordRebuildTask, ...]
    results: tuple[RecordRebuildResult, ...]
    lost: Mapping[int, str]
    """Unreadable objects of records, with the reason."""
    days: Mapping[date, str]
    """Days whose records differ from the changes, with the difference."""

    @property
    def records(self) -> int:
        """The number of records made of the changes."""
        return sum(result.records for result in self.results)

    @property
    def expired(self) -> int:
        """The number of further records, of expired days."""
        return sum(result.expired for result in self.results)


def rebuild_records(context: StageContext, table: TableDefinition, now: datetime) -> RebuiltRecords:
    """Rebuilds a whole join table. A repetition changes nothing more."""
    number = table.table_id
    with leased(context, LeaseKind.FOLD, [number], takeover_seconds(context)) as held:
        if held:
            return _rebuild(context, held[number], now)
    holder = find_holder(context, LeaseKind.FOLD, number)
    return RebuiltRecords(table=str(table.name), table_id=number, skipped=True, holder=holder)


def plan_records(context: StageContext, table: TableDefinition) -> RecordsPlan:
    """Returns the plan of a join table's rebuild. Computes all records, writes none and changes nothing."""
    with context.database.repeatable_read() as connection:
        inputs = _load(connection, table.table_id, context.lake)
    compared = _compare(context, inputs)
    return RecordsPlan(
        table=str(table.name),
        changes=sum(item.row_count for item in inputs.changes),
        content_length=sum(item.content_length for item in (*inputs.changes, *inputs.records)),
        waiting=sum(item.row_count for item in inputs.waiting),
        different=tuple(f"{day}: {why}" for day, why in compared.days.items()),
        unread=tuple(compared.lost.values()),
        changes_from=inputs.changes_from,
    )


def _load(connection: Connection, table_id: int, lake: Lake) -> _RebuildInputs:
    """Reads the inputs, without locks. Raises TerminalError if the log lacks changes of current records.

    The settling limit is that of the last fold of all changes, so no record settles that a later change could still
    meet.
    """
    table, changes = tables.load_join(connection, table_id)
    assert table.join is not None
    if record_faults.load_set_aside(connection, changes.table_id):
        raise TerminalError(
            "objects of changes cannot be read and are set aside, so the records of these changes are unknown: "
            f"run `prism repair --deep --table {log_name(table.name)}`, then `prism fold`, and repeat"
        )
    days = partitions.load_table_partitions(connection, changes.table_id)
    taken = folds.load_positions(connection, [day.partition_id for day in days])
    gone = [day.date for day in days if day.expired and day.partition_id in taken]
    changes_from = changes.day_ends(max(gone)) if gone else None
    expired = retention.load_expired(connection, table_id)
    current = record_objects.load_current(connection, lake.keys(table), table_id)
    current = [item for item in current if item.date not in expired or not item.is_settled]
    kept = [item for item in current if changes_from is not None and _begins_before(item, changes_from)]
    early = {item.object_id for item in kept}
    if changes_from is not None and (table.join.window_seconds is None or not all(item.is_settled for item in kept)):
        raise TerminalError(
            f"changes from before {changes_from:%Y-%m-%d %H:%M}Z are no longer kept (changes.retention_days), and "
            "their records may still change: restore lost objects of records (a version of the bucket, a backup)"
        )
    rules, own = erasures.load_join_rules(connection, table_id, changes.table_id)
    return _RebuildInputs(
        table=table,
        changes=tuple(_load_changes(connection, changes, lake, [day for day in days if not day.expired], taken)),
        records=tuple(item for item in current if item.object_id not in early),
        changes_from=changes_from,
        kept=tuple(item for item in kept if changes_from is None or _may_reach(item, table, changes_from)),
        settle_before=folds.last_settled_before(connection, table_id),
        expired=expired,
        erasures=rules,
        own_erasures=own,
    )


def _begins_before(item: RecordObject, instant: datetime) -> bool:
    """Whether a record of an object may begin before an instant. Pending changes are in no record yet."""
    return item.part is not RecordPart.PENDING and (item.min_time is None or item.min_time < instant)


def _may_reach(item: RecordObject, table: TableDefinition, instant: datetime) -> bool:
    """Whether a record of an object may have a change from an instant on."""
    assert table.join is not None
    assert table.join.window_seconds is not None
    lasts = timedelta(seconds=table.join.window_seconds + table.join.lateness_seconds)
    return item.latest_settle is None or item.latest_settle - lasts >= instant


def _load_changes(
    connection: Connection,
    log: TableDefinition,
    lake: Lake,
    days: Sequence[Partition],
    taken: Mapping[int, int],
) -> list[ChangesObject]:
    """Returns the objects of the log's days up to the position of folds: merged ones, and small ones above them."""
    keys = lake.keys(log)
    found: list[ChangesObject] = []
    for day in days:
        upper = taken.get(day.partition_id, 0)
        chain = [
            item for item in merge_ranges.load_chain(connection, keys, day.partition_id) if item.lower_bound < upper
        ]
        merged_to = chain[-1].upper_bound if chain else 0
        if merged_to > upper:
            raise StoreUnavailable(
                f"{log.name} {day.date}: changes not yet taken by a fold are already merged with others; run `prism "
                "fold`, and repeat"
            )
        small = small_objects.load_above(connection, keys, day.partition_id, merged_to)
        found += map(ChangesObject.of, chain)
        found += [ChangesObject.of(item) for item in small if item.object_id <= upper]
    return [item for item in found if item.row_count]


def _compare(context: StageContext, inputs: _RebuildInputs) -> _Comparison:
    """Computes all records, and compares them with the readable current ones."""
    lost: dict[int, str] = {}
    for _ in range(_ATTEMPTS):
        tasks = rebuild_tasks(
            inputs.table,
            inputs.records,
            inputs.changes,
            lost=lost,
            settle_before=inputs.settle_before,
            expired_day=max(inputs.expired, default=None),
            changes_from=inputs.changes_from,
            kept=inputs.kept,
            erasures=inputs.erasures,
        )
        results = _run(context, inputs.table, tasks)
        unread = {item.object_id: item.reason for result in results for item in result.unread}
        if not unread:
            break
        lost |= unread
        _check_can_be_made(inputs, lost)
    else:
        raise StoreUnavailable(
            f"objects of records become unreadable one after the other, the last as {lost.popitem()[1]}"
        )
    _check_all_told(inputs, results)
    days = different_days(added_sums(results), inputs.records, lost)
    return _Comparison(tasks=tuple(tasks), results=tuple(results), lost=lost, days=days)


def _check_can_be_made(inputs: _RebuildInputs, lost: Mapping[int, str]) -> None:
    """Raises TerminalError if the log may lack changes of a record in an unreadable object."""
    if inputs.changes_from is None:
        return
    assert inputs.table.join is not None
    whole_from = inputs.changes_from + timedelta(seconds=inputs.table.join.window_seconds or 0)
    early = [item for item in inputs.records if item.object_id in lost and _begins_before(item, whole_from)]
    for item in (*early, *(item for item in inputs.kept if item.object_id in lost)):
        raise TerminalError(
            f"changes from before {inputs.changes_from:%Y-%m-%d %H:%M}Z are no longer kept (changes.retention_days), "
            f"and records made of them cannot be read, as {lost[item.object_id]}: restore the object (a version of "
            "the bucket, a backup)"
        )


def _check_all_told(inputs: _RebuildInputs, results: Sequence[RecordRebuildResult]) -> None:
    """Raises InvariantBroken unless each change is in one bucket, and each current record is made of changes."""
    wanted = sum(item.row_count for item in inputs.changes)
    read = sum(result.changes for result in results)
    if read != wanted:
        raise InvariantBroken(
            f"{inputs.table.name}: only {read:,} of {wanted:,} changes are in a bucket; nothing was changed: keep "
            "the objects and report it"
        )
    if orphans := sum(result.orphans for result in results):
        raise InvariantBroken(
            f"{inputs.table.name}: the log lacks changes of {orphans:,} records that readers may see; nothing was "
            "changed: look for objects of the log that were deleted (`prism doctor`), restore them, and repeat"
        )


def _run(
    context: StageContext, table: TableDefinition, tasks: Sequence[RecordRebuildTask]
) -> list[RecordRebuildResult]:
    results = list(run_bisected(context.engine, tasks, by_version(table)))
    _check_made(table, results)
    return results


def _check_made(table: TableDefinition, results: Sequence[RecordRebuildResult]) -> None:
    failures = [result.failure for result in results if result.failure]
    if not failures:
        return
    text = f"{counted(len(failures), 'part')} of the records could not be rebuilt, the first as {failures[0].message}"
    if any(item.is_changes for result in results for item in result.unread):
        raise TerminalError(
            f"{text}; run `prism repair --deep --table {log_name(table.name)}`, which writes small objects of changes "
            "again; restore a merged one (a version of the bucket, a backup); then repeat"
        )
    raise error_of(failures, text, "; give Spark's Python workers more memory")


def _rebuild(context: StageContext, lease: Lease, now: datetime) -> RebuiltRecords:
    """Rebuilds under the lease of folds. A death leaves a running rewrite, and the next call drops it."""
    started = time.monotonic()
    fold_all(context, lease, now)
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        inputs = _load(connection, lease.subject_id, context.lake)
    table = inputs.table
    compared = _compare(context, inputs)
    failpoint("rebuild.after_compare")
    if compared.lost:
        context.stores.check_bucket(context.lake.bucket)
    report = RebuiltRecords(
        table=str(table.name),
        table_id=table.table_id,
        changes=sum(item.row_count for item in inputs.changes),
        records=compared.records,
        expired=compared.expired,
        unread=tuple(compared.lost.values()),
        changes_from=inputs.changes_from,
    )
    if not compared.days and not inputs.waiting:
        return replace(report, seconds=time.monotonic() - started)
    begin = partial(
        begin_record_rewrite,
        context,
        lease=lease,
        table=table,
        kind=RewriteKind.REBUILD_RECORDS,
        settle_before=inputs.settle_before,
    )
    with context.database.begin() as connection:
        fold_id = begin(connection)
        failpoint("rebuild.in_begin_records")
    failpoint("rebuild.after_begin_records")

    def run(number: int) -> Sequence[RecordRebuildResult]:
        tasks = [replace(task, fold_id=number, days=tuple(compared.days)) for task in compared.tasks]
        return list(run_bisected(context.engine, tasks, by_version(table))) if compared.days else []

    fold_id, results = run_under_free_number(context, table, fold_id, run, begin)
    _check_made(table, results)
    failpoint("rebuild.after_execute_records")
    written = _commit(context, lease, inputs, compared, fold_id, results)
    failpoint("rebuild.after_commit_records")
    return replace(
        report,
        fold_id=fold_id,
        days=tuple(compared.days),
        different=tuple(f"{day}: {why}" for day, why in compared.days.items()),
        rows_written=sum(item.row_count for item in written),
        bytes_written=sum(item.content_length for item in written),
        waited=sum(item.row_count for item in inputs.waiting),
        seconds=time.monotonic() - started,
    )


def _commit(
    context: StageContext,
    lease: Lease,
    inputs: _RebuildInputs,
    compared: _Comparison,
    fold_id: int,
    results: Sequence[RecordRebuildResult],
) -> list[RecordObject]:
    """Replaces the objects of the written days, in one transaction. Returns the new objects.

    Locks the lease, then the rows of the partitions in id order, then the replaced objects, like a fold. A death before
    the end changes nothing. All pending changes are part of the written records, or make no difference. Expired days
    get no publication, and garbage collection deletes their objects that folds no longer read.
    """
    table = inputs.table
    if compared.days and (added_sums(results) != added_sums(compared.results) or any(r.unread for r in results)):
        raise InvariantBroken(
            f"{table.name}: two computations of the records differ; nothing was changed: repeat, and "
            "report it if it happens again"
        )
    own = max(inputs.own_erasures, default=0) if not any(result.undecided for result in results) else 0
    written = [replace(item, erasure_id=own) for result in results for item in result.written]
    replaced = [item for item in inputs.records if item.part is RecordPart.PENDING or item.date in compared.days]
    moves = _moves(results, compared.days.keys() - inputs.expired)
    dates = {item.date for item in written} | {day for move in moves for day in (move.from_date, move.to_date)}
    dates |= {item.date for item in replaced if item.part is not RecordPart.PENDING}
    seen = {item.date for item in (*replaced, *written) if item.part is RecordPart.VISIBLE}
    counts = FoldCounts.of(written, changes_folded=sum(item.row_count for item in inputs.waiting))
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        partition_ids = partitions.ensure_and_lock_records(connection, table.table_id, dates)
        record_objects.replace(connection, [item.object_id for item in replaced], fold_id)
        record_objects.insert_written(connection, table.table_id, written, partition_ids)
        record_moves.insert(connection, fold_id, moves, partition_ids)
        failpoint("rebuild.in_commit_records")
        expired = retention.load_expired(connection, table.table_id)  # others may be, behind the locks
        for day in sorted(seen - expired):
            partitions.raise_desired(connection, partition_ids[day], fold_id)
        rewrites.finish(connection, fold_id, counts)
    return written


def _moves(results: Sequence[RecordRebuildResult], days: Collection[date]) -> list[RecordMove]:
    """Returns the moves between written, unexpired days, each once."""
    found = {move for result in results for move in result.moves if {move.from_date, move.to_date} <= set(days)}
    return sorted(found, key=lambda move: (move.from_date, move.to_date))

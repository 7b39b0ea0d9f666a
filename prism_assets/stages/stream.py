"""Stream: a batch turns pending staging objects of many tables into small Parquet objects, readable at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.errors import LeaseLost, PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import ConvertResult, ConvertTask, Failure
from prism_assets.failpoints import failpoint
from prism_assets.metadata import (
    batches,
    locks,
    merge_jobs,
    partitions,
    small_objects,
    staging_objects,
    tables,
)
from prism_assets.metadata.staging_objects import ClaimedObject
from prism_assets.stages.context import StageContext
from prism_assets.stages.halving import Halving
from prism_assets.stages.heartbeats import Heartbeat

_LONGEST_WAIT = 300.0


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """One batch: the objects it claimed, as tasks, and the definitions they are converted under.

    `tried_before` are those that another batch had claimed, and perhaps uploaded, before.
    """

    batch_id: int
    tasks: tuple[ConvertTask, ...]
    attempts: Mapping[int, int]
    tried_before: frozenset[int]
    definitions: Mapping[tuple[int, int], TableDefinition]


@dataclass(frozen=True, kw_only=True)
class PartitionChange:
    """What a batch added to one partition."""

    table_id: int
    date: date
    objects: int
    delayed_objects: int
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class StreamReport:
    """What one or several batches did; `problems` are the objects that were given up."""

    batches: int = 0
    objects: int = 0
    lines_in: int = 0
    rows_out: int = 0
    small_objects: int = 0
    bytes_in: int = 0
    retried: int = 0
    problems: tuple[Problem, ...] = ()
    revived: int = 0
    changes: tuple[PartitionChange, ...] = ()
    seconds: float = 0.0

    @property
    def quarantined(self) -> int:
        """Lines set aside."""
        return self.lines_in - self.rows_out

    @property
    def failed(self) -> tuple[str, ...]:
        """The objects that were given up, one sentence each."""
        return tuple(problem.reason for problem in self.problems)

    def __add__(self, other: StreamReport) -> StreamReport:
        return StreamReport(
            batches=self.batches + other.batches,
            objects=self.objects + other.objects,
            lines_in=self.lines_in + other.lines_in,
            rows_out=self.rows_out + other.rows_out,
            small_objects=self.small_objects + other.small_objects,
            bytes_in=self.bytes_in + other.bytes_in,
            retried=self.retried + other.retried,
            problems=self.problems + other.problems,
            revived=self.revived + other.revived,
            changes=_sum_changes([*self.changes, *other.changes]),
            seconds=self.seconds + other.seconds,
        )


def run_stream(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    max_batches: int | None = None,
) -> StreamReport:
    """Runs batches until nothing is pending (or `max_batches` are done). Repeating it does nothing more."""
    report = StreamReport()
    for done in stream_batches(context, now=now, names=names):
        report += done
        if max_batches is not None and report.batches >= max_batches:
            break
    return report


def stream_batches(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None
) -> Iterator[StreamReport]:
    """Runs batches until nothing is pending, and yields what was done, which is committed whatever follows."""
    table_ids = context.choose_ids(names)
    context.stores.check_bucket(context.lake.bucket)
    yield StreamReport(revived=revive(context))
    objects = rows = 0
    while (plan := start_batch(context, table_ids)) is not None:
        try:
            report = _run_batch(context, plan, now)
        except LeaseLost as error:
            context.progress(f"stream: {error}")
            continue
        objects, rows = objects + report.objects, rows + report.rows_out
        context.progress(f"stream: {objects} objects, {rows} rows")
        yield report


def retry_failed(context: StageContext, names: Collection[str] | None = None) -> int:
    """Gives objects that were given up another chance, once what stood in their way is mended; returns how many."""
    table_ids = context.choose_ids(names)
    with context.database.begin() as connection:
        return staging_objects.retry_failed(connection, table_ids)


def revive(context: StageContext) -> int:
    """Declares batches dead that lost their lease and returns their objects to the pending ones.

    One transaction: a death in it leaves the batch as it was; after it, the batch's own commit cannot succeed.
    """
    with context.database.begin() as connection:
        dead = batches.declare_dead(connection, context.settings.lease_seconds)
        return staging_objects.release(connection, dead) if dead else 0


def start_batch(context: StageContext, table_ids: Collection[int] | None) -> StreamPlan | None:
    """Claims pending objects and takes the snapshot that decides their tiers; None if nothing is pending.

    One transaction: a death in it claims nothing. After it, the objects wait for the lease of this batch.
    """
    settings = context.settings
    with context.database.begin() as connection:
        locks.share_epoch(connection)
        batch_id = batches.insert_batch(connection, context.worker)
        claimed = staging_objects.claim_pending(
            connection, batch_id, table_ids, settings.stream_max_objects, settings.stream_max_bytes
        )
        if not claimed:
            connection.rollback()
            return None
        marks = partitions.closing_marks(connection, {item.table_id for item in claimed})
        definitions = tables.load_versions(connection, {(item.table_id, item.definition_version) for item in claimed})
    failpoint("stream.after_start")
    return StreamPlan(
        batch_id=batch_id,
        tasks=tuple(_task(item, marks.get(item.table_id, {})) for item in claimed),
        attempts={item.staging_object_id: item.attempts for item in claimed},
        tried_before=frozenset(item.staging_object_id for item in claimed if item.first_batch_id < batch_id),
        definitions=definitions,
    )


def _task(item: ClaimedObject, marks: Mapping[date, int]) -> ConvertTask:
    """The tier is a function of the snapshot alone: delayed if the day was marked before the object was first seen."""
    return convert_task(item, frozenset(day for day, mark in marks.items() if item.first_batch_id > mark))


def convert_task(item: ClaimedObject, delayed_dates: frozenset[date]) -> ConvertTask:
    """A staging object as a task for the engine, with the rows of these dates in the delayed tier."""
    return ConvertTask(
        staging_object_id=item.staging_object_id,
        bucket=item.bucket,
        key=item.key,
        etag=item.etag,
        content_length=item.content_length,
        received=item.first_receive_time,
        stream_name=item.stream_name,
        delayed_dates=delayed_dates,
        table_id=item.table_id,
        definition_version=item.definition_version,
    )


def _run_batch(context: StageContext, plan: StreamPlan, now: datetime) -> StreamReport:
    started = time.monotonic()
    beat = Heartbeat(
        context.database,
        context.settings.lease_seconds,
        lambda connection: batches.heartbeat(connection, plan.batch_id),
    )
    try:
        with beat:
            results = list(_converted(context, plan))
            failpoint("stream.after_convert")
            report = commit_batch(context, plan, results, now)
    except BaseException:
        _abandon(context, plan)
        raise
    failpoint("stream.after_commit")
    return StreamReport(**{**report.__dict__, "seconds": time.monotonic() - started})


def _converted(context: StageContext, plan: StreamPlan) -> Iterator[ConvertResult]:
    """Converts the tasks of a batch; one that kills its job ends up alone and fails alone."""
    return Halving[ConvertTask, ConvertResult](
        run=lambda tasks: context.engine.convert(tasks, plan.definitions),
        task_id=lambda task: task.staging_object_id,
        result_id=lambda result: result.staging_object_id,
        probe=context.engine.probe,
        poisoned=lambda task, error: ConvertResult(
            staging_object_id=task.staging_object_id, failure=Failure(message=str(error), transient=False)
        ),
    ).results(plan.tasks)


def _abandon(context: StageContext, plan: StreamPlan) -> None:
    """Gives a batch that cannot go on back at once; if that fails too, its lease runs out by itself."""
    with suppress(PrismError), context.database.begin() as connection:
        if batches.abandon(connection, plan.batch_id):
            staging_objects.release(connection, [plan.batch_id])


@dataclass
class _Outcome:
    """Results of a batch sorted by what becomes of the object."""

    done: list[ConvertResult] = field(default_factory=list)
    retried: list[ConvertResult] = field(default_factory=list)
    failed: list[ConvertResult] = field(default_factory=list)


def commit_batch(
    context: StageContext, plan: StreamPlan, results: Sequence[ConvertResult], now: datetime
) -> StreamReport:
    """Commits a batch in one transaction: batch row, partition rows in id order, then the small objects.

    Dying before it leaves keys that the retry writes again byte by byte; dying after it loses nothing.
    """
    tasks = {task.staging_object_id: task for task in plan.tasks}
    outcome = _sort_out(context, plan, results)
    with context.database.begin() as connection:
        batches.lock_running(connection, plan.batch_id)
        _remove_uploads(context, plan, [tasks[result.staging_object_id] for result in _without_rows(plan, outcome)])
        table_of = {task.staging_object_id: task.table_id for task in plan.tasks}
        objects = [(result.staging_object_id, small) for result in outcome.done for small in result.objects]
        wanted = {(table_of[staging], small.date) for staging, small in objects}
        partition_ids = partitions.ensure_and_lock(connection, wanted)
        failpoint("stream.in_commit")
        highest = small_objects.insert_small_objects(connection, objects, partition_ids, table_of)
        partitions.raise_last_object(connection, highest)
        staging_objects.finish(connection, plan.batch_id, outcome.done, now)
        small_objects.insert_quarantine(connection, outcome.done, now)
        for result in outcome.retried:
            wait = min(2.0 ** min(plan.attempts[result.staging_object_id], 30), _LONGEST_WAIT)
            staging_objects.put_back(connection, plan.batch_id, result.staging_object_id, _message(result), wait)
        for result in outcome.failed:
            staging_objects.give_up(connection, plan.batch_id, result.staging_object_id, _message(result))
        _schedule_merges(connection, plan, partition_ids, now)
        batches.finish_batch(connection, plan.batch_id)
    return _report(plan, outcome, tasks)


def _sort_out(context: StageContext, plan: StreamPlan, results: Sequence[ConvertResult]) -> _Outcome:
    """An object is given up only for a fault of its own; an outage of the store is waited for, however long."""
    outcome, max_attempts = _Outcome(), context.settings.max_attempts
    for result in results:
        if result.failure is None:
            outcome.done.append(result)
        elif not result.failure.transient and plan.attempts[result.staging_object_id] + 1 >= max_attempts:
            outcome.failed.append(result)
        else:
            outcome.retried.append(result)
    return outcome


def _without_rows(plan: StreamPlan, outcome: _Outcome) -> list[ConvertResult]:
    """Objects that end without rows though an attempt may have uploaded some: given up, or changed since then."""
    changed = [
        result for result in outcome.done if not result.objects and result.staging_object_id in plan.tried_before
    ]
    return [*outcome.failed, *changed]


def _remove_uploads(context: StageContext, plan: StreamPlan, tasks: Sequence[ConvertTask]) -> None:
    """Removes every key that attempts may have left, before the end is recorded: a death in between repeats both."""
    for task in tasks:
        table = plan.definitions[task.table_id, task.definition_version]
        keys = context.lake.keys(table)
        first = table.today(task.received) - timedelta(days=table.past_days)
        days = [first + timedelta(days=offset) for offset in range(table.past_days + table.future_days + 1)]
        context.stores.delete(
            context.lake.bucket,
            [keys.small_object(day, task.staging_object_id, delayed=day in task.delayed_dates) for day in days],
        )


def _schedule_merges(
    connection: Connection, plan: StreamPlan, partition_ids: Mapping[tuple[int, date], int], now: datetime
) -> None:
    """A merge of each touched partition after the table's interval; one that waits already serves this batch too."""
    intervals = {table_id: table.merge.interval for (table_id, _), table in plan.definitions.items()}
    by_interval: dict[int, list[int]] = {}
    for (table_id, _), partition_id in partition_ids.items():
        by_interval.setdefault(intervals[table_id], []).append(partition_id)
    for interval, ids in by_interval.items():
        merge_jobs.schedule(connection, ids, now + timedelta(seconds=interval))


def _message(result: ConvertResult) -> str:
    return result.failure.message if result.failure else ""


def _report(plan: StreamPlan, outcome: _Outcome, tasks: Mapping[int, ConvertTask]) -> StreamReport:
    changes = [
        PartitionChange(
            table_id=tasks[result.staging_object_id].table_id,
            date=small.date,
            objects=1,
            delayed_objects=int(small.delayed),
            rows=small.row_count,
            bytes=small.content_length,
        )
        for result in outcome.done
        for small in result.objects
    ]
    return StreamReport(
        batches=1,
        objects=len(outcome.done),
        lines_in=sum(result.lines_in for result in outcome.done),
        rows_out=sum(result.rows_out for result in outcome.done),
        small_objects=len(changes),
        bytes_in=sum(task.content_length for task in plan.tasks),
        retried=len(outcome.retried),
        problems=tuple(_given_up(plan, tasks[result.staging_object_id], _message(result)) for result in outcome.failed),
        changes=_sum_changes(changes),
    )


def _given_up(plan: StreamPlan, task: ConvertTask, message: str) -> Problem:
    table = plan.definitions[task.table_id, task.definition_version]
    return Problem(table=str(table.name), reason=f"gave up s3://{task.bucket}/{task.key}: {message}")


def _sum_changes(changes: Sequence[PartitionChange]) -> tuple[PartitionChange, ...]:
    totals: dict[tuple[int, date], PartitionChange] = {}
    for change in changes:
        key = (change.table_id, change.date)
        before = totals.get(key)
        totals[key] = change if before is None else _add(before, change)
    return tuple(totals[key] for key in sorted(totals))


def _add(left: PartitionChange, right: PartitionChange) -> PartitionChange:
    return PartitionChange(
        table_id=left.table_id,
        date=left.date,
        objects=left.objects + right.objects,
        delayed_objects=left.delayed_objects + right.delayed_objects,
        rows=left.rows + right.rows,
        bytes=left.bytes + right.bytes,
    )

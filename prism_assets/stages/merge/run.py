"""Merge: joins the small objects of a partition into big, even, sorted objects, under a lease per job."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime, timezone
from itertools import chain
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.errors import (
    EngineFailed,
    EngineUnavailable,
    InvariantBroken,
    LeaseLost,
    PrismError,
    TerminalError,
)
from prism_assets.domain.files.rewrites import Rewrite
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import Definitions, TableDefinition, by_version
from prism_assets.domain.text import counted
from prism_assets.domain.work import Failure, Task
from prism_assets.engine.base import Engine
from prism_assets.failpoints import failpoint
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.files.merge_jobs import MergeJob
from prism_assets.metadata.rewrites import rewrites
from prism_assets.metadata.tables import column_transitions
from prism_assets.stages.bisect import check_engine, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.heartbeats import Heartbeat
from prism_assets.stages.merge.commit import commit_job, fail_dead_job, fail_job
from prism_assets.stages.merge.job import RunningJob
from prism_assets.stages.merge.plan import PartitionPlan, plan_partition, range_task
from prism_assets.stages.merge.record_merge import merge_records
from prism_assets.stages.merge.report import MergedPartition, MergeReport
from prism_assets.stages.rewrite.numbers import highest_number

_TRIES = 3
_Result = TypeVar("_Result")


class _WatchedEngine:
    """An engine that notes whether it worked during a run of jobs: by a probe, a result, or a job that died in it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.at_work = False

    @property
    def slots(self) -> int:
        """The slots of the engine."""
        return self._engine.slots

    def run(self, tasks: Sequence[Task[_Result]], definitions: Definitions) -> Iterator[_Result]:
        """Passes on the results of a job, and notes them."""
        try:
            for result in self._engine.run(tasks, definitions):
                self.at_work = True
                yield result
        except EngineFailed:
            self.at_work = True
            raise

    def probe(self) -> None:
        """Does nothing, where kernels run."""
        self._engine.probe()


def run_merge(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    day: date | None = None,
    ignore_schedule: bool = False,
    wait_seconds: float = 0.0,
) -> MergeReport:
    """Runs all due jobs and the backlog jobs after them; with `ignore_schedule`, regardless of their time.

    Also merges settled records, which have no schedule, and for a join table the log of its changes. A repetition
    merges nothing twice, because the transaction that commits a job's ranges deletes the job. Waits for folds of other
    runs for `wait_seconds`.
    """
    started = time.monotonic()
    logs = merge_one_by_one(context, now=now, names=names, day=day, ignore_schedule=ignore_schedule)
    records = merge_records(context, names=names, day=day, wait_seconds=wait_seconds, retry=ignore_schedule)
    report = sum(chain(logs, records), MergeReport())
    return replace(report, seconds=time.monotonic() - started)


def merge_one_by_one(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    day: date | None = None,
    ignore_schedule: bool = False,
) -> Iterator[MergeReport]:
    """Runs the work of `run_merge`. Yields the report of each committed job.

    Objects from before a rename or widening come last, when nothing else is due, a few in each run; all of them if new
    objects wait for it.
    """
    context.check_lake()
    tables, held = without_held(context, context.choose_logs(names))
    table_ids = [table.table_id for table in tables]
    yield MergeReport(reclaimed=reclaim_expired(context, now), problems=held)
    rows = 0
    if ignore_schedule:
        _schedule_unmerged(context, table_ids, day, now)
    seen: set[int] = set()
    left = list(tables)
    while True:
        with context.database.begin() as connection:
            jobs = merge_jobs.claim_due(
                connection,
                now=now,
                limit=context.batch_size.merges,
                worker=context.worker,
                table_ids=table_ids,
                day=day,
                ignore_schedule=ignore_schedule,
                seen=seen,
            )
            if jobs:
                failpoint("merge.in_claim")
        if not jobs:
            scheduled = left and _schedule_rewrites(context, left, day, now)
            left = [table for table in left if table.is_flipping]
            if scheduled:
                continue
            return
        failpoint("merge.after_claim")
        seen.update(job.job_id for job in jobs)
        for report in _run_jobs(context, jobs, {table.table_id: table for table in tables}, now):
            rows += report.rows
            yield report
        context.progress(f"merge: {counted(len(seen), 'job')}, {counted(rows, 'row')}")
        table_ids = [table.table_id for table in without_held(context, tables)[0]]


def reclaim_expired(context: StageContext, now: datetime) -> int:
    """Returns jobs with an expired lease to the waiting ones. Returns how many.

    A job is charged if it died alone after a successful probe. One transaction per job, which locks the partition
    first: a death in it leaves the job unchanged.
    """
    settings = context.settings
    with context.database.begin() as connection:
        expired = merge_jobs.expired(connection, settings.lease_seconds)
    reclaimed = 0
    for job in expired:
        with context.database.begin() as connection:
            partitions.lock_partition(connection, job.partition_id)
            try:
                merge_jobs.lock_claimed(connection, job)
            except LeaseLost:
                continue
            if merge_jobs.is_expired(connection, job, settings.lease_seconds):
                fail_dead_job(connection, context, job, "the worker died or stood still", now, proven=job.probed)
                reclaimed += 1
    return reclaimed


def _schedule_unmerged(context: StageContext, table_ids: Collection[int], day: date | None, now: datetime) -> None:
    """Schedules a merge for every partition with unmerged objects."""
    with context.database.begin() as connection:
        wanted = partitions.ids_unmerged(connection, table_ids, day)
    _schedule(context, wanted, now)


def _schedule_rewrites(
    context: StageContext, tables: Collection[TableDefinition], day: date | None, now: datetime
) -> int:
    """Schedules merges of days with objects from before a rename or widening, the newest first. Returns how many."""
    with context.database.begin() as connection:
        wanted = column_transitions.load_days_to_rewrite(connection, tables, day)
    return _schedule(context, [item.partition_id for item in wanted], now)


def _schedule(context: StageContext, partition_ids: Sequence[int], now: datetime) -> int:
    """Schedules merges of partitions that have not expired. Returns how many.

    Each partition has its own transaction, because streams wait for its row. A death between two leaves ordinary jobs.
    """
    scheduled = 0
    for partition_id in partition_ids:
        with context.database.begin() as connection:
            if not partitions.lock_partition(connection, partition_id).expired:
                merge_jobs.schedule(connection, [partition_id], now)
                scheduled += 1
            failpoint("merge.in_schedule")
    return scheduled


def _run_jobs(
    context: StageContext, jobs: Sequence[MergeJob], tables: Mapping[int, TableDefinition], now: datetime
) -> Iterator[MergeReport]:
    """Plans all jobs, runs their ranges as one Spark job, and commits each job after its last range."""
    tokens = {job.lease_token for job in jobs}
    beat = Heartbeat(
        context.database,
        context.settings.lease_seconds,
        lambda connection: merge_jobs.heartbeat(connection, tuple(tokens)),
    )
    engine = _WatchedEngine(context.engine)
    with beat, _released_on_error(context, jobs, engine, now):
        in_flight: list[RunningJob] = []
        for job in jobs:
            try:
                in_flight.append(_plan_job(context, job, tables))
            except (InvariantBroken, ArithmeticError, LookupError, ValueError, TypeError) as error:
                # These errors come from the partition's own rows. Faults of the surroundings have other types.
                yield _fail_unplanned(context, job, tables, error, now)
                tokens.discard(job.lease_token)
        planned = [running.job for running in in_flight]
        if any(job.died or job.last_error for job in planned):
            probe_engine(context, planned)
            engine.at_work = True
        refused: list[RunningJob] = []
        for running in _completed(context, in_flight, engine):
            if running.failure is not None and running.failure.transient:
                refused.append(running)  # judged after the others: if these were readable, the fault is its own
                continue
            yield _end_job(context, running, running.failure, now)
            tokens.discard(running.job.lease_token)
        for running in refused:
            yield _end_job(context, running, running.failure, now, serves_others=_serves_others(context, running))
            tokens.discard(running.job.lease_token)


def probe_engine(context: StageContext, jobs: Collection[MergeJob]) -> None:
    """Runs a harmless task before jobs that ended with an error, and notes its success.

    A death afterwards is then the fault of these jobs, not of a missing engine.
    """
    check_engine(context.engine)
    with context.database.begin() as connection:
        merge_jobs.note_probe(connection, jobs)
    failpoint("merge.after_probe")


def _end_job(
    context: StageContext, running: RunningJob, failure: Failure | None, now: datetime, *, serves_others: bool = False
) -> MergeReport:
    """Commits one job or charges it. A job taken over by another worker stops no other.

    `serves_others` says that the store refuses inputs of this job and serves others.
    """
    try:
        try:
            outcome = commit_job(context, running, failure, now, serves_others=serves_others)
        except LeaseLost:
            raise
        except TerminalError as error:
            outcome = fail_job(context, running.job, str(error), now)
    except LeaseLost as error:
        context.progress(f"merge: {error}")
        return MergeReport(jobs=1)
    if serves_others and isinstance(outcome, Failure):
        outcome = replace(outcome, transient=False)
    return _report(running.plan, outcome)


def _serves_others(context: StageContext, running: RunningJob) -> bool:
    """Whether the store serves other inputs of a refused job. Then the fault lies with the job."""
    failure = running.failure
    at_source = failure is not None and failure.at_source
    bucket, keys = context.lake.bucket, running.input_keys
    # A missing object is no proof: its whole bucket may be away.
    return at_source and any(context.stores.serves(bucket, key, if_missing=False) for key in keys)


def _report(plan: PartitionPlan, outcome: MergedPartition | Failure) -> MergeReport:
    if isinstance(outcome, MergedPartition):
        return MergeReport(jobs=1, merged=(outcome,))
    problem = Problem(
        table=str(plan.table.name), date=plan.partition.date, reason=outcome.message, transient=outcome.transient
    )
    return MergeReport(jobs=1, problems=(problem,))


def _plan_job(context: StageContext, job: MergeJob, tables: Mapping[int, TableDefinition]) -> RunningJob:
    """Plans one job, and begins its rewrite. After a death the rewrite ends with the lease of the job."""
    with context.database.begin() as connection:
        plan = plan_partition(connection, job.partition_id, tables, context.lake, job.attempts)
        rewrite = _begin(context, connection, job, plan) if plan.merge.ranges else None
    return RunningJob(plan, job, datetime.now(timezone.utc), rewrite)


def _begin(context: StageContext, connection: Connection, job: MergeJob, plan: PartitionPlan) -> Rewrite:
    return rewrites.begin(
        connection,
        plan.partition,
        plan.merge.kind,
        definition_version=plan.table.version,
        worker=context.worker,
        lease_token=str(job.lease_token),
    )


def _fail_unplanned(
    context: StageContext, job: MergeJob, tables: Mapping[int, TableDefinition], error: Exception, now: datetime
) -> MergeReport:
    """Charges a job that cannot be planned, for example for a partition with contradictory rows."""
    try:
        failure = fail_job(context, job, f"the merge cannot be planned: {type(error).__name__}: {error}", now)
    except LeaseLost as lost:
        context.progress(f"merge: {lost}")
        return MergeReport(jobs=1)
    with context.database.begin() as connection:
        partition = partitions.load_partitions(connection, [job.partition_id])[job.partition_id]
    table = str(tables[partition.table_id].name)
    return MergeReport(jobs=1, problems=(Problem(table=table, date=partition.date, reason=failure.message),))


def _completed(context: StageContext, in_flight: Sequence[RunningJob], engine: _WatchedEngine) -> Iterator[RunningJob]:
    """Yields each job once all its ranges are written, or at once without any.

    A job whose keys are occupied is written again under another number, three times at most.
    """
    yield from (running for running in in_flight if not running.plan.merge.ranges)
    left = [running for running in in_flight if running.plan.merge.ranges]
    for turn in range(_TRIES):
        occupied: list[RunningJob] = []
        for running in _written(context, left, engine):
            if running.is_occupied and turn < _TRIES - 1:
                occupied.append(running)
            else:
                yield running
        left = [_under_free_number(context, running) for running in occupied]


def _written(context: StageContext, in_flight: Sequence[RunningJob], engine: _WatchedEngine) -> Iterator[RunningJob]:
    """Writes the ranges of some jobs as one Spark job. Yields each job with its last range."""
    wanted = [(running, place) for running in in_flight for place in range(len(running.plan.merge.ranges))]
    tasks = [
        range_task(running.plan, running.rewrite, place, number, context.lake)
        for number, (running, place) in enumerate(wanted)
        if running.rewrite is not None
    ]
    definitions = by_version(*(running.plan.table for running in in_flight))
    for result in run_bisected(engine, tasks, definitions) if tasks else ():
        running, place = wanted[result.number]
        running.results[place] = result
        if running.is_complete:
            yield running


def _under_free_number(context: StageContext, running: RunningJob) -> RunningJob:
    """Returns the job with a number above those of all keys of its day."""
    assert running.rewrite is not None
    highest = highest_number(context, running.plan.table, running.plan.partition.date)
    with context.database.begin() as connection:
        # Locked first: a worker that takes over the job locks this row, too, and then drops the rewrite.
        partitions.lock_partition(connection, running.job.partition_id)
        rewrites.drop(connection, running.rewrite.rewrite_id)
        rewrites.raise_numbers(connection, highest)
        rewrite = _begin(context, connection, running.job, running.plan)
    return replace(running, rewrite=rewrite, results={})


@contextmanager
def _released_on_error(
    context: StageContext, jobs: Sequence[MergeJob], engine: _WatchedEngine, now: datetime
) -> Iterator[None]:
    """Returns jobs to the waiting ones if the run ends with an error. If this fails, too, their leases expire.

    An engine that has worked and is now gone may have died of one of the jobs: they are divided like jobs of a dead
    worker. An engine that never worked proves nothing about the jobs. They keep its error, so that the next run probes
    the engine before them.
    """
    try:
        yield
    except BaseException as error:
        gone = str(error) if isinstance(error, EngineUnavailable) else None
        for job in jobs:
            with suppress(PrismError), context.database.begin() as connection:
                partitions.lock_partition(connection, job.partition_id)
                merge_jobs.lock_claimed(connection, job)
                if gone and engine.at_work:
                    fail_dead_job(connection, context, job, gone, now, proven=True)
                else:
                    merge_jobs.release(connection, job, gone, job.schedule_time)
        raise

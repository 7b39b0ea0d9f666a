"""The end of a merge job: committed, or charged with what went wrong. The partition's row is locked first."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.attempts import AttemptPolicy
from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.merge_attempts import after_death, after_failure
from prism_assets.domain.work import Failure
from prism_assets.failpoints import failpoint
from prism_assets.metadata import merge_jobs, merge_ranges, partitions, range_copies
from prism_assets.metadata.merge_jobs import MergeJob
from prism_assets.stages.context import StageContext
from prism_assets.stages.merge.job import RunningJob
from prism_assets.stages.merge.report import MergedPartition


def commit_job(
    context: StageContext, running: RunningJob, failure: Failure | None, now: datetime, *, serves_others: bool
) -> MergedPartition | Failure:
    """Commits one job: partition row, job row, then ranges, desired version, log and backlog in one transaction.

    Dying before it leaves merged objects that nothing names; the retry writes the same keys again. LeaseLost if the
    job was given to another worker meanwhile: then nothing is changed. So it is if the day was rebuilt meanwhile, as
    what was merged are rows of before; then the job waits again.
    """
    job, done = running.job, running.summary()
    failpoint("merge.before_commit")
    with context.database.begin() as connection:
        partition = partitions.lock_partition(connection, job.partition_id)
        merge_jobs.lock_claimed(connection, job)
        is_rebuilt = partition.rebuild != running.plan.partition.rebuild
        if is_rebuilt:
            merge_jobs.release(connection, job, None, job.schedule_time)
        elif failure is None and _was_overtaken(connection, running):
            failure = _OVERTAKEN
            merge_jobs.release(connection, job, None, job.schedule_time)
        elif failure is not None:
            _return_job(connection, context, job, failure, now, serves_others=serves_others)
        else:
            _save(connection, running, now)
        if running.plan.merge.ranges and not is_rebuilt:
            _log(connection, running, done, context.worker)
    if is_rebuilt:
        raise LeaseLost(f"{running.plan.table.name} {partition.date} was rebuilt meanwhile; it is merged again")
    failpoint("merge.after_commit")
    return failure or done


_OVERTAKEN = Failure(
    message="its inputs were rewritten meanwhile, without rows of an erasure; the next run merges them anew",
    transient=True,
)


def _was_overtaken(connection: Connection, running: RunningJob) -> bool:
    """Whether an input was rewritten since the merge was planned: what was merged holds rows that are to be gone."""
    partition_id = running.job.partition_id
    merge_ranges.check_chain_end(connection, partition_id, running.plan.merge)
    return not all(
        merge_ranges.load_inputs(connection, partition_id, planned).are_as_planned(planned)
        for planned in running.plan.merge.ranges
    )


def fail_job(context: StageContext, job: MergeJob, message: str, now: datetime) -> Failure:
    """Charges a job with an error that its commit met, so that it neither holds up others nor is tried for ever."""
    with context.database.begin() as connection:
        partitions.lock_partition(connection, job.partition_id)
        merge_jobs.lock_claimed(connection, job)
        failure = Failure(message=message, transient=False)
        _return_job(connection, context, job, failure, now)
    return failure


def fail_dead_job(
    connection: Connection, context: StageContext, job: MergeJob, message: str, now: datetime, *, proven: bool
) -> None:
    """Charges a locked job whose worker or engine died; `proven` if the engine was seen at work before."""
    verdict = after_death(attempts=job.attempts, alone=job.died, proven=proven, policy=_policy(context))
    merge_jobs.fail_attempt(connection, job, message, verdict, max(now, job.schedule_time))


def _return_job(
    connection: Connection,
    context: StageContext,
    job: MergeJob,
    failure: Failure,
    now: datetime,
    *,
    serves_others: bool = False,
) -> None:
    """Gives a locked job back: charged with its failure, unless that is one of the surroundings."""
    verdict = after_failure(failure, attempts=job.attempts, policy=_policy(context), source_serves_others=serves_others)
    merge_jobs.fail_attempt(connection, job, failure.message, verdict, now)


def _save(connection: Connection, running: RunningJob, now: datetime) -> None:
    """Records the ranges of a locked job, ends it, and has what is left of its partition merged next."""
    plan, job, version = running.plan.merge, running.job, running.plan.table.version
    for planned, written in zip(plan.ranges, running.written, strict=True):
        if planned.is_copy and planned.extends:
            # Of a range that was rewritten since it is no copy: the next run makes one.
            range_copies.save_copy(connection, job.partition_id, planned.extends, written, definition_version=version)
            continue
        inputs = merge_ranges.load_inputs(connection, job.partition_id, planned)
        merged = replace(written, erasure_id=inputs.erasure_id)
        merge_ranges.save_range(connection, job.partition_id, planned, merged, definition_version=version)
    failpoint("merge.in_commit")
    saved = [planned for planned in plan.ranges if not planned.is_copy]
    if saved:
        partitions.raise_desired(connection, job.partition_id, saved[-1].upper_bound)
    if any(planned.is_rewritten for planned in saved):
        partitions.raise_revision(connection, job.partition_id)  # the bounds are those that catalogs know
    merge_jobs.delete(connection, job)
    if plan.backlog:
        merge_jobs.hasten(connection, job.partition_id, now)


def _log(connection: Connection, running: RunningJob, done: MergedPartition, worker: str) -> None:
    merge_jobs.add_log(
        connection,
        running.job,
        started=running.started,
        input_objects=done.objects_in,
        input_bytes=done.bytes_in,
        output_objects=len(done.sizes),
        output_bytes=sum(done.sizes),
        row_count=done.rows,
        left_behind=done.left_behind,
        worker=worker,
        error=running.failure.message if running.failure else None,
    )


def _policy(context: StageContext) -> AttemptPolicy:
    most = context.settings.merge_max_attempts
    return AttemptPolicy(max_attempts=most, max_refusals=most)

"""The end of a merge job: a commit, or a charge for its failure. The partition's row is locked first."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import StaleRewrite
from prism_assets.domain.files.rewrites import Certificate
from prism_assets.domain.merges.attempts import after_death, after_failure
from prism_assets.domain.streams.attempts import AttemptPolicy
from prism_assets.domain.work import Failure
from prism_assets.failpoints import failpoint
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.files.merge_jobs import MergeJob
from prism_assets.metadata.rewrites import widenings
from prism_assets.stages.context import StageContext
from prism_assets.stages.merge.job import RunningJob
from prism_assets.stages.merge.report import MergedPartition
from prism_assets.stages.rewrite.commit import commit_rewrite, stage_range


def commit_job(
    context: StageContext, running: RunningJob, failure: Failure | None, now: datetime, *, serves_others: bool
) -> MergedPartition | Failure:
    """Commits one job in one transaction: partition row, job row, then ranges, desired version, log and backlog.

    A death before the commit leaves merged objects without any reference, under keys that no other merge writes. Raises
    LeaseLost, without a change, if another worker has taken the job. A job with a stale plan waits again.
    """
    job, done = running.job, running.summary()
    failpoint("merge.before_commit")
    with context.database.begin() as connection:
        partitions.lock_partition(connection, job.partition_id)
        merge_jobs.lock_claimed(connection, job)
        if failure is not None:
            _return_job(connection, context, job, failure, now, serves_others=serves_others)
        else:
            try:
                _save(connection, running, now)
            except StaleRewrite as error:
                failure = Failure(message=f"{error}, as the next run does", transient=True)
                merge_jobs.release(connection, job, None, job.schedule_time)
        if running.plan.merge.ranges:
            _log(connection, running, done, failure, context.worker)
    failpoint("merge.after_commit")
    return failure or done


def fail_job(context: StageContext, job: MergeJob, message: str, now: datetime) -> Failure:
    """Charges a job with an error of its commit, so that it neither delays others nor is tried for ever."""
    with context.database.begin() as connection:
        partitions.lock_partition(connection, job.partition_id)
        merge_jobs.lock_claimed(connection, job)
        failure = Failure(message=message, transient=False)
        _return_job(connection, context, job, failure, now)
    return failure


def fail_dead_job(
    connection: Connection, context: StageContext, job: MergeJob, message: str, now: datetime, *, proven: bool
) -> None:
    """Charges a locked job whose worker or engine died. `proven`: the engine worked just before."""
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
    """Returns a locked job to the waiting ones, and charges it unless the fault lies with the surroundings."""
    verdict = after_failure(failure, attempts=job.attempts, policy=_policy(context), source_serves_others=serves_others)
    merge_jobs.fail_attempt(connection, job, failure.message, verdict, now)


def _save(connection: Connection, running: RunningJob, now: datetime) -> None:
    """Commits the ranges of a locked job and deletes the job. Backlog of its partition is merged next."""
    job = running.job
    if running.rewrite is not None:
        chosen = [planned.replacement(file) for planned, file in running.written if not planned.is_copy]
        commit_rewrite(connection, running.rewrite, chosen, Certificate.SAME_ROWS)
        _stage_copies(connection, running)
    failpoint("merge.in_commit")
    merge_jobs.delete(connection, job)
    if running.plan.merge.backlog:
        merge_jobs.hasten(connection, job.partition_id, now)


def _stage_copies(connection: Connection, running: RunningJob) -> None:
    """Stages copies with wider types, if the widening of the table still runs: otherwise they are garbage."""
    copies = [planned.replacement(file) for planned, file in running.written if planned.is_copy]
    widening = widenings.find(connection, running.plan.table.table_id) if copies else None
    if widening is None:
        return
    for item in copies:
        stage_range(connection, widening, running.job.partition_id, item, Certificate.SAME_ROWS)


def _log(
    connection: Connection, running: RunningJob, done: MergedPartition, failure: Failure | None, worker: str
) -> None:
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
        error=failure.message if failure else None,
    )


def _policy(context: StageContext) -> AttemptPolicy:
    most = context.settings.merge_max_attempts
    return AttemptPolicy(max_attempts=most, max_refusals=most)

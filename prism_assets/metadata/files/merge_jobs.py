"""Statements on prism_merge_jobs and prism_merge_job_log. Leases run on the database's own clock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.streams.attempts import Retry, Verdict
from prism_assets.metadata.rewrites import rewrites


@dataclass(frozen=True, kw_only=True)
class MergeJob:
    """A claimed job: the right to merge one partition until the lease expires.

    A job that `died`, with a worker or an engine, is claimed alone; `last_error` ended its last attempt. `probed`: the
    engine worked after the claim.
    """

    job_id: int
    partition_id: int
    schedule_time: datetime
    lease_token: UUID
    attempts: int
    died: bool = False
    last_error: str | None = None
    probed: bool = False


def schedule(connection: Connection, partition_ids: Collection[int], at: datetime) -> int:
    """Schedules a merge of partitions whose rows the caller holds. A waiting job serves both.

    The waiting job stays locked until the caller commits. A worker that claimed it earlier would plan without the
    caller's objects and delete the job afterwards, and nobody would merge these objects.
    """
    return connection.execute(text(_SCHEDULE), {"ids": list(partition_ids), "at": at}).rowcount


_SCHEDULE = """
INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time)
SELECT id, :at FROM unnest(CAST(:ids AS bigint[])) AS w (id) ORDER BY id
ON CONFLICT (prism_partition_id, ongoing_mark) DO UPDATE SET schedule_time = prism_merge_jobs.schedule_time
"""


def hasten(connection: Connection, partition_id: int, at: datetime) -> None:
    """Schedules a merge no later than `at`, pulling a waiting job forward. The caller holds the partition's row."""
    connection.execute(text(_HASTEN), {"id": partition_id, "at": at})


_HASTEN = """
INSERT INTO prism_merge_jobs (prism_partition_id, schedule_time) VALUES (:id, :at)
ON CONFLICT (prism_partition_id, ongoing_mark) DO UPDATE
SET schedule_time = least(prism_merge_jobs.schedule_time, EXCLUDED.schedule_time)
"""


def find_waiting(connection: Connection, table_id: int, now: datetime) -> list[int]:
    """Returns the partitions of a table whose merge waits for a later time, except parked ones. Reads without locks."""
    return list(connection.execute(text(_WAITING), {"table": table_id, "now": now}).scalars())


_WAITING = """
SELECT j.prism_partition_id FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id)
WHERE p.prism_table_id = :table AND j.ongoing_mark = 0 AND NOT j.parked AND j.schedule_time > :now
"""


def claim_due(
    connection: Connection,
    *,
    now: datetime,
    limit: int,
    worker: str,
    table_ids: Collection[int] | None = None,
    day: date | None = None,
    ignore_schedule: bool = False,
    seen: Collection[int] = (),
) -> list[MergeJob]:
    """Claims waiting jobs that are due, oldest first. `ignore_schedule` claims jobs at any time, parked ones too.

    A parked job becomes due at its retry time, if it has one.

    The rows are locked with SKIP LOCKED before they are marked: without it two workers claim one job. A partition being
    merged is left out, so one worker merges it at a time. `seen` leaves out jobs already taken by this run. Jobs of
    dead workers come when there are no others, one by one, so that a fatal job is alone.
    """
    values = {
        "now": now,
        "worker": worker,
        "tables": None if table_ids is None else list(table_ids),
        "day": day,
        "ignore_schedule": ignore_schedule,
        "seen": list(seen),
    }
    rows = connection.execute(text(_CLAIM), {**values, "died": False, "limit": limit}).all()
    rows = rows or connection.execute(text(_CLAIM), {**values, "died": True, "limit": 1}).all()
    jobs = [MergeJob(**row._mapping) for row in rows]
    return sorted(jobs, key=lambda job: (job.schedule_time, job.job_id))


# Sensors find due jobs by the same conditions: `merge_queue.due_merges`.
IS_DUE = "(j.schedule_time <= :now AND (NOT j.parked OR j.retry_time <= :now))"
"""Whether the merge job `j` is due. A parked job is due at its retry time."""
DUE_TIME = "(CASE WHEN j.parked THEN j.retry_time ELSE j.schedule_time END)"
"""When the merge job `j` becomes due. The schedule of a parked job has passed. Null if only a request starts it."""
NONE_RUNS = """
    NOT EXISTS (SELECT 1 FROM prism_merge_jobs r WHERE r.prism_partition_id = j.prism_partition_id AND r.ongoing_mark > 0)
"""
"""Whether no other job is merging the partition of the merge job `j`."""

# The choice is a CTE, which is evaluated once. A subquery of IN may be evaluated for each row: it skips the rows that
# it locked before, and claims more than the limit.
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT j.prism_merge_job_id FROM prism_merge_jobs j JOIN prism_partitions p USING (prism_partition_id)
    WHERE j.ongoing_mark = 0 AND j.died = :died
        AND (CAST(:ignore_schedule AS boolean) OR {IS_DUE})
        AND (CAST(:tables AS bigint[]) IS NULL OR p.prism_table_id = ANY(CAST(:tables AS bigint[])))
        AND (CAST(:day AS date) IS NULL OR p.partition_date = :day)
        AND j.prism_merge_job_id <> ALL(CAST(:seen AS bigint[]))
        AND {NONE_RUNS}
    ORDER BY j.schedule_time, j.prism_merge_job_id LIMIT :limit FOR UPDATE OF j SKIP LOCKED
)
UPDATE prism_merge_jobs SET ongoing_mark = prism_merge_job_id, heartbeat_time = clock_timestamp(),
    lease_token = gen_random_uuid(), worker = :worker, parked = false, retry_time = NULL,
    probed = false
WHERE prism_merge_job_id IN (SELECT prism_merge_job_id FROM due)
RETURNING prism_merge_job_id AS job_id, prism_partition_id AS partition_id, schedule_time, lease_token, attempts,
    died, last_error, probed
"""


def heartbeat(connection: Connection, tokens: Collection[UUID]) -> None:
    """Renews the leases of running jobs. A job taken over has another token, and stays unchanged.

    Locks the rows of the jobs.
    """
    connection.execute(text(_HEARTBEAT), {"tokens": [str(token) for token in tokens]})


_HEARTBEAT = """
UPDATE prism_merge_jobs SET heartbeat_time = clock_timestamp()
WHERE ongoing_mark > 0 AND lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def lock_claimed(connection: Connection, job: MergeJob) -> None:
    """Locks the job's row for the commit. Raises LeaseLost if the job is gone or has another lease.

    The caller has locked the partition's row first, like all changes of a partition's jobs.
    """
    row = connection.execute(text(_LOCK_CLAIMED), {"id": job.job_id, "token": job.lease_token}).one_or_none()
    if row is None:
        raise LeaseLost(f"merge job {job.job_id} lost its lease and was given to another worker; it changed nothing")


_LOCK_CLAIMED = """
SELECT 1 FROM prism_merge_jobs
WHERE prism_merge_job_id = :id AND ongoing_mark = :id AND lease_token = :token
FOR UPDATE
"""


def delete(connection: Connection, job: MergeJob) -> None:
    """Removes a finished job. The caller holds the job's row."""
    connection.execute(text("DELETE FROM prism_merge_jobs WHERE prism_merge_job_id = :id"), {"id": job.job_id})


def note_probe(connection: Connection, jobs: Collection[MergeJob]) -> None:
    """Notes that the engine worked after the claim of these jobs. Locks their rows. Jobs with other leases stay
    unchanged.
    """
    connection.execute(text(_NOTE_PROBE), {"tokens": [str(job.lease_token) for job in jobs]})


_NOTE_PROBE = """
UPDATE prism_merge_jobs SET probed = true
WHERE ongoing_mark > 0 AND lease_token = ANY(CAST(:tokens AS uuid[]))
"""


def fail_attempt(connection: Connection, job: MergeJob, error: str, verdict: Verdict, now: datetime) -> None:
    """Returns a failed, locked job to the waiting ones, according to the verdict.

    If the verdict limits its batch, the job is claimed alone from now on.
    """
    if isinstance(verdict, Retry):
        attempts = job.attempts + 1 if verdict.charged else job.attempts
        at = now + timedelta(seconds=verdict.pause)
        _return(connection, job, attempts=attempts, error=error, at=at, died=verdict.batch_limit is not None)
        return
    retry_time = None if verdict.retry_after is None else now + timedelta(seconds=verdict.retry_after)
    _return(connection, job, attempts=job.attempts + 1, error=error, at=now, parked=True, retry_time=retry_time)


def release(connection: Connection, job: MergeJob, error: str | None, at: datetime) -> None:
    """Returns a locked job without a charge to the waiting ones, due at `at`, with its number of attempts."""
    _return(connection, job, attempts=job.attempts, error=error, at=at)


def _return(
    connection: Connection,
    job: MergeJob,
    *,
    attempts: int,
    error: str | None,
    at: datetime,
    parked: bool = False,
    retry_time: datetime | None = None,
    died: bool = False,
) -> None:
    """Makes a running job a waiting one.

    If another job already waits, it takes over the count, and this one is deleted.

    The rewrite of the job is dropped. The caller holds the rows of the partition and of the running job; the others are
    locked here.
    """
    rewrites.drop_of_lease(connection, str(job.lease_token))
    values = {
        "id": job.job_id,
        "partition": job.partition_id,
        "at": at,
        "attempts": attempts,
        "error": error,
        "parked": parked,
        "retry": retry_time,
        "died": died,
    }
    if connection.execute(text(_TAKE_OVER), values).rowcount:
        delete(connection, job)
    else:
        connection.execute(text(_RETURN), values)


_TAKE_OVER = """
UPDATE prism_merge_jobs SET schedule_time = least(schedule_time, :at), attempts = greatest(attempts, :attempts),
    last_error = coalesce(:error, last_error), parked = :parked, retry_time = CAST(:retry AS timestamptz),
    died = died OR :died
WHERE prism_partition_id = :partition AND ongoing_mark = 0
"""
_RETURN = """
UPDATE prism_merge_jobs SET ongoing_mark = 0, lease_token = NULL, heartbeat_time = NULL, worker = NULL,
    schedule_time = :at, attempts = :attempts, last_error = coalesce(:error, last_error), parked = :parked,
    retry_time = CAST(:retry AS timestamptz), died = died OR :died, probed = false
WHERE prism_merge_job_id = :id
"""


def expired(connection: Connection, lease_seconds: float) -> list[MergeJob]:
    """Returns running jobs with a heartbeat older than the lease. Takes no locks: check again under the partition's
    lock.
    """
    return [MergeJob(**row._mapping) for row in connection.execute(text(_EXPIRED), {"lease": lease_seconds})]


_EXPIRED = """
SELECT prism_merge_job_id AS job_id, prism_partition_id AS partition_id, schedule_time, lease_token, attempts,
    died, last_error, probed
FROM prism_merge_jobs
WHERE ongoing_mark > 0 AND heartbeat_time < clock_timestamp() - make_interval(secs => :lease)
ORDER BY prism_partition_id
"""


def is_expired(connection: Connection, job: MergeJob, lease_seconds: float) -> bool:
    """Whether a locked job still has no fresh heartbeat."""
    values = {"id": job.job_id, "lease": lease_seconds}
    return bool(connection.execute(text(_IS_EXPIRED), values).scalar_one())


_IS_EXPIRED = """
SELECT heartbeat_time < clock_timestamp() - make_interval(secs => :lease) FROM prism_merge_jobs
WHERE prism_merge_job_id = :id
"""


def add_log(
    connection: Connection,
    job: MergeJob,
    *,
    started: datetime,
    input_objects: int,
    input_bytes: int,
    output_objects: int,
    output_bytes: int,
    row_count: int,
    left_behind: int,
    worker: str,
    error: str | None,
) -> None:
    """Writes one line of job history. Locks the partition it refers to against deletion."""
    connection.execute(
        text(_ADD_LOG),
        {
            "job": job.job_id,
            "partition": job.partition_id,
            "scheduled": job.schedule_time,
            "started": started,
            "inputs": input_objects,
            "input_bytes": input_bytes,
            "outputs": output_objects,
            "output_bytes": output_bytes,
            "rows": row_count,
            "left": left_behind,
            "worker": worker,
            "error": error,
        },
    )


_ADD_LOG = """
INSERT INTO prism_merge_job_log (prism_merge_job_id, prism_partition_id, schedule_time, start_time, finish_time,
    input_objects, input_bytes, output_objects, output_bytes, row_count, left_behind, worker, error)
VALUES (:job, :partition, :scheduled, :started, clock_timestamp(), :inputs, :input_bytes, :outputs, :output_bytes,
    :rows, :left, :worker, :error)
"""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The state of a job for status and sensors."""

    partition_id: int
    schedule_time: datetime
    running: bool
    attempts: int
    parked: bool
    last_error: str | None
    due_time: datetime | None
    """The time from which on a worker takes the job. None if only a request starts it."""

    def is_due(self, now: datetime) -> bool:
        """Whether a worker takes the waiting job without a request."""
        return not self.running and self.due_time is not None and self.due_time <= now


def tables_merging(connection: Connection, table_ids: Collection[int], day: date) -> set[int]:
    """Returns the tables with a running job for their partition of a day. Reads without locks."""
    return set(connection.execute(text(_MERGING), {"tables": list(table_ids), "day": day}).scalars())


_MERGING = """
SELECT DISTINCT p.prism_table_id FROM prism_merge_jobs JOIN prism_partitions p USING (prism_partition_id)
WHERE ongoing_mark > 0 AND p.prism_table_id = ANY(:tables) AND p.partition_date = :day
"""


def load_status(connection: Connection) -> list[JobStatus]:
    """Returns all jobs, waiting and running. Reads without locks."""
    return [JobStatus(**row._mapping) for row in connection.execute(text(_STATUS))]


_STATUS = f"""
SELECT prism_partition_id AS partition_id, schedule_time, ongoing_mark > 0 AS running, attempts, parked, last_error,
    {DUE_TIME} AS due_time
FROM prism_merge_jobs j
ORDER BY prism_partition_id, ongoing_mark DESC
"""

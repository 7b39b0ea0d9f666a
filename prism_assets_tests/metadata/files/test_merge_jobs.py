"""Merge jobs: scheduling, leases, failures and parking; and the ranges they leave."""

from __future__ import annotations

from datetime import timedelta

import pytest

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.streams.attempts import GiveUp, Retry, Verdict
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs, merge_queue, merge_ranges, small_objects
from prism_assets.metadata.files.merge_jobs import MergeJob
from prism_assets_tests.metadata.rows import DAY, KEYS, NOON, Rows, a_planned_range, claim, merge_range

LATER = NOON + timedelta(hours=1)


@pytest.fixture
def partition(rows: Rows) -> int:
    return rows.partition(rows.table())


AFTER_AN_HOUR = Retry(pause=3_600.0, charged=True)


def fail_attempt(rows: Rows, job: MergeJob, error: str = "boom", verdict: Verdict = AFTER_AN_HOUR) -> None:
    with rows.database.begin() as connection:
        partitions.lock_partition(connection, job.partition_id)
        merge_jobs.fail_attempt(connection, job, error, verdict, NOON)


def test_a_job_waits_for_its_time(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition, LATER)
    with rows.database.begin() as connection:
        assert claim(connection, NOON) == []
        assert len(claim(connection, LATER)) == 1


def test_a_second_schedule_rides_on_the_job_that_waits(rows: Rows, partition: int) -> None:
    job = rows.waiting_job(partition, LATER)
    assert rows.waiting_job(partition, NOON) == job
    with rows.database.begin() as connection:
        assert claim(connection, NOON) == []


def test_hastening_pulls_a_waiting_job_forward_and_never_back(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition, LATER)
    for at in (NOON, LATER):
        with rows.database.begin() as connection:
            merge_jobs.hasten(connection, partition, at)
    assert rows.claimed_job(NOON).schedule_time == NOON


def test_the_oldest_jobs_are_claimed_first(rows: Rows) -> None:
    table = rows.table()
    for offset in range(4):
        rows.waiting_job(rows.partition(table, DAY + timedelta(days=offset)), NOON - timedelta(hours=offset))
    with rows.database.begin() as connection:
        times = [job.schedule_time for job in claim(connection, limit=2)]
    assert times == [NOON - timedelta(hours=3), NOON - timedelta(hours=2)]


def test_jobs_are_claimed_by_table_and_day(rows: Rows) -> None:
    mine, yours = rows.table(), rows.table("log.others")
    first, second = rows.partition(mine), rows.partition(yours)
    rows.waiting_job(first)
    rows.waiting_job(second)
    with rows.database.begin() as connection:
        assert claim(connection, day=DAY + timedelta(days=1)) == []
        assert [job.partition_id for job in claim(connection, table_ids=[yours.table_id])] == [second]
        assert [job.partition_id for job in claim(connection, day=DAY)] == [first]


def test_jobs_seen_in_this_run_are_left_alone(rows: Rows, partition: int) -> None:
    job = rows.waiting_job(partition)
    with rows.database.begin() as connection:
        assert claim(connection, seen=[job]) == []


def test_a_job_that_failed_waits_again_with_its_error(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    fail_attempt(rows, rows.claimed_job(NOON))
    with rows.database.begin() as connection:
        (status,) = merge_jobs.load_status(connection)
        assert claim(connection, NOON) == []
    assert (status.attempts, status.last_error, status.running, status.parked) == (1, "boom", False, False)
    assert status.schedule_time == LATER
    assert rows.claimed_job(LATER).attempts == 1


def test_a_job_that_failed_too_often_is_parked_and_not_claimed(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    verdicts: list[Verdict] = [AFTER_AN_HOUR, AFTER_AN_HOUR, GiveUp()]
    for turn, verdict in enumerate(verdicts):
        fail_attempt(rows, rows.claimed_job(LATER), f"boom {turn}", verdict)
    with rows.database.begin() as connection:
        (status,) = merge_jobs.load_status(connection)
        assert claim(connection, LATER + timedelta(days=9)) == []
    assert (status.parked, status.attempts, status.last_error) == (True, 3, "boom 2")


def test_a_parked_job_is_claimed_by_itself_at_its_retry_time(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    fail_attempt(rows, rows.claimed_job(NOON), verdict=GiveUp(retry_after=7_200.0))
    with rows.database.begin() as connection:
        (status,) = merge_jobs.load_status(connection)
        assert (status.parked, status.due_time) == (True, NOON + timedelta(hours=2))
        assert (status.is_due(LATER), status.is_due(NOON + timedelta(hours=2))) == (False, True)
        assert merge_queue.merge_queue(connection).next_time == status.due_time
        assert claim(connection, LATER) == []
        (job,) = claim(connection, NOON + timedelta(hours=2))
    assert (job.attempts, job.last_error) == (1, "boom")


def test_a_verdict_that_charges_nothing_leaves_the_tries_and_may_set_a_job_apart(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    fail_attempt(rows, rows.claimed_job(NOON), verdict=Retry(pause=0.0, charged=False, batch_limit=1))
    job = rows.claimed_job(NOON)
    assert (job.attempts, job.died, job.probed) == (0, True, False)


def test_a_probe_is_noted_for_this_claim_alone(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    job = rows.claimed_job(NOON)
    with rows.database.begin() as connection:
        merge_jobs.note_probe(connection, [job])
    rows.sql("UPDATE prism_merge_jobs SET heartbeat_time = heartbeat_time - interval '1 minute'")
    with rows.database.begin() as connection:
        assert [found.probed for found in merge_jobs.expired(connection, 30)] == [True]
    fail_attempt(rows, job)
    assert rows.claimed_job(LATER).probed is False


def test_a_parked_job_is_claimed_when_somebody_asks_for_all(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    fail_attempt(rows, rows.claimed_job(NOON), verdict=GiveUp())
    with rows.database.begin() as connection:
        (job,) = claim(connection, NOON, ignore_schedule=True)
    assert job.attempts == 1


def test_a_failed_job_gives_its_count_to_the_one_that_waits(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    running = rows.claimed_job()
    waiting = rows.waiting_job(partition, LATER + timedelta(hours=5))
    fail_attempt(rows, running)
    with rows.database.begin() as connection:
        (status,) = merge_jobs.load_status(connection)
    assert (status.attempts, status.last_error, status.schedule_time) == (1, "boom", LATER)
    assert rows.claimed_job(LATER).job_id == waiting


def test_only_the_holder_of_the_lease_gets_the_job_for_its_commit(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    old = rows.claimed_job()
    fail_attempt(rows, old)
    new = rows.claimed_job(LATER)
    assert new.lease_token != old.lease_token
    with pytest.raises(LeaseLost, match="changed nothing"), rows.database.begin() as connection:
        merge_jobs.lock_claimed(connection, old)
    with rows.database.begin() as connection:
        merge_jobs.lock_claimed(connection, new)


def test_a_heartbeat_keeps_a_lease_and_only_its_own(rows: Rows, partition: int) -> None:
    rows.waiting_job(partition)
    job = rows.claimed_job()
    rows.sql("UPDATE prism_merge_jobs SET heartbeat_time = heartbeat_time - interval '1 minute'")
    with rows.database.begin() as connection:
        assert [found.job_id for found in merge_jobs.expired(connection, 30)] == [job.job_id]
        assert merge_jobs.is_expired(connection, job, 30)
        merge_jobs.heartbeat(connection, [])
        assert merge_jobs.is_expired(connection, job, 30)
    with rows.database.begin() as connection:
        merge_jobs.heartbeat(connection, [job.lease_token])
    with rows.database.begin() as connection:
        assert merge_jobs.expired(connection, 30) == []
        assert not merge_jobs.is_expired(connection, job, 30)


def test_the_desired_version_is_never_lowered(rows: Rows, partition: int) -> None:
    for upper in (5, 9, 3):
        with rows.database.begin() as connection:
            partitions.raise_desired(connection, partition, upper)
    assert rows.load(partition).desired_version == 9


def test_the_shrinkage_is_that_of_the_ranges_there_are(rows: Rows) -> None:
    table = rows.table()
    partition = rows.partition(table)
    rows.small(table, 4)
    with rows.database.begin() as connection:
        found = small_objects.load_above(connection, KEYS, partition, 0)
        assert merge_ranges.observed_shrinkage(connection, partition) is None
        merge_range(connection, partition, a_planned_range(found[:2]), content_length=100)
        assert merge_ranges.observed_shrinkage(connection, partition) == pytest.approx(0.5)

"""The races of protocol §8 between two real connections, ordered statement by statement.

Each is played twice: with the statement as one would write it first, which goes wrong, and with ours.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import StaleRewrite
from prism_assets.domain.files.rewrites import Certificate
from prism_assets.metadata import locks
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.files import merge_jobs, merge_ranges, small_objects
from prism_assets.metadata.intake import backlog, batches, claims
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets_tests.metadata.rows import (
    DAY,
    KEYS,
    NOON,
    Rows,
    a_planned_range,
    begin_rewrite,
    claim,
    insert_small,
    merge_range,
    written_of,
)
from prism_assets_tests.metadata.sessions import Sessions

NAIVE_JOB_CLAIM = (
    "UPDATE prism_merge_jobs SET ongoing_mark = prism_merge_job_id, lease_token = gen_random_uuid() "
    "WHERE prism_merge_job_id IN (SELECT prism_merge_job_id FROM prism_merge_jobs WHERE ongoing_mark = 0 "
    "ORDER BY schedule_time LIMIT 1) RETURNING prism_merge_job_id"
)
NAIVE_OBJECT_CLAIM = (
    "UPDATE prism_staging_objects SET state = 'claimed', prism_stream_batch_id = :batch, first_batch_id = :batch "
    "WHERE prism_staging_object_id IN (SELECT prism_staging_object_id FROM prism_staging_objects "
    "WHERE state = 'pending' LIMIT 1) RETURNING prism_staging_object_id"
)
NAIVE_INSERT = (
    "INSERT INTO prism_small_objects (prism_staging_object_id, prism_partition_id, delayed, content_length, "
    "upload_start_time, row_count, min_time, max_time, fingerprint, definition_version) "
    "SELECT :staging, p.prism_partition_id, p.last_live_object_id IS NOT NULL, 1, now(), 1, now(), now(), 1, 1 "
    "FROM prism_partitions p WHERE p.prism_partition_id = :partition RETURNING prism_small_object_id"
)
NAIVE_CLOSE = (
    "UPDATE prism_partitions SET closing_batch_id = 0, last_live_object_id = (SELECT max(prism_small_object_id) "
    "FROM prism_small_objects WHERE prism_partition_id = :partition AND NOT delayed) "
    "WHERE prism_partition_id = :partition"
)
ABOVE = "SELECT prism_small_object_id FROM prism_small_objects WHERE prism_small_object_id > :bound ORDER BY 1"


# H1: claiming without a row lock


def test_h1_a_claim_without_row_locks_gives_one_job_to_two_workers(rows: Rows, sessions: Sessions) -> None:
    job = rows.waiting_job(rows.partition(rows.table()))
    first, second = sessions.open(), sessions.open()
    assert first.sql(NAIVE_JOB_CLAIM) == [(job,)]
    answer = second.start(lambda connection: connection.exec_driver_sql(NAIVE_JOB_CLAIM).all())
    second.wait_until_blocked()
    first.commit()
    assert answer.result(timeout=120) == [(job,)]


def test_h1_our_claim_gives_a_job_to_one_worker(rows: Rows, sessions: Sessions) -> None:
    job = rows.waiting_job(rows.partition(rows.table()))
    first, second = sessions.open(), sessions.open()
    assert [found.job_id for found in first.do(claim)] == [job]
    assert second.do(claim) == []
    first.commit()
    assert second.do(claim) == []


def test_h1_our_claim_passes_over_what_is_being_claimed(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    jobs = [rows.waiting_job(rows.partition(table, DAY + timedelta(days=day))) for day in range(2)]
    first, second = sessions.open(), sessions.open()
    assert [found.job_id for found in first.do(lambda connection: claim(connection, limit=1))] == jobs[:1]
    assert [found.job_id for found in second.do(claim)] == jobs[1:]


def test_h1_our_claim_keeps_to_its_limit_whatever_the_plan(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    jobs = [rows.waiting_job(rows.partition(table, DAY + timedelta(days=day))) for day in range(5)]
    session = sessions.open()
    # What is left to the planner is a nested loop that asks again and again.
    others = ("hashjoin", "mergejoin", "hashagg", "sort", "material")
    others_off = "".join(f"SET LOCAL enable_{kind} = off;" for kind in others)
    session.do(lambda connection: connection.exec_driver_sql(others_off))
    assert [found.job_id for found in session.do(lambda connection: claim(connection, limit=2))] == jobs[:2]


def test_h1_a_claim_without_row_locks_gives_one_object_to_two_batches(rows: Rows, sessions: Sessions) -> None:
    (staging,) = rows.staging(rows.table())
    mine, yours = rows.batch(), rows.batch()
    first, second = sessions.open(), sessions.open()
    assert first.sql(NAIVE_OBJECT_CLAIM, batch=mine.batch_id) == [(staging,)]
    statement = NAIVE_OBJECT_CLAIM.replace(":batch", str(yours.batch_id))
    answer = second.start(lambda connection: connection.exec_driver_sql(statement).all())
    second.wait_until_blocked()
    first.commit()
    assert answer.result(timeout=120) == [(staging,)]


def test_h1_our_claim_gives_an_object_to_one_batch(rows: Rows, sessions: Sessions) -> None:
    (staging,) = rows.staging(rows.table())
    mine, yours = rows.batch(), rows.batch()
    first, second = sessions.open(), sessions.open()
    claimed = first.do(lambda connection: claims.claim_pending(connection, mine.batch_id, None, 10, 1_000))
    assert [item.staging_object_id for item in claimed] == [staging]
    assert second.do(lambda connection: claims.claim_pending(connection, yours.batch_id, None, 10, 1_000)) == []
    first.commit()
    assert second.do(lambda connection: claims.claim_pending(connection, yours.batch_id, None, 10, 1_000)) == []


# H2: the tier decided from a snapshot while another session closes


def test_h2_a_tier_read_from_a_snapshot_leaves_a_live_object_behind_the_close(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    partition = rows.partition(table)
    rows.small(table)
    (late,) = rows.staging(table)
    stream, catalog = sessions.open(), sessions.open()
    ((committed_late,),) = stream.sql(NAIVE_INSERT, staging=late, partition=partition)
    catalog.sql(NAIVE_CLOSE, partition=partition)
    catalog.commit()
    stream.commit()
    lost = rows.sql(
        "SELECT s.prism_small_object_id FROM prism_small_objects s JOIN prism_partitions p USING (prism_partition_id) "
        "WHERE NOT s.delayed AND s.prism_small_object_id > p.last_live_object_id"
    )
    assert lost == [(committed_late,)]


def test_h2_our_mark_waits_until_a_batch_has_started(rows: Rows, sessions: Sessions) -> None:
    partition = rows.partition(rows.table())
    stream, catalog = sessions.open(), sessions.open()
    stream.do(locks.share_epoch)
    batch = stream.do(lambda connection: batches.insert_batch(connection, "w"))
    marks = catalog.start(lambda connection: _mark(connection, partition))
    catalog.wait_until_blocked()
    stream.commit()
    assert marks.result(timeout=120) == {partition: batch.batch_id}


def test_h2_our_close_waits_for_every_object_seen_before_the_mark(rows: Rows, sessions: Sessions) -> None:
    """So no live object can lie above the last one, however late its batch commits."""
    table = rows.table()
    partition = rows.partition(table)
    early = rows.small(table)[0]
    rows.sql("UPDATE prism_staging_objects SET state = 'done', lines_in = 1, rows_out = 1, rows_quarantined = 0")
    (late,) = rows.staging(table)
    batch = rows.batch()
    with rows.database.begin() as connection:
        claims.claim_pending(connection, batch.batch_id, None, 10, 1_000)
    stream, catalog = sessions.open(), sessions.open()
    live = stream.do(lambda connection: insert_small(connection, table, late))
    assert catalog.do(lambda connection: _mark_free(connection, partition)) == {}
    stream.sql("UPDATE prism_staging_objects SET state = 'done', lines_in = 1, rows_out = 1, rows_quarantined = 0")
    left = catalog.do(lambda connection: backlog.unfinished_before(connection, table.table_id, batch.batch_id))
    assert left == 1
    stream.commit()
    assert catalog.do(lambda connection: backlog.unfinished_before(connection, table.table_id, batch.batch_id)) == 0
    assert catalog.do(lambda connection: _mark(connection, partition)) == {partition: batch.batch_id}
    assert catalog.do(lambda connection: partitions.close(connection, partition)) == live > early


def test_h2_a_close_waits_for_the_commit_that_holds_the_partition(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    partition = rows.partition(table)
    (late,) = rows.staging(table)
    stream, catalog = sessions.open(), sessions.open()
    live = stream.do(lambda connection: insert_small(connection, table, late))
    closing = catalog.start(lambda connection: _lock_mark_and_close(connection, partition))
    catalog.wait_until_blocked()
    stream.commit()
    assert closing.result(timeout=120) == live


def _mark(connection: Connection, partition: int) -> dict[int, int]:
    locks.hold_epoch(connection)
    return partitions.mark_closing(connection, [partition])


def _mark_free(connection: Connection, partition: int) -> dict[int, int]:
    """Marks only if the row is free, so that the test goes on."""
    statement = "SELECT 1 FROM prism_partitions WHERE prism_partition_id = %s FOR UPDATE SKIP LOCKED"
    return _mark(connection, partition) if connection.exec_driver_sql(statement, (partition,)).all() else {}


def _lock_mark_and_close(connection: Connection, partition: int) -> int:
    partitions.lock_partition(connection, partition)
    _mark(connection, partition)
    return partitions.close(connection, partition)


# H3: ids taken before commit become visible out of order


def test_h3_ids_taken_before_the_commit_let_a_merge_pass_over_an_object(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    partition = rows.partition(table)
    one, two = rows.staging(table, 2)
    slow, quick = sessions.open(), sessions.open()
    ((low,),) = slow.sql(NAIVE_INSERT, staging=one, partition=partition)
    ((high,),) = quick.sql(NAIVE_INSERT, staging=two, partition=partition)
    quick.commit()
    assert rows.sql(ABOVE, bound=0) == [(high,)]
    slow.commit()
    assert low < high
    assert rows.sql(ABOVE, bound=high) == []


def test_h3_our_ids_are_taken_in_the_order_of_the_commits(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    partition = rows.partition(table)
    one, two = rows.staging(table, 2)
    slow, quick = sessions.open(), sessions.open()
    low = slow.do(lambda connection: insert_small(connection, table, one))
    waiting = quick.start(lambda connection: insert_small(connection, table, two))
    quick.wait_until_blocked()
    assert rows.sql(ABOVE, bound=0) == []
    slow.commit()
    high = waiting.result(timeout=120)
    with rows.database.begin() as connection:
        merged = small_objects.load_above(connection, KEYS, partition, 0)
    assert [item.object_id for item in merged] == [low]
    quick.commit()
    with rows.database.begin() as connection:
        assert [item.object_id for item in small_objects.load_above(connection, KEYS, partition, low)] == [high]


def test_h3_commits_to_the_same_partitions_do_not_wait_in_a_circle(rows: Rows, sessions: Sessions) -> None:
    table = rows.table()
    days = [DAY + timedelta(days=offset) for offset in range(3)]
    first, second = sessions.open(), sessions.open()
    wanted = [(table.table_id, day) for day in days]
    made = first.do(lambda connection: partitions.ensure_and_lock(connection, wanted))
    again = second.start(lambda connection: partitions.ensure_and_lock(connection, wanted[::-1]))
    second.wait_until_blocked()
    first.commit()
    assert again.result(timeout=120) == made


# H7: two catalog runs


def test_h7_a_record_that_is_just_overwritten_moves_back_to_an_older_manifest(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    naive = "UPDATE prism_publications SET version = :v WHERE prism_partition_id = :p"
    with rows.database.begin() as connection:
        publications.advance(connection, partition, "glue", Publication(0, 0), NOON, dirty=False)
    for version in (9, 5):
        rows.sql(naive, v=version, p=partition)
    assert rows.load(partition).current_version == 5


def test_h7_our_record_goes_upwards_only(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    for publication, accepted in [
        (Publication(5, 5), True),
        (Publication(9, 9), True),
        (Publication(5, 5), False),
        (Publication(9, 9), True),
        (Publication(9, 12), True),
        (Publication(9, 9), False),
        (Publication(10, 11), False),
        (Publication(12, 12), True),
    ]:
        with rows.database.begin() as connection:
            assert publications.advance(connection, partition, "glue", publication, NOON, dirty=False) is accepted
    assert (rows.load(partition).current_version, rows.load(partition).published_object_id) == (12, 12)


# Two merges of one partition


def test_a_merge_that_was_overtaken_changes_nothing(rows: Rows) -> None:
    table = rows.table()
    partition = rows.partition(table)
    rows.small(table, 2)
    with rows.database.begin() as connection:
        one, other = small_objects.load_above(connection, KEYS, partition, 0)
        mine = begin_rewrite(connection, partition)
        merge_range(connection, partition, a_planned_range([one, other]))
    planned = a_planned_range([one])
    chosen = [planned.replacement(written_of(planned, mine))]
    with pytest.raises(StaleRewrite, match="the ranges end at 2"), rows.database.begin() as connection:
        commit_rewrite(connection, mine, chosen, Certificate.SAME_ROWS)
    with rows.database.begin() as connection:
        chain = merge_ranges.load_chain(connection, KEYS, partition)
    (found,) = chain
    assert (found.lower_bound, found.upper_bound) == (0, 2)
    assert (found.content_length, found.row_count, found.fingerprint) == (200, 20, 14)


def test_a_second_job_of_a_partition_is_not_claimed_while_the_first_runs(rows: Rows) -> None:
    partition = rows.partition(rows.table())
    rows.waiting_job(partition)
    running = rows.claimed_job()
    waiting = rows.waiting_job(partition)
    with rows.database.begin() as connection:
        assert claim(connection) == []
        partitions.lock_partition(connection, partition)
        merge_jobs.lock_claimed(connection, running)
        merge_jobs.delete(connection, running)
    assert rows.claimed_job().job_id == waiting

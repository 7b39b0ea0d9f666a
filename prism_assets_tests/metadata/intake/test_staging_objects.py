"""Staging objects: registration, fair and bounded claims, failures, and batches without their lease."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from prism_assets.domain.errors import InvariantBroken, LeaseLost
from prism_assets.domain.streams.attempts import GiveUp, Retry, Verdict
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.work.convert import ConvertResult, QuarantineCount, SourceVersion
from prism_assets.metadata.intake import (
    abandoned_uploads,
    attempts,
    backlog,
    batches,
    claims,
    ledgers,
    staging_objects,
    streams,
)
from prism_assets.metadata.intake.attempts import ChangedObject, FailedAttempt
from prism_assets.metadata.intake.batches import DeadBatch
from prism_assets.metadata.intake.claims import ClaimedObject
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.intake.unread_objects import Unread, load_unread
from prism_assets_tests.metadata.rows import NOON, Rows
from prism_assets_tests.metadata.sessions import Sessions


def claim(rows: Rows, count: int = 100, size: int = 1 << 30, tables: list[int] | None = None) -> list[ClaimedObject]:
    """Claims for a separate batch."""
    batch = rows.batch()
    with rows.database.begin() as connection:
        return claims.claim_pending(connection, batch.batch_id, tables, count, size)


def fail(connection: Connection, item: ClaimedObject, verdict: Verdict | None = None, batch: int | None = None) -> None:
    """Ends the attempt of the object's first batch, or of another."""
    verdict = verdict or Retry(pause=0, charged=True)
    failed = FailedAttempt(staging_object_id=item.staging_object_id, error="boom", verdict=verdict)
    attempts.fail_attempts(connection, batch or item.first_batch_id, [failed])


def by_table(claimed: list[ClaimedObject]) -> Counter[int]:
    return Counter(item.table_id for item in claimed)


def an_object(key: str) -> FoundObject:
    return FoundObject(bucket="staging", key=key, etag="e", content_length=1, send_time=NOON)


def test_registering_known_objects_adds_nothing_and_burns_no_ids(rows: Rows) -> None:
    table = rows.table()
    rows.staging(table, 3)
    found = [an_object(f"events/{number:06}") for number in range(1, 4)]
    with rows.database.begin() as connection:
        assert staging_objects.register(connection, 1, found, NOON) == 0
        assert staging_objects.register(connection, 1, [an_object("events/new")], NOON) == 1
    assert rows.value("SELECT max(prism_staging_object_id) FROM prism_staging_objects") == 4


def again(etag: str, seconds: float, *, length: int = 1) -> FoundObject:
    """Returns the object of `an_object("events/1")`, reported this many seconds later."""
    sent = NOON + timedelta(seconds=seconds)
    return FoundObject(bucket="staging", key="events/1", etag=etag, content_length=length, send_time=sent)


def register(rows: Rows, *found: FoundObject, listed: bool = False) -> int:
    with rows.database.begin() as connection:
        return staging_objects.register(connection, 1, found, NOON, listed=listed)


def recorded(rows: Rows) -> list[tuple[str, int]]:
    return [tuple(row) for row in rows.sql("SELECT etag, content_length FROM prism_staging_objects")]


def everything(rows: Rows) -> list[tuple[object, ...]]:
    """All that a registration may change."""
    objects = rows.sql("SELECT * FROM prism_staging_objects ORDER BY prism_staging_object_id")
    return [tuple(row) for row in (*objects, *rows.sql("SELECT found_any FROM prism_streams ORDER BY prism_stream_id"))]


STATES = {
    "unknown": "DELETE FROM prism_staging_objects",
    "pending": "SELECT 1",
    "failed": "UPDATE prism_staging_objects SET state = 'failed', first_batch_id = 1",
    "failed without a time": "UPDATE prism_staging_objects SET state = 'failed', first_batch_id = 1, send_time = NULL",
    "done": "UPDATE prism_staging_objects SET state = 'done', first_batch_id = 1, lines_in = 0, rows_out = 0, "
    "rows_quarantined = 0",
    "done without an ETag": "UPDATE prism_staging_objects SET state = 'done', first_batch_id = 1, etag = NULL, "
    "lines_in = 0, rows_out = 0, rows_quarantined = 0",
    "of another stream": "UPDATE prism_streams SET found_any = false",
    "of a removed stream": "UPDATE prism_streams SET removed = true, enabled = false",
}
FOUND = [again(etag, seconds, length=length) for etag in ("e", "f") for seconds in (-1, 0, 1) for length in (1, 2)]


@pytest.mark.parametrize("state", STATES)
def test_a_listing_without_news_has_nothing_to_register(rows: Rows, state: str) -> None:
    """Otherwise a new object, or a new version of one, would wait for ever."""
    rows.table()
    for found in (*FOUND, replace(FOUND[0], etag=None), replace(FOUND[0], send_time=None)):
        rows.sql("DELETE FROM prism_staging_objects")
        rows.sql("UPDATE prism_streams SET removed = false, enabled = true")
        register(rows, again("e", 0.5))
        rows.sql(STATES[state])
        before = everything(rows)
        with rows.database.begin() as connection:
            is_news = staging_objects.has_news(connection, 1, [found])
        register(rows, found, listed=True)
        assert is_news or everything(rows) == before, found


def test_objects_of_the_last_listing_are_no_news_until_one_more_is_found(rows: Rows) -> None:
    rows.table()
    known = [an_object("events/1"), an_object("events/2")]
    register(rows, *known)
    with rows.database.begin() as connection:
        asked = [staging_objects.has_news(connection, 1, found) for found in (known, [*known, an_object("events/3")])]
    assert asked == [False, True]


def test_an_object_that_waits_is_taken_as_it_was_written_last(rows: Rows) -> None:
    rows.table()
    assert register(rows, an_object("events/1")) == 1
    assert register(rows, again("f", 1, length=2), an_object("events/2")) == 1
    assert sorted(recorded(rows)) == [("e", 1), ("f", 2)]


@pytest.mark.parametrize(
    ("seconds", "etag"),
    [
        (-1, "e"),
        (0.4, "e"),  # an event of before
        (0.5, "e"),
        (0.6, "f"),
        (0, "f"),  # a listing, in whole seconds
        (1, "f"),
    ],
)
def test_what_was_sent_later_is_newer(rows: Rows, seconds: float, etag: str) -> None:
    rows.table()
    register(rows, again("e", 0.5))
    assert register(rows, again("f", seconds)) == 0
    assert recorded(rows) == [(etag, 1)]


def test_an_object_that_was_claimed_once_stays_as_it_is(rows: Rows) -> None:
    """Or a second try would write other rows under the keys of the first."""
    rows.table()
    register(rows, an_object("events/1"))
    (item,) = claim(rows)
    register(rows, again("f", 1))
    with rows.database.begin() as connection:
        fail(connection, item)
    register(rows, again("f", 1))
    assert recorded(rows) == [("e", 1)]


def test_a_claim_that_comes_first_keeps_the_object_as_it_was(rows: Rows, sessions: Sessions) -> None:
    rows.table()
    register(rows, an_object("events/1"))
    batch = rows.batch()
    claiming, telling = sessions.open(), sessions.open()
    (item,) = claiming.do(lambda connection: claims.claim_pending(connection, batch.batch_id, None, 9, 1 << 30))
    told = telling.start(lambda connection: staging_objects.register(connection, 1, [again("f", 1)], NOON))
    telling.wait_until_blocked()
    claiming.commit()
    assert told.result(timeout=120) == 0
    telling.commit()
    assert (item.etag, recorded(rows)) == ("e", [("e", 1)])


def test_an_object_that_is_told_anew_is_claimed_afterwards(rows: Rows, sessions: Sessions) -> None:
    rows.table()
    register(rows, an_object("events/1"))
    telling = sessions.open()
    telling.do(lambda connection: staging_objects.register(connection, 1, [again("f", 1)], NOON))
    assert claim(rows) == []
    telling.commit()
    assert [item.etag for item in claim(rows)] == ["f"]


def test_two_that_find_an_object_at_once_leave_it_as_it_was_written_last(rows: Rows, sessions: Sessions) -> None:
    rows.table()
    first, second = sessions.open(), sessions.open()
    first.do(lambda connection: staging_objects.register(connection, 1, [again("e", 0)], NOON))
    told = second.start(lambda connection: staging_objects.register(connection, 1, [again("f", 1)], NOON))
    second.wait_until_blocked()
    first.commit()
    assert told.result(timeout=120) == 0
    second.commit()
    assert recorded(rows) == [("f", 1)]


def test_an_object_waits_for_the_removal_of_what_its_former_starts_uploaded(rows: Rows) -> None:
    rows.table()
    register(rows, an_object("events/1"))
    rows.sql("UPDATE prism_staging_objects SET generation = 1")
    rows.sql("INSERT INTO prism_abandoned_uploads VALUES (1, 0, 1, '2026-03-01', '2026-03-01', now())")
    with rows.database.begin() as connection:
        assert len(abandoned_uploads.due_uploads(connection, None, 10)) == 1
    assert claim(rows) == []


UPLOADED = (
    "INSERT INTO prism_abandoned_uploads VALUES (1, 0, 1, '2026-03-01', '2026-03-01', now() + interval '1 hour', {})"
)
BEGUN_ANEW = "UPDATE prism_staging_objects SET generation = 1"
FLIPS = "UPDATE prism_tables SET intake_paused_until = now() + interval '1 hour'"
STOPPED = "UPDATE prism_streams SET enabled = false"


@pytest.mark.parametrize(
    ("changes", "is_claimed"),
    [
        ([], True),
        (["UPDATE prism_staging_objects SET retry_time = now() + interval '1 hour'"], False),
        ([BEGUN_ANEW], True),
        ([BEGUN_ANEW, UPLOADED.format(False)], False),
        ([BEGUN_ANEW, UPLOADED.format(True)], True),
        ([BEGUN_ANEW, "UPDATE prism_staging_objects SET batch_limit = 1", UPLOADED.format(False)], False),
        ([FLIPS], False),
        ([FLIPS, "UPDATE prism_staging_objects SET first_batch_id = 1"], True),
        ([STOPPED], False),
        ([STOPPED, BEGUN_ANEW], True),
        ([STOPPED, BEGUN_ANEW, UPLOADED.format(False)], False),
    ],
)
def test_sensors_count_as_pending_what_a_batch_may_claim(rows: Rows, changes: list[str], is_claimed: bool) -> None:
    rows.table()
    register(rows, an_object("events/1"))
    rows.batch()
    for change in changes:
        rows.sql(change)
    with rows.database.begin() as connection:
        pending = backlog.count_pending(connection, 60)
    assert ([item.pending for item in pending] == [1], len(claim(rows)) == 1) == (is_claimed, is_claimed)


@pytest.fixture
def converted(rows: Rows) -> Rows:
    """A converted object `events/1` with the ETag "e"."""
    rows.table()
    register(rows, again("e", 0))
    rows.sql(
        "UPDATE prism_staging_objects SET state = 'done', first_batch_id = 1, lines_in = 0, rows_out = 0, "
        "rows_quarantined = 0"
    )
    return rows


def told(rows: Rows) -> bool:
    """Whether a later, unread version is reported."""
    with rows.database.begin() as connection:
        return [item.why for item in load_unread(connection, [1])] == [Unread.OVERWRITTEN]


def accept(rows: Rows) -> None:
    with rows.database.begin() as connection:
        assert attempts.dismiss(connection, 1)


@pytest.mark.parametrize(
    ("listed", "seconds", "is_told"),
    [(False, 1, True), (False, -1, False), (True, 1, True), (True, -1, True)],
    ids=["event", "late event", "listing", "listing of an object uploaded in parts, dated by the beginning"],
)
def test_what_a_listing_shows_is_the_later_version_and_an_event_tells_its_time(
    converted: Rows, listed: bool, seconds: float, is_told: bool
) -> None:
    register(converted, again("f", seconds), listed=listed)
    assert told(converted) is is_told
    assert recorded(converted) == [("e", 1)]


def test_each_later_version_is_told_until_it_is_accepted(converted: Rows) -> None:
    for etag in "fg":
        register(converted, again(etag, 5), listed=True)
        assert told(converted)
        accept(converted)
        register(converted, again(etag, 5), listed=True)
        assert not told(converted)


def test_a_late_event_of_a_version_in_between_tells_nobody_again(converted: Rows) -> None:
    register(converted, again("g", 5), listed=True)
    accept(converted)
    register(converted, again("f", 3))
    register(converted, again("e", 0))
    assert not told(converted)
    register(converted, again("h", 7))
    assert told(converted)


def test_an_object_nobody_knows_is_noted_once(rows: Rows) -> None:
    for _ in range(2):
        with rows.database.begin() as connection:
            staging_objects.register_unknown(connection, an_object("odd"), "no stream", NOON)
    assert rows.value("SELECT count(*) FROM prism_unknown_staging_objects") == 1


def test_a_claim_is_bounded_by_count(rows: Rows) -> None:
    rows.staging(rows.table(), 5)
    assert len(claim(rows, count=3)) == 3
    assert len(claim(rows, count=3)) == 2
    assert claim(rows) == []


def test_a_claim_is_bounded_by_bytes(rows: Rows) -> None:
    rows.staging(rows.table(), 5, size=100)
    assert len(claim(rows, size=250)) == 2


def test_the_first_object_of_a_claim_may_be_of_any_size(rows: Rows) -> None:
    rows.staging(rows.table(), 2, size=1_000)
    assert len(claim(rows, size=10)) == 1


def test_the_oldest_objects_of_a_stream_come_first(rows: Rows) -> None:
    ids = rows.staging(rows.table(), 4)
    assert sorted(item.staging_object_id for item in claim(rows, count=2)) == ids[:2]


def test_a_flood_in_one_table_does_not_starve_another(rows: Rows) -> None:
    flooded, calm = rows.table(), rows.table("log.calm")
    rows.staging(flooded, 50)
    rows.staging(calm, 3)
    assert by_table(claim(rows, count=10)) == {flooded.table_id: 7, calm.table_id: 3}


def test_a_limit_of_bytes_falls_on_all_tables_alike(rows: Rows) -> None:
    one, two = rows.table(), rows.table("log.other")
    rows.staging(one, 10, size=100)
    rows.staging(two, 10, size=100)
    assert by_table(claim(rows, size=600)) == {one.table_id: 3, two.table_id: 3}


@pytest.mark.parametrize(("count", "size"), [(8, 1 << 30), (100, 800)])
def test_a_table_with_many_streams_gets_no_more_than_one_with_a_single_one(rows: Rows, count: int, size: int) -> None:
    wide, narrow = rows.table("log.wide"), rows.table("log.narrow")
    prefixes = ["wide", "web", "app"]
    with rows.database.begin() as connection:
        named = [Stream(name=prefix, bucket="staging", key_prefix=f"{prefix}/") for prefix in prefixes]
        streams.save_streams(connection, wide.table_id, named)
    rows.staging(narrow, 10)
    with rows.database.begin() as connection:
        for known in streams.load_streams(connection):
            if known.table_id == wide.table_id:
                found = [
                    replace(an_object(f"{known.stream.key_prefix}{number}"), content_length=100) for number in range(10)
                ]
                staging_objects.register(connection, known.stream_id, found, NOON)
    assert by_table(claim(rows, count=count, size=size)) == {wide.table_id: 4, narrow.table_id: 4}


def test_more_tables_than_a_batch_may_hold_are_no_trouble(rows: Rows) -> None:
    for number in range(5):
        rows.staging(rows.table(f"log.t{number}"), 2)
    assert len(claim(rows, count=3)) == 3


def test_a_claim_may_be_for_some_tables_only(rows: Rows) -> None:
    one, two = rows.table(), rows.table("log.other")
    rows.staging(one)
    rows.staging(two)
    assert by_table(claim(rows, tables=[two.table_id])) == {two.table_id: 1}


def test_the_first_batch_and_the_definition_stay_through_all_attempts(rows: Rows) -> None:
    rows.staging(rows.table())
    (first,) = claim(rows)
    with rows.database.begin() as connection:
        fail(connection, first)
    rows.sql("UPDATE prism_tables SET definition_version = definition_version + 5")
    (second,) = claim(rows)
    assert (second.first_batch_id, second.definition_version) == (first.first_batch_id, first.definition_version)
    assert second.attempts == 1


def test_an_object_that_failed_rests_before_its_next_attempt(rows: Rows) -> None:
    rows.staging(rows.table())
    (item,) = claim(rows)
    with rows.database.begin() as connection:
        fail(connection, item, Retry(pause=60, charged=True))
    assert claim(rows) == []
    rows.sql("UPDATE prism_staging_objects SET retry_time = retry_time - interval '61 seconds'")
    assert len(claim(rows)) == 1


def test_an_object_given_up_is_failed_and_not_claimed_again(rows: Rows) -> None:
    table = rows.table()
    rows.staging(table)
    (item,) = claim(rows)
    with rows.database.begin() as connection:
        fail(connection, item, GiveUp())
    assert claim(rows) == []
    with rows.database.begin() as connection:
        assert backlog.count_unfinished(connection) == []
        (unread,) = load_unread(connection, [table.table_id])
    assert (unread.why, unread.objects, unread.retry_time) == (Unread.GIVEN_UP, 1, None)


def test_an_object_finished_twice_keeps_its_first_ledger(rows: Rows) -> None:
    rows.staging(rows.table())
    (item,) = claim(rows)
    finish(rows, item, lines=3)
    with pytest.raises(LeaseLost, match="holds only 0 of 1 object"):
        finish(rows, item, lines=9)
    with rows.database.begin() as connection:
        (ledger,) = ledgers.ledger(connection)
    assert (ledger.lines_in, ledger.rows_out, ledger.rows_quarantined) == (3, 2, 1)


def finish(rows: Rows, item: ClaimedObject, *, lines: int, batch: int | None = None) -> None:
    """Finishes an object with two rows and so many lines in all."""
    aside = (QuarantineCount(reason="bad_json", line_count=lines - 2),)
    result = ConvertResult(staging_object_id=item.staging_object_id, lines_in=lines, rows_out=2, quarantined=aside)
    with rows.database.begin() as connection:
        staging_objects.finish(connection, batch or item.first_batch_id, [result])


def test_a_result_whose_lines_do_not_balance_is_refused(rows: Rows) -> None:
    """Lines in, rows out and quarantined lines are counted by themselves; none of them is made to fit."""
    rows.staging(rows.table())
    (item,) = claim(rows)
    result = ConvertResult(staging_object_id=item.staging_object_id, lines_in=5, rows_out=2)
    with pytest.raises(InvariantBroken), rows.database.begin() as connection:
        staging_objects.finish(connection, item.first_batch_id, [result])


def test_another_batch_cannot_finish_retry_or_give_up_an_object(rows: Rows) -> None:
    rows.staging(rows.table())
    (item,) = claim(rows)
    other = rows.batch().batch_id
    version = SourceVersion(etag="f", content_length=2, last_modified=NOON)
    changed = ChangedObject(
        staging_object_id=item.staging_object_id, version=version, reason="", verdict=Retry(pause=0, charged=False)
    )
    with pytest.raises(LeaseLost), rows.database.begin() as connection:
        fail(connection, item, Retry(pause=0, charged=True), other)
    with pytest.raises(LeaseLost), rows.database.begin() as connection:
        fail(connection, item, GiveUp(), other)
    with pytest.raises(LeaseLost), rows.database.begin() as connection:
        attempts.take_up_versions(connection, other, [changed])
    with pytest.raises(LeaseLost):
        finish(rows, item, lines=3, batch=other)
    assert rows.sql("SELECT state, attempts, generation FROM prism_staging_objects") == [("claimed", 0, 0)]


def test_a_silent_batch_is_declared_dead_and_its_objects_are_free_again(rows: Rows) -> None:
    rows.staging(rows.table(), 2)
    batch = rows.batch()
    with rows.database.begin() as connection:
        claims.claim_pending(connection, batch.batch_id, None, 9, 1 << 30)
    with rows.database.begin() as connection:
        assert batches.declare_dead(connection, 60) == []
        assert backlog.count_pending(connection, 60) == []
    rows.sql("UPDATE prism_stream_batches SET heartbeat_time = heartbeat_time - interval '61 seconds'")
    with rows.database.begin() as connection:
        assert backlog.count_pending(connection, 60)[0].abandoned == 2
        assert batches.declare_dead(connection, 60) == [DeadBatch(batch.batch_id, probed=False)]
        assert attempts.release(connection, batch.batch_id) == 2
    with pytest.raises(LeaseLost, match="changed nothing"), rows.database.begin() as connection:
        batches.lock_running(connection, batch)
    with rows.database.begin() as connection:
        assert batches.heartbeat(connection, batch) is False
    assert [item.first_batch_id for item in claim(rows)] == [batch.batch_id, batch.batch_id]


def test_a_batch_is_told_by_its_token_where_its_id_has_come_again(rows: Rows) -> None:
    """After a failover to a lagging replica, another worker may have a batch of the same id."""
    lost = rows.batch()
    rows.sql("UPDATE prism_stream_batches SET token = gen_random_uuid(), worker = 'another'")
    for work in (batches.lock_running, batches.finish_batch, batches.note_probe):
        with pytest.raises(LeaseLost), rows.database.begin() as connection:
            work(connection, lost)
    with rows.database.begin() as connection:
        assert (batches.heartbeat(connection, lost), batches.end_as_dead(connection, lost)) == (False, False)
    assert rows.sql("SELECT state, probed FROM prism_stream_batches") == [("running", False)]


def test_a_batch_that_commits_right_now_is_not_declared_dead(rows: Rows) -> None:
    batch = rows.batch()
    rows.sql("UPDATE prism_stream_batches SET heartbeat_time = heartbeat_time - interval '1 hour'")
    with rows.database.begin() as committing:
        batches.lock_running(committing, batch)
        with rows.database.begin() as connection:
            assert batches.declare_dead(connection, 60) == []
        batches.finish_batch(committing, batch)
    with rows.database.begin() as connection:
        running = "SELECT count(*) FROM prism_stream_batches WHERE state = 'running'"
        assert connection.exec_driver_sql(running).scalar_one() == 0


def test_a_heartbeat_keeps_a_batch_alive(rows: Rows) -> None:
    batch = rows.batch()
    rows.sql("UPDATE prism_stream_batches SET heartbeat_time = heartbeat_time - interval '1 hour'")
    with rows.database.begin() as connection:
        assert batches.heartbeat(connection, batch)
    with rows.database.begin() as connection:
        assert batches.declare_dead(connection, 60) == []


def test_an_object_that_is_registered_while_its_stream_moves_belongs_to_the_table_that_it_feeds_then(
    rows: Rows, sessions: Sessions
) -> None:
    """The registration looked up the stream before."""
    rows.table()
    taker = rows.table("log.taker").table_id
    stream = Stream(name="events", bucket="staging", key_prefix="events/")
    moving, registering = sessions.open(), sessions.open()
    moving.do(streams.lock_streams)
    moving.do(lambda connection: streams.save_streams(connection, taker, [stream], [1]))
    told = registering.start(lambda connection: staging_objects.register(connection, 1, [an_object("events/x")], NOON))
    registering.wait_until_blocked()
    moving.commit()
    assert told.result() == 1
    registering.commit()
    assert rows.value("SELECT prism_table_id FROM prism_staging_objects") == taker


def test_an_object_that_a_batch_claims_while_its_stream_moves_stays_with_the_table_that_it_was_claimed_for(
    rows: Rows, sessions: Sessions
) -> None:
    table = rows.table()
    rows.staging(table)
    taker = rows.table("log.taker").table_id
    stream = Stream(name="events", bucket="staging", key_prefix="events/")
    claiming, moving = sessions.open(), sessions.open()
    batch = rows.batch()
    claiming.do(lambda connection: claims.claim_pending(connection, batch.batch_id, None, 9, 1 << 30))
    moved = moving.start(lambda connection: streams.save_streams(connection, taker, [stream], [1]))
    moving.wait_until_blocked()
    claiming.commit()
    moved.result()
    moving.commit()
    assert rows.value("SELECT prism_table_id FROM prism_staging_objects") == table.table_id

"""Receive: registered objects, the other messages, and the time messages leave the queue."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.intake import LeftOut
from prism_assets.domain.streams.stream import Stream
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets.queues.sqs import Message, SqsQueue
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.discover.messages import ReceiveReport, run_receive
from prism_assets.stages.discover.registering import UNREADABLE, StreamIndex, is_readable, storable
from prism_assets.stages.history.run import run_history
from prism_assets.stages.run import run_until_idle
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.notifications import TEST_EVENT, QueueOfTest, a_body, a_record, by_eventbridge, by_sns
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


@pytest.fixture
def bare(services: Mapping[str, str], database_url: str, tmp_path: Path, queue: QueueOfTest) -> Iterator[World]:
    """A world with a queue and nothing applied."""
    endpoint = services["PRISM_SQS_ENDPOINT"]
    with a_world(services, database_url, tmp_path, sqs_queue_urls=queue.url, sqs_endpoint=endpoint) as made:
        yield made


@pytest.fixture
def events(bare: World) -> World:
    """A world with the table log.events and a queue."""
    bare.apply(a_table())
    return bare


def receive(world: World, **more: Any) -> ReceiveReport:
    """Receives without an error."""
    report = run_receive(world.context, now=utc(NOON), **more)
    assert report.errors == ()
    return report


def registered(world: World) -> list[tuple[Any, ...]]:
    with world.context.database.begin() as connection:
        statement = "SELECT object_key, etag, content_length, send_time, state FROM prism_staging_objects ORDER BY 1"
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def unknown(world: World) -> list[tuple[str, str, str]]:
    with world.context.database.begin() as connection:
        statement = "SELECT bucket_name, object_key, message FROM prism_unknown_staging_objects ORDER BY 1, 2"
        return [(row[0], row[1], row[2]) for row in connection.exec_driver_sql(statement)]


def test_an_object_that_a_message_names_is_registered_as_a_listing_would(events: World, queue: QueueOfTest) -> None:
    queue.send(a_body(a_record("events/1.gz", size=77, eTag="abc")))
    assert receive(events) == ReceiveReport(messages=1, registered=1)
    ((key, etag, length, sent, state),) = registered(events)
    assert (key, etag, length, state) == ("events/1.gz", '"abc"', 77, "pending")
    assert sent.replace(microsecond=0) == utc("2026-03-01T11:59:58")
    assert queue.count() == 0


def test_every_form_of_message_is_taken_in(events: World, queue: QueueOfTest) -> None:
    queue.send(
        a_body(a_record("events/a b.gz"), a_record("events/c+d.gz")),
        by_sns(a_body(a_record("events/e.gz"))),
        by_eventbridge("events/f+g.gz"),
        TEST_EVENT,
        a_body(a_record("events/gone.gz", name="ObjectRemoved:Delete")),
    )
    assert receive(events) == ReceiveReport(messages=5, registered=4, ignored=2)
    assert [row[0] for row in registered(events)] == [f"events/{name}.gz" for name in ("a b", "c+d", "e", "f+g")]


def test_a_message_registers_an_object_for_every_table_of_its_prefix(bare: World, queue: QueueOfTest) -> None:
    shared = [
        a_table(f"log.{name}").replace(f'staging/{name}/"}}', f'staging/app/", route: {route}}}')
        for name, route in (
            ("accounts", "{by: $.kind, in: [a]}"),
            ("events", "{by: $.kind, otherwise: true}"),
            ("alb", "{key: 'alb/*'}"),
        )
    ]
    bare.apply(*shared)
    queue.tell("app/1.gz", "app/alb/2.gz", "app/1.gz")
    assert receive(bare) == ReceiveReport(messages=3, registered=3, known=2)
    assert [row[0] for row in registered(bare)] == ["app/1.gz", "app/1.gz", "app/alb/2.gz"]
    queue.tell("app/1.gz")
    assert receive(bare) == ReceiveReport(messages=1, known=2)


class _Trickle(SqsQueue):
    """A queue whose producer sends a message after each round of a receiver."""

    def __init__(self, queue: QueueOfTest, messages: int) -> None:
        super().__init__(queue.url, queue.endpoint, "us-east-1")
        self._producer, self._keys = queue, [f"events/{number:03}.gz" for number in range(messages)]

    def delete(self, messages: Sequence[Message]) -> tuple[str, ...]:
        problems = super().delete(messages)
        if self._keys:
            self._producer.tell(self._keys.pop(0))
        return problems


def test_a_trickle_of_messages_does_not_keep_a_receiver(events: World, queue: QueueOfTest) -> None:
    queue.tell("events/first.gz")
    trickle = replace(events.context, queues=(_Trickle(queue, messages=30),))
    taken = [run_receive(trickle, now=utc(NOON)).messages for _ in range(3)]
    assert taken == [2, 2, 2]


def test_a_full_queue_is_read_to_its_end(events: World, queue: QueueOfTest) -> None:
    queue.tell(*(f"events/{number:03}.gz" for number in range(330)))
    assert receive(events).registered == 330


def test_messages_that_come_again_change_nothing(events: World, queue: QueueOfTest) -> None:
    queue.tell("events/1.gz", "events/1.gz")
    assert receive(events) == ReceiveReport(messages=2, registered=1, known=1)
    before = registered(events)
    queue.send(a_body(a_record("events/1.gz", size=99, eTag="other")))
    assert receive(events) == ReceiveReport(messages=1, known=1)
    assert registered(events) == before


def at(when: str, **more: Any) -> str:
    """A message about events/1.gz of a time."""
    return a_body({**a_record("events/1.gz", **more), "eventTime": when})


def test_an_object_written_again_before_it_was_claimed_is_read_as_it_is_now(events: World, queue: QueueOfTest) -> None:
    """A producer's retry under SSE-KMS has another ETag, and the event may come in another round."""
    key = events.drop(some_rows(3, utc(NOON)))
    assert key == "events/2026/000001.gz"
    (now,) = events.context.stores.list("staging", "events/")
    old = {**a_record(key, size=1, eTag="old"), "eventTime": "2026-03-01T11:00:00.000Z"}
    new = {**a_record(key, size=now.content_length, eTag=now.etag), "eventTime": "2026-03-01T11:00:01.000Z"}
    for record, counts in ((old, (1, 0)), (new, (0, 1)), (old, (0, 1))):
        queue.send(a_body(record))
        report = receive(events)
        assert (report.registered, report.known) == counts
    converted = run_stream(events.context, now=utc(NOON))
    assert (converted.rows_out, converted.errors) == (3, ())


def test_an_event_that_is_not_later_changes_nothing(events: World, queue: QueueOfTest) -> None:
    queue.send(at("2026-03-01T11:00:05.500Z", eTag="b"))
    receive(events)
    before = registered(events)
    for when in ("2026-03-01T11:00:05.500Z", "2026-03-01T11:00:05.400Z", "2026-03-01T10:00:00.000Z", "unknown"):
        queue.send(at(when, eTag="a", size=9))
        receive(events)
    assert registered(events) == before


def test_of_two_events_for_one_key_the_later_one_counts(events: World, queue: QueueOfTest) -> None:
    queue.send(a_body(a_record("events/1.gz", size=2, sequencer="0B"), a_record("events/1.gz", sequencer="0A")))
    assert receive(events) == ReceiveReport(messages=1, registered=1, known=1)
    assert registered(events)[0][2] == 2


def test_an_object_under_no_stream_is_noted_with_a_hint(events: World, queue: QueueOfTest) -> None:
    original = "2528.dwh.example.dummy/2018/08/23/x.gz"
    queue.send(a_body(a_record("eventsmore/1.gz"), a_record(original), a_record("events/1.gz", bucket="other")))
    assert receive(events) == ReceiveReport(messages=1, unknown=3)
    advice = "give its folder to a table as a stream, or end its notifications"
    assert unknown(events) == [
        ("other", "events/1.gz", f"it lies under no stream; {advice}"),
        ("staging", original, f"it lies under no stream; its key names example.dummy; {advice}"),
        ("staging", "eventsmore/1.gz", f"it lies under no stream; {advice}"),
    ]
    assert registered(events) == []
    assert queue.count() == 0


def test_messages_that_cannot_be_read_are_noted_and_do_not_come_again(events: World, queue: QueueOfTest) -> None:
    queue.send("nonsense \\ud800", a_body(a_record("events/1.gz"), {"eventName": 1}))
    assert receive(events) == ReceiveReport(messages=2, registered=1, unknown=2)
    assert {bucket for bucket, _, _ in unknown(events)} == {f"sqs:{events.context.queues[0].name}"}
    messages = sorted(message for _, _, message in unknown(events))
    assert messages[0].startswith("the message cannot be read: event 2 of 2: it has no eventName; it begins with '{")
    assert messages[1].startswith("the message cannot be read: it is not JSON; it begins with 'nonsense")
    assert queue.count() == 0


@pytest.mark.parametrize("key", ["events/a\x00b", "events/\ud800", "events/" + "é" * 5_000])
def test_a_name_that_cannot_be_stored_is_noted(events: World, queue: QueueOfTest, key: str) -> None:
    queue.send(by_eventbridge(key))
    assert receive(events) == ReceiveReport(messages=1, unknown=1)
    ((bucket, stored, message),) = unknown(events)
    assert (bucket, stored, message) == ("staging", storable(key), UNREADABLE)


@pytest.mark.parametrize("key", ["events//x", "events/../x", "events/./x", "events/a\tb", "events/a\u202eb"])
def test_a_name_that_is_no_path_is_that_of_an_object(events: World, queue: QueueOfTest, key: str) -> None:
    queue.send(by_eventbridge(key))
    assert receive(events) == ReceiveReport(messages=1, registered=1)
    assert [row[0] for row in registered(events)] == [key]


def test_half_a_character_in_a_key_stops_nothing(events: World, queue: QueueOfTest) -> None:
    queue.send(by_eventbridge("events/\ud800.gz"), by_eventbridge("none/\ud800.gz"), by_eventbridge("events/1.gz"))
    assert receive(events) == ReceiveReport(messages=3, registered=1, unknown=2)


@pytest.mark.parametrize("size", [{"size": None}, {}], ids=["null", "absent"])
def test_an_event_without_a_size_has_the_head_of_its_object_asked_for(
    events: World, queue: QueueOfTest, size: dict[str, Any]
) -> None:
    """Some S3 stores send none. The object is registered at once, without a wait for a listing."""
    key = events.drop(some_rows(3, utc(NOON)))
    record = a_record(key, size=None)
    del record["s3"]["object"]["size"]
    record["s3"]["object"] |= size
    queue.send(a_body(record, a_record("events/gone.gz", size=None), a_record("nowhere/1.gz", size=None)))
    report = receive(events)
    assert (report.registered, report.ignored, report.unknown) == (1, 1, 1)
    ((found, etag, length, *_),) = registered(events)
    head = events.context.stores.head("staging", key)
    assert (found, etag, length) == (key, head.etag, head.content_length)
    assert run_stream(events.context, now=utc(NOON)).rows_out == 3


def test_messages_come_again_while_the_store_does_not_say_how_long_an_object_is(
    events: World, queue: QueueOfTest
) -> None:
    """Messages without this need do not wait."""
    queue.send(a_body(a_record("events/1.gz", size=None), a_record("events/2.gz")))
    queue.send(a_body(a_record("events/3.gz")))
    queue.hide_for(1)
    away = replace(events.context, stores=Stores(StoreConfig(endpoint="http://127.0.0.1:9", retry_seconds=0)))
    report = run_receive(away, now=utc(NOON))
    assert (report.messages, report.registered) == (1, 1)
    assert [error.split(" in queue ")[0] for error in report.errors] == ["1 message"]
    assert [row[0] for row in registered(events)] == ["events/3.gz"]
    assert queue.count() == 1


def test_folder_markers_are_ignored(events: World, queue: QueueOfTest) -> None:
    queue.send(a_body(a_record("events/2026/", size=0), a_record("elsewhere/2026/", size=0)))
    assert receive(events) == ReceiveReport(messages=1, ignored=2, left_out={LeftOut.FOLDER_MARKER: 1})


def test_messages_leave_out_what_a_listing_leaves_out(events: World, queue: QueueOfTest) -> None:
    """One function decides for both: a message is no way round `exclude`."""
    events.apply(a_table().replace('/events/"}', '/events/", exclude: ["processing-failed/**"]}'))
    keys = ["events/_temporary/1.gz", "events/processing-failed/2.gz", "events/2026/", "events/3.gz"]
    queue.send(a_body(*(a_record(key) for key in keys)))
    report = receive(events)
    assert (report.registered, report.ignored, report.unknown) == (2, 2, 0)
    assert report.left_out == {LeftOut.HIDDEN_NAME: 1, LeftOut.EXCLUDED: 1}
    assert [row[0] for row in registered(events)] == ["events/2026/", "events/3.gz"]


def test_stopped_and_discarded_streams_register_what_comes_and_removed_ones_ignore_it(
    events: World, queue: QueueOfTest
) -> None:
    stopped = a_table().replace('/events/"}', '/events/", enabled: false}')
    events.apply(stopped, a_table("log.other").replace('/other/"}', '/other/", discard: true}'), a_table("log.gone"))
    events.apply(a_table("log.gone").replace("staging/gone/", "staging/here/"))
    queue.tell("events/1.gz", "other/1.gz", "gone/1.gz")
    assert receive(events) == ReceiveReport(messages=3, registered=2, ignored=1)
    assert ([row[0] for row in registered(events)], unknown(events)) == (["events/1.gz", "other/1.gz"], [])


def test_what_waits_at_a_stopped_stream_does_not_fill_the_backlog(events: World, queue: QueueOfTest) -> None:
    """Otherwise the messages of all other streams would stay in the queue during the stop."""
    limited = replace(events.context, settings=events.settings.model_copy(update={"backlog_objects": 2}))
    events.apply(a_table().replace('/events/"}', '/events/", enabled: false}'), a_table("log.other"))
    queue.tell("events/1.gz", "events/2.gz", "events/3.gz")
    receive(events)
    queue.tell("other/1.gz")
    assert receive(replace(events, context=limited)).registered == 1


def test_a_removed_stream_takes_nothing_from_the_one_around_it(events: World, queue: QueueOfTest) -> None:
    events.apply(a_table("log.inner").replace("/inner/", "/logs/inner/"))
    with events.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_streams SET enabled = false, removed = true WHERE stream_name = 'inner'"
        )
    (events.settings.tables_dir / "inner.yaml").unlink()
    events.apply(a_table("log.outer").replace("/outer/", "/logs/"))
    queue.tell("logs/inner/1.gz")
    assert receive(events) == ReceiveReport(messages=1, registered=1)


def test_more_messages_than_one_round_holds_are_all_taken_in(events: World, queue: QueueOfTest) -> None:
    queue.tell(*(f"events/{number:04}.gz" for number in range(215)))
    assert receive(events) == ReceiveReport(messages=215, registered=215)
    assert queue.count() == 0


def test_a_sick_queue_does_not_stop_the_others(events: World, queue: QueueOfTest) -> None:
    sick = SqsQueue(queue.url + "-missing", events.settings.sqs_endpoint, "us-east-1")
    context = replace(events.context, queues=(sick, *events.context.queues))
    queue.tell("events/1.gz")
    report = run_receive(context, now=utc(NOON))
    assert report.registered == 1
    assert report.errors == (f"queue {sick.url} does not exist: create it or correct PRISM_SQS_QUEUE_URLS",)


def test_receiving_rests_while_the_backlog_is_full(events: World, queue: QueueOfTest) -> None:
    """The limit is checked between rounds, so one round may exceed it."""
    context = replace(events.context, settings=events.settings.model_copy(update={"backlog_objects": 3}))
    queue.tell("events/1.gz", "events/2.gz", "events/3.gz")
    assert run_receive(context, now=utc(NOON)) == ReceiveReport(messages=3, registered=3, rests=True)
    queue.tell("events/4.gz")
    assert run_receive(context, now=utc(NOON)) == ReceiveReport(rests=True)
    assert queue.count() == 1
    with context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prism_staging_objects WHERE object_key = 'events/1.gz'")
    assert run_receive(context, now=utc(NOON)).registered == 1


def test_nothing_is_received_after_the_deadline(events: World, queue: QueueOfTest) -> None:
    queue.tell("events/1.gz")
    assert receive(events, deadline=Deadline.after(0)) == ReceiveReport()
    assert queue.count() == 1


def test_waiting_for_messages_ends_with_the_deadline(events: World, queue: QueueOfTest) -> None:
    patient = SqsQueue(queue.url, events.settings.sqs_endpoint, "us-east-1", wait_seconds=20)
    context = replace(events.context, queues=(patient,))
    start = time.monotonic()
    assert run_receive(context, now=utc(NOON), deadline=Deadline.after(1.5)) == ReceiveReport()
    assert 1 <= time.monotonic() - start < 15


def test_an_empty_queue_does_not_wait_away_the_time_of_the_next(events: World, queue: QueueOfTest) -> None:
    empty = QueueOfTest(queue.endpoint)
    queues = tuple(
        SqsQueue(each.url, events.settings.sqs_endpoint, "us-east-1", wait_seconds=20) for each in (empty, queue)
    )
    queue.tell("events/1.gz")
    context = replace(events.context, queues=queues)
    assert run_receive(context, now=utc(NOON), deadline=Deadline.after(12)).registered == 1
    empty.delete()


def test_messages_that_came_before_an_error_are_taken_in(events: World, queue: QueueOfTest) -> None:
    """They are hidden from every receiver for a while, so nobody else would take them in."""
    queue.tell(*(f"events/{number}.gz" for number in range(10)))
    (sick,) = events.context.queues
    answers = iter([None])

    def refuse(**_: object) -> None:
        if next(answers, "no more") is not None:
            raise ClientError({"Error": {"Code": "InternalError"}}, "ReceiveMessage")

    calls = sick._client.meta.events
    calls.register("before-call.sqs.ReceiveMessage", refuse)
    report = run_receive(events.context, now=utc(NOON))
    calls.unregister("before-call.sqs.ReceiveMessage", refuse)
    assert (report.messages, report.registered) == (10, 10)
    (error,) = report.errors
    assert "InternalError" in error
    assert queue.count() == 0


def test_messages_stay_in_the_queue_when_the_database_refuses(
    events: World, queue: QueueOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with events.context.database.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE prism_staging_objects ADD CONSTRAINT full_ CHECK (content_length <> 13)"
        )
    queue.hide_for(1)
    try:
        queue.send(a_body(a_record("events/1.gz", size=13)))
        report = run_receive(events.context, now=utc(NOON))
        assert (report.messages, len(report.errors)) == (0, 1)
        assert queue.count() == 1
    finally:
        with events.context.database.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE prism_staging_objects DROP CONSTRAINT full_")
    time.sleep(1.1)
    assert receive(events).registered == 1


def test_a_received_object_becomes_rows(events: World, queue: QueueOfTest) -> None:
    queue.tell(events.drop(some_rows(4, utc(NOON))))
    assert receive(events).registered == 1
    assert run_stream(events.context, now=utc(NOON)).rows_out == 4


def test_turns_take_the_queue_in(events: World, queue: QueueOfTest) -> None:
    queue.tell(events.drop(some_rows(4, utc(NOON))))
    turns = run_until_idle(events.context, clock=lambda: utc(NOON))
    assert turns[0].discover.received == ReceiveReport(messages=1, registered=1)
    assert len(events.ids()) == 4


def test_a_listing_finds_what_messages_missed(events: World, queue: QueueOfTest) -> None:
    told, missed = events.drop(some_rows(1, utc(NOON))), events.drop(some_rows(1, utc(NOON)))
    queue.tell(told)
    report = events.discover(NOON)
    assert report.received == ReceiveReport(messages=1, registered=1)
    assert [(scan.listed, scan.new) for scan in report.scans] == [(2, 1)]
    assert [row[0] for row in registered(events)] == [told, missed]


def test_a_tick_lists_seldom_where_the_queue_answers(events: World, queue: QueueOfTest) -> None:
    def tick(now: str, context: StageContext = events.context) -> int:
        return len(run_discover(context, now=utc(now), only_due=True).scans)

    assert [tick("2026-03-01T12:00"), tick("2026-03-01T12:05"), tick("2026-03-01T12:10")] == [1, 0, 1]
    assert tick("2026-03-01T12:01") == 1  # a clock was set back
    sick = SqsQueue(queue.url + "-missing", events.settings.sqs_endpoint, "us-east-1")
    assert tick("2026-03-01T12:02", replace(events.context, queues=(sick,))) == 1
    assert tick("2026-03-01T12:03", replace(events.context, queues=())) == 1
    assert tick("2026-03-01T12:04") == 0


def test_naming_tables_leaves_the_queue_alone(events: World, queue: QueueOfTest) -> None:
    queue.tell("events/1.gz")
    report = run_discover(events.context, now=utc(NOON), names=["log.events"])
    assert report.received is None
    assert queue.count() == 1


def test_a_bucket_and_its_queue_agree_with_the_listing(
    bare: World, services: Mapping[str, str], queue: QueueOfTest
) -> None:
    """S3's own messages from a real bucket: a listing knows the registered objects, down to the ETag."""
    endpoint, name = services["PRISM_SQS_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    bucket, lake = name, f"{name}-lake"
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=lake)
    created: Any = {"QueueConfigurations": [{"QueueArn": queue.arn, "Events": ["s3:ObjectCreated:*"]}]}
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=created)
    there = bare.in_bucket(endpoint, lake)
    there.apply(a_table("log.bridged", bucket=bucket))
    keys = ["bridged/a b+c.gz", "bridged/é%.gz"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
    assert run_receive(there.context, now=utc(NOON)) == ReceiveReport(messages=3, registered=2, ignored=1)
    (scan,) = run_discover(there.context, now=utc(NOON), names=["log.bridged"]).scans
    assert (scan.listed, scan.new, scan.error) == (2, 0, None)
    listed = {item.key: item.etag for item in there.context.stores.list(bucket, "bridged/")}
    assert {row[0]: row[1] for row in registered(there)} == listed
    assert set(listed) == set(keys)


def a_stream(number: int, prefix: str, removed: bool) -> KnownStream:
    return KnownStream(number, number, Stream(name=f"s{number}", bucket="b", key_prefix=prefix), removed)


folders = st.lists(st.sampled_from(["a", "b", ""]), max_size=4).map(lambda parts: "".join(f"{p}/" for p in parts))


@given(st.dictionaries(folders, st.booleans(), max_size=6), st.tuples(folders, st.sampled_from(["x", "ab"])))
def test_the_stream_of_an_object_is_that_of_its_longest_prefix_the_removed_last(
    prefixes: dict[str, bool], where: tuple[str, str]
) -> None:
    streams = [a_stream(number, *found) for number, found in enumerate(sorted(prefixes.items()))]
    key = "".join(where)
    fitting = [known for known in streams if key.startswith(known.stream.key_prefix)]
    best = sorted(fitting, key=lambda known: (not known.removed, len(known.stream.key_prefix)))[-1:]
    assert list(StreamIndex.of(streams).find("b", key)) == best
    assert not StreamIndex.of(streams).find("other", key)


@given(st.text(st.characters(), max_size=30) | st.text("\x00\ud800/.é", max_size=1_500))
def test_any_key_can_be_stored_and_readable_ones_stay_as_they_are(key: str) -> None:
    stored = storable(key)
    assert "\x00" not in stored
    assert len(stored.encode()) <= 1_024
    assert json.loads(json.dumps(stored)) == stored
    if is_readable(key):
        assert stored == key


def test_a_message_updates_an_object_of_a_history_and_registers_none(bare: World, queue: QueueOfTest) -> None:
    """Otherwise a repaired old object stays unread, and nobody learns that it was written again."""
    bare.apply(a_table(stream='url: "s3://staging/events/", since: "2026-03-01"', accept="{from: object}"))
    day = date(2026, 2, 1)
    known = bare.drop(some_rows(3, utc("2026-02-01T10:00")), stream=f"events/dt={day}")
    run_history(bare.context, "log.events", first=day, clock=lambda: utc(NOON), patience_seconds=0.0)
    with bare.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET send_time = '2026-02-01'")
    queue.send(a_body(a_record(known, eTag="new"), a_record(f"events/dt={day}/late.gz", eTag="late")))
    report = receive(bare)
    assert (report.registered, report.left_out) == (0, {LeftOut.AFTER_HISTORY: 1})
    with bare.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT overwritten_etag FROM prism_staging_objects")
        assert [row[0] for row in rows] == ['"new"']

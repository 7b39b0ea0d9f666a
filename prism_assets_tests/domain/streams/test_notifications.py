"""Notifications: all forms of events. No content of a message raises an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.streams.notifications import CreatedObject, Notification, latest, parse_notification
from prism_assets_tests.builders import utc
from prism_assets_tests.notifications import TEST_EVENT, a_body, a_record, by_eventbridge, by_sns

FORMS = {
    "bare": lambda key: a_body(a_record(key, eTag="abc", sequencer="0A")),
    "sns": lambda key: by_sns(a_body(a_record(key, eTag="abc", sequencer="0A"))),
    "two topics": lambda key: by_sns(by_sns(a_body(a_record(key, eTag="abc", sequencer="0A")))),
    "eventbridge": lambda key: by_eventbridge(key, etag="abc", sequencer="0A"),
    "eventbridge over sns": lambda key: by_sns(by_eventbridge(key, etag="abc", sequencer="0A")),
}


def only(body: str) -> CreatedObject:
    found = parse_notification(body)
    assert (found.ignored, found.errors, len(found.created)) == (0, (), 1)
    return found.created[0]


def with_object(**changes: Any) -> str:
    """Returns an event with other fields of its object; None removes a field."""
    record = a_record("events/1.gz")
    for name, value in changes.items():
        record["s3"]["object"][name] = value
        if value is None:
            del record["s3"]["object"][name]
    return a_body(record)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", ["events/2026/1.gz", "events/a b+c/é%2B&.gz"])
def test_every_form_names_the_same_object(form: str, key: str) -> None:
    found = only(FORMS[form](key))
    assert (found.bucket, found.key, found.content_length) == ("staging", key, 1)
    assert (found.etag, found.sequencer) == ('"abc"', "0A")
    assert found.event_time is not None
    assert found.event_time.replace(microsecond=0) == utc("2026-03-01T11:59:58")


def test_one_message_may_tell_of_several_objects() -> None:
    found = parse_notification(a_body(a_record("a"), a_record("b"), a_record("c", name="s3:ObjectCreated:Copy")))
    assert [item.key for item in found.created] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "body",
    [
        TEST_EVENT,
        by_sns(TEST_EVENT),
        a_body(a_record("a", name="ObjectRemoved:Delete")),
        a_body(a_record("a", name="LifecycleExpiration:Delete")),
        by_eventbridge("a", kind="Object Deleted"),
    ],
)
def test_what_is_no_new_object_is_ignored_and_counted(body: str) -> None:
    assert parse_notification(body) == Notification(ignored=1)


def test_a_message_without_events_is_empty() -> None:
    assert parse_notification('{"Records": []}') == Notification()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "it is not JSON"),
        ("hello", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ("null", "it is not a JSON object"),
        (by_sns("hello"), "it is not JSON"),
        (by_sns(by_sns(by_sns(by_sns("{}")))), "it is wrapped more often than SNS wraps events"),
        ("{}", "it has neither Records nor a detail-type, so it is no event of S3"),
        ('{"Records": 1}', "it has neither Records nor a detail-type, so it is no event of S3"),
        ('{"Records": [1]}', "event 1 of 1: it is not a JSON object"),
        ('{"Records": [{}]}', "event 1 of 1: it has no eventName"),
        ('{"Records": [{"eventName": "ObjectCreated:Put"}]}', "event 1 of 1: it has no s3"),
        ('{"detail-type": "Object Created"}', "event 1 of 1: it has no detail"),
        (with_object(key=None), "event 1 of 1: it has no key"),
        (with_object(key=""), "event 1 of 1: it has no key"),
        (with_object(key="%FF"), "event 1 of 1: its key is not UTF-8"),
        (with_object(size=-1), "event 1 of 1: it has no size in bytes"),
        (with_object(size=2**63), "event 1 of 1: it has no size in bytes"),
        (with_object(size=True), "event 1 of 1: it has no size in bytes"),
        (with_object(size="1"), "event 1 of 1: it has no size in bytes"),
        (a_body(a_record("a", bucket="no bucket")), "event 1 of 1: its bucket name is invalid"),
    ],
)
def test_what_cannot_be_read_is_one_error(body: str, why: str) -> None:
    assert parse_notification(body) == Notification(errors=(why,))


def test_an_event_without_a_size_is_read_as_one_whose_length_is_to_be_asked_for() -> None:
    assert only(with_object(size=None)).content_length is None


def test_one_bad_event_does_not_stop_the_others() -> None:
    found = parse_notification(a_body(a_record("a"), {"eventName": 1}, a_record("b")))
    assert [item.key for item in found.created] == ["a", "b"]
    assert found.errors == ("event 2 of 3: it has no eventName",)


@pytest.mark.parametrize("value", [None, 7, "", "soon", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_a_time_that_cannot_be_read_loses_no_object(value: Any) -> None:
    assert only(a_body({**a_record("a"), "eventTime": value})).event_time is None


@pytest.mark.parametrize(
    ("value", "etag"), [("abc-5", '"abc-5"'), ('"abc"', '"abc"'), ("", None), (None, None), ("a\x00", None), (7, None)]
)
def test_etags_are_quoted_as_listings_have_them(value: Any, etag: str | None) -> None:
    assert only(with_object(eTag=value)).etag == etag


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
damages = st.lists(st.tuples(st.integers(0, 30), json_values | st.just(a_record("x"))), max_size=3)


def _damaged(value: Any, changes: dict[int, Any], counter: list[int]) -> Any:
    """Returns a copy with another n-th value, counted from the outside."""
    counter[0] += 1
    if counter[0] in changes:
        return changes[counter[0]]
    if isinstance(value, dict):
        return {name: _damaged(part, changes, counter) for name, part in value.items()}
    if isinstance(value, list):
        return [_damaged(part, changes, counter) for part in value]
    return value


@given(st.sampled_from(sorted(FORMS)), damages)
def test_damaged_messages_raise_nothing_and_give_only_sound_objects(form: str, changes: list[tuple[int, Any]]) -> None:
    document = json.loads(FORMS[form]("events/1.gz"))
    body = json.dumps(_damaged(document, dict(changes), [0]))
    found = parse_notification(body)
    for item in found.created:
        assert item.key
        assert item.content_length is None or 0 <= item.content_length < 2**63
        assert item.event_time is None or item.event_time.utcoffset() is not None


@given(st.text(min_size=1, max_size=50))
def test_any_key_survives_the_way_through_a_message(key: str) -> None:
    assert only(a_body(a_record(key))).key == key
    assert only(by_eventbridge(key)).key == key


@given(st.text())
def test_any_text_is_read_without_an_error_raised(body: str) -> None:
    parse_notification(body)


def an_object(key: str, sequencer: str | None, etag: str) -> CreatedObject:
    return CreatedObject(bucket="b", key=key, etag=etag, content_length=1, event_time=None, sequencer=sequencer)


def test_the_latest_event_of_a_key_counts_in_whatever_order_they_come() -> None:
    old, new = an_object("k", "FF", "old"), an_object("k", "0100", "new")
    other = an_object("other", None, "x")
    assert latest([old, new, other]) == [new, other]
    assert latest([new, other, old]) == [new, other]

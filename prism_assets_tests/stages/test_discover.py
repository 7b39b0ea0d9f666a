"""Discover: what a listing registers, and where the next one begins."""

from __future__ import annotations

import os
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.objectstore.stores import ObjectInfo
from prism_assets.stages.discover import StreamScan, _Overlap
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
START = utc("2026-03-01T10:00")
HOUR = timedelta(hours=1)


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def staging(world: World, key: str, at: datetime = START) -> Path:
    """An object of the stream `events` that arrived at a time."""
    path = world.root / "buckets" / "staging" / "events" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def scan(world: World, now: str = NOON) -> StreamScan:
    (found,) = world.discover(now).scans
    assert found.error is None
    return found


def grow_beyond_small(world: World) -> None:
    """Makes Discover believe that the stream has too many objects to list them all each time."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_scans SET object_count = 1000000")


def known_keys(world: World) -> list[str]:
    with world.context.database.begin() as connection:
        return list(connection.exec_driver_sql("SELECT object_key FROM prism_staging_objects ORDER BY 1").scalars())


def test_discovering_again_registers_nothing_twice(events: World) -> None:
    for number in range(5):
        staging(events, f"{number}.gz")
    assert (scan(events).new, scan(events).new) == (5, 0)
    staging(events, "5.gz")
    assert scan(events).new == 1


def test_more_than_one_page_is_registered_whole(events: World) -> None:
    for number in range(1_005):
        staging(events, f"{number:05}.gz")
    assert scan(events).new == 1_005


def test_only_objects_under_the_prefix_belong_to_the_stream(events: World) -> None:
    staging(events, "mine.gz")
    staging(events, "../eventsmore/other.gz")
    assert scan(events).new == 1


def test_folder_markers_are_no_objects(events: World) -> None:
    """A store on disk has none, so the listing is played."""
    item = ObjectInfo("events/2026/", 0, None, START)
    events.context.stores.list = lambda *_args, **_more: iter([item])  # type: ignore[method-assign]
    found = scan(events)
    assert (found.listed, found.new, found.unknown) == (1, 0, 0)


@pytest.mark.parametrize(
    "key",
    [
        "events/a\u202etxt.gz",
        "events/a\x07.gz",
        "events/../x.gz",
        "events//x.gz",
        "events/" + "x" * 1_100,
        "events/a\x00",
    ],
)
def test_a_name_that_cannot_be_read_is_noted_as_unknown(events: World, key: str) -> None:
    items = [ObjectInfo(key, 1, None, START), ObjectInfo("events/good.gz", 1, None, START)]
    events.context.stores.list = lambda *_args, **_more: iter(items)  # type: ignore[method-assign]
    found = scan(events)
    assert (found.new, found.unknown) == (1, 1)
    assert known_keys(events) == ["events/good.gz"]
    scan(events)
    with events.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT message FROM prism_unknown_staging_objects").all()
    assert rows == [("the key cannot be read as a path",)]


def test_a_sick_stream_does_not_stop_the_others(world: World) -> None:
    world.apply(a_table(), a_table("log.sick", bucket="nowhere"))
    staging(world, "1.gz")
    report = world.discover(NOON)
    assert report.new == 1
    assert report.errors == ("stream sick: bucket nowhere does not exist: create the folder nowhere in the local root",)


def test_disabled_and_discarded_streams_are_not_listed(world: World) -> None:
    text = a_table().replace('/events/"}', '/events/", enabled: false}')
    world.apply(text, a_table("log.other").replace('/other/"}', '/other/", discard: true}'))
    world.drop(some_rows(1, START))
    assert world.discover(NOON).scans == ()


def test_keys_that_grow_with_time_are_listed_from_an_hour_back(events: World) -> None:
    for number in range(10):
        staging(events, f"{number}.gz", START + number * timedelta(minutes=20))
    assert scan(events).full
    grow_beyond_small(events)
    found = scan(events)
    assert not found.full
    assert found.listed == 4  # what is an hour younger than the youngest, at most


def test_a_late_key_within_the_overlap_is_found(events: World) -> None:
    for number in range(10):
        staging(events, f"{number}.gz", START + number * timedelta(minutes=20))
    scan(events)
    grow_beyond_small(events)
    staging(events, "7b.gz", START + 3 * HOUR)
    assert scan(events).new == 1


def test_a_key_too_late_for_the_overlap_is_found_by_the_next_full_listing(events: World) -> None:
    for number in range(10):
        staging(events, f"{number}.gz", START + number * timedelta(minutes=20))
    scan(events)
    grow_beyond_small(events)
    staging(events, "1b.gz", START + 3 * HOUR)
    assert scan(events, "2026-03-01T12:59").new == 0
    found = scan(events, "2026-03-01T13:00")
    assert (found.full, found.new) == (True, 1)


def test_random_keys_are_listed_from_near_the_beginning(events: World) -> None:
    order = list(range(30))
    random.Random(7).shuffle(order)
    for rank, number in enumerate(order):
        staging(events, f"{number:03}.gz", START + rank * timedelta(minutes=5))
    scan(events)
    grow_beyond_small(events)
    staging(events, "015b.gz", START + 3 * HOUR)
    assert scan(events).new == 1


def test_a_small_stream_is_always_listed_as_a_whole(events: World) -> None:
    staging(events, "5.gz")
    scan(events)
    staging(events, "1.gz")
    found = scan(events)
    assert (found.full, found.new) == (True, 1)


arrivals = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(0, 10_000)), max_size=30)


@given(arrivals, st.none() | st.text("abc", max_size=3))
def test_nothing_younger_than_the_overlap_lies_before_the_next_listing(
    found: list[tuple[str, int]], before: str | None
) -> None:
    seen = [(key, second) for key, second in dict(found).items() if before is None or key > before]
    overlap = _Overlap(HOUR)
    for key, second in seen:
        overlap.see(ObjectInfo(key, 1, None, START + timedelta(seconds=second)))
    position = overlap.position(before)
    assert position == before or position in {key for key, _ in seen}
    youngest = max((second for _, second in seen), default=0)
    for key, second in seen:
        if position is not None and key <= position:
            assert second < youngest - 3_600

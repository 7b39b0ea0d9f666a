"""Discover: the objects a listing registers, and the start of the next one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.metadata import clock
from prism_assets.metadata.intake import stream_scans, streams
from prism_assets.metadata.intake.stream_scans import Scan
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover import listings
from prism_assets.stages.discover.listings import StreamScan, _next_scan, run_discover
from prism_assets.stages.discover.overlap import Overlap
from prism_assets.stages.discover.registering import UNREADABLE
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.statements import counted_statements
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
START = utc("2026-03-01T10:00")
HOUR = timedelta(hours=1)


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def staging(world: World, key: str, at: datetime = START) -> Path:
    """Puts an object of the stream `events` with its arrival time."""
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
    """Makes Discover believe in a stream too large for a complete listing each time."""
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


def statements_of_an_idle_listing(world: World, streams_listed: int) -> int:
    world.discover(NOON)
    with counted_statements() as asked:
        report = world.discover(NOON)
    assert (len(report.scans), report.new) == (streams_listed, 0)
    return len([one for one in asked if not one.startswith("BEGIN")])


def test_a_listing_without_new_objects_takes_two_statements_a_stream(world: World) -> None:
    """One looks for news in its page, one stores its time. All others are asked once for all streams."""
    names = [f"log.t{number}" for number in range(6)]
    world.apply(*(a_table(name) for name in names))
    for name in names:
        world.drop(some_rows(1, START), stream=name.removeprefix("log."))
    of_six = statements_of_an_idle_listing(world, 6)
    world.apply(a_table("log.more"), a_table("log.empty"))
    world.drop(some_rows(1, START), stream="more")
    assert statements_of_an_idle_listing(world, 8) == of_six + 2 + 1, "an empty page is not looked at"


def test_more_than_one_page_is_registered_whole(events: World) -> None:
    for number in range(1_005):
        staging(events, f"{number:05}.gz")
    assert scan(events).new == 1_005


def test_only_objects_under_the_prefix_belong_to_the_stream(events: World) -> None:
    staging(events, "mine.gz")
    staging(events, "../eventsmore/other.gz")
    assert scan(events).new == 1


def test_an_object_that_is_written_again_before_it_is_claimed_is_read_as_it_is_now(events: World) -> None:
    path = events.root / "buckets" / "staging" / events.drop(some_rows(2, START))
    scan(events)
    path.write_bytes(zipped(as_lines(some_rows(3, START))))
    os.utime(path, (path.stat().st_mtime + 5,) * 2)
    found = scan(events)
    assert (found.listed, found.new) == (1, 0)
    assert events.stream(NOON).rows_out == 3


def test_folder_markers_are_no_objects(events: World) -> None:
    """A store on disk has none, so the listing is played."""
    item = ObjectInfo("events/2026/", 0, None, START)
    events.context.stores.list = lambda *_args, **_more: iter([item])  # type: ignore[method-assign]
    found = scan(events)
    assert (found.listed, found.new, found.unknown) == (1, 0, 0)


def test_temporary_and_excluded_objects_are_left_out_counted_and_told(world: World) -> None:
    world.apply(a_table().replace('/events/"}', '/events/", exclude: ["processing-failed/**"]}'))
    for key in ("1.gz", "_temporary/0/2.gz", ".3.gz.tmp", "processing-failed/4.gz"):
        staging(world, key)
    report = world.discover(NOON)
    assert known_keys(world) == ["events/1.gz"]
    assert report.describe() == (
        "1 new of 4 objects in 1 stream listed; "
        "3 objects left out (2 with a name that begins with _ or ., 1 that `exclude` names)"
    )
    (status,) = read_status(world.context, now=utc(NOON))
    (found,) = (item.text for item in status.findings if item.kind == "objects_left_out")
    assert found == (
        "stream events: 3 objects left out (2 with a name that begins with _ or ., 1 that `exclude` names). "
        "`include` and `exclude` in the table file say which are read"
    )


def test_objects_that_new_patterns_let_in_are_found_by_the_next_listing_of_a_big_stream(events: World) -> None:
    for key in ("_a/1.gz", "2.gz"):
        staging(events, key)
    scan(events)
    grow_beyond_small(events)
    staging(events, "3.gz", START + 5 * HOUR)
    assert not scan(events).full
    events.apply(a_table().replace('/events/"}', '/events/", include: ["**", "_a/*"]}'))
    assert scan(events).full
    assert known_keys(events) == ["events/2.gz", "events/3.gz", "events/_a/1.gz"]


@pytest.mark.parametrize("key", ["events/" + "x" * 1_100, "events/a\x00"])
def test_a_name_that_cannot_be_stored_is_noted_as_unknown(events: World, key: str) -> None:
    items = [ObjectInfo(key, 1, None, START), ObjectInfo("events/good.gz", 1, None, START)]
    events.context.stores.list = lambda *_args, **_more: iter(items)  # type: ignore[method-assign]
    found = scan(events)
    assert (found.new, found.unknown) == (1, 1)
    assert known_keys(events) == ["events/good.gz"]
    scan(events)
    with events.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT message FROM prism_unknown_staging_objects").all()
    assert rows == [(UNREADABLE,)]


def test_a_sick_stream_does_not_stop_the_others(world: World) -> None:
    world.apply(a_table(), a_table("log.sick", bucket="nowhere"))
    staging(world, "1.gz")
    report = world.discover(NOON)
    assert report.new == 1
    assert report.errors == ("stream sick: bucket nowhere does not exist: create the folder nowhere in the local root",)


def test_stopped_and_discarded_streams_are_listed_and_removed_ones_are_not(world: World) -> None:
    text = a_table().replace('/events/"}', '/events/", enabled: false}')
    world.apply(text, a_table("log.other").replace('/other/"}', '/other/", discard: true}'), a_table("log.gone"))
    world.apply(a_table("log.gone").replace("staging/gone/", "staging/here/"))
    for stream in ("events", "other", "gone", "here"):
        world.drop(some_rows(1, START), stream=stream)
    found = world.discover(NOON)
    assert sorted(scan.stream_name for scan in found.scans if scan.new) == ["events", "gone", "other"]
    assert known_keys(world) == ["events/2026/000001.gz", "here/2026/000001.gz", "other/2026/000001.gz"]


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


def test_a_listing_of_a_time_to_come_proves_nothing(world: World) -> None:
    """A clock set to 2030 by --now must not switch off complete listings until then."""
    world.apply(a_table("log.one"), a_table("log.two"))
    with world.context.database.begin() as connection:
        first, second = (known.stream.name for known in streams.load_streams(connection))
    run_discover(world.context, now=utc("2030-01-01T00:00"), names=[f"log.{second}"])
    world.discover("2026-03-01T11:59")
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_stream_scans s SET object_count = 1000000, scan_time = '2030-01-01', "
            "full_scan_time = '2030-01-01' FROM prism_streams t WHERE t.prism_stream_id = s.prism_stream_id "
            f"AND t.stream_name = '{second}'"
        )
    found = world.discover(NOON).scans
    assert [item.stream_name for item in found] == [second, first]
    assert found[0].full
    grow_beyond_small(world)
    found = world.discover("2026-03-01T12:01").scans
    assert [(item.stream_name, item.full) for item in found] == [(first, False), (second, False)]


arrivals = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(0, 10_000)), max_size=30)


@given(arrivals, st.none() | st.text("abc", max_size=3))
def test_nothing_younger_than_the_overlap_lies_before_the_next_listing(
    found: list[tuple[str, int]], before: str | None
) -> None:
    seen = sorted((key, second) for key, second in dict(found).items() if before is None or key > before)
    overlap = Overlap(HOUR)
    for key, second in seen:
        overlap.see(ObjectInfo(key, 1, None, START + timedelta(seconds=second)))
    bound = max((second for _, second in seen), default=0) - 3_600
    older = [key for key, _ in takewhile(lambda item: item[1] < bound, seen)]
    assert overlap.position(before) == (older[-1] if older else before)


def test_a_long_listing_is_not_kept() -> None:
    overlap = Overlap(HOUR)
    for number in range(20_000):
        overlap.see(ObjectInfo(f"{number:06}", 1, None, START + timedelta(minutes=number)))
    assert overlap.position(None) == f"{19_999 - 61:06}"
    assert len(overlap._rising) == 61


def test_the_least_recently_listed_streams_come_first(world: World) -> None:
    world.apply(a_table("log.one"), a_table("log.two"), a_table("log.three"))

    def order(now: str, *names: str) -> list[str]:
        report = run_discover(world.context, now=utc(now), names=names or None)
        return [found.stream_name for found in report.scans]

    with world.context.database.begin() as connection:
        by_id = [known.stream.name for known in streams.load_streams(connection)]
    assert order("2026-03-01T12:00", f"log.{by_id[1]}") == [by_id[1]]
    assert order("2026-03-01T12:01") == [by_id[0], by_id[2], by_id[1]]
    assert order("2026-03-01T12:02", f"log.{by_id[0]}") == [by_id[0]]
    assert order("2026-03-01T12:03") == [by_id[1], by_id[2], by_id[0]]


def test_a_stream_that_cannot_be_listed_goes_to_the_end_of_the_line(world: World) -> None:
    world.apply(a_table(), a_table("log.a_sick", bucket="nowhere"))
    with world.context.database.begin() as connection:
        first = streams.load_streams(connection)[0].stream.name
    assert first == "a_sick"
    world.discover("2026-03-01T12:00")
    run_discover(world.context, now=utc("2026-03-01T12:01"), names=["log.a_sick"])
    assert [found.stream_name for found in world.discover("2026-03-01T12:02").scans] == ["events", "a_sick"]
    (world.root / "buckets" / "nowhere" / "a_sick").mkdir(parents=True)
    (world.root / "buckets" / "nowhere" / "a_sick" / "1.gz").write_bytes(b"x")
    report = world.discover("2026-03-01T12:03")
    assert (report.new, report.errors) == (1, ())
    assert all(found.full for found in report.scans)


def test_nothing_is_listed_after_the_deadline(world: World) -> None:
    world.apply(a_table("log.one"), a_table("log.two"))
    report = run_discover(world.context, now=utc(NOON), deadline=Deadline.after(0))
    assert (report.scans, report.left) == ((), 2)
    assert report.describe() == "0 new of 0 objects in 0 streams listed; 2 streams to go on with"


@pytest.fixture
def remote(world: World, services: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> StageContext:
    """The stream of log.remote in a real bucket with ordered listings, and ten objects; two make a page."""
    endpoint, bucket = services["MOTO_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    for number in range(10):
        s3.put_object(Bucket=bucket, Key=f"remote/{number}.gz", Body=b"x")
    there = world.in_bucket(endpoint, bucket)
    there.apply(a_table("log.remote", bucket=bucket))
    monkeypatch.setattr(listings, "_PAGE", 2)
    return there.context


def scan_a_page(context: StageContext, now: str = NOON) -> StreamScan:
    """Lists log.remote when the deadline is over after one page."""
    with context.database.begin() as connection:
        known = tuple(item for item in streams.load_streams(connection) if item.stream.name == "remote")
        prefix = listings._Prefix(streams=known, scans=stream_scans.load_scans(connection))
    (found,) = listings._scan_safely(context, prefix, utc(now), utc(now), Deadline.after(0))
    assert found.error is None
    return found


def test_a_whole_listing_is_of_when_it_began_by_the_clock_of_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with a fast clock on this machine: objects sent during the listing may be missed."""
    world.apply(a_table())
    begun: list[datetime] = []
    real = type(world.context.stores).list

    def listed(*args: Any, **more: Any) -> Iterator[Any]:
        begun.append(database_time(world))
        return real(*args, **more)

    monkeypatch.setattr(type(world.context.stores), "list", listed)
    before = database_time(world)
    run_discover(world.context, now=before + timedelta(hours=1))
    with world.context.database.begin() as connection:
        (scan,) = stream_scans.load_scans(connection).values()
    assert before < scan.full_scan_time < begun[0]


def database_time(world: World) -> datetime:
    with world.context.database.begin() as connection:
        return clock.database_time(connection)


def test_a_listing_that_is_too_long_goes_on_behind_its_last_key(remote: StageContext) -> None:
    found = [scan_a_page(remote) for _ in range(6)]
    assert [item.new for item in found] == [2, 2, 2, 2, 2, 0]
    assert [item.unfinished for item in found] == [True] * 5 + [False]
    assert [item.full for item in found] == [True] + [False] * 5


def test_an_unfinished_listing_is_due_at_the_next_tick(remote: StageContext) -> None:
    for _ in range(2):
        scan_a_page(remote)
    chosen = listings._choose_prefixes(remote, utc(NOON), ["log.remote"], every_seconds=600)
    assert len(chosen) == 1
    (found,) = run_discover(remote, now=utc(NOON), names=["log.remote"]).scans
    assert (found.listed, found.new, found.unfinished) == (6, 6, False)
    assert listings._choose_prefixes(remote, utc(NOON), ["log.remote"], every_seconds=600) == []


def test_a_listing_goes_on_behind_keys_that_cannot_be_stored(
    remote: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unstorable key is no position, so the listing continues to a storable one."""
    keys = ["remote/0\x00", "remote/0\x001", "remote/1", "remote/2\x00", "remote/3", "remote/4"]

    def listing(_bucket: str, _prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return (ObjectInfo(key, 1, None, START) for key in keys if after is None or key > after)

    monkeypatch.setattr(remote.stores, "list", listing)
    found = [scan_a_page(remote) for _ in range(3)]
    assert [(item.listed, item.new, item.unknown, item.unfinished) for item in found] == [
        (4, 1, 3, True),
        (2, 1, 1, True),
        (1, 1, 0, True),
    ]
    assert not scan_a_page(remote).unfinished


def test_folders_on_disk_are_listed_to_the_end_as_they_have_no_order(events: World) -> None:
    for number in range(1_500):
        staging(events, f"{number:05}.gz")
    with events.context.database.begin() as connection:
        prefix = listings._Prefix(streams=tuple(streams.load_streams(connection)), scans={})
    (found,) = listings._scan_safely(events.context, prefix, utc(NOON), utc(NOON), Deadline.after(0))
    assert (found.new, found.unfinished) == (1_500, False)


@given(arrivals, st.lists(st.integers(1, 10), max_size=5))
def test_a_listing_in_parts_leaves_nothing_young_before_the_next_one(
    found: list[tuple[str, int]], sizes: list[int]
) -> None:
    listing = sorted(dict(found).items())
    before: Scan | None = None
    start = 0
    for size in [*sizes, len(listing)]:
        part = listing[start : start + size]
        start += len(part)
        overlap = Overlap(HOUR)
        for key, second in part:
            overlap.see(ObjectInfo(key, 1, None, START + timedelta(seconds=second)))
        unfinished = bool(part) and start < len(listing)
        after = before.resume_key if before else None
        before = _next_scan(
            before,
            overlap,
            after,
            START,
            START,
            listed=len(part),
            full=before is None,
            unfinished=unfinished,
        )
        if not unfinished:
            break
    assert before is not None
    assert (before.resume_key, before.resume_time, before.object_count) == (None, None, len(listing))
    youngest = max((second for _, second in listing), default=0)
    for key, second in listing:
        if before.position_key is not None and key <= before.position_key:
            assert second < youngest - 3_600


def test_parts_of_a_listing_with_growing_keys_move_the_position_on() -> None:
    """Otherwise the next turn would list the same parts again."""
    before: Scan | None = None
    for part in range(3):
        overlap = Overlap(HOUR)
        for number in range(10):
            overlap.see(ObjectInfo(f"{part}{number}", 1, None, START + (10 * part + number) * HOUR))
        after = before.resume_key if before else None
        full, unfinished = before is None, part < 2
        before = _next_scan(before, overlap, after, START, START, listed=10, full=full, unfinished=unfinished)
    assert before is not None
    assert before.position_key == "27"

"""Concurrent publishers, streams and merges, each in its critical order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy import text

from prism_assets.metadata import leases
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.stages.iceberg import run
from prism_assets_tests.metadata.sessions import Session
from prism_assets_tests.stages.engines import in_background
from prism_assets_tests.stages.iceberg.clients import PausingCatalog, with_iceberg
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    NOON,
    TABLE,
    attempt,
    commits,
    dirty_days,
    is_sound,
    published,
    reasons,
    recorded,
    streamed,
)
from prism_assets_tests.world import World

PATIENCE = 120.0


def together(*works: Callable[[], Any]) -> list[Any]:
    """Runs works in threads that begin at once. Returns their results."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], Any]) -> Any:
        barrier.wait(PATIENCE)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return [done.result(PATIENCE) for done in [threads.submit(begin, work) for work in works]]


def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every publisher takes itself for the only one."""

    @contextmanager
    def everyone(_context: Any, _kind: LeaseKind, ids: list[int], _wait: float) -> Iterator[dict[int, Lease]]:
        yield {number: Lease(LeaseKind.ICEBERG, number, "") for number in ids}

    monkeypatch.setattr(run, "leased", everyone)
    monkeypatch.setattr(leases, "hold", lambda connection, lease: None)


def test_of_two_publishers_one_does_the_work(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    first, second = with_iceberg(world, worker="first"), with_iceberg(world, worker="second")
    reports = together(lambda: attempt(first), lambda: attempt(second))
    assert sum(report.commit is not None for report in reports) == 1
    assert is_sound(world, ids)
    assert len(commits(world)) == 3


@pytest.mark.parametrize("change", ["append", "replace"])
def test_two_publishers_without_a_lease_commit_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The catalog's own comparison of the head decides, even where nothing else does."""
    ids, now = published(world), NOON
    if change == "append":
        ids += streamed(world)
    else:
        now = AFTER
        world.catalog(now)
        world.merge(now, everything=True)
    without_leases(monkeypatch)
    both = threading.Barrier(2)

    def waiting(inner: Catalog) -> PausingCatalog:
        return PausingCatalog(inner, lambda: both.wait(PATIENCE))

    first, second = with_iceberg(world, waiting, worker="first"), with_iceberg(world, waiting, worker="second")
    reports = together(lambda: attempt(first, now), lambda: attempt(second, now))
    assert [reasons(report) for report in reports] == [[], []]
    assert "refused" in [item.outcome for item in commits(world)]
    assert sum(report.commit is not None for report in reports) == 1
    assert is_sound(world, ids)
    assert reasons(attempt(world, now)) == []
    assert (dirty_days(world), attempt(world, now).changed) == (0, False)
    assert is_sound(world, ids)


def in_a_stream(world: World, work: Callable[[], Any]) -> list[int]:
    """Begins work while a transaction of Stream, which has changed its day, waits. Returns the ids of its rows."""
    session = Session(world.context.database)
    session.sql("LOCK TABLE prism_merge_jobs IN EXCLUSIVE MODE")
    ids: list[int] = []
    stream = in_background(lambda: ids.extend(streamed(world)))
    until(lambda: waits(world, "INSERT INTO prism_merge_jobs"))
    working = in_background(work)
    until(lambda: not working.is_alive() or waits(world, "LOCK TABLE prism_partitions"))
    session.commit()
    session.close()
    for thread in (stream, working):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return ids


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def waits(world: World, statement: str) -> bool:
    """Whether a session waits for a lock in a statement."""
    with world.context.database.begin() as connection:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, :statement) > 0"
        return bool(connection.execute(text(sql), {"statement": statement}).scalar_one())


def test_rows_of_a_stream_that_was_under_way_when_the_table_was_begun_are_shown(world: World) -> None:
    world.apply(TABLE)
    ids = in_a_stream(world, lambda: attempt(world))
    attempt(world)
    assert is_sound(world, ids)


def test_rows_of_such_a_stream_are_never_shown_if_nobody_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first publication waits for this reason: the stream did not know that it had to mark its day."""
    monkeypatch.setattr(iceberg_tables, "wait_for_writers", lambda connection: None)
    world.apply(TABLE)
    ids = in_a_stream(world, lambda: attempt(world))
    for _ in range(3):
        attempt(world)
    assert ids != []
    assert world.iceberg_ids() == []


@pytest.mark.parametrize("meanwhile", ["merge", "stream", "merge and stream"])
def test_what_is_committed_between_plan_and_commit_is_shown_by_the_next_one(world: World, meanwhile: str) -> None:
    ids = published(world)
    world.catalog(AFTER)
    ids += streamed(world, AFTER)

    def work() -> None:
        if "merge" in meanwhile:
            world.merge(AFTER, everything=True)
        if "stream" in meanwhile:
            ids.extend(streamed(world, AFTER))

    slow = with_iceberg(world, lambda inner: PausingCatalog(inner, work))
    assert reasons(attempt(slow, AFTER)) == []
    assert dirty_days(world) == 1
    assert reasons(attempt(world, AFTER)) == []
    assert is_sound(world, ids)
    assert (dirty_days(world), attempt(world, AFTER).changed) == (0, False)


def test_a_publisher_that_stood_still_records_nothing_over_what_another_recorded(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    taken: list[object] = []

    def work() -> None:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '1 hour'")
        ids.extend(streamed(world))
        taken.append(attempt(world))

    still = with_iceberg(world, lambda inner: PausingCatalog(inner, work))
    report = attempt(still)
    assert "another run has taken this work over" in " ".join(reasons(report))
    assert len(taken) == 1
    assert recorded(world).snapshot_id is not None
    assert is_sound(world, ids)
    assert not attempt(world).changed

"""The watermark of a join table: its conditions, and the changes too late for it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import StoreUnavailable
from prism_assets.metadata import locks
from prism_assets.metadata.intake import staging_objects
from prism_assets.metadata.records import watermark
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.findings.records import RECORDS, RECORDS_WAIT
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.plan import StreamPlan, start_batch
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import utc
from prism_assets_tests.stages.join_tables import a_join, back, front
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
STREAMS = ("front", "back")


@pytest.fixture
def joined(world: World) -> World:
    """A join table with streams listed at noon: it accepts changes from 10:55 on."""
    world.apply(a_join())
    world.discover(NOON)
    assert clock(world) == utc("2026-03-01T11:55")
    return world


def clock(world: World) -> datetime | None:
    with world.context.database.begin() as connection:
        return watermark.load(connection, 1)


def settles(world: World) -> datetime | None:
    with world.context.database.begin() as connection:
        return watermark.settle_before(connection, 1)


def sent(world: World, at: str, *rows: dict[str, Any], stream: str = "front") -> Path:
    """Drops an object as if sent at this time."""
    path = world.root / "buckets" / "staging" / world.drop(rows, stream=stream)
    os.utime(path, (utc(at).timestamp(),) * 2)
    return path


def claim(world: World) -> StreamPlan:
    plan = start_batch(world.context, None)
    assert plan is not None
    return plan


def reasons(world: World) -> dict[str, int]:
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT reason, sum(line_count) FROM prism_quarantine GROUP BY 1")
        return {row[0]: int(row[1]) for row in rows}


def test_the_clock_stands_behind_the_last_complete_discovery_and_never_goes_back(joined: World) -> None:
    joined.discover("2026-03-01T13:00")
    assert clock(joined) == utc("2026-03-01T12:55")
    joined.discover("2026-03-01T12:30")
    assert clock(joined) == utc("2026-03-01T12:55")


def test_a_stream_that_was_never_listed_holds_the_clock(joined: World) -> None:
    joined.apply(a_join(streams='  - {name: side, url: "s3://staging/side/", group: front}\n'))
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, joined, "side/")
        joined.discover("2026-03-01T13:00")
        assert clock(joined) == utc("2026-03-01T11:55")
    joined.discover("2026-03-01T13:00")
    assert clock(joined) == utc("2026-03-01T12:55")


def broken(patch: pytest.MonkeyPatch, world: World, prefix: str) -> None:
    """Makes the store refuse to list a prefix."""
    real = type(world.context.stores).list

    def listed(stores: Any, bucket: str, under: str, **more: Any) -> Iterator[Any]:
        if under.startswith(prefix):
            raise StoreUnavailable("the store does not answer")
        return real(stores, bucket, under, **more)

    patch.setattr(type(world.context.stores), "list", listed)


def test_a_stream_that_is_stopped_holds_nothing_but_what_waits_there_does(joined: World) -> None:
    stopped = a_join().replace("group: front}\n  - {name: back", "group: front, enabled: false}\n  - {name: back")
    joined.apply(stopped)
    joined.discover("2026-03-01T13:00")
    assert clock(joined) == utc("2026-03-01T12:55")
    sent(joined, "2026-03-01T13:10", front("a", "2026-03-01T13:00"))
    for now in ("2026-03-01T14:00", "2026-03-01T15:00"):
        joined.stream(now)
        assert clock(joined) == utc("2026-03-01T13:10")


def test_what_waits_or_is_converted_holds_the_clock_at_the_time_it_was_sent(joined: World) -> None:
    sent(joined, "2026-03-01T12:10", front("a", NOON))
    joined.discover("2026-03-01T13:00")
    assert clock(joined) == utc("2026-03-01T12:10")
    claim(joined)
    joined.discover("2026-03-01T14:00")
    assert clock(joined) == utc("2026-03-01T12:10")


def test_a_change_is_accepted_up_to_its_lateness_and_not_beyond(joined: World) -> None:
    sent(joined, "2026-03-01T11:59", front("a", "2026-03-01T10:55"), front("b", "2026-03-01T10:54"))
    assert joined.stream(NOON).rows_out == 1
    assert reasons(joined) == {"too_late": 1}


def test_no_change_is_too_late_for_records_that_live_for_ever(world: World) -> None:
    world.apply(a_join(window="forever"))
    world.discover(NOON)
    sent(world, "2026-03-01T11:59", front("a", "2026-02-20T10:00"))
    assert world.stream(NOON).rows_out == 1


def test_what_was_sent_in_time_is_joined_however_long_discovery_was_down(joined: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, joined, "")
        for hour in range(13, 20):
            sent(joined, f"2026-03-01T{hour}:00", front(f"r{hour}", f"2026-03-01T{hour - 1}:01"))
            joined.discover(f"2026-03-01T{hour}:30")
        assert clock(joined) == utc("2026-03-01T11:55")
    joined.discover("2026-03-01T23:00")
    assert clock(joined) == utc("2026-03-01T13:00")
    assert run_stream(joined.context, now=utc("2026-03-01T23:00")).rows_out == 7
    assert reasons(joined) == {}


def test_by_the_time_of_day_what_came_behind_an_outage_would_be_too_late(joined: World) -> None:
    """The null control of the test above: a clock without a wait for discovery."""
    for hour in range(13, 20):
        sent(joined, f"2026-03-01T{hour}:00", front(f"r{hour}", f"2026-03-01T{hour - 1}:01"))
    joined.discover("2026-03-01T23:00")
    with joined.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_tables SET watermark = '2026-03-01 22:55Z' WHERE prism_table_id = 1")
    assert run_stream(joined.context, now=utc("2026-03-01T23:00")).rows_out == 0
    assert reasons(joined) == {"too_late": 7}


def test_nothing_settles_that_a_claimed_change_could_still_join(joined: World) -> None:
    sent(joined, "2026-03-01T13:30", front("a", "2026-03-01T10:56"))
    joined.discover(NOON)
    claim(joined)
    joined.discover("2026-03-01T14:00")
    assert (clock(joined), settles(joined)) == (utc("2026-03-01T13:30"), utc("2026-03-01T11:55"))


def test_a_batch_that_died_leaves_its_objects_with_their_clock(joined: World) -> None:
    sent(joined, "2026-03-01T13:30", front("a", "2026-03-01T10:56"))
    joined.discover(NOON)
    plan = claim(joined)
    with joined.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET heartbeat_time = heartbeat_time - interval '1 day'")
    joined.discover("2026-03-01T14:00")
    assert settles(joined) == utc("2026-03-01T11:55")
    assert joined.stream("2026-03-01T14:00").rows_out == 1, "accepted by the clock of its first claim"
    assert plan.tasks[0].watermark == utc("2026-03-01T11:55")
    assert settles(joined) == clock(joined) == utc("2026-03-01T13:30")


def test_an_object_that_was_given_up_is_judged_by_the_clock_of_when_it_comes_again(joined: World) -> None:
    path = sent(joined, "2026-03-01T11:58", front("a", "2026-03-01T11:30"))
    joined.discover(NOON)
    claim(joined)
    give_up(joined)
    joined.discover("2026-03-01T15:00")
    assert settles(joined) == utc("2026-03-01T14:55"), "records that it could have joined may have settled"
    os.utime(path, (utc("2026-03-01T14:58").timestamp(),) * 2)
    joined.stream("2026-03-01T15:00")
    assert reasons(joined) == {"too_late": 1}


def give_up(world: World) -> None:
    """Fails the single object for good, like its batch."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_stream_batches SET state = 'dead'")
        connection.exec_driver_sql("UPDATE prism_staging_objects SET state = 'failed', last_error = 'broken'")


def test_before_the_first_discovery_nothing_settles_and_nothing_is_too_late(world: World) -> None:
    world.apply(a_join())
    assert (clock(world), settles(world)) == (None, None)
    with world.context.database.begin() as connection:
        (stream, *_) = [row[0] for row in connection.exec_driver_sql("SELECT prism_stream_id FROM prism_streams")]
        sent(world, "2026-03-01T11:59", front("a", "2026-02-20T10:00"))
        found = staging_objects.FoundObject(
            bucket="staging", key="front/2026/000001.gz", etag=None, content_length=1, send_time=None
        )
        staging_objects.register(connection, stream, [found], utc(NOON))
    assert claim(world).tasks[0].watermark is None
    world.discover("2026-03-01T13:00")
    assert settles(world) is None


def test_history_is_accepted_in_the_order_of_the_clock(world: World) -> None:
    """Objects found by a new table hold the clock at their send time."""
    world.apply(a_join())
    sent(world, "2026-02-20T10:30", front("a", "2026-02-20T10:00"))
    sent(world, "2026-02-21T10:30", back("a", "2026-02-21T10:00"), stream="back")
    assert world.stream(NOON).rows_out == 2
    assert clock(world) == utc("2026-02-20T10:30")
    world.discover("2026-03-01T12:01")
    assert clock(world) == utc("2026-03-01T11:56")


def test_the_clock_moves_only_while_no_batch_is_starting(joined: World) -> None:
    """A batch that reads the watermark and a move never overlap: one waits for the other."""
    with starting_batch(joined) as waits:
        joined.discover("2026-03-01T13:00")
        assert waits == [True]


@contextmanager
def starting_batch(world: World) -> Iterator[list[bool]]:
    """Notes, at each request of the exclusive epoch lock, whether a starting batch blocks it."""
    noted: list[bool] = []
    real = locks.hold_epoch

    def hold(connection: Any) -> None:
        real(connection)
        with world.context.database.begin() as other:
            free = other.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock_shared({locks.EPOCH})").scalar_one()
        noted.append(not free)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "hold_epoch", hold)
        yield noted


@pytest.mark.parametrize("point", ["discover.in_watermarks", "discover.after_watermarks"])
def test_a_death_leaves_the_clock_to_the_next_discovery(joined: World, point: str) -> None:
    failpoints.configure({"PRISM_FAILPOINTS": f"{point}=raise(InjectedFault)"})
    try:
        with pytest.raises(failpoints.InjectedFault):
            joined.discover("2026-03-01T13:00")
    finally:
        failpoints.configure({})
    assert clock(joined) == utc("2026-03-01T11:55" if "in_" in point else "2026-03-01T12:55")
    joined.discover("2026-03-01T13:00")
    assert clock(joined) == utc("2026-03-01T12:55")


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_nothing_settles_too_early_and_nothing_in_time_is_refused(world: World, seed: int) -> None:
    world.apply(a_join())
    history = History(world, random.Random(seed))
    for _ in range(80):
        history.go_on()
    assert history.claimed > 3
    assert history.settled is not None


@dataclass
class History:
    """Objects are sent, discovered, claimed, finished and lost with their batch, in any order.

    The clock of the claim decides on acceptance: never earlier than settled records, nor later than the send time.
    """

    world: World
    random: random.Random
    now: datetime = field(default_factory=lambda: utc(NOON))
    open: list[StreamPlan] = field(default_factory=list)
    settled: datetime | None = None
    claimed: int = 0

    def go_on(self) -> None:
        self.now += timedelta(minutes=self.random.randrange(6))
        steps = (self.send, self.discover, self.discover, self.claim, self.finish, self.lose)
        self.random.choice(steps)()
        self.look()

    def look(self) -> None:
        """Checks the limit of settling, and that no claimed change could join a settled record."""
        found = settles(self.world)
        clocks = [task.watermark for plan in self.open for task in plan.tasks]
        if found is not None:
            assert all(at is not None and found <= at for at in clocks)
            self.settled = max(found, self.settled or found)

    def send(self) -> None:
        sent(self.world, self.now.strftime("%Y-%m-%dT%H:%M"), front("a", NOON), stream=self.random.choice(STREAMS))

    def discover(self) -> None:
        run_discover(self.world.context, now=self.now)

    def claim(self) -> None:
        plan = start_batch(self.world.context, None)
        for task in plan.tasks if plan else ():
            assert task.sent is not None
            assert task.watermark is not None
            assert task.watermark <= task.sent
            assert self.settled is None or task.watermark >= self.settled
            self.claimed += 1
        self.open += [plan] if plan else []

    def finish(self) -> None:
        self.end("done")

    def lose(self) -> None:
        self.end("pending")

    def end(self, state: str) -> None:
        if self.open:
            plan = self.open.pop(self.random.randrange(len(self.open)))
            ids = [task.staging_object_id for task in plan.tasks]
            with self.world.context.database.begin() as connection:
                connection.exec_driver_sql(
                    f"UPDATE prism_staging_objects SET state = '{state}' WHERE prism_staging_object_id = ANY(%s)",
                    (ids,),
                )


def told(world: World, now: str) -> list[str]:
    (status,) = read_status(world.context, now=utc(now), names=["log.request"])
    left = read_findings(world.context, None, [RECORDS], now=utc(now))
    assert left == tuple(item for item in status.findings if item.kind == RECORDS_WAIT)
    return [item.says.partition(": ")[2] for item in left]


def test_a_clock_that_stands_is_told_with_what_holds_it(joined: World) -> None:
    assert told(joined, "2026-03-01T13:25") == []
    assert told(joined, "2026-03-01T13:35") == ["stream back was listed completely at 2026-03-01 12:00Z last"]
    path = sent(joined, "2026-03-01T11:58", front("a", NOON))
    joined.discover("2026-03-01T13:40")
    (why,) = told(joined, "2026-03-01T13:40")
    assert why == f"s3://staging/front/2026/{path.name}, sent at 2026-03-01 11:58Z, is not converted"
    assert run_stream(joined.context, now=utc("2026-03-01T13:40")).errors == ()
    joined.discover("2026-03-01T13:41")
    assert told(joined, "2026-03-01T13:41") == []
    joined.apply(a_join(streams='  - {name: side, url: "s3://staging/side/", group: front}\n'))
    assert told(joined, "2026-03-01T16:00") == ["stream side was never listed completely"]

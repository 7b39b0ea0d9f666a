"""Rows of open days: readers see them until the day closes, at its end or early, and then they are erased."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work import Failure
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.close_open_days import close_open_days
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.report import ErasureStatus, read_erasures
from prism_assets.stages.erase.run import continue_erasures
from prism_assets.stages.findings.erasures import CLOSED_DAYS, ERASURES_PROVED
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.leases import leased
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.stages.engines import FailingEngine, Through, VanishingEngine, another_worker
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.stages.test_erase import (
    NAME,
    NEXT_DAY,
    NOON,
    TABLE,
    WHERE,
    arrive,
    erase,
    go_on,
    is_clean,
    later,
    matching_objects,
    meanwhile,
    users,
)
from prism_assets_tests.world import World


class UnreadableObjects(Through):
    """Finds no object readable."""

    def write(self, tasks: Sequence[WriteTask], _definitions: Definitions) -> Iterator[WriteResult]:
        return (task.failed(Failure(message="the store coughed", transient=False)) for task in tasks)


class BrokenEngine(Through):
    """Ends each search with an error instead of results."""

    def write(self, _tasks: Sequence[WriteTask], _definitions: Definitions) -> Iterator[WriteResult]:
        raise InvariantBroken("the objects do not agree with their records")


CLOSE = "the close of 2026-03-01, at 2026-03-02 00:00Z or later, or by `prism erase log.events --close-open-days`"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def bodies(world: World) -> dict[str, bytes]:
    """Returns the Parquet objects of the lake by key."""
    return {key: (world.root / "buckets/lake" / key).read_bytes() for key in keys(world, ".parquet")}


def test_rows_of_an_open_day_stay_until_it_closes_and_leave_every_object_then(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    arrive(world, [44] * 10)
    world.catalog(NOON)
    before, seen = bodies(world), users(world)

    status = erase(world, rows=10)
    assert (status.state, status.rows_erased, status.objects_rewritten) == ("rewriting", 0, 0)
    assert (status.open_rows, status.open_objects) == (10, 1)
    assert status.waits_for == f"{CLOSE}: 10 rows match there, in 1 object, and readers see them until then"
    assert (users(world), bodies(world)) == (seen, before)
    assert is_clean(world)

    world.catalog(NEXT_DAY)
    assert (go_on(world).erasures[0].state, users(world)) == ("publishing", seen)
    world.catalog(NEXT_DAY)
    assert users(world) == sorted([41, 43] * 10 + [44] * 10)
    assert go_on(world).erasures[0].state == "waiting"
    assert is_clean(world)
    proved = go_on(world, later()).erasures[0]
    assert proved.proof
    assert (proved.state, proved.rows_erased, proved.proof["open_rows"]) == ("proved", 10, 10)
    assert "; 10 rows of open days went after the close of these" in str(proved)
    assert matching_objects(world) == []


def test_status_a_check_and_a_plan_say_how_many_rows_wait_and_until_when(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43])
    arrive(world, [42, *range(100, 130)])
    world.catalog(NOON)
    plan = plan_erasure(world.context, NAME, WHERE)
    assert plan.open_days == {utc(NOON).date(): utc("2026-03-02T00:00")}
    assert plan.sentences[0] == (
        "log.events 2026-03-01: 2 rows, erased after the day closes, at 2026-03-02 00:00Z or later"
    )
    erase(world)
    (status,) = read_erasures(world.context, world.context.choose_tables([NAME]))
    assert (status.open_days, status.open_until) == ((utc(NOON).date(),), utc("2026-03-02T00:00"))
    assert f"{CLOSE}: 2 rows match there, in 2 objects" in str(status)
    assert f"{CLOSE}: 2 rows match there, in 2 objects" in check(world, ERASURES_PROVED, NOON).sentence


def test_an_open_day_without_such_rows_keeps_no_erasure_waiting(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    world.catalog(NEXT_DAY)
    arrive(world, [41, 43] * 10, at="2026-03-02T00:05", now=NEXT_DAY)
    status = erase(world, rows=10)
    assert (status.state, status.rows_erased, status.open_days) == ("publishing", 10, ())


def test_objects_of_an_open_day_are_read_again_after_an_hour_and_not_in_each_run(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    assert erase(world, rows=10).state == "rewriting"
    idle = another_worker(world, FailingEngine(world.context.engine, times=100))
    status = continue_erasures(idle.context).erasures[0]
    assert (status.open_rows, status.open_objects) == (10, 1)
    arrive(world, [7] * 60)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_erasures SET open_rows = 0, open_time = open_time - interval '1 hour'")
    assert continue_erasures(world.context).erasures[0].open_rows == 10


def test_what_is_merged_while_a_day_is_open_is_erased_with_it(world: World) -> None:
    world.apply(TABLE)
    for _ in range(3):
        arrive(world, [42] + [1] * 20)
    assert erase(world).open_rows == 3
    assert world.merge(NOON, everything=True).errors == ()
    assert go_on(world).erasures[0].open_rows == 3
    world.catalog(NEXT_DAY)
    assert world.merge(NEXT_DAY, everything=True).errors == ()
    go_on(world)
    world.catalog("2026-03-02T00:20")
    world.catalog("2026-03-02T00:30")
    assert users(world) == [1] * 60
    assert go_on(world).erasures[0].state == "waiting"
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert is_clean(world)


def test_a_day_that_closes_during_the_search_is_searched_by_the_next_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    meanwhile(monkeypatch, "erase.after_search", lambda: world.catalog(NEXT_DAY))
    status = erase(world, rows=10)
    assert (status.state, status.open_days) == ("rewriting", ())
    assert status.waits_for == "the next call: others were at the same objects"
    assert go_on(world).erasures[0].rows_erased == 10


def test_a_day_that_has_closed_is_due_once_and_after_a_failure_again_in_minutes(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    arrive(world, [42], at="2026-03-02T12:00")
    world.catalog(NOON)
    erase(world, rows=11)

    def due() -> list[str]:
        return [str(item.date) for item in read_findings(world.context, None, [CLOSED_DAYS], now=utc(NEXT_DAY))]

    def minutes_pass() -> None:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_erasures SET look_time = look_time - interval '15 minutes'")

    assert due() == []
    world.catalog(NEXT_DAY)
    assert due() == ["2026-03-01"]
    failing = another_worker(world, UnreadableObjects(world.context.engine))
    assert continue_erasures(failing.context).errors
    assert due() == []
    minutes_pass()
    assert due() == ["2026-03-01"]
    broken = another_worker(world, BrokenEngine(world.context.engine))
    assert continue_erasures(broken.context).errors
    assert due() == []
    minutes_pass()
    with leased(world.context, LeaseKind.ERASE, world.context.choose_ids([NAME]) or ()):
        assert due() == [], "another call is at the erasures of the table"
    assert due() == ["2026-03-01"]
    assert continue_erasures(world.context).erasures[0].rows_erased == 10
    assert due() == [], "the other day is open"


def test_a_brief_call_rewrites_a_closed_day_and_neither_proves_nor_waits_for_another_call(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 43] * 10)
    world.catalog(NEXT_DAY)
    erase(world, "user_id = 41", rows=10)
    arrive(world, [42, 43] * 10, at="2026-03-02T12:00", now="2026-03-02T12:00")
    world.catalog("2026-03-02T12:00")
    assert go_on(world).erasures[0].state == "waiting"
    erase(world, rows=10)
    world.catalog("2026-03-03T00:10")
    with leased(world.context, LeaseKind.ERASE, world.context.choose_ids([NAME]) or ()):
        busy = continue_erasures(another_worker(world, world.context.engine).context, briefly=True)
    assert list(busy.holders) == [NAME]
    report = continue_erasures(world.context, now=later(), briefly=True)
    assert [item.state for item in report.erasures] == ["waiting", "publishing"]
    assert go_on(world, later()).erasures[0].state == "proved"


def close(world: World, now: str = NOON) -> ErasureStatus:
    """`prism erase --close-open-days`."""
    report = close_open_days(world.context, [NAME], clock=lambda: utc(now))
    assert report.errors == ()
    return report.erasures[0]


def test_open_days_with_such_rows_are_closed_early_and_later_rows_of_them_are_seen(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    arrive(world, [50] * 10, at="2026-03-02T12:00")
    world.catalog(NOON)
    erase(world, rows=10)
    status = close(world)
    assert (status.state, status.rows_erased) == ("waiting", 10)
    assert users(world) == sorted([41, 43] * 10 + [50] * 10)
    days = {item.date.isoformat(): item.state for item in read_status(world.context, now=utc(NOON))[0].partitions}
    assert days == {"2026-03-01": "switched", "2026-03-02": "live"}, "the other day holds no such row"
    arrive(world, [42, 60])
    world.catalog(NOON)
    assert users(world) == sorted([41, 43] * 10 + [50] * 10 + [60])
    assert is_clean(world)
    assert close(world).state == "waiting", "nothing is left to close"
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []


def test_a_day_that_was_asked_to_close_early_is_closed_by_the_next_catalog_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command died after its request."""
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    world.catalog(NOON)
    erase(world, rows=10)
    points = failpoints.parse("erase.after_ask_for_close=1*raise(InjectedFault)")
    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "_POINTS", points)
        with pytest.raises(failpoints.InjectedFault):
            close(world)
    (status,) = read_erasures(world.context, world.context.choose_tables([NAME]))
    assert str(status.waits_for).startswith("the close of 2026-03-01, which was asked for: 10 rows match there")
    world.catalog(NOON)
    assert go_on(world).erasures[0].rows_erased == 10


def test_a_day_whose_rows_could_not_be_counted_is_not_closed_early(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42, 43] * 10)
    world.catalog(NOON)
    erase(world, rows=10)
    gone = another_worker(world, VanishingEngine(world.context.engine, results=0))
    close_open_days(gone.context, [NAME], clock=lambda: utc(NOON))
    (day,) = read_status(world.context, now=utc(NOON))[0].partitions
    assert day.state == "live", "the day may hold no such row"


def test_a_lost_object_of_an_open_day_is_repaired_with_the_rows_that_wait(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [42, 7] + [1] * 20)
    world.catalog(NOON)
    erase(world)
    (live,) = keys(world, "/live/")
    (world.root / "buckets/lake" / live).unlink()
    assert run_repair(world.context).repaired == 1
    assert users(world) == sorted([42, 7] + [1] * 20)
    assert is_clean(world)
    world.catalog(NEXT_DAY)
    assert go_on(world).erasures[0].rows_erased == 1


def text_of(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M}"


def test_it_waits_for_a_person_three_days_after_the_end_of_the_day_and_not_of_the_erasure(world: World) -> None:
    today = datetime.now(timezone.utc)
    ahead = today + timedelta(days=2)
    world.apply(TABLE, now=text_of(today))
    arrive(world, [41, 42, 43, *range(100, 130)], at=text_of(ahead), now=text_of(today))
    world.catalog(text_of(today))
    for user in (41, 42):
        status = erase(world, f"user_id = {user}", rows=1)
    assert f"the close of {ahead:%Y-%m-%d}" in str(status.waits_for)

    def overdue(days: int) -> list[bool]:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(f"UPDATE prism_erasures SET create_time = create_time - interval '{days} days'")
        report = continue_erasures(world.context, names=[NAME], now=later())
        return [item.for_a_person for item in report.erasures]

    assert overdue(4) == [False, False], "they go on by themselves when the day is over"


def test_two_erasures_of_one_object_are_proved_by_themselves_after_the_close(world: World) -> None:
    world.apply(TABLE, now="2026-03-01T00:00")
    arrive(world, [41, 42, 43, *range(100, 130)])
    world.catalog(NOON)
    arrive(world, [41, 41])
    for user, rows, objects in ((41, 3, 2), (42, 1, 1)):
        status = erase(world, f"user_id = {user}", rows=rows)
        assert (status.state, status.open_rows, status.open_objects) == ("rewriting", rows, objects)
    for _ in range(3):
        world.catalog("2026-03-02T01:00")
        hours_pass(world, 100)
        continue_erasures(world.context, now=later(), forced=True)
        gc(world, now=later(20))
    statuses = read_erasures(world.context, world.context.choose_tables([NAME]))
    assert [item.state for item in statuses] == ["proved", "proved"]
    assert users(world) == [43, *range(100, 130)]

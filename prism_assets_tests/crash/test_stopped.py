"""A process that stands still (SIGSTOP, a paused container) delays nobody, and changes nothing when it continues."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.leases import takeover_seconds
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import utc
from prism_assets_tests.crash.processes import Command, start
from prism_assets_tests.stages.catalogs import calls_are_over, intents, with_lease
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.stages.test_publish import AFTER, late_rows, record
from prism_assets_tests.stages.test_repair import small_keys
from prism_assets_tests.world import World

CATALOG = ("catalog", "--now", f"{AFTER}:00Z", "--force")
Stop = Callable[..., Command]


@pytest.fixture
def world(world: World) -> World:
    """A worker takes over from a process that stands still for two seconds."""
    return replace(world, context=with_lease(world, 2.0))


@pytest.fixture
def stop(world: World, tmp_path: Path) -> Iterator[Stop]:
    """Starts a command and stops the process at a failpoint."""
    made: list[Command] = []

    def run(point: str, *command: str) -> Command:
        gate = tmp_path / "gate"
        gate.touch()
        made.append(start(world, *command, PRISM_FAILPOINTS=f"{point}=1*pause({gate})"))
        deadline = time.monotonic() + 120
        while not gate.with_suffix(".reached").exists():
            assert made[0].is_running(), made[0].finish()
            assert time.monotonic() < deadline, "the failpoint was not reached"
            time.sleep(0.01)
        while not stands_still(world, made[0]):
            made[0].send(signal.SIGCONT)
            time.sleep(0.02)
        gate.unlink()
        return made[0]

    yield run
    for process in made:
        process.send(signal.SIGCONT)
        process.kill()


def stands_still(world: World, process: Command) -> bool:
    """Stops a process. Returns False during a lease renewal, because PostgreSQL then keeps the row for a minute."""
    process.send(signal.SIGSTOP)
    time.sleep(0.05)
    with world.context.database.begin() as connection:
        statement = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND state <> 'idle' AND backend_type = 'client backend'"
        )
        return not connection.exec_driver_sql(statement).scalar_one()


def go_on(process: Command) -> tuple[int, str]:
    process.send(signal.SIGCONT)
    return process.finish()


@pytest.mark.parametrize(
    "point", ["catalog.after_lease", "catalog.after_begin", "catalog.before_manifest", "catalog.after_publish"]
)
def test_a_table_is_taken_over_from_a_run_that_stands_still_and_which_then_changes_nothing(
    world: World, stop: Stop, point: str
) -> None:
    a_closed_day(world)
    late_rows(world)
    stopped = stop(point, *CATALOG)
    late_rows(world)
    report = run_catalog(world.context, now=utc(AFTER), wait_seconds=takeover_seconds(world.context))
    assert report.errors == ()
    before = (record(world), world.partition("2026-03-01").location)
    assert before[0] == (0, 4)
    status, output = go_on(stopped)
    assert status == 1
    assert "another run has taken this work over" in " ".join(output.split())
    assert (record(world), world.partition("2026-03-01").location) == before


def test_a_switch_is_left_to_the_run_that_took_over(world: World, stop: Stop) -> None:
    a_closed_day(world)
    world.merge(AFTER)
    stopped = stop("catalog.after_lease", *CATALOG)
    report = run_catalog(world.context, now=utc(AFTER), names=["log.events"], republish=True, wait_seconds=30)
    assert report.errors == ()
    assert go_on(stopped)[0] == 1
    assert world.status("2026-03-01", AFTER).state == "closed"
    world.catalog(AFTER)
    assert world.status("2026-03-01", AFTER).state == "switched"


def test_a_call_that_a_stopped_run_makes_when_it_goes_on_is_put_right_by_the_next_tick(
    world: World, stop: Stop
) -> None:
    """The call follows the check of the lease, and nothing can prevent it.

    Therefore the run has an intent on record.
    """
    a_closed_day(world)
    late_rows(world)
    stopped = stop("catalog.before_call", *CATALOG)
    late_rows(world)
    assert run_catalog(world.context, now=utc(AFTER), wait_seconds=takeover_seconds(world.context)).errors == ()
    newest = world.ids()
    assert go_on(stopped)[0] == 1
    assert len(world.ids()) < len(newest), "the late call did land"
    assert [item.kind for item in find_work(world.context, "catalog", now=utc(AFTER))] == ["compare"]
    world.catalog(AFTER)
    assert world.ids() == newest


def test_a_call_that_is_made_when_nobody_waits_for_it_any_more_is_put_right_by_the_next_tick(
    world: World, stop: Stop
) -> None:
    """The run stood still before its call for longer than any call takes, so other runs have removed its intent."""
    a_closed_day(world)
    late_rows(world)
    stopped = stop("catalog.before_call", *CATALOG)
    late_rows(world)
    calls_are_over(world)
    assert run_catalog(world.context, now=utc(AFTER), wait_seconds=takeover_seconds(world.context)).errors == ()
    newest = world.ids()
    assert (intents(world), find_work(world.context, "catalog", now=utc(AFTER))) == (0, [])
    assert go_on(stopped)[0] == 1
    assert len(world.ids()) < len(newest), "the late call did land"
    assert [item.kind for item in find_work(world.context, "catalog", now=utc(AFTER))] == ["compare"]
    world.catalog(AFTER)
    assert (world.ids(), intents(world)) == (newest, 0)


def test_a_day_is_repaired_though_another_repair_of_it_stands_still(world: World, stop: Stop) -> None:
    a_closed_day(world)
    ids = world.ids()
    world.context.stores.delete("lake", small_keys(world)[:1])
    stopped = stop("repair.after_plan", "repair")
    report = run_repair(world.context)
    assert (report.errors, report.repaired) == ((), 1)
    status, output = go_on(stopped)
    assert status == 1
    assert "another run has taken this work over" in " ".join(output.split())
    world.catalog(AFTER)
    assert world.ids() == ids

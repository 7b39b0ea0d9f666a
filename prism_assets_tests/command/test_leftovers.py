"""Ends of commands: the exit status and the last line show the remaining work, for a person or a later run."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.run import lasting_errors, run_until_idle
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Done, Prism
from prism_assets_tests.stages.catalogs import held_all_the_time
from prism_assets_tests.stages.engines import FailingEngine, another_worker, expire_leases
from prism_assets_tests.world import World

NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"
DAY = "2026-03-01"


@pytest.fixture
def table(prism: Prism) -> Prism:
    """With the table log.events."""
    prism.world.apply(a_table())
    return prism


@pytest.fixture
def given_up(table: Prism) -> str:
    """The key of an object given up by an earlier run."""
    key = table.world.drop(some_rows(1, utc(NOON)))
    table.ok("discover", "--now", NOON)
    (table.world.root / "buckets" / "staging" / key).unlink()
    table.set(max_attempts="1")
    assert table("stream", "--now", NOON).status == 1
    return key


def close_a_day(world: World) -> None:
    """Makes a closed day with rows, due to be merged."""
    world.apply(a_table())
    world.drop(some_rows(3, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.catalog(AFTER)


def fails(done: Done, *words: str) -> None:
    """The status, and every word in the last line."""
    assert done.status == 1, done
    for word in words:
        assert word in done.err.splitlines()[-1], done.err


def test_a_run_until_idle_that_leaves_nothing_says_so(table: Prism) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    assert table.ok("run", "--until-idle", "--now", AFTER).out.splitlines()[-1] == "nothing is left for a person"


def test_what_was_given_up_before_keeps_a_run_until_idle_from_ending_well(table: Prism, given_up: str) -> None:
    """The object stays given up until somebody acts, whatever else succeeds."""
    table.world.drop(some_rows(3, utc(NOON)))
    for _ in range(2):
        done = table("run", "--until-idle", "--now", NOON)
        fails(done, "left for a person: log.events: 1 staging object is given up", f"s3://staging/{given_up}")
        fails(done, "`prism stream --retry-failed --table log.events`")
    assert len(table.world.ids()) == 3


@pytest.mark.parametrize("words", [("stream",), ("run",), ("stream", "--json"), ("run", "--json")])
def test_a_command_that_did_its_own_part_names_what_was_given_up_before(
    table: Prism, given_up: str, words: tuple[str, ...]
) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    done = table(*words, "--now", NOON)
    assert done.status == 0
    assert "left for a person: log.events: 1 staging object is given up" in done.err
    assert f"the latest s3://staging/{given_up}: " in done.err


@pytest.mark.usefixtures("given_up")
def test_what_other_tables_leave_is_not_told(table: Prism) -> None:
    table.world.apply(a_table("log.others"))
    assert table.ok("run", "--until-idle", "--now", NOON, "--table", "log.others").err == ""


def test_what_somebody_has_accepted_is_left_for_nobody(table: Prism, given_up: str) -> None:
    assert given_up in table.ok("status").out
    table.ok("stream", "--give-up", f"s3://staging/{given_up}", "--now", NOON)
    assert table.ok("run", "--until-idle", "--now", NOON).out.endswith("nothing is left for a person\n")
    assert given_up not in table.ok("status").out
    table.ok("stream", "--retry-failed", "--now", NOON)  # means not accepted by anybody
    assert table("stream", "--retry", f"s3://staging/{given_up}", "--now", NOON).status == 1  # still missing


def test_an_object_that_was_written_again_after_its_conversion_is_left_for_a_person(table: Prism) -> None:
    key = table.world.drop(some_rows(1, utc(NOON)), name="same")
    table.ok("run", "--now", NOON)
    table.world.drop(some_rows(2, utc(NOON)), name="same")
    fails(
        table("run", "--until-idle", "--now", NOON),
        "1 staging object is not read in its later",
        f"s3://staging/{key}: ",
    )


@pytest.mark.usefixtures("given_up")
def test_an_object_that_will_be_tried_again_by_itself_is_left_for_nobody(table: Prism) -> None:
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_staging_objects SET retry_time = clock_timestamp() + interval '1 hour' WHERE state = 'failed'"
        )
    said = table.ok("run", "--until-idle", "--now", NOON).out.splitlines()
    assert said[-1] == "nothing is left for a person"
    assert said[-2].startswith("later, by itself: log.events: 1 staging object could not be read and is tried again")


def test_a_merge_that_a_dead_worker_left_and_that_goes_again_by_itself_is_no_error(table: Prism) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    table.ok("run", "--now", NOON)
    with table.world.context.database.begin() as connection:
        assert merge_jobs.claim_due(connection, now=utc(NOON), limit=1, worker="dead", ignore_schedule=True)
    expire_leases(table.world)
    said = table.ok("run", "--until-idle", "--now", NOON).out
    assert f"later, by itself: log.events {DAY}: its merge goes again at" in said
    assert said.endswith("nothing is left for a person\n")


def test_a_merge_that_failed_and_then_went_through_is_no_error(world: World) -> None:
    """The surroundings failed once; the run waits for the next try."""
    close_a_day(world)
    sick = another_worker(world, FailingEngine(world.context.engine, times=1)).context
    clock = a_clock(utc(AFTER), timedelta(minutes=2))
    turns = run_until_idle(sick, clock=clock, patience=20)
    assert [len(turn.merge.problems) for turn in turns][:2] == [1, 0]
    assert sum(len(turn.merge.merged) for turn in turns) == 1
    assert lasting_errors(sick, turns) == ()


def test_a_merge_that_fails_to_the_last_is_an_error(world: World) -> None:
    close_a_day(world)
    sick = another_worker(world, FailingEngine(world.context.engine, times=99, transient=False)).context
    turns = run_until_idle(sick, clock=lambda: utc(AFTER))
    assert lasting_errors(sick, turns) == (f"log.events {DAY}: the store coughed",)


def a_clock(start: datetime, step: timedelta) -> Callable[[], datetime]:
    """Returns a clock that advances by a step at each reading."""
    ticks = itertools.count()
    return lambda: start + next(ticks) * step


@pytest.fixture
def parked(table: Prism) -> Prism:
    """A table with a parked merge."""
    close_a_day(table.world)
    failing = FailingEngine(table.world.context.engine, times=1, transient=False)
    settings = table.world.settings.model_copy(update={"merge_max_attempts": 1})
    sick = replace(another_worker(table.world, failing).context, settings=settings)
    assert replace(table.world, context=sick).merge(AFTER).errors
    return table


def test_a_parked_merge_is_left_for_a_person(parked: Prism) -> None:
    command = f"`prism merge --all --table log.events --date {DAY}`"
    for words in (("merge",), ("run",)):
        done = parked(*words, "--now", AFTER)
        assert done.status == 0
        assert f"log.events {DAY}: its merge is parked after 1 tries: the store coughed" in done.err
    fails(parked("run", "--until-idle", "--now", AFTER), "left for a person", "parked after 1 tries", command)
    parked.ok("merge", "--all", "--table", "log.events", "--date", DAY, "--now", AFTER)
    parked.ok("run", "--until-idle", "--now", AFTER)


def test_ranges_that_contradict_their_objects_are_left_for_a_person(table: Prism) -> None:
    close_a_day(table.world)
    table.ok("merge", "--now", AFTER)
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET row_count = 2 WHERE lower_bound IS NOT NULL")
    fails(
        table("run", "--until-idle", "--now", AFTER),
        f"log.events {DAY}: waits for the switch: the merged ranges hold 2",
    )
    done = table("catalog", "--now", AFTER)
    assert (done.status, "left for a person: log.events" in done.err) == (0, True)


def test_a_closed_day_that_no_merge_is_scheduled_for_is_left_for_a_person(table: Prism) -> None:
    close_a_day(table.world)
    with table.world.context.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prism_merge_jobs")
    done = table("run", "--until-idle", "--now", AFTER)
    command = f"Run `prism merge --all --table log.events --date {DAY}`"
    fails(done, f"it was never merged, and no merge is scheduled. {command}")


def test_an_outage_that_lasts_ends_a_run_until_idle_after_its_patience(table: Prism) -> None:
    key = table.world.drop(some_rows(1, utc(NOON)))
    table.ok("discover", "--now", NOON)
    blocked = table.world.root / "buckets" / "staging" / key
    blocked.unlink()
    blocked.symlink_to(blocked.name)  # the store refuses the object, so it does not count as missing
    done = table("run", "--until-idle", "--patience", "1", "--now", NOON)
    fails(done, "no progress any more: log.events: 1 staging object waits to be converted", f"s3://staging/{key}: ")


def test_what_a_run_until_idle_waits_for_is_told_once(table: Prism) -> None:
    path = table.world.root / "buckets" / "staging" / table.world.drop(some_rows(1, utc(NOON)))
    table.ok("discover", "--now", NOON)
    path.unlink()
    path.symlink_to(path.name)
    lines: list[str] = []
    run_until_idle(replace(table.world.context, progress=lines.append), clock=lambda: utc(NOON), patience=5)
    (waits,) = [line for line in lines if line.startswith("run: waits")]
    told = "run: waits, for 5 s without progress at most: log.events: 1 staging object waits to be converted"
    assert waits.startswith(told)


@contextmanager
def another_catalog_run(world: World) -> Iterator[threading.Timer]:
    """Holds the catalog of log.events until the timer is started and has run out, or to the end."""
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with held_all_the_time(world, LeaseKind.CATALOG, [world.context.choose_tables(None)[0].table_id]):
            held.set()
            enough.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    timer = threading.Timer(0.7, enough.set)
    try:
        yield timer
    finally:
        enough.set()
        holder.join()
        timer.cancel()


def test_a_table_that_another_run_is_at_all_the_time_is_an_error(table: Prism) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    with another_catalog_run(table.world):
        for words in (("catalog",), ("run",), ("run", "--until-idle", "--patience", "0.5")):
            fails(table(*words, "--now", NOON), "log.events: another catalog run is working on it (")


def test_a_run_until_idle_waits_for_another_catalog_run(table: Prism) -> None:
    table.world.drop(some_rows(3, utc(NOON)))
    with another_catalog_run(table.world) as timer:
        timer.start()
        table.ok("run", "--until-idle", "--now", NOON)
    assert len(table.world.ids()) == 3

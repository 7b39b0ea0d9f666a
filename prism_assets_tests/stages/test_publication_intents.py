"""Calls that land long after their caller died: they are recorded before, and the catalog is compared until then."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.run import run_until_idle
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.crash.processes import run
from prism_assets_tests.findings import says
from prism_assets_tests.stages.catalogs import (
    LosingCatalog,
    an_hour_passes,
    calls_are_over,
    holders_fall_silent,
    intents,
    recorded,
    with_catalog,
    with_lease,
)
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.stages.test_publish import AFTER, NOON, late_rows, record
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
CATALOG = ("catalog", "--now", f"{AFTER}:00Z", "--force")


def lands(world: World, location: str) -> None:
    """Lets the call of a dead run take effect now."""
    (table,) = world.context.choose_tables(None)
    world.glue.publish(table, {DAY: location})


def work(world: World) -> list[str]:
    return [item.kind for item in find_work(world.context, "catalog", now=utc(AFTER))]


def test_a_call_that_lands_after_its_run_was_killed_is_put_right_as_often_as_it_may_happen(world: World) -> None:
    a_closed_day(world)
    older = world.partition(str(DAY)).location
    late_rows(world)
    status, output = run(world, *CATALOG, PRISM_FAILPOINTS="catalog.before_call=kill9")
    assert status == -signal.SIGKILL, output
    late_rows(world)
    holders_fall_silent(world)
    world.catalog(AFTER)
    newest = world.ids()
    assert len(newest) == 12
    for _ in range(2):
        lands(world, older)
        assert len(world.ids()) < len(newest), "readers see less"
        assert work(world) == ["compare"]
        assert world.catalog(AFTER).changed
        assert world.ids() == newest
    lands(world, older)
    calls_are_over(world)
    assert work(world) == ["compare"]
    world.catalog(AFTER)
    assert world.ids() == newest
    assert (work(world), intents(world)) == ([], 0)
    assert not world.catalog(AFTER).changed


@pytest.mark.parametrize("point", ["catalog.after_begin", "catalog.after_publish"])
def test_a_run_that_was_killed_with_no_call_on_its_way_is_made_good_at_once(world: World, point: str) -> None:
    a_closed_day(world)
    late_rows(world)
    status, output = run(world, *CATALOG, PRISM_FAILPOINTS=f"{point}=kill9")
    assert status == -signal.SIGKILL, output
    assert "compare" not in work(world), "it may be alive"
    holders_fall_silent(world)
    assert "compare" in work(world)
    world.catalog(AFTER)
    assert (work(world), intents(world), len(world.ids())) == ([], 0, 11)


def test_a_lost_answer_is_noted_until_its_call_cannot_land_any_more(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    losing = with_catalog(world, LosingCatalog(world.glue))
    assert run_catalog(losing.context, now=utc(AFTER)).errors == ("log.events: the answer was lost",)
    world.catalog(AFTER)
    assert record(world) == (0, 3)
    assert (work(world), intents(world)) == (["compare"], 1)
    (status,) = read_status(world.context, now=utc(AFTER))
    (due,) = says(status.findings, "compare")
    assert due.startswith("waits for the next catalog run, to be compared: a publication by another, begun at 2")
    assert next(str(step) for step in preview(world.context, now=utc(AFTER))).startswith(
        "log.events: compare it with the catalog: a publication by another"
    )
    calls_are_over(world)
    assert not world.catalog(AFTER).changed
    assert (work(world), intents(world)) == ([], 0)


def test_a_refusal_leaves_nothing_on_its_way_and_notes_do_not_grow_many(world: World) -> None:
    a_closed_day(world)
    late_rows(world)

    def refuse(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Call")

    glue = recorded(world)
    glue.instead["batch_update_partition"] = refuse
    for _ in range(3):
        (error,) = run_catalog(world.context, now=utc(AFTER)).errors
        assert "check the credentials and the role's policy" in error
        assert intents(world) == 1
    glue.instead.clear()
    world.catalog(AFTER)
    assert (work(world), intents(world)) == ([], 0)


def test_an_answer_to_a_second_try_leaves_the_first_one_on_its_way(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    glue = recorded(world)
    real = glue._inner.batch_update_partition
    glue.instead["batch_update_partition"] = lambda **arguments: {
        **real(**arguments),
        "ResponseMetadata": {"RetryAttempts": 1},
    }
    world.catalog(AFTER)
    assert (record(world), intents(world), work(world)) == ((0, 3), 1, ["compare"])


def never(_answer: Any) -> Any:
    raise ReadTimeoutError(endpoint_url="http://glue")


@pytest.mark.parametrize(
    "answered",
    [lambda answer: answer, lambda answer: {**answer, "ResponseMetadata": {"RetryAttempts": 1}}, never],
    ids=["at once", "to a second try", "never"],
)
def test_a_call_of_a_run_that_stood_still_until_its_note_was_taken_back_is_noted_anew(
    world: World, answered: Callable[[Any], Any]
) -> None:
    a_closed_day(world)
    late_rows(world)
    other = with_catalog(world, world.glue)
    glue = recorded(world)
    real = glue._inner.batch_update_partition

    def stand_still(**arguments: Any) -> Any:
        glue.instead.clear()
        holders_fall_silent(world)
        calls_are_over(world)
        late_rows(other)
        other.catalog(AFTER)
        assert (work(other), intents(other), len(other.ids())) == ([], 0, 12)
        return answered(real(**arguments))

    glue.instead["batch_update_partition"] = stand_still
    without_heartbeats = with_lease(world, 3_600.0)
    assert run_catalog(without_heartbeats, now=utc(AFTER)).errors != ()
    assert len(other.ids()) < 12, "the late call did land"
    assert work(other) == ["compare"]
    other.catalog(AFTER)
    assert len(other.ids()) == 12
    calls_are_over(other)
    other.catalog(AFTER)
    assert (work(other), intents(other), len(other.ids())) == ([], 0, 12)


def test_a_table_at_rest_is_asked_for_by_nobody_and_costs_one_call(world: World) -> None:
    a_closed_day(world)
    assert work(world) == []
    glue = recorded(world)
    assert not world.catalog(AFTER).changed
    assert glue.calls == ["get_table"]


def test_once_an_hour_a_table_is_compared_in_full_whatever_is_recorded(world: World) -> None:
    """The call of a process that stood still longer than any call takes landed after all intents were removed."""
    a_closed_day(world)
    older = world.partition(str(DAY)).location
    late_rows(world)
    world.catalog(AFTER)
    newest = world.ids()
    lands(world, older)
    assert (work(world), world.catalog(AFTER).changed) == ([], False)
    an_hour_passes(world)
    assert work(world) == ["compare"]
    assert [item.date for item in world.catalog(AFTER).tables[0].published] == [DAY]
    assert world.ids() == newest
    assert work(world) == []
    an_hour_passes(world)
    glue = recorded(world)
    assert not world.catalog(AFTER).changed
    assert glue.calls == ["get_table", "batch_get_partition"]


def test_a_day_that_cannot_be_put_right_leaves_its_table_in_doubt_until_it_is(world: World) -> None:
    a_closed_day(world)
    right = world.partition(str(DAY)).location
    (key, *_) = [item.key for item in world.context.stores.list("lake", "") if "/live/" in item.key]
    body = world.context.stores.get("lake", key)
    world.context.stores.put("lake", key, b"short")
    lands(world, "s3://lake/elsewhere/")
    an_hour_passes(world)
    for _ in range(2):
        (problem,) = run_catalog(world.context, now=utc(AFTER)).tables[0].problems
        assert problem.date == DAY
        assert work(world) == ["compare"]
    world.context.stores.put("lake", key, body)
    world.catalog(AFTER)
    assert world.partition(str(DAY)).location == right
    assert work(world) == []


def test_turns_go_on_until_no_lost_call_can_land_any_more(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    losing = with_catalog(world, LosingCatalog(world.glue))
    assert run_catalog(losing.context, now=utc(AFTER)).errors
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_publication_intents SET expire_time = now() + interval '1 second'")
    turns = run_until_idle(world.context, clock=lambda: utc(AFTER))
    assert turns[-1].errors == ()
    assert (work(world), intents(world)) == ([], 0)


def test_one_partition_that_glue_refuses_is_a_problem_of_its_day_and_holds_up_no_other(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    world.drop(some_rows(4, utc("2026-03-02T00:05")))
    world.drop(some_rows(4, utc("2026-02-28T00:05")))
    world.stream("2026-03-02T00:06")
    glue = recorded(world)
    detail = {"ErrorCode": "InvalidInputException", "ErrorMessage": "no"}
    glue.instead["batch_update_partition"] = lambda **_: {
        "Errors": [{"PartitionValueList": [str(DAY)], "ErrorDetail": detail}]
    }
    for _ in range(2):
        (report,) = run_catalog(world.context, now=utc(AFTER)).tables
        (problem,) = report.problems
        assert (problem.date, problem.transient) == (DAY, False)
        assert problem.reason == "Glue answered InvalidInputException: no"
        assert sorted(row[0] for row in world.query("SELECT DISTINCT dt FROM log.events")) == [
            date(2026, 2, 28),
            DAY,
            date(2026, 3, 2),
        ]
    assert len(world.ids()) == 18
    glue.instead.clear()
    world.catalog(AFTER)
    assert len(world.ids()) == 19


def test_a_table_that_was_never_compared_by_this_version_is_compared_soon(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_table_publications SET compared_time = 'epoch'")
    assert work(world) == ["close", "compare"]
    assert says(read_status(world.context, now=utc(NOON))[0].findings, "compare")

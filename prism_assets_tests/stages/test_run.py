"""The whole pipeline once, and until idle."""

from __future__ import annotations

import itertools
from datetime import datetime

from prism_assets.stages.run import run_once, run_until_idle
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

NOON = utc("2026-03-01T12:00")
AFTER = utc("2026-03-02T00:10")


def test_one_turn_makes_a_new_object_readable(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(3, NOON))
    turn = run_once(world.context, now=NOON)
    assert turn.changed
    assert turn.errors == ()
    assert len(world.ids()) == 3


def test_turns_go_on_until_a_day_that_is_over_is_switched(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(3, NOON))
    turns = run_until_idle(world.context, clock=lambda: AFTER)
    assert [turn.changed for turn in turns] == [True] * (len(turns) - 1) + [False]
    assert world.status("2026-03-01", "2026-03-02T00:10").state == "switched"
    assert len(run_until_idle(world.context, clock=lambda: AFTER)) == 1


def test_a_sick_stream_is_among_the_errors_of_a_turn(world: World) -> None:
    world.apply(a_table(), a_table("log.sick", bucket="nowhere"))
    world.drop(some_rows(3, NOON))
    turn = run_once(world.context, now=NOON)
    assert [error.split(":")[0] for error in turn.errors] == ["stream sick"]
    assert len(world.ids()) == 3


def test_work_of_a_table_that_was_not_asked_for_does_not_keep_the_turns_going(world: World) -> None:
    world.apply(a_table(), a_table("log.other"))
    world.drop(some_rows(3, NOON), stream="other")
    world.discover("2026-03-01T12:00")
    ticks = itertools.count()

    def clock() -> datetime:
        assert next(ticks) < 4, "the turns do not end"
        return NOON

    run_until_idle(world.context, clock=clock, names=["log.events"])

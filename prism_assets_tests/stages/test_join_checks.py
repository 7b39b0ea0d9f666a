"""Checks of join tables: when they fail, and their sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.amplification import Amplification
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.checks.joins import (
    AMPLIFICATION,
    BUCKET_SKEW,
    CHANGES_BALANCE,
    EXPIRY_LATE,
    JOIN_RATE,
    PENDING_AGE,
    TOO_LATE_RATE,
    judge_amplification,
    judge_skew,
)
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import run_checks
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, back, front
from prism_assets_tests.stages.join_tables import JOIN_CHECKS
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
REQUEST = "log.request"


def check(world: World, name: str, now: str, limits: CheckLimits | None = None) -> CheckOutcome:
    """Returns the outcome of one check for the records."""
    given = {REQUEST: limits} if limits else {}
    (outcome,) = run_checks(world.context, [name], now=utc(now), names=[REQUEST], limits=given)
    return outcome


def change(world: World, statement: str) -> None:
    with world.context.database.begin() as connection:
        assert connection.execute(text(statement)).rowcount


def test_sound_records_pass_and_what_was_lost_or_taken_twice_does_not(world: World) -> None:
    world.apply(a_join_table(dirty=0.9))
    requests = Requests(world)
    requests.arrive([("front", front(f"r{number}", NOON, "home")) for number in range(40)], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("r1", NOON, 1, 200))], NOON)
    requests.show(NOON)
    outcomes = run_checks(world.context, JOIN_CHECKS, now=utc(NOON), names=[REQUEST], limits={})
    assert [outcome.sentence for outcome in outcomes if not outcome.passed] == []
    balance = check(world, CHANGES_BALANCE, NOON)
    assert balance.sentence == "41 changes taken = 40 folded + 1 that wait, and the log agrees for 1 day"
    change(world, "UPDATE prism_rewrites SET changes_folded = changes_folded - 1 WHERE changes_folded = 40")
    assert (
        "of 41 changes taken 39 are folded, and 1 wait. Changes may be lost"
        in check(world, CHANGES_BALANCE, NOON).sentence
    )
    change(world, "UPDATE prism_rewrites SET changes_folded = 40 WHERE changes_folded = 39")
    change(world, "UPDATE prism_fold_positions SET changes = changes - 1")
    said = check(world, CHANGES_BALANCE, NOON)
    assert (said.passed, said.figures["days out of balance"]) == (False, 1)
    assert said.sentence.startswith(f"{DAY}: 41 changes are in the log and 40 were taken. Changes may be lost")


def test_a_change_that_waits_longer_than_promised_is_told_with_what_it_waits_for(world: World) -> None:
    world.apply(a_join_table(dirty=0.9))
    requests = Requests(world)
    at_limit, beyond, later = f"{DAY}T13:15", f"{DAY}T13:16", "2036-01-01T00:00"
    requests.arrive([("front", front(f"r{number}", NOON, "home")) for number in range(40)], NOON)
    change(world, f"UPDATE prism_small_objects SET upload_start_time = '{NOON}Z'")
    assert check(world, PENDING_AGE, at_limit).sentence == "the oldest change waits for 1.25h (limit 1.25h)"
    said = check(world, PENDING_AGE, beyond).sentence
    assert said.startswith("the oldest change is not readable for 1.27h (limit 1.25h): no fold has taken it")
    requests.fold(NOON)
    said = check(world, PENDING_AGE, later).sentence  # folds end by the clock of PostgreSQL
    assert "it is folded and not published; `prism catalog --table log.request` says why" in said
    world.catalog(NOON)
    assert check(world, PENDING_AGE, later).sentence == "all changes are readable"
    requests.arrive([("back", back("r1", NOON, 1, 200))], NOON)
    requests.fold(NOON)
    change(world, f"UPDATE prism_record_objects SET oldest_change = '{NOON}Z' WHERE part = 'pending'")
    assert check(world, PENDING_AGE, at_limit).passed
    assert "folds leave it in the pending changes" in check(world, PENDING_AGE, beyond).sentence


def test_records_that_were_to_go_are_told_as_long_as_readers_see_them(world: World) -> None:
    world.apply(a_join_table(after="delete"))
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)  # settles at 13:30
    world.discover(f"{DAY}T13:50")
    assert check(world, EXPIRY_LATE, f"{DAY}T13:50").passed
    world.discover(f"{DAY}T13:51")
    late = check(world, EXPIRY_LATE, f"{DAY}T13:51")
    assert not late.passed
    assert "the first settled at 2026-03-01 13:30Z, and the watermark stands at 2026-03-01 13:46Z" in late.sentence
    requests.fold(f"{DAY}T13:51")
    assert not check(world, EXPIRY_LATE, f"{DAY}T13:51").passed, "readers are sent to the object as before"
    world.catalog(f"{DAY}T13:51")
    assert check(world, EXPIRY_LATE, f"{DAY}T13:51").passed


@pytest.mark.parametrize("after", ["settle", "delete"])
def test_records_that_settle_without_all_groups_are_counted_and_so_is_what_came_too_late(
    world: World, after: str
) -> None:
    world.apply(a_join_table(after=after))
    requests = Requests(world)
    requests.arrive([("front", front(request, NOON, "home")) for request in "abcd"], NOON)
    requests.arrive([("back", back(request, NOON, 1, 200)) for request in "abc"], NOON)
    requests.arrive([("back", back("c", NOON, 2, op="D"))], NOON)
    requests.show(NOON)
    assert check(world, JOIN_RATE, NOON).sentence == "no record settled in the last day"
    world.discover(f"{DAY}T13:36")
    requests.show(f"{DAY}T13:36")
    rate = check(world, JOIN_RATE, NOON, CheckLimits(join_rate=0.6))
    assert rate.sentence.startswith("2 of 4 records that settled in the last day have all groups (50.00%), below")
    assert check(world, JOIN_RATE, NOON).passed, "without a limit it is told and fails nothing"
    assert check(world, TOO_LATE_RATE, NOON).passed
    requests.arrive([("back", back("a", NOON, 3, 200))], f"{DAY}T13:37")
    late = check(world, TOO_LATE_RATE, NOON)
    assert late.sentence.startswith("1 of 9 lines of the last day were too late to be joined (11.11%), above the limit")
    assert check(world, TOO_LATE_RATE, NOON, CheckLimits(too_late_rate=0.2)).passed


def test_one_key_with_half_of_all_changes_shows(world: World) -> None:
    """The record of a hot key is one row, so only changes tell."""
    world.apply(a_join_table(buckets=4))
    requests = Requests(world)
    requests.arrive([("front", front(f"r{number}", NOON)) for number in range(400)], NOON)
    requests.fold(NOON)
    assert check(world, BUCKET_SKEW, NOON).passed
    requests.arrive([("front", front("hot", NOON, sent=number)) for number in range(400)], NOON)
    requests.fold(NOON)
    skew = check(world, BUCKET_SKEW, NOON)
    assert not skew.passed
    assert "of 800 changes of the last day" in skew.sentence
    assert "records that may still change" not in skew.sentence
    assert 2 < skew.figures["greatest bucket of changes of the last day against the mean"] < 3


def test_a_bucket_is_judged_by_its_share_and_only_of_many_rows(world: World) -> None:
    world.apply(a_join_table())
    table = Requests(world).table
    assert table.join is not None

    def judged(buckets: int, changes: dict[int, int], records: dict[int, int] | None = None) -> bool:
        of_table = replace(table, join=replace(table.join, buckets=buckets))  # type: ignore[type-var]
        return judge_skew(of_table, changes, records or {}).passed

    even = dict.fromkeys(range(16), 1_000)
    assert judged(16, even)
    assert judged(16, {**even, 3: 4_000})
    assert not judged(16, {**even, 3: 16_000})
    assert not judged(16, even, {**even, 3: 16_000})
    assert judged(16, {3: 1_500})
    assert judged(1, {0: 1_000_000})
    assert judged(2, {0: 5_500, 1: 4_500})
    assert not judged(2, {0: 7_500, 1: 2_500})


def test_rows_written_for_few_changes_are_told_unless_they_are_few_themselves(world: World) -> None:
    world.apply(a_join_table(window="forever"))
    table = Requests(world).table
    big = judge_amplification(table, Amplification(rows_written=60_000_000, changes_folded=1_000_000))
    assert (big.passed, big.check) == (False, AMPLIFICATION)
    assert "wrote 60,000,000 rows for 1,000,000 changes, 60.0 for each (limit 50): with window: forever" in big.sentence
    assert judge_amplification(table, Amplification(rows_written=50_000_000, changes_folded=1_000_000)).passed
    assert judge_amplification(table, Amplification(rows_written=900_000, changes_folded=10)).passed


def test_records_for_ever_that_cost_too_much_are_not_changed_unless_that_is_accepted(world: World) -> None:
    plan = world.apply(a_join_table(window="forever"))
    (notice,) = plan.notices
    assert notice.startswith("log.request keeps records for ever: a fold writes every changed bucket again")
    assert world.apply(a_join_table(window="forever")).notices == ()
    requests = Requests(world)
    requests.arrive([("front", front(f"r{number}", NOON)) for number in range(10)], NOON)
    requests.fold(NOON)
    assert world.apply(a_join_table(window="forever", dirty=0.2)).notices == ()
    change(world, "UPDATE prism_rewrites SET rows_written = 70000000, changes_folded = 1000000")
    said = "log.request keeps records for ever, and its folds of the last 7 days wrote 70,000,000 rows for 1,000,000"
    assert world.apply(a_join_table(window="forever", dirty=0.2)).notices[0].startswith(said)
    with pytest.raises(DefinitionError, match=r"request\.yaml:\d+: window: .* 70\.0 for each, above 50.*--accept-ampl"):
        world.apply(a_join_table(window="forever", dirty=0.3))
    plan = run_apply(world.context, world.settings.tables_dir, utc(NOON), accept_amplification=True)
    assert plan.lines == ("update log.request: join",)
    assert plan.notices[0].startswith(said)

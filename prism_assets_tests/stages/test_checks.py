"""Checks: when they fail, and their sentences."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.stages.checks.days import CATALOG_AGREES, CLOSING_BLOCKED, OBJECT_SIZES, UNMERGED_AGE
from prism_assets.stages.checks.intake import QUARANTINE_RATE, ROWS_BALANCE, VALUE_LENGTHS
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.findings.objects import UNREAD_OBJECTS
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.unread import give_up_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.stages.engines import FailingEngine, another_worker, rest_is_over
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"
ALL = {
    ROWS_BALANCE, UNREAD_OBJECTS, QUARANTINE_RATE, VALUE_LENGTHS, OBJECT_SIZES, UNMERGED_AGE, CLOSING_BLOCKED,
    CATALOG_AGREES,
}  # fmt: skip


def check(world: World, name: str, now: str, limits: CheckLimits | None = None) -> CheckOutcome:
    """Returns the outcome of one check for the one table."""
    given = {"log.events": limits} if limits else {}
    (outcome,) = run_checks(world.context, [name], now=utc(now), names=["log.events"], limits=given)
    assert outcome.check == name
    return outcome


def change(world: World, statement: str) -> None:
    with world.context.database.begin() as connection:
        assert connection.execute(text(statement)).rowcount


def commit_at(world: World, at: str) -> None:
    """Small objects as if they had been committed then: the column is the database's own clock."""
    change(world, f"UPDATE prism_small_objects SET commit_time = '{utc(at).isoformat()}'")


def cut_ranges(world: World, *sizes: int) -> None:
    """Merged objects of given sizes in the place of the one of the closed day, over the same small objects."""
    with world.context.database.begin() as connection:
        (partition,) = connection.execute(text("SELECT prism_partition_id FROM prism_partitions")).scalars()
        connection.execute(text("DELETE FROM prism_merge_ranges WHERE lower_bound IS NOT NULL"))
        for lower, size in enumerate(sizes):
            connection.execute(
                text(
                    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, "
                    "row_count, fingerprint, create_time, update_time, definition_version) VALUES (:p, :lower, :upper, "
                    ":size, 1, 1, now(), now(), 1)"
                ),
                {"p": partition, "lower": lower, "upper": lower + 1, "size": size},
            )


def test_a_healthy_day_passes_every_check(world: World) -> None:
    a_closed_day(world)
    world.merge(AFTER)
    world.catalog(AFTER)
    outcomes = run_checks(world.context, ALL, now=utc(AFTER), names=["log.events"], limits={})
    assert {outcome.check for outcome in outcomes} == ALL
    assert [outcome.sentence for outcome in outcomes if not outcome.passed] == []


def test_a_table_without_anything_passes_every_check(world: World) -> None:
    world.apply(a_table())
    outcomes = run_checks(world.context, ALL, now=utc(AFTER), names=["log.events"], limits={})
    assert len(outcomes) == len(ALL)
    assert all(outcome.passed for outcome in outcomes)


def test_every_table_asked_for_is_judged_by_itself(world: World) -> None:
    a_closed_day(world, "log.a")
    a_closed_day(world, "log.b")
    change(
        world,
        "UPDATE prism_small_objects s SET row_count = 1 FROM prism_staging_objects o "
        "WHERE o.prism_staging_object_id = s.prism_staging_object_id AND o.object_key LIKE 'b/%'",
    )
    outcomes = run_checks(world.context, [ROWS_BALANCE], now=utc(NOON), names=["log.a", "log.b"], limits={})
    assert [(outcome.table, outcome.passed) for outcome in outcomes] == [("log.a", True), ("log.b", False)]


def test_rows_that_are_missing_in_small_objects_are_told_with_their_object(world: World) -> None:
    a_closed_day(world)
    change(world, "UPDATE prism_small_objects SET row_count = 3 WHERE prism_small_object_id = 2")
    outcome = check(world, ROWS_BALANCE, NOON)
    assert not outcome.passed
    assert outcome.figures["objects out of balance"] == 1
    sentence = "s3://staging/events/2026/000002.gz: 5 lines in, 5 rows out of which 3 are in small objects"
    assert f"1 of 2 staging objects do not balance: {sentence}" in outcome.sentence


def test_quarantined_lines_that_were_not_kept_are_told(world: World) -> None:
    world.apply(a_table())
    world.drop([*some_rows(3, utc(NOON)), "no row"])
    world.stream(NOON)
    assert check(world, ROWS_BALANCE, NOON).passed
    change(world, "DELETE FROM prism_quarantine")
    assert "1 quarantined of which 0 are kept" in check(world, ROWS_BALANCE, NOON).sentence


def test_balance_is_of_the_last_day(world: World) -> None:
    a_closed_day(world)
    change(world, "UPDATE prism_small_objects SET row_count = 3")
    change(world, f"UPDATE prism_staging_objects SET finish_time = '{NOON}Z'")
    assert not check(world, ROWS_BALANCE, "2026-03-02T12:00").passed
    assert check(world, ROWS_BALANCE, "2026-03-02T12:01").sentence == "no object was converted since then"


def test_values_that_became_null_are_figures_by_column_and_fail_nothing(world: World) -> None:
    world.apply(a_table(columns=["{name: amount, type: integer}"]))
    world.drop([*some_rows(2, utc(NOON), amount="many"), *some_rows(1, utc(NOON), amount=1)])
    world.stream(NOON)
    outcome = check(world, QUARANTINE_RATE, NOON)
    assert outcome.passed
    assert outcome.sentence.endswith("; values that did not fit, and are null or cut: amount 2 unfit")
    assert outcome.figures["values that did not fit"] == outcome.figures["unfit values: amount (unfit)"] == 2
    change(world, f"UPDATE prism_staging_objects SET finish_time = '{NOON}Z'")
    assert check(world, QUARANTINE_RATE, "2026-03-02T12:01").figures == {"share": 0.0}


def test_values_that_lost_something_by_their_length_fail_a_check_and_are_told_by_status(world: World) -> None:
    world.apply(a_table(columns=["{name: agent, type: string, length: 4}", "{name: rest, type: json, length: 9}"]))
    world.drop([*some_rows(2, utc(NOON), agent="firefox", rest={"long": "text"}), *some_rows(1, utc(NOON), agent="x")])
    assert check(world, VALUE_LENGTHS, NOON).passed
    world.stream(NOON)
    outcome = check(world, VALUE_LENGTHS, NOON)
    assert not outcome.passed
    cut = "agent: 2 values were cut, longer than 4 bytes: write a greater `length`, at most 65,535"
    null = "rest: 2 values are null, longer than 9 bytes: write a greater `length`, at most 65,535"
    assert outcome.sentence == (
        f"values of the last day lost something: {cut}; {null}. Then `prism rebuild log.events` makes older rows again"
    )
    assert outcome.figures == {"agent (cut)": 2, "rest (too_long)": 2}
    for names in (None, ["log.events"]):
        (status,) = read_status(world.context, now=utc(NOON), names=names)
        assert says(status.findings, "values_cut") == [cut, null]
    change(world, f"UPDATE prism_staging_objects SET finish_time = '{NOON}Z'")
    assert check(world, VALUE_LENGTHS, "2026-03-02T12:01").passed


def test_a_share_of_quarantined_lines_above_the_limit_is_told_with_reasons(world: World) -> None:
    world.apply(a_table())
    world.drop([*some_rows(97, utc(NOON)), "no row", {"id": 1}, {"id": 2}])
    world.stream(NOON)
    assert check(world, QUARANTINE_RATE, NOON, CheckLimits(quarantine_rate=0.03)).passed
    outcome = check(world, QUARANTINE_RATE, NOON)
    assert not outcome.passed
    assert outcome.figures == {
        "lines in": 100,
        "lines quarantined": 3,
        "share": 0.03,
        "values that did not fit": 0,
    }
    assert "3 of 100 lines of the last day are quarantined (3.00%), above the limit of 1.00%" in outcome.sentence
    assert "2 missing_time, 1 not_object" in outcome.sentence


def test_a_single_small_object_of_a_closed_day_is_fine(world: World) -> None:
    a_closed_day(world)
    world.merge(AFTER)
    outcome = check(world, OBJECT_SIZES, AFTER)
    assert outcome.passed
    assert outcome.figures["merged objects"] == 1


MB = 1_000_000


@pytest.mark.parametrize(
    ("sizes", "last_live", "small"),
    [
        ((128 * MB, 64 * MB + 1), 2, 0),  # big enough
        ((128 * MB, 63 * MB), 2, 1),  # the last one is not
        ((63 * MB, 128 * MB), 2, 1),  # nor is the first
        ((128 * MB, 1 * MB), 1, 0),  # above the last live object there are late rows only
        ((63 * MB, 1 * MB), 1, 1),
    ],
)
def test_objects_that_are_small_beside_others_are_told(
    world: World, sizes: tuple[int, ...], last_live: int, small: int
) -> None:
    a_closed_day(world)
    world.merge(AFTER)
    cut_ranges(world, *sizes)
    change(world, f"UPDATE prism_partitions SET last_live_object_id = {last_live}")
    outcome = check(world, OBJECT_SIZES, AFTER)
    assert (outcome.passed, outcome.figures["days with a small object"]) == (not small, small)
    if small:
        assert f"one below 64.0 MB: {DAY} (63.0 MB)" in outcome.sentence


def test_objects_wait_for_their_merge_from_the_end_of_their_day(world: World) -> None:
    a_closed_day(world)
    commit_at(world, NOON)
    assert check(world, UNMERGED_AGE, "2026-03-03T00:00").passed
    outcome = check(world, UNMERGED_AGE, "2026-03-03T00:30")
    assert not outcome.passed
    assert f"2 objects of {DAY} are not merged for 24.5 h (limit 24 h)" in outcome.sentence
    assert outcome.figures == {"unmerged objects": 2, "days": 1, "oldest in hours": 24.5, "parked merges": 0}
    assert not check(world, UNMERGED_AGE, "2026-03-02T02:00", CheckLimits(unmerged_hours=1)).passed


def test_late_objects_wait_from_when_they_came(world: World) -> None:
    a_closed_day(world)
    world.merge(AFTER)
    world.drop(some_rows(1, utc(NOON)))
    world.stream("2026-03-09T00:00")
    commit_at(world, "2026-03-09T00:00")
    assert check(world, UNMERGED_AGE, "2026-03-09T23:00").passed
    assert "1 object of" in check(world, UNMERGED_AGE, "2026-03-10T01:00").sentence


def test_objects_of_an_open_day_may_wait(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    assert check(world, UNMERGED_AGE, f"{DAY}T23:59", CheckLimits(unmerged_hours=0)).passed


def test_a_parked_merge_is_told_with_its_error(world: World) -> None:
    a_closed_day(world)
    commit_at(world, NOON)
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"merge_max_attempts": 1}))
    another_worker(world, FailingEngine(world.context.engine, times=1, transient=False)).merge(AFTER)
    outcome = check(world, UNMERGED_AGE, AFTER)
    assert not outcome.passed
    assert f"the merge of {DAY} is parked after 1 tries: the store coughed" in outcome.sentence


def test_a_day_that_is_not_switched_in_time_is_told_with_its_reason(world: World) -> None:
    a_closed_day(world)
    commit_at(world, NOON)
    assert check(world, CLOSING_BLOCKED, "2026-03-02T06:00").passed
    outcome = check(world, CLOSING_BLOCKED, "2026-03-02T07:00")
    assert not outcome.passed
    assert f"{DAY} is closed 7.0 h after its end and waits for the switch: it was never merged" in outcome.sentence
    assert outcome.figures == {"days that wait": 1, "longest in hours": 7.0}
    assert not check(world, CLOSING_BLOCKED, "2026-03-02T02:00", CheckLimits(closing_hours=1)).passed


def test_rows_of_a_day_long_past_have_their_time_to_be_closed_and_switched(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.drop(some_rows(1, utc(NOON)))
    world.stream("2026-03-08T00:00")
    commit_at(world, "2026-03-08T00:00")
    change(world, "UPDATE prism_small_objects SET commit_time = '2026-03-08T05:00Z' WHERE prism_small_object_id = 2")
    assert check(world, CLOSING_BLOCKED, "2026-03-08T00:01").passed
    assert check(world, CLOSING_BLOCKED, "2026-03-08T06:00").passed
    outcome = check(world, CLOSING_BLOCKED, "2026-03-08T07:00")
    assert not outcome.passed
    assert f"{DAY} is new 7.0 h after its first object came and waits for" in outcome.sentence
    assert outcome.figures == {"days that wait": 1, "longest in hours": 7.0}


def test_of_many_days_that_wait_the_oldest_are_named(world: World) -> None:
    world.apply(a_table())
    world.drop([row for offset in range(7) for row in some_rows(1, utc(NOON) + timedelta(days=offset))])
    world.stream("2026-03-07T12:00")
    commit_at(world, "2026-03-01T12:00")
    outcome = check(world, CLOSING_BLOCKED, "2026-03-10T00:00")
    assert outcome.figures["days that wait"] == 7
    assert outcome.sentence.startswith(f"7 days wait longer than 6 h: {DAY} is new")
    assert "; and 2 more." in outcome.sentence


def test_a_day_that_readers_are_sent_elsewhere_for_is_told(world: World) -> None:
    a_closed_day(world)
    (table,) = world.context.choose_tables(None)
    recorded = world.partition(DAY).location
    world.glue.publish(table, {datetime.fromisoformat(DAY).date(): "s3://lake/elsewhere/"})
    outcome = check(world, CATALOG_AGREES, AFTER)
    assert not outcome.passed
    assert f"{DAY} is at s3://lake/elsewhere/, not at {recorded}" in outcome.sentence
    world.catalog(AFTER, republish=True)
    assert check(world, CATALOG_AGREES, AFTER).passed


def test_a_day_that_the_catalog_lost_is_told(world: World) -> None:
    a_closed_day(world)
    database = f"{world.settings.glue_database_prefix}log"
    world.reader()._glue.delete_partition(DatabaseName=database, TableName="events", PartitionValues=[DAY])
    outcome = check(world, CATALOG_AGREES, AFTER)
    assert f"for 1 of 1 day: {DAY} is missing" in outcome.sentence
    assert outcome.figures == {"days": 1, "days that differ": 1}


def test_objects_that_are_not_read_are_told_till_somebody_accepts_it(world: World) -> None:
    world.apply(a_table())
    key = world.drop(some_rows(1, utc(NOON)))
    assert check(world, UNREAD_OBJECTS, NOON).passed
    world.discover(NOON)
    (world.root / "buckets" / "staging" / key).unlink()
    for _ in range(world.settings.max_attempts):
        rest_is_over(world)
        world.stream(NOON)
    outcome = check(world, UNREAD_OBJECTS, NOON)
    assert not outcome.passed
    assert f"s3://staging/{key}: s3://staging/{key} does not exist" in outcome.sentence
    give_up_object(world.context, key)
    assert check(world, UNREAD_OBJECTS, NOON).passed


def test_an_object_written_again_after_its_conversion_is_told_once_it_is_listed(world: World) -> None:
    world.apply(a_table())
    key = world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    world.discover(NOON)
    assert check(world, UNREAD_OBJECTS, NOON).passed, "it is the one that was converted"
    path = world.root / "buckets" / "staging" / key
    path.write_bytes(b'{"time": "2026-03-01T12:00:00Z", "id": 1}\n')
    later = path.stat().st_mtime + 2
    os.utime(path, (later, later))
    world.discover(NOON)
    outcome = check(world, UNREAD_OBJECTS, NOON)
    assert not outcome.passed
    assert "it was written again after it had been converted" in outcome.sentence
    give_up_object(world.context, f"s3://staging/{key}")
    world.discover(NOON)
    assert check(world, UNREAD_OBJECTS, NOON).passed
    path.write_bytes(b'{"time": "2026-03-01T12:00:00Z", "id": 23}\n')
    os.utime(path, (later - 60, later - 60))
    world.discover(NOON)
    assert not check(world, UNREAD_OBJECTS, NOON).passed, "nobody has accepted this one"

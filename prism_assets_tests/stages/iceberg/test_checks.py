"""Checks of Iceberg tables: when they fail, and their sentences."""

from __future__ import annotations

import pytest

from prism_assets.stages.checks.iceberg import HEALTH, SECONDS_BEHIND, SNAPSHOT_ROWS
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.findings.iceberg import DAYS_LEFT_OUT, FOREIGN_COMMITS
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.iceberg.test_pending import (
    NOON,
    a_published_table,
    a_stranger_deletes,
    change,
    dropped,
)
from prism_assets_tests.world import World

AFTER = "2026-03-02T00:10"
ALL = {SNAPSHOT_ROWS, FOREIGN_COMMITS, SECONDS_BEHIND, DAYS_LEFT_OUT, HEALTH}


def check(world: World, name: str) -> CheckOutcome:
    """Returns the outcome of one check for the one table."""
    (outcome,) = run_checks(world.context, [name], now=utc(NOON), names=["log.events"], limits={})
    assert (outcome.table, outcome.check) == ("log.events", name)
    return outcome


def failing(world: World) -> set[str]:
    outcomes = run_checks(world.context, ALL, now=utc(NOON), names=["log.events"], limits={})
    assert {outcome.check for outcome in outcomes} == ALL
    return {outcome.check for outcome in outcomes if not outcome.passed}


@pytest.mark.parametrize("iceberg", ["", "true"])
def test_a_table_that_no_publication_has_begun_passes_every_check(world: World, iceberg: str) -> None:
    world.apply(a_table(iceberg=iceberg))
    dropped(world)
    assert failing(world) == set()


def test_a_table_passes_every_check_at_every_step_of_its_life(world: World) -> None:
    world.apply(a_table(iceberg="{commit_seconds: 60}"))
    for minute in range(3):
        dropped(world, f"2026-03-01T12:0{minute}")
        assert failing(world) == set()
        world.iceberg(NOON)
        assert check(world, SNAPSHOT_ROWS).figures["rows of the snapshot"] == 3 * (minute + 1)
        assert failing(world) == set()
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    assert failing(world) == set()
    world.iceberg(AFTER)
    assert failing(world) == set()
    world.drop(some_rows(2, utc(NOON)))
    world.stream(AFTER)
    assert failing(world) == set()
    world.iceberg(AFTER)
    assert check(world, SNAPSHOT_ROWS).sentence == "the snapshot lists 11 rows of 1 day, as PostgreSQL has them"


def test_rows_that_came_since_the_last_commit_are_no_failure(world: World) -> None:
    a_published_table(world)
    dropped(world)
    dropped(world, "2026-02-28T12:00")
    outcome = check(world, SNAPSHOT_ROWS)
    assert outcome.passed
    assert outcome.figures == {"rows recorded as listed": 3, "days": 1, "rows of the snapshot": 3}


def test_a_range_that_was_extended_since_the_last_commit_is_no_failure(world: World) -> None:
    world.apply(a_table(iceberg="true"))
    dropped(world)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    world.iceberg(AFTER)
    dropped(world)
    world.merge(AFTER, everything=True)
    with world.context.database.begin() as connection:
        bounds = connection.exec_driver_sql(
            "SELECT upper_bound FROM prism_merge_ranges WHERE lower_bound = 0"
        ).scalars()
        assert list(bounds) == [2]
    assert check(world, SNAPSHOT_ROWS).sentence == "the snapshot lists 3 rows of 1 day, as PostgreSQL has them"


def test_a_snapshot_with_other_rows_than_were_committed_is_told_by_day(world: World) -> None:
    a_published_table(world)
    change(world, "UPDATE prism_small_objects SET row_count = 4")
    outcome = check(world, SNAPSHOT_ROWS)
    assert not outcome.passed
    assert outcome.sentence.startswith("the snapshot lists 3 rows, PostgreSQL 4: 2026-03-01 has 3 of 4. ")


def test_rows_that_others_deleted_are_missed_before_a_publication_sees_it(world: World) -> None:
    a_published_table(world)
    a_stranger_deletes(world)
    outcome = check(world, SNAPSHOT_ROWS)
    assert outcome.sentence == (
        "the snapshot lists 0 rows, PostgreSQL 3: 2026-03-01 has 0 of 3. "
        "Somebody else committed to it: see foreign_commits"
    )
    assert check(world, FOREIGN_COMMITS).passed  # of what publications have seen


def test_a_commit_that_is_not_recorded_yet_is_no_failure(world: World) -> None:
    a_published_table(world)
    dropped(world)
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM prism_iceberg_tables").mappings().one()
        days = connection.exec_driver_sql("SELECT published_object_id FROM prism_publications WHERE "
                                          "publisher = 'iceberg'").scalar_one()  # fmt: skip
    world.iceberg(NOON)
    change(world, f"UPDATE prism_iceberg_tables SET snapshot_id = {rows['snapshot_id']}")
    change(world, f"UPDATE prism_publications SET published_object_id = {days} WHERE publisher = 'iceberg'")
    outcome = check(world, SNAPSHOT_ROWS)
    assert outcome.passed
    assert outcome.sentence.startswith("its last commit is not recorded yet")


def test_a_catalog_that_lost_the_table_fails_the_check_until_it_is_named_again(world: World) -> None:
    a_published_table(world)
    publisher = world.context.iceberg
    (table,) = world.context.choose_tables(None)
    publisher.unregister(table)
    assert "has no table" in check(world, SNAPSHOT_ROWS).sentence
    world.iceberg(NOON)
    assert check(world, SNAPSHOT_ROWS).passed


def test_a_table_whose_metadata_is_gone_fails_the_check(world: World) -> None:
    a_published_table(world)
    for path in (world.root / "buckets" / "lake").rglob("*.metadata.json"):
        path.unlink()
    outcome = check(world, SNAPSHOT_ROWS)
    assert not outcome.passed
    assert "does not exist, and nobody can read the table" in outcome.sentence


def test_commits_of_others_are_told_until_they_are_taken_back(world: World) -> None:
    a_published_table(world)
    a_stranger_deletes(world)
    assert run_iceberg(world.context, now=utc(NOON)).errors
    outcome = check(world, FOREIGN_COMMITS)
    assert not outcome.passed
    assert "somebody else committed to" in outcome.sentence
    assert "the next run restores the published content" in outcome.sentence
    assert run_iceberg(world.context, now=utc(NOON)).errors == ()
    assert failing(world) == set()


def test_a_name_that_belongs_to_another_table_is_told(world: World) -> None:
    world.apply(a_table(iceberg="true"))
    (table,) = world.context.choose_tables(None)
    world.context.make_iceberg("another installation").create(table, utc(NOON))
    assert run_iceberg(world.context, now=utc(NOON)).errors
    assert "that this installation did not make" in check(world, FOREIGN_COMMITS).sentence


def test_rows_that_wait_for_two_commits_are_told_and_merges_are_not(world: World) -> None:
    a_published_table(world, a_table(iceberg="{commit_seconds: 60}"))
    dropped(world)
    change(world, "UPDATE prism_small_objects SET commit_time = commit_time - interval '100 seconds'")
    assert check(world, SECONDS_BEHIND).passed
    change(world, "UPDATE prism_small_objects SET commit_time = commit_time - interval '30 seconds'")
    outcome = check(world, SECONDS_BEHIND)
    assert not outcome.passed
    assert outcome.figures["days that wait"] == 1
    assert 130 <= outcome.figures["seconds behind"] < 200
    assert "(limit 120 s, twice the time between two commits)" in outcome.sentence
    change(world, "UPDATE prism_iceberg_tables SET snapshots = 301")  # commits come half as often
    assert check(world, SECONDS_BEHIND).passed
    world.iceberg(NOON)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    assert check(world, SECONDS_BEHIND).figures["days that wait"] == 0


def test_a_day_in_milliseconds_is_told_until_it_is_merged(world: World) -> None:
    world.apply(a_table(iceberg="{commit_seconds: 1}"))
    dropped(world)
    change(world, "UPDATE prism_small_objects SET file_format = 1")
    assert run_iceberg(world.context, now=utc(NOON)).errors
    outcome = check(world, DAYS_LEFT_OUT)
    assert outcome.figures == {"days_in_milliseconds": 1}
    assert "does not show 1 day with timestamps in milliseconds" in outcome.sentence
    assert "2026-03-01" in outcome.sentence
    assert "`prism iceberg adopt log.events`" in outcome.sentence
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    world.iceberg(AFTER)
    assert failing(world) == set()


def test_a_range_that_is_not_certified_is_told(world: World) -> None:
    a_published_table(world)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    change(world, "UPDATE prism_merge_ranges SET fingerprint = fingerprint + 1 WHERE lower_bound IS NOT NULL")
    assert run_iceberg(world.context, now=utc(NOON), ignore_pace=True).errors
    outcome = check(world, DAYS_LEFT_OUT)
    assert outcome.figures == {"days_left_out": 1}
    assert "`prism doctor --table log.events`" in outcome.sentence
    assert check(world, SNAPSHOT_ROWS).passed


def test_a_table_that_is_not_well_is_told_with_each_number_and_what_helps(world: World) -> None:
    a_published_table(world)
    assert check(world, HEALTH).figures["health"] == 100
    change(world, "UPDATE prism_iceberg_log SET foreign_snapshots = 1, commit_time = now()")
    outcome = check(world, HEALTH)
    assert not outcome.passed
    assert outcome.sentence == (
        "0 of 100: snapshots of others in 7 days 1 (at most 0.5): see `prism iceberg history`; "
        "only the publisher's role may commit"
    )
    assert outcome.figures["snapshots of others in 7 days"] == 1
    assert outcome.figures["snapshots"] == 1


def test_small_objects_of_a_closed_day_count_when_their_merge_is_late(world: World) -> None:
    a_published_table(world)
    world.catalog(AFTER)
    assert check(world, HEALTH).passed
    change(world, "UPDATE prism_small_objects SET commit_time = commit_time - interval '1 day'")
    assert (
        "bytes of closed days in small objects 100 % (at most 25): merges are behind" in check(world, HEALTH).sentence
    )
    world.merge(AFTER, everything=True)
    assert check(world, HEALTH).passed


def test_the_health_of_a_table_whose_metadata_is_gone_cannot_be_told(world: World) -> None:
    a_published_table(world)
    for path in (world.root / "buckets" / "lake").rglob("*.metadata.json"):
        path.unlink()
    outcome = check(world, HEALTH)
    assert not outcome.passed
    assert outcome.sentence.endswith("see snapshot_rows")

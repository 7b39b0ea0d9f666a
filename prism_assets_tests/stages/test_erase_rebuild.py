"""Days of a table with erasures are rebuilt and replayed: erased rows do not return."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from prism_assets.stages.rebuild import day as day_rebuild
from prism_assets.stages.rebuild.report import RebuildReport
from prism_assets.stages.rebuild.run import preview_days, run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import as_lines, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.test_erase import NAME, TABLE, arrive, erase, go_on, is_clean, later, users
from prism_assets_tests.world import World

FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
FIRST_NOON, SECOND_NOON = "2026-03-01T12:00", "2026-03-02T12:00"
CLOSED = "2026-03-03T00:10"
AFTER = "2026-03-03T03:00"
OTHERWISE = TABLE.replace("{name: user_id, type: bigint}", "{name: user_id, type: bigint, source: [actor, user_id]}")
"""The same column, read from another key of the line if this key exists."""


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, quarantine_days=3_650) as made:
        yield made


def two_days(world: World, table: str = TABLE, *, merged: bool = True) -> None:
    """Two switched days, or closed ones: user 42 came on the first, and on the second under another name."""
    world.apply(table)
    arrive(world, [41, 42] + [7] * 20, at=FIRST_NOON, now=FIRST_NOON)
    rows = [row | {"user_id": 50 + number} for number, row in enumerate(some_rows(22, utc(SECOND_NOON)))]
    rows[3]["actor"] = 42
    world.drop([], body=as_lines(rows) + b"broken\n")
    world.stream(SECOND_NOON)
    for _ in range(2):
        world.catalog(CLOSED)
        if merged:
            world.merge(CLOSED, everything=True)
    world.catalog(CLOSED)


def proved(world: World) -> None:
    """Erases user 42, and waits for the proof."""
    erase(world, rows=1)
    world.catalog("2026-03-03T02:00")
    go_on(world)
    assert str(go_on(world, later()).erasures[0].state) == "proved"


def rebuild(world: World, day: date = SECOND) -> RebuildReport:
    return run_rebuild(world.context, NAME, day=day, now=utc(AFTER))


def ledger(world: World) -> list[tuple[int, int, int, int]]:
    with world.context.database.begin() as connection:
        return [
            tuple(row)
            for row in connection.exec_driver_sql(
                "SELECT lines_in, rows_out, rows_quarantined, rows_erased FROM prism_staging_objects ORDER BY 1, 2"
            )
        ]


def test_a_day_of_which_no_row_was_erased_is_rebuilt_and_rows_that_match_by_now_are_left_out(world: World) -> None:
    two_days(world)
    proved(world)
    before = users(world)
    assert 42 not in before
    world.apply(OTHERWISE)
    report = rebuild(world)
    assert report.errors == ()
    (day,) = report.days
    assert day.totals is not None
    assert (day.totals.rows_before, day.totals.rows_after) == (22, 21)
    world.catalog(AFTER)
    assert users(world) == [user for user in before if user != 53]
    assert ledger(world) == [(22, 22, 0, 0), (23, 21, 1, 1)]
    assert is_clean(world)


def test_a_day_of_which_rows_were_erased_is_left_and_says_why(world: World) -> None:
    two_days(world)
    proved(world)
    world.apply(OTHERWISE)
    before = users(world)
    told = "1 of its staging objects holds erased rows, or may hold some, and nobody recorded their lines"
    assert rebuild(world, FIRST).errors == (f"{NAME} {FIRST}: it is not rebuilt: {told}",)
    (plan,) = preview_days(world.context, NAME, day=FIRST, since=None, now=utc(AFTER))
    assert str(plan).endswith(f"is not rebuilt: {told}")
    assert users(world) == before
    assert rebuild(world).errors == ()
    world.apply(TABLE)
    assert told in rebuild(world).errors[0], "the rebuild has left a line out by now"
    assert is_clean(world)


def test_a_day_waits_for_the_proof(world: World) -> None:
    two_days(world)
    erase(world, rows=1)
    world.apply(OTHERWISE)
    assert rebuild(world).errors == (
        f"{NAME} {SECOND}: it is not rebuilt: 1 erasure of its table is not proved yet: repeat afterwards; "
        "`prism erase --status` says what blocks it",
    )


def test_an_erasure_that_is_made_while_a_day_is_rebuilt_ends_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(world)
    world.apply(OTHERWISE)

    def reach(point: str) -> None:
        if point == "rebuild.before_commit":
            monkeypatch.undo()
            erase(world, rows=1)

    monkeypatch.setattr(day_rebuild, "failpoint", reach)
    assert "1 erasure of its table is not proved yet" in rebuild(world).errors[0]
    proved(world)
    assert is_clean(world)
    report = rebuild(world)
    assert (report.errors, report.days[0].resumed) == ((), False)
    world.catalog(AFTER)
    assert 42 not in users(world)
    assert 53 not in users(world)
    assert is_clean(world)


def test_lines_are_replayed_beside_rows_of_objects_that_no_erasure_hit(world: World) -> None:
    refusing = 'reject: [{when: "user_id = 55 OR user_id = 53", reason: not_yet}]\n'
    two_days(world, TABLE + refusing)
    proved(world)
    world.apply(OTHERWISE)
    report = run_replay(world.context, NAME, now=utc(AFTER))
    assert report.errors == ()
    world.catalog(AFTER)
    assert 55 in users(world)
    assert 53 not in users(world)
    assert 42 not in users(world)
    assert ledger(world)[1] == (23, 21, 1, 1)
    assert is_clean(world)


def test_a_rebuilt_object_is_repaired_without_what_was_left_out(world: World) -> None:
    two_days(world, merged=False)
    proved(world)
    world.apply(OTHERWISE)
    assert rebuild(world).errors == ()
    world.catalog(AFTER)
    rebuilt = max(keys(world, "/delayed/"))
    before = world.context.stores.get("lake", rebuilt)
    world.context.stores.delete("lake", [rebuilt])
    assert run_repair(world.context, deep=True).repaired == 1
    repaired = max(keys(world, "/delayed/"))
    assert repaired != rebuilt
    assert world.context.stores.get("lake", repaired) == before
    assert ledger(world)[1] == (23, 21, 1, 1)


REFUSING = 'reject: [{when: "user_id IN (42, 43, 55)", reason: not_yet}]\n'


def test_a_replay_leaves_objects_of_which_lines_were_erased_and_says_so(world: World) -> None:
    world.apply(TABLE + REFUSING)
    rows = [row | {"user_id": user} for row, user in zip(some_rows(2, utc(FIRST_NOON)), (42, 55), strict=True)]
    rows[0]["actor"] = 99
    world.drop([], body=as_lines(rows))
    world.stream(FIRST_NOON)
    for _ in range(2):
        world.catalog(CLOSED)
    proved(world)
    assert ledger(world) == [(2, 0, 1, 1)]
    world.apply(OTHERWISE)
    report = run_replay(world.context, NAME, now=utc(AFTER))
    assert (report.objects, report.erased, report.lines_of_erased, report.rows_added) == (0, 1, 1, 0)
    told = (
        "1 object with 1 line in quarantine stays: other lines were erased, or may have been, and which is not recorded"
    )
    assert report.sentences[1] == f"{NAME}: {told}"
    assert ledger(world) == [(2, 0, 1, 1)]
    assert is_clean(world)


def test_an_erasure_that_is_made_before_a_rebuild_has_begun_holds_it_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(world)
    world.apply(OTHERWISE)

    monkeypatch.setattr(day_rebuild, "takeover_seconds", lambda _context: erase(world, rows=1) and 1.0)
    assert "1 erasure of its table is not proved yet" in rebuild(world).errors[0]
    with world.context.database.begin() as connection:
        assert (
            connection.exec_driver_sql("SELECT count(*) FROM prism_rewrites WHERE kind = 'rebuild'").scalar_one() == 0
        )


def test_lines_that_wait_for_a_day_stay_where_others_of_their_object_were_erased_and_that_is_told(world: World) -> None:
    world.apply(TABLE + 'reject: [{when: "user_id = 61", reason: not_yet}]\n')
    rows = [row | {"user_id": 60 + number} for number, row in enumerate(some_rows(3, utc(FIRST_NOON)))]
    rows[1]["time"] = f"{SECOND}T23:00:00Z"
    world.drop([], body=as_lines(rows))
    arrive(world, [7] * 30, at=SECOND_NOON, now=SECOND_NOON)
    for _ in range(2):
        world.catalog(CLOSED)
        world.merge(CLOSED, everything=True)
    world.apply(TABLE)
    assert rebuild(world, FIRST).errors == ()
    erase(world, "user_id = 60", rows=1)
    world.catalog("2026-03-03T02:00")
    go_on(world)
    assert str(go_on(world, later()).erasures[0].state) == "proved"
    told = "; lines of 1 object that wait for the day stay in quarantine, as others were erased"
    (plan,) = preview_days(world.context, NAME, day=SECOND, since=None, now=utc(AFTER))
    (day,) = rebuild(world).days
    assert (str(plan).endswith(told), str(day).endswith(told)) == (True, True)
    assert run_replay(world.context, NAME, now=utc(AFTER)).erased == 1
    assert is_clean(world)

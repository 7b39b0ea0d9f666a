"""Replay: quarantined lines that are valid now become rows once. Invalid lines stay, with their reason."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import EngineUnavailable
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.quarantine import quarantined_lines
from prism_assets.stages.replay.report import ReplayReport
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.metadata.test_run_locks import wait_until
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.engines import VanishingEngine, another_worker
from prism_assets_tests.stages.test_rebuild import (
    a_line_for_a_day_in_force,
    close,
    ids_of_lake,
    ledgers,
    rebuilt,
    switch,
)
from prism_assets_tests.stages.test_renames import wait_for_lock
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
LATER = "2026-03-02T12:00"
KIND = ["{name: kind, type: string}"]


def a_version(*refused: str) -> str:
    """Returns a table file that refuses lines of some kinds, each for its own reason."""
    said = ", ".join(f"{{when: \"kind = '{kind}'\", reason: is_{kind}}}" for kind in refused)
    return a_table(merge="{interval: 0}", columns=KIND) + (f"reject: [{said}]\n" if said else "")


def arrive(world: World, *kinds: str, now: str = NOON, broken: int = 0) -> list[int]:
    """Streams an object for each word. Returns the ids of the lines."""
    ids = []
    for word in kinds:
        rows = [row | {"kind": kind} for row, kind in zip(some_rows(len(word), utc(NOON)), word, strict=True)]
        ids += [row["id"] for row in rows]
        world.drop([], body=as_lines(rows) + b"broken\n" * broken)
    world.stream(now)
    return ids


def replay(world: World, now: str = NOON, **more: Any) -> ReplayReport:
    report = run_replay(world.context, "log.events", now=utc(now), **more)
    assert report.errors == ()
    return report


def quarantine(world: World) -> list[tuple[int, str, int]]:
    statement = "SELECT prism_staging_object_id, reason, line_count FROM prism_quarantine ORDER BY 1, 2"
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def is_sound(world: World) -> bool:
    """Whether the doctor misses nothing, and the files of the quarantine hold the lines on record for each reason."""
    found = run_doctor(world.context, deep=True)
    assert found.is_clean, [*map(str, found.findings), *map(str, found.unseen)]
    counted: dict[tuple[int, str], int] = {}
    for number in {number for number, _, _ in quarantine(world)}:
        for line in b"".join(quarantined_lines(world.context, number)).splitlines():
            key = number, json.loads(line)["reason"]
            counted[key] = counted.get(key, 0) + 1
    assert counted == {(number, reason): count for number, reason, count in quarantine(world)}
    return True


def test_lines_of_an_open_day_become_rows_at_once(world: World) -> None:
    world.apply(a_version("a", "b"))
    ids = arrive(world, "ab", "ba", "c")
    world.catalog(NOON)
    assert world.ids() == ids[4:]
    world.apply(a_version())
    report = replay(world)
    assert (report.objects, report.lines, report.lines_left, report.with_rows) == (2, 4, 0, 0)
    assert world.ids() == ids == ids_of_lake(world)
    assert quarantine(world) == []
    assert ledgers(world) == [(2, 2, 0, 0), (2, 2, 0, 0), (1, 1, 0, 0)]
    assert is_sound(world)


def test_replaying_twice_changes_nothing(world: World) -> None:
    world.apply(a_version("a", "b"))
    arrive(world, "ab")
    world.apply(a_version("b"))
    replay(world)
    before = keys(world), quarantine(world), ledgers(world)
    again = replay(world)
    assert again.sentences[0] == "log.events: no object to replay under version 2 of the definition"
    assert (keys(world), quarantine(world), ledgers(world)) == before


def test_lines_that_still_fail_stay_with_the_reason_they_have_now(world: World) -> None:
    world.apply(a_version("a", "b"))
    ids = arrive(world, "aab", broken=1)
    assert quarantine(world) == [(1, "bad_json", 1), (1, "is_a", 2), (1, "is_b", 1)]
    world.apply(a_version("b").replace("is_b", "not_b"))
    report = replay(world)
    assert (report.lines, report.lines_left) == (4, 2)
    assert quarantine(world) == [(1, "bad_json", 1), (1, "not_b", 1)]
    world.catalog(NOON)
    assert world.ids() == ids[:2]
    assert ledgers(world) == [(4, 2, 2, 0)]
    assert is_sound(world)


@pytest.mark.parametrize("is_switched", [True, False])
def test_lines_of_a_day_that_is_over_are_shown_by_the_next_catalog_run(world: World, is_switched: bool) -> None:
    world.apply(a_version("a"))
    ids = arrive(world, "aa", "b")
    world.catalog(NOON)
    (switch if is_switched else close)(world)
    world.apply(a_version())
    replay(world, now=LATER)
    assert ids_of_lake(world) == ids
    assert world.ids() == ids[2:]
    world.catalog(LATER)
    assert world.ids() == ids
    world.merge(LATER, everything=True)
    world.catalog(LATER)
    world.catalog(LATER)
    assert world.ids() == ids
    assert world.status(DAY, LATER).state == "switched"
    assert is_sound(world)


def test_the_days_of_objects_that_have_rows_are_rebuilt(world: World) -> None:
    world.apply(a_version("a"))
    ids = arrive(world, "ab", "a")
    world.catalog(NOON)
    switch(world)
    world.apply(a_version())
    report = replay(world, now=LATER)
    assert (report.objects, report.with_rows, report.lines_with_rows) == (1, 1, 1)
    assert (report.rows_added, report.left, report.days) == (2, (), ())
    assert report.sentences[1] == (
        "log.events: 1 object with 1 line in quarantine has rows, too: their days are rebuilt, and those that their "
        "lines turned out to be of"
    )
    assert report.sentences[2].startswith("log.events 2026-03-01: 1 staging object converted under version 2")
    assert report.sentences[3:] == (
        "log.events: 2 rows more of these objects, and no line of them is in quarantine now",
    )
    world.catalog(LATER)
    assert world.ids() == ids
    again = replay(world, now=LATER)
    assert (again.objects, again.with_rows, again.rebuilt) == (0, 0, ())
    assert is_sound(world)


def at(day: int, kind: str) -> dict[str, Any]:
    """A line of noon of a day of March."""
    return some_rows(1, utc(f"2026-03-{day:02}T12:00"))[0] | {"kind": kind}


def settle(world: World, now: str) -> None:
    for _ in range(2):
        world.catalog(now)
        world.merge(now, everything=True)
    world.catalog(now)


def refused_lines_of(world: World, *days: int) -> list[int]:
    """Makes rows of the 1st and 2nd, then an object with a row of the 1st and refused lines of the given days.

    The object came on the 6th, when days up to the 5th are over.
    """
    world.apply(a_version("a"))
    rows = [[at(1, "b")], [at(2, "b")], [at(1, "b"), *(at(day, "a") for day in days)]]
    for lines in rows:
        world.drop(lines)
    world.stream(WEEKEND)
    settle(world, WEEKEND)
    world.apply(a_version())
    return [row["id"] for lines in rows for row in lines]


WEEKEND = "2026-03-06T12:00"


@pytest.mark.parametrize(
    ("days", "rebuilt_days"),
    [((1,), (1,)), ((2,), (1, 2)), ((4,), (1, 4)), ((1, 2, 3, 4), (1, 2, 3, 4))],
    ids=["of the day it has rows of", "of a day with rows of others", "of a day without any row", "of all of these"],
)
def test_refused_lines_become_rows_of_their_days_in_one_replay(
    world: World, days: tuple[int, ...], rebuilt_days: tuple[int, ...]
) -> None:
    ids = refused_lines_of(world, *days)
    preview = replay(world, now=WEEKEND, dry_run=True)
    assert [plan.date.day for plan in preview.days] == [1]
    report = replay(world, now=WEEKEND)
    assert [day.date.day for item in report.rebuilt for day in item.days] == list(rebuilt_days)
    assert (report.rows_added, report.left, report.days) == (len(days), (), ())
    assert quarantine(world) == []
    assert ledgers(world)[2] == (1 + len(days), 1 + len(days), 0, 0)
    settle(world, WEEKEND)
    assert world.ids() == sorted(ids) == ids_of_lake(world)
    before = keys(world), ledgers(world)
    assert replay(world, now=WEEKEND).sentences == (
        "log.events: no object to replay under version 2 of the definition",
    )
    world.catalog(WEEKEND)
    assert (keys(world), ledgers(world)) == before
    assert is_sound(world)


def test_a_day_is_rebuilt_again_for_lines_that_were_found_to_be_of_it_since(world: World) -> None:
    world.apply(a_version("a"))
    rows = [[at(1, "b"), at(1, "a")], [at(2, "b"), at(1, "a")]]
    for lines in rows:
        world.drop(lines)
    world.stream(WEEKEND)
    settle(world, WEEKEND)
    world.apply(a_version())
    report = replay(world, now=WEEKEND)
    assert [day.date.day for item in report.rebuilt for day in item.days] == [1, 2, 1]
    world.catalog(WEEKEND)
    assert world.ids() == sorted(row["id"] for lines in rows for row in lines)
    assert is_sound(world)


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "unrecorded"])
def test_lines_left_for_a_day_of_the_definition_in_force_become_rows_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    ids = a_line_for_a_day_in_force(world, monkeypatch, is_recorded=is_recorded)
    if not is_recorded:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE prism_staging_objects SET send_time = send_time + interval '3 days', "
                "first_receive_time = first_receive_time + interval '3 days'"
            )
    report = replay(world, now=WEEKEND)
    assert (report.rows_added, report.left) == (1, ())
    assert replay(world, now=WEEKEND).rebuilt == ()
    world.catalog(WEEKEND)
    assert world.ids() == sorted(ids)
    assert is_sound(world)


def test_lines_that_were_left_out_become_rows_of_their_days_in_the_same_replay(world: World) -> None:
    world.apply(a_version("a") + "keep: \"kind <> 'c'\"\n")
    rows = [[at(5, "b"), at(5, "a")], [at(2, "b")], [at(2, "c")]]
    for lines in rows:
        world.drop(lines)
    world.stream(WEEKEND)
    settle(world, WEEKEND)
    assert ledgers(world)[2] == (1, 0, 0, 1)
    world.apply(a_version())
    report = replay(world, now=WEEKEND)
    assert [day.date.day for item in report.rebuilt for day in item.days] == [5, 2]
    assert quarantine(world) == []
    assert replay(world, now=WEEKEND).rebuilt == ()
    world.catalog(WEEKEND)
    assert world.ids() == sorted(row["id"] for lines in rows for row in lines)
    assert is_sound(world)


def test_lines_of_open_days_stay_and_why_is_told_until_they_are_closed(world: World) -> None:
    ids = refused_lines_of(world, 6, 2)
    arrive(world, "b", now=WEEKEND)
    report = replay(world, now=WEEKEND)
    assert [(left.reason, left.lines) for left in report.left] == [("other_day", 1)]
    (plan,) = report.days
    assert str(plan).startswith("log.events 2026-03-06: is not rebuilt: it is not over")
    assert report.sentences[-2:] == (
        str(plan),
        "log.events: 1 row more of these objects, and 1 line of them is in quarantine now: 1 for other_day",
    )
    assert replay(world, now=WEEKEND).rebuilt == ()
    monday = "2026-03-09T12:00"
    replay(world, now=monday, reasons=["is_a"])
    settle(world, monday)
    assert set(ids) <= set(world.ids())
    assert quarantine(world) == []
    assert is_sound(world)


def test_objects_with_rows_of_open_days_alone_wait_for_their_close(world: World) -> None:
    world.apply(a_version("a"))
    ids = arrive(world, "ab")
    world.catalog(NOON)
    world.apply(a_version())
    report = replay(world)
    assert (report.rebuilt, [left.reason for left in report.left]) == ((), ["is_a"])
    assert "2026-03-01: is not rebuilt: it is live" in report.sentences[1]
    switch(world)
    replay(world, now=LATER)
    world.catalog(LATER)
    assert world.ids() == ids


@pytest.mark.parametrize("point", ["after_mark_day", "after_make_day"])
def test_a_day_that_was_made_and_has_no_row_keeps_no_catalog_and_no_column_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ids = refused_lines_of(world, 4)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"rebuild.{point}=1*raise(InjectedFault)"))
    assert run_replay(world.context, "log.events", now=utc(WEEKEND)).errors
    table = a_version().replace("name: kind", "name: sort, was: kind") + "symlink: true\n"
    assert world.apply(table, now=WEEKEND).problems == ()
    settle(world, WEEKEND)
    assert not world.catalog(WEEKEND).changed
    (status,) = read_status(world.context, now=utc(WEEKEND))
    assert not any("are left" in text for text in says(status.findings, "column_transition"))
    replay(world, now=WEEKEND)
    settle(world, WEEKEND)
    assert world.ids() == sorted(ids)
    assert is_sound(world)


def test_a_replay_that_dies_between_rebuilds_is_gone_on_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = refused_lines_of(world, 2, 4)
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse("replay.after_rebuild=1*raise(InjectedFault)"))
    with pytest.raises(failpoints.InjectedFault):
        replay(world, now=WEEKEND)
    assert [reason for _, reason, _ in quarantine(world)] == ["other_day"]
    replay(world, now=WEEKEND, reasons=["is_a"])
    settle(world, WEEKEND)
    assert world.ids() == sorted(ids)
    assert quarantine(world) == []


def test_an_object_with_rows_that_is_gone_is_told_and_others_are_replayed_without_it(world: World) -> None:
    ids = refused_lines_of(world, 1)
    world.context.stores.delete("staging", ["events/2026/000001.gz"])
    report = run_replay(world.context, "log.events", now=utc(WEEKEND))
    (error,) = report.errors
    assert "gone, or changed since the conversion" in error
    assert (report.rows_added, [left.reason for left in report.left]) == (0, ["is_a"])
    assert ids


def test_a_replay_behind_a_rebuild_writes_keys_of_its_own(world: World) -> None:
    world.apply(a_version("a", "b"))
    ids = arrive(world, "a", "c", "cb")
    switch(world)
    world.apply(a_version("a"))
    rebuilt(world)
    world.apply(a_version())
    replay(world, now=LATER)
    world.catalog(LATER)
    assert world.ids() == ids
    assert quarantine(world) == []
    assert is_sound(world)


def test_only_objects_with_lines_for_the_reasons_asked_for_are_replayed(world: World) -> None:
    world.apply(a_version("a", "b"))
    ids = arrive(world, "a", "b", "ab")
    world.apply(a_version())
    assert replay(world, reasons=["is_b"], dry_run=True).objects == 2
    assert replay(world, reasons=["is_b"]).objects == 2
    world.catalog(NOON)
    assert world.ids() == ids[1:]
    assert quarantine(world) == [(1, "is_a", 1)]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: World) -> None:
    world.apply(a_version("a"))
    arrive(world, "a")
    world.apply(a_version())
    before = keys(world), quarantine(world), ledgers(world)
    said = "log.events: convert 1 object with 1 line in quarantine again, under version 2 of the definition"
    assert replay(world, dry_run=True).sentences == (said,)
    assert (keys(world), quarantine(world), ledgers(world)) == before


def test_an_object_that_is_gone_stays_as_it_is_and_is_told(world: World) -> None:
    world.apply(a_version("a"))
    arrive(world, "a", "a")
    world.apply(a_version())
    world.context.stores.delete("staging", ["events/2026/000001.gz"])
    report = run_replay(world.context, "log.events", now=utc(NOON))
    gone = "s3://staging/events/2026/000001.gz is gone, or is no longer what was converted"
    assert report.errors == (f"log.events: {gone}",)
    assert report.objects == 1
    assert quarantine(world) == [(1, "is_a", 1)]
    assert ledgers(world) == [(1, 0, 1, 0), (1, 1, 0, 0)]
    assert is_sound(world)


def test_values_that_were_blanked_in_quarantine_are_read_from_the_staging_object(world: World) -> None:
    secret = "{name: email, type: string, sensitive: true, stored: false}"
    hashed = '{name: hashed, type: string, sensitive: true, value: "upper(email)"}'
    world.apply(a_table(columns=[secret, hashed]) + 'reject: [{when: "id > 0", reason: not_yet}]\n')
    world.drop([row | {"email": "ann@x.org"} for row in some_rows(1, utc(NOON))])
    world.stream(NOON)
    assert b"ann@x.org" not in b"".join(quarantined_lines(world.context, 1))
    world.apply(a_table(columns=[secret, hashed]))
    replay(world)
    world.catalog(NOON)
    assert world.query("SELECT hashed FROM log.events") == [("ANN@X.ORG",)]


def test_a_replay_that_dies_leaves_the_quarantine_as_it_is_until_the_next_batch(world: World) -> None:
    world.apply(a_version("a"))
    ids = arrive(world, "a", "a")
    world.apply(a_version())
    with pytest.raises(EngineUnavailable):
        run_replay(another_worker(world, VanishingEngine(world.context.engine, 1)).context, "log.events", now=utc(NOON))
    assert quarantine(world) == [(1, "is_a", 1), (2, "is_a", 1)]
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL, batch_limit = NULL")
    world.stream(NOON)
    world.catalog(NOON)
    assert world.ids() == ids
    assert quarantine(world) == []
    assert is_sound(world)


def test_a_replay_leaves_objects_to_a_rebuild_that_commits_rows_of_them_first(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.apply(a_version("a"))
    rows = [[at(3, "b")], [at(2, "b")], [at(2, "a")]]
    for lines in rows:
        world.drop(lines)
    world.stream("2026-03-03T12:00")
    settle(world, WEEKEND)
    world.apply(a_version())
    rebuilt(world, "2026-03-03", now=WEEKEND)
    assert quarantine(world) == [(3, "other_day", 1)]
    gate = tmp_path / "gate"
    gate.touch()
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"rebuild.in_commit=pause({gate})"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rebuilt, another_worker(world, world.context.engine), "2026-03-02", now=WEEKEND)
        wait_until(lambda: (tmp_path / "gate.reached").exists())
        second = pool.submit(replay, world, now=WEEKEND)
        wait_for_lock(world)
        gate.unlink()
        assert first.result().totals
        assert second.result().left == ()
    assert ledgers(world) == [(1, 1, 0, 0)] * 3
    settle(world, WEEKEND)
    assert world.ids() == sorted(row["id"] for lines in rows for row in lines)
    assert is_sound(world)

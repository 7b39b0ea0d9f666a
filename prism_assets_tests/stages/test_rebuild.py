"""Rebuild: rows under the definition in force, in one step for every reader, during any other work on the day."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.engine.base import Engine
from prism_assets.kernels import times
from prism_assets.kernels.compiled import Kernel
from prism_assets.kernels.json import block_reader
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.checks.intake import ROWS_BALANCE
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.leases import leased
from prism_assets.stages.rebuild.report import RebuildReport, RebuiltDay
from prism_assets.stages.rebuild.run import preview_days, run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.crash.reader import IdReader
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.engines import (
    PausingEngine,
    PoisonedEngine,
    VanishingEngine,
    another_worker,
)
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

DAY, NEXT = "2026-03-01", "2026-03-02"
NOON = f"{DAY}T12:00"
NIGHT = f"{NEXT}T00:05"
AFTER, LATER, LATEST = f"{NEXT}T00:10", f"{NEXT}T12:00", "2026-03-05T12:00"
KIND = "{name: kind, type: string}"
MERGE = "{interval: 0, target_bytes: 100000}"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def a_version(mark: int, *, keep: str = "", merge: str = MERGE, iceberg: str = "", more: str = "") -> str:
    """Returns a table file whose rows contain the version that made them."""
    columns = [KIND, f'{{name: mark, type: integer, value: "{mark}"}}', *([more] if more else [])]
    said = a_table(columns=columns, merge=merge, iceberg=iceberg)
    return said + (f'keep: "{keep}"\n' if keep else "")


def rows_of(kinds: str, start: str = NOON) -> list[dict[str, Any]]:
    """Returns a row for each letter, its kind."""
    made = some_rows(len(kinds), utc(start))
    return [row | {"kind": kind} for row, kind in zip(made, kinds, strict=True)]


def arrive(world: World, *kinds: str, now: str = NOON, start: str = NOON) -> list[int]:
    """Streams an object for each word. Returns the ids of the rows."""
    made = [rows_of(word, start) for word in kinds]
    for rows in made:
        world.drop(rows)
    world.stream(now)
    return [row["id"] for rows in made for row in rows]


def close(world: World) -> None:
    world.catalog(AFTER)


def switch(world: World) -> None:
    close(world)
    world.merge(AFTER, everything=True)
    world.catalog(AFTER)


def a_switched_day(world: World, *kinds: str) -> list[int]:
    world.apply(a_version(1))
    ids = arrive(world, *(kinds or ("abc", "abc", "ab")))
    world.catalog(NOON)
    switch(world)
    return ids


def rebuild(world: World, day: str = DAY, now: str = LATER, **more: Any) -> RebuildReport:
    return run_rebuild(world.context, "log.events", day=utc(f"{day}T00:00").date(), now=utc(now), **more)


def rebuilt(world: World, day: str = DAY, **more: Any) -> RebuiltDay:
    """Rebuilds one day without errors and returns its report."""
    report = rebuild(world, day, **more)
    assert report.errors == ()
    (done,) = report.days
    return done


def marks(world: World) -> dict[int, int]:
    """Returns the version of each row seen by a reader of the catalog. No row is seen twice."""
    found = world.query("SELECT id, mark FROM log.events")
    assert len(found) == len({number for number, _ in found}), "rows are seen twice"
    return dict(found)


def ids_of_lake(world: World) -> list[int]:
    """Returns the ids seen by clients of DuckLake. All its objects exist with their lengths."""
    views = IdReader(world.settings).look_at_lake(world.context.database, "log.events")
    assert [fault for view in views.values() for fault in view.faults] == []
    return sorted(number for view in views.values() for number in view.ids)


def ledgers(world: World) -> list[tuple[int, int, int, int]]:
    statement = (
        "SELECT lines_in, rows_out, rows_quarantined, rows_filtered FROM prism_staging_objects "
        "ORDER BY prism_staging_object_id"
    )
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def scalar(world: World, statement: str) -> Any:
    with world.context.database.begin() as connection:
        return connection.exec_driver_sql(statement).scalar()


def is_sound(world: World) -> bool:
    """Whether doctor, repair and the ledger miss nothing."""
    found = run_doctor(world.context, deep=True)
    assert found.is_clean, [*map(str, found.findings), *map(str, found.unseen)]
    assert run_repair(world.context, deep=True).errors == ()
    assert check(world, ROWS_BALANCE, LATEST).passed
    return True


# Rebuilt rows


@pytest.mark.parametrize("is_switched", [True, False])
def test_rows_of_a_day_that_is_over_are_those_of_the_definition_in_force(world: World, is_switched: bool) -> None:
    world.apply(a_version(1))
    ids = arrive(world, "abc", "abc", "ab")
    world.catalog(NOON)
    (switch if is_switched else close)(world)
    world.apply(a_version(2, more="{name: shout, type: string, value: \"upper(kind) || '!'\"}"))
    done = rebuilt(world)
    assert ids_of_lake(world) == ids, "at the commit"
    assert set(marks(world).values()) == {1}, "before a catalog run"
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert {row[0] for row in world.query("SELECT shout FROM log.events")} == {"A!", "B!", "C!"}
    assert done.totals is not None
    assert (done.totals.objects, done.totals.rows_before, done.totals.rows_after) == (3, 8, 8)
    assert done.totals.ranges == int(is_switched)
    assert is_sound(world)
    if not is_switched:
        switch(world)
        assert marks(world) == dict.fromkeys(ids, 2)
        assert is_sound(world)


def test_readers_of_iceberg_find_each_row_once_before_and_after(world: World) -> None:
    world.apply(a_version(1, iceberg="true"))
    ids = arrive(world, "abc", "ab")
    world.catalog(NOON)
    switch(world)
    world.iceberg(AFTER)
    world.apply(a_version(2, iceberg="true"))
    rebuilt(world)
    assert world.iceberg_ids() == ids
    world.catalog(LATER)
    world.iceberg(LATER)
    found = world.iceberg_table().scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == ids
    assert set(found.column("mark").to_pylist()) == {2}
    assert not world.iceberg(LATER).changed


def test_rebuilding_twice_is_rebuilding_once(world: World) -> None:
    a_switched_day(world)
    world.apply(a_version(2))
    assert rebuilt(world).totals
    world.catalog(LATER)
    before = keys(world)
    again = rebuilt(world)
    assert again.totals is None
    assert str(again) == "log.events 2026-03-01: nothing to rebuild, its rows are of version 2 of the definition"
    world.catalog(LATER)
    assert keys(world) == before
    assert not rebuild(world).changed


def test_a_day_may_be_rebuilt_under_each_definition_and_merged_and_late_between(world: World) -> None:
    ids = a_switched_day(world)
    for mark in (2, 3):
        world.apply(a_version(mark))
        rebuilt(world)
        ids += arrive(world, "x", now=LATER, start=NOON)
        world.catalog(LATER)
        assert marks(world) == dict.fromkeys(ids, mark)
        world.merge(LATER, everything=True)
        world.catalog(LATER)
        assert marks(world) == dict.fromkeys(ids, mark)
        assert is_sound(world)


def test_lines_that_are_no_rows_any_more_go_and_come_back(world: World) -> None:
    ids = a_switched_day(world, "ab", "bb", "a")
    world.apply(a_version(2, keep="kind = 'a'"))
    done = rebuilt(world)
    world.catalog(LATER)
    assert sorted(marks(world)) == [ids[0], ids[4]]
    assert ledgers(world) == [(2, 1, 0, 1), (2, 0, 0, 2), (1, 1, 0, 0)]
    assert done.totals is not None
    assert (done.totals.filtered_before, done.totals.filtered_after) == (0, 3)
    assert is_sound(world)
    world.apply(a_version(3, keep="kind <> 'z'"))
    rebuilt(world)
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 3)
    assert ledgers(world) == [(2, 2, 0, 0), (2, 2, 0, 0), (1, 1, 0, 0)]
    assert is_sound(world)


def test_a_day_may_lose_all_of_its_rows(world: World) -> None:
    a_switched_day(world, "a", "b")
    world.apply(a_version(2, keep="kind = 'z'"))
    rebuilt(world)
    world.catalog(LATER)
    assert marks(world) == {}
    assert ids_of_lake(world) == []
    assert is_sound(world)


def test_objects_that_had_no_row_of_the_day_are_read_again_too(world: World) -> None:
    world.apply(a_version(1, keep="kind = 'a'"))
    ids = arrive(world, "aa", "bb")
    world.drop([], body=as_lines(rows_of("a")) + b"broken\n")
    world.stream(NOON)
    switch(world)
    assert sorted(marks(world))[:2] == ids[:2]
    world.apply(a_version(2))
    done = rebuilt(world)
    assert done.totals is not None
    assert done.totals.added == 1
    world.catalog(LATER)
    assert len(marks(world)) == 5
    assert set(marks(world).values()) == {2}
    assert ledgers(world) == [(2, 2, 0, 0), (2, 2, 0, 0), (2, 1, 1, 0)]
    world.merge(LATEST)
    world.catalog(LATEST)
    assert len(marks(world)) == 5
    assert is_sound(world)


def test_quarantined_lines_that_are_rows_now_leave_the_quarantine_and_others_come(world: World) -> None:
    world.apply(a_version(1) + "reject: [{when: \"kind = 'a'\", reason: is_a}]\n")
    ids = arrive(world, "ab")
    switch(world)
    world.apply(a_version(2) + "reject: [{when: \"kind = 'b'\", reason: is_b}]\n")
    rebuilt(world)
    world.catalog(LATER)
    assert sorted(marks(world)) == ids[:1]
    assert ledgers(world) == [(2, 1, 1, 0)]
    statement = "SELECT reason || ' ' || line_count || ' ' || object_key FROM prism_quarantine"
    assert scalar(world, statement).startswith("is_b 1 ")
    assert is_sound(world)


# Objects with rows of several days


def two_days(world: World, first: str, second: str) -> list[int]:
    """One object with rows of two days, both closed and switched."""
    world.apply(a_version(1))
    rows = [*rows_of(first, NOON), *rows_of(second, LATER)]
    world.drop(rows)
    world.stream(LATER)
    for _ in range(2):
        world.catalog("2026-03-03T00:10")
        world.merge("2026-03-03T00:10", everything=True)
    world.catalog("2026-03-03T00:10")
    return [row["id"] for row in rows]


def test_other_days_keep_their_rows_as_they_are(world: World) -> None:
    ids = two_days(world, "ab", "abb")
    location = world.partition(NEXT).location
    world.apply(a_version(2, keep="kind = 'a'"))
    (plan,) = preview_days(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER))
    assert "1 of them have rows of other days, too, which stay as they are" in str(plan)
    rebuilt(world)
    world.catalog(LATEST)
    assert marks(world) == {ids[0]: 2, **dict.fromkeys(ids[2:], 1)}
    assert world.partition(NEXT).location == location
    assert ledgers(world) == [(5, 4, 0, 1)]
    assert is_sound(world)
    rebuilt(world, NEXT)
    world.catalog(LATEST)
    assert marks(world) == {ids[0]: 2, ids[2]: 2}
    assert ledgers(world) == [(5, 2, 0, 3)]
    assert is_sound(world)


def test_several_days_are_rebuilt_one_after_the_other(world: World) -> None:
    ids = two_days(world, "ab", "abb")
    world.apply(a_version(2))
    report = rebuild(world, NEXT, since=utc(NOON).date())
    assert [(str(day.date), day.totals and day.totals.rows_after) for day in report.days] == [(DAY, 2), (NEXT, 3)]
    world.catalog(LATEST)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


@contextmanager
def a_version_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A version of the kernels that refuses commas in times."""
    parse_timestamp = times.parse_timestamp
    with monkeypatch.context() as patch:
        patch.setattr(block_reader, "loaded_kernel", lambda: Kernel(why_not="only Python's rules are replaced"))
        patch.setattr(times, "parse_timestamp", lambda said, at: None if "," in said else parse_timestamp(said, at))
        yield


def two_days_of_a_version_before(world: World, monkeypatch: pytest.MonkeyPatch, *unread: int) -> list[int]:
    """Closes two days with two rows each from one object. Lines with a comma in their time stay in quarantine."""
    rows = [*rows_of("ab", NOON), *rows_of("ab", LATER)]
    for number in unread:
        rows[number]["time"] = rows[number]["time"].replace("Z", ",5Z")
    with a_version_before(monkeypatch):
        world.apply(a_version(1))
        world.drop(rows)
        world.stream(LATER)
    for _ in range(2):
        world.catalog("2026-03-03T00:10")
        world.merge("2026-03-03T00:10", everything=True)
    assert ledgers(world) == [(4, 4 - len(unread), len(unread), 0)]
    world.apply(a_version(2))
    return [row["id"] for row in rows]


@pytest.mark.parametrize("first", [DAY, NEXT])
def test_lines_that_a_later_version_reads_become_rows_of_either_day(
    world: World, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Either day may be rebuilt first. The other keeps its rows, without these lines."""
    ids = two_days_of_a_version_before(world, monkeypatch, 1, 3)
    second = NEXT if first == DAY else DAY
    rebuilt(world, first)
    assert ledgers(world) == [(4, 3, 1, 0)]
    assert waiting(world) == [second]
    assert is_sound(world)
    rebuilt(world, second)
    world.catalog(LATEST)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert ledgers(world) == [(4, 4, 0, 0)]
    assert is_sound(world)


def a_line_for_a_day_in_force(world: World, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool = True) -> list[int]:
    """Both days have the definition in force. A line waits for the second, which the earlier version rebuilt.

    Without `is_recorded`, the line's day is unknown.
    """
    ids = two_days_of_a_version_before(world, monkeypatch, 1, 3)
    with a_version_before(monkeypatch):
        rebuilt(world, NEXT)
    rebuilt(world, DAY)
    assert (waiting(world), ledgers(world)) == ([NEXT], [(4, 3, 1, 0)])
    if not is_recorded:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_quarantine SET dates = NULL")
    return ids


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "unrecorded"])
def test_lines_left_for_a_day_of_the_definition_in_force_become_rows_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    ids = a_line_for_a_day_in_force(world, monkeypatch, is_recorded=is_recorded)
    (plan,) = preview_days(world.context, "log.events", day=utc(LATER).date(), now=utc(LATEST))
    assert str(plan).startswith(f"log.events {NEXT}: convert 1 staging object")
    done = rebuilt(world, NEXT)
    assert done.totals is not None
    assert (done.totals.objects, done.totals.added, done.totals.rows_after) == (1, 0, 2)
    assert (waiting(world), ledgers(world)) == ([], [(4, 4, 0, 0)])
    for day in (DAY, NEXT):
        assert rebuilt(world, day).totals is None
    world.catalog(LATEST)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_what_is_merged_with_lines_left_for_a_day_in_force_is_rebuilt_with_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = a_line_for_a_day_in_force(world, monkeypatch)
    ids += arrive(world, "x", now=LATEST, start=f"{NEXT}T13:00")
    for _ in range(2):
        world.merge(LATEST, everything=True)
        world.catalog(LATEST)
    done = rebuilt(world, NEXT)
    assert done.totals is not None
    assert (done.totals.objects, done.totals.ranges, done.totals.rows_after) == (2, 1, 3)
    assert rebuilt(world, NEXT).totals is None
    world.catalog(LATEST)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_lines_that_a_later_version_reads_are_told_where_the_quarantine_is_kept_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = two_days_of_a_version_before(world, monkeypatch, 3)
    (key,) = keys(world, "quarantine/")
    world.context.stores.delete("lake", [key])
    (error,) = rebuild(world).errors
    assert "gives 2 rows of 2026-03-02 under version 1 of the definition, and 1 were committed" in error
    assert "rebuild that day first" in error
    for day in (NEXT, DAY):
        rebuilt(world, day)
    world.catalog(LATEST)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_no_row_moves_from_one_day_to_another(world: World) -> None:
    two_days(world, "a", "b")
    before = keys(world)
    # A time zone cannot change, but the source of the time can.
    moved = a_version(2).replace(
        "{name: time, type: timestamp, required: true}",
        "{name: said, type: timestamp, source: time, stored: false}\n"
        '  - {name: time, type: timestamp, required: true, value: "said + INTERVAL 1 DAY"}',
    )
    world.apply(moved)
    for day in (DAY, NEXT):
        (error,) = rebuild(world, day).errors
        assert "a rebuild moves no row from one day to another" in error
    world.catalog(LATEST)
    assert set(marks(world).values()) == {1}
    assert {key for key in keys(world) if key in before or "-r" not in key} == set(before)
    assert is_sound(world)


def test_lines_that_would_be_rows_of_a_day_that_is_not_rebuilt_wait_in_quarantine(world: World) -> None:
    world.apply(a_version(1, keep="kind = 'a'"))
    rows = [*rows_of("ab", NOON), *rows_of("b", f"{NEXT}T11:00")]
    ids = [row["id"] for row in rows]
    world.drop(rows)
    ids += arrive(world, "a", now=LATER, start=f"{NEXT}T11:00")
    for _ in range(2):
        world.catalog("2026-03-03T00:10")
        world.merge("2026-03-03T00:10", everything=True)
    world.catalog("2026-03-03T00:10")
    world.apply(a_version(2))
    rebuilt(world)
    assert scalar(world, "SELECT reason || line_count FROM prism_quarantine") == "other_day1"
    assert ledgers(world)[0] == (3, 2, 1, 0)
    world.catalog(LATEST)
    assert sorted(marks(world)) == sorted([*ids[:2], ids[3]])
    assert is_sound(world)


def waiting(world: World) -> list[str]:
    """Returns the days of lines left by rebuilds of other days."""
    statement = "SELECT unnest(dates)::text FROM prism_quarantine WHERE reason = 'other_day' ORDER BY 1"
    with world.context.database.begin() as connection:
        return list(connection.exec_driver_sql(statement).scalars())


def an_object_of_other_days(world: World, *starts: str) -> list[int]:
    """One closed object that came on the 5th, with a row of the 1st, and a filtered line at each of these times."""
    world.apply(a_version(1, keep="kind = 'a'"))
    rows = [*rows_of("a", NOON), *(rows_of("b", start)[0] for start in starts)]
    world.drop(rows)
    world.stream(LATEST)
    for _ in range(2):
        world.catalog(LATEST)
        world.merge(LATEST, everything=True)
    world.apply(a_version(2))
    return [row["id"] for row in rows]


def test_lines_of_a_third_day_are_found_whenever_they_came_and_make_a_day_without_rows(world: World) -> None:
    ids = an_object_of_other_days(world, f"{NEXT}T11:00", "2026-03-03T11:00")
    rebuilt(world, now=LATEST)
    assert waiting(world) == [NEXT, "2026-03-03"]
    assert ledgers(world) == [(3, 1, 2, 0)]
    (plan,) = preview_days(world.context, "log.events", day=utc(LATER).date(), now=utc(LATEST))
    assert str(plan).startswith(f"log.events {NEXT}: convert 1 staging object")
    report = rebuild(world, "2026-03-03", now=LATEST, since=utc(LATER).date())
    assert [str(day.date) for day in report.days] == [NEXT, "2026-03-03"]
    assert report.errors == ()
    assert (waiting(world), ledgers(world)) == ([], [(3, 3, 0, 0)])
    assert ids_of_lake(world) == ids
    for _ in range(3):
        world.catalog(LATEST)
        world.merge(LATEST, everything=True)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert world.status(NEXT, LATEST).state == "switched"
    assert not rebuild(world, "2026-03-03", now=LATEST, since=utc(NOON).date()).changed
    assert is_sound(world)


def test_an_object_is_not_read_again_for_a_day_that_it_is_recorded_to_have_no_line_of(world: World) -> None:
    an_object_of_other_days(world, "2026-03-03T11:00")
    ids = arrive(world, "a", now=LATEST, start=f"{LATEST[:10]}T11:00")
    for _ in range(2):
        world.catalog("2026-03-06T00:10")
        world.merge("2026-03-06T00:10", everything=True)
    rebuilt(world, now="2026-03-06T00:10")
    assert rebuilt(world, "2026-03-05", now="2026-03-06T00:10").totals is None
    assert waiting(world) == ["2026-03-03"]
    assert ids


def test_lines_whose_days_were_not_recorded_are_looked_for_by_when_they_came(world: World) -> None:
    an_object_of_other_days(world, "2026-03-04T11:00")
    rebuilt(world, now=LATEST)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_quarantine SET dates = NULL")
    arrive(world, "a", now=LATEST, start="2026-03-04T11:00")
    world.catalog(LATEST)
    done = rebuilt(world, "2026-03-04", now=LATEST)
    assert done.totals is not None
    assert (done.totals.added, done.totals.rows_after) == (1, 2)
    assert is_sound(world)


def test_a_day_without_rows_is_not_made_before_it_is_over_nor_while_objects_are_converted(world: World) -> None:
    an_object_of_other_days(world, "2026-03-05T11:00", "2026-03-04T11:00")
    rebuilt(world, now=LATEST)
    (error,) = rebuild(world, "2026-03-05", now=LATEST).errors
    assert "2026-03-05: it is not rebuilt: it is not over, and readers list its folder" in error
    world.drop(rows_of("a"))
    errors: list[str] = []
    busy = another_worker(
        world,
        PausingEngine(world.context.engine, lambda: errors.extend(rebuild(world, "2026-03-04", now=LATEST).errors)),
    )
    busy.stream(LATEST)
    assert "1 staging object is being converted, and may have rows of it: repeat when that has ended" in errors[0]
    assert rebuilt(world, "2026-03-04", now=LATEST).totals


def test_a_day_without_rows_waits_only_for_what_was_claimed_before_it_was_marked(world: World) -> None:
    an_object_of_other_days(world, "2026-03-04T11:00")
    rebuilt(world, now=LATEST)
    first, later = list[str](), list[str]()

    def during_another(told: list[str]) -> None:
        """Rebuilds while an object is being converted. Nobody knows yet whether it has rows of the day."""
        world.drop(rows_of(f"{len(first)}"))
        engine = PausingEngine(
            world.context.engine, lambda: told.extend(rebuild(world, "2026-03-04", now=LATEST).errors)
        )
        another_worker(world, engine).stream(LATEST)

    during_another(first)
    assert "1 staging object is being converted" in first[0]
    (plan,) = preview_days(world.context, "log.events", day=utc("2026-03-04T11:00").date(), now=utc(LATEST))
    assert "is not rebuilt" not in str(plan)
    during_another(later)
    assert later == []
    assert waiting(world) == []
    assert is_sound(world)


def test_a_day_that_was_made_and_got_no_row_is_shown_to_nobody_and_waits_for_nothing(world: World) -> None:
    an_object_of_other_days(world, "2026-03-04T11:00")
    rebuilt(world, now=LATEST)
    world.apply(a_version(3, keep="kind = 'a'"))
    rebuilt(world, "2026-03-04", now=LATEST)
    assert waiting(world) == []
    report = world.catalog(LATEST)
    assert [table.waiting for table in report.tables] == [()]
    assert [str(item.date) for item in world.reader().table("log.events").partitions] == [DAY]
    ids = arrive(world, "a", now=LATEST, start="2026-03-04T11:00")
    world.catalog(LATEST)
    assert ids[0] in marks(world)
    assert is_sound(world)


# Refused rebuilds


def test_an_open_day_is_not_rebuilt_and_the_way_out_is_told(world: World) -> None:
    world.apply(a_version(1))
    arrive(world, "a")
    world.catalog(NOON)
    world.apply(a_version(2))
    (error,) = rebuild(world).errors
    assert error.startswith("log.events 2026-03-01: it is not rebuilt: it is live: readers list its folder")
    assert "rebuild it once a catalog run has closed it" in error
    (plan,) = preview_days(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER))
    assert "is not rebuilt: it is live" in str(plan)


def test_a_day_without_rows_and_days_in_the_wrong_order_are_wrong_use(world: World) -> None:
    world.apply(a_version(1))
    with pytest.raises(WrongUse, match="has no rows on 2026-03-01, and no lines wait for it"):
        rebuild(world)
    with pytest.raises(WrongUse, match="is after --date"):
        rebuild(world, since=utc(LATER).date())


def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: World) -> None:
    a_switched_day(world)
    world.apply(a_version(2))
    before = keys(world)
    (plan,) = preview_days(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER))
    assert str(plan).startswith("log.events 2026-03-01: convert 3 staging objects of 0.0 MB under version 2")
    assert (keys(world), scalar(world, "SELECT count(*) FROM prism_rewrites WHERE kind = 'rebuild'")) == (before, 0)
    rebuilt(world)
    (plan,) = preview_days(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER))
    assert plan.changes_nothing


# Missing staging objects


def path_of(world: World, number: int) -> Path:
    return world.root / "buckets" / "staging" / "events" / "2026" / f"{number:06}.gz"


def test_a_staging_object_that_is_gone_stops_the_rebuild_until_it_is_restored(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))
    away = path_of(world, 2).rename(world.root / "away")
    (error,) = rebuild(world).errors
    assert "1 staging object is gone" in error
    assert "s3://staging/events/2026/000002.gz" in error
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 1)
    away.rename(path_of(world, 2))
    done = rebuilt(world)
    assert done.resumed, "what was converted is not converted again"
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_another_object_under_the_key_is_not_taken_for_the_one_that_was_converted(world: World) -> None:
    a_switched_day(world)
    world.apply(a_version(2))
    path_of(world, 2).write_bytes(path_of(world, 1).read_bytes() + b"\n")
    (error,) = rebuild(world).errors
    assert "changed since the conversion" in error


def test_without_missing_leaves_what_is_merged_with_a_missing_object_as_it_is(world: World) -> None:
    """Its rows are in one merged object together with others, and by then in no other object."""
    world.apply(a_version(1, merge="{interval: 0, target_bytes: 1}"))
    ids = arrive(world, "ab", "ab", "ab")
    switch(world)
    hours_pass(world, 100)
    deleted(world)
    world.apply(a_version(2, merge="{interval: 0, target_bytes: 1}"))
    path_of(world, 2).unlink()
    done = rebuilt(world, without_missing=True)
    assert done.missing == ("s3://staging/events/2026/000002.gz",)
    world.catalog(LATER)
    assert marks(world) == {**dict.fromkeys(ids, 2), **dict.fromkeys(ids[2:4], 1)}
    again = rebuilt(world, without_missing=True)
    assert (again.totals, len(again.missing)) == (None, 1)
    assert is_sound(world)


def test_without_missing_keeps_the_rows_of_a_range_together(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))
    path_of(world, 2).unlink()
    assert rebuilt(world, without_missing=True).totals is None
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 1)
    assert is_sound(world)


# Concurrent work


def test_rows_that_come_during_a_rebuild_stay(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))

    def late() -> None:
        ids.extend(arrive(world, "x", now=LATER, start=NOON))
        world.merge(LATER, everything=True)
        world.catalog(LATER)

    busy = another_worker(world, PausingEngine(world.context.engine, late))
    rebuilt(busy)
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_a_range_that_is_extended_when_the_rebuild_is_ready_is_merged_once_more(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))

    class Extending(PausingEngine):
        _paused = False

        def run(self, tasks: Any, definitions: Any) -> Iterator[Any]:
            yield from self.inner.run(tasks, definitions)
            if tasks[0].kernel == "write" and not self._paused:
                self._paused = True
                self.pause()

    def late() -> None:
        ids.extend(arrive(world, "x", now=LATER, start=NOON))
        world.merge(LATER, everything=True)

    rebuilt(another_worker(world, Extending(world.context.engine, late)))
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_a_merge_of_rows_from_before_the_rebuild_is_not_committed(world: World) -> None:
    ids = a_switched_day(world)
    ids += arrive(world, "x", now=LATER, start=NOON)
    world.apply(a_version(2))
    late = another_worker(world, PausingEngine(world.context.engine, lambda: rebuilt(world)))
    assert late.merge(LATER, everything=True).merged == ()
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    (merged,) = world.merge(LATER, everything=True).merged
    assert merged.rows >= 1
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_a_day_that_is_switched_during_a_rebuild_gets_a_certificate_of_the_new_rows(world: World) -> None:
    world.apply(a_version(1))
    ids = arrive(world, "abc", "abc")
    close(world)
    world.merge(AFTER, everything=True)
    world.apply(a_version(2, keep="kind <> 'c'"))
    busy = another_worker(world, PausingEngine(world.context.engine, lambda: world.catalog(AFTER)))
    rebuilt(busy)
    assert world.status(DAY, LATER).state == "switched"
    assert scalar(world, "SELECT range_rows FROM prism_switch_certificates") == 4
    world.catalog(LATER)
    assert sorted(marks(world)) == [number for place, number in enumerate(ids) if place % 3 < 2]
    assert is_sound(world)


def test_two_rebuilds_of_a_day_do_not_meet(world: World) -> None:
    a_switched_day(world)
    world.apply(a_version(2))
    number = scalar(world, "SELECT prism_partition_id FROM prism_partitions")
    with leased(world.context, LeaseKind.REBUILD, [number]) as held:
        assert held
        (error,) = rebuild(another_worker(world, world.context.engine)).errors
    assert "another rebuild is working on it" in error
    assert rebuilt(world).totals


def test_rebuilds_of_two_days_of_one_object_at_once_keep_its_ledger(world: World) -> None:
    ids = two_days(world, "ab", "abb")
    world.apply(a_version(2, keep="kind = 'a'"))
    done: list[RebuiltDay] = []
    busy = another_worker(world, PausingEngine(world.context.engine, lambda: done.append(rebuilt(world, NEXT))))
    done.append(rebuilt(busy))
    assert all(day.totals for day in done)
    world.catalog(LATEST)
    assert marks(world) == {ids[0]: 2, ids[2]: 2}
    assert ledgers(world) == [(5, 2, 0, 3)]
    assert is_sound(world)


def test_a_rebuild_that_lost_its_lease_changes_nothing(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))

    def taken_over() -> None:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_leases SET lease_token = gen_random_uuid() WHERE kind = 'rebuild'")

    busy = another_worker(world, PausingEngine(world.context.engine, taken_over))
    (error,) = rebuild(busy).errors
    assert "taken this work over" in error
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 1)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_leases SET heartbeat_time = '2000-01-01' WHERE kind = 'rebuild'")
    assert rebuilt(world).totals
    assert is_sound(world)


# Failures


def one_by_one(world: World) -> World:
    """The same platform with parts of one object."""
    settings = world.settings.model_copy(update={"stream_max_objects": 1})
    return dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))


def fails(world: World, engine: Engine) -> PrismError | str:
    (error,) = rebuild(another_worker(world, engine)).errors
    return error


def test_a_rebuild_whose_engine_goes_away_is_gone_on_with(world: World) -> None:
    world = one_by_one(world)
    ids = a_switched_day(world)
    world.apply(a_version(2))
    assert "the engine is gone" in str(fails(world, VanishingEngine(world.context.engine, 2)))
    engine = VanishingEngine(world.context.engine, 1_000)
    done = rebuilt(another_worker(world, engine))
    assert done.resumed
    assert len(engine.jobs) == 1 + 1, "the object that is left, and the range"
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)
    assert is_sound(world)


def test_a_rebuild_under_a_definition_that_is_not_in_force_any_more_begins_anew(world: World) -> None:
    world = one_by_one(world)
    ids = a_switched_day(world)
    world.apply(a_version(2))
    fails(world, VanishingEngine(world.context.engine, 2))
    world.apply(a_version(3))
    done = rebuilt(world)
    assert not done.resumed
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 3)
    dropped = scalar(world, "SELECT prism_rewrite_id FROM prism_rewrites WHERE state = 'dropped'")
    assert [key for key in keys(world) if f"-r{dropped}." in key] != []
    hours_pass(world, 100)
    deleted(world)
    assert [key for key in keys(world) if f"-r{dropped}." in key] == []
    assert is_sound(world)


def test_one_poisonous_object_is_told_and_the_others_are_kept_ready(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))
    error = str(fails(world, PoisonedEngine(world.context.engine, "events/2026/000002.gz")))
    assert "1 staging object could not be converted: the worker was killed" in error
    assert rebuilt(world).resumed
    world.catalog(LATER)
    assert marks(world) == dict.fromkeys(ids, 2)


def test_days_that_cannot_be_rebuilt_stop_no_other(world: World) -> None:
    two_days(world, "a", "b")
    arrive(world, "c", now=LATEST, start=LATEST)
    world.apply(a_version(2))
    report = rebuild(world, "2026-03-05", since=utc(NOON).date())
    assert [str(day.date) for day in report.days] == [DAY, NEXT]
    (error,) = report.errors
    assert "2026-03-05: it is not rebuilt" in error


# Replaced objects


def test_what_a_rebuild_replaced_stays_for_the_reader_lease_and_goes_then(world: World) -> None:
    a_switched_day(world)
    hours_pass(world, 100)
    deleted(world)
    old = set(keys(world))
    world.apply(a_version(2))
    rebuilt(world)
    hours_pass(world, 100)
    deleted(world)
    assert old <= set(keys(world)), "readers are still sent to it"
    world.catalog(LATER)
    hours_pass(world, 1)
    deleted(world)
    assert old <= set(keys(world)), "readers may still hold it"
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2026-01-01'")
    deleted(world)
    assert len(keys(world)) == 2, "the merged object and its manifest"
    assert not old & set(keys(world))
    assert is_sound(world)


def test_small_objects_that_a_rebuild_replaced_stay_for_readers_of_the_manifest_of_before(world: World) -> None:
    world.apply(a_version(1))
    arrive(world, "ab", "ab")
    close(world)
    hours_pass(world, 100)
    world.apply(a_version(2))
    rebuilt(world)
    world.catalog(LATER)
    hours_pass(world, 1)
    assert "rebuilt" not in deleted(world)
    hours_pass(world, 100)
    assert deleted(world) == {"rebuilt": 2, "replaced": 1}
    assert is_sound(world)


def test_what_a_dead_rebuild_left_goes_when_nobody_will_go_on_with_it(world: World) -> None:
    a_switched_day(world)
    hours_pass(world, 100)
    deleted(world)
    before = keys(world)
    world.apply(a_version(2))
    fails(world, VanishingEngine(world.context.engine, 3))
    deleted(world)
    assert set(keys(world)) > set(before), "it may be gone on with"
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET start_time = start_time - interval '100 hours'")
    deleted(world)
    assert keys(world) == before
    assert is_sound(world)


def test_objects_of_a_rebuilt_day_are_repaired_as_they_were_rebuilt(world: World) -> None:
    world.apply(a_version(1))
    rows = [*rows_of("ab", NOON), *rows_of("c", LATER)]
    world.drop(rows)
    world.stream(LATER)
    close(world)
    world.apply(a_version(2))
    rebuilt(world)
    world.catalog(LATER)
    before = {key: world.context.stores.get("lake", key) for key in keys(world)}
    world.context.stores.delete("lake", [key for key in before if "/prism-" in key])
    report = run_repair(world.context)
    assert (report.missing, report.repaired, report.errors) == (2, 2, ())
    after = [world.context.stores.get("lake", key) for key in keys(world, "delayed")]
    assert sorted(after) == sorted(body for key, body in before.items() if "delayed" in key)
    world.catalog(LATER)
    assert marks(world) == {rows[0]["id"]: 2, rows[1]["id"]: 2, rows[2]["id"]: 1}
    assert is_sound(world)


def test_readers_that_poll_during_a_rebuild_see_every_row_once_at_each_time(world: World) -> None:
    ids = a_switched_day(world)
    world.apply(a_version(2))
    end, seen = threading.Event(), list[list[int]]()

    def poll() -> None:
        while not end.is_set():
            seen.extend([world.ids(), ids_of_lake(world)])

    poller = threading.Thread(target=poll)
    poller.start()
    for mark in (3, 4):
        rebuilt(world)
        world.catalog(LATER)
        world.apply(a_version(mark))
    end.set()
    poller.join()
    assert seen
    assert all(found == ids for found in seen)


# Any lines, any definitions


KINDS = "abcd"
KEEPS = ("", "kind <> 'a'", "kind IN ('a', 'b')", "kind = 'd'")
REJECTS = ("", "kind = 'b'", "kind = 'c'")


def definition(mark: int, keep: str, reject: str) -> str:
    text = a_version(mark, keep=keep, merge="{interval: 0, target_bytes: 1500, max_objects: 2}")
    return text + (f'reject: [{{when: "{reject}", reason: refused}}]\n' if reject else "")


def fate(kind: str, keep: str, reject: str) -> str:
    kept = {"": KINDS, "kind <> 'a'": "bcd", "kind IN ('a', 'b')": "ab", "kind = 'd'": "d"}[keep]
    if kind not in kept:
        return "filtered"
    return "quarantined" if reject and kind in reject.rpartition("= ")[2] else "row"


@given(
    objects=st.lists(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=5), min_size=1, max_size=4),
    first=st.tuples(st.sampled_from(KEEPS), st.sampled_from(REJECTS)),
    turns=st.lists(
        st.tuples(st.sampled_from(KEEPS), st.sampled_from(REJECTS), st.sampled_from([DAY, NEXT])),
        min_size=1,
        max_size=3,
    ),
)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
def test_whatever_was_and_is_kept_each_line_is_in_one_place_and_the_ledger_says_where(
    services: Mapping[str, str],
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    objects: list[list[tuple[str, bool]]],
    first: tuple[str, str],
    turns: list[tuple[str, str, str]],
) -> None:
    with a_world(services, database_url, tmp_path_factory.mktemp("any")) as world:
        _play(world, objects, first, turns)
        assert is_sound(world)


def _play(
    world: World,
    objects: list[list[tuple[str, bool]]],
    first: tuple[str, str],
    turns: list[tuple[str, str, str]],
) -> None:
    """Checks every line against the definition its day was made under: it is a row of its day, or it is counted."""
    world.apply(definition(1, *first))
    lines: list[tuple[int, str, str]] = []
    for made in [*objects, [("a", False), ("b", False), ("d", False), ("a", True), ("b", True), ("d", True)]]:
        rows = [rows_of(kind, LATER if is_next else NOON)[0] for kind, is_next in made]
        lines += [(row["id"], kind, NEXT if late else DAY) for row, (kind, late) in zip(rows, made, strict=True)]
        world.drop(rows)
    world.stream(LATER)
    for _ in range(3):
        world.catalog("2026-03-03T00:10")
        world.merge("2026-03-03T00:10", everything=True)
    under = {DAY: (1, *first), NEXT: (1, *first)}
    for number, (keep, reject, day) in enumerate(turns, start=2):
        world.apply(definition(number, keep, reject))
        if scalar(world, f"SELECT count(*) FROM prism_partitions WHERE partition_date = '{day}'"):
            assert rebuild(world, day).errors == ()
            under[day] = (number, keep, reject)
        world.catalog(LATEST)
        world.merge(LATEST, everything=True)
        world.catalog(LATEST)
        expected = {row: under[day][0] for row, kind, day in lines if fate(kind, *under[day][1:]) == "row"}
        found = marks(world)
        waiting = scalar(world, "SELECT coalesce(sum(line_count), 0) FROM prism_quarantine WHERE reason = 'other_day'")
        assert found.items() <= expected.items()
        assert len(expected) - len(found) <= waiting, "rows of a day that was not rebuilt since wait in quarantine"
        assert ids_of_lake(world) == sorted(found)

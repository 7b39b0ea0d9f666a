"""A column widened by copies: no reader fails, and none finds null or another value.

Before the copies replace all objects, every object has the narrow type; afterwards every object has the wide one. So
even a reader that trusts Glue's types reads all days all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.columns import transitions as column_transitions
from prism_assets.domain.merges import plan as merge_plan
from prism_assets.publishers.glue import SymlinkPublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase import rows as erase_rows
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.flip import run_flip
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.stream.plan import start_batch
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.catalogs import calls_are_over, with_catalog
from prism_assets_tests.stages.engines import expire_leases, rest_is_over
from prism_assets_tests.stages.seen_columns import DAY, NIGHT, NOON, look, publish
from prism_assets_tests.stages.widened import (
    AFTER,
    BIG,
    COLUMNS,
    EVENING,
    LATER,
    LONG,
    NARROW,
    NEXT,
    WIDE,
    WIDENED,
    a_file,
    arrive,
    die,
    drop,
    flip,
    plans,
    said,
    see,
    states,
    strict,
)
from prism_assets_tests.stages.widened import rows as rows
from prism_assets_tests.world import World

FLIPPING, FLIPPED = "2026-03-02T11:05", "2026-03-02T11:20"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A platform with a table that flips when all merged objects have a copy."""
    monkeypatch.setattr(column_transitions, "MOST_UNCOPIED_TO_BEGIN", 0)
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def drop_size(world: World) -> dict[str, str]:
    """Drops the widened column. Returns the other columns."""
    left = {name: kind for name, kind in NARROW.items() if name != "size"}
    world.apply(a_file(left).replace("metrics: [time, size, ", "metrics: [time, "), now=WIDENED)
    return left


def test_no_reader_fails_when_a_column_is_widened(world: World, rows: list[dict[str, Any]]) -> None:
    (line, *_, left, _) = world.apply(a_file(WIDE), now=WIDENED).lines
    assert line == (
        "widen column size of log.events from integer to bigint: merged objects are copied with this type, and "
        "once all have a copy, the copies replace them in one step; until then the column is integer for every reader"
    )
    assert left == (
        "copy objects of log.events with wider types: 1 merged object to be copied, 1 object of open days, of "
        "2026-03-01 to 2026-03-02"
    )
    assert states(world) == {"copying"}
    assert said(world, WIDENED) == (
        "column size is integer, and to be bigint since 2026-03-02 10:00Z: merged objects are being copied with it: 1 "
        "object left"
    )
    rows += [*arrive(world, LATER, at=NEXT), *arrive(world, LATER)]
    publish(world, LATER)
    see(world, rows, NARROW)
    assert plans(world.merge(LATER, everything=True)) == [
        "write extend (0, 5] with 1 object",
        "write a copy of (0, 5] with wider types",
    ]
    publish(world, LATER)
    see(world, rows, NARROW)
    assert states(world) == {"flipping"}
    late = [*drop(world, at=NEXT, wide=True), *drop(world, wide=True)]
    world.stream(FLIPPING)
    assert "new objects wait, until 2026-03-02 11:10 at most" in said(world, FLIPPING).replace("Z", "")
    publish(world, FLIPPING)
    see(world, rows, NARROW)
    assert plans(world.merge(FLIPPING)) == [
        "write new (0, 4] with 2 objects",
        "write a copy of (0, 4] with wider types",
    ]
    publish(world, FLIPPING)
    see(world, rows, NARROW)
    assert states(world) == {"flipping"}, "what readers were sent to last is not shown yet"
    (report,) = world.catalog(FLIPPED).tables
    assert report.columns_advanced[0] == ("flip column size of log.events to bigint: its copies replace all objects")
    world.iceberg(FLIPPED)
    assert states(world) == set()
    see(world, rows, WIDE)
    world.stream(FLIPPED)
    publish(world, FLIPPED)
    rows += late
    see(world, rows, WIDE)
    world.merge(AFTER, everything=True)
    publish(world, AFTER)
    see(world, rows, WIDE)
    assert not world.catalog(AFTER).changed
    hours_pass(world, 100)
    assert deleted(world), "none of what readers need"
    see(world, rows, WIDE)
    assert run_doctor(world.context, deep=True).is_clean


def test_what_readers_see_is_whole_whatever_is_done_to_rows_while_a_column_is_copied(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    old = [key for key in keys(world, "merged/") if key.endswith(".parquet")]
    assert len(old) == 2, "the copy beside the object"
    # Erases rows of a merged object with a copy: both are replaced or removed.
    gone = rows[0]
    where = f"id = {gone['id']}"
    assert run_erase(world.context, "log.events", where, rows=1).errors == ()
    rows.remove(gone)
    publish(world, WIDENED)
    see(world, rows, NARROW)
    # An object begun by a dead worker is finished; a later object waits.
    begun = drop(world, at=NEXT)
    world.discover(WIDENED)
    start_batch(world.context, None)
    expire_leases(world)
    rest_is_over(world)
    for point in ("merge.in_commit", "merge.after_commit"):
        die(monkeypatch, point, lambda: world.merge(LATER))
        expire_leases(world)
        see(world, rows, NARROW)
    for point in ("catalog.in_transition", "catalog.after_transition"):
        world.merge(LATER)
        die(monkeypatch, point, lambda: run_catalog(world.context, now=utc(LATER)))
        expire_leases(world)
        calls_are_over(world)
        see(world, rows, NARROW)
    assert states(world) == {"flipping"}
    late = drop(world, at=NEXT, wide=True)
    world.stream(LATER)
    rows += begun
    publish(world, LATER)
    assert flip(world, rows) > 1
    rows += late
    world.stream(AFTER)
    publish(world, AFTER)
    see(world, rows, WIDE)
    hours_pass(world, 100)
    later = datetime.now(timezone.utc) + timedelta(hours=100)
    assert continue_erasures(world.context, now=later, forced=True).erasures[0].state == "proved"
    assert set(old).isdisjoint(keys(world, "merged/"))
    see(world, rows, WIDE)
    assert run_doctor(world.context, deep=True).is_clean


def test_a_copy_that_is_lost_is_made_again(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    copied = max(key for key in keys(world, "merged/") if "-r" in key)
    world.context.stores.delete("lake", [copied])
    world.catalog(WIDENED)
    assert states(world) == {"copying"}
    assert said(world, WIDENED).endswith("merged objects are being copied with it: 1 object left")
    flip(world, rows)
    assert run_doctor(world.context, deep=True).is_clean


def test_ranges_of_open_days_are_copied_too_and_all_in_one_run_when_new_objects_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(types: dict[str, str]) -> str:
        return a_file(types).replace("target_bytes: 100000", "target_bytes: 1024")

    monkeypatch.setattr(merge_plan, "REWRITES", 1)
    world.apply(small(NARROW))
    rows: list[dict[str, Any]] = []
    for _ in range(8):
        rows += arrive(world)
        world.merge(NOON, everything=True)
    publish(world, NOON)
    world.apply(small(WIDE), now=NOON)
    copies = "a copy of (0, 2] with wider types"
    assert [plan.removeprefix("write ").split("; ")[0] for plan in plans(world.merge(NOON))] == [copies]
    monkeypatch.setattr(column_transitions, "MOST_UNCOPIED_TO_BEGIN", 32)
    world.catalog(NOON)
    assert states(world) == {"flipping"}
    world.catalog(NOON)
    copied = [plan for plan in plans(world.merge(NOON)) if "a copy of" in plan]
    assert len(copied) == 3, "all that are left, one behind the other"
    publish(world, NOON)
    publish(world, NOON)
    see(world, rows, WIDE)


@pytest.mark.parametrize("dropped", [False, True])
def test_an_erasure_is_proved_whatever_was_copied_while_it_ran(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    world.apply(a_file(NARROW | {"size": "bigint"}), now=WIDENED)
    done: list[str] = []

    def meanwhile(point: str) -> None:
        if point == "erase.before_commit" and not done:
            done.append(point)
            for at in (WIDENED, LATER):  # the first meets the object of the erasure under its key
                run_merge(world.context, now=utc(at), ignore_schedule=True)

    monkeypatch.setattr(erase_rows, "failpoint", meanwhile)
    gone = rows[0]
    run_erase(world.context, "log.events", f"id = {gone['id']}", rows=1)
    assert continue_erasures(world.context, forced=True).errors == ()
    rows.remove(gone)
    if dropped:
        drop_size(world)
    publish(world, LATER)
    hours_pass(world, 100)
    later = datetime.now(timezone.utc) + timedelta(hours=100)
    assert continue_erasures(world.context, now=later, forced=True).erasures[0].state == "proved"
    assert world.ids() == sorted(row["id"] for row in rows)


def test_a_person_has_a_column_flip_at_once(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    late = drop(world, at=NEXT)
    report = run_flip(world.context, "log.events", clock=lambda: utc(LATER))
    assert (report.errors, report.left) == ((), ())
    assert report.sentences[-1] == "all columns of log.events have their types"
    assert [line.split()[0] for line in report.steps] == ["begin"] * 3 + ["flip"] * 3
    assert states(world) == set()
    world.iceberg(LATER)
    see(world, [*rows, *late], WIDE)
    again = run_flip(world.context, "log.events", clock=lambda: utc(LATER))
    assert again.sentences == ("all columns of log.events have their types",)


@pytest.mark.parametrize("flipping", [False, True])
def test_a_column_is_widened_further_or_at_once_while_it_is_copied(
    world: World, rows: list[dict[str, Any]], flipping: bool
) -> None:
    world.apply(a_file(NARROW | {"size": "bigint", "cost": "decimal(8,2)"}), now=WIDENED)
    world.merge(WIDENED)
    if flipping:
        world.catalog(WIDENED)
    assert states(world) == {"flipping" if flipping else "copying"}
    world.apply(a_file(WIDE), now=WIDENED)
    assert states(world) == {"copying"}, "as merged objects have one copy for all columns"
    flip(world, rows)
    (report,) = world.catalog(LATER).tables
    assert not report.columns_advanced


def test_a_column_that_is_copied_is_widened_at_once_on_demand(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    assert states(world) == {"flipping"}
    lines = world.apply(a_file(WIDE), now=WIDENED, accept_failing_reads=True).lines
    assert lines[0] == (
        "show column size of log.events as bigint at once, and write objects with this type once every catalog shows it"
    )
    world.catalog(WIDENED)
    rows += arrive(world, LATER, wide=True)
    publish(world, LATER)
    assert states(world) == {"rewriting"}
    see(world, rows, WIDE, DAY, "2026-03-02")
    world.merge(LATER, everything=True)
    publish(world, LATER)
    see(world, rows, WIDE, "2026-03-02")


def test_a_column_is_renamed_while_it_is_copied(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(WIDE), now=WIDENED)
    world.merge(WIDENED)
    world.apply(a_file(WIDE, rename="bytes"), now=WIDENED)
    publish(world, WIDENED)
    for minute in range(9):
        look(world, rows, *COLUMNS, size="bytes")
        assert strict(world, rows, NARROW) == []
        now = f"2026-03-02T10:{minute:02}"
        world.merge(now)
        publish(world, now)
        if not states(world):
            break
    assert states(world) == set()
    look(world, rows, *COLUMNS, size="bytes")
    assert strict(world, rows, WIDE) == []
    world.merge(LATER, everything=True)
    publish(world, EVENING)
    publish(world, AFTER)
    assert [name for name, _ in world.reader().table("log.events").columns][-1] == "size", "both are shown"
    assert strict(world, [row | {"bytes": row["size"]} for row in rows], {"bytes": "bigint", **WIDE}) == []


def test_a_rebuild_brings_no_narrow_rows_behind_the_flip(world: World, rows: list[dict[str, Any]]) -> None:
    more = "{name: more, type: bigint, source: size}"
    world.apply(a_file(NARROW, more), now=WIDENED)
    told: list[str] = []

    def meanwhile(line: str) -> None:
        told.append(line)
        if len(told) == 1:
            world.apply(a_file(WIDE, more), now=WIDENED)
            assert run_flip(world.context, "log.events", clock=lambda: utc(LATER)).errors == ()

    context = replace(world.context, progress=meanwhile)
    report = run_rebuild(context, "log.events", day=utc(NOON).date(), now=utc(WIDENED))
    assert "were renamed, widened or replaced meanwhile" in str(report.errors)
    publish(world, LATER)
    assert strict(world, rows, WIDE) == []
    assert run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(LATER)).errors == ()
    publish(world, EVENING)
    assert strict(world, [row | ({"size": BIG, "cost": LONG} if row["size"] is None else {}) for row in rows], {}) == []
    assert world.query(f"SELECT count(*) FROM log.events WHERE size = {BIG}") == [(2,)]


def test_a_database_of_glue_that_is_away_flips_when_it_is_there_again(world: World) -> None:
    linked = "symlink: true\n"
    world.apply(a_file(NARROW) + linked)
    rows = [*arrive(world), *arrive(world)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    publish(world, NIGHT)
    world.apply(a_file(WIDE) + linked, now=WIDENED)
    world.merge(WIDENED)
    assert states(world) == {"copying"}, "no open day has an object: the next catalog run flips"
    silent = GlueCatalog("http://127.0.0.1:1", "us-east-1", fail_fast=True)
    away = replace(
        with_catalog(world, silent).context,
        symlink_publisher=SymlinkPublisher(silent, world.context.lake, world.context.stores),
    )
    assert run_catalog(away, now=utc(LATER)).errors
    assert states(world) == set()
    rows += arrive(world, LATER, wide=True)
    calls_are_over(world)
    hours_pass(world, 100, of_publications=False)
    deleted(world)
    for database in ("log", "log_symlink"):
        assert strict(world, rows[:-3], NARROW, database) == []
    publish(world, LATER)
    for database in ("log", "log_symlink"):
        assert strict(world, rows, WIDE, database) == []
    see(world, rows, WIDE)


def test_a_column_that_is_dropped_while_it_is_copied_flips_nobody(world: World, rows: list[dict[str, Any]]) -> None:
    world.apply(a_file(NARROW | {"size": "bigint"}), now=WIDENED)
    world.merge(WIDENED)
    world.catalog(WIDENED)
    assert states(world) == {"flipping"}
    copied = max(key for key in keys(world, "merged/") if "-r" in key)
    left = drop_size(world)
    assert states(world) == set()
    rows += arrive(world, LATER, at=NEXT)
    publish(world, LATER)
    assert strict(world, rows, left) == []
    assert world.ids() == sorted(row["id"] for row in rows)
    hours_pass(world, 100)
    deleted(world)
    assert copied not in keys(world)
    assert run_doctor(world.context, deep=True).is_clean

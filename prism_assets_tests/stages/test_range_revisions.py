"""Merged objects rewritten within the same bounds: no two writers use one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets import failpoints
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.stages.seen_columns import HUE, NOON, SIZE, a_switched_day, events, look, publish
from prism_assets_tests.world import World

RENAMED, LATER = "2026-03-02T10:00", "2026-03-02T11:00"
MORE = "{name: more, type: bigint}"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


@pytest.fixture
def rows(world: World) -> list[dict[str, Any]]:
    """Rows of a merged and switched day with a column renamed since."""
    found = a_switched_day(world)
    world.apply(events(HUE, SIZE), now=RENAMED)
    return found


def rebuild(world: World) -> Sequence[str]:
    return run_rebuild(world.context, "log.events", day=utc(NOON).date(), now=utc(RENAMED)).errors


def die_in_rebuild(world: World, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
    with suppress(failpoints.InjectedFault):
        rebuild(world)
    monkeypatch.setattr(failpoints, "_POINTS", {})


def test_what_a_dead_rebuild_left_takes_no_part_in_a_later_rewriting(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    die_in_rebuild(world, monkeypatch, "rebuild.before_commit")
    (left, *_) = [key for key in keys(world, "/merged/") if key.endswith("-r2.parquet")]
    world.apply(events(HUE, SIZE, MORE), now=RENAMED)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET start_time = '2026-01-01'")
    hours_pass(world, 100)
    stores = type(world.context.stores)
    real = stores.delete

    def merge_before_it_deletes(self: Any, bucket: str, chosen: Any) -> Any:
        monkeypatch.setattr(stores, "delete", real)
        world.merge(LATER)
        return real(self, bucket, chosen)

    monkeypatch.setattr(stores, "delete", merge_before_it_deletes)
    gc(world)
    publish(world, LATER)
    assert left not in keys(world)
    assert run_doctor(world.context, deep=True).findings == ()
    look(world, [row | {"more": None} for row in rows], "color", "size", "more", color="hue")


def test_a_number_that_a_restore_lost_is_not_given_again_while_its_object_is_collected(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    die_in_rebuild(world, monkeypatch, "rebuild.before_commit")
    assert [key for key in keys(world, "/merged/") if key.endswith("-r2.parquet")]
    with world.context.database.begin() as connection:
        for statement in (
            "DELETE FROM prism_rebuilt_objects",
            "DELETE FROM prism_staged_files",
            "DELETE FROM prism_rewrites WHERE prism_rewrite_id > 1",
            "SELECT setval('prism_rewrites_prism_rewrite_id_seq', 1)",
        ):
            connection.exec_driver_sql(statement)
    hours_pass(world, 100)
    stores = type(world.context.stores)
    real = stores.delete

    def merge_before_it_deletes(self: Any, bucket: str, chosen: Any) -> Any:
        monkeypatch.setattr(stores, "delete", real)
        assert world.merge(LATER).merged
        return real(self, bucket, chosen)

    monkeypatch.setattr(stores, "delete", merge_before_it_deletes)
    gc(world)
    publish(world, LATER)
    assert run_doctor(world.context, deep=True).findings == ()
    look(world, rows, "color", "size", color="hue")


def test_a_rebuild_goes_on_behind_a_rewriting_under_a_later_number(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply(events(HUE, SIZE, "{name: more, type: bigint, source: size}"), now=RENAMED)
    die_in_rebuild(world, monkeypatch, "rebuild.after_ready")
    world.merge(RENAMED)
    assert rebuild(world) == ()
    publish(world, LATER)
    assert run_doctor(world.context, deep=True).findings == ()
    look(world, [row | {"more": row["size"]} for row in rows], "color", "size", "more", color="hue")


def test_a_rewriting_that_an_erasure_overtakes_leaves_nothing_that_stays(
    world: World, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = type(world.context.engine)
    real = engine.run

    def erase_before_it_merges(self: Any, tasks: Any, definitions: Any) -> Any:
        monkeypatch.setattr(engine, "run", real)
        assert run_erase(world.context, "log.events", "hue = 'red'", rows=2).errors == ()
        return real(self, tasks, definitions)

    monkeypatch.setattr(engine, "run", erase_before_it_merges)
    world.merge(RENAMED)
    world.merge(LATER)
    publish(world, LATER)
    later = datetime.now(timezone.utc) + timedelta(days=10)
    report = continue_erasures(world.context, now=later, forced=True)
    assert [item.state for item in report.erasures] == ["proved"]
    look(world, [row for row in rows if row["color"] != "red"], "color", "size", color="hue")

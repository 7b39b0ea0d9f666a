"""Rewrites of all kinds against each other: one commits after another has read its inputs and before it commits.

In either order every row exists once in the end, as made by all of them together, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.engine.base import Engine
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.rewrites import replacements, rewrites
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.iceberg.adopt import run_adopt
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.rewrite import commit
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.engines import another_worker
from prism_assets_tests.stages.seen_columns import MERGE, NIGHT, NOON, each_once, publish
from prism_assets_tests.stages.widened import definition
from prism_assets_tests.world import World

NAME = "log.events"
LATE, CHANGED, RACE, REST = "2026-03-02T01:00", "2026-03-02T02:00", "2026-03-02T03:00", "2026-03-02T04:00"
BEFORE = a_table(columns=["{name: color, type: string, length: 20}", "{name: size, type: bigint}"], merge=MERGE)
AFTER = a_table(
    columns=[
        "{name: hue, type: string, length: 20, was: color}",
        "{name: size, type: bigint}",
        "{name: more, type: bigint, source: size}",
    ],
    merge=MERGE,
    iceberg="true",
)
Kind = Callable[[World], object]


def merge(world: World) -> object:
    return world.merge(RACE, everything=True)


def adopt(world: World) -> object:
    """One at a time: the second of two is refused."""
    with suppress(LeaseLost):
        return run_adopt(world.context, NAME, since=None)
    return None


def erase(world: World) -> object:
    """Of one row of every object."""
    rows = count(world, "SELECT count(*) FROM prism_small_objects")
    return run_erase(world.context, NAME, "size = 0", rows=rows)


def rebuild(world: World) -> object:
    return run_rebuild(world.context, NAME, day=utc(NOON).date(), now=utc(RACE))


def repair(world: World) -> object:
    """Of all small objects on record, which are lost just before."""
    world.context.stores.delete("lake", [item.key for item in recorded_objects(world)])
    return run_repair(world.context)


def recorded_objects(world: World) -> list[SmallObject]:
    (table,) = world.context.choose_tables([NAME])
    with world.context.database.begin() as connection:
        (day,) = partitions.load_table_partitions(connection, table.table_id)
        return small_objects.load_above(connection, world.context.lake.keys(table), day.partition_id, 0)


def widen(world: World, hour: int = 3) -> object:
    """Copies the objects of all days, and flips to the copies once nobody merges."""
    for minute in range(5):
        now = f"2026-03-02T{hour:02}:{minute:02}"
        report = world.merge(now, everything=True)
        world.catalog(now)
    return report


# A day with an unmerged object has a merge and a repair; a day without one has the renaming of its column.
KINDS: Mapping[str, Kind] = {
    "merge": merge,
    "rename": merge,
    "adopt": adopt,
    "erase": erase,
    "rebuild": rebuild,
    "repair": repair,
    "widen": widen,
}
PAIRS = [
    (first, second)
    for first, second in product(KINDS, repeat=2)
    # One worker merges or repairs a day at a time, and a renaming replaces no small object.
    if {first, second} not in ({"merge", "rename"}, {"repair", "rename"}, {"repair"})
]


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def arrive(world: World, now: str) -> list[dict[str, Any]]:
    rows = [row | {"color": "red", "size": number} for number, row in enumerate(some_rows(4, utc(NOON)))]
    world.drop(rows)
    world.stream(now)
    return rows


def a_day(world: World, *, is_merged: bool, is_widened: bool) -> list[dict[str, Any]]:
    """Rows of a switched day of older objects. The table has other names, columns and timestamps since."""
    before = BEFORE.replace("size, type: bigint", "size, type: integer") if is_widened else BEFORE
    world.apply(before + "timestamps: milliseconds\n")
    rows = [*arrive(world, NOON), *arrive(world, NOON)]
    world.catalog(NIGHT)
    world.merge(NIGHT, everything=True)
    world.catalog(NIGHT)
    if not is_merged:
        rows += arrive(world, LATE)
    assert world.apply(AFTER, now=CHANGED).problems == ()
    world.catalog(CHANGED)
    return rows


@dataclass
class LateEngine:
    """Runs and commits another rewrite between the work of the first job and its answers."""

    inner: Engine
    meanwhile: Callable[[], object]
    is_done: bool = False

    slots = 1

    def probe(self) -> None:
        self.inner.probe()

    def run(self, tasks: Any, definitions: Any) -> Iterator[Any]:
        results = list(self.inner.run(tasks, definitions))
        if not self.is_done:
            self.is_done = True
            self.meanwhile()
        yield from results


def play(world: World, first: str, second: str) -> None:
    """Commits a rewrite inside another one, comes to rest, and checks the view of readers."""
    kinds = {first, second}
    rows = a_day(world, is_merged={"merge", "repair"}.isdisjoint(kinds), is_widened="widen" in kinds)
    bodies = {item.key: world.context.stores.get("lake", item.key) for item in recorded_objects(world)}

    def meanwhile() -> None:
        if first == "repair":  # others read the objects that it takes for lost
            for key, body in bodies.items():
                world.context.stores.put("lake", key, body)
        KINDS[second](world)

    engine = LateEngine(world.context.engine, meanwhile)
    KINDS[first](another_worker(world, engine))
    assert engine.is_done
    come_to_rest(world, kinds)
    wanted = {row["id"]: (row["color"], row["size"]) for row in rows if "erase" not in kinds or row["size"]}
    assert each_once(world.query(f"SELECT id, color, size FROM {NAME}")) == wanted
    if "rebuild" in kinds and "erase" not in kinds:  # objects of which rows were erased are not rebuilt
        assert world.query(f"SELECT DISTINCT more = size FROM {NAME}") == [(True,)]
    assert sorted(world.iceberg_ids()) == sorted(wanted)
    assert run_doctor(world.context, deep=True).findings == ()
    assert count(world, "SELECT count(*) FROM prism_rewrites WHERE state = 'running'") == 0
    assert count(world, "SELECT count(*) FROM prism_staged_files") == 0


def come_to_rest(world: World, kinds: set[str]) -> None:
    """Repeats the rewrites until none has work left. A rewrite that was too late succeeds at its second try."""
    for turn in range(2):
        if "repair" in kinds:
            assert run_repair(world.context).errors == ()
        world.catalog(REST)
        for _ in range(2):
            assert merge(world).errors == () or not turn  # type: ignore[attr-defined]
        if "rebuild" in kinds and "erase" not in kinds:
            assert rebuild(world).errors == ()  # type: ignore[attr-defined]
        assert run_adopt(world.context, NAME, since=None).errors == ()
        publish(world, REST)
        continue_erasures(world.context, now=datetime.now(timezone.utc) + timedelta(days=10), forced=True)
    if "widen" in kinds:
        assert widen(world, 5).errors == ()  # type: ignore[attr-defined]
        assert [column.name for column in definition(world).columns if column.widening] == []


def count(world: World, statement: str) -> int:
    with world.context.database.begin() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_rewrite_that_another_one_overtakes_loses_doubles_and_brings_back_no_row(
    world: World, first: str, second: str, long: bool
) -> None:
    if not long and PAIRS.index((first, second)) % 2:
        pytest.skip("every second pair: with --long")
    play(world, first, second)


WHATEVER_STANDS = (
    """UPDATE prism_staged_files f SET replaces = s.rewrite_id FROM prism_small_objects s
    WHERE f.prism_rewrite_id = %(rewrite)s AND s.prism_staging_object_id = f.prism_staging_object_id
        AND s.prism_partition_id = f.prism_partition_id""",
    """UPDATE prism_staged_files f SET replaces = r.rewrite_id FROM prism_merge_ranges r
    WHERE f.prism_rewrite_id = %(rewrite)s AND r.prism_partition_id = f.prism_partition_id
        AND r.lower_bound = f.lower_bound""",
)


def let_stale_rewrites_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the checks of the current object in a place, and of the rows of the new one."""
    real = replacements.replace

    def replace_whatever_stands(connection: Any, rewrite_id: int) -> int:
        for statement in WHATEVER_STANDS:
            connection.exec_driver_sql(statement, {"rewrite": rewrite_id})
        return real(connection, rewrite_id)

    monkeypatch.setattr(commit, "_still_stands", lambda read, standing: True)
    monkeypatch.setattr(commit, "_certified", lambda item, standing, certificate: item)
    monkeypatch.setattr(rewrites, "check_plan", lambda connection, rewrite: None)
    monkeypatch.setattr(replacements, "replace", replace_whatever_stands)


@pytest.mark.parametrize(
    ("first", "second"), [("merge", "erase"), ("rename", "erase"), ("adopt", "erase"), ("repair", "erase")]
)
def test_without_the_rules_rows_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    let_stale_rewrites_commit(monkeypatch)
    with pytest.raises(AssertionError):
        play(world, first, second)


def test_without_the_rules_a_rebuild_is_undone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stale_rewrites_commit(monkeypatch)
    with pytest.raises(AssertionError):
        play(world, "rename", "rebuild")

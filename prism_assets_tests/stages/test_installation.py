"""One database, one lake: a process with another pair is refused before its first work, and readers see no change."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.errors import MissingBucket, WrongLake
from prism_assets.objectstore.lake import Lake
from prism_assets.platform import build_context
from prism_assets.stages.apply.run import apply_sound, run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.installation import take_lake
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.run import run_stream
from prism_assets.stages.stream.unread import give_up_object, retry_failed, retry_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
MARKER = "prism-installation.json"
WORK: dict[str, Callable[[World], Any]] = {
    "discover": lambda world: run_discover(world.context, now=utc(NOON)),
    "stream": lambda world: run_stream(world.context, now=utc(NOON)),
    "stream --retry-failed": lambda world: retry_failed(world.context),
    "stream --retry": lambda world: retry_object(world.context, "s3://staging/events/2026/000002.gz"),
    "stream --give-up": lambda world: give_up_object(world.context, "s3://staging/events/2026/000002.gz"),
    "merge": lambda world: run_merge(world.context, now=utc(NOON), ignore_schedule=True),
    "catalog": lambda world: run_catalog(world.context, now=utc(NOON)),
    "repair": lambda world: run_repair(world.context),
    "table apply": lambda world: run_apply(world.context, world.settings.tables_dir, utc(NOON)),
    "table apply --dry-run": lambda world: run_apply(world.context, world.settings.tables_dir, utc(NOON), dry_run=True),
    "Dagster's apply": lambda world: apply_sound(world.context, world.settings.tables_dir, utc(NOON)),
}
APPLY = [name for name in WORK if "apply" in name]


@pytest.fixture
def full(world: World) -> World:
    """A world with readable rows and work for every stage."""
    world.apply(a_table())
    world.drop(some_rows(2, utc(NOON)))
    world.stream(NOON)
    world.catalog(NOON)
    world.drop(some_rows(2, utc(NOON)))
    world.discover(NOON)
    world.drop(some_rows(2, utc(NOON)))
    return world


def with_settings(world: World, **settings: Any) -> World:
    """Returns another process with other settings. On the same database it shares connections with the first."""
    changed = world.settings.model_copy(update=settings)
    context = build_context(changed)
    if "database_url" not in settings:
        context = dataclasses.replace(context, database=world.context.database)
    return dataclasses.replace(world, settings=changed, context=context)


def bucket(world: World, name: str = "lake") -> Path:
    return world.root / "buckets" / name


def is_refused(world: World, other: World, *works: str) -> str:
    """Checks that each command, as the first of a process, fails with the same sentence and changes nothing visible."""
    before, ids, told = _everything(world), world.ids(), set[str]()
    for work in works:
        with pytest.raises(WrongLake) as raised:
            WORK[work](with_settings(other))
        assert _everything(world) == before, work
        told.add(str(raised.value))
    assert world.ids() == ids != []
    (sentence,) = told
    assert len(sentence.splitlines()) == 1
    return sentence


def test_a_worker_with_another_prefix_is_refused(full: World) -> None:
    told = is_refused(full, with_settings(full, prefix="other/"), *WORK)
    assert "belongs to the lake s3://lake/, and the settings name s3://lake/other/: correct PRISM_BUCKET" in told


def test_a_worker_with_another_bucket_is_refused(full: World) -> None:
    bucket(full, "pond").mkdir()
    told = is_refused(full, with_settings(full, bucket="pond"), *WORK)
    assert "belongs to the lake s3://lake/, and the settings name s3://pond/" in told
    assert list(bucket(full, "pond").iterdir()) == []


def test_a_worker_at_another_endpoint_is_refused(full: World, tmp_path: Path) -> None:
    """The other address has a bucket of the same name without our marker."""
    for name in ("lake", "staging"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
    told = is_refused(full, with_settings(full, local_root=str(tmp_path / "elsewhere")), *WORK)
    assert f"has no marker s3://lake/{MARKER}, so it may be another one (at {tmp_path}/elsewhere)" in told
    assert list((tmp_path / "elsewhere" / "lake").iterdir()) == []


def test_a_worker_on_a_lake_without_its_marker_is_refused(full: World) -> None:
    full.context.stores.delete("lake", [MARKER])
    told = is_refused(full, with_settings(full), *WORK)
    assert "if the marker was deleted, run `prism table apply --restore-marker`" in told


def test_a_second_database_on_the_lake_is_refused(full: World, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    other = with_settings(full, database_url=type(full.settings.database_url)(url))
    try:
        told = is_refused(full, other, *APPLY)
        assert f"the lake s3://lake/ belongs to another database: s3://lake/{MARKER} has its id" in told
        assert "delete this object and run `prism table apply --restore-marker`" in told
    finally:
        other.close()
        postgres.drop_database(url)


def test_a_database_that_was_never_applied_to_a_lake_works_on_none(full: World, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    other = with_settings(full, database_url=type(full.settings.database_url)(url))
    try:
        is_refused(full, other, *(name for name in WORK if name not in APPLY))
    finally:
        other.close()
        postgres.drop_database(url)


def test_a_marker_that_was_deleted_is_put_back_on_purpose(full: World) -> None:
    before = full.context.stores.get("lake", MARKER)
    full.context.stores.delete("lake", [MARKER])
    again = with_settings(full)
    plan = run_apply(again.context, full.settings.tables_dir, utc(NOON), restore_marker=True)
    assert plan.lines == (f"put back the marker s3://lake/{MARKER}",)
    assert full.context.stores.get("lake", MARKER) == before
    assert again.stream(NOON).rows_out == 4


def test_a_dry_run_says_that_the_marker_would_be_put_back(full: World) -> None:
    full.context.stores.delete("lake", [MARKER])
    before = _everything(full)
    plan = run_apply(
        with_settings(full).context, full.settings.tables_dir, utc(NOON), dry_run=True, restore_marker=True
    )
    assert plan.lines == (f"put back the marker s3://lake/{MARKER}",)
    assert _everything(full) == before


def test_the_marker_of_another_database_is_not_replaced_even_on_purpose(full: World) -> None:
    body = json.dumps({"installation_id": "another"}).encode()
    full.context.stores.put("lake", MARKER, body)
    with pytest.raises(WrongLake, match="belongs to another database"):
        run_apply(with_settings(full).context, full.settings.tables_dir, utc(NOON), restore_marker=True)
    assert full.context.stores.get("lake", MARKER) == body


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"\xff", b'{"installation_id"'])
def test_a_marker_that_somebody_wrote_over_is_told(full: World, body: bytes) -> None:
    full.context.stores.put("lake", MARKER, body)
    assert f"s3://lake/{MARKER} is not as prism wrote it" in is_refused(full, with_settings(full), "stream")


def test_the_store_may_move_to_another_address_with_all_its_objects(world: World, tmp_path: Path) -> None:
    world.apply(a_table())
    shutil.copytree(world.root / "buckets", tmp_path / "moved" / "buckets")
    moved = with_settings(world, local_root=str(tmp_path / "moved" / "buckets"))
    moved.root = tmp_path / "moved"
    moved.drop(some_rows(2, utc(NOON)))
    assert moved.stream(NOON).rows_out == 2
    assert moved.apply().lines == ()
    with moved.context.database.begin() as connection:
        row = connection.exec_driver_sql("SELECT endpoint FROM prism_installation").scalar_one()
    assert row == str(tmp_path / "moved" / "buckets")


def test_a_process_looks_once(full: World) -> None:
    """Only the next process sees a later change."""
    full.context.stores.delete("lake", [MARKER])
    assert full.stream(NOON).rows_out == 4
    with pytest.raises(WrongLake):
        with_settings(full).stream(NOON)


def test_a_dry_run_on_an_empty_database_says_that_it_would_take_the_lake(
    world: World, postgres: PostgresServer
) -> None:
    url = postgres.create_empty_database()
    new = with_settings(world, database_url=type(world.settings.database_url)(url))
    new.settings.tables_dir.mkdir()
    (new.settings.tables_dir / "events.yaml").write_text(a_table())
    plan = run_apply(new.context, new.settings.tables_dir, utc(NOON), dry_run=True)
    assert plan.lines[0] == "take s3://lake/ as the lake of this database"
    new.close()
    postgres.drop_database(url)


def test_a_missing_bucket_is_told_before_a_database_is_given_to_it(world: World) -> None:
    bucket(world).rmdir()
    with pytest.raises(MissingBucket):
        world.apply(a_table())
    bucket(world).mkdir()
    elsewhere = with_settings(world, prefix="other/")
    assert len(elsewhere.apply(a_table()).tables) == 1


def test_of_two_databases_that_take_one_lake_at_once_one_gets_it(world: World, postgres: PostgresServer) -> None:
    """And the other may still take another."""
    url = postgres.create_database()
    other = with_settings(world, database_url=type(world.settings.database_url)(url))

    def takes(each: World) -> bool:
        try:
            take_lake(each.context.database, each.context.lake, each.context.stores, utc(NOON))
        except WrongLake:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(takes, (world, other))) == [False, True]
    loser = next(each for each in (world, other) if not takes(each))
    there = dataclasses.replace(loser.context, lake=Lake("lake", "other/", loser.context.lake.store))
    assert takes(dataclasses.replace(loser, context=there))
    other.close()
    postgres.drop_database(url)


def test_many_applies_at_once_agree_on_one_marker(world: World) -> None:
    (world.settings.tables_dir).mkdir()
    (world.settings.tables_dir / "events.yaml").write_text(a_table())
    worlds = [with_settings(world) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: each.apply(), worlds))
    assert {each.context.installation.installation_id for each in worlds} == {
        json.loads(world.context.stores.get("lake", MARKER))["installation_id"]
    }

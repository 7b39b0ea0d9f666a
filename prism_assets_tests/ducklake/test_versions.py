"""The numbers by which open sessions notice changes: none decreases, and none repeats."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import sqlalchemy

from prism_assets.platform import build_context
from prism_assets.stages.drop.run import run_drop
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.stages.catalogs import calls_are_over
from prism_assets_tests.stages.test_drop import LATER, NOON, all_at_once, go_on, lease_ends, retire
from prism_assets_tests.world import World
from prism_local.readers.sessions import StatementFailed

Numbers = tuple[int, int, int]


def numbers(lake: LakeOfTest) -> Numbers:
    (row,) = lake.sql("SELECT schema_version, next_file_id, next_catalog_id FROM prism_lake.ducklake_snapshot")
    return tuple(row)


def drop_whole(world: World, name: str) -> None:
    """Drops a table of the schema `log` until no record remains, without asking readers."""
    retire(world, name)
    at_once = all_at_once(world)
    (status,) = run_drop(at_once.context, f"log.{name}", confirm=f"log.{name}", now=LATER).drops
    calls_are_over(world)
    while not status.is_over:
        status = go_on(at_once)
        lease_ends(world)


def test_a_session_that_slept_through_a_drop_finds_no_such_table(world: World, lake: LakeOfTest) -> None:
    for name in ("aaa", "bbb", "ccc"):
        world.apply(a_table(f"log.{name}"))
        world.drop(some_rows(2, utc(NOON)), stream=name)
    world.stream(NOON)
    world.catalog(NOON)
    assert lake.query("SELECT count(*) FROM lake.log.bbb") == [(2,)]
    before = numbers(lake)
    drop_whole(world, "bbb")
    assert all(now >= then for now, then in zip(numbers(lake), before, strict=True))
    with pytest.raises(StatementFailed, match="does not exist"):
        lake.query("SELECT count(*) FROM lake.log.bbb")
    world.apply(a_table("log.ddd"))
    world.drop(some_rows(1, utc(NOON)), stream="ddd")
    world.stream(NOON)
    counts = [lake.query(f"SELECT count(*) FROM lake.log.{name}") for name in ("aaa", "ccc", "ddd")]
    assert counts == [[(2,)], [(2,)], [(1,)]]


def test_a_session_reads_the_other_tables_of_a_schema_whose_first_one_was_dropped(
    world: World, lake: LakeOfTest
) -> None:
    """The id of the schema goes with this table."""
    for name in ("aaa", "bbb"):
        world.apply(a_table(f"log.{name}"))
        world.drop(some_rows(2, utc(NOON)), stream=name)
    world.stream(NOON)
    assert lake.query("SELECT count(*) FROM lake.log.bbb") == [(2,)]
    before = numbers(lake)
    drop_whole(world, "aaa")
    assert numbers(lake) > before
    assert lake.query("SELECT count(*) FROM lake.log.bbb") == [(2,)]


def test_no_number_goes_down_through_changes_renames_hidden_tables_and_drops(world: World, lake: LakeOfTest) -> None:
    seen = [numbers(lake)]

    def after(act: Callable[[], object]) -> None:
        act()
        assert all(now >= then for now, then in zip(numbers(lake), seen[-1], strict=True))
        seen.append(numbers(lake))

    after(lambda: world.apply(a_table("log.aaa"), a_table("log.bbb")))
    after(lambda: world.drop(some_rows(2, utc(NOON)), stream="bbb"))
    after(lambda: world.stream(NOON))
    after(lambda: world.catalog(NOON))
    after(lambda: world.apply(a_table("log.bbb", columns=["{name: region, type: string, length: 20}"])))
    after(lambda: world.apply(a_table("log.bbb") + "ducklake: false\n"))
    after(lambda: world.apply(a_table("log.bbb")))
    (world.settings.tables_dir / "bbb.yaml").unlink()
    renamed = a_table("log.ccc").replace("staging/ccc/", "staging/bbb/").replace("name: ccc,", "name: bbb,")
    after(lambda: world.apply(renamed + "was: log.bbb\ngrace_days: 0\n"))
    after(lambda: world.catalog("2026-03-01T13:00"))
    after(lambda: drop_whole(world, "ccc"))
    after(lambda: drop_whole(world, "aaa"))
    assert lake.sql("SELECT count(*) FROM prism_lake.ducklake_column_mapping") == [(0,)]
    after(lambda: world.apply(a_table("log.aaa")))


def test_a_restored_database_gives_no_number_that_its_lost_future_gave(
    world: World, lake: LakeOfTest, postgres: PostgresServer
) -> None:
    """A session from the lost future would confuse its table with a new one."""
    world.apply(a_table("log.aaa"))
    world.context.database.dispose()
    backup = postgres.copy_database(lake.database, f"{lake.database}_backup")
    try:
        world.apply(a_table("log.lost"))
        lost = numbers(lake)
        settings = world.settings.model_copy(update={"database_url": type(world.settings.database_url)(backup)})
        restored = dataclasses.replace(world, settings=settings, context=build_context(settings))
        (restored.settings.tables_dir / "lost.yaml").unlink()
        restored.apply(a_table("log.other"))
        engine = sqlalchemy.create_engine(backup, poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection:
            query = "SELECT schema_version, next_file_id, next_catalog_id FROM prism_lake.ducklake_snapshot"
            now = tuple(connection.exec_driver_sql(query).one())
            newest = connection.exec_driver_sql("SELECT max(mapping_id) FROM prism_lake.ducklake_column_mapping")
            assert newest.scalar_one() >= lost[1]
        assert now[:2] > lost[:2]
        restored.close()
    finally:
        postgres.drop_database(backup)

"""Publishing: unreadable content is never published, and one failing table delays no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from sqlalchemy import text

from prism_assets.metadata.days import catalog_state
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.findings.registry import find_work
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.catalogs import LosingCatalog, PausingCatalog, through, with_catalog
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"


def lake_keys(world: World, part: str) -> list[str]:
    return [item.key for item in world.context.stores.list("lake", "") if part in item.key]


def record(world: World) -> tuple[Any, ...]:
    with world.context.database.begin() as connection:
        statement = "SELECT current_version, published_object_id FROM prism_partition_states"
        return tuple(connection.exec_driver_sql(statement).one())


def late_rows(world: World) -> None:
    """An object for the closed day: a new manifest is due."""
    world.drop(some_rows(1, utc(NOON)))
    world.stream(AFTER)


def damage(world: World, part: str, body: bytes | None) -> str:
    (key, *_) = lake_keys(world, part)
    if body is None:
        world.context.stores.delete("lake", [key])
    else:
        world.context.stores.put("lake", key, body)
    return key


@pytest.mark.parametrize(("body", "words"), [(None, "is missing, not"), (b"short", "has 5 bytes, not")])
def test_a_manifest_with_a_wrong_object_is_not_published(world: World, body: bytes | None, words: str) -> None:
    a_closed_day(world)
    before, known, manifests = world.partition(DAY).location, record(world), lake_keys(world, "manifest-")
    late_rows(world)
    key = damage(world, "/live/", body)
    (error,) = run_catalog(world.context, now=utc(AFTER)).errors
    assert f"s3://lake/{key} {words}" in error
    assert "log.events is not published" in error
    assert (record(world), lake_keys(world, "manifest-")) == (known, manifests)
    assert (
        world.reader()._glue.get_partition(
            DatabaseName=f"{world.settings.glue_database_prefix}log", TableName="events", PartitionValues=[DAY]
        )["Partition"]["StorageDescriptor"]["Location"]
        == before
    )


def test_a_merged_object_that_is_missing_holds_up_the_switch_of_readers(world: World) -> None:
    ids = a_closed_day(world)
    world.merge(AFTER)
    damage(world, "/part-", None)
    assert len(run_catalog(world.context, now=utc(AFTER)).errors) == 1
    assert world.ids() == ids


def test_a_table_that_cannot_be_published_does_not_stop_the_others(world: World) -> None:
    a_closed_day(world, "log.a")
    a_closed_day(world, "log.b")
    world.merge(AFTER)
    damage(world, "log.a/merged/dt=2026-03-01/part-", None)
    report = run_catalog(world.context, now=utc(AFTER))
    assert [bool(table.problems) for table in report.tables] == [True, False]
    assert report.tables[1].switched == (date(2026, 3, 1),)


def test_a_lost_answer_is_settled_by_the_next_run(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    known = record(world)
    object.__setattr__(world.context, "publisher", through(world, LosingCatalog(world.glue)))
    assert run_catalog(world.context, now=utc(AFTER)).errors == ("log.events: the answer was lost",)
    assert record(world) == known
    world.catalog(AFTER)
    assert record(world) == (0, 3)
    assert len(world.ids()) == 11


def test_a_partition_with_a_damaged_object_does_not_keep_others_from_their_readers(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    live = next(item.key for item in world.context.stores.list("lake", "") if "/live/" in item.key)
    world.context.stores.delete("lake", [live])
    world.drop(some_rows(4, utc("2026-03-02T00:05")))
    world.stream("2026-03-02T00:06")
    (report,) = run_catalog(world.context, now=utc(AFTER)).tables
    (problem,) = report.problems
    assert (problem.date, problem.transient) == (date(2026, 3, 1), False)
    assert "is missing" in problem.reason
    assert world.query("SELECT count(*) FROM log.events WHERE dt = DATE '2026-03-02'") == [(4,)]


def test_a_table_made_anew_by_a_run_that_died_is_filled_by_the_next(world: World) -> None:
    a_closed_day(world)
    ids = world.ids()
    client = world.glue._client
    client.delete_table(DatabaseName=f"{world.settings.glue_database_prefix}log", Name="events")
    quick = world.glue
    object.__setattr__(world.context, "publisher", through(world, LosingCatalog(quick)))
    assert run_catalog(world.context, now=utc(AFTER)).errors
    object.__setattr__(world.context, "publisher", through(world, quick))
    world.catalog(AFTER)
    assert world.ids() == ids


def test_a_column_that_is_added_reaches_the_partitions_that_are_there(world: World) -> None:
    a_closed_day(world)
    world.apply(a_table(columns=["{name: color, type: string}"]))
    world.catalog(AFTER)
    client = world.glue._client
    found = client.get_partitions(DatabaseName=f"{world.settings.glue_database_prefix}log", TableName="events")
    names = [column["Name"] for column in found["Partitions"][0]["StorageDescriptor"]["Columns"]]
    assert names == ["time", "id", "color"]


def test_the_preview_names_the_steps_of_the_run_that_follows(world: World) -> None:
    world.apply(a_table())
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)

    def steps(now: str) -> list[str]:
        return [step.step for step in preview(world.context, now=utc(now))]

    assert steps(NOON) == ["define it in the catalog", "publish for the first time"]
    world.catalog(NOON)
    assert steps(NOON) == []
    assert steps(AFTER) == ["mark for closing, and close as soon as no earlier staging object is unfinished"]
    world.catalog(AFTER)
    assert steps(AFTER) == ["not switch: it was never merged"]
    world.merge(AFTER)
    assert steps(AFTER) == ["switch readers to the merged objects"]
    world.catalog(AFTER)
    assert steps(AFTER) == []


def test_catalog_work_is_found_when_and_only_when_a_run_would_change_something(world: World) -> None:
    world.apply(a_table())

    def due(now: str) -> list[str]:
        return [work.kind for work in find_work(world.context, "catalog", now=utc(now))]

    assert due(NOON) == ["define"]
    assert world.catalog(NOON).changed
    assert due(NOON) == []
    world.drop(some_rows(1, utc(NOON)))
    world.stream(NOON)
    for now, step in ((NOON, "publish"), (AFTER, "close"), (AFTER, "switch")):
        assert due(now) == [step]
        assert world.catalog(now).changed
        if step == "close":
            assert due(now) == []
            world.merge(now)
    assert due(AFTER) == []
    assert not world.catalog(AFTER).changed


def defined_version(world: World) -> int:
    """Returns the definition version that the catalog shows, as recorded in PostgreSQL."""
    with world.context.database.begin() as connection:
        return int(connection.execute(text("SELECT defined_version FROM prism_table_publications")).scalar_one())


def undefined(world: World) -> bool:
    with world.context.database.begin() as connection:
        return bool(catalog_state.undefined_tables(connection))


def test_a_definition_counts_as_shown_once_the_catalog_has_it(world: World) -> None:
    world.apply(a_table())
    assert undefined(world)
    away = GlueCatalog("http://127.0.0.1:1", "us-east-1", fail_fast=True)
    assert run_catalog(replace(world.context, publisher=through(world, away)), now=utc(NOON)).errors
    assert undefined(world)
    world.catalog(NOON)
    assert not undefined(world)
    assert defined_version(world) == 1
    world.apply(a_table(columns=["{name: added, type: string}"]))
    assert undefined(world)
    world.catalog(NOON)
    assert not undefined(world)
    assert defined_version(world) == 2


def test_a_definition_that_the_catalog_has_already_counts_as_shown(world: World) -> None:
    world.apply(a_table())
    world.catalog(NOON)
    with world.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_table_publications SET defined_version = 0"))
    assert undefined(world)
    assert not world.catalog(NOON).changed
    assert not undefined(world)


def test_a_definition_that_came_into_force_meanwhile_is_still_to_come(world: World) -> None:
    world.apply(a_table())
    wider = a_table(columns=["{name: added, type: string}"])
    overtaken = PausingCatalog(world.glue, before_define=lambda table: world.apply(wider))
    assert run_catalog(with_catalog(world, overtaken).context, now=utc(NOON)).errors == ()
    assert defined_version(world) == 1
    assert undefined(world)
    world.catalog(NOON)
    assert not undefined(world)


def test_a_table_whose_record_of_the_catalog_is_lost_is_shown_anew_and_stops_no_other(world: World) -> None:
    world.apply(a_table(), a_table("log.others"))
    for stream in ("events", "others"):
        world.drop(some_rows(3, utc(NOON)), stream=stream)
    world.stream(NOON)
    world.catalog(NOON)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM prism_table_publications USING prism_tables t "
            "WHERE t.prism_table_id = prism_table_publications.prism_table_id AND table_name = 'events'"
        )
    assert preview(world.context, now=utc(AFTER)) != []
    report = world.catalog(AFTER)
    assert [table.table for table in report.tables] == ["log.events", "log.others"]
    assert len(world.ids()) == len(world.ids("log.others")) == 3
    assert not world.catalog(AFTER).changed

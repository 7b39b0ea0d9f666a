"""The reader: partitions by listing and by manifest, and its messages about missing objects."""

from __future__ import annotations

from datetime import date

import pytest

from prism_assets.domain.errors import CatalogUnavailable, InvariantBroken, StoreUnavailable, WrongUse
from prism_assets.reading.lake_reader import LakeReader
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"


@pytest.fixture
def events(world: World) -> World:
    """A table with two live objects of one day and one of the next."""
    world.apply(a_table())
    for start in (NOON, f"{DAY}T13:00", "2026-03-02T00:05"):
        world.drop(some_rows(2, utc(start)))
    world.stream(AFTER)
    world.catalog(NOON)
    return world


def put_beside(world: World, name: str) -> None:
    """Puts a foreign object into the live folder."""
    folder = world.partition(DAY).location.removeprefix("s3://lake/")
    world.context.stores.put("lake", f"{folder}{name}", b"not parquet")


def test_an_open_partition_is_read_by_listing(events: World) -> None:
    partition = events.partition(DAY)
    assert partition.location.endswith(f"/live/dt={DAY}/")
    assert len(partition.objects) == 2
    for item in partition.objects:
        assert events.context.stores.length("lake", item.url.removeprefix("s3://lake/")) == item.content_length
    assert partition.content_length == sum(item.content_length for item in partition.objects)


def test_a_closed_partition_is_read_by_its_manifest(events: World) -> None:
    listed = events.partition(DAY).objects
    events.catalog(AFTER)
    partition = events.partition(DAY)
    assert partition.location.endswith(".json")
    assert partition.objects == listed


def test_a_manifest_keeps_out_what_merely_lies_beside(events: World) -> None:
    events.catalog(AFTER)
    before = events.partition(DAY)
    key = before.objects[0].url.removeprefix("s3://lake/").replace("prism-", "prism-9")
    events.context.stores.put("lake", key, b"not parquet")
    assert events.partition(DAY) == before


@pytest.mark.parametrize("name", ["_SUCCESS", ".hidden", "#half", "_temporary", "prism-1.parquet~"])
def test_names_that_readers_pass_over_are_passed_over(events: World, name: str) -> None:
    put_beside(events, name)
    assert len(events.partition(DAY).objects) == 2
    assert len(events.ids()) == 6


def test_folders_below_a_partition_are_not_read(events: World) -> None:
    put_beside(events, "deeper/prism-1.parquet")
    assert len(events.partition(DAY).objects) == 2


def test_a_partition_whose_folder_is_not_there_is_empty(events: World) -> None:
    for item in events.partition(DAY).objects:
        events.context.stores.delete("lake", [item.url.removeprefix("s3://lake/")])
    assert events.partition(DAY).objects == ()


def test_the_partitions_of_a_table_come_by_date(events: World) -> None:
    table = events.reader().table("log.events")
    assert [partition.date for partition in table.partitions] == [date(2026, 3, 1), date(2026, 3, 2)]
    assert table.columns == (("time", "timestamp"), ("id", "bigint"))


def test_one_day_is_read_alone(events: World) -> None:
    table = events.reader().table("log.events", date(2026, 3, 2))
    assert [partition.date for partition in table.partitions] == [date(2026, 3, 2)]
    assert events.reader().table("log.events", date(2026, 3, 9)).partitions == ()


@pytest.mark.parametrize("name", ["log.nothing", "nothing.events", "log.events.more"])
def test_a_table_that_is_not_there_is_wrong_use(events: World, name: str) -> None:
    with pytest.raises(WrongUse, match=f"the catalog has no table {name}"):
        events.reader().table(name)


@pytest.mark.parametrize("name", ["events", "", "log.", ".events"])
def test_a_name_that_is_not_schema_and_table_is_wrong_use(events: World, name: str) -> None:
    with pytest.raises(WrongUse, match=r"schema\.table"):
        events.reader().table(name)


def test_a_manifest_that_is_gone_is_told(events: World) -> None:
    events.catalog(AFTER)
    location = events.partition(DAY).location
    events.context.stores.delete("lake", [location.removeprefix("s3://lake/")])
    with pytest.raises(StoreUnavailable, match="cannot be read: it does not exist; repeat"):
        events.partition(DAY)


def test_a_manifest_that_is_rubbish_is_told(events: World) -> None:
    events.catalog(AFTER)
    location = events.partition(DAY).location
    events.context.stores.put("lake", location.removeprefix("s3://lake/"), b"{")
    with pytest.raises(InvariantBroken, match="not a manifest"):
        events.partition(DAY)


def test_a_catalog_that_does_not_answer_is_told(events: World) -> None:
    settings = events.settings.model_copy(update={"glue_endpoint": "http://127.0.0.1:1"})
    with pytest.raises(CatalogUnavailable, match=r"Glue at http://127\.0\.0\.1:1 does not answer"):
        LakeReader(settings).table("log.events")

"""The same of every catalog: PostgreSQL, the double of Glue, and a REST server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from prism_assets.domain.errors import AccessDenied, CatalogUnavailable
from prism_assets.publishers.iceberg.catalogs import iceberg_catalog
from prism_assets.publishers.iceberg.file_io import STORES, StoresFileIO
from prism_assets.publishers.iceberg.publisher import IcebergPublisher
from prism_assets.settings import Settings
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.iceberg_rest import RestCatalogServer, served
from prism_assets_tests.world import World

TABLE = a_table(iceberg="{on_foreign: restore}")


@pytest.fixture(params=["sql", "glue", "rest"])
def platform(request: pytest.FixtureRequest, world: World) -> Iterator[World]:
    """A platform with one kind of catalog after the other."""
    if request.param == "rest":
        with served(RestCatalogServer(StoresFileIO({STORES: world.context.stores}))) as address:
            yield with_catalog(world, iceberg_catalog="rest", iceberg_rest_uri=address)
    else:
        yield with_catalog(world, iceberg_catalog=request.param)


def with_catalog(world: World, **changes: Any) -> World:
    """Returns the same world with another catalog for its Iceberg tables."""
    settings = world.settings.model_copy(update=changes)
    return replace(
        world, settings=settings, context=with_publisher(world, iceberg_catalog(settings, world.context.stores))
    )


def with_publisher(world: World, connect: Callable[[], Catalog]) -> Any:
    """Returns a context whose publisher connects by `connect`."""
    context = world.context
    prefix = world.settings.glue_database_prefix

    def made(mark: str) -> IcebergPublisher:
        return IcebergPublisher(connect, context.lake, context.stores, mark, prefix=prefix)

    return replace(context, make_iceberg=made)


def ids_in_head(world: World) -> list[int]:
    """All ids, as `prism query --iceberg` reads them."""
    return world.iceberg_ids()


def arrive(world: World, count: int, start: str) -> list[int]:
    """Streams rows. Returns their ids."""
    rows = some_rows(count, utc(start))
    world.drop(rows)
    world.stream("2026-03-01T23:00")
    return [row["id"] for row in rows]


def test_a_table_is_made_grows_and_is_replaced(platform: World) -> None:
    platform.apply(TABLE)
    ids = arrive(platform, 3, "2026-03-01T10:00")
    assert platform.iceberg("2026-03-01T10:06").tables[0].created
    ids += arrive(platform, 4, "2026-03-01T11:00")
    platform.iceberg("2026-03-01T11:06")
    platform.merge("2026-03-02T01:00", everything=True)
    platform.catalog("2026-03-02T00:10")
    platform.merge("2026-03-02T01:00", everything=True)
    platform.iceberg("2026-03-02T01:06")

    assert ids_in_head(platform) == ids
    assert not platform.iceberg("2026-03-02T01:07").changed


def test_a_column_is_added(platform: World) -> None:
    platform.apply(TABLE)
    arrive(platform, 3, "2026-03-01T10:00")
    platform.iceberg("2026-03-01T10:06")
    platform.apply(a_table(columns=["{name: city, type: string}"], iceberg="{on_foreign: restore}"))

    platform.iceberg("2026-03-01T10:07")

    table = platform.context.choose_tables(["log.events"])[0]
    loaded = platform.context.iceberg.load(table)
    assert loaded is not None
    assert [field.name for field in loaded.table.schema().fields] == ["time", "id", "city", "dt"]
    assert loaded.table.scan().to_arrow().column("city").null_count == 3


def test_a_commit_against_an_older_head_is_refused_and_planned_anew(platform: World) -> None:
    platform.apply(TABLE)
    ids = arrive(platform, 3, "2026-03-01T10:00")
    platform.iceberg("2026-03-01T10:06")
    ids += arrive(platform, 2, "2026-03-01T11:00")
    publisher = platform.context.iceberg
    original = publisher.catalog.commit_table
    calls: list[int] = []

    def after_another(table: Any, requirements: Any, updates: Any) -> Any:
        """The first time another commit of the same change lands in between."""
        calls.append(1)
        if len(calls) == 1:
            original(table, requirements, updates)
        return original(table, requirements, updates)

    publisher.catalog.commit_table = after_another  # type: ignore[method-assign]
    platform.iceberg("2026-03-01T11:06")

    assert ids_in_head(platform) == ids


def test_a_table_whose_file_names_no_iceberg_any_more_leaves_the_catalog(platform: World) -> None:
    platform.apply(TABLE)
    arrive(platform, 3, "2026-03-01T10:00")
    platform.iceberg("2026-03-01T10:06")
    platform.apply(a_table())

    assert platform.iceberg("2026-03-01T10:07").tables[0].dropped
    assert platform.iceberg("2026-03-01T10:08").tables == ()
    platform.apply(TABLE)
    assert platform.iceberg("2026-03-01T10:09").tables[0].created
    assert len(ids_in_head(platform)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"database_url": "postgresql+psycopg://prism:secret@127.0.0.1:1/none"},
        {"iceberg_catalog": "glue", "glue_endpoint": "http://127.0.0.1:1"},
        {"iceberg_catalog": "rest", "iceberg_rest_uri": "http://127.0.0.1:1"},
    ],
)
def test_a_catalog_that_is_away_is_told_and_holds_back_no_other(world: World, changes: dict[str, str]) -> None:
    settings = Settings(**{**world.settings.model_dump(), **changes})
    world.apply(TABLE)
    arrive(world, 3, "2026-03-01T10:00")
    broken = replace(world, context=with_publisher(world, iceberg_catalog(settings, world.context.stores)))

    report = run_iceberg(broken.context, now=utc("2026-03-01T10:06"), ignore_pace=True)

    assert len(report.errors) == 1
    assert report.errors[0].startswith("log.events: could not ")
    assert report.tables[0].problems[0].transient
    assert "secret" not in report.errors[0]
    world.catalog("2026-03-01T10:07")
    assert len(world.ids()) == 3


@pytest.mark.parametrize(
    ("status", "error"), [(403, AccessDenied), (503, CatalogUnavailable), (429, CatalogUnavailable)]
)
def test_what_a_rest_server_refuses_is_told_by_type(world: World, status: int, error: type[Exception]) -> None:
    server = RestCatalogServer(StoresFileIO({STORES: world.context.stores}))
    world.apply(TABLE)
    table = world.context.choose_tables(["log.events"])[0]
    with served(server) as address:
        platform = with_catalog(world, iceberg_catalog="rest", iceberg_rest_uri=address)
        assert platform.context.iceberg.load(table) is None
        server.refuses_with = status
        with pytest.raises(error):
            platform.context.iceberg.load(table)

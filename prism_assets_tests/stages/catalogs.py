"""Catalogs that fail on request, and helpers for intents and comparisons."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import text

from prism_assets.domain.errors import CatalogUnavailable, PrismError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.publishers.base import CallObserver
from prism_assets.publishers.glue import GluePublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.leases import leased
from prism_assets_tests.publishers.recorder import Recorder
from prism_assets_tests.world import World


@dataclass
class LosingCatalog:
    """Makes a change and loses the answer."""

    inner: GlueCatalog
    left: int = 1

    def publish(
        self,
        table: TableDefinition,
        locations: Mapping[date, str],
        observer: CallObserver,
        recorded: Collection[date] | None,
    ) -> dict[date, PrismError]:
        if not self.left:
            return self.inner.publish(table, locations, observer, recorded)
        self.left -= 1
        observer.begin()
        self.inner.publish(table, locations)
        raise CatalogUnavailable("the answer was lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class PausingCatalog:
    """Runs an action before it defines or publishes a table."""

    inner: GlueCatalog
    before_define: Callable[[TableDefinition], object] = lambda table: None
    before_publish: Callable[[TableDefinition], object] = lambda table: None

    def define(self, table: TableDefinition, location: str, observer: CallObserver) -> str | None:
        self.before_define(table)
        return self.inner.define(table, location, observer)

    def publish(
        self,
        table: TableDefinition,
        locations: Mapping[date, str],
        observer: CallObserver,
        recorded: Collection[date] | None,
    ) -> dict[date, PrismError]:
        self.before_publish(table)
        return self.inner.publish(table, locations, observer, recorded)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def with_catalog(world: World, catalog: Any, worker: str = "another") -> World:
    """Returns the platform of another worker with its own catalog."""
    publisher = through(world, catalog)
    return dataclasses.replace(world, context=dataclasses.replace(world.context, publisher=publisher, worker=worker))


def through(world: World, catalog: Any) -> GluePublisher:
    """Returns the publisher of a world over another catalog."""
    return GluePublisher(catalog, world.context.lake, world.context.stores)


def recorded(world: World) -> Recorder:
    """Notes the calls to Glue of a world from now on."""
    catalog: Any = world.glue
    catalog._made = recorder = Recorder(catalog._client)
    return recorder


def intents(world: World) -> int:
    """How many runs touched the catalog and were not seen to end."""
    with world.context.database.begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM prism_publication_intents")).scalar_one())


def calls_are_over(world: World) -> None:
    """As if more time had passed than any call can take to land."""
    with world.context.database.begin() as connection:
        connection.execute(
            text("UPDATE prism_publication_intents SET expire_time = least(expire_time, clock_timestamp())")
        )


def an_hour_passes(world: World) -> None:
    """As if the last full comparison were an hour ago."""
    with world.context.database.begin() as connection:
        connection.execute(
            text("UPDATE prism_table_publications SET compared_time = compared_time - interval '61 minutes'")
        )


def with_lease(world: World, seconds: float) -> StageContext:
    """The same worker with another lease: it beats three times in that, and takes over after that."""
    return dataclasses.replace(world.context, settings=world.settings.model_copy(update={"lease_seconds": seconds}))


@contextmanager
def held_all_the_time(world: World, kind: LeaseKind, subject_ids: Collection[int]) -> Iterator[Mapping[int, Lease]]:
    """Another worker holds leases that never run out, however slow this process is."""
    context = dataclasses.replace(with_lease(world, 3_600.0), worker="another")
    with leased(context, kind, subject_ids) as held:
        with world.context.database.begin() as connection:
            connection.execute(text("UPDATE prism_leases SET heartbeat_time = heartbeat_time + interval '1 hour'"))
        yield held


def until_true(world: World, statement: str) -> None:
    """Waits until a condition holds in PostgreSQL."""
    end = time.monotonic() + 120
    while True:
        with world.context.database.begin() as connection:
            if connection.execute(text(statement)).scalar_one():
                return
        assert time.monotonic() < end, f"it never came to be: {statement}"
        time.sleep(0.02)


def holders_fall_silent(world: World) -> None:
    """As if all holders of leases had stood still for an hour."""
    with world.context.database.begin() as connection:
        connection.execute(text("UPDATE prism_leases SET heartbeat_time = heartbeat_time - interval '1 hour'"))

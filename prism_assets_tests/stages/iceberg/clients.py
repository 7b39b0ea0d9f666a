"""Catalogs of Iceberg tables that fail on request, and foreign clients that commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from pydantic import SecretStr
from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableResponse, Table

from prism_assets.publishers.iceberg.catalogs import iceberg_catalog
from prism_assets.publishers.iceberg.publisher import IcebergPublisher
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets_tests.world import World

STRANGERS_ID = 1_000_000_000


@dataclass
class LosingCatalog:
    """Loses the answer of a commit: before its effect, after, or after the client's repetition."""

    inner: Catalog
    applied: bool = True
    resent: bool = False
    left: int = 1

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if not self.left:
            return self.inner.commit_table(table, requirements, updates)
        self.left -= 1
        if self.applied:
            self.inner.commit_table(table, requirements, updates)
        if self.resent:
            return self.inner.commit_table(table, requirements, updates)
        raise ConnectionResetError("the answer was lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class PausingCatalog:
    """Runs an action right before its commit, between load and commit."""

    inner: Catalog
    before: Callable[[], object]
    left: int = 1

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if self.left:
            self.left -= 1
            self.before()
        return self.inner.commit_table(table, requirements, updates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class ForgetfulCatalog:
    """Confirms a commit without making it, as if it overlooked a change in between."""

    inner: Catalog
    left: int = 1

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if not self.left:
            return self.inner.commit_table(table, requirements, updates)
        self.left -= 1
        return CommitTableResponse.model_validate(
            {"metadata": table.metadata, "metadata-location": table.metadata_location}
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def with_iceberg(
    world: World, wrap: Callable[[Catalog], Any] = lambda inner: inner, *, url: str = "", worker: str = "another"
) -> World:
    """Returns the platform of another worker with its own Iceberg catalog."""
    context, settings = world.context, world.settings
    there = settings.model_copy(update={"database_url": SecretStr(url)}) if url else settings
    connect = iceberg_catalog(there, context.stores)

    def made(mark: str) -> IcebergPublisher:
        return IcebergPublisher(
            lambda: wrap(connect()),
            context.lake,
            context.stores,
            mark,
            prefix=settings.glue_database_prefix,
            suffix=settings.iceberg_database_suffix,
        )

    return dataclasses.replace(world, context=dataclasses.replace(context, make_iceberg=made, worker=worker))


@contextmanager
def a_client(world: World) -> Iterator[tuple[Catalog, Table]]:
    """Returns a client with write access to the catalog, and log.events as it loads the table."""
    with IcebergReader(world.settings) as reader:
        yield reader.catalog, reader.table("log.events")


def _append(_catalog: Catalog, table: Table) -> None:
    row = table.scan(limit=1).to_arrow().slice(0, 1).to_pylist()[0]
    table.append(pa.Table.from_pylist([{**row, "id": STRANGERS_ID}], schema=table.schema().as_arrow()))


def _rewrite(_catalog: Catalog, table: Table) -> None:
    """Writes all rows into a new file, like a compaction."""
    table.overwrite(table.scan().to_arrow())


def _delete(_catalog: Catalog, table: Table) -> None:
    first = min(table.scan().to_arrow().column("id").to_pylist())
    table.delete(f"id = {first}")


def _expire(_catalog: Catalog, table: Table) -> None:
    table.maintenance.expire_snapshots().older_than(datetime.now(timezone.utc) + timedelta(days=400)).commit()


def _drop(catalog: Catalog, table: Table) -> None:
    catalog.drop_table(table.name())


def _rename(catalog: Catalog, table: Table) -> None:
    namespace, name = table.name()
    catalog.rename_table(table.name(), (namespace, f"{name}_theirs"))


def _recreate(catalog: Catalog, table: Table) -> None:
    catalog.drop_table(table.name())
    catalog.create_table(table.name(), table.schema(), location=f"{table.location()}/theirs")


ACTS: Mapping[str, Callable[[Catalog, Table], None]] = {
    "append": _append,
    "rewrite": _rewrite,
    "delete": _delete,
    "expire": _expire,
    "drop": _drop,
    "rename": _rename,
    "recreate": _recreate,
}


def a_stranger(world: World, act: str) -> None:
    """Makes a foreign change of the table, reserved to the publisher."""
    with a_client(world) as (catalog, table):
        ACTS[act](catalog, table)

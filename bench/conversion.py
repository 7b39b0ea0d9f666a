"""Converts single objects of a local folder, as a task of Stream does, without PostgreSQL and Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertResult, ConvertTask
from prism_assets.kernels.convert import convert_object
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def stored(table: TableDefinition, table_id: int = 1) -> TableDefinition:
    """Returns a parsed definition as a stored one: with ids of the table and its columns, in its first version."""
    columns = tuple(replace(column, column_id=number) for number, column in enumerate(table.columns, 1))
    return replace(table, columns=columns, table_id=table_id, version=1)


def local_lake(root: Path) -> tuple[Stores, Lake]:
    """Returns the stores of a folder with the buckets `staging` and `lake`."""
    stores = Stores(StoreConfig(local_root=str(root), object_tags=False))
    return stores, Lake("lake", "", stores.config)


def convert_one(
    local: tuple[Stores, Lake],
    table: TableDefinition,
    number: int,
    key: str,
    content_length: int,
    received: datetime,
    *,
    metric_columns: tuple[int, ...] = (),
) -> ConvertResult:
    """Converts one object of the bucket `staging` to small objects. A failure ends the benchmark."""
    stores, lake = local
    task = ConvertTask(
        staging_object_id=number,
        bucket="staging",
        key=key,
        etag=None,
        content_length=content_length,
        received=received,
        stream_name="bench",
        delayed_dates=frozenset(),
        table_id=1,
        definition_version=1,
        metric_columns=metric_columns,
    )
    result = convert_object(task, table, stores, lake)
    assert result.failure is None, result.failure
    return result

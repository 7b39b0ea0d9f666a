"""A lake in a folder, tables, staging objects, and results of conversions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.type_names import type_named
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.options import MergePolicy
from prism_assets.domain.work.convert import ConvertResult, ConvertTask
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.kernels.convert import LIMITS, convert_object
from prism_assets.kernels.json.block_reader import Way
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.write import write_object
from prism_assets.objectstore import lake
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets_tests.parquet import read_parquet

needs_kernel = pytest.mark.skipif(loaded_kernel().module is None, reason="this process has no compiled kernel")

RECEIVED = datetime(2018, 10, 25, 3, tzinfo=timezone.utc)
TIME = "2018-10-24T09:00:23+09:00"
DAY = date(2018, 10, 24)


def a_column(name: str, type: str, column_id: int, **more: Any) -> Column:
    digits: dict[str, Any] = {name: more.pop(name) for name in ("precision", "scale") if name in more}
    kind = type_named(type, digits)
    return Column(name=name, type=kind, source=more.pop("source", name), column_id=column_id, **more)


def a_table(*columns: Column, sort_by: tuple[str, ...] = (), zone: str = "Asia/Tokyo", **more: Any) -> TableDefinition:
    """A table with the column `time` (id 1) and the given ones."""
    time = a_column("time", "timestamp", 1, required=True)
    settings: dict[str, Any] = {
        "name": TableName("log", "pv_log"),
        "description": "",
        "owner": None,
        "streams": (),
        "partition_column": "time",
        "timezone": zone,
        "columns": (time, *columns),
        "merge": MergePolicy(sort_by=sort_by),
        "past_days": 21,
        "future_days": 3,
        "retention_days": None,
    }
    return TableDefinition(**{**settings, **more})


def an_object(*rows: dict[str, Any] | str | bytes, newline: bytes = b"\n") -> bytes:
    """JSON lines; a dict without `time` gets one, text and bytes are taken as they are."""
    return b"".join(a_line(row) + newline for row in rows)


def a_line(row: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(row, bytes):
        return row
    return (row if isinstance(row, str) else json.dumps({"time": TIME, **row}, ensure_ascii=False)).encode()


def a_value(text: str) -> str:
    """Returns a line with this JSON text as the value of key `v`."""
    return f'{{"time":"{TIME}","v":{text}}}'


@dataclass(frozen=True)
class Outcome:
    """The result of a conversion with all stored objects."""

    result: ConvertResult
    rows: list[dict[str, Any]]
    quarantined: list[dict[str, Any]]
    stored: dict[str, bytes] = field(repr=False)

    @property
    def reasons(self) -> dict[str, int]:
        return {count.reason: count.line_count for count in self.result.quarantined}

    @property
    def value_errors(self) -> dict[tuple[str, str], int]:
        return {(error.column, error.reason): error.count for error in self.result.value_errors}

    def comparable(self) -> tuple[Any, ...]:
        """Returns the values on which both ways of reading must agree."""
        result = self.result
        left = (result.lines_filtered, result.lines_elsewhere)
        counts = (result.lines_in, result.rows_out, left, result.undefined, result.failure)
        return counts, repr(self.rows), self.quarantined, self.value_errors, self.stored


class Lake:
    """Buckets `staging` and `lake` in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for bucket in ("staging", "lake"):
            (root / bucket).mkdir(exist_ok=True)
        self.stores = Stores(StoreConfig(local_root=str(root), object_tags=False))
        self.lake = lake.Lake("lake", "p/", self.stores.config)

    def convert(
        self,
        content: bytes,
        table: TableDefinition,
        *,
        way: Way = Way.COMPILED,
        staging_object_id: int = 7,
        delayed: Iterable[date] = (),
        etag: str | None = None,
        received: datetime = RECEIVED,
        limits: Limits = LIMITS,
        metric_columns: tuple[int, ...] = (),
        key: str | None = None,
        erasures: tuple[ErasureRule, ...] = (),
    ) -> Outcome:
        """Converts an object as if for the first time, because existing objects under its keys would stay."""
        self.forget(staging_object_id)
        task = a_convert_task(
            staging_object_id,
            etag=etag,
            content_length=len(content),
            received=received,
            delayed=frozenset(delayed),
            metric_columns=metric_columns,
            key=key,
            erasures=erasures,
        )
        self.stores.put("staging", task.key, content)
        result = convert_object(task, table, self.stores, self.lake, way=way, limits=limits)
        return self.outcome(result)

    def forget(self, staging_object_id: int) -> None:
        """Deletes the results of an object."""
        keys = [item.key for item in self.stores.list("lake", "p/")]
        self.stores.delete(
            "lake", [key for key in keys if f"{staging_object_id:019d}" in key and "/merged/" not in key]
        )

    def convert_again(self, table: TableDefinition, staging_object_id: int = 7) -> ConvertResult:
        """Converts the current object in staging."""
        task = a_convert_task(staging_object_id)
        return convert_object(task, table, self.stores, self.lake)

    def both(self, content: bytes, table: TableDefinition, **more: Any) -> Outcome:
        """Converts in both ways of reading, which must agree on everything, to the byte."""
        slow = self.convert(content, table, way=Way.LINES, **more)
        assert slow.result.compiled_lines == 0
        if loaded_kernel().module is None:
            return slow
        compiled = self.convert(content, table, **more)
        assert compiled.comparable() == slow.comparable()
        return compiled

    def outcome(self, result: ConvertResult) -> Outcome:
        stored = {small.key: self.stores.get("lake", small.key) for small in result.objects}
        rows = [row for body in stored.values() for row in rows_of(body)]
        quarantined = []
        if result.quarantine_key:
            stored[result.quarantine_key] = self.stores.get("lake", result.quarantine_key)
            quarantined = [json.loads(line) for line in gzip.decompress(stored[result.quarantine_key]).splitlines()]
        return Outcome(result, rows, quarantined, stored)

    def merge(
        self,
        inputs: Sequence[DataFile],
        table: TableDefinition,
        key: str = "p/merged/out.parquet",
        metric_columns: tuple[int, ...] = (),
    ) -> WriteResult:
        return write_object(a_merge_task(inputs, key, metric_columns), table, self.stores, self.lake)

    def table_at(self, key: str) -> pa.Table:
        return read_parquet(self.stores.get("lake", key))


def a_convert_task(
    staging_object_id: int = 7,
    *,
    etag: str | None = None,
    content_length: int = 0,
    received: datetime = RECEIVED,
    delayed: frozenset[date] = frozenset(),
    metric_columns: tuple[int, ...] = (),
    key: str | None = None,
    erasures: tuple[ErasureRule, ...] = (),
) -> ConvertTask:
    return ConvertTask(
        staging_object_id=staging_object_id,
        bucket="staging",
        key=key or f"in/{staging_object_id}.json",
        etag=etag,
        content_length=content_length,
        received=received,
        stream_name="pv_log",
        delayed_dates=delayed,
        table_id=1,
        definition_version=1,
        metric_columns=metric_columns,
        erasures=erasures,
    )


def a_merge_task(
    inputs: Sequence[DataFile], key: str = "p/merged/out.parquet", metric_columns: tuple[int, ...] = ()
) -> WriteTask:
    return WriteTask(
        number=1,
        inputs=tuple(inputs),
        output_key=key,
        table_id=1,
        definition_version=1,
        metric_columns=metric_columns,
    )


def rows_of(body: bytes) -> list[dict[str, Any]]:
    """The rows of a Parquet object; instants as milliseconds."""
    table = read_parquet(body)
    for position, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows

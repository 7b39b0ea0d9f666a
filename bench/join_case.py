"""The case of `scripts/bench join`: a table of records, changes of three groups, and the same rows for every system.

The base has been published by folds, one row a record. A change has its group's columns, the key and its time. Nine of
ten changes belong to existing records, the others to new ones. About three in four beat the group's current values, and
some values are null. Sequences are unique, so the result does not depend on how a system breaks ties.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.conversion import stored
from prism_assets.domain.records.folding import FoldTask, RecordObject, RecordPart, UnfoldedChanges
from prism_assets.domain.records.joins import CHANGE_DELETED, CHANGE_GROUP, CHANGE_LINE, CHANGE_OBJECT, JoinOptions
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.records.outputs import RecordWriter
from prism_assets.kernels.records.sessions import buckets_of
from prism_assets.kernels.records.shape import COMMITTED, LAST_EVENT, RecordShape, deleted_column
from prism_assets.kernels.records.times import settle_times
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.fold.plan import FoldPlan, fold_tasks

NOW = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
BUCKET = "lake"
KEY, TIME = "request_id", "time"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "front": ("page", "referer", "agent", "user_id", "width"),
    "back": ("status", "elapsed", "host", "size", "trace"),
    "bill": ("price", "currency", "item", "discount"),
}
"""The columns of each group; beside them it has its sequence."""
_TABLE = """
schema: bench
table: requests
key: [request_id]
streams:
  - {name: front, url: "s3://staging/front/", group: front}
  - {name: back, url: "s3://staging/back/", group: back}
  - {name: bill, url: "s3://staging/bill/", group: bill}
groups:
  front: {sequence: [front_seq]}
  back: {sequence: [back_seq]}
  bill: {sequence: [bill_seq]}
partition: {column: time}
columns:
  - {name: request_id, type: string, length: 32}
  - {name: time, type: timestamp}
  - {name: front_seq, type: bigint}
  - {name: page, type: string, length: 200, group: front}
  - {name: referer, type: string, length: 200, group: front}
  - {name: agent, type: string, length: 200, group: front}
  - {name: user_id, type: bigint, group: front}
  - {name: width, type: integer, group: front}
  - {name: back_seq, type: bigint}
  - {name: status, type: integer, group: back}
  - {name: elapsed, type: double, group: back}
  - {name: host, type: string, length: 40, group: back}
  - {name: size, type: bigint, group: back}
  - {name: trace, type: string, length: 32, group: back}
  - {name: bill_seq, type: bigint}
  - {name: price, type: bigint, group: bill}
  - {name: currency, type: string, length: 3, group: bill}
  - {name: item, type: bigint, group: bill}
  - {name: discount, type: double, group: bill}
window: forever
"""


def sequence(group: str) -> str:
    """Returns the sequence column of a group."""
    return f"{group}_seq"


def columns_of(group: str) -> tuple[str, ...]:
    """Returns the columns in a group's changes: the sequence and the group's own."""
    return sequence(group), *GROUPS[group]


ALL_COLUMNS = (KEY, TIME, *(name for group in GROUPS for name in columns_of(group)))


def bench_table() -> tuple[TableDefinition, JoinOptions]:
    """Returns the join table as after `apply`."""
    table = stored(parse_table_file(_TABLE, "requests.yaml"))
    assert table.join is not None
    return table, table.join


@dataclass(frozen=True)
class Case:
    """The rows in two forms: for peers `base.parquet` and a file of changes per group, and for ours a lake."""

    folder: Path
    rows: int
    changes: int
    table: TableDefinition
    join: JoinOptions
    tasks: tuple[FoldTask, ...]

    @property
    def base(self) -> Path:
        """The peers' file of records."""
        return self.folder / "base.parquet"

    def changes_of(self, group: str) -> Path:
        """Returns the peers' file of a group's changes."""
        return self.folder / f"{group}.parquet"

    @property
    def store(self) -> StoreConfig:
        """The location of our lake."""
        return StoreConfig(local_root=str(self.folder), object_tags=False)


def make_case(folder: Path, rows: int, changes: int, seed: int = 1) -> Case:
    """Writes a base of `rows` records, and `changes` changes of each group."""
    table, join = bench_table()
    (folder / BUCKET).mkdir(parents=True)
    stores = Stores(StoreConfig(local_root=str(folder), object_tags=False))
    lake = Lake(BUCKET, "", stores.config)
    chance = np.random.default_rng(seed)
    keys = _texts(chance, rows + max(1, changes // 10))
    times = chance.integers(0, 20 * 3_600_000, len(keys)) + int(NOW.timestamp() - 1.5 * 86_400) * 1_000
    shape = RecordShape(table, join)
    base = _base(chance, shape, keys[:rows], times[:rows], rows + changes)
    pq.write_table(base.select(ALL_COLUMNS), folder / "base.parquet", compression="zstd", compression_level=1)
    records = list(_record_objects(base, shape, stores, lake))
    objects = []
    for number, group in enumerate(GROUPS, 1):
        found = _changes(chance, shape, group, number, keys, times, rows, changes)
        peer = found.select([KEY, TIME, *columns_of(group)])
        pq.write_table(peer, folder / f"{group}.parquet", compression="zstd", compression_level=1)
        objects.append(_changes_object(found, stores, f"changes/{group}.parquet"))
    plan = FoldPlan(
        table=table,
        options=join,
        reason="a benchmark",
        days=(),
        uppers={},
        taken_rows={},
        rows_again={},
        changes=tuple(objects),
        records=tuple(records),
        settle_before=None,
        is_whole=True,
    )
    return Case(folder, rows, changes, table, join, tuple(fold_tasks(plan, 2, NOW)))


def _texts(chance: np.random.Generator, count: int) -> npt.NDArray[Any]:
    """Returns keys of 32 hexadecimal digits."""
    digits = chance.bytes(16 * count).hex()
    return np.frombuffer(digits.encode(), "S32").astype("U32")


def _sequences(chance: np.random.Generator, count: int, first: int, step: int, least: int) -> npt.NDArray[np.int64]:
    """Returns unique numbers, also across calls with different `first`."""
    return chance.integers(least, 1 << 30, count) * step + first + np.arange(count)


def _values(chance: np.random.Generator, group: str, count: int) -> dict[str, Any]:
    def one_of(texts: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(chance.integers(0, len(texts), count)), texts).cast(pa.string())

    def some(values: Any) -> pa.Array:
        return pa.array(values, mask=chance.random(count) < 0.05)

    match group:
        case "front":
            return {
                "page": one_of([f"/recipes/{number}/steps" for number in range(5_000)]),
                "referer": one_of([f"https://example.com/recipes/{number}" for number in range(5_000)]),
                "agent": one_of([f"Mozilla/5.0 (X11; Linux x86_64) Chrome/{number}.0" for number in range(40)]),
                "user_id": some(chance.integers(1, 1 << 40, count)),
                "width": some(chance.integers(300, 4_000, count).astype(np.int32)),
            }
        case "back":
            return {
                "status": some(chance.choice([200, 200, 304, 404], count).astype(np.int32)),
                "elapsed": some(np.round(chance.random(count), 6)),
                "host": one_of([f"app{number}.internal" for number in range(200)]),
                "size": some(chance.integers(0, 1 << 24, count)),
                "trace": pa.array(_texts(chance, count)),
            }
        case _:
            return {
                "price": some(chance.integers(1, 1 << 20, count)),
                "currency": one_of(["EUR", "JPY", "USD"]),
                "item": some(chance.integers(1, 1 << 30, count)),
                "discount": some(np.round(chance.random(count), 3)),
            }


def _base(chance: np.random.Generator, shape: RecordShape, keys: Any, times: Any, step: int) -> pa.Table:
    """Returns stored records. Each has the group `front`, and most have the others."""
    count = len(keys)
    columns: dict[str, Any] = {KEY: pa.array(keys), TIME: pa.array(times, pa.timestamp("ms", "UTC"))}
    columns[LAST_EVENT] = pa.array(times)
    for number, slot in enumerate(shape.slots, 101):
        name = slot.group.name
        absent = chance.random(count) < (0.0 if name == "front" else 0.05)
        given = {
            sequence(name): pa.array(_sequences(chance, count, 0, step, 0)),
            **_values(chance, name, count),
            deleted_column(slot.group): pa.array(np.zeros(count, bool)),
            slot.object: pa.array(np.full(count, number)),
            slot.line: pa.array(np.arange(count)),
        }
        has = pa.array(~absent)
        columns |= {key: pa.compute.if_else(has, value, pa.scalar(None, value.type)) for key, value in given.items()}
    return pa.table([columns[field.name].cast(field.type) for field in shape.stored], schema=shape.stored)


def _record_objects(base: pa.Table, shape: RecordShape, stores: Stores, lake: Lake) -> Iterator[RecordObject]:
    """Yields one object per bucket, sorted by key, as a fold writes them."""
    fold = FoldTask(fold_id=1, number=0, table_id=1, definition_version=1, buckets=(), records=(), changes=(), now=NOW)
    writer = RecordWriter(fold, shape, stores, lake.keys(shape.table))
    found = buckets_of(base.select([KEY]), shape.join.buckets)
    day = datetime.fromtimestamp(int(base[LAST_EVENT][0].as_py()) / 1_000, timezone.utc).date()
    for bucket in range(shape.join.buckets):
        rows = base.filter(pa.array(found == bucket)).sort_by(KEY)
        if not rows.num_rows:
            continue
        settle = settle_times(rows[LAST_EVENT].to_numpy(), shape.join)
        written = writer.write(rows, day=day, part=RecordPart.VISIBLE, bucket=bucket, cohort=0, settle=settle)
        yield replace(written, object_id=bucket + 1)


def _changes(
    chance: np.random.Generator,
    shape: RecordShape,
    group: str,
    number: int,
    keys: Any,
    times: Any,
    rows: int,
    count: int,
) -> pa.Table:
    is_new = chance.random(count) < 0.1
    of = np.where(is_new, chance.integers(rows, len(keys), count), chance.integers(0, rows, count))
    found = times[of] + chance.integers(0, 3_600_000, count)
    given: dict[str, Any] = {
        KEY: pa.array(keys[of]),
        TIME: pa.array(found, pa.timestamp("ms", "UTC")),
        sequence(group): pa.array(_sequences(chance, count, rows, rows + count, 1 << 28)),
        **_values(chance, group, count),
        CHANGE_GROUP: pa.array(np.full(count, group)),
        CHANGE_DELETED: pa.array(np.zeros(count, bool)),
        CHANGE_OBJECT: pa.array(np.full(count, number)),
        CHANGE_LINE: pa.array(np.arange(count)),
    }
    schema = pa.schema([field for field in shape.changes if field.name != COMMITTED])
    arrays = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(count, field.type) for field in schema
    ]
    return pa.table(arrays, schema=schema)


def _changes_object(rows: pa.Table, stores: Stores, key: str) -> UnfoldedChanges:
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", compression_level=1, store_schema=False)
    stores.put(BUCKET, key, sink.getvalue())
    return UnfoldedChanges(
        bucket=BUCKET,
        key=key,
        content_length=len(sink.getvalue()),
        row_count=rows.num_rows,
        fingerprint=fingerprint_of(rows),
        committed=NOW,
        object_id=0,
    )

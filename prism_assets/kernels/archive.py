"""Writes rows that leave PostgreSQL as Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.archive import ArchiveResult, ArchiveTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels.failures import failure_of
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_AS_IN_JSON = {"int8": pa.int64(), "int4": pa.int32(), "int2": pa.int16(), "bool": pa.bool_()}
_FROM_TEXT = {"timestamptz": pa.timestamp("us", "UTC")}


def write_archive(task: ArchiveTask, _table: TableDefinition, stores: Stores, lake: Lake) -> ArchiveResult:
    """Writes the rows of a task to one object. The same rows give the same bytes under the same key."""
    try:
        sink = pa.BufferOutputStream()
        pq.write_table(_table_of(task), sink, compression="zstd", store_schema=False)
        stores.put(lake.bucket, task.key, sink.getvalue().to_pybytes())
    except Exception as error:
        return task.failed(failure_of(error, f"{task.key} was written"))
    failpoint("gc.after_put_archive")
    return ArchiveResult(key=task.key)


def _table_of(task: ArchiveTask) -> pa.Table:
    rows = [json.loads(row) for row in task.rows]
    return pa.table({name: _column([row[name] for row in rows], type_name) for name, type_name in task.columns})


def _column(values: Sequence[object], type_name: str) -> pa.Array:
    """Values of a type of PostgreSQL. Types that Arrow lacks stay text or JSON."""
    if type_name in _AS_IN_JSON:
        return pa.array(values, _AS_IN_JSON[type_name])
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    column = pa.array(texts, pa.string())
    return column.cast(_FROM_TEXT[type_name]) if type_name in _FROM_TEXT else column

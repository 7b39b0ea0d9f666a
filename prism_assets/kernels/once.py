"""Writes Parquet objects whose keys are never written twice: the first writer wins.

A worker that was paused, or a task that outlived its job, may come with the same rows in other bytes (another sort
order, another version of the encoder) when the first object is published already with its length.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import InvariantBroken
from prism_assets.kernels.fingerprint import fingerprint
from prism_assets.objectstore.stores import Stores


def put_once(stores: Stores, bucket: str, key: str, body: pa.Buffer, *, kind: str, row_count: int, prints: int) -> int:
    """Writes an object, or finds that one with the same rows is there; returns the length of what is there."""
    if stores.put_new(bucket, key, memoryview(body).cast("B"), kind=kind):
        return int(body.size)
    there = stores.get(bucket, key)
    if there != memoryview(body):
        _check_same(there, key, row_count, prints)
    return len(there)


def _check_same(there: bytes, key: str, row_count: int, prints: int) -> None:
    try:
        table = pq.ParquetFile(pa.BufferReader(there)).read(use_threads=False)
    except (pa.ArrowInvalid, OSError):
        raise InvariantBroken(f"{key} exists and is no readable Parquet object; remove it and repeat") from None
    if table.num_rows != row_count or fingerprint(table) != prints:
        raise InvariantBroken(f"{key} exists with other rows; remove it and repeat")

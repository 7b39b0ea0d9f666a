"""Writes Parquet objects whose keys are never written twice: the first writer wins.

A worker that was paused, or a task that outlived its job, may come with the same rows in other bytes (another sort
order, another version of the encoder) when the first object is published already with its length.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import KeyOccupied
from prism_assets.domain.fingerprints import combine
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import column_id, format_of, is_copy
from prism_assets.objectstore.stores import Stores

_GARBAGE = "`prism gc` removes it if nobody needs it; then repeat"


@dataclass(frozen=True)
class Present:
    """What lies under a key: an object may be there whose bytes, and the unit of whose timestamps, are others."""

    content_length: int
    file_format: int


def put_if_absent(
    stores: Stores,
    bucket: str,
    key: str,
    body: pa.Buffer,
    *,
    kind: str,
    row_count: int,
    fingerprint: int,
    file_format: int,
) -> Present:
    """Writes an object, or finds that one with the same rows is there; returns what is there.

    KeyOccupied if other rows are, or the same with a column of another name or type, as before that was changed.
    """
    content = memoryview(body).cast("B")
    if stores.put_new(bucket, key, content, kind=kind) or _is_same(stores, bucket, key, content):
        return Present(len(content), file_format)
    there = stores.get(bucket, key)
    schema = _check_same(there, key, row_count, fingerprint)
    if not _has_columns(schema, pq.read_schema(pa.BufferReader(body))):
        raise KeyOccupied(f"{key} exists with other names or types of columns, and is not overwritten; repeat")
    return Present(len(there), format_of(schema) or file_format)


def _is_same(stores: Stores, bucket: str, key: str, content: memoryview) -> bool:
    """Whether an object has these bytes; it is not held as a whole."""
    position = 0
    for piece in stores.get_chunks(bucket, key):
        if content[position : position + len(piece)] != piece:
            return False
        position += len(piece)
    return position == len(content)


def _check_same(there: bytes, key: str, row_count: int, fingerprint: int) -> pa.Schema:
    try:
        file = pq.ParquetFile(pa.BufferReader(there))
        groups = (file.read_row_group(group, use_threads=False) for group in range(file.metadata.num_row_groups))
        found = combine(map(fingerprint_of, groups))
    except (pa.ArrowInvalid, OSError):
        raise KeyOccupied(f"{key} exists, is no readable Parquet object and not overwritten; {_GARBAGE}") from None
    if file.metadata.num_rows != row_count or found != fingerprint:
        raise KeyOccupied(f"{key} exists with other rows, and is not overwritten; {_GARBAGE}")
    return file.schema_arrow


def _has_columns(there: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether columns of an object have the names and types that they are to have. It may hold more, and fewer."""
    known: dict[int, list[pa.Field]] = {}
    for field in there:
        known.setdefault(column_id(field), []).append(field)
    for field in wanted:
        found = known.get(column_id(field), [])
        if (found or is_copy(field)) and not any(_is_alike(other, field) for other in found):
            return False
    return True


def _is_alike(one: pa.Field, other: pa.Field) -> bool:
    """Whether two fields of one id are the same; the unit of timestamps is that of the whole object."""
    both_times = pa.types.is_timestamp(one.type) and pa.types.is_timestamp(other.type)
    return bool(one.name == other.name and (both_times or one.type.equals(other.type)))

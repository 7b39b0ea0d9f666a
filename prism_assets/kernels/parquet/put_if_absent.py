"""Writes Parquet objects at most once per key: the first writer wins.

A paused worker, or a task that outlived its job, may write the same rows as other bytes, in another order or with
another encoder, after the first object is published with its length.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import KeyOccupied
from prism_assets.kernels.field_ids import field_id
from prism_assets.kernels.fingerprint import checked_fingerprint
from prism_assets.kernels.nested_arrays import with_leaves
from prism_assets.kernels.parquet.format import format_of, is_copy
from prism_assets.objectstore.stores import Stores

_GARBAGE = "`prism gc` removes it if nobody needs it; then repeat"


@dataclass(frozen=True)
class Present:
    """The object under a key. Another writer's object may differ in length and in the unit of its timestamps."""

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
    """Writes an object, or finds an existing one with the same rows. Returns the object under the key.

    Raises KeyOccupied for other rows, or for other column names or types, as before a change of the table.
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
    """Whether an object has these bytes. Reads it in pieces."""
    position = 0
    for piece in stores.get_chunks(bucket, key):
        if content[position : position + len(piece)] != piece:
            return False
        position += len(piece)
    return position == len(content)


def _check_same(there: bytes, key: str, row_count: int, fingerprint: int) -> pa.Schema:
    try:
        file = pq.ParquetFile(pa.BufferReader(there))
        groups = range(file.metadata.num_row_groups)
        found = checked_fingerprint(lambda: (file.read_row_group(n, use_threads=False) for n in groups), fingerprint)
    except (pa.ArrowInvalid, OSError):
        raise KeyOccupied(f"{key} exists, is no readable Parquet object and not overwritten; {_GARBAGE}") from None
    if file.metadata.num_rows != row_count or found != fingerprint:
        raise KeyOccupied(f"{key} exists with other rows, and is not overwritten; {_GARBAGE}")
    return file.schema_arrow


def _has_columns(there: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether an object's columns have the given names and types. It may have more columns, or fewer."""
    known: dict[int, list[pa.Field]] = {}
    for field in there:
        known.setdefault(field_id(field), []).append(field)
    for field in wanted:
        found = known.get(field_id(field), [])
        if (found or is_copy(field)) and not any(_is_alike(other, field) for other in found):
            return False
    return True


def _is_alike(one: pa.Field, other: pa.Field) -> bool:
    """Whether two fields of one id are equal. Timestamp units belong to the whole object, so they do not count."""
    kinds = [with_leaves(field.type, _without_unit) for field in (one, other)]
    return bool(one.name == other.name and kinds[0].equals(kinds[1]))


def _without_unit(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("ms", "UTC") if pa.types.is_timestamp(kind) else kind

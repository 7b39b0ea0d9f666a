"""Ids of Arrow fields, as Parquet stores them. In the lake a column, or a part of one, is its id, whatever its name."""

from __future__ import annotations

import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"
COPY_IDS = range(500_000_000, 1_000_000_000)
"""The ids of copies of renamed columns, which objects have under the former names: the first id plus the column's id.

PyIceberg refuses objects with a column without an id. Tables give ids up to 1,000,000.
"""


def field_with_id(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
    """Returns a field with its id."""
    return pa.field(name, kind, nullable, metadata={FIELD_ID: str(number).encode()})


def field_id(field: pa.Field) -> int:
    """Returns the id of a stored column, or of a part of one."""
    return int((field.metadata or {})[FIELD_ID])


def has_id(field: pa.Field) -> bool:
    """Whether a field is stored. Columns computed by kernels have no id."""
    return FIELD_ID in (field.metadata or {})

"""Schemas for tables whose strings exceed 32-bit offsets once they are joined."""

from __future__ import annotations

import pyarrow as pa

from prism_assets.kernels.nested_arrays import with_leaves

# Above this size, a column of strings may need 64-bit offsets.
LARGE = 1 << 30


def enlarged(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with 64-bit offsets for strings."""
    return pa.schema([field.with_type(enlarged_type(field.type)) for field in schema])


def enlarged_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type with 64-bit offsets for strings, also in its parts."""
    return with_leaves(kind, lambda leaf: pa.large_string() if pa.types.is_string(leaf) else leaf)

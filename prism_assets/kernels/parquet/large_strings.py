"""Schemas for tables whose strings exceed 32-bit offsets once they are joined."""

from __future__ import annotations

import pyarrow as pa

# Above this size, a column of strings may need 64-bit offsets.
LARGE = 1 << 30


def enlarged(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with 64-bit offsets for strings."""
    return pa.schema(
        [field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field for field in schema]
    )

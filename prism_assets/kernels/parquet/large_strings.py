"""Strings that are too many for 32-bit offsets when rows are taken from several tables at once."""

from __future__ import annotations

import pyarrow as pa

# Beyond this a column of strings may need 64-bit offsets.
LARGE = 1 << 30


def enlarged(schema: pa.Schema) -> pa.Schema:
    """The schema with 64-bit offsets in its strings."""
    return pa.schema(
        [field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field for field in schema]
    )

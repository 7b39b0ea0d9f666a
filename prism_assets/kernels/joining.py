"""Tables of whole columns, so that rows can be taken from them in any order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

# Beyond this a column of strings may need 64-bit offsets.
LARGE = 1 << 30


def whole(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Joins tables into one table of whole columns; its strings are large ones where they need it."""
    parts = [part.cast(schema) for part in parts]
    if sum(part.nbytes for part in parts) > LARGE:
        parts = [part.cast(enlarged(schema)) for part in parts]
    return pa.concat_tables(parts).combine_chunks()


def enlarged(schema: pa.Schema) -> pa.Schema:
    """The schema with 64-bit offsets in its strings."""
    return pa.schema(
        [field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field for field in schema]
    )

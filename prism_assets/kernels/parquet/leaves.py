"""Leaves of Parquet objects: the columns that hold values. A struct, a list or a map has none, one or many of them.

A footer numbers leaves and knows nothing else: the place of a field among the fields of a schema is no place of a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.kernels.field_ids import field_id, has_id


@dataclass(frozen=True)
class Leaf:
    """A leaf outside of lists and maps, with at most one value a row. A null struct around it counts as a null."""

    place: int
    """Its number in the footer."""
    kind: pa.DataType


def leaves_by_id(metadata: pq.FileMetaData) -> dict[int, Leaf]:
    """Returns the leaves of an object outside of lists and maps, by field id."""
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    return {
        field_id(fields[-1]): Leaf(places[".".join(field.name for field in fields)], fields[-1].type)
        for fields in _paths(metadata.schema.to_arrow_schema(), ())
        if has_id(fields[-1])
    }


def _paths(fields: Iterator[pa.Field], above: Sequence[pa.Field]) -> Iterator[Sequence[pa.Field]]:
    """Yields for each leaf the fields from the column down to it."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _paths(iter(field.type), (*above, field))
        elif not pa.types.is_nested(field.type):
            yield (*above, field)

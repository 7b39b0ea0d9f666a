"""Nested Arrow types and arrays: their leaves, and their parts by field id.

Arrow casts and joins structs by the names of their fields. In the lake a field is its id: names may change, and a name
may belong to another field later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.kernels.field_ids import field_id, field_with_id, has_id


def with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Returns a type with other types of its leaves. Names and ids of its parts stay."""
    if not pa.types.is_nested(kind):
        return change(kind)
    return with_parts(kind, [part.with_type(with_leaves(part.type, change)) for part in parts_of(kind)])


def with_new_ids(kind: pa.DataType, change: Callable[[int], int]) -> pa.DataType:
    """Returns a type with other ids of its parts."""

    def changed(part: pa.Field) -> pa.Field:
        inner = with_new_ids(part.type, change)
        return field_with_id(part.name, inner, change(field_id(part)), nullable=part.nullable)

    return with_parts(kind, [changed(part) for part in parts_of(kind)]) if pa.types.is_nested(kind) else kind


def with_parts(kind: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    """Returns a nested type with other parts."""
    if pa.types.is_struct(kind):
        return pa.struct(parts)
    return pa.map_(*parts) if pa.types.is_map(kind) else pa.list_(*parts)


def parts_of(kind: pa.DataType) -> Sequence[pa.Field]:
    """Returns the fields of a struct, the element of a list, the key and the value of a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) else []


def between_parts(kind: pa.DataType) -> str:
    """Returns what Parquet's paths have between a nested column and its parts."""
    if pa.types.is_map(kind):
        return "key_value."
    return "list." if pa.types.is_list(kind) else ""


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yields the types of all leaves."""
    if not pa.types.is_nested(kind):
        yield kind
        return
    for part in parts_of(kind):
        yield from leaf_types(part.type)


def parts_in(array: pa.Array) -> Sequence[pa.Array]:
    """Returns the arrays of the parts of a nested array, which may be a slice. Null parents have no parts in lists."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    return _entries(array) if pa.types.is_map(array.type) else [array.flatten()]


def leaves(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields all leaves with their paths in Parquet, such as `items.list.element.sku`. Null lists have no values."""
    if not pa.types.is_nested(array.type):
        yield name, array
        return
    for part, values in zip(parts_of(array.type), parts_in(array), strict=True):
        yield from leaves(f"{name}.{between_parts(array.type)}{part.name}", values)


def _entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Returns the keys and the values of the maps of an array, which may be a slice."""
    start, count = _held(array)
    return array.keys.slice(start, count), array.items.slice(start, count)


def _held(array: Any) -> tuple[int, int]:
    """Returns the first value of the lists or maps of an array, which may be a slice, and how many there are."""
    if not len(array):
        return 0, 0
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return start, end - start


def conformed(array: Any, kind: pa.DataType) -> Any:
    """Returns an array, or a chunked one, in another type. Parts of nested types are matched by id.

    Parts that the array lacks are null.
    """
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([conformed(chunk, kind) for chunk in array.chunks], kind)
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _struct(array, kind)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        keys, items = _entries(array)
        parts = conformed(keys, kind.key_type), conformed(items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(array), *parts, type=kind, mask=_nulls(array))
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = conformed(array.values.slice(*_held(array)), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=_nulls(array))
    return array.cast(kind)


def _struct(array: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    children = {_identity(field): child for field, child in zip(array.type, array.flatten(), strict=True)}
    found = [(children.get(_identity(field)), field.type) for field in kind]
    parts = [pa.nulls(len(array), inner) if child is None else conformed(child, inner) for child, inner in found]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=_nulls(array))


def with_part(array: Any, places: Sequence[int], change: Callable[[pa.Array], pa.Array]) -> Any:
    """Returns an array, which is no slice, with other values of one part. `places` lead from level to level to it."""
    if not places:
        return change(array)
    place, *below = places
    kind, mask = array.type, _nulls(array)
    if pa.types.is_struct(kind):
        parts = [array.field(number) for number in range(kind.num_fields)]
        parts[place] = with_part(parts[place], below, change)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        items = with_part(array.items, below, change)
        return pa.MapArray.from_arrays(_offsets(array), array.keys, items, type=kind, mask=mask)
    values = with_part(array.values, below, change)
    return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=mask)


def _offsets(array: Any) -> pa.Array:
    """Returns the offsets of lists or maps, from 0."""
    if not len(array):
        return pa.array([0], pa.int32())
    offsets = np.asarray(array.offsets.to_numpy(), np.int32)
    return pa.array(offsets - offsets[0], pa.int32())


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _identity(field: pa.Field) -> int | str:
    """Returns the id of a part, or its name before PostgreSQL assigns one."""
    return (field_id(field) if has_id(field) else 0) or str(field.name)


def leaf_at(table: pa.Table, path: str) -> pa.ChunkedArray:
    """Returns a column, or a leaf in a struct by its path `user.id`. A null struct gives a null."""
    name, *fields = path.split(".")
    column = table.column(name)
    return pc.struct_field(column, fields) if fields else column


def has_leaf(schema: pa.Schema, path: str) -> bool:
    """Whether a schema has a column, or a leaf in a struct, with this path."""
    name, *fields = path.split(".")
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    for field in fields:
        place = kind.get_field_index(field) if pa.types.is_struct(kind) else -1
        if place < 0:
            return False
        kind = kind.field(place).type
    return True


def columns_of(paths: Sequence[str]) -> list[str]:
    """Returns the columns that hold leaves, each once."""
    return list(dict.fromkeys(path.partition(".")[0] for path in paths))

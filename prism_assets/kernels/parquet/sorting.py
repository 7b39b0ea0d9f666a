"""Sort orders of rows: by columns, nulls last, with ties in the original order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.kernels.nested_arrays import leaf_at

Indices = npt.NDArray[np.int64]
Key = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def order_of(table: pa.Table, rows: Indices, sort_by: Sequence[str], numbers: Indices) -> Indices:
    """Returns positions within `rows` in sorted order. Ties stay in the order of `numbers`.

    `sort_by` has columns, and leaves in structs by their paths.
    """
    keys = [key[rows] for name in sort_by for key in sort_keys(leaf_at(table, name))]
    if not (np.diff(numbers) >= 0).all():
        keys.append(numbers)
    return sorted_positions(keys)


def sorted_positions(keys: Sequence[Key]) -> Indices:
    """Returns the stable order by the keys, the most significant key first."""
    if len(keys) > 1:
        return np.lexsort(keys[::-1])
    (key,) = keys
    if (key[1:] >= key[:-1]).all():  # as in most logs
        return np.arange(len(key))
    found = _by_packed_numbers(key.astype(np.int64, copy=False)) if key.dtype == np.int64 else None
    return np.argsort(key, kind="stable") if found is None else found


def _by_packed_numbers(key: Indices) -> Indices | None:
    """Returns the stable order by a whole number, or None if number and position need more than 63 bits.

    numpy sorts whole numbers in vectors, in a quarter of the time that a stable sort takes. With the position in the
    lower bits no two of them are equal.
    """
    if not len(key):
        return None
    low, bits = int(key.min()), (len(key) - 1).bit_length()
    if (int(key.max()) - low).bit_length() + bits > 63:
        return None
    packed = ((key - low) << bits) | np.arange(len(key))
    packed.sort()
    return packed & ((1 << bits) - 1)


def sort_keys(column: pa.ChunkedArray) -> list[Key]:
    """Returns numbers with the column's order. A first key sorts nulls last, if there are any."""
    kind = column.type
    whole = column.combine_chunks()
    if pa.types.is_floating(kind):
        key = whole.fill_null(0.0).to_numpy().astype(np.float64)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind):
        key = whole.view(f"int{kind.bit_width}").fill_null(0).to_numpy().astype(np.int64)
    else:
        key = _ranks(whole)
    nulls = [column.is_null().to_numpy().astype(np.int64)] if column.null_count else []
    return [*nulls, key]


def _ranks(column: pa.Array) -> Key:
    """Returns ranks: equal values share one, nulls get 0."""
    coded = column.dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    codes = coded.indices.fill_null(0).to_numpy()
    return ranks[codes] if len(ranks) else np.zeros(len(codes), np.int64)

"""Columns of the inputs of a merge, decoded and joined by the compiled kernel.

Arrow takes a fixed time for each column of each object, the larger part of the time that small objects take. The kernel
decodes one column of all inputs into one array. It knows only the pages that prism_assets stores. Arrow reads the
columns that the kernel refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.compiled import loaded_kernel, log_failure
from prism_assets.kernels.nested_arrays import parts_of
from prism_assets.kernels.parquet.format import identity
from prism_assets.kernels.parquet.merge_inputs import Identity, Input

Indices = npt.NDArray[np.int64]


class CompiledInputs:
    """Inputs, with the wanted rows of each in ascending order. None stands for all rows."""

    def __init__(self, inputs: Sequence[Input], rows: Sequence[Indices | None]) -> None:
        self._reader: Any = None
        module = loaded_kernel().module
        if module is None:
            return
        given = [_given(entry, wanted) for entry, wanted in zip(inputs, rows, strict=True)]
        self._row_count = sum(count if wanted is None else len(wanted) for _, _, count, wanted in given)
        try:
            self._reader = module.ParquetInputs(given)
        except ValueError:  # the kernel does not know the form of an object
            pass
        except RuntimeError as panic:
            log_failure("decodes the inputs of a merge", panic)

    def column(self, field: pa.Field, *, coded: bool) -> pa.Array | None:
        """Returns the wanted rows of a column, with a dictionary if `coded`. None leaves the column to Arrow."""
        if self._reader is None:
            return None
        try:
            return self._decoded(field, coded=coded)
        except ValueError:  # the kernel does not know the pages, or the type differs from the stored one
            pass
        except RuntimeError as panic:
            log_failure(f"decodes the column {field.name} of a merge", panic)
        return None

    def nested(self, field: pa.Field, coded: Collection[Identity]) -> pa.Array | None:
        """Returns the wanted rows of a nested column; texts in `coded` keep dictionaries. None leaves it to Arrow.

        Parts are matched by id. Names are as in the field, and types of leaves as in the inputs.
        """
        wanted = _wanted(field, coded)
        if self._reader is None or wanted is None:
            return None
        try:
            found = self._reader.nested(wanted)
            return pa.nulls(self._row_count, field.type) if found is None else pa.array(found)
        except ValueError:  # the kernel does not know the pages or the form, or the inputs have two types
            pass
        except RuntimeError as panic:
            log_failure(f"decodes the column {field.name} of a merge", panic)
        return None

    def _decoded(self, field: pa.Field, *, coded: bool) -> pa.Array:
        found = self._reader.column(identity(field), coded)
        if found is None:
            return pa.nulls(self._row_count, field.type)
        values, dictionary = found
        if dictionary is not None:
            return pa.DictionaryArray.from_arrays(pa.array(values), pa.array(dictionary))
        array = pa.array(values)
        # Long columns of texts have 64-bit positions until rows are taken.
        return array if pa.types.is_large_string(array.type) else array.cast(field.type)


def _wanted(field: pa.Field, coded: Collection[Identity]) -> tuple[str, int, str, Any] | None:
    """Describes a column or a part to the kernel. None if a part has no id."""
    number, kind = identity(field), field.type
    if not isinstance(number, int):
        return None
    if not pa.types.is_nested(kind):
        return field.name, number, "leaf", number in coded
    form = "struct" if pa.types.is_struct(kind) else "map" if pa.types.is_map(kind) else "list"
    parts = [_wanted(part, coded) for part in parts_of(kind)]
    return None if None in parts else (field.name, number, form, parts)


def _given(entry: Input, wanted: Indices | None) -> tuple[pa.Array, int, int, pa.Array | None]:
    """Returns bytes, row group, its number of rows, and the wanted ones of these, with erased rows counted."""
    count = entry.row_count
    if entry.erased is not None:
        count, kept = len(entry.erased), np.flatnonzero(~entry.erased)
        wanted = kept if wanted is None else kept[wanted]
    body = pa.Array.from_buffers(pa.uint8(), entry.body.size, [None, entry.body])
    return body, entry.row_group, count, None if wanted is None else pa.array(wanted)

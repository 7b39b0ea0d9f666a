"""Fingerprints of rows: 64-bit sums that do not depend on the order of rows.

row = mix(Σ over columns that are not null of mix(value ^ mix(column id))), fingerprint = Σ rows modulo 2^64. A null
adds nothing, so adding a column changes no fingerprint. The value of a string begins as mix(length) and
takes in its bytes, eight at a time, little-endian, filled up with zeros: v = (v ^ word) * 0xBF58476D1CE4E5B9, then v ^=
v >> 31. The value of a timestamp is its milliseconds, for any stored unit. `mix` is the finalizer of
splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Fingerprints are stored, so
this computation must never change.

Nested values add these in place of mix(value ^ mix(column id)), each part with its own id:

- struct: mix(1 ^ mix(id)) + Σ fields. A field added later is null in older rows and changes nothing.
- list: mix(length ^ mix(id)) + Σ mix(element + place from 1) over elements that are not null.
- map: mix(length ^ mix(id)) + Σ mix(key + value), so the order of entries does not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.files.fingerprints import combine
from prism_assets.kernels.compiled import loaded_kernel, log_failure
from prism_assets.kernels.field_ids import COPY_IDS, field_id
from prism_assets.kernels.nested_arrays import parts_of

Words = npt.NDArray[np.uint64]

_ROWS = 1 << 14
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(8)] + [(1 << 64) - 1], np.uint64)


def fingerprint_of(table: pa.Table | pa.RecordBatch) -> int:
    """Returns the signed fingerprint of all rows, with columns by field id. It is 0 without rows.

    Copies of renamed columns do not count, because two objects with the same rows may differ in them.
    """
    module = loaded_kernel().module
    if module is not None:
        try:
            return combine(_compiled(module, batch) for batch in _whole_batches(table))
        except TypeError:  # the kernel does not know the type of a column
            pass
        except RuntimeError as panic:
            log_failure("computes a fingerprint", panic)
    return fingerprint_by_columns(table)


def checked_fingerprint(read: Callable[[], Iterable[pa.Table]], recorded: int) -> int:
    """Returns the fingerprint of all rows of an object, for a comparison with the recorded one.

    `read` yields the rows in parts. Where the fingerprints differ, it is called again, and Python computes the
    fingerprint without the kernel, so that a fault of the kernel blames no object.
    """
    found = combine(map(fingerprint_of, read()))
    return found if found == recorded else combine(map(fingerprint_by_columns, read()))


def fingerprint_by_columns(table: pa.Table | pa.RecordBatch) -> int:
    """Returns `fingerprint_of` the rows, computed without the kernel."""
    total = 0
    for batch in _batches(table):
        total += int(row_hashes(batch).sum(dtype=np.uint64))
    return combine([total])


def _compiled(module: Any, batch: pa.RecordBatch) -> int:
    return int(module.fingerprint([(array, [*_ids(field)]) for field, array in _columns(batch)], batch.num_rows))


def _ids(field: pa.Field) -> Iterator[int]:
    """Yields the ids of a column and of its parts, each before the ids of its own parts."""
    yield field_id(field)
    for part in parts_of(field.type):
        yield from _ids(part)


def _whole_batches(table: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return table.to_batches() if isinstance(table, pa.Table) else [table]


def _batches(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if isinstance(table, pa.Table):
        yield from table.to_batches(max_chunksize=_ROWS)
        return
    for start in range(0, table.num_rows, _ROWS):
        yield table.slice(start, _ROWS)


def row_hashes(batch: pa.RecordBatch) -> Words:
    """Returns one hash per row."""
    rows = np.zeros(batch.num_rows, np.uint64)
    for field, array in _columns(batch):
        rows += _column_hashes(array, field)
    return _mix(rows)


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[pa.Field, pa.Array]]:
    """Yields the columns with a value, without copies. Only fields know all ids: types of arrays may lack some."""
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if array.null_count < len(array) and field_id(field) not in COPY_IDS:
            yield field, array


def _mix(words: Words) -> Words:
    """Mixes in place."""
    words += _GAMMA
    words ^= words >> _S30
    words *= _FIRST
    words ^= words >> _S27
    words *= _SECOND
    words ^= words >> _S31
    return words


def _column_hashes(array: pa.Array, field: pa.Field) -> Words:
    """Returns what each value adds to its row, or to the value around it. Repeated values are hashed once."""
    column_id = field_id(field)
    if pa.types.is_struct(array.type):
        hashes = _struct_hashes(array, field)
    elif pa.types.is_nested(array.type):
        hashes = _list_hashes(array, field)
    elif pa.types.is_boolean(array.type):
        hashes = _hashes_of(np.array([0, 1], np.uint64), column_id).take(_codes(array.cast(pa.int8())))
    elif _is_text(array.type) and _repeats(array):
        coded = array.dictionary_encode()
        hashes = _hashes_of(_texts(coded.dictionary), column_id).take(_codes(coded.indices))
    else:
        hashes = _hashes_of(_values(array), column_id)
    if array.null_count:
        hashes[_nulls(array)] = 0
    return hashes


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))


def _struct_hashes(array: pa.StructArray, field: pa.Field) -> Words:
    hashes = np.full(len(array), _hashes_of(np.array([1], np.uint64), field_id(field))[0])
    for part, values in zip(field.type, array.flatten(), strict=True):
        if values.null_count < len(values):
            hashes += _column_hashes(values, part)
    return hashes


def _list_hashes(array: Any, field: pa.Field) -> Words:
    """Returns the hashes of lists or maps."""
    offsets = np.asarray(array.offsets.to_numpy(), np.int64)
    first, lengths = int(offsets[0]), np.diff(offsets)
    count = int(offsets[-1]) - first
    if pa.types.is_map(array.type):
        keys, values = array.keys.slice(first, count), array.items.slice(first, count)
        hashes = _mix(_column_hashes(keys, field.type.key_field) + _column_hashes(values, field.type.item_field))
    else:
        values = array.values.slice(first, count)
        places = np.arange(1, count + 1) - np.repeat(offsets[:-1] - first, lengths)
        hashes = _mix(_column_hashes(values, field.type.value_field) + places.astype(np.uint64))
        if values.null_count:
            hashes[_nulls(values)] = 0
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    ends = offsets - first
    hashes = _hashes_of(lengths.astype(np.uint64), field_id(field))
    hashes += sums[ends[1:]] - sums[ends[:-1]]
    return hashes


def _hashes_of(words: Words, column_id: int) -> Words:
    """Hashes the words of a column's values in place."""
    words ^= _mix(np.array([column_id], np.uint64))
    return _mix(words)


def _codes(array: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the place of each value in the dictionary, 0 for nulls."""
    return np.asarray((array.fill_null(0) if array.null_count else array).to_numpy(), np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _repeats(array: pa.Array) -> bool:
    return len(array) >= 1024 and pc.count_distinct(array[:256]).as_py() < 64


def _values(array: pa.Array) -> Words:
    """Returns a new array with one word per value, and any word for nulls."""
    kind = array.type
    if _is_text(kind):
        return _texts(array)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_floating(kind):
        numbers = _plain(array, np.float64 if kind == pa.float64() else np.float32).astype(np.float64)
        numbers += 0.0
        return numbers.view(np.uint64)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _milliseconds(_plain(array, np.int64)).view(np.uint64)
    width = array.type.bit_width // 8
    return _plain(array, np.dtype(f"i{width}")).astype(np.int64).view(np.uint64)


def _milliseconds(microseconds: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Returns timestamps in milliseconds. Fractions of one, which no object of the lake has, give another hash."""
    whole, part = np.divmod(microseconds.astype(np.int64), 1000)
    return np.where(part == 0, whole, microseconds) if part.any() else whole


def _plain(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Returns the buffer of values, with any content at nulls."""
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, dtype, len(array) + array.offset)[array.offset :]


def _decimals(array: pa.Array) -> Words:
    """Returns a hash of each number without its decimal point, because the scale of a column never changes."""
    halves = np.frombuffer(array.buffers()[1], np.uint64, 2 * (len(array) + array.offset))[2 * array.offset :]
    low, high = (halves[0::2], halves[1::2]) if sys.byteorder == "little" else (halves[1::2], halves[0::2])
    return _mix(low.copy()) + high


def _texts(array: pa.Array) -> Words:
    """Hashes each string: its length, then all bytes eight at a time, the last ones filled up with zeros."""
    offset_type = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, offset_type, len(array) + array.offset + 1)[array.offset :]
    starts = offsets[:-1].astype(np.int64) - int(offsets[0])
    lengths = np.diff(offsets).astype(np.int64)
    if data is None or offsets[-1] == offsets[0]:
        return _mix(lengths.astype(np.uint64))
    start, stop, length = int(offsets[0]), int(offsets[-1]), int(lengths[0])
    if lengths.min() < length or lengths.max() > length:
        words = _mix(lengths.astype(np.uint64))
        _add_words(words, _at_each_byte(_padded(data, start, stop)), starts, lengths)
        return words
    words = np.full(len(lengths), _mix(lengths[:1].astype(np.uint64))[0])
    whole = length % 8 == 0  # then no word reaches beyond the end
    content = np.frombuffer(data, np.uint8, stop - start, start) if whole else _padded(data, start, stop)
    _add_even_words(words, content, length)
    return words


def _padded(data: pa.Buffer, start: int, stop: int) -> npt.NDArray[np.uint8]:
    """Returns a copy of bytes, filled up with zeros, so that a word begins at each byte."""
    padded = np.zeros(stop - start + 8, np.uint8)
    padded[: stop - start] = np.frombuffer(data, np.uint8, stop - start, start)
    return padded


def _at_each_byte(padded: npt.NDArray[np.uint8]) -> Words:
    """Returns a view with a little-endian word at each byte."""
    return np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))


def _add_even_words(words: Words, content: npt.NDArray[np.uint8], length: int) -> None:
    """Folds the words of strings of one length, such as keys, without a search for their beginnings."""
    for start in range(0, length, 8):
        word = np.ndarray((len(words),), "<u8", content, start, (length,))
        if length - start < 8:
            word = word & _MASKS[length - start]
        _fold(words, word)


def _add_words(words: Words, view: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
    """Folds the words of each string into its hash; a string drops out after its last word."""
    rows: npt.NDArray[np.int64] | None = None
    left, position = lengths, starts
    while True:
        shortest = int(left.min()) if len(left) else 0
        if shortest <= 0:
            inside = np.flatnonzero(left > 0)
            if not len(inside):
                return
            left, position = left[inside], position[inside]
            rows = inside if rows is None else rows[inside]
        word = view[position]
        if shortest < 8:
            word &= _MASKS[np.minimum(left, 8)]
        if rows is None:
            _fold(words, word)
        else:
            words[rows] = _fold(words[rows], word)
        left, position = left - 8, position + 8


def _fold(words: Words, word: Words) -> Words:
    """Folds one more word into hashes in place. Half of `mix` is enough, because the sum of the row is mixed, too."""
    words ^= word
    words *= _FIRST
    words ^= words >> _S31
    return words

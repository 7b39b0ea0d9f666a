"""The value rules of the column types, a whole column at a time; what has no short way goes value by value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.tables import INTEGER_TYPES, Column
from prism_assets.kernels import times, values
from prism_assets.kernels.typed import ColumnBuilder, Indices, Layout, Misfits, stored_type, to_array

Doubles = npt.NDArray[np.float64]

_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", "UTC")
_NAIVE_NANOS = pa.timestamp("ns")
_UTC_NANOS = pa.timestamp("ns", "UTC")
_EXACT_DOUBLES = 1 << 53


class InexactError(Exception):
    """The columns of a key cannot be judged from what was read; its JSON text is needed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source


@dataclass(frozen=True)
class Typed:
    """A typed column and the rows, by reason, whose values did not fit."""

    array: pa.Array
    misfits: dict[str, Indices]


def type_column(layout: Layout, position: int, read: pa.Array) -> tuple[pa.Array, list[Misfits]]:
    """Gives a column that was read as strings, 64-bit numbers or booleans its type.

    Raises InexactError if that takes more than what was read.
    """
    typed = _typed(layout, position, read)
    misfits = [Misfits(position, reason, rows) for reason, rows in typed.misfits.items() if len(rows)]
    return typed.array, misfits


def _typed(layout: Layout, position: int, read: pa.Array) -> Typed:
    column = layout.columns[position]
    if read.null_count == len(read):
        return Typed(pa.nulls(len(read), stored_type(column)), {})
    if pa.types.is_string(read.type):
        return _from_strings(layout, position, read)
    if pa.types.is_boolean(read.type):
        return Typed(read, {})
    if column.type in INTEGER_TYPES:
        return _integers(column, read)
    if column.type in ("timestamp", "date"):
        return _in_zone(layout, position, _unix_times(column, read))
    return _floats(column, read)


def _from_strings(layout: Layout, position: int, read: pa.Array) -> Typed:
    column = layout.columns[position]
    quick: Typed | None = None
    if column.type == "string":
        return _cut(column, read)
    if column.type == "timestamp":
        quick = _timestamps(column, read)
    elif column.type == "date":
        quick = _dates(read) or _in_zone_or_none(layout, position, _timestamps(column, read))
    elif column.type in INTEGER_TYPES:
        quick = _numeric_strings(column, read)
    return quick or _one_by_one(layout, position, read)


def _one_by_one(layout: Layout, position: int, read: pa.Array) -> Typed:
    builder = ColumnBuilder(position, layout.columns[position], layout.rules[position])
    for text in read.to_pylist():
        builder.add(text, "")
    return Typed(builder.array(), {misfits.reason: misfits.rows for misfits in builder.misfits()})


def _cut(column: Column, read: pa.Array) -> Typed:
    length = values.length_of(column)
    longest = pc.max(pc.binary_length(read)).as_py()
    if longest <= length:
        return Typed(read, {})
    long = pc.fill_null(pc.greater(pc.binary_length(read), length), False)
    rows = np.flatnonzero(long.to_numpy(zero_copy_only=False))
    texts = [values.cut(text, length) for text in read.filter(long).to_pylist()]
    return Typed(pc.replace_with_mask(read, long, pa.array(texts, pa.string())), {values.CUT: rows})


def _integers(column: Column, read: pa.Array) -> Typed:
    bits = INTEGER_TYPES[column.type]
    if bits == 64:
        return Typed(read, {})
    top = 1 << (bits - 1)
    extremes = pc.min_max(read).as_py()
    if extremes["min"] >= -top and extremes["max"] < top:
        return Typed(read.cast(stored_type(column)), {})
    fits = pc.and_(pc.greater_equal(read, -top), pc.less(read, top))
    kept = pc.if_else(fits, read, pa.scalar(None, pa.int64()))
    return Typed(kept.cast(stored_type(column)), {values.OUT_OF_RANGE: _newly_null(read, kept)})


def _numeric_strings(column: Column, read: pa.Array) -> Typed | None:
    if pc.all(pc.match_substring_regex(read, r"^-?[0-9]{1,18}$")).as_py():
        return _integers(column, read.cast(pa.int64()))
    return None


def _floats(column: Column, read: pa.Array) -> Typed:
    overflow = values.REAL_OVERFLOW if column.type == "real" else float("inf")
    numbers = np.abs(read.to_numpy(zero_copy_only=False))
    if not (numbers >= overflow).any() and int(np.isnan(numbers).sum()) == read.null_count:
        return Typed(read.cast(stored_type(column)), {})
    fits = pa.array(numbers < overflow)
    kept = pc.if_else(fits, read, pa.scalar(None, pa.float64()))
    return Typed(kept.cast(stored_type(column)), {values.NOT_FINITE: _newly_null(read, kept)})


def _newly_null(before: pa.Array, after: pa.Array) -> Indices:
    lost = pc.and_(before.is_valid(), after.is_null())
    return np.flatnonzero(lost.to_numpy(zero_copy_only=False))


def _timestamps(column: Column, read: pa.Array) -> Typed | None:
    """Reads ISO 8601 with an offset everywhere or nowhere; None if these are other strings."""
    for naive, with_offset, per_ms in ((_NAIVE, _UTC, 1_000), (_NAIVE_NANOS, _UTC_NANOS, 1_000_000)):
        instants = _cast_or_none(read, with_offset)
        if instants is not None:
            return _in_years(_floored(instants, per_ms))
        local = _cast_or_none(read, naive)
        if local is not None:
            return _in_years(pc.subtract(_floored(local, per_ms), values.source_offset(column)))
    return None


def _cast_or_none(read: pa.Array, target: pa.DataType) -> pa.Array | None:
    try:
        return read.cast(target)
    except pa.ArrowInvalid:
        return None


def _floored(instants: pa.Array, per_ms: int) -> pa.Array:
    return _integers_of(np.floor_divide(_numbers(instants.view(pa.int64())), per_ms), instants)


def _numbers(read: pa.Array) -> Indices:
    """The values of an int64 array, 0 for nulls."""
    filled = read.fill_null(0) if read.null_count else read
    return np.asarray(filled.to_numpy(), np.int64)


def _integers_of(numbers: Indices, like: pa.Array) -> pa.Array:
    """The numbers as an array that is null where `like` is."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(numbers, pa.int64(), mask=mask)


def _in_years(instants: pa.Array) -> Typed:
    """Sets aside what lies outside the years 1 to 9999."""
    target = pa.timestamp("ms", "UTC")
    numbers = _numbers(instants)
    if len(numbers) and numbers.min() >= times.FIRST_INSTANT and numbers.max() <= times.LAST_INSTANT:
        return Typed(instants.view(target), {})
    fits = pa.array((numbers >= times.FIRST_INSTANT) & (numbers <= times.LAST_INSTANT))
    kept = pc.if_else(fits, instants, pa.scalar(None, pa.int64()))
    return Typed(kept.view(target), {values.UNFIT: _newly_null(instants, kept)})


def _unix_times(column: Column, read: pa.Array) -> Typed:
    unit = column.time_unit or "seconds"
    if pa.types.is_integer(read.type):
        return _in_years(_integers_of(_whole_unix_times(_numbers(read), unit), read))
    numbers = (read.fill_null(0.0) if read.null_count else read).to_numpy()
    if not (np.abs(numbers) < _EXACT_DOUBLES).all():
        raise InexactError(column.source)
    return _in_years(_integers_of(_fractional_unix_times(numbers, unit), read))


def _whole_unix_times(numbers: Indices, unit: str) -> Indices:
    if unit == "microseconds":
        return np.floor_divide(numbers, 1000)
    if unit == "milliseconds":
        return numbers
    # What would overflow lies far outside the accepted years either way.
    seconds = np.clip(numbers, -times.SECONDS_LIMIT, times.SECONDS_LIMIT) * 1000
    return np.where(numbers > times.SECONDS_LIMIT, numbers, seconds)


def _fractional_unix_times(numbers: Doubles, unit: str) -> Indices:
    whole = _whole_unix_times(np.trunc(numbers).astype(np.int64), unit)
    factor = {"seconds": 1e6, "milliseconds": 1e3, "microseconds": 1.0}[unit]
    scale = np.where(numbers > times.SECONDS_LIMIT, 1e3, factor) if unit == "seconds" else factor
    with np.errstate(over="ignore", invalid="ignore"):
        micros = np.clip(np.rint(numbers * scale), -9e18, 9e18).astype(np.int64)
    return np.where(numbers == np.trunc(numbers), whole, np.floor_divide(micros, 1000))


def _dates(read: pa.Array) -> Typed | None:
    days = _cast_or_none(read, pa.date32())
    if days is None:
        return None
    extremes = pc.min_max(days.view(pa.int32())).as_py()
    if extremes["min"] < times.FIRST_INSTANT // 86_400_000:
        return None
    return Typed(days, {})


def _in_zone_or_none(layout: Layout, position: int, instants: Typed | None) -> Typed | None:
    return instants and _in_zone(layout, position, instants)


def _in_zone(layout: Layout, position: int, instants: Typed) -> Typed:
    """For a date column the day of each instant in the table's zone; for a timestamp the instant itself."""
    column = layout.columns[position]
    if column.type == "timestamp":
        return instants
    zone = layout.table.zone
    found = instants.array.view(pa.int64()).dictionary_encode()
    days = [times.day_of(instant, zone) for instant in found.dictionary.to_pylist()]
    array = pa.array(days, pa.int32()).take(found.indices)
    lost = _newly_null(instants.array, array)
    unfit = np.union1d(instants.misfits.get(values.UNFIT, lost), lost)
    return Typed(to_array(array, column), {values.UNFIT: unfit})

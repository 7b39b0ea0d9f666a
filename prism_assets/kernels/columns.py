"""The value rules of the column types for many values at once: results of expressions, and numbers of lines.

A rule takes strings, 64-bit numbers or booleans, not all null. It returns the stored values and the rows without one,
exactly as the rule of one value in `values.py`, or None for strings without a fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.columns.column import SECONDS_LIMIT
from prism_assets.domain.days.lengths import CUT
from prism_assets.kernels import times, values
from prism_assets.kernels.times import TimeOptions
from prism_assets.kernels.values import Rule

Indices = npt.NDArray[np.int64]

_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", "UTC")
_NAIVE_NANOS = pa.timestamp("ns")
_UTC_NANOS = pa.timestamp("ns", "UTC")
_GLANCE = 256
_DAY = r"[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.,][0-9]{1,9})?"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
_FORMS_OF_TIMES = (
    f"^{_DAY}{_TIME}{_OFFSET}$",
    f"^{_DAY}{_TIME}$",
    f"^{_DAY}{_TIME}{_OFFSET}{times.ZONE_SUFFIX}$",
)
"""Forms of valid times. The rule of one value decides about the last day of a February."""
_DIGITS = r"^-?[0-9]{1,18}$"
_FRACTION = r"^-?[0-9]{1,15}(?:\.[0-9]{1,25})?$"
_MILLISECONDS = pa.timestamp("ms", "UTC")


@dataclass(frozen=True)
class Typed:
    """A typed column and the rows, by reason, whose values did not fit."""

    array: pa.Array
    misfits: dict[str, Indices]
    inside: dict[tuple[str, str], Indices] = field(default_factory=dict)
    """Rows with misfits in a nested column, by path below the column and reason."""


ColumnRule = Callable[[pa.Array], Typed | None]


@dataclass
class ColumnBuilder:
    """Collects the values of one column one by one."""

    rule: Rule
    arrow: pa.DataType
    values: list[Any] = field(default_factory=list)
    reasons: dict[str, list[int]] = field(default_factory=dict)

    def add(self, value: Any, raw: str) -> None:
        """Adds a JSON value (None for null or none) with its text."""
        if value is None:
            self.values.append(None)
            return
        stored, reason = (None, values.NOT_FINITE) if type(value) is values.Constant else self.rule(value, raw)
        if reason is not None:
            self.reasons.setdefault(reason, []).append(len(self.values))
        self.values.append(stored)

    def typed(self) -> Typed:
        """Returns the values as an Arrow array of the stored type, and the rows without one."""
        misfits = {reason: np.array(rows, np.int64) for reason, rows in self.reasons.items()}
        return Typed(to_array(self.values, self.arrow), misfits)


def to_array(stored: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Returns an Arrow array of values that rules returned: instants and days are integers."""
    if pa.types.is_nested(arrow):
        return _nested_array(stored, arrow)
    if pa.types.is_temporal(arrow):
        return pa.array(stored, f"int{arrow.bit_width}").view(arrow)
    if pa.types.is_float32(arrow):
        return pa.array(stored, pa.float64()).cast(arrow)
    return pa.array(stored, arrow)


def _nested_array(stored: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Returns an array of tuples of fields, lists of elements, or lists of pairs."""
    nulls = pa.array([value is None for value in stored], pa.bool_())
    if pa.types.is_struct(arrow):
        columns = [[None if value is None else value[place] for value in stored] for place in range(arrow.num_fields)]
        parts = [to_array(column, part.type) for column, part in zip(columns, arrow, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=nulls)
    lengths = [0 if value is None else len(value) for value in stored]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())
    held = [item for value in stored if value is not None for item in value]
    if pa.types.is_map(arrow):
        keys = to_array([key for key, _ in held], arrow.key_type)
        items = to_array([item for _, item in held], arrow.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=arrow, mask=nulls)
    return pa.ListArray.from_arrays(offsets, to_array(held, arrow.value_type), type=arrow, mask=nulls)


def one_by_one(_read: pa.Array) -> None:
    """The rule of types without a fast way."""


def string_rule(length: int) -> ColumnRule:
    """Returns the rule of strings: cut at a character to `length` bytes."""

    def rule(read: pa.Array) -> Typed:
        longest = pc.max(pc.binary_length(read)).as_py()
        if longest <= length:
            return Typed(read, {})
        long = pc.fill_null(pc.greater(pc.binary_length(read), length), False)
        rows = np.flatnonzero(long.to_numpy(zero_copy_only=False))
        texts = [values.cut(text, length) for text in read.filter(long).to_pylist()]
        return Typed(pc.replace_with_mask(read, long, pa.array(texts, pa.string())), {CUT: rows})

    return rule


def boolean_rule(read: pa.Array) -> Typed | None:
    """The rule of booleans, which stay as they are."""
    return None if pa.types.is_string(read.type) else Typed(read, {})


def whole_number_rule(lowest: int, highest: int, arrow: pa.DataType) -> ColumnRule:
    """Returns the rule of whole numbers. Strings with few enough digits for 64 bits are cast."""
    exact = values.whole_number_rule(lowest, highest)

    def fitting(read: pa.Array) -> Typed:
        return _fitting(read.cast(pa.int64()), lowest, highest, arrow)

    def rule(read: pa.Array) -> Typed:
        if pa.types.is_string(read.type):
            return _by_form(read, (_DIGITS,), fitting, exact, arrow)
        return fitting(read)

    return rule


def _fitting(read: pa.Array, lowest: int, highest: int, arrow: pa.DataType) -> Typed:
    if arrow == read.type:
        return Typed(read, {})
    extremes = pc.min_max(read).as_py()
    if extremes["min"] >= lowest and extremes["max"] <= highest:
        return Typed(read.cast(arrow), {})
    fits = pc.and_(pc.greater_equal(read, lowest), pc.less_equal(read, highest))
    kept = pc.if_else(fits, read, pa.scalar(None, pa.int64()))
    return Typed(kept.cast(arrow), {values.OUT_OF_RANGE: _newly_null(read, kept)})


def float_rule(overflow: float, arrow: pa.DataType) -> ColumnRule:
    """Returns the rule of doubles below `overflow`. Strings of digits far below it are cast."""
    exact = values.float_rule(overflow)

    def cast(read: pa.Array) -> Typed:
        return Typed(read.cast(pa.float64()).cast(arrow), {})

    def rule(read: pa.Array) -> Typed:
        if pa.types.is_string(read.type):
            return _by_form(read, (_FRACTION,), cast, exact, arrow)
        numbers = np.abs(read.to_numpy(zero_copy_only=False))
        if not (numbers >= overflow).any() and int(np.isnan(numbers).sum()) == read.null_count:
            return Typed(read.cast(arrow), {})
        fits = pa.array(numbers < overflow)
        kept = pc.if_else(fits, read, pa.scalar(None, pa.float64()))
        return Typed(kept.cast(arrow), {values.NOT_FINITE: _newly_null(read, kept)})

    return rule


def timestamp_rule(options: TimeOptions) -> ColumnRule:
    """Returns the rule of instants, from ISO 8601 or unix time."""
    exact = values.timestamp_rule(options)

    def instants(read: pa.Array) -> Typed | None:
        return _instants(read, options)

    def rule(read: pa.Array) -> Typed:
        return instants(read) or _by_form(read, _FORMS_OF_TIMES, instants, exact, _MILLISECONDS)

    return rule


def date_rule(options: TimeOptions) -> ColumnRule:
    """Returns the rule of days, from ISO dates, or from instants in the table's zone."""

    def rule(read: pa.Array) -> Typed | None:
        if pa.types.is_string(read.type) and (days := _dates(read)) is not None:
            return days
        instants = _instants(read, options)
        return None if instants is None else days_of(instants, options.zone)

    return rule


def _newly_null(before: pa.Array, after: pa.Array) -> Indices:
    lost = pc.and_(before.is_valid(), after.is_null())
    return np.flatnonzero(lost.to_numpy(zero_copy_only=False))


def _instants(read: pa.Array, options: TimeOptions) -> Typed | None:
    """Returns None unless all strings are times of one form."""
    if pa.types.is_string(read.type):
        return _timestamps(read, options.source_offset)
    return _unix_times(read, options.unit)


def _by_form(read: pa.Array, forms: Sequence[str], by_column: ColumnRule, exact: Rule, arrow: pa.DataType) -> Typed:
    """Types strings of the usual forms, found by regular expression, all at once, and other strings one by one."""
    parts: list[tuple[Indices, Typed]] = []
    texts, left = read, np.arange(len(read))
    for form in forms:
        matches = pc.match_substring_regex(texts, form)
        if not pc.any(matches).as_py():
            continue
        usual = pc.fill_null(matches, True)  # nulls are cast as they are
        typed = by_column(texts.filter(usual))
        if typed is not None:
            rows = np.asarray(usual, bool)
            parts.append((left[rows], typed))
            texts, left = texts.filter(pc.invert(usual)), left[~rows]
    if not len(left) and len(parts) == 1:
        return parts[0][1]
    rest = ColumnBuilder(exact, arrow)
    for text in texts.to_pylist():
        rest.add(text, "")
    parts.append((left, rest.typed()))
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    misfits: dict[str, list[Indices]] = {}
    for rows, typed in parts:
        for reason, found in typed.misfits.items():
            misfits.setdefault(reason, []).append(rows[found])
    return Typed(
        pa.concat_arrays([typed.array for _, typed in parts]).take(pa.array(order)),
        {reason: np.sort(np.concatenate(rows)) for reason, rows in misfits.items()},
    )


def _timestamps(read: pa.Array, source_offset: int) -> Typed | None:
    """Reads ISO 8601 with an offset everywhere or nowhere; None for other strings.

    A zone after an offset is dropped, because the offset alone gives the instant. A zone without an offset decides.
    """
    first = read.drop_null()[0].as_py() if read.null_count < len(read) else ""
    if "," in first:  # as Python's logging writes fractions
        read = pc.replace_substring(read, ",", ".", max_replacements=1)
    if first.endswith("]"):
        return _with_zones(read)
    for naive, with_offset, per_ms in ((_NAIVE, _UTC, 1_000), (_NAIVE_NANOS, _UTC_NANOS, 1_000_000)):
        instants = _cast_or_none(read, with_offset)
        if instants is not None:
            return in_years(floored(instants, per_ms))
        local = _cast_or_none(read, naive)
        if local is not None:
            return in_years(pc.subtract(floored(local, per_ms), source_offset))
    return None


def _with_zones(read: pa.Array) -> Typed | None:
    """Reads ISO 8601 with an offset everywhere, and zones after some of them."""
    bare = pc.replace_substring_regex(read, f"{times.ZONE_SUFFIX}$", "")
    for target, per_ms in ((_UTC, 1_000), (_UTC_NANOS, 1_000_000)):
        instants = _cast_or_none(bare, target)
        if instants is not None:
            return in_years(floored(instants, per_ms))
    return None


def _cast_or_none(read: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Casts strings to another type; None if one of them cannot be cast.

    One string is cast before the others: Arrow builds an error for each failure, which takes thirty times as long.
    """
    try:
        read.slice(0, _GLANCE).drop_null().slice(0, 1).cast(target)
        return read.cast(target)
    except pa.ArrowInvalid:
        return None


def floored(instants: pa.Array, per_ms: int) -> pa.Array:
    """Rounds instants down to whole milliseconds, as int64; `per_ms` is the number of their units in one."""
    return _integers_of(np.floor_divide(_numbers(instants.view(pa.int64())), per_ms), instants)


def _numbers(read: pa.Array) -> Indices:
    """Returns the values of an int64 array, 0 for nulls."""
    filled = read.fill_null(0) if read.null_count else read
    return np.asarray(filled.to_numpy(), np.int64)


def _integers_of(numbers: Indices, like: pa.Array) -> pa.Array:
    """Returns the numbers as an array with the nulls of `like`."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(numbers, pa.int64(), mask=mask)


def in_years(instants: pa.Array) -> Typed:
    """Sets aside instants, in milliseconds as int64, outside the years 1 to 9999."""
    numbers = _numbers(instants)
    if len(numbers) and numbers.min() >= times.FIRST_INSTANT and numbers.max() <= times.LAST_INSTANT:
        return Typed(instants.view(_MILLISECONDS), {})
    fits = pa.array((numbers >= times.FIRST_INSTANT) & (numbers <= times.LAST_INSTANT))
    kept = pc.if_else(fits, instants, pa.scalar(None, pa.int64()))
    return Typed(kept.view(_MILLISECONDS), {values.UNFIT: _newly_null(instants, kept)})


def _unix_times(read: pa.Array, unit: str) -> Typed:
    return in_years(_integers_of(_whole_unix_times(_numbers(read), unit), read))


def _whole_unix_times(numbers: Indices, unit: str) -> Indices:
    if unit == "microseconds":
        return np.floor_divide(numbers, 1000)
    if unit == "milliseconds":
        return numbers
    # Values that would overflow lie far outside the accepted years.
    seconds = np.clip(numbers, -SECONDS_LIMIT, SECONDS_LIMIT) * 1000
    return np.where(numbers > SECONDS_LIMIT, numbers, seconds)


def _dates(read: pa.Array) -> Typed | None:
    days = _cast_or_none(read, pa.date32())
    if days is None:
        return None
    extremes = pc.min_max(days.view(pa.int32())).as_py()
    if extremes["min"] < times.FIRST_INSTANT // 86_400_000:
        return None
    return Typed(days, {})


def days_of(instants: Typed, zone: ZoneInfo) -> Typed:
    """Returns the day of each instant in a zone."""
    found = instants.array.view(pa.int64()).dictionary_encode()
    days = [times.day_of(instant, zone) for instant in found.dictionary.to_pylist()]
    array = pa.array(days, pa.int32()).take(found.indices)
    lost = _newly_null(instants.array, array)
    unfit = np.union1d(instants.misfits.get(values.UNFIT, lost), lost)
    return Typed(array.view(pa.date32()), {values.UNFIT: unfit})

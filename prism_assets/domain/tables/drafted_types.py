"""Types that lose nothing of the values in a sample, and the evidence in words.

Types are never narrow, because a sample does not show future values. If at most one in a hundred values has another
kind, the type is the one of the majority, and the others are null and counted. If a type would change values silently,
such as a fraction in bigint or a 0 among times, it is a string, because strings take every value. Only the time
column, which decides the day of a row, tolerates numbers that are no times, and nested values: such lines are
quarantined.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta, timezone

from prism_assets.domain.columns.column import SECONDS_LIMIT, TIME_UNITS
from prism_assets.domain.columns.types import (
    DEFAULT_LENGTH,
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DoubleType,
    JsonType,
    LeafType,
    StringType,
    TimestampType,
)
from prism_assets.domain.streams.survey import NANOSECONDS, KeyEvidence, ValueKind
from prism_assets.domain.tables.definition import FUTURE_DAYS, PAST_DAYS
from prism_assets.domain.text import counted

ALMOST_ALL = 0.99
"""The share of values that decides the type of a key, and of lines that decides their format."""
_SHORTEST = 256  # later values are longer than a sample's: addresses, client names, messages
_LIKE_A_TIME = re.compile(
    r"(^|_)(time|timestamp|ts|at|date|datetime|msec|epoch|when|start|end)($|_)|(^|_)(created|updated|modified|occurred)$"
)
_NUMBERS = {ValueKind.WHOLE, ValueKind.FRACTION}


def times_in(evidence: KeyEvidence) -> int:
    """Returns how many values are times."""
    return written_times(evidence) + evidence.unix.total() + evidence.access_log


def is_time_key(evidence: KeyEvidence, name: str) -> bool:
    """Whether almost all values are times. Numbers count only under a fitting name, because ids look like them."""
    written = written_times(evidence)
    if 0 < written >= ALMOST_ALL * evidence.values or is_of_access_log(evidence):
        return True
    return unix_unit(evidence, name) is not None


def is_of_access_log(evidence: KeyEvidence) -> bool:
    """Whether almost all values are times as access logs have them. Columns do not read these, but expressions do."""
    return 0 < evidence.access_log >= ALMOST_ALL * evidence.values


def is_a_version(evidence: KeyEvidence, name: str, now: datetime) -> bool:
    """Whether every line has the same old date, without a name of a time: an API version, for example."""
    is_one_day = evidence.kinds[ValueKind.DAY] == evidence.values > 1 and evidence.earliest == evidence.latest
    return is_one_day and not is_accepted(evidence, now) and not _LIKE_A_TIME.search(name)


def unix_unit(evidence: KeyEvidence, name: str) -> str | None:
    """Returns the unit of unix times if almost all values are times in this unit or written times, else None."""
    unit = _best_unit(evidence)
    written = 0 if unit == NANOSECONDS else written_times(evidence)
    is_time = _LIKE_A_TIME.search(name) and _read_in(evidence, unit) + written >= ALMOST_ALL * evidence.values
    return unit if is_time else None


def _best_unit(evidence: KeyEvidence) -> str | None:
    """Returns the unit in which most numbers are their likely times, or None without times."""
    return max(evidence.unix, key=lambda unit: (_read_in(evidence, unit), evidence.unix[unit]), default=None)


def _read_in(evidence: KeyEvidence, unit: str | None) -> int:
    """Returns how many numbers a column with this unit, or without one, reads as their likely times."""
    unit = unit or "seconds"
    takes_milliseconds = unit == "seconds" and evidence.earliest is not None and evidence.earliest > SECONDS_LIMIT
    return evidence.unix[unit] + (evidence.unix["milliseconds"] if takes_milliseconds else 0)


def written_times(evidence: KeyEvidence) -> int:
    """Returns how many values are times or dates as text."""
    return evidence.kinds[ValueKind.INSTANT] + evidence.kinds[ValueKind.DAY]


def is_accepted(evidence: KeyEvidence, now: datetime) -> bool:
    """Whether a table without `accept` takes all times."""
    if evidence.earliest is None or evidence.latest is None:
        return False
    low, high = now - timedelta(days=PAST_DAYS), now + timedelta(days=FUTURE_DAYS)
    return low <= instant_of(evidence.earliest) and instant_of(evidence.latest) <= high


def instant_of(milliseconds: int) -> datetime:
    """Returns the instant of a unix time."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)


def leaf_type(evidence: KeyEvidence, name: str, *, is_time: bool) -> tuple[LeafType, str | None]:
    """Returns the type, and the unit of unix times.

    Only the partition's time column (`is_time`) may read some numbers differently or drop nested values, because its
    lines without a time are quarantined.
    """
    kinds = evidence.kinds

    def almost_all(*wanted: ValueKind) -> bool:
        return sum(kinds[kind] for kind in wanted) >= ALMOST_ALL * evidence.values

    if not evidence.values or (kinds[ValueKind.NESTED] and not is_time):
        return JsonType(), None
    if almost_all(ValueKind.DAY) and not kinds[ValueKind.INSTANT] and not evidence.numbers:
        return DateType(), None
    if _is_timestamp(evidence, name):
        unit = _time_unit(evidence)
        if is_time or _read_in(evidence, unit) == evidence.numbers:
            return TimestampType(), unit
    if almost_all(ValueKind.BOOLEAN):
        return BooleanType(), None
    if almost_all(*_NUMBERS) and not kinds[ValueKind.HUGE] and not evidence.numeric:
        if not kinds[ValueKind.FRACTION]:
            return BigIntType(), None
        if not evidence.rounded:
            return DoubleType(), None
    return StringType(), None


def wide_type(evidence: KeyEvidence, kind: ColumnType) -> ColumnType:
    """Returns a type with room for fractions after whole numbers, and hours after dates. Numbers stay numbers.

    Whole numbers that a double would round are ids and get no fractions. Quoted numbers stay as written.
    """
    if isinstance(kind, TimestampType) and evidence.numbers:
        return StringType() if written_times(evidence) or evidence.numeric else DoubleType()
    if isinstance(kind, BigIntType) and not evidence.rounded:
        return DoubleType()
    return TimestampType() if isinstance(kind, DateType) else kind


def _is_timestamp(evidence: KeyEvidence, name: str) -> bool:
    """Whether a timestamp column reads almost all values."""
    is_computed = unix_unit(evidence, name) == NANOSECONDS or is_of_access_log(evidence)
    return is_time_key(evidence, name) and not is_computed


def _time_unit(evidence: KeyEvidence) -> str | None:
    """Returns the unit for a timestamp column's numbers, or None if it needs none."""
    unit = _best_unit(evidence)
    return unit if unit in TIME_UNITS else None


def length_for(longest: int) -> int:
    """Returns a generous length, because longer values are cut: the next power of two after twice the longest."""
    return min(max(1 << math.ceil(math.log2(max(2 * longest, 1))), _SHORTEST), DEFAULT_LENGTH)


_OF_TYPE: Mapping[type[ColumnType], Collection[ValueKind]] = {
    JsonType: tuple(ValueKind),
    BigIntType: (ValueKind.WHOLE,),
    DoubleType: (ValueKind.WHOLE, ValueKind.FRACTION),
    BooleanType: (ValueKind.BOOLEAN,),
    DateType: (ValueKind.DAY,),
    TimestampType: (ValueKind.INSTANT, ValueKind.DAY),
    StringType: (ValueKind.TEXT,),
}


def comment_on(evidence: KeyEvidence, name: str, kind: ColumnType, unit: str | None, lines: int | None) -> str:
    """Returns on how many lines the key has a value, and kinds of values the type does not cover.

    `lines` is None for a key around records.
    """
    text = f"{evidence.values:,} around records" if lines is None else f"{evidence.values:,} of {lines:,} lines"
    if kind.takes_length and evidence.values:
        text += f", at most {evidence.longest:,} bytes"
        text += f"; {evidence.beyond:,} have more than a column takes" if evidence.beyond else ""
    if not isinstance(kind, JsonType) and _is_timestamp(evidence, name):
        text += "".join(f"; {words}" for words in _numbers_among_times(evidence, kind, unit))
    if isinstance(kind, StringType) and evidence.numeric == evidence.values:
        return f"{text}; all are numbers in quotes, which double and decimal take, too, and bigint without fractions"
    if evidence.rounded and not isinstance(kind, BigIntType):
        text += f"; {counted(evidence.rounded, 'number')} more exact than double"
    return "; ".join([text, *(f"{count:,} are {item.value}" for item, count in others_than(evidence, kind).items())])


def others_than(evidence: KeyEvidence, kind: ColumnType) -> Counter[ValueKind]:
    """Counts values of kinds the type is not for."""
    counts = evidence.kinds.copy()
    if kind.parts:
        counts -= Counter({ValueKind.NESTED: evidence.values})
    if isinstance(kind, TimestampType):  # their numbers are mentioned separately
        counts -= Counter({ValueKind.TEXT: evidence.numeric, **dict.fromkeys(_NUMBERS, evidence.values)})
    expected = _OF_TYPE.get(type(kind), ())
    return Counter({item: count for item, count in counts.items() if count and item not in expected})


def _numbers_among_times(evidence: KeyEvidence, kind: ColumnType, unit: str | None) -> Iterator[str]:
    """Yields the meanings of numbers beside times, if mixed. Also explains why a key is no timestamp column."""
    is_time = isinstance(kind, TimestampType)
    wrong = evidence.numbers - _read_in(evidence, unit)
    if not is_time or wrong or written_times(evidence) or len(evidence.unix) > 1:
        yield from (f"{count:,} are unix times in {found}" for found, count in evidence.unix.most_common())
    none = evidence.numbers - evidence.unix.total()
    if none:
        yield f"{none:,} are numbers that do not look like times"
    if is_time and wrong:
        yield f"lines with {wrong:,} of the numbers are quarantined, as these are no times in {unit or 'seconds'}"


def loss_in(evidence: KeyEvidence, kind: ColumnType) -> str | None:
    """Returns which values of the sample the column shortens or loses, or None."""
    if kind.takes_length:
        outcome = "null" if isinstance(kind, JsonType) else "cut"
        values = counted(evidence.beyond, "value is", "values are")
        return f"{values} {outcome}, longer than {DEFAULT_LENGTH:,} bytes" if evidence.beyond else None
    count = others_than(evidence, kind).total()
    return f"{counted(count, 'value is', 'values are')} null, of another kind" if count else None

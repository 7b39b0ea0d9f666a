"""Counts the kinds of values of each key in sample lines. Judges lines as a conversion does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

from prism_assets.domain.columns.column import TIME_UNITS
from prism_assets.domain.columns.types import DEFAULT_LENGTH
from prism_assets.domain.streams.survey import (
    ACCESS_LOG_TIME,
    NANOSECONDS,
    SURVEYED_KEYS,
    SURVEYED_LEVELS,
    Inside,
    KeyEvidence,
    Survey,
    ValueKind,
)
from prism_assets.kernels import times
from prism_assets.kernels.json.picks import elements_of
from prism_assets.kernels.json.rows import EVERY_KEY, RejectedError, Value, read_line, read_object
from prism_assets.kernels.numbers import scaled
from prism_assets.kernels.values import Constant, Number, compact, number_text

MOST_KEYS = 500
_MOST_PLACES = 5_000
"""Places inside nested values of one survey, over all keys."""
MOST_ELEMENTS = 200
"""Elements of one array that are looked at."""
_UNITS = {**TIME_UNITS, NANOSECONDS: 0.000_001}
_ID = re.compile(r"(^|[^a-zA-Z])id$", re.IGNORECASE)
_ACCESS_LOG_TIME = re.compile(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}")
_INT64 = 1 << 63
_EXACT_DIGITS = 15
"""Numbers with up to this many digits survive a conversion to double."""
# 2000 to 2100 in milliseconds. Numbers outside are probably no times.
_LIKELY = (946_684_800_000, 4_102_444_800_000)


def survey(lines: Iterable[bytes], levels: int = SURVEYED_LEVELS, *, is_text: bool = False) -> Survey:
    """Returns the evidence for each key, in order of first appearance, for at most 500 keys.

    Looks into nested values down to `levels`; with 1, into none. Fields of text are all strings, so with `is_text` a
    number in one is a number. Ids stay strings, because a later one may begin with a zero.
    """
    sample = Survey()
    counting = Counting(levels)
    for line in lines:
        if not line.strip():
            continue
        try:
            fields = read_line(line, EVERY_KEY)
        except RejectedError as rejected:
            sample.rejected[rejected.reason] += 1
            continue
        sample.lines += 1
        for key, value in fields.items():
            if key not in sample.keys and len(sample.keys) >= MOST_KEYS:
                sample.has_more_keys = True
                continue
            if is_text and not _ID.search(key) and (number := number_text(value[0])) is not None:
                value = Number(number), number
            counting.count(sample.keys.setdefault(key, KeyEvidence(key=key)), value)
    return sample


@dataclass
class Counting:
    """Counts values, also inside nested ones, within a limit of places for a whole survey."""

    levels: int = SURVEYED_LEVELS
    places: int = 0

    def count(self, evidence: KeyEvidence, found: Value, level: int = 1) -> None:
        """Counts a JSON value with its text. `level` is 1 for the value of a line's key."""
        value, raw = found
        if value is None or type(value) is Constant:
            return
        _count_value(evidence, value, raw)
        if level >= self.levels or not isinstance(value, list | dict):
            return
        evidence.inside = evidence.inside or Inside()
        if isinstance(value, list):
            self._count_array(evidence.inside, raw, level)
        else:
            self._count_object(evidence.inside, raw, level)

    def _count_array(self, inside: Inside, raw: str, level: int) -> None:
        inside.arrays += 1
        for element in islice(elements_of(raw), MOST_ELEMENTS):
            inside.elements = inside.elements or self._new("")
            if inside.elements is None:
                return
            self.count(inside.elements, element, level + 1)

    def _count_object(self, inside: Inside, raw: str, level: int) -> None:
        inside.objects += 1
        try:
            fields = read_object(raw, 1, EVERY_KEY)
        except RejectedError:
            inside.doubled += 1
            return
        if not inside.has_more_keys:
            self._add_keys(inside, [key for key in fields if key not in inside.keys])
        for key, value in fields.items():
            self.count(inside.keys.get(key, inside.others), value, self.levels if inside.has_more_keys else level + 1)

    def _add_keys(self, inside: Inside, keys: Sequence[str]) -> None:
        for key in keys:
            new = self._new(key) if len(inside.keys) < SURVEYED_KEYS else None
            if new is None:
                inside.others, inside.keys, inside.has_more_keys = inside.values, {}, True
                return
            inside.keys[key] = new

    def _new(self, key: str) -> KeyEvidence | None:
        if self.places >= _MOST_PLACES:
            return None
        self.places += 1
        return KeyEvidence(key=key)


def _count_value(evidence: KeyEvidence, value: Any, raw: str) -> None:
    text = value if isinstance(value, str) else compact(raw)
    size = len(text.encode(errors="ignore"))
    evidence.longest = max(evidence.longest, size)
    evidence.beyond += size > DEFAULT_LENGTH
    kind, instant = _kind(value)
    evidence.kinds[kind] += 1
    is_number = kind in (ValueKind.WHOLE, ValueKind.FRACTION)
    evidence.rounded += is_number and _is_rounded(text)
    if kind is ValueKind.TEXT and (time := _access_log_time(value)) is not None:
        evidence.access_log += 1
        instant = time
    if kind is ValueKind.TEXT and number_text(value) is not None:
        evidence.numeric += 1
        is_number = True
    if is_number:
        unit, instant = _unix(float(text))
        if unit:
            evidence.unix[unit] += 1
    if instant is not None:
        evidence.include(instant, instant)


def _kind(value: Any) -> tuple[ValueKind, int | None]:
    """Returns the kind of a value, and its instant if it spells a time."""
    if type(value) is Number:
        whole, exact = scaled(value)
        if not (exact and value.lstrip("-").isdigit()):
            return ValueKind.FRACTION, None
        fits = whole is not None and -_INT64 <= whole < _INT64
        return (ValueKind.WHOLE if fits else ValueKind.HUGE), None
    if isinstance(value, bool):
        return ValueKind.BOOLEAN, None
    if type(value) is not str:
        return ValueKind.NESTED, None
    if times.parse_date(value) is not None:
        return ValueKind.DAY, times.parse_timestamp(value, 0)
    instant = times.parse_timestamp(value, 0)
    return (ValueKind.TEXT if instant is None else ValueKind.INSTANT), instant


def _is_rounded(number: str) -> bool:
    """Whether a number changes in a conversion to double."""
    if len(number) <= _EXACT_DIGITS and "e" not in number.lower():
        return False
    double = float(number)
    try:
        return Decimal(number) not in (Decimal(repr(double)), Decimal(f"{double:.17g}"))
    except InvalidOperation:  # of an exponent of twenty digits
        return True


def _access_log_time(text: str) -> int | None:
    """Returns the instant that an access log writes so, in milliseconds."""
    if not _ACCESS_LOG_TIME.fullmatch(text):
        return None
    try:
        return int(datetime.strptime(text, ACCESS_LOG_TIME).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _unix(number: float) -> tuple[str | None, int | None]:
    """Returns the probable unit of a unix time, and the instant in milliseconds."""
    for unit, factor in _UNITS.items():
        if _LIKELY[0] <= number * factor <= _LIKELY[1]:
            return unit, int(number * factor)
    return None, None

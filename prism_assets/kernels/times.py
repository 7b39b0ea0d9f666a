"""Instants and event dates: milliseconds since the epoch, and days since the epoch in a zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from prism_assets.domain.columns.column import SECONDS_LIMIT, Column
from prism_assets.domain.columns.types import Field

Instants = npt.NDArray[np.int64]
Days = npt.NDArray[np.int32]

# The first and the last millisecond of the years 1 to 9999.
FIRST_INSTANT = -62_135_596_800_000
LAST_INSTANT = 253_402_300_799_999

ZONE_SUFFIX = r"(?:\[(?:[A-Za-z_][A-Za-z0-9._+:/=-]*|[+-][0-9]{2}:[0-9]{2})\])+"
"""Suffixes of times by RFC 9557, as Java's ZonedDateTime writes them: `[Europe/Berlin]`, `[u-ca=gregory]`.

Suffixes with `!`, which readers must understand, do not match. RE2 reads this expression, too.
"""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_MS = 86_400_000
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?)?"
    rf"([Zz]| UTC| ?[+-]\d\d(?::?\d\d)?)?({ZONE_SUFFIX})?",
    re.ASCII,
)
_BASIC_TIMESTAMP = re.compile(
    r"(\d{4})(\d\d)(\d\d)T(\d\d)(?:(\d\d)(?:(\d\d)(?:[.,](\d{1,9}))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?"
    rf"({ZONE_SUFFIX})?",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_BASIC_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)


@dataclass(frozen=True)
class TimeOptions:
    """How the times of a column are written: their unit, and the offset in milliseconds of times without one.

    Days begin in the table's `zone`.
    """

    source_offset: int
    unit: str
    zone: ZoneInfo

    @classmethod
    def of(cls, column: Column | Field, zone: ZoneInfo) -> TimeOptions:
        """The options of a column; by default seconds and UTC."""
        offset = offset_ms(column.source_offset or "+00:00") or 0
        return cls(offset, column.time_unit or "seconds", zone)


def offset_ms(text: str) -> int | None:
    """Milliseconds of an offset `±hh`, `±hhmm` or `±hh:mm`; None for other text."""
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-60_000 if text[0] == "-" else 60_000)


def parse_timestamp(text: str, source_offset_ms: int) -> int | None:
    """Milliseconds since the epoch of an ISO 8601 timestamp, rounded down; None for other text.

    A time without an offset is at `source_offset_ms`, or in the zone in its suffix. A date alone means midnight.
    `24:00:00` is the midnight at the end of the day. A leap second, `23:59:60` of UTC, is the next second, as in
    PostgreSQL, because unix time counts no leap seconds.
    """
    match = _TIMESTAMP.fullmatch(text) or _BASIC_TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, written, suffix = match.groups()
    if hour is None and (written is not None or suffix is not None):
        return None
    midnight = _midnight(int(year), int(month), int(day))
    clock = _clock(int(hour or 0), int(minute or 0), int(second or 0), fraction or "0")
    if midnight is None or clock is None:
        return None
    offset = _named_offset(written, source_offset_ms)
    if suffix is not None and written is None:
        offset = _offset_in_zone(suffix, midnight + clock)
    if offset is None or (second == "60" and (midnight + clock // 1000 * 1000 - offset) % _DAY_MS):
        return None
    return in_range(midnight + clock - offset)


def _clock(hours: int, minutes: int, seconds: int, fraction: str) -> int | None:
    """Milliseconds since midnight; None for a time that no clock shows."""
    if hours > 24 or minutes > 59 or seconds > 60:
        return None
    if hours == 24 and (minutes or seconds or int(fraction)):
        return None
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + int(fraction.ljust(3, "0")[:3])


def _offset_in_zone(suffix: str, local: int) -> int | None:
    """The offset of the first zone in a suffix, at a local time; the earlier one where clocks go back.

    None for an unknown zone, and at the ends of the calendar.
    """
    names = [name for name in suffix[1:-1].split("][") if "=" not in name]
    if not names:
        return None
    if names[0][0] in "+-":
        return offset_ms(names[0])
    try:
        offset = (_EPOCH + timedelta(milliseconds=local)).replace(tzinfo=_zone(names[0])).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError, OverflowError):
        return None
    return None if offset is None else offset // timedelta(milliseconds=1)


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _named_offset(zone: str | None, source_offset_ms: int) -> int | None:
    if zone is None:
        return source_offset_ms
    if zone in ("Z", "z", " UTC"):
        return 0
    return offset_ms(zone.lstrip())


def _midnight(year: int, month: int, day: int) -> int | None:
    try:
        return (date(year, month, day).toordinal() - _EPOCH_DAY) * _DAY_MS
    except ValueError:
        return None


def in_range(instant: int) -> int | None:
    """The instant, if it lies in the years 1 to 9999 of UTC."""
    return instant if FIRST_INSTANT <= instant <= LAST_INSTANT else None


def unix_int(value: int, unit: str) -> int | None:
    """Milliseconds of whole unix time in `seconds`, `milliseconds` or `microseconds`."""
    if unit == "microseconds":
        return in_range(value // 1000)
    return in_range(value if unit == "milliseconds" or value > SECONDS_LIMIT else value * 1000)


def unix_float(value: float, unit: str) -> int | None:
    """Milliseconds of fractional unix time: rounded to microseconds (half to even), then down."""
    if not abs(value) < 1e18:
        return None
    if value.is_integer():
        return unix_int(int(value), unit)
    if unit == "seconds" and value <= SECONDS_LIMIT:
        return in_range(round(value * 1e6) // 1000)
    return in_range(round(value if unit == "microseconds" else value * 1e3) // 1000)


def parse_date(text: str) -> int | None:
    """Days since the epoch of an ISO date; None for other text."""
    return _days(_DATE.fullmatch(text))


def parse_basic_date(text: str) -> int | None:
    """Days since the epoch of an ISO date without hyphens; None for other text. Ids of eight digits look alike."""
    return _days(_BASIC_DATE.fullmatch(text))


def _days(match: re.Match[str] | None) -> int | None:
    midnight = _midnight(*map(int, match.groups())) if match else None
    return None if midnight is None else midnight // _DAY_MS


def day_of(instant: int, zone: ZoneInfo) -> int | None:
    """The day of an instant in a zone, as days since the epoch; None beyond the years 1 to 9999."""
    try:
        local = (_EPOCH + timedelta(milliseconds=instant)).astimezone(zone)
    except OverflowError:
        return None
    return local.toordinal() - _EPOCH_DAY


def to_datetime(instant: int) -> datetime:
    """The instant as a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=instant)


def first_instant(time: datetime) -> int:
    """The first millisecond at or after a time."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def to_date(day: int) -> date:
    """The date of a number of days since the epoch."""
    return date.fromordinal(day + _EPOCH_DAY)


def to_day(day: date) -> int:
    """Days since the epoch."""
    return day.toordinal() - _EPOCH_DAY


@lru_cache(maxsize=4096)
def midnight_of(day: int, zone: ZoneInfo) -> int:
    """The instant at which a day begins in a zone."""
    local = datetime.combine(to_date(day), datetime.min.time(), tzinfo=zone)
    return (local.astimezone(timezone.utc) - _EPOCH) // timedelta(milliseconds=1)


class Calendar:
    """The days from `first` to `last` of a zone, to find the day of many instants at once."""

    def __init__(self, first: int, last: int, zone: ZoneInfo) -> None:
        self.first = max(first, to_day(date(1, 1, 2)))
        self.last = min(last, to_day(date(9999, 12, 30)))
        days = range(self.first, self.last + 2)
        self._midnights = np.array([midnight_of(day, zone) for day in days], np.int64)

    def days(self, instants: Instants) -> Days:
        """The day of each instant; `first - 1` before the first day and `last + 1` after the last."""
        found = np.searchsorted(self._midnights, instants, side="right") - 1
        return (found + self.first).astype(np.int32)

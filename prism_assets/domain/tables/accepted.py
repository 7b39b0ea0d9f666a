"""Accepted event dates of one staging object's rows. Conversion and cleanup both use this decision.

The window counts from the object's own time, so rows of history, or of an outage, do not become too old. It depends
only on facts stored at the object's first claim, so every attempt decides alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo

from prism_assets.domain.names import original_date
from prism_assets.domain.streams.key_dates import folder_date
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask

_FARTHEST_EAST = timezone(timedelta(hours=14))


@dataclass(frozen=True)
class DateRange:
    """The dates from `first` to `last`, both included. Empty if `last` is before `first`."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last

    def __iter__(self) -> Iterator[date]:
        return map(date.fromordinal, range(self.first.toordinal(), self.last.toordinal() + 1))


def accepted_days(table: TableDefinition, task: ConvertTask) -> DateRange:
    """Returns the accepted event dates of one object. Rows of earlier dates are too old, of later dates too new.

    The window counts from the object's own time: the date in its key, or else its arrival in the bucket. With
    `accept.from: arrival`, or if neither is known, it counts from the first sighting. The time zone of a date in a key
    is unknown, so the date may begin or end up to a day apart from the table's day. Therefore such a window has at
    least a day on either side. Folders such as `dt=2026-03-01/` may mean event or arrival, so their window extends to
    the object's arrival in the bucket. No date is before the table's retention start, as recorded when a batch first
    claimed the object.
    """
    days = _window(table, task)
    return days if task.retained_from is None else DateRange(max(days.first, task.retained_from), days.last)


def earliest_change(table: TableDefinition, task: ConvertTask) -> datetime | None:
    """Returns the first accepted event time of changes in one object of a log of changes, or None without a limit.

    Earlier changes might belong to records that settled before a batch first claimed the object.
    """
    if table.change_log is None or table.change_log.lateness_seconds is None or task.watermark is None:
        return None
    return task.watermark - timedelta(seconds=table.change_log.lateness_seconds)


def _window(table: TableDefinition, task: ConvertTask) -> DateRange:
    if table.accept_from == "arrival":
        return _around(_day(task.received, table.zone), table.past_days, table.future_days)
    stored = task.sent or task.received
    latest = _day(stored, _FARTHEST_EAST)  # a later date means a wrong clock at the writer
    by_store = _around(_day(stored, table.zone), table.past_days, table.future_days)
    named = original_date(task.key)
    if named is not None and named <= latest:
        return _around_named(named, table)
    named = folder_date(task.key)
    if named is not None and named <= latest:
        by_name = _around_named(named, table)
        return DateRange(min(by_name.first, by_store.first), max(by_name.last, by_store.last))
    return by_store


def _around_named(day: date, table: TableDefinition) -> DateRange:
    return _around(day, max(table.past_days, 1), max(table.future_days, 1))


def _day(instant: datetime, zone: tzinfo) -> date:
    """Returns the date of an instant in a zone, or in UTC at the ends of the calendar, which messages may contain."""
    try:
        return instant.astimezone(zone).date()
    except OverflowError:
        return instant.date()


def _around(day: date, past_days: int, future_days: int) -> DateRange:
    """Returns a range cut at the ends of the calendar, because a key may contain the year 1."""
    number = day.toordinal()
    first, last = max(number - past_days, date.min.toordinal()), min(number + future_days, date.max.toordinal())
    return DateRange(date.fromordinal(first), date.fromordinal(last))

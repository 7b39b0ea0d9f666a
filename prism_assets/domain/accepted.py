"""Which event dates the rows of one staging object may have: decided here alone, for who reads and who cleans up.

The window counts from the object's own time, so that an outage or history that is taken in late does not make rows too
old. It is a function of what stands in PostgreSQL since the object's first claim: every attempt decides alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo

from prism_assets.domain.key_dates import folder_date
from prism_assets.domain.names import original_date
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work.convert import ConvertTask

_FARTHEST_EAST = timezone(timedelta(hours=14))


@dataclass(frozen=True)
class DateRange:
    """The dates from `first` to `last`, both included; none where `last` is before `first`."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last

    def __iter__(self) -> Iterator[date]:
        return map(date.fromordinal, range(self.first.toordinal(), self.last.toordinal() + 1))


def accepted_days(table: TableDefinition, task: ConvertTask) -> DateRange:
    """Returns the event dates that are accepted for one object; rows of others are too old or too new.

    They count from the object's own time: the date in its key where that has one, else when its bucket got it. With
    `accept.from: arrival`, or where neither is known, from when it was first seen. A date in a key is a day of a zone
    that nobody names, which begins or ends up to a day from the table's: it has a day on either side at least. A date
    of folders such as `dt=2026-03-01/` lets in rows from before that day up to when the bucket got the object: folders
    may be named by event or by arrival, and no row is too new for them. None is before the day from which on the table
    took rows when a batch claimed the object first.
    """
    days = _window(table, task)
    return days if task.retained_from is None else DateRange(max(days.first, task.retained_from), days.last)


def earliest_change(table: TableDefinition, task: ConvertTask) -> datetime | None:
    """The first event time of changes that are accepted for one object of a log of changes; None if there is none.

    Earlier ones might meet records that settled before a batch claimed the object first.
    """
    if table.change_log is None or table.change_log.lateness_seconds is None or task.settle_clock is None:
        return None
    return task.settle_clock - timedelta(seconds=table.change_log.lateness_seconds)


def _window(table: TableDefinition, task: ConvertTask) -> DateRange:
    if table.accept_from == "arrival":
        return _around(_day(task.received, table.zone), table.past_days, table.future_days)
    stored = task.sent or task.received
    latest = _day(stored, _FARTHEST_EAST)  # of a date beyond it the writer's clock is wrong
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
    """The date of an instant in a zone; at the ends of the calendar, which messages may name, that of UTC."""
    try:
        return instant.astimezone(zone).date()
    except OverflowError:
        return instant.date()


def _around(day: date, past_days: int, future_days: int) -> DateRange:
    """Ends where the calendar does: a key may name the year 1."""
    number = day.toordinal()
    first, last = max(number - past_days, date.min.toordinal()), min(number + future_days, date.max.toordinal())
    return DateRange(date.fromordinal(first), date.fromordinal(last))

"""Publishes days with their first rows. From then on readers list the day's folder, and see each new object at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime

from prism_assets.metadata.days.new_days import load_new_days, load_new_days_of_tables
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext

_AT_ONCE = 8
"""Tables published by one call, all at the same time: a publication mostly waits. At midnight the first rows of all
tables come together, and the worker must beat and convert between two calls.
"""
_PAUSE_SECONDS = 2.0
"""Before another try at a table that another run holds."""
_PAUSE_AFTER_ERROR = 30.0
"""Before another try at a table whose publication failed. All tables wait if all tables of a call failed, because the
catalog may be silent.
"""
_MOST_KNOWN = 100_000


class NewDays:
    """Remembers the days that wait for their first publication."""

    def __init__(self) -> None:
        self._shown: set[tuple[int, date]] = set()
        self._waiting: set[tuple[int, date]] = set()
        self._next_try: dict[int, float] = {}
        self._rest_until = float("-inf")

    def add(self, days: Iterable[tuple[int, date]]) -> None:
        """Notes days of committed rows."""
        self._waiting |= set(days) - self._shown

    def adopt(self, context: StageContext, table_ids: Collection[int]) -> None:
        """Notes the days of tables that this worker has taken over: the death of another worker left them waiting."""
        with context.database.begin() as connection:
            self._waiting |= load_new_days_of_tables(connection, table_ids)

    def publish(self, context: StageContext, tables: Mapping[int, str], now: datetime) -> tuple[str, ...]:
        """Runs the catalog stage for a few tables with waiting days. Returns errors, a sentence each.

        Days of tables that the worker gave back stay with the sensors.
        """
        self._waiting = {day for day in self._waiting if day[0] in tables}
        if not self._waiting or time.monotonic() < self._rest_until:
            return ()
        waiting = {table for table, _ in self._ask(context)}
        self._next_try = {table: self._next_try.get(table, 0.0) for table in waiting}
        started = time.monotonic()
        due = sorted((at, table) for table, at in self._next_try.items() if at <= started)[:_AT_ONCE]
        if not due:
            return ()
        numbers = [table for _, table in due]
        with ThreadPoolExecutor(len(numbers)) as pool:
            reports = list(pool.map(lambda number: run_catalog(context, now=now, names=[tables[number]]), numbers))
        tried = time.monotonic()
        has_failed = [any(table.problems for table in report.tables) for report in reports]
        for number, failed in zip(numbers, has_failed, strict=True):
            self._next_try[number] = tried + (_PAUSE_AFTER_ERROR if failed else _PAUSE_SECONDS)
        if all(has_failed):
            self._rest_until = tried + _PAUSE_AFTER_ERROR
        self._ask(context)
        return tuple(error for report in reports for error in report.errors)

    def _ask(self, context: StageContext) -> Collection[tuple[int, date]]:
        """Returns the waiting days that no catalog shows yet, and forgets the others."""
        with context.database.begin() as connection:
            new = load_new_days(connection, self._waiting)
        if len(self._shown) > _MOST_KNOWN:
            self._shown.clear()
        self._shown |= self._waiting - new
        self._waiting = new
        return new

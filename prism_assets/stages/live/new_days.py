"""Publishes days with their first rows. From then on readers list the day's folder, and see each new object at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime

from prism_assets.metadata.days.new_days import load_new_days
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext

_AT_ONCE = 8
"""Tables published at once. At midnight the first rows of all tables come together, and a publication mostly waits."""
_PAUSE_SECONDS = 2.0
"""Before another try at a table, which another run holds or whose catalog does not answer."""
_MOST_KNOWN = 100_000


class NewDays:
    """Remembers the days that a worker wrote to and that wait for their first publication."""

    def __init__(self) -> None:
        self._shown: set[tuple[int, date]] = set()
        self._waiting: set[tuple[int, date]] = set()
        self._next_try: dict[int, float] = {}

    def add(self, days: Iterable[tuple[int, date]]) -> None:
        """Notes days of committed rows."""
        self._waiting |= set(days) - self._shown

    def publish(self, context: StageContext, tables: Mapping[int, str], now: datetime) -> tuple[str, ...]:
        """Runs the catalog stage for the tables with waiting days, several at once. Returns errors, a sentence each.

        Days of tables that the worker gave back stay with the sensors.
        """
        self._waiting = {day for day in self._waiting if day[0] in tables}
        if not self._waiting:
            return ()
        new = self._ask(context)
        due = sorted({table for table, _ in new if self._next_try.get(table, 0.0) <= time.monotonic()})
        if not due:
            return ()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            reports = pool.map(lambda number: run_catalog(context, now=now, names=[tables[number]]), due)
            errors = tuple(error for report in reports for error in report.errors)
        still_new = {table for table, _ in self._ask(context)}
        self._next_try = {table: time.monotonic() + _PAUSE_SECONDS for table in still_new}
        return errors

    def _ask(self, context: StageContext) -> Collection[tuple[int, date]]:
        """Returns the waiting days that no catalog shows yet, and forgets the others."""
        with context.database.begin() as connection:
            new = load_new_days(connection, self._waiting)
        if len(self._shown) > _MOST_KNOWN:
            self._shown.clear()
        self._shown |= self._waiting - new
        self._waiting = new
        return new

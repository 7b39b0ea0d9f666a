"""Publishes days with their first rows. From then on readers list the day's folder, and see each new object at once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import date, datetime

from prism_assets.metadata.days.new_days import load_new_days, load_new_days_of_tables
from prism_assets.stages.catalog.report import CatalogReport
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext

_AT_ONCE = 8
"""Tables published at the same time: a publication mostly waits."""
_WAIT_SECONDS = 1.0
_PAUSE_SECONDS = 2.0
"""The pause before another try at a table that another run holds."""
_PAUSE_AFTER_ERROR = 30.0
"""The pause after a failed publication of a table. If several
tables failed and none succeeded, all tables wait: the catalog may be silent."""
_MOST_KNOWN = 100_000


class NewDays:
    """Remembers the days that wait for their first publication."""

    def __init__(self, wait_seconds: float = _WAIT_SECONDS) -> None:
        """The loop waits `wait_seconds` for publications that it begins. Then they go on beside the loop."""
        self._wait_seconds = wait_seconds
        self._shown: set[tuple[int, date]] = set()
        self._waiting: set[tuple[int, date]] = set()
        self._next_try: dict[int, float] = {}
        self._rest_until = float("-inf")
        self._failing: set[int] = set()
        """Tables that failed since the last success of any table."""
        self._running: dict[int, Future[CatalogReport]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="prism-new-days")

    def add(self, days: Iterable[tuple[int, date]]) -> None:
        """Notes days of committed rows."""
        self._waiting |= set(days) - self._shown

    def adopt(self, context: StageContext, table_ids: Collection[int]) -> None:
        """Notes the days of tables that this worker has taken over: the death of another worker left them waiting."""
        with context.database.begin() as connection:
            self._waiting |= load_new_days_of_tables(connection, table_ids)

    def publish(self, context: StageContext, tables: Mapping[int, str], now: datetime) -> tuple[str, ...]:
        """Runs the catalog stage for a few tables with waiting days, in threads. Returns errors, a sentence each.

        A catalog that does not answer holds these threads, and not the loop, which must renew its leases. Days of
        tables that the worker released stay with the sensors.
        """
        errors = self._collect()
        self._waiting = {day for day in self._waiting if day[0] in tables}
        if not self._waiting or time.monotonic() < self._rest_until:
            return errors
        waiting = {table for table, _ in self._still_new(context)}
        self._next_try = {table: self._next_try.get(table, 0.0) for table in waiting}
        started = time.monotonic()
        due = sorted(
            (at, table) for table, at in self._next_try.items() if at <= started and table not in self._running
        )
        numbers = [table for _, table in due][: _AT_ONCE - len(self._running)]
        begun = [self._pool.submit(run_catalog, context, now=now, names=[tables[number]]) for number in numbers]
        self._running |= dict(zip(numbers, begun, strict=True))
        wait(begun, self._wait_seconds)
        return errors + self._collect()

    def finish(self, seconds: float) -> None:
        """Waits at most so long for running publications: the end of the process would stop them half-way."""
        wait(self._running.values(), seconds)

    def close(self) -> None:
        """Begins no more publications. The process ends after the running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _collect(self) -> tuple[str, ...]:
        """Returns errors of publications that ended, and decides when their tables may be tried again."""
        ended = {number: future for number, future in self._running.items() if future.done()}
        if not ended:
            return ()
        now = time.monotonic()
        failed = {number: _has_failed(future) for number, future in ended.items()}
        for number in ended:
            del self._running[number]
            self._next_try[number] = now + (_PAUSE_AFTER_ERROR if failed[number] else _PAUSE_SECONDS)
        bad = {number for number, is_bad in failed.items() if is_bad}
        self._failing = self._failing | bad if len(bad) == len(failed) else bad
        if len(bad) == len(failed) and len(self._failing) > 1:
            self._rest_until = now + _PAUSE_AFTER_ERROR
        return tuple(error for future in ended.values() for error in _errors_of(future))

    def _still_new(self, context: StageContext) -> Collection[tuple[int, date]]:
        """Returns the waiting days that no catalog shows yet, and forgets the others."""
        with context.database.begin() as connection:
            new = load_new_days(connection, self._waiting)
        if len(self._shown) > _MOST_KNOWN:
            self._shown.clear()
        self._shown |= self._waiting - new
        self._waiting = new
        return new


def _has_failed(future: Future[CatalogReport]) -> bool:
    return future.exception() is not None or any(table.problems for table in future.result().tables)


def _errors_of(future: Future[CatalogReport]) -> tuple[str, ...]:
    """Returns the errors of a publication. One that raised, as for a table dropped meanwhile, stops no other."""
    error = future.exception()
    return future.result().errors if error is None else (str(error) or type(error).__name__,)

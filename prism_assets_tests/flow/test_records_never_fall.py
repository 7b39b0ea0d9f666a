"""Readers poll a join table during conversion, folds, rebuilds, publication and garbage collection, across midnight.

The greatest sequence visible for a key and group never falls (J3), even if late changes join two records and the row
moves to the other day. No day shows a record twice, and readers without folds never see a record twice (J2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from prism_assets.merge_on_read.reader import RecordsReader
from prism_assets.reading.query import Reader, run_query
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Line, Requests, a_join_table, back, front
from prism_assets_tests.stages.aging import gc, hours_pass
from prism_assets_tests.world import World

WINDOW = timedelta(hours=1)
MIDNIGHT = utc("2026-03-02T00:00")
NOW = "2026-03-02T00:50"
KEYS, ROUNDS = 8, 6
SQL = "SELECT request_id, time, sent_at, version, dt FROM log.request ORDER BY request_id, time"
Row = tuple[str, datetime, datetime | None, int | None, date]


def rows_of(reader: Reader) -> tuple[Row, ...]:
    found: tuple[Any, ...] = run_query(reader, SQL).rows
    return found


@dataclass
class Poller(threading.Thread):
    """Reads repeatedly until told to stop, and records violations."""

    name_: str
    read: Callable[[], tuple[Row, ...]]
    collecting: threading.Lock
    by_day: bool
    faults: list[str] = field(default_factory=list)
    bridged: set[str] = field(default_factory=set)
    different: int = 0
    looks: int = 0
    errors: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        before: tuple[Row, ...] = ()
        while not self.done.is_set():
            try:
                with self.collecting:  # within the reader lease no object of a reader is deleted
                    rows = self.read()
            except BaseException as error:
                self.errors.append(error)
                return
            self._compare(before, rows)
            self.different += rows != before
            before = rows
            self.looks += 1

    def _compare(self, before: tuple[Row, ...], rows: tuple[Row, ...]) -> None:
        was, now = greatest(before), greatest(rows)
        for key, sequences in was.items():
            if key not in now or any(less(one, other) for one, other in zip(now[key], sequences, strict=True)):
                self.faults.append(f"{self.name_}: {key} fell from {sequences} to {now.get(key)}")
        days = sorted({row[4] for row in rows}) if self.by_day else [None]
        for day in days:
            shown = [row for row in rows if day in (None, row[4])]
            for one, other in pairwise(shown):
                if one[0] == other[0] and other[1] - one[1] <= WINDOW:
                    self.faults.append(f"{self.name_}: {one} and {other} are one record")
        self.bridged |= {key for key in now if count(rows, key) < count(before, key)}

    def has_looked(self) -> None:
        """Waits for one complete read from now on."""
        wanted = self.looks + 2
        while self.looks < wanted and self.is_alive():
            time.sleep(0.01)

    def finish(self) -> None:
        self.done.set()
        self.join(timeout=60)


def count(rows: tuple[Row, ...], key: str) -> int:
    return sum(row[0] == key for row in rows)


def greatest(rows: tuple[Row, ...]) -> dict[str, tuple[Any, Any]]:
    """Of each key the greatest sequence of either group; None where no record has one."""
    found: dict[str, tuple[Any, Any]] = {}
    for key, _, sent, version, _ in rows:
        a, b = found.get(key, (None, None))
        found[key] = (sent if less(a, sent) else a, version if less(b, version) else b)
    return found


def less(one: Any, other: Any) -> bool:
    return other is not None and (one is None or one < other)


def test_no_reader_sees_a_record_fall_or_twice_while_all_goes_on(world: World) -> None:
    world.apply(a_join_table(lateness="6h", dirty=0.5, buckets=1))
    world.catalog(NOW)
    requests = Requests(world)
    collecting = threading.Lock()
    records, glue = RecordsReader(world.settings), world.reader()
    current = Poller("current", partial(rows_of, records), collecting, by_day=False)
    published = Poller("published", partial(rows_of, glue), collecting, by_day=True)
    pollers = [current, published]
    for poller in pollers:
        poller.start()
    waited = days = 0
    try:
        for number in range(ROUNDS):
            requests.arrive(changes_of(number), NOW)
            waited += sum(fold.pending for fold in requests.fold(NOW).folds)
            if number % 2:
                (rebuilt,) = run_rebuild(world.context, "log.request", now=utc(NOW)).records
                days += len(rebuilt.days)
            world.catalog(NOW)
            for poller in pollers:
                poller.has_looked()
            if number == 3:
                with collecting:
                    hours_pass(world, 100)
                    gc(world)
        seen = requests.seen()
    finally:
        for poller in pollers:
            poller.finish()
        records.close()
    assert [error for poller in pollers for error in poller.errors] == []
    assert [fault for poller in pollers for fault in poller.faults] == []
    assert len(seen) >= KEYS
    assert waited
    assert days, "a rebuild took changes that waited, and wrote days anew"
    for poller in pollers:
        assert poller.different > 4, "the reader looked often enough to see the table change"
        assert len(poller.bridged) > 2, "the reader saw records become one"


def changes_of(number: int) -> list[tuple[str, Line]]:
    """Returns two records per key, one on either side of midnight; then changes of both, and one in between.

    Every other time only few keys have changes, and these wait for the next fold. The sequences rise and fall, so later
    changes do not always win.
    """
    changes: list[tuple[str, Line]] = []
    for key in range(KEYS):
        name, rank = f"r{key}", (number * 7 + key) % 10
        early, late = MIDNIGHT - timedelta(minutes=40 - key), MIDNIGHT + timedelta(minutes=25 + key)
        if number == 2 + key % 4:
            changes.append(("back", back(name, MIDNIGHT - timedelta(minutes=7), rank, 404)))
        elif number % 2 == 0 or key == number:
            changes.append(("front", front(name, early if key % 2 else late, f"p{number}", sent=rank)))
            changes.append(("back", back(name, late if key % 2 else early, rank, 200)))
    return changes

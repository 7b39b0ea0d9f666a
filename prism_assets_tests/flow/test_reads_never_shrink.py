"""A reader that polls through the catalog while rows stream in, merge and switch."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

OBJECTS, ROWS = 20, 5_000
NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"


@dataclass
class Poller(threading.Thread):
    """Counts rows and different rows again and again, until it is told to stop."""

    world: World
    seen: list[tuple[int, int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.done.is_set():
            try:
                self.seen.append(self.world.query("SELECT count(*), count(DISTINCT id) FROM log.events")[0])
            except BaseException as error:
                self.errors.append(error)
                return

    def finish(self) -> None:
        self.done.set()
        self.join(timeout=60)


def test_reads_never_shrink_and_show_no_row_twice_while_100_000_rows_stream_merge_and_switch(world: World) -> None:
    world.apply(a_table(merge="{interval: 0, target_bytes: 60000, max_objects: 8}"))
    world.catalog("2026-03-01T00:00")
    poller = Poller(world)
    poller.start()
    try:
        for number in range(OBJECTS):
            world.drop(some_rows(ROWS, utc(NOON), every=timedelta(milliseconds=1)))
            now = NOON if number < OBJECTS - 4 else AFTER
            if number % 4 == 3:
                world.stream(now)
                world.catalog(now)
                world.merge(now)
        for _ in range(3):
            world.catalog(AFTER)
            world.merge(AFTER)
        world.query("SELECT count(*) FROM log.events")
    finally:
        poller.finish()
    assert poller.errors == []
    assert world.status("2026-03-01", AFTER).state == "switched"
    assert len(world.partition("2026-03-01").objects) > 1
    rows = [count for count, _ in poller.seen]
    assert rows == sorted(rows)
    assert all(count == different for count, different in poller.seen)
    assert world.query("SELECT count(*), count(DISTINCT id) FROM log.events") == [(OBJECTS * ROWS, OBJECTS * ROWS)]
    assert len(set(rows)) > 3, "the reader looked often enough to see the lake grow"

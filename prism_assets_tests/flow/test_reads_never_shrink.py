"""A reader polls through the catalog while rows stream in, merge and switch."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

OBJECTS, ROWS = 20, 5_000
NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"


@dataclass
class Poller(threading.Thread):
    """Reads the ids of all rows repeatedly until told to stop. `lost` are ids seen once and never again."""

    world: World
    counts: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        before: set[int] = set()
        while not self.done.is_set():
            try:
                rows = [row[0] for row in self.world.query("SELECT id FROM log.events")]
            except BaseException as error:
                self.errors.append(error)
                return
            seen = set(rows)
            if len(seen) < len(rows):
                self.doubled |= {row for row, count in Counter(rows).items() if count > 1}
            self.lost |= before - seen
            self.counts.append(len(rows))
            before = seen

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
    assert (poller.lost, poller.doubled) == (set(), set())
    assert world.query("SELECT count(*), count(DISTINCT id) FROM log.events") == [(OBJECTS * ROWS, OBJECTS * ROWS)]
    assert len(set(poller.counts)) > 3, "the reader looked often enough to see the lake grow"

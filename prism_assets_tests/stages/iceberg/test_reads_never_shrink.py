"""A client that polls the Iceberg table while rows stream in, merge, close and are published."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prism_assets.domain.errors import WrongUse
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.iceberg.days import is_sound
from prism_assets_tests.world import World

ROUNDS, LONG_ROUNDS = 30, 100


@dataclass
class Poller(threading.Thread):
    """Reads all ids again and again; `lost` are those it saw once and no more, `doubled` those it saw twice at once."""

    world: World
    looks: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        before: set[int] = set()
        with IcebergReader(self.world.settings) as reader:
            while not self.done.wait(0.1):
                try:
                    ids = reader.table("log.events").scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
                except WrongUse:  # not made yet
                    continue
                except BaseException as error:
                    self.errors.append(error)
                    return
                counts = Counter(ids)
                self.doubled |= {number for number, count in counts.items() if count > 1}
                self.lost |= before - set(counts)
                self.looks.append(len(ids))
                before = set(counts)

    def finish(self) -> None:
        self.done.set()
        self.join(timeout=60)


def test_reads_never_shrink_and_show_no_row_twice(world: World, long: bool) -> None:
    world.apply(a_table(iceberg="{keep_hours: 1}", merge="{interval: 0, target_bytes: 2500, max_objects: 4}"))
    poller = Poller(world)
    poller.start()
    ids: list[int] = []
    now = utc("2026-03-01T10:00")
    try:
        for number in range(LONG_ROUNDS if long else ROUNDS):
            ids += play(world, now, number)
            now += timedelta(minutes=25)
    finally:
        poller.finish()
    assert poller.errors == []
    assert (poller.lost, poller.doubled) == (set(), set())
    assert len(set(poller.looks)) > 3, "the client looked often enough to see the table grow"
    assert is_sound(world, ids)
    assert len(world.iceberg_table().metadata.snapshots) < len(ids), "some have gone by their age"


def play(world: World, now: datetime, number: int) -> list[int]:
    """One round: rows of now and, at times, of the day before; then every stage, as often as it comes."""
    rows = some_rows(5, now)
    if number % 5 == 4:
        rows += some_rows(2, now - timedelta(days=1))
    world.drop(rows)
    run_discover(world.context, now=now)
    run_stream(world.context, now=now)
    if number % 2:
        run_merge(world.context, now=now, ignore_schedule=True)
    if number % 3 == 0:
        run_catalog(world.context, now=now)
    assert run_iceberg(world.context, now=now, ignore_pace=True).errors == ()
    return [row["id"] for row in rows]

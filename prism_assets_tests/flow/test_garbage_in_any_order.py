"""The real stages in any order again, with garbage collections between and within them, and passing hours.

Besides the other invariants, readers within their lease find the same rows at the same place as before, and in the end
the lake has only objects needed by readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from prism_assets.reading.lake_reader import ReadPartition, path_of
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.test_any_order import TABLE, AnyOrder
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.stages.catalogs import PausingCatalog, with_catalog
from prism_assets_tests.stages.engines import PausingEngine, another_worker

LEASE = 4.0
NIGHT = 80.0
MEANWHILE = ("merge", "catalog", "garbage", "late rows")
"""Steps of others during a worker's work: see `_others_work`."""


@dataclass(frozen=True)
class Held:
    """A reader's last location, the hour, and the ids found there."""

    hours: float
    partition: ReadPartition
    ids: Counter[int]


class GarbageInAnyOrder(AnyOrder):
    """Adds the passing hours, and the locations held by readers."""

    total = 0

    def __init__(self) -> None:
        self.hours = 0.0
        self.held: dict[str, Held] = {}
        self.deleted = 0
        super().__init__()

    @rule(hours=st.sampled_from([1.0, 3.0, 5.0, NIGHT]))
    def hours_pass(self, hours: float) -> None:
        self._hours_pass(hours)

    @rule()
    def garbage_is_collected(self) -> None:
        self._gc()

    @rule(nights=st.integers(1, 2))
    def nights_pass(self, nights: int) -> None:
        for _ in range(nights):
            self._hours_pass(NIGHT)
            self._gc()

    @rule()
    def garbage_is_collected_while_a_catalog_run_publishes(self) -> None:
        """The run read the objects earlier, and they are merged away now."""

        def meanwhile(_table: object) -> None:
            self._merge(everything=True)
            self._gc()

        catalog = PausingCatalog(self.world.glue, before_publish=meanwhile)
        with_catalog(self.world, catalog, self.world.context.worker).catalog(self._clock)

    @rule(takes_over=st.booleans())
    def garbage_is_collected_while_a_merge_stands_still(self, takes_over: bool) -> None:
        def meanwhile() -> None:
            if takes_over:
                self._another_merges()
                self._catalog()
                self._hours_pass(NIGHT)
            self._gc()

        another_worker(self.world, PausingEngine(self.world.context.engine, meanwhile)).merge(
            self._clock, everything=True
        )

    @invariant()
    def readers_find_what_they_were_sent_to(self) -> None:
        reader = self.world.reader()
        for partition in reader.table(TABLE).partitions:
            self.held[partition.location] = Held(self.hours, partition, self._ids(partition))
        for held in self.held.values():
            if self.hours - held.hours < LEASE:
                found = self._ids(held.partition)
                kept = self._kept(held.ids)
                assert kept <= found.keys() <= held.ids.keys(), f"{held.partition.location}: other rows than before"
                assert max(found.values(), default=1) == 1, f"{held.partition.location}: a row is there twice"

    def _ids(self, partition: ReadPartition) -> Counter[int]:
        filesystem = self.world.reader().filesystem
        if partition.location.endswith(".json"):
            assert filesystem.get_file_info(path_of(partition.location)).is_file
        found: Counter[int] = Counter()
        for item in partition.objects:
            table = pq.read_table(path_of(item.url), filesystem=filesystem, columns=["id"], partitioning=None)
            found.update(table.column("id").to_pylist())
        return found

    def _hours_pass(self, hours: float) -> None:
        hours_pass(self.world, hours)
        self.hours += hours

    def _gc(self) -> None:
        before = set(keys(self.world))
        report = gc(self.world)
        assert len(before - set(keys(self.world))) == report.deleted.objects
        self.deleted += report.deleted.objects

    def _others_work(self, what: str) -> None:
        if what == "merge":
            self._merge(everything=True)
        elif what == "catalog":
            self._catalog()
        elif what == "garbage":
            self._gc()
        elif what == "late rows":
            self._drop(2, 1, 1)
            self._stream()
        else:
            raise AssertionError(what)

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        seen = self._read()
        self._hours_pass(100)
        while count := gc(self.world).deleted.objects:
            self.deleted += count
        self._only_what_is_needed_is_left()
        assert self._read() == seen
        super()._come_to_rest()
        type(self).total = type(self).total + self.deleted

    def _only_what_is_needed_is_left(self) -> None:
        named = {path_of(item.url) for partition in self._partitions().values() for item in partition.objects}
        shown = {path_of(partition.location) for partition in self._partitions().values()}
        found = {f"lake/{key}" for key in keys(self.world) if "/quarantine/" not in key}
        assert found == named | {place for place in shown if place.endswith(".json")}

    def _partitions(self) -> Mapping[date, ReadPartition]:
        return {partition.date: partition for partition in self.world.reader().table(TABLE).partitions}


def test_garbage_collection_in_any_order_takes_nothing_from_anybody(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    played = play(
        GarbageInAnyOrder,
        services,
        database_url,
        figures,
        examples=100 if long else 2,
        long=long,
        world_settings=lambda number: {"gc_max_fraction": 1.0 if number % 2 else 0.5, "quarantine_days": 36_500},
    )
    assert played.machine.total > 0

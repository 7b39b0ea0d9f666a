"""The real stages in any order again, with changing definitions, rebuilds of days and replays of the quarantine.

The other invariants are judged after each step: a reader sees no row twice, never less of a day than before, and finds
the same rows within the reader lease. In the end every row has the current definition, each line is in one place, and
the lake has only objects needed by readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import rule

from prism_assets.reading.lake_reader import path_of
from prism_assets.stages.rebuild.report import RebuildReport
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.replay.run import run_replay
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.rebuilds import days_of, rebuild
from prism_assets_tests.flow.test_any_order import MERGE, TABLE, AnyOrder
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.flow.test_garbage_in_any_order import MEANWHILE, GarbageInAnyOrder
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.engines import PausingEngine, VanishingEngine, another_worker
from prism_assets_tests.world import World


class RebuildsInAnyOrder(GarbageInAnyOrder):
    """Adds the current definition, which refuses lines with ids below those replayed.

    No later one refuses these again, because a rebuild would then rightly remove their rows.
    """

    rebuilt = 0

    def __init__(self) -> None:
        self.mark = 1
        self.lowest = 0
        super().__init__()

    @rule()
    def the_definition_changes(self) -> None:
        self.mark += 1
        self._apply()

    @rule(days_ago=st.sampled_from([0, 0, 1]))
    def lines_are_refused(self, days_ago: int) -> None:
        start = self.now - timedelta(days=days_ago)
        rows = [row | {"id": -row["id"]} for row in some_rows(2, start)]
        self.dropped[start.date()] |= {row["id"] for row in rows}
        self.world.drop([], body=self._body(rows, 0))
        self._stream()

    @rule()
    def the_quarantine_is_replayed(self) -> None:
        self._replay()

    @rule(which=st.integers(0, 9))
    def a_day_is_rebuilt(self, which: int) -> None:
        self._rebuild(self.world, self._day(which))

    @rule(which=st.integers(0, 9), what=st.sampled_from([*MEANWHILE, "another rebuild"]))
    def a_day_is_rebuilt_while_others_are_at_work(self, which: int, what: str) -> None:
        day = self._day(which)

        def meanwhile() -> None:
            if what == "another rebuild":
                self._rebuild(self.world, self._day(which + 1))
            else:
                self._others_work(what)

        self._rebuild(another_worker(self.world, PausingEngine(self.world.context.engine, meanwhile)), day)

    @rule(which=st.integers(0, 9), results=st.integers(0, 4))
    def a_rebuild_dies(self, which: int, results: int) -> None:
        engine = VanishingEngine(self.world.context.engine, results)
        run_rebuild(another_worker(self.world, engine).context, TABLE, day=self._day(which), now=self.now)

    def _day(self, which: int) -> date:
        days = days_of(self.world)
        return days[which % len(days)]

    def _rebuild(self, world: World, day: date) -> RebuildReport:
        report = rebuild(world, day, self.now)
        type(self).rebuilt = type(self).rebuilt + sum(bool(item.totals) for item in report.days)
        return report

    def _replay(self) -> None:
        self.lowest = min((number for numbers in self.dropped.values() for number in numbers), default=0)
        self.mark += 1
        self._apply()
        assert run_replay(self.world.context, TABLE, now=self.now).errors == ()

    def _apply(self) -> None:
        columns = [f"{{name: mark, type: bigint, value: '{self.mark}'}}", *self._columns]
        refusal = f'reject: [{{when: "id < {self.lowest}", reason: too_low}}]\n'
        plan = self.world.apply(a_table(TABLE, columns=columns, merge=MERGE) + refusal, now=self._clock)
        assert plan.problems == ()

    def _come_to_rest(self) -> None:
        self._replay()
        AnyOrder._come_to_rest(self)
        for day in days_of(self.world):
            assert self._rebuild(self.world, day).errors == ()
        self._catalog()
        with self.world.context.database.begin() as connection:  # as if all were replaced long ago
            connection.exec_driver_sql("UPDATE prism_merge_ranges SET update_time = '2026-01-01'")
        super()._come_to_rest()
        reader = self.world.reader()
        for partition in reader.table(TABLE).partitions:
            for item in partition.objects:
                path = path_of(item.url)
                table = pq.read_table(path, filesystem=reader.filesystem, columns=["mark"], partitioning=None)
                assert set(table.column("mark").to_pylist()) <= {self.mark}
        for day in days_of(self.world):
            assert not self._rebuild(self.world, day).changed, "the second time changes nothing"


def test_rebuilds_and_replays_in_any_order_lose_double_and_hide_nothing(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    played = play(
        RebuildsInAnyOrder,
        services,
        database_url,
        figures,
        examples=100 if long else 2,
        long=long,
        world_settings=lambda _number: {"gc_max_fraction": 1.0},
    )
    assert played.machine.rebuilt > played.worlds

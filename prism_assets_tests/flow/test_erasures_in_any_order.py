"""The real stages in any order again, with erasures of rows at any time, and rebuilds of days.

After each step the other invariants are judged for rows without an erasure. In the end the erased rows are nowhere in
the lake, as each proof says, and no other row is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone

import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.stateful import rule

from prism_assets.domain.errors import PrismError
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.report import ErasureReport
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets_tests.builders import a_table
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.flow.rebuilds import days_of, rebuild
from prism_assets_tests.flow.test_any_order import MERGE, TABLE
from prism_assets_tests.flow.test_any_order import database_url as database_url
from prism_assets_tests.flow.test_garbage_in_any_order import MEANWHILE, NIGHT, GarbageInAnyOrder
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.catalogs import PausingCatalog, with_catalog
from prism_assets_tests.stages.engines import PausingEngine, another_worker
from prism_assets_tests.world import World

OTHERS = (*MEANWHILE, "repair", "a worker goes on", "rebuild")


class ErasuresInAnyOrder(GarbageInAnyOrder):
    """Adds the rows to be erased, from the time of the request, and the current definition."""

    proofs = 0
    rebuilt = 0

    def __init__(self) -> None:
        self.mark = 1
        self.erased: list[Callable[[int], bool]] = []
        super().__init__()

    @rule(which=st.integers(0, 99), of=st.sampled_from([1, 1, 2, 5]))
    def rows_are_erased(self, which: int, of: int) -> None:
        self._erase(self.world, which, of)

    @rule(which=st.integers(0, 99), of=st.sampled_from([1, 2, 5]), what=st.sampled_from(OTHERS), job=st.integers(1, 3))
    def rows_are_erased_while_others_are_at_work(self, which: int, of: int, what: str, job: int) -> None:
        def meanwhile() -> None:
            self._another(what, which)

        engine = PausingEngine(self.world.context.engine, meanwhile, before=job)
        self._erase(another_worker(self.world, engine), which, of)

    @rule(which=st.integers(0, 99), what=st.sampled_from(["a merge", "a catalog run", "a rebuild"]))
    def rows_are_erased_while_another_stands_still(self, which: int, what: str) -> None:
        def meanwhile(_table: object = None) -> None:
            self._erase(self.world, which, 2)

        still = another_worker(self.world, PausingEngine(self.world.context.engine, meanwhile))
        if what == "a merge":
            still.merge(self._clock, everything=True)
        elif what == "a rebuild":
            self._rebuild(still, which)
        else:
            catalog = PausingCatalog(self.world.glue, before_publish=meanwhile)
            with_catalog(self.world, catalog, self.world.context.worker).catalog(self._clock)

    @rule(is_late=st.booleans())
    def erasures_go_on(self, is_late: bool) -> None:
        if is_late:
            self._hours_pass(NIGHT)
        self._continue(is_late=is_late)

    @rule(which=st.integers(0, 9))
    def a_day_is_rebuilt(self, which: int) -> None:
        self._rebuild(self.world, which)

    @rule()
    def the_definition_changes(self) -> None:
        self.mark += 1
        self._apply()

    def _apply(self) -> None:
        columns = [f"{{name: mark, type: bigint, value: '{self.mark}'}}", *self._columns]
        assert self.world.apply(a_table(TABLE, columns=columns, merge=MERGE), now=self._clock).problems == ()

    def _kept(self, ids: Iterable[int]) -> set[int]:
        return {number for number in ids if not any(is_erased(number) for is_erased in self.erased)}

    def _erase(self, world: World, which: int, of: int) -> None:
        """One row, or one row in so many."""
        ids = sorted(number for rows in self.dropped.values() for number in rows)
        number = ids[which % len(ids)]
        where = f"id = {number}" if of == 1 else f"id % {of} = {number % of} AND id <= {number}"
        matching = plan_erasure(self.world.context, TABLE, where).all_matching
        self.erased.append(lambda other: other == number if of == 1 else other % of == number % of and other <= number)
        try:
            report = run_erase(world.context, TABLE, where, rows=matching)
        except PrismError as error:  # other objects, or other rows of them, than were counted before
            if "nothing was erased" not in str(error):
                raise
            self.erased.pop()
        else:
            self._check(report)

    def _go_on(self) -> None:
        for _ in range(2):
            self._continue(is_late=False)
            self._merge()
            self._catalog()

    def _continue(self, *, is_late: bool) -> ErasureReport:
        now = datetime.now(timezone.utc) + timedelta(days=4) if is_late else None
        report = continue_erasures(self.world.context, now=now, forced=True)
        self._check(report)
        return report

    def _check(self, report: ErasureReport) -> None:
        assert [problem for problem in report.problems if not problem.transient] == []

    def _another(self, what: str, which: int) -> None:
        if what in MEANWHILE:
            self._others_work(what)
        elif what == "repair":
            self._objects_are_lost_and_repaired()
        elif what == "rebuild":
            self._rebuild(self.world, which)
        elif self.open:
            self.a_worker_goes_on(which, False)

    def _rebuild(self, world: World, which: int) -> None:
        days = days_of(self.world)
        report = rebuild(world, days[which % len(days)], self.now)
        type(self).rebuilt = type(self).rebuilt + sum(bool(day.totals) for day in report.days)

    def _merge(self, *, everything: bool = False) -> None:
        """Objects rewritten during a merge are merged by the next one."""
        problems = self.world.merge(self._clock, everything=everything).problems
        assert [problem for problem in problems if not problem.transient] == []

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        for _ in range(6):
            statuses = self._continue(is_late=True).erasures
            if all(status.state == "proved" for status in statuses):
                break
            self._catalog()
            self._hours_pass(NIGHT)
        assert {status.state for status in statuses} <= {"proved"}, statuses
        type(self).proofs = type(self).proofs + len(statuses)
        self._nothing_erased_lies_in_the_lake()
        self.the_definition_changes()
        for which, _ in enumerate(days_of(self.world)):
            self._rebuild(self.world, which)
        super()._come_to_rest()
        self._nothing_erased_lies_in_the_lake()

    def _nothing_erased_lies_in_the_lake(self) -> None:
        for key in keys(self.world):
            if key.endswith(".parquet"):
                path = self.world.root / "buckets/lake" / key
                ids = pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()
                assert self._kept(ids) == set(ids), f"{key} has a row that was erased"


def test_erasures_in_any_order_take_what_is_asked_for_from_everywhere_and_nothing_else(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    played = play(
        ErasuresInAnyOrder,
        services,
        database_url,
        figures,
        examples=100 if long else 2,
        long=long,
        world_settings=lambda _number: {"gc_max_fraction": 1.0, "quarantine_days": 36_500},
    )
    assert played.machine.proofs > played.worlds
    assert played.machine.rebuilt > 0

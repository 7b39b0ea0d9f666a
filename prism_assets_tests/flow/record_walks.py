"""A random walk over all steps that replace objects of a join table, compared with the model of its records.

The steps are folds, merges of records, erasures of keys, rebuilds, losses of objects, garbage collections and
Iceberg commits. After each step no reader of Glue or Iceberg sees a record twice, or an erased one. After each
published fold readers see the model's records of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq

from prism_assets.domain.records.folding import RecordPart
from prism_assets.metadata.records import record_objects
from prism_assets.stages.erase.plan import erased_together, plan_erasure
from prism_assets.stages.erase.report import read_erasures
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.flow.random_walk import NIGHT, RandomWalk, Step
from prism_assets_tests.requests import Requests, some_changes
from prism_assets_tests.stages.aging import hours_pass, keys
from prism_assets_tests.world import World

TABLE = "log.request"
REQUESTS = 12

Rows = Sequence[tuple[Any, ...]]


class RecordWalk(RandomWalk):
    """One walk over `log.request`."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed, utc("2026-03-01T08:00"))
        self.requests = Requests(world)
        self.erased: set[str] = set()
        self.is_shown = False
        self.changes_arrive()
        self.records_are_shown()

    def weights(self) -> Mapping[Step, int]:
        return {
            self.changes_arrive: 8, self.records_are_shown: 6, self.hours_go_by: 4, self.settled_are_merged: 3,
            self.a_key_is_erased: 3, self.go_on_erasing: 4, self.records_are_rebuilt: 3,
            self.an_object_is_lost_and_made_again: 3, self.collect_garbage: 3, self.commit_to_iceberg: 3,
        }  # fmt: skip

    def take(self, step: Step) -> None:
        self.is_shown = False
        super().take(step)

    # Steps.

    def changes_arrive(self) -> None:
        begin = f"{self.now - timedelta(minutes=25):%Y-%m-%dT%H:%M}"
        count = self.random.choice((2, 6, 12))
        changes = some_changes(self.random.randrange(1_000_000), count, begin, requests=REQUESTS, hours=0.4)
        self.requests.arrive(changes, self.clock)

    def records_are_shown(self) -> None:
        self.requests.fold(self.clock)
        self.world.catalog_and_idle(self.clock)
        self.is_shown = True

    def hours_go_by(self) -> None:
        self.now += timedelta(hours=self.random.choice((1, 3, 20)))
        self.changes_arrive()
        self.records_are_shown()

    def settled_are_merged(self) -> None:
        assert self.world.merge(self.clock, everything=True).problems == ()

    def a_key_is_erased(self) -> None:
        key = f"r{self.random.randrange(REQUESTS)}"
        self.trace[-1] += f" ({key})"
        where = f"request_id = '{key}'"
        plan = plan_erasure(self.world.context, TABLE, where)
        self.erased.add(key)
        report = run_erase(self.world.context, TABLE, where, rows=plan.all_matching)
        assert [problem for problem in report.problems if not problem.transient] == []

    def records_are_rebuilt(self) -> None:
        assert run_rebuild(self.world.context, TABLE, now=self.now).errors == ()
        self.records_are_shown()

    def an_object_is_lost_and_made_again(self) -> None:
        """Loses a published object of records; a rebuild makes the records again from the log."""
        with self.world.context.database.begin() as connection:
            table = self.requests.table
            current = record_objects.load_current(connection, self.world.context.lake.keys(table), table.table_id)
        visible = [item for item in current if item.part is RecordPart.VISIBLE]
        if visible:
            lost = self.random.choice(visible)
            (self.world.root / "buckets" / lost.bucket / lost.key).unlink()
            assert run_rebuild(self.world.context, TABLE, now=self.now).errors == ()
            self.records_are_shown()
            if self.has_iceberg:
                self.commit_to_iceberg()

    def come_to_rest(self) -> None:
        """Erasures are proved, and all readers see the records of the model.

        The days of the log are over before: until then two erasures of one object of an open day wait.
        """
        self.now += timedelta(days=1)
        for _ in range(6):
            self.take(self.records_are_shown)
            self.take(self.commit_to_iceberg)
            if not self._open():
                break
            self.take(self._erase_to_the_end)
        assert not self._open(), (self._open(), self.trace)
        self.take(self.hours_go_by)
        self.take(self.commit_to_iceberg)
        assert self.requests.seen_in_iceberg() == self.requests.seen(), self.trace
        for key in keys(self.world):
            if key.endswith(".parquet"):
                found = pq.read_table(self.world.root / "buckets/lake" / key, columns=["request_id"], partitioning=None)
                assert self.erased.isdisjoint(found["request_id"].to_pylist()), (key, self.trace)

    def _erase_to_the_end(self) -> None:
        hours_pass(self.world, NIGHT)
        self.continue_erasures(is_late=True)

    # Judgements.

    def judge(self) -> None:
        """Checks that no record is visible twice or after its erasure, and that a new publication equals the model."""
        seen = self.requests.seen()
        self._judge_rows(seen)
        if self.has_iceberg:
            self._judge_rows(self.requests.seen_in_iceberg())
        if self.is_shown:
            assert self._kept(seen) == self._kept(self.requests.wanted())

    def _judge_rows(self, rows: Rows) -> None:
        assert max(Counter(row[:2] for row in rows).values(), default=1) == 1, "a record is seen twice"
        if not self._open():
            assert self.erased.isdisjoint(row[0] for row in rows), "an erased record is seen"

    def _kept(self, rows: Rows) -> Rows:
        return [row for row in rows if row[0] not in self.erased]

    # How.

    def _open(self) -> list[str]:
        """Returns the erasures without a proof."""
        tables = erased_together(self.world.context, [TABLE])
        return [str(item) for item in read_erasures(self.world.context, tables, open_only=True)]

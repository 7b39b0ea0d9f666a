"""The real stages in any order, with deaths, zombies, repeats and late rows, against a dictionary of dropped rows.

After each step a reader is judged: he sees only dropped rows, none twice, and never less of a day than before. In the
end everything exists exactly once, the ledger balances, and every day is switched within two runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, timedelta

import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prism_assets.domain.days.lifecycle import Close, MarkClosing, Publish, Step, Switch, next_steps
from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.work.convert import ConvertResult
from prism_assets.metadata.days import partitions
from prism_assets.reading.lake_reader import path_of
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.objects import UNREAD_OBJECTS
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.commit import commit_batch
from prism_assets.stages.stream.plan import StreamPlan, start_batch
from prism_assets.stages.stream.unread import retry_failed
from prism_assets_tests import nested
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.findings import says
from prism_assets_tests.flow.any_order import play
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures
from prism_assets_tests.stages.engines import (
    FailingEngine,
    PausingEngine,
    another_worker,
    expire_leases,
    rest_is_over,
)
from prism_assets_tests.world import World

TABLE = "log.events"
COLUMNS = ("{name: color, type: string}", "{name: size, type: bigint}")
MERGE = "{interval: 0, target_bytes: 2500, max_objects: 3}"
THEN = ("nothing", "nothing", "stream", "stream and catalog")

Seen = Mapping[date, Counter[int]]


@dataclass(frozen=True)
class OpenBatch:
    """A batch with a motionless worker, its claims and its uploads."""

    plan: StreamPlan
    results: Sequence[ConvertResult]


class AnyOrder(RuleBasedStateMachine):
    """The dropped rows, the reader's last view, and the clock of all commands."""

    make_world: Callable[[ExitStack], World]
    begin = utc("2026-03-01T10:00")

    def __init__(self) -> None:
        super().__init__()
        self._opened = ExitStack()
        self.world = type(self).make_world(self._opened)
        self.now = self.begin
        self.dropped: dict[date, set[int]] = defaultdict(set)
        self.broken = 0
        self.seen: Seen = {}
        self.columns = 0
        self.open: list[OpenBatch] = []
        self._apply()
        self._begin_day()

    def teardown(self) -> None:
        try:
            self._come_to_rest()
        finally:
            self._opened.close()

    @rule(days_ago=st.sampled_from([0, 0, 1, 1, 2]), broken=st.sampled_from([0, 0, 2]), then=st.sampled_from(THEN))
    def objects_arrive(self, days_ago: int, broken: int, then: str) -> None:
        self._drop(3, days_ago, broken)
        if then != "nothing":
            self._stream()
        if then == "stream and catalog":
            self._catalog()

    @rule(uploads=st.sampled_from([True, True, False]), days_ago=st.sampled_from([0, 0, 1]))
    def a_worker_claims_and_stands_still(self, uploads: bool, days_ago: int) -> None:
        self._drop(2, days_ago, 0)
        self.world.discover(self._clock)
        rest_is_over(self.world)
        context = self.world.context
        plan = start_batch(context, None)
        assert plan is not None
        results = list(context.engine.run(plan.tasks, plan.definitions)) if uploads else []
        self.open.append(OpenBatch(plan, results))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 9), dead=st.booleans())
    def a_worker_goes_on(self, which: int, dead: bool) -> None:
        """The worker commits its own batch, or changes nothing if another worker did meanwhile."""
        batch = self.open.pop(which % len(self.open))
        if dead:
            expire_leases(self.world)
            self._stream()
        context = self.world.context
        results = batch.results or list(context.engine.run(batch.plan.tasks, batch.plan.definitions))
        with suppress(LeaseLost):
            commit_batch(context, batch.plan, results, self.now)

    @rule(kind=st.sampled_from(["due", "all", "by a worker that stands still"]))
    def merge(self, kind: str) -> None:
        if kind == "by a worker that stands still":
            engine = PausingEngine(self.world.context.engine, self._another_merges)
            another_worker(self.world, engine).merge(self._clock, everything=True)
        else:
            self._merge(everything=kind == "all")

    @rule(runs=st.sampled_from([0, 1, 1, 2]))
    def the_day_ends(self, runs: int) -> None:
        midnight = self.now.replace(hour=0, minute=0) + timedelta(days=1)
        self.now = midnight + timedelta(minutes=10)
        for run in range(runs):
            if run:
                self._merge()
            self._catalog()
        self._begin_day()

    @rule()
    def catalog(self) -> None:
        self._catalog()

    @rule(data=st.data())
    def a_mishap(self, data: st.DataObject) -> None:
        mishaps = (
            self._all_leases_run_out,
            self._the_store_coughs_behind_uploads,
            self._an_object_is_away_for_a_while,
            self._objects_are_lost_and_repaired,
            self._a_column_is_added,
            self._rows_of_two_days_and_none_arrive,
        )
        data.draw(st.sampled_from(mishaps))()

    def _all_leases_run_out(self) -> None:
        expire_leases(self.world)

    def _the_store_coughs_behind_uploads(self) -> None:
        self._drop(2, 0, 1)
        self.world.discover(self._clock)
        engine = FailingEngine(self.world.context.engine, 2)
        another_worker(self.world, engine).stream(self._clock)

    def _an_object_is_away_for_a_while(self) -> None:
        key = self._drop(2, 0, 0)
        path = self.world.root / "buckets" / "staging" / key
        body = path.read_bytes()
        self.world.discover(self._clock)
        path.unlink()
        self.world.stream(self._clock)
        path.write_bytes(body)
        rest_is_over(self.world)
        retry_failed(self.world.context)

    def _objects_are_lost_and_repaired(self) -> None:
        stores = self.world.context.stores
        found = [item.key for item in stores.list("lake", "") if "/live/" in item.key or "/delayed/" in item.key]
        before = {key: stores.get("lake", key) for key in found}
        stores.delete("lake", found)
        assert run_repair(self.world.context).errors == ()
        for key, body in before.items():  # uncommitted or unneeded objects
            stores.put_new("lake", key, body)

    def _a_column_is_added(self) -> None:
        self.columns = min(self.columns + 1, len(COLUMNS))
        self._apply()

    def _rows_of_two_days_and_none_arrive(self) -> None:
        midnight = self.now.replace(hour=0, minute=0)
        rows = some_rows(4, midnight - timedelta(seconds=2))
        self.dropped[midnight.date() - timedelta(days=1)] |= {row["id"] for row in rows[:2]}
        self.dropped[midnight.date()] |= {row["id"] for row in rows[2:]}
        self.world.drop([], body=self._body(rows, 0))
        self.world.drop([])
        self.world.discover(self._clock)
        assert self.world.discover(self._clock).new == 0

    def _begin_day(self) -> None:
        """Shows rows of each day, because readers cannot miss anything of an unshown day."""
        self._drop(1, 0, 0)
        self._stream()
        self._catalog()

    def _drop(self, count: int, days_ago: int, broken: int) -> str:
        start = self.now - timedelta(days=days_ago)
        rows = some_rows(count, start)
        self.dropped[start.date()] |= {row["id"] for row in rows}
        self.broken += broken
        return self.world.drop([], body=self._body(rows, broken))

    def _body(self, rows: Sequence[nested.Values], broken: int) -> bytes:
        return as_lines(nested.with_parts(rows)) + b"broken\n" * broken

    # Invariants

    @invariant()
    def a_reader_sees_what_was_dropped_once_and_never_less(self) -> None:
        seen = self._read()
        for day, rows in seen.items():
            assert max(rows.values(), default=1) == 1, f"{day}: a row is seen twice"
            assert rows.keys() <= self.dropped[day], f"{day}: a row is seen that is none of this day"
        for day, before in self.seen.items():
            assert set(self._kept(before)) <= seen.get(day, Counter()).keys(), f"{day}: a row is seen no more"
        self.seen = seen

    def _kept(self, ids: Iterable[int]) -> set[int]:
        """Returns the rows nobody has asked to remove."""
        return set(ids)

    def _come_to_rest(self) -> None:
        self.now += timedelta(days=1)
        expire_leases(self.world)
        self._stream()
        for _ in range(2):
            rest_is_over(self.world)
            self.world.stream(self._clock)
            self._merge()
            self._catalog()
        self._go_on()
        self.a_reader_sees_what_was_dropped_once_and_never_less()
        dropped = {day: rows for day, rows in self.dropped.items() if rows}
        assert {day: set(rows) for day, rows in self.seen.items() if rows} == {
            day: kept for day, rows in dropped.items() if (kept := self._kept(rows))
        }
        (status,) = [status for status in read_status(self.world.context, now=self.now) if status.table == TABLE]
        assert (status.pending, status.claimed, says(status.findings, UNREAD_OBJECTS)) == (0, 0, [])
        assert {(item.date, item.state) for item in status.partitions} == {(day, "switched") for day in dropped}
        self._check_ledger(sum(map(len, dropped.values())))
        assert [str(item) for item in run_doctor(self.world.context, now=self.now).findings] == []

    def _check_ledger(self, rows: int) -> None:
        assert self._ledger() == (rows + self.broken, rows, self.broken)

    def _go_on(self) -> None:
        """Does the remaining work until rest."""

    @property
    def _clock(self) -> str:
        return f"{self.now:%Y-%m-%dT%H:%M}"

    def _apply(self) -> None:
        assert self.world.apply(self._file(), now=self._clock).problems == ()

    def _file(self) -> str:
        return a_table(TABLE, columns=self._columns, merge=MERGE)

    @property
    def _columns(self) -> tuple[str, ...]:
        """The nested columns, and those that were added."""
        return (*nested.COLUMNS, *COLUMNS[: self.columns])

    def _stream(self) -> None:
        rest_is_over(self.world)
        self.world.stream(self._clock)

    def _merge(self, *, everything: bool = False) -> None:
        assert self.world.merge(self._clock, everything=everything).problems == ()

    def _another_merges(self) -> None:
        expire_leases(self.world)
        self._merge()

    def _catalog(self) -> None:
        """The announced steps happen. Days that differ in the catalog are published again as recorded."""
        announced = self._announced()
        tables = self.world.catalog_and_idle(self._clock).tables
        (report,) = [report for report in tables if report.table == TABLE]
        happened: dict[tuple[date, type[Step]], Publication | None] = {
            **{(day, MarkClosing): None for day in report.marked},
            **{(day, Close): None for day in report.closed},
            **{(day, Switch): None for day in report.switched},
            **{(item.date, Publish): item.after for item in report.published if item.before != item.after},
        }
        assert happened == announced

    def _announced(self) -> dict[tuple[date, type[Step]], Publication | None]:
        """Returns each step of the next run by its day, with publications."""
        (table,) = self.world.context.choose_tables([TABLE])
        with self.world.context.database.begin() as connection:
            facts = StoredFacts(connection, table)
            return {
                (item.date, type(step)): step.wanted if isinstance(step, Publish) else None
                for item in partitions.load_table_partitions(connection, table.table_id)
                for step in next_steps(item, facts, self.now)
                if isinstance(step, MarkClosing | Close | Switch | Publish)
            }

    def _read(self) -> Seen:
        reader = self.world.reader()
        found: dict[date, Counter[int]] = {}
        for partition in reader.table(TABLE).partitions:
            rows = found.setdefault(partition.date, Counter())
            for item in partition.objects:
                table = pq.read_table(
                    path_of(item.url), filesystem=reader.filesystem, columns=["id", *nested.NAMES], partitioning=None
                )
                for row in table.to_pylist(maps_as_pydicts="strict"):
                    number = row.pop("id")
                    rows[number] += 1
                    assert row == nested.stored(number), f"{item.url}: row {number} has other parts"
        return found

    def _ledger(self) -> tuple[int, int, int]:
        """Lines in; rows out, with rows left out as erased; and lines in quarantine."""
        with self.world.context.database.begin() as connection:
            row = connection.exec_driver_sql(
                "SELECT coalesce(sum(lines_in), 0), coalesce(sum(rows_out + coalesce(rows_erased, 0)), 0), "
                "(SELECT coalesce(sum(line_count), 0) FROM prism_quarantine) FROM prism_staging_objects"
            ).one()
        return int(row[0]), int(row[1]), int(row[2])


class DocumentsInAnyOrder(AnyOrder):
    """The rows are records of documents, and broken ones no objects."""

    def _file(self) -> str:
        return super()._file().replace('/events/"}', '/events/", format: {json: {records: "$.records[*]"}}}')

    def _body(self, rows: Sequence[nested.Values], broken: int) -> bytes:
        return nested.documents(nested.with_parts(rows), "me", broken)


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


def test_in_any_order_of_steps_nothing_is_lost_doubled_or_hidden(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    play(AnyOrder, services, database_url, figures, examples=200 if long else 3, long=long)


def test_in_any_order_of_steps_no_record_of_a_document_is_lost_doubled_or_hidden(
    services: Mapping[str, str], database_url: str, long: bool, figures: Figures
) -> None:
    play(DocumentsInAnyOrder, services, database_url, figures, examples=100 if long else 2, long=long)

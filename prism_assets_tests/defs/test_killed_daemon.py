"""kill -9 for the daemon in ticks, runs and a backfill, and for the workers; then everything goes on and is counted."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from sqlalchemy import text

from prism_assets.defs.keys import asset_key
from prism_assets.metadata.database import Database
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.outside import BUCKET, Outside
from prism_assets_tests.defs.parts import DagsterInParts
from prism_assets_tests.defs.tables import a_folder

pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

TABLES = ("killed.orders", "killed.visits")
PARTS = ("live", "merged", "catalog")
DAYS = 2
# Far more than an idle machine needs, because time alone proves nothing here.
PATIENCE = 900.0
SEED = 20261121
UNFINISHED = (
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
# The same rules with shorter times: an unfinished launch is given up after seconds, not minutes.
CHANGES = {"run_monitoring": {"start_timeout_seconds": 25, "poll_interval_seconds": 3}}


class Judge:
    """Dagster's event log and PostgreSQL since the judge's start."""

    def __init__(self, home: Path, database_url: str) -> None:
        self._since = datetime.now(timezone.utc)
        self._instance = DagsterInstance.from_config(str(home))
        self._database = Database(database_url)

    def close(self) -> None:
        """Closes connections."""
        self._instance.dispose()
        self._database.dispose()

    def runs(self, *statuses: DagsterRunStatus) -> list[RunRecord]:
        """Runs of the test, of some status or of all."""
        filters = RunsFilter(statuses=list(statuses) or None, created_after=self._since)
        return list(self._instance.get_run_records(filters=filters))

    def ticks(self) -> list[InstigatorTick]:
        """The ticks of all sensors since then."""
        since = self._since.timestamp()
        return [
            tick
            for state in self._instance.all_instigator_state()
            for tick in self._instance.get_ticks(state.instigator_origin_id, state.selector_id, after=since)
        ]

    def tick_is_open(self) -> bool:
        """Whether a sensor is being evaluated right now."""
        return any(tick.status == TickStatus.STARTED for tick in self.ticks())

    def backfill(self, backfill_id: str) -> PartitionBackfill:
        """Returns the current state of a backfill."""
        found = self._instance.get_backfill(backfill_id)
        assert found is not None
        return found

    def runs_of(self, backfill_id: str) -> list[RunRecord]:
        """Returns all runs of a backfill, including repeated ones."""
        return [run for run in self.runs() if run.dagster_run.tags.get("dagster/backfill") == backfill_id]

    def unfinished_work(self, schema: str) -> dict[str, int]:
        """Returns waiting and running work in PostgreSQL for a schema's tables; all zero once everything is done."""
        with self._database.begin() as connection:
            row = connection.execute(text(_UNFINISHED_WORK), {"schema": schema}).one()
        return dict(row._mapping)

    def errors(self) -> list[str]:
        """Returns unfinished or repeated staging objects, with their errors."""
        with self._database.begin() as connection:
            rows = connection.execute(text(_ERRORS))
            return [f"{row.object_key}: {row.state}, {row.attempts} attempts, {row.last_error}" for row in rows]

    def ledger(self, schema: str) -> tuple[int, int, int, int]:
        """Returns finished staging objects, their lines, their rows, and the rows of their small objects."""
        with self._database.begin() as connection:
            row = connection.execute(text(_LEDGER), {"schema": schema}).one()
        return row.objects, int(row.lines), int(row.rows), int(row.small_rows)


_UNFINISHED_WORK = """
WITH t AS (SELECT prism_table_id FROM prism_tables WHERE schema_name = :schema)
SELECT (SELECT count(*) FROM prism_staging_objects JOIN t USING (prism_table_id) WHERE state <> 'done') AS objects,
    (SELECT count(*) FROM prism_stream_batches WHERE state = 'running') AS batches,
    (SELECT count(*) FROM prism_merge_jobs JOIN prism_partitions USING (prism_partition_id)
        JOIN t USING (prism_table_id)) AS merges
"""
_ERRORS = "SELECT * FROM prism_staging_objects WHERE state <> 'done' OR attempts > 0"
_LEDGER = """
WITH o AS (SELECT o.* FROM prism_staging_objects o JOIN prism_tables USING (prism_table_id)
    WHERE schema_name = :schema AND state = 'done')
SELECT count(*) AS objects, sum(lines_in) AS lines, sum(rows_out) AS rows,
    (SELECT sum(row_count) FROM prism_small_objects
        WHERE prism_staging_object_id IN (SELECT prism_staging_object_id FROM o)) AS small_rows
FROM o
"""


class Story:
    """Rows arrive all the time, with deaths in between, and final conditions."""

    def __init__(self, dagster: DagsterInParts, judge: Judge, environment: Mapping[str, str], seed: int) -> None:
        self.dagster, self.judge = dagster, judge
        self._chance = random.Random(seed)
        self._outside = {table: Outside(environment, table) for table in TABLES}
        self._now = datetime.now(timezone.utc).replace(microsecond=0)
        self._begun = time.monotonic()
        self.ids: dict[str, list[int]] = {table: [] for table in TABLES}
        self.objects = 0

    def say(self, what: str) -> None:
        """Prints each event with its time, for the reader of a failure."""
        print(f"{time.monotonic() - self._begun:6.1f} s  {what}")

    def days(self) -> list[str]:
        """Returns the days of the rows."""
        return [(self._now - timedelta(days=back)).date().isoformat() for back in range(DAYS)]

    def feed(self, count: int) -> None:
        """Drops objects for some table and day each."""
        for _ in range(count):
            table, back = self._chance.choice(TABLES), self._chance.randrange(DAYS)
            rows = some_rows(self._chance.randint(20, 200), self._now - timedelta(days=back, minutes=5))
            self.ids[table] += self._outside[table].drop(rows)
            self.objects += 1

    def rest(self, seconds: float) -> None:
        """Lets things go on for a random time."""
        time.sleep(self._chance.uniform(0, seconds))

    def strike(
        self, what: str, moment: Callable[[], bool], *, workers: bool = False, code_server: bool = False
    ) -> None:
        """Kills the daemon, and more, at some kind of moment, and restarts the victims."""
        self.feed(6)
        self.rest(2.0)
        self.dagster.kill_daemon_when(moment, PATIENCE)
        died = self.dagster.kill_workers() if workers or code_server else 0
        if code_server:
            self.dagster.kill_code_server()
        states = Counter(run.dagster_run.status.value for run in self.judge.runs(*UNFINISHED))
        self.say(f"killed in {what}: {died} workers, runs {dict(states)}, tick open: {self.judge.tick_is_open()}")
        self.feed(2)
        if code_server:
            self.dagster.start_code_server()
        self.dagster.start_daemon()
        if code_server:
            self.dagster.reload_after_restart(PATIENCE)

    def is_readable(self) -> bool:
        """Whether readers see exactly the dropped rows."""
        return all(self._outside[table].ids() == sorted(self.ids[table]) for table in TABLES)

    def settle(self, backfill_id: str) -> None:
        """Waits until no work remains. Fails the test after too long."""
        begun, left = time.monotonic(), "everything"
        while time.monotonic() - begun < PATIENCE:
            if not (left := self._left(backfill_id)):
                self.say(f"settled; objects that were tried again: {self.judge.errors()}")
                return
            time.sleep(0.5)
        raise AssertionError(f"left: {left}\n{self.judge.errors()}\n{self.dagster.log()[-8000:]}")

    def _left(self, backfill_id: str) -> str:
        runs = [f"{run.dagster_run.run_id} {run.dagster_run.status.value}" for run in self.judge.runs(*UNFINISHED)]
        work = {name: count for name, count in self.judge.unfinished_work("killed").items() if count}
        backfill = self.judge.backfill(backfill_id).status
        parts = [
            f"runs {runs}" if runs else "",
            f"work {work}" if work else "",
            "the backfill" if backfill == BulkActionStatus.REQUESTED else "",
            "" if runs or work or self.is_readable() else "rows",
        ]
        return ", ".join(filter(None, parts))


@pytest.fixture(scope="module")
def environment(stack: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The stack's settings with two tables and short leases, also in the test's environment for its reader."""
    files = [a_table(table, bucket=BUCKET, merge="{interval: 0}") for table in TABLES]
    folder = a_folder(tmp_path_factory.mktemp("tables"), *files)
    made = {**stack, "PRISM_TABLES_DIR": str(folder), "PRISM_SENSOR_SECONDS": "2", "PRISM_LEASE_SECONDS": "5"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture
def story(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Story]:
    dagster = DagsterInParts(tmp_path, environment, CHANGES)
    with dagster:
        judge = Judge(tmp_path, environment["PRISM_DATABASE_URL"])
        try:
            yield Story(dagster, judge, environment, SEED)
        finally:
            judge.close()


def test_a_killed_daemon_and_killed_workers_lose_double_and_block_nothing(story: Story, long: bool) -> None:
    dagster, judge = story.dagster, story.judge

    def running() -> bool:
        return bool(judge.runs(DagsterRunStatus.STARTED) and dagster.workers())

    def in_backfill() -> bool:
        states = Counter(run.dagster_run.status for run in judge.runs_of(backfill))
        return states[DagsterRunStatus.STARTED] > 0 and sum(states[status] for status in UNFINISHED) > 1

    story.strike("a run, with the code server", running, code_server=True)
    if long:
        story.strike("a tick", judge.tick_is_open)
        story.strike("a run", running, workers=True)
    keys = [asset_key(table, part).path for table in TABLES for part in PARTS]
    backfill = dagster.backfill(keys, story.days())
    story.strike("a backfill", in_backfill, workers=True)
    story.strike("a tick, while the backfill recovers", judge.tick_is_open)

    story.settle(backfill)
    assert judge.backfill(backfill).status == BulkActionStatus.COMPLETED_SUCCESS
    # A daemon that dies before its note of a launch, or cannot reach a starting run, launches the run again. Days
    # succeed at least once, and only their rows must exist once.
    succeeded = {
        run.dagster_run.tags["dagster/asset_partition_range_start"]
        for run in judge.runs_of(backfill)
        if run.dagster_run.status == DagsterRunStatus.SUCCESS
    }
    assert succeeded == set(story.days())
    rows = sum(map(len, story.ids.values()))
    assert judge.ledger("killed") == (story.objects, rows, rows, rows)
    assert story.is_readable()

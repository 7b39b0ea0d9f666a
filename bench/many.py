"""Many tables: 400 objects of 50 KB over 100 tables until all rows are committed, against one Spark job for each table.

All read from and write to the same S3 server, warm. Ours discovers the objects by a listing of each table, converts,
and commits: with all tables in one batch on Spark, as `prism run` does, on the cores that the peer has. Once more on
the engine of the live worker, a child process of one core for small objects.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.cores import StackCores
from bench.harness import System, race, report
from bench.platform import NOW, TABLE, bench_platform, download, summary, upload, write_objects
from bench.stream import to_parquet
from prism_assets.engine.sessions import connect
from prism_assets.platform import build_live_context
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_local.stack import LocalStack


class Case:
    """Tables `bench.many{number}`. Each round gives each table the same new objects, under a prefix of the round."""

    def __init__(self, context: StageContext, folder: Path, tables: int, objects: int, lines: int) -> None:
        self.context, self.folder = context, folder
        self._read = set[str]()
        self.tables = [f"many{number:03}" for number in range(tables)]
        files = folder / "tables"
        files.mkdir()
        for table in self.tables:
            (files / f"{table}.yaml").write_text(TABLE.format(table=table))
        run_apply(context, files, NOW)
        write_objects(folder / "objects", objects, lines, hour=2)
        for number, path in enumerate(sorted((folder / "objects").iterdir())):
            part = folder / "parts" / self.tables[number % tables]
            part.mkdir(parents=True, exist_ok=True)
            path.rename(part / path.name)

    def put(self, name: str) -> None:
        """Lets the objects of a round arrive."""
        for table in self.tables:
            upload(self.context, self.folder / "parts" / table, f"{table}/{name}/")

    def outcome_of_new(self) -> Mapping[str, object]:
        """Returns facts about the live objects that no earlier call has read."""
        target = self.folder / "compared"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for item in self.context.stores.list("prism-lake", ""):
            if "/live/" in item.key and item.key.endswith(".parquet") and item.key not in self._read:
                self._read.add(item.key)
                (target / f"{len(self._read)}.parquet").write_bytes(self.context.stores.get("prism-lake", item.key))
        return summary(f"{target}/*.parquet", "time")

    def outcome(self, part_of_key: str, time: str) -> Mapping[str, object]:
        target = self.folder / "compared"
        download(self.context, part_of_key, target)
        return summary(f"{target}/*.parquet", time)


class Prism:
    """Discovery and batches for all tables, on one engine."""

    def __init__(self, case: Case, context: StageContext, name: str) -> None:
        self._case, self._context, self._name = case, context, name

    def prepare(self, number: int) -> None:
        self._case.put(f"{self._name}{number}")

    def work(self, _number: int) -> None:
        found = run_discover(self._context, now=NOW)
        assert not found.errors
        done = run_stream(self._context, now=NOW)
        assert not done.errors
        assert not done.quarantined

    def outcome(self, _number: int) -> Mapping[str, object]:
        """Reads the newest objects: only one round was converted since the last comparison."""
        return self._case.outcome_of_new()


class SparkJobs:
    """A job for each table, some at a time."""

    def __init__(self, case: Case, at_once: int) -> None:
        self._case, self._at_once = case, at_once
        self._spark: Any = connect(case.context.settings.spark_remote)

    def prepare(self, _number: int) -> None:
        """Needs nothing: the objects of our round are there."""

    def work(self, number: int) -> None:
        def convert(table: str) -> None:
            to_parquet(self._spark, f"{table}/worker{number}", self._target(number, table))

        with ThreadPoolExecutor(self._at_once) as pool:
            list(pool.map(convert, self._case.tables))

    def outcome(self, number: int) -> Mapping[str, object]:
        return self._case.outcome(self._target(number, ""), "event_time")

    def _target(self, number: int, table: str) -> str:
        return f"peer{self._at_once}/round{number}/{table}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench many", description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--objects", type=int, default=400)
    parser.add_argument("--lines", type=int, default=143, help="lines of each object; 143 are 50 KB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with bench_platform() as (context, folder):
        case = Case(context, folder, options.tables, options.objects, options.lines)
        live, engines = build_live_context(context.settings, progress=lambda _: None)
        worker, batch = Prism(case, live, "worker"), Prism(case, context, "batch")
        one, two = SparkJobs(case, 1), SparkJobs(case, 2)
        meter = StackCores(LocalStack(folder / ".prism"))
        try:
            timings = race(
                [
                    System("prism, a batch on Spark", batch.prepare, batch.work, batch.outcome),
                    System("prism, live worker", worker.prepare, worker.work, worker.outcome),
                    System("Spark, a job a table", one.prepare, one.work, one.outcome),
                    System("Spark, two jobs at once", two.prepare, two.work, two.outcome),
                ],
                options.rounds,
                meter=meter,
            )
            postgres = _in_postgres(worker, meter, options.rounds + 2) / options.objects
        finally:
            engines.close()
            live.database.dispose()
    rows = options.objects * options.lines
    note = f"{options.objects} objects of {options.lines} lines over {options.tables} tables, {rows:,} rows; all warm."
    title = "Many: small objects of many tables until committed"
    figures = {"PostgreSQL: core-s per object": round(postgres, 5)}
    goals = {"Spark, a job a table": 10.0}
    return 0 if report(title, timings, goals, [note], target="P3", rows=rows, figures=figures) else 1


def _in_postgres(prism: Prism, meter: StackCores, number: int) -> float:
    """Returns the core-seconds of PostgreSQL in one more round."""
    prism.prepare(number)
    before = meter.read()["postgres"]
    prism.work(number)
    return meter.read()["postgres"] - before


if __name__ == "__main__":
    sys.exit(main())

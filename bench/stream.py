"""Stream against Spark's own JSON reader: gzip objects of JSON Lines to Parquet by event date.

Both read from and write to the same S3 server. Ours does everything: claim in PostgreSQL, quarantine, ledger, one
sorted object per staging object and date, commit. The peer does none of these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.cores import StackCores
from bench.harness import System, race, report
from bench.platform import NOW, SPARK_SCHEMA, apply_rounds, bench_platform, download, summary, upload, write_objects
from prism_assets.engine.sessions import connect
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_local.stack import LocalStack


class Prism:
    """Each round has its own table `bench.{name}{number}`, so that every round converts the same objects."""

    def __init__(self, context: StageContext, objects: Path, folder: Path, name: str = "round") -> None:
        self._context, self._objects, self._folder, self._name = context, objects, folder, name

    def prepare(self, number: int) -> None:
        upload(self._context, self._objects, f"{self._name}{number}/")
        run_discover(self._context, now=NOW, names=[f"bench.{self._name}{number}"])

    def work(self, number: int) -> None:
        done = run_stream(self._context, now=NOW, names=[f"bench.{self._name}{number}"])
        assert not done.errors
        assert not done.quarantined

    def outcome(self, number: int) -> Mapping[str, object]:
        target = self._folder / "ours"
        download(self._context, f"{self._name}{number}/live/", target)
        return summary(f"{target}/*.parquet", "time")


class SparkJson:
    """Spark's JSON reader with a schema, writing zstd Parquet partitioned by date, in the same Spark server."""

    def __init__(self, context: StageContext, folder: Path) -> None:
        self._spark: Any = connect(context.settings.spark_remote)
        self._context, self._folder = context, folder

    def prepare(self, _number: int) -> None:
        """Needs nothing: each round has its own target, and reads the objects of our round."""

    def work(self, number: int) -> None:
        to_parquet(self._spark, f"round{number}", f"peer/round{number}")

    def outcome(self, number: int) -> Mapping[str, object]:
        target = self._folder / "theirs"
        download(self._context, f"peer/round{number}/", target)
        return summary(f"{target}/*.parquet", "event_time")


def to_parquet(spark: Any, prefix: str, target: str) -> None:
    """Converts all objects of a prefix in one job."""
    from pyspark.sql import functions

    frame = spark.read.schema(SPARK_SCHEMA).json(f"s3a://prism-staging/{prefix}/")
    frame = frame.withColumn("dt", functions.to_date("event_time"))
    frame.write.partitionBy("dt").option("compression", "zstd").parquet(f"s3a://prism-lake/{target}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench stream", description=__doc__)
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--lines", type=int, default=12_000, help="lines of each object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmups", type=int, default=2, help="rounds that are run and not counted")
    options = parser.parse_args()
    with bench_platform() as (context, folder):
        objects = folder / "objects"
        size = write_objects(objects, options.objects, options.lines)
        rows = options.objects * options.lines
        print(f"{rows:,} lines, {size / 1e6:.0f} MB of JSON in {options.objects} gzip objects", flush=True)
        apply_rounds(context, folder, options.warmups + options.rounds)
        ours = Prism(context, objects, folder)
        peer = SparkJson(context, folder)
        timings = race(
            [
                System("prism stream", ours.prepare, ours.work, ours.outcome),
                System("Spark JSON reader", peer.prepare, peer.work, peer.outcome),
            ],
            options.rounds,
            options.warmups,
            StackCores(LocalStack(folder / ".prism")),
        )
    note = f"{rows:,} lines, {size / 1e6:.0f} MB of JSON in {options.objects} gzip objects; both warm."
    title = "Stream: JSON to Parquet through S3"
    return 0 if report(title, timings, {"Spark JSON reader": 2.0}, [note], target="P1", rows=rows) else 1


if __name__ == "__main__":
    sys.exit(main())

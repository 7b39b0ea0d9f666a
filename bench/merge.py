"""Merge against Spark's coalesce(1): small Parquet objects of one partition into one.

Ours does everything: claim in PostgreSQL, read from S3, fingerprints of input and output, a k-way pass by time, upload
to S3, commit. The peers read and write the local disk, and the first does not even sort.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness import System, race, report
from bench.platform import NOW, apply_rounds, bench_platform, download, summary, upload, write_objects
from prism_assets.engine.sessions import connect
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream


class Prism:
    """Each round merges its own table with a closed day, so that everything becomes one object."""

    def __init__(self, context: StageContext, objects: Path, folder: Path, rounds: int) -> None:
        self._context, self._objects, self._folder = context, objects, folder
        apply_rounds(context, folder, rounds)

    def prepare(self, number: int) -> None:
        names = [f"bench.round{number}"]
        upload(self._context, self._objects, f"round{number}/")
        run_discover(self._context, now=NOW, names=names)
        run_stream(self._context, now=NOW, names=names)
        run_catalog(self._context, now=NOW, names=names)
        if number == 0:
            download(self._context, "round0/live/", self._folder / "small")

    def work(self, number: int) -> None:
        done = run_merge(self._context, now=NOW, names=[f"bench.round{number}"])
        assert not done.errors
        assert [len(entry.sizes) for entry in done.merged] == [1]

    def outcome(self, number: int) -> Mapping[str, object]:
        target = self._folder / "ours"
        download(self._context, f"round{number}/merged/", target)
        return summary(f"{target}/*.parquet", "time")


class SparkCoalesce:
    """Spark reads the same small objects and writes one file, sorted or not."""

    def __init__(self, remote: str, folder: Path, *, sort: bool) -> None:
        self._spark: Any = connect(remote)
        self._small, self._target, self._sort = folder / "small", folder / f"peer-{sort}", sort

    def prepare(self, _number: int) -> None:
        shutil.rmtree(self._target, ignore_errors=True)

    def work(self, _number: int) -> None:
        frame = self._spark.read.parquet(f"file://{self._small}").coalesce(1)
        if self._sort:
            frame = frame.sortWithinPartitions("time")
        frame.write.option("compression", "zstd").parquet(f"file://{self._target}")

    def outcome(self, _number: int) -> Mapping[str, object]:
        return summary(f"{self._target}/*.parquet", "time")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench merge", description=__doc__)
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--lines", type=int, default=10_000, help="rows of each object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmups", type=int, default=3, help="rounds that are run and not counted")
    options = parser.parse_args()
    with bench_platform() as (context, folder):
        objects = folder / "objects"
        write_objects(objects, options.objects, options.lines, hour=2)
        ours = Prism(context, objects, folder, options.warmups + options.rounds)
        plain = SparkCoalesce(context.settings.spark_remote, folder, sort=False)
        sorting = SparkCoalesce(context.settings.spark_remote, folder, sort=True)
        timings = race(
            [
                System("prism merge", ours.prepare, ours.work, ours.outcome),
                System("Spark coalesce(1)", plain.prepare, plain.work, plain.outcome),
                System("Spark coalesce(1), sorted", sorting.prepare, sorting.work, sorting.outcome),
            ],
            options.rounds,
            options.warmups,
        )
    note = f"{options.objects} objects of {options.lines:,} rows each into one; all warm."
    return 0 if report("Merge: small objects into one", timings, {"Spark coalesce(1)": 3.0}, [note], target="P5") else 1


if __name__ == "__main__":
    sys.exit(main())

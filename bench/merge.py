"""Merge against Spark's coalesce(1) and Iceberg's rewrite_data_files: small Parquet objects of a partition into one.

All read from and write to the same S3 server; first one range, then two side by side. Ours does everything: claim in
PostgreSQL, fingerprints of input and output, order by time, commit. Iceberg commits and does not sort. Spark's coalesce
does neither, and is raced with a sort as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.bars import Bar
from bench.cores import StackCores
from bench.harness import System, Timing, race, timing_figures, timing_grid
from bench.iceberg_merge import create_listed, listed_file, rewrite
from bench.platform import NOW, apply_rounds, bench_platform, download, summary, upload, write_objects
from bench.report import Report, Verdict, median_ratio
from prism_assets.engine.sessions import connect
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream
from prism_local.readers.spark_catalog import spark_catalog
from prism_local.stack import LocalStack

_RANGES = {1: ("one",), 2: ("left", "right")}
"""The names of tables by the number of ranges side by side. Each round has its own tables."""
_GOAL = 4.0


class Prism:
    """Each round merges its own tables with a closed day, so that each becomes one object."""

    def __init__(self, context: StageContext, objects: Path, folder: Path, ranges: int) -> None:
        self._context, self._objects, self._folder = context, objects, folder
        self._names = _RANGES[ranges]

    def prepare(self, number: int) -> None:
        tables = self._tables(number)
        for name in self._names:
            upload(self._context, self._objects, f"{name}{number}/")
        run_discover(self._context, now=NOW, names=tables)
        run_stream(self._context, now=NOW, names=tables)
        run_catalog(self._context, now=NOW, names=tables)

    def work(self, number: int) -> None:
        done = run_merge(self._context, now=NOW, names=self._tables(number))
        assert not done.errors
        assert [len(entry.sizes) for entry in done.merged] == [1] * len(self._names)

    def outcome(self, number: int) -> Mapping[str, object]:
        return _outcome(self._context, f"{self._names[0]}{number}/merged/", self._folder)

    def _tables(self, number: int) -> list[str]:
        return [f"bench.{name}{number}" for name in self._names]


class Peer:
    """Merges the small objects of our first round, once for each range, side by side."""

    def __init__(self, context: StageContext, folder: Path, ranges: int, name: str) -> None:
        self._context, self._folder = context, folder
        self._spark: Any = connect(context.settings.spark_remote)
        self._ranges, self._name = ranges, name

    def prepare(self, _number: int) -> None:
        raise NotImplementedError

    def work(self, number: int) -> None:
        with ThreadPoolExecutor(self._ranges) as pool:
            list(pool.map(self.merge, [self._target(number, place) for place in range(self._ranges)]))

    def merge(self, target: str) -> None:
        raise NotImplementedError

    def outcome(self, number: int) -> Mapping[str, object]:
        return _outcome(self._context, f"peers/{self._target(number, 0)}/", self._folder)

    def _target(self, number: int, place: int) -> str:
        return f"{self._name}_{_RANGES[self._ranges][place]}{number}"

    def small_objects(self) -> list[tuple[str, int]]:
        return _small_objects(self._context, self._ranges)


class SparkCoalesce(Peer):
    """Spark reads the small objects and writes one file, sorted or not."""

    sorts = False
    _source = ""

    def prepare(self, _number: int) -> None:
        key, _ = self.small_objects()[0]
        self._source = key[: key.index("/live/") + len("/live/")]

    def merge(self, target: str) -> None:
        bucket = self._context.lake.bucket
        reader = self._spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        frame = reader.parquet(f"s3a://{bucket}/{self._source}").coalesce(1)
        if self.sorts:
            frame = frame.sortWithinPartitions("time")
        frame.write.option("compression", "zstd").parquet(f"s3a://{bucket}/peers/{target}")


class SortedCoalesce(SparkCoalesce):
    """Spark sorts the rows as well."""

    sorts = True


class IcebergRewrite(Peer):
    """Iceberg's procedure rewrites a table that lists the small objects."""

    def __init__(self, context: StageContext, folder: Path, ranges: int, name: str, lines: int) -> None:
        super().__init__(context, folder, ranges, name)
        self._lines = lines
        for key, value in spark_catalog(context.settings).items():
            self._spark.conf.set(f"spark.sql.catalog.prism{key}", value)

    def prepare(self, number: int) -> None:
        (ours,) = self._context.choose_tables([f"bench.{_RANGES[self._ranges][0]}0"])
        bucket = self._context.lake.bucket
        files = [listed_file(f"s3://{bucket}/{key}", self._lines, size) for key, size in self.small_objects()]
        for place in range(self._ranges):
            create_listed(self._context, self._target(number, place), ours, files)

    def merge(self, target: str) -> None:
        rewrite(self._spark, target)


def _small_objects(context: StageContext, ranges: int) -> list[tuple[str, int]]:
    """Returns keys and lengths of the small objects of our first table."""
    part = f"{_RANGES[ranges][0]}0/live/"
    found = context.stores.list(context.lake.bucket, "")
    return [(item.key, item.content_length) for item in found if part in item.key and item.key.endswith(".parquet")]


def _outcome(context: StageContext, part_of_key: str, folder: Path) -> Mapping[str, object]:
    target = folder / "outcome"
    download(context, part_of_key, target)
    return summary(f"{target}/*.parquet", "time")


def race_ranges(
    context: StageContext, objects: Path, folder: Path, ranges: int, options: argparse.Namespace
) -> list[Timing]:
    """Races merges of one number of ranges."""
    ours = Prism(context, objects, folder, ranges)
    peers: Sequence[tuple[str, Peer]] = (
        ("Spark coalesce(1)", SparkCoalesce(context, folder, ranges, "plain")),
        ("Spark coalesce(1), sorted", SortedCoalesce(context, folder, ranges, "sorted")),
        ("Iceberg rewrite_data_files", IcebergRewrite(context, folder, ranges, "rewrite", options.lines)),
    )
    systems = [System("prism merge", ours.prepare, ours.work, ours.outcome)]
    systems += [System(name, peer.prepare, peer.work, peer.outcome) for name, peer in peers]
    return race(systems, options.rounds, options.warmups, StackCores(LocalStack(folder / ".prism")))


def main() -> int:
    """Returns exit status 1 if a merge is not four times as fast as a peer."""
    parser = argparse.ArgumentParser(prog="scripts/bench merge", description=__doc__)
    parser.add_argument("--objects", type=int, default=2_000)
    parser.add_argument("--lines", type=int, default=1_330, help="rows of each object; 1,330 are 64 KB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmups", type=int, default=1, help="rounds that are run and not counted")
    options = parser.parse_args()
    with bench_platform() as (context, folder):
        objects = folder / "objects"
        write_objects(objects, options.objects, options.lines, hour=2)
        names = [name for names in _RANGES.values() for name in names]
        apply_rounds(context, folder, options.warmups + options.rounds, dict.fromkeys(names, ""))
        races = {ranges: race_ranges(context, objects, folder, ranges, options) for ranges in _RANGES}
        megabytes = sum(size for _, size in _small_objects(context, 1)) / 1e6
    return 0 if _report(races, options, megabytes).publish() else 1


def _report(races: Mapping[int, Sequence[Timing]], options: argparse.Namespace, megabytes: float) -> Report:
    rows = options.objects * options.lines
    titled = {1: "one range", 2: "two ranges side by side"}
    verdicts = tuple(
        Verdict("P5", f"seconds, {titled[ranges]}, {one.name} : ours", _ratio(one, timings[0]), _GOAL)
        for ranges, timings in races.items()
        for one in timings[1:]
        if "sorted" not in one.name
    )
    speeds = [
        f"MB/s per core, {titled[ranges]}: "
        + ", ".join(f"{one.name} {ranges * megabytes / one.core_median:.1f}" for one in timings)
        + "."
        for ranges, timings in races.items()
    ]
    size = f"{options.objects:,} objects of {options.lines:,} rows, {megabytes:.0f} MB"
    figures = {
        f"{titled[ranges]}, {name}": value
        for ranges, timings in races.items()
        for name, value in timing_figures(timings, ranges * rows).items()
    }
    return Report(
        entry="merge",
        title="Merge: small objects into one",
        verdicts=verdicts,
        grids=tuple(
            timing_grid(titled[ranges].capitalize(), timings, ranges * rows) for ranges, timings in races.items()
        ),
        notes=(f"{size}, into one for each range; all warm.", *speeds),
        bars=tuple(Bar(one.name, one.median, one is races[1][0]) for one in races[1]),
        figures=figures,
    )


def _ratio(peer: Timing, ours: Timing) -> float:
    return median_ratio(peer.seconds, ours.seconds)


if __name__ == "__main__":
    sys.exit(main())

"""The plan of 30 days of 100,000 objects: our lists behind Glue, against listing S3, and against PyIceberg.

All three find the objects in the same local S3 server; ours asks the local Glue, PyIceberg PostgreSQL. The objects are
empty files, because a plan reads none of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

from bench.bars import Bar
from bench.iceberg import Bench, append_all, instant, planned, timed
from bench.platform import NOW, TABLE, bench_stack
from bench.report import Grid, Report, Verdict, median_ratio
from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.objectstore.manifests import write_manifest
from prism_assets.platform import build_context
from prism_assets.publishers.base import UNOBSERVED
from prism_assets.publishers.glue import GluePublisher
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.settings import load_settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext

_FIRST = date(2026, 1, 1)
_DAYS = 30
_READERS = 8
_NAME = "bench.plans"
Contents = Mapping[date, Sequence[SmallObject]]


def publish(context: StageContext, contents: Contents) -> None:
    """Shows the days by lists in Glue, as the catalog stage does, without asking whether the objects exist."""
    (table,) = context.choose_tables([_NAME])
    publisher = context.publisher
    assert isinstance(publisher, GluePublisher)
    locations = {}
    for day, files in contents.items():
        publication = Publication(1, 1)
        key = publisher.list_key(table, day, publication)
        assert key is not None
        context.stores.put(context.lake.bucket, key, write_manifest(files))
        locations[day] = publisher.location(table, day, publication)
    failed = publisher.catalog.publish(table, locations, UNOBSERVED)
    assert not failed, failed


def make_objects(bucket: Path, contents: Contents) -> None:
    """Makes empty objects in the folder of the S3 server."""
    for files in contents.values():
        for file in files:
            path = bucket / file.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def race(ways: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each round. Raises ValueError if the numbers of objects differ."""
    counts = {name: plan() for name, plan in ways.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"the plans differ: {counts}")
    print(f"all planned {counts}", flush=True)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, plan in ways.items():
            found[name].append(timed(plan))
    return found


def measure(bucket: Path, folder: Path, objects: int, rounds: int) -> dict[str, list[float]]:
    """Makes the tables and races the plans."""
    tables = folder / "tables"
    tables.mkdir()
    (tables / "plans.yaml").write_text(TABLE.format(table="plans"))
    settings = load_settings()
    context = build_context(settings)
    try:
        run_apply(context, tables, NOW)
        run_catalog(context, now=NOW)
        bench = Bench(settings)
        days = [_FIRST + timedelta(days=number) for number in range(_DAYS)]
        contents = {day: bench.files(day, 0, objects // _DAYS, minutes=1_440) for day in days}
        publish(context, contents)
        make_objects(bucket, contents)
        mixed = [file for files in contents.values() for file in files]
        size = max(1, len(mixed) // 100)
        peer, _ = append_all(bench, "mixed", [mixed[at : at + size] for at in range(0, len(mixed), size)])
        reader = LakeReader(settings)

        def ours() -> int:
            return sum(len(partition.objects) for partition in reader.table(_NAME).partitions)

        def listed() -> int:
            def count(day: date) -> int:
                prefix = f"{contents[day][0].key.rpartition('/')[0]}/"
                return sum(1 for _ in context.stores.list(settings.bucket, prefix))

            with ThreadPoolExecutor(_READERS) as pool:
                return sum(pool.map(count, days))

        def iceberg() -> int:
            return planned(peer, instant(_FIRST, 0), instant(days[-1], 1_440), None)

        return race({"lists behind Glue": ours, "S3 listing": listed, "PyIceberg": iceberg}, rounds)
    finally:
        context.database.dispose()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench plan", description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with bench_stack({"postgres", "s3", "aws"}) as (stack, folder):
        bucket = stack.place.data / "s3" / load_settings().bucket
        found = measure(bucket, folder, options.objects, options.rounds)
    ours = found["lists behind Glue"]
    ratios = {name: median_ratio(seconds, ours) for name, seconds in found.items()}
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    rows = tuple(
        (name, f"{medians[name]:.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}", f"{ratios[name]:.1f}")
        for name, seconds in found.items()
    )
    return (
        0
        if Report(
            entry="plan",
            title="Plan: 30 days of many objects",
            verdicts=(
                Verdict("P8", "seconds, S3 listing : ours", ratios["S3 listing"], 20),
                Verdict("P8", "seconds, PyIceberg : ours", ratios["PyIceberg"], 2),
            ),
            grids=(Grid("Plans", ("plan", "s", "least to most", ": ours"), rows),),
            notes=(
                f"{options.objects:,} objects in {_DAYS} days, local servers; a listing asks {_READERS} at a time.",
            ),
            bars=tuple(Bar(name, value, name == "lists behind Glue") for name, value in medians.items()),
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())

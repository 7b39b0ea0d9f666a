"""One against two Spark workers of one core, by `spark://` and by Spark Connect: Stream and Merge on the local disk.

Everything runs on this machine: workers, driver and PostgreSQL. Where Linux lets us, each worker gets a part of a
core, so that driver and PostgreSQL have the rest, as in a cluster. Elsewhere worker N is bound to core N, driver and
PostgreSQL take their time from the same cores, and seconds show less than a cluster would. Beside them stand the
core-seconds of each worker: work that the busiest worker has left bounds the time of a cluster.

Files lie on the local disk, because a local S3 server would need a core of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.bars import Bar
from bench.cores import FamilyCores, OwnCores
from bench.cpu_limits import can_limit, cpu_limit
from bench.harness import System, Timing, race, timing_figures, timing_grid
from bench.platform import NOW, apply_rounds, bench_stack, download, summary, upload, write_objects
from bench.report import Grid, Report, Verdict, median_ratio
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.engine.spark_cluster import SparkCluster
from prism_local.processes import family
from prism_local.stack import LocalStack

_GOAL = 1.8
_BUSY_GOAL = 0.8
_ROADS = ("spark://", "Spark Connect")
_STAGES = ("stream", "merge")
_TIERS = {"stream": "live", "merge": "merged"}
Rounds = Sequence[Mapping[str, float]]
"""Core-seconds by process, for each round."""
_SHARE = 0.5
_SIDE_BY_SIDE = 2
"""Tables of one merge run: each has one merge task."""


class ClusterCores:
    """Counts core-seconds of PostgreSQL and of all processes of a cluster and its driver, by name."""

    def __init__(self, stack: LocalStack, clusters: Sequence[Workers]) -> None:
        self._roots = {
            item.name: FamilyCores(psutil.Process(item.pid))
            for item in stack.status()
            if item.pid is not None and item.name == "postgres"
        }
        for cluster in clusters:
            self._roots |= {
                f"{cluster.name}: {name}": FamilyCores(process) for name, process in cluster.processes.items()
            }

    def read(self) -> Mapping[str, float]:
        """Reads them for the whole family of each process."""
        return {
            **OwnCores().read(),
            **{name: root.read() for name, root in self._roots.items()},
        }


@dataclass
class Workers:
    """A cluster with a driver, and what each of its workers did in each round."""

    name: str
    cluster: SparkCluster
    driver: subprocess.Popen[str]
    meter: ClusterCores | None = None
    rounds: list[Mapping[str, float]] = field(default_factory=list)

    @property
    def processes(self) -> Mapping[str, psutil.Process]:
        return {**self.cluster.processes, "driver": psutil.Process(self.driver.pid)}

    def run(self, stage: str, names: Sequence[str]) -> None:
        """Has the driver run a stage, and notes the core-seconds of each worker."""
        assert self.meter is not None
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        before = self.meter.read()
        self.driver.stdin.write(f"{stage} {' '.join(names)}\n")
        self.driver.stdin.flush()
        if self.driver.stdout.readline().strip() != "done":
            raise RuntimeError(f"{self.name}: the driver ended, see {self.cluster.folder / 'driver.log'}")
        after = self.meter.read()
        own = f"{self.name}: "
        self.rounds.append(
            {
                name.removeprefix(own): after[name] - before[name]
                for name in after
                if name.startswith(own) or name == "postgres"
            }
        )


@contextmanager
def workers(name: str, count: int, road: str, folder: Path, share: float) -> Iterator[Workers]:
    """Starts a cluster and its driver. Ends both, each process by its id. `share` is each worker's part of a core."""
    is_limited = share < 1
    cluster = SparkCluster(folder, workers=count, pinned=not is_limited and (os.cpu_count() or 1) >= count)
    foreign = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
    own = {key: value for key, value in os.environ.items() if key not in foreign}
    with ExitStack() as held:
        # The groups go last, because they must be empty then.
        limits = [
            cpu_limit(f"{name.replace(' ', '-')}-{worker}", share) for worker in range(count if is_limited else 0)
        ]
        groups = [held.enter_context(limit) for limit in limits]
        held.callback(cluster.down)
        cluster.up()
        for worker, group in enumerate(groups):
            for process in family(cluster.processes[f"worker {worker}"]):
                with suppress(ProcessLookupError):  # a short-lived child of the worker has ended
                    group.write_text(str(process.pid))
        remote = cluster.master if road == "spark://" else cluster.start_connect()
        with (folder / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "bench.cluster_driver"],
                env={**own, **cluster.environment, "PRISM_SPARK_REMOTE": remote},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        yield Workers(name, cluster, held.enter_context(driver))


@dataclass
class Bench:
    """The lake of a benchmark, with tables of their own for each stage, way, system and round."""

    context: StageContext
    stack: LocalStack
    folder: Path
    rounds: int
    warmups: int
    share: float
    """Each worker's part of a core."""
    found: dict[tuple[str, str], Sequence[Timing]] = field(default_factory=dict)
    spent: dict[tuple[str, str], Sequence[Rounds]] = field(default_factory=dict)

    def race(self, road: str, inputs: Mapping[str, Path]) -> None:
        """Has two workers and one worker do each stage in turn. Raises ValueError if their rows differ."""
        place = self.folder / f"clusters-{_ROADS.index(road)}"
        with (
            workers("two workers", 2, road, place / "two", self.share) as two,
            workers("one worker", 1, road, place / "one", self.share) as one,
        ):
            both = (two, one)
            meter = ClusterCores(self.stack, both)
            for each in both:
                each.meter = meter
            for stage, objects in inputs.items():
                systems = [self._system(road, stage, each, objects) for each in both]
                self.found[road, stage] = race(systems, self.rounds, self.warmups, meter)
                self.spent[road, stage] = [each.rounds[-self.rounds :] for each in both]

    def _system(self, road: str, stage: str, by: Workers, objects: Path) -> System:
        def tables(number: int) -> list[str]:
            name = f"{stage}{_ROADS.index(road)}{by.cluster.workers}"
            count = _SIDE_BY_SIDE if stage == "merge" else 1
            return [f"{name}{letter}{number}" for letter in "ab"[:count]]

        def prepare(number: int) -> None:
            names = [f"bench.{table}" for table in tables(number)]
            for table in tables(number):
                upload(self.context, objects, f"{table}/")
            run_discover(self.context, now=NOW, names=names)
            if stage == "merge":
                run_stream(self.context, now=NOW, names=names)
                run_catalog(self.context, now=NOW, names=names)

        def outcome(number: int) -> Mapping[str, object]:
            found: dict[str, object] = {}
            for letter, table in zip("ab", tables(number), strict=False):
                target = self.folder / "outcome"
                download(self.context, f"{table}/{_TIERS[stage]}/", target)
                found |= {f"{letter}: {name}": value for name, value in summary(f"{target}/*.parquet", "time").items()}
            return found

        # All inputs are ready before the first run. Spark ends the Python workers of a cluster that idles for a minute:
        # with inputs made in between, that was the cluster whose peer takes longer.
        for number in range(self.warmups + self.rounds + 1):
            prepare(number)
        return System(
            by.name,
            lambda _number: None,
            lambda number: by.run(stage, [f"bench.{table}" for table in tables(number)]),
            outcome,
        )


def busiest(rounds: Rounds) -> list[float]:
    """Returns the core-seconds of the busiest worker in each round."""
    return [max(spent for name, spent in each.items() if name.startswith("worker")) for each in rounds]


def evenness(rounds: Rounds) -> float:
    """Returns core-seconds of the idlest worker for each of the busiest, the median over rounds."""
    shares = [[spent for name, spent in each.items() if name.startswith("worker")] for each in rounds]
    return statistics.median(min(each) / max(each) for each in shares)


def publish(bench: Bench, notes: Sequence[str]) -> bool:
    """Writes the report: seconds, and what each process did."""
    verdicts: list[Verdict] = []
    grids: list[Grid] = []
    bars: list[Bar] = []
    figures: dict[str, float] = {}
    for (road, stage), timings in bench.found.items():
        two, one = bench.spent[road, stage]
        work = f"{stage} by {road}"
        verdicts += [
            Verdict("P13", f"{work}: seconds, 1 : 2", median_ratio(timings[1].seconds, timings[0].seconds), _GOAL),
            Verdict(
                "", f"{work}: core-s of the busiest worker, 1 : 2", median_ratio(busiest(one), busiest(two)), _GOAL
            ),
            Verdict("P13", f"{work}: core-s, idlest : busiest of 2", evenness(two), _BUSY_GOAL),
        ]
        grids += [
            timing_grid(work, timings),
            _cores(f"Core-seconds of {work}", {"two workers": two, "one worker": one}),
        ]
        bars += [Bar(f"{work}, {timing.name}", timing.median, timing is timings[0]) for timing in timings]
        figures |= {f"{work}, {name}": value for name, value in timing_figures(timings).items()}
    return Report(
        entry="cluster",
        title="Cluster: one and two Spark workers of one core",
        verdicts=tuple(verdicts),
        grids=tuple(grids),
        notes=tuple(notes),
        bars=tuple(bars),
        figures=figures,
    ).publish()


def _cores(title: str, found: Mapping[str, Rounds]) -> Grid:
    names = ("worker 0", "worker 1", "driver", "server 0", "master", "postgres")
    heads = ("system", *names)
    rows = []
    for system, rounds in found.items():
        cells = [statistics.median(each.get(name, 0.0) for each in rounds) for name in names]
        rows.append((system, *(f"{cell:.2f}" if cell else "" for cell in cells)))
    return Grid(title, heads, tuple(rows))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench cluster", description=__doc__)
    parser.add_argument("--objects", type=int, default=300, help="gzip objects of Stream")
    parser.add_argument("--lines", type=int, default=11_500, help="lines of each, 4 MB")
    parser.add_argument("--merged", type=int, default=600, help="small objects of each of two merges")
    parser.add_argument("--rows", type=int, default=4_400, help="rows of each, about 200 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmups", type=int, default=1, help="rounds that are run and not counted")
    parser.add_argument(
        "--share", type=float, default=_SHARE if can_limit() else 1.0, help="each worker's part of a core"
    )
    parser.add_argument("--stages", nargs="+", choices=_STAGES, default=_STAGES)
    parser.add_argument("--roads", nargs="+", choices=_ROADS, default=_ROADS)
    options = parser.parse_args()
    with bench_stack(("postgres", "aws")) as (stack, folder):
        buckets = folder / "buckets"
        for bucket in ("prism-staging", "prism-lake"):
            (buckets / bucket).mkdir(parents=True)
        os.environ |= {"PRISM_BUCKET": "prism-lake", "PRISM_LOCAL_ROOT": str(buckets)}
        context = build_context(load_settings(spark_remote="in-process"))
        rounds = options.warmups + options.rounds
        letters = {"stream": "a", "merge": "ab"}
        names = [
            f"{stage}{_ROADS.index(road)}{count}{letter}"
            for road in options.roads
            for stage in options.stages
            for count in (1, 2)
            for letter in letters[stage]
        ]
        apply_rounds(context, folder, rounds, dict.fromkeys(names, ""))
        inputs = {"stream": (options.objects, options.lines, 20), "merge": (options.merged, options.rows, 2)}
        bench = Bench(context, stack, folder, options.rounds, options.warmups, options.share)
        for stage in options.stages:
            write_objects(folder / stage, *inputs[stage])
        for road in options.roads:
            bench.race(road, {stage: folder / stage for stage in options.stages})
        return 0 if publish(bench, _notes(options)) else 1


def _notes(options: argparse.Namespace) -> list[str]:
    cores = (
        f"Each worker has {options.share:g} of a core, with its executor. Driver and PostgreSQL have the rest of this "
        "machine, as they have machines of their own in a cluster."
        if options.share < 1
        else "Workers, drivers and PostgreSQL share the cores of this machine; worker N is bound to core N. Seconds "
        "therefore show less than a cluster of machines."
    )
    return [
        f"Stream: {options.objects} gzip objects of {options.lines:,} lines. Merge: two tables, each "
        f"{options.merged} small objects of {options.rows:,} rows into one. Files on the local disk.",
        "",
        f"{cores} Core-seconds of a worker are those of its executor, with Java and Python.",
    ]


if __name__ == "__main__":
    sys.exit(main())

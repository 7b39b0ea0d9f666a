"""Folds of join tables against peers: a million records, and changes of three groups, each a third as many.

Ours runs a fold's tasks in two processes, as Spark's Python workers run them, from and to a folder: read, check
fingerprints, merge, sort by key, write Parquet, compute fingerprints. PostgreSQL and Spark's scheduling are excluded.
The rows of all systems are compared before a time counts. The report gives core-seconds, because other work on the
machine does not stretch them, and wall-clock seconds. Ratios are medians over the pairs of one round. Below stand the
write costs of the fold policy and the age of changes for readers, from `join_policy.py`.

    scripts/bench join [--rows 1000000] [--changes 333333] [--rounds 5] [--systems prism duckdb-joins ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from bench import join_peers as peers
from bench.join_case import BUCKET, Case, make_case
from bench.join_policy import SOME, figures
from bench.join_worker import import_kernels, run_task
from bench.report import RESULTS, machine
from prism_assets.domain.records.folding import FoldResult, RecordPart
from prism_assets.domain.records.joins import PublishPolicy
from prism_assets.domain.work import from_json
from prism_assets.engine.allocator import ONE_HEAP
from prism_assets.engine.worker import encode_share
from prism_assets.objectstore.lake import Lake

PRISM = "prism"
TARGETS = {"spark-max-by": 3.0, "iceberg-merge-into": 4.0, "paimon": 1.3, "duckdb-joins": 1.0, "duckdb-arg-max": 1.0}
_MOST_BYTES = 2e9
_NAMES = {
    PRISM: "prism fold",
    "duckdb-joins": "DuckDB, joins",
    "duckdb-arg-max": "DuckDB, arg_max",
    "polars": "polars, full joins",
    "spark-max-by": "Spark max_by",
    "iceberg-merge-into": "Iceberg MERGE INTO",
    "paimon": "Paimon full compaction",
}


class Prism:
    """The tasks of a fold, in separate processes."""

    def __init__(self, case: Case, pool: ProcessPoolExecutor) -> None:
        self._case, self._pool = case, pool
        lake = Lake(BUCKET, "", case.store)
        definitions = {(case.table.table_id, case.table.version): case.table}
        self._shares = [encode_share("fold", [task], definitions, lake) for task in case.tasks]
        self._written: list[Path] = []
        self.peak_bytes = 0

    def prepare(self) -> None:
        for path in self._written:
            path.unlink()
        self._written = []

    def work(self) -> None:
        for text, peak in self._pool.map(run_task, self._shares):
            result = from_json(FoldResult, text)
            assert result.failure is None, result.failure
            assert result.pending == 0
            self._written += [self._case.folder / BUCKET / item.key for item in result.written]
            assert all(item.part is RecordPart.VISIBLE for item in result.written)
            self.peak_bytes = max(self.peak_bytes, peak)

    def rows(self) -> str:
        return f"read_parquet({[str(path) for path in self._written]}, hive_partitioning = false)"


@dataclass
class Rounds:
    """The costs of each round of a system."""

    wall: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    @property
    def line(self) -> str:
        return f"{self.cores[-1]:.2f} core-s, {self.wall[-1]:.2f} s"


def core_seconds() -> float:
    """Returns the CPU time of this process and all its descendants, ended ones included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def timed(system: peers.Peer, rounds: Rounds) -> None:
    """Runs one round of one system."""
    system.prepare()
    cores, started = core_seconds(), time.perf_counter()
    system.work()
    rounds.wall.append(time.perf_counter() - started)
    rounds.cores.append(core_seconds() - cores)


def race(systems: Mapping[str, peers.Peer], rounds: int, console: Console) -> dict[str, Rounds]:
    """Runs each system once, compares the rows, then times them in turn. Raises ValueError if rows differ."""
    found: dict[str, dict[str, object]] = {}
    for name, system in systems.items():
        first = Rounds()
        timed(system, first)
        found[name] = peers.digest(system.rows())
        console.print(f"first run of {_NAMES[name]}: {first.line}")
        if found[name] != found[next(iter(systems))]:
            raise ValueError(f"{_NAMES[name]} gave {found[name]}, {PRISM} {found[PRISM]}")
    console.print(f"all gave {found[PRISM]}")
    took = {name: Rounds() for name in systems}
    for number in range(rounds):
        for name, system in systems.items():
            timed(system, took[name])
        timings = "; ".join(f"{_NAMES[name]} {each.line}" for name, each in took.items())
        console.print(f"round {number + 1}: {timings}")
    return took


def start(
    case: Case, names: Sequence[str], processes: int, folder: Path, stack: ExitStack, console: Console
) -> tuple[dict[str, peers.Peer], dict[str, str]]:
    """Returns the systems available here, and why others are not."""
    spark: list[Any] = []

    def session() -> Any:
        if not spark:
            spark.append(peers.spark_session(folder))
            stack.callback(spark[0].stop)
        return spark[0]

    def paimon() -> peers.Peer:
        system = peers.Paimon(case)
        stack.callback(system.stop)
        return system

    makers: Mapping[str, Callable[[], peers.Peer]] = {
        PRISM: lambda: Prism(case, stack.enter_context(_pool(processes))),
        "duckdb-joins": lambda: peers.DuckDBJoins(case),
        "duckdb-arg-max": lambda: peers.DuckDBArgMax(case),
        "polars": lambda: _with_polars(case),
        "spark-max-by": lambda: peers.SparkMaxBy(case, session()),
        "iceberg-merge-into": lambda: peers.IcebergMerge(case, session()),
        "paimon": paimon,
    }
    systems: dict[str, peers.Peer] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            systems[name] = makers[name]()
        except Exception as error:
            if name == PRISM:
                raise
            absent[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            console.print(f"{_NAMES[name]} is left out: {absent[name]}", markup=False)
    return systems, absent


def _pool(processes: int) -> ProcessPoolExecutor:
    os.environ |= ONE_HEAP  # workers inherit it
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), import_kernels)


def _with_polars(case: Case) -> peers.Peer:
    import polars  # noqa: F401 to find out whether it is there

    return peers.Polars(case)


def lines_of(case: Case, took: Mapping[str, Rounds], absent: Mapping[str, str], peak_bytes: int) -> Iterator[str]:
    """Yields the report's table."""
    yield "| system | core-s | least | most | wall s | ours takes less by, core-s | by wall | target | reached |"
    yield "|---" * 9 + "|"
    for name, each in took.items():
        ratio, wall = (_ratio(took, name, kind) for kind in ("cores", "wall"))
        cells = [f"{statistics.median(each.cores):.2f}", f"{min(each.cores):.2f}", f"{max(each.cores):.2f}"]
        cells += [f"{statistics.median(each.wall):.2f}"]
        cells += ["", ""] if name == PRISM else [f"{ratio:.2f} x", f"{wall:.2f} x"]
        target = TARGETS.get(name)
        cells += [f">= {target} x", "yes" if ratio >= target else "**no**"] if target else ["", ""]
        yield f"| {_NAMES[name]} | " + " | ".join(cells) + " |"
    yield ""
    for name, reason in absent.items():
        aim = f", whose target is {TARGETS[name]} x," if name in TARGETS else ""
        yield f"{_NAMES[name]}{aim} was not run: {reason}"
    tasks = f"{len(case.tasks)} task{'s' if len(case.tasks) > 1 else ''}"
    yield f"Our fold ran in {tasks}; the most memory that a process of it had is {peak_bytes / 1e9:.2f} GB (target: 2)."
    yield (
        f"{case.rows:,} records and {case.changes:,} changes of each of three groups, 19 columns; all systems gave "
        f"equal rows, and {len(next(iter(took.values())).cores)} rounds were counted behind one that was not."
    )


def _ratio(took: Mapping[str, Rounds], name: str, kind: str) -> float:
    pairs = zip(getattr(took[name], kind), getattr(took[PRISM], kind), strict=True)
    return float(statistics.median(peer / own for peer, own in pairs))


def policy_lines(per_hour: int) -> Iterator[str]:
    """Yields the costs of the fold policy on simulated traffic."""
    yield "| dirty | stale | rows written per record | waiting rows per record | age when readable, minutes |"
    yield "|---" * 5 + "|"
    for dirty, stale in SOME:
        found = figures(PublishPolicy(dirty=dirty, stale_seconds=stale), per_hour)
        ages = ", ".join(f"{name} {value:.0f}" for name, value in found.ages.items())
        yield f"| {dirty:g} | {stale // 60} min | {found.rows:.2f} | {found.waiting_rows:.2f} | {ages} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit status 1 if a target is missed or could not be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of the base")
    parser.add_argument("--changes", type=int, default=333_333, help="changes of each group")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=peers.THREADS, help="of ours")
    parser.add_argument("--systems", nargs="+", choices=[*_NAMES], default=[*_NAMES])
    parser.add_argument("--per-hour", type=int, default=10_000, help="records born in an hour, for the policy")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the report")
    options = parser.parse_args(arguments)
    names = [PRISM, *(name for name in options.systems if name != PRISM)]
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="prism-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        case = make_case(folder / "case", options.rows, options.changes)
        console.print(f"made {options.rows:,} records and 3 x {options.changes:,} changes")
        systems, absent = start(case, names, options.processes, folder, stack, console)
        took = race(systems, options.rounds, console)
        ours = systems[PRISM]
        assert isinstance(ours, Prism)
        peak = ours.peak_bytes
    lines = [
        "# Join: folds against peers",
        "",
        *lines_of(case, took, absent, peak),
        "",
        "## What the policy of folds costs",
        "",
        *policy_lines(options.per_hour),
        *machine(),
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "join.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    targets = {name: target for name, target in TARGETS.items() if name in names}
    met = all(name in took and _ratio(took, name, "cores") >= target for name, target in targets.items())
    return 0 if met and peak <= _MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())

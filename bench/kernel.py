"""The kernel of conversions alone: sets of lines on the local disk, against DuckDB and polars, in warm processes.

P2: core-seconds per million rows on bench, wide and nested. P4: odd lines against clean ones. Ours checks every line,
quarantines, counts and computes fingerprints; the peers convert only.

The absolute goals were set on another machine. There decompression and Parquet alone took part of them (`_LIBRARIES`).
Measured in the same run, the same part tells how fast this machine is.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.bars import Bar
from bench.conversion import convert_one, local_lake
from bench.kernel_peers import by_duckdb, by_libraries, by_polars
from bench.report import Grid, Report, Verdict, median_ratio
from bench.sets import BENCH, NESTED, ODD, RECEIVED, WIDE, LineSet
from bench.warm import Usage, WarmProcess
from prism_assets.engine.collector import settle
from prism_assets.engine.worker import prepare_worker
from prism_assets.kernels.compiled import loaded_kernel

_SETS = {each.name: each for each in (BENCH, WIDE, NESTED, *ODD.values())}
_MOST = {"bench": 1.7, "wide": 5.0, "nested": 3.3}
"""Core-seconds per million rows."""
_LIBRARIES = {"bench": 0.72, "wide": 2.29, "nested": 0.92}
"""Core-seconds per million rows of decompression and Parquet alone, where the goals were set."""
_FLOOR = "ISA-L and pyarrow alone"
_LEAST: Mapping[str, Mapping[str, float]] = {
    "bench": {"DuckDB": 1.5, "polars": 1.2},
    "wide": {"DuckDB": 1, "polars": 1},
    "nested": {"DuckDB": 1, "polars": 1},
}
"""How often ours the peers' core-seconds are, at least."""
_ODD_MOST = {0.1: 1.15, 1.0: 1.2, 10.0: 1.4}
_ODD_TIMES = 3
"""Rounds of odd lines for each of the others. Their ratios are near 1, and a round takes a second."""


@dataclass(frozen=True)
class Case:
    """The objects of one set in `staging/`, and a folder for the output of each system."""

    root: Path
    kind: str
    objects: int
    lines: int

    @property
    def paths(self) -> list[Path]:
        return sorted((self.root / "staging").glob("*.gz"))

    @property
    def rows(self) -> int:
        return self.objects * self.lines


def _write(root: Path, kind: str, lines: int, number: int) -> None:
    body = b"\n".join(_SETS[kind].lines(lines, number)) + b"\n"
    (root / "staging" / f"{number:04}.gz").write_bytes(gzip.compress(body, 6, mtime=0))


def make_case(folder: Path, lines: LineSet, objects: int, count: int, pool: ProcessPoolExecutor) -> Case:
    """Writes the objects of a set."""
    root = folder / lines.name.replace(" ", "").replace("%", "")
    for name in ("staging", "lake"):
        (root / name).mkdir(parents=True)
    list(pool.map(partial(_write, root, lines.name, count), range(objects)))
    return Case(root, lines.name, objects, count)


def convert_all(root: Path, kind: str, paths: Sequence[Path]) -> None:
    """Converts objects of `staging/` to `lake/`, one after another, as a task does."""
    pa.set_cpu_count(1)
    table = _SETS[kind].table
    local, metrics = local_lake(root), (table.column("time").column_id,)
    for number, path in enumerate(paths, 1):
        convert_one(local, table, number, path.name, path.stat().st_size, RECEIVED, metric_columns=metrics)


def by_prism(case: Case) -> None:
    """Converts all objects of a case."""
    convert_all(case.root, case.kind, case.paths)
    settle()  # as a task of Spark and a child of a live worker do after their first share


class Way:
    """One system on one set, in its own warm process. The output of the last round stays for the comparison."""

    def __init__(self, name: str, case: Case, work: Callable[[], None], output: Path) -> None:
        self.name = name
        self._case, self._work, self._output = case, work, output
        self._process = WarmProcess(prepare_worker if name.startswith("prism") or name == _FLOOR else None)

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)

    def run(self) -> Usage:
        shutil.rmtree(self._output, ignore_errors=True)
        self._output.mkdir()
        return self._process.run(self._work)

    def outcome(self) -> Sequence[object]:
        """Facts about all rows. Times of outputs with other facts mean nothing."""
        facts = _SETS[self._case.kind].facts
        statement = f"SELECT count(*), epoch_ms(min(time)), epoch_ms(max(time)), {facts} FROM read_parquet('{{}}')"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            (found,) = connection.execute(statement.format(f"{self._output}/**/*.parquet")).fetchall()
        return tuple(found)


def ways_of(case: Case) -> list[Way]:
    """Returns ours and, on sets of clean lines, the peers."""
    found = [Way("prism", case, partial(by_prism, case), case.root / "lake")]
    if case.kind in _MOST:
        for name, work in (("DuckDB", by_duckdb), ("polars", by_polars)):
            output = case.root / name
            found.append(Way(name, case, partial(work, case.kind, case.paths, output), output))
        output = case.root / "libraries"
        found.append(Way(_FLOOR, case, partial(by_libraries, case.paths, case.root / "lake", output), output))
    return found


def run_in_turn(ways: Sequence[Way], rounds: int) -> list[list[Usage]]:
    """Warms all up, then runs them in turn. Returns each one's rounds."""
    for way in ways:
        way.run()
    found: list[list[Usage]] = [[] for _ in ways]
    for _ in range(rounds):
        for way, usages in zip(ways, found, strict=True):
            usages.append(way.run())
    return found


def race(case: Case, rounds: int) -> Mapping[str, list[float]]:
    """Returns core-seconds of each round by system. Raises ValueError if outputs differ."""
    with ExitStack() as held:
        ways = [held.enter_context(way) for way in ways_of(case)]
        for way in ways:
            way.run()
        ours, *others = [way.outcome() for way in ways]
        for way, other in zip(ways[1:], others, strict=True):
            if ours != other:
                raise ValueError(f"{case.kind}: {way.name} gave {other}, prism {ours}")
        print(f"{case.kind}: all gave {ours}", flush=True)
        used = run_in_turn(ways, rounds)
    return {way.name: [usage.core_seconds for usage in usages] for way, usages in zip(ways, used, strict=True)}


def race_odd(cases: Mapping[str, Case], rounds: int) -> Mapping[str, list[float]]:
    """Returns our core-seconds of each round by set, in turn."""
    with ExitStack() as held:
        ways = [
            held.enter_context(Way(f"prism {name}", case, partial(by_prism, case), case.root / "lake"))
            for name, case in cases.items()
        ]
        used = run_in_turn(ways, rounds)
    return {name: [usage.core_seconds for usage in usages] for name, usages in zip(cases, used, strict=True)}


def grid_of(title: str, found: Mapping[str, Sequence[float]], rows: int) -> Grid:
    """Returns core-seconds per million rows with their spread, and ratios to the first."""
    ours = next(iter(found.values()))
    lines = []
    for name, seconds in found.items():
        per = sorted(each / rows * 1e6 for each in seconds)
        ratio = "" if seconds is ours else f"{median_ratio(seconds, ours):.2f}"
        lines.append((name, f"{statistics.median(per):.2f}", f"{per[0]:.2f} to {per[-1]:.2f}", ratio))
    return Grid(title, ("system", "core-s per million rows", "least to most", ": ours"), tuple(lines))


def kernel_in_use() -> str:
    """Returns which way reads the lines of this run."""
    found = loaded_kernel()
    return (
        f"Read without the compiled kernel: {found.why_not}."
        if found.module is None
        else "Read by the compiled kernel."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench kernel", description=__doc__)
    parser.add_argument("--objects", type=int, default=20)
    parser.add_argument("--lines", type=int, default=10_000, help="lines of each object")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    grids, verdicts, bars, figures = list[Grid](), list[Verdict](), list[Bar](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        with ProcessPoolExecutor() as pool:
            cases = {
                name: make_case(Path(folder), each, options.objects, options.lines, pool)
                for name, each in _SETS.items()
            }
        for name, goal in _MOST.items():
            found = race(cases[name], options.rounds)
            rows = cases[name].rows
            grids.append(grid_of(f"Set {name}", found, rows))
            per = {system: statistics.median(each) / rows * 1e6 for system, each in found.items()}
            verdicts.append(
                Verdict("P2", f"core-s per million rows, {name}", per["prism"], goal, "core-s", at_most=True)
            )
            for peer, least in _LEAST[name].items():
                ratio = median_ratio(found[peer], found["prism"])
                verdicts.append(Verdict("P2", f"core-s, {peer} : ours, {name}", ratio, least))
            floor = median_ratio(found["prism"], found[_FLOOR])
            most = goal / _LIBRARIES[name]
            verdicts.append(Verdict("P2", f"core-s, ours : {_FLOOR}, {name}", floor, most, at_most=True))
            bars += [Bar(f"{system}, {name}", value, system == "prism") for system, value in per.items()]
            figures |= {f"{system}, {name}: core-s per million rows": round(value, 3) for system, value in per.items()}
        odd = {share: each.name for share, each in ODD.items()}
        rounds = _ODD_TIMES * options.rounds
        found = race_odd({name: cases[name] for name in ("bench", *odd.values())}, rounds)
        grids.append(grid_of("Odd lines", found, cases["bench"].rows))
        for share, name in odd.items():
            ratio = median_ratio(found[name], found["bench"])
            verdicts.append(Verdict("P4", f"core-s, {name} : clean", ratio, _ODD_MOST[share], at_most=True))
    return (
        0
        if Report(
            entry="kernel",
            title="Kernel: JSON lines to sorted Parquet, one thread",
            verdicts=tuple(verdicts),
            grids=tuple(grids),
            notes=(
                f"{options.objects} gzip objects of {options.lines:,} lines of each set, on the local disk, to one "
                f"sorted object for each object and date; {options.rounds} rounds in turn, {rounds} of odd lines, each "
                f"in a warm process. {kernel_in_use()}",
            ),
            bars=tuple(bars),
            bars_label="core-seconds per million rows, median; shorter is better",
            figures=figures,
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())

"""The kernel of merges alone against DuckDB, both on the local disk, in warm processes of their own.

Core-seconds are user and system time of those processes, and hold on a busy machine. Ours checks the fingerprints of
input and output. The peer only sorts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb

from bench.bars import Bar
from bench.conversion import convert_one, local_lake
from bench.kernel import kernel_in_use
from bench.platform import NOW, TABLE, log_lines, summary
from bench.report import Grid, Report, Verdict, median_ratio
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.domain.work.write import WriteTask
from prism_assets.engine.worker import prepare_worker
from prism_assets.kernels.write import write_object

_MOST_MEGABYTES = 2_000
"""Target of the peak memory of one task."""


def _bench_table() -> TableDefinition:
    table = parse_table_file(TABLE.format(table="bench"), "bench.yaml")
    return replace(table, columns=tuple(replace(column, column_id=n) for n, column in enumerate(table.columns, 1)))


_BENCH = _bench_table()


@dataclass(frozen=True)
class Usage:
    """What one range took."""

    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Round:
    """What all ranges of a round took, side by side."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Case:
    """Small objects of one partition in a folder."""

    root: Path
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.row_count for file in self.files)

    @property
    def megabytes(self) -> float:
        return sum(file.content_length for file in self.files) / 1e6

    def target(self, system: str, number: int) -> Path:
        return self.root / "lake" / f"{system}-{number}.parquet"


def _convert(root: Path, lines: int, number: int) -> Sequence[DataFile]:
    stores, _ = local = local_lake(root)
    key, body = f"{number}.json", log_lines(lines, number, hour=2)
    metrics = (_BENCH.column("time").column_id,)
    stores.put("staging", key, body)
    result = convert_one(local, _BENCH, number + 1, key, len(body), NOW, metric_columns=metrics)
    stores.delete("staging", [key])
    return result.objects


def make_case(root: Path, objects: int, lines: int) -> Case:
    """Converts `objects` objects of lines, each 14 seconds after the one before, to small objects."""
    for bucket in ("staging", "lake"):
        (root / bucket).mkdir()
    with ProcessPoolExecutor() as pool:
        made = pool.map(partial(_convert, root, lines), range(objects), chunksize=16)
        return Case(root, tuple(file for files in made for file in files))


def merge_with_prism(case: Case, number: int) -> None:
    stores, lake = local_lake(case.root)
    task = WriteTask(
        number=number,
        inputs=case.files,
        output_key=case.target("prism", number).name,
        table_id=1,
        definition_version=1,
        metric_columns=(_BENCH.column("time").column_id,),
    )
    result = write_object(task, _BENCH, stores, lake)
    assert result.failure is None, result.failure


def merge_with_duckdb(case: Case, number: int, threads: int) -> None:
    files = [str(case.root / "lake" / file.key) for file in case.files]
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}; SET enable_progress_bar = false")
        connection.execute(
            f"COPY (FROM read_parquet({files!r}, hive_partitioning = false) ORDER BY time) "
            f"TO '{case.target('duckdb', number)}' "
            "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 131072)"
        )


def _measured(work: Callable[[int], None], number: int) -> Usage:
    before = time.process_time()
    work(number)
    return Usage(time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)


class System:
    """One way to merge, in one warm process for each range."""

    def __init__(self, name: str, case: Case, ranges: int, work: Callable[[Case, int], None], written: str) -> None:
        self.name = name
        self._case, self._work, self._written = case, work, written
        spawn = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, spawn, prepare_worker) for _ in range(ranges)]

    def run(self) -> Round:
        """Merges once for each range, side by side. The targets are new, as prism writes no key twice."""
        for number in range(len(self._pools)):
            self._case.target(self._written, number).unlink(missing_ok=True)
        started = time.perf_counter()
        running = [
            pool.submit(_measured, partial(self._work, self._case), number) for number, pool in enumerate(self._pools)
        ]
        used = [future.result() for future in running]
        seconds = time.perf_counter() - started
        return Round(seconds, sum(usage.cpu_seconds for usage in used), max(usage.peak_bytes for usage in used))

    def outcome(self) -> Mapping[str, object]:
        """Facts about the output. Times of outputs with other facts mean nothing."""
        return summary(str(self._case.target(self._written, 0)), "time")

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


def race(systems: Sequence[System], rounds: int) -> dict[str, list[Round]]:
    """Runs all systems once and compares their outputs, then in turn. Raises ValueError if outputs differ."""
    for system in systems:
        system.run()
    first, *others = [system.outcome() for system in systems]
    for system, outcome in zip(systems[1:], others, strict=True):
        if outcome != first:
            raise ValueError(f"{system.name} gave {outcome}, {systems[0].name} gave {first}")
    found: dict[str, list[Round]] = {system.name: [] for system in systems}
    for number in range(1, rounds + 1):
        for system in systems:
            found[system.name].append(one := system.run())
            print(f"round {number}: {system.name} {one.seconds:.2f} s, {one.cpu_seconds:.2f} core-s", flush=True)
    return found


def grid_of(title: str, found: Mapping[str, Sequence[Round]], case: Case, ranges: int) -> Grid:
    """Returns medians of all systems, and the least and greatest core-seconds."""
    heads = (
        "system",
        "s",
        "core-s per million rows",
        "least to most",
        "MB/s per core",
        "peak RSS of a task, MB",
        ": ours",
    )
    millions, megabytes = ranges * case.rows / 1e6, ranges * case.megabytes
    ours = next(iter(found.values()))
    lines = []
    for name, rounds in found.items():
        cpu = sorted(one.cpu_seconds for one in rounds)
        middle = statistics.median(cpu)
        lines.append(
            (
                name,
                f"{statistics.median(one.seconds for one in rounds):.2f}",
                f"{middle / millions:.2f}",
                f"{cpu[0] / millions:.2f} to {cpu[-1] / millions:.2f}",
                f"{megabytes / middle:.1f}",
                f"{max(one.peak_bytes for one in rounds) / 1e6:,.0f}",
                "" if rounds is ours else f"{_core_ratio(rounds, ours):.2f}",
            )
        )
    return Grid(title, heads, tuple(lines))


def _core_ratio(peer: Sequence[Round], ours: Sequence[Round]) -> float:
    return median_ratio([one.cpu_seconds for one in peer], [one.cpu_seconds for one in ours])


def measure(case: Case, ranges: int, rounds: int, threads: int) -> dict[str, list[Round]]:
    """Races one number of ranges, ours first."""
    ours = System("prism", case, ranges, merge_with_prism, "prism")
    peer = System(f"DuckDB, threads = {threads}", case, ranges, partial(merge_with_duckdb, threads=threads), "duckdb")
    try:
        return race([ours, peer], rounds)
    finally:
        ours.close()
        peer.close()


def main() -> int:
    """Returns exit status 1 if a merge takes more core-seconds than DuckDB, or a task more than 2 GB of memory."""
    parser = argparse.ArgumentParser(prog="scripts/bench merge_kernel", description=__doc__)
    parser.add_argument("--objects", type=int, default=2_000)
    parser.add_argument("--lines", type=int, default=1_330, help="rows of each object; 1,330 are 64 KB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of DuckDB")
    options = parser.parse_args()
    grids, verdicts, figures = list[Grid](), list[Verdict](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        case = make_case(Path(folder), options.objects, options.lines)
        for ranges, title in ((1, "one range"), (2, "two ranges side by side")):
            found = measure(case, ranges, options.rounds, options.threads)
            ours, peer = found.values()
            peak = max(one.peak_bytes for one in ours) / 1e6
            grids.append(grid_of(title.capitalize(), found, case, ranges))
            verdicts.append(Verdict("P5", f"core-s, DuckDB : ours, {title}", _core_ratio(peer, ours), 1))
            verdicts.append(Verdict("P12", f"peak RSS of a task, {title}", peak, _MOST_MEGABYTES, "MB", at_most=True))
            for name, rounds in found.items():
                middle = statistics.median(one.cpu_seconds for one in rounds) / ranges / case.rows * 1e6
                figures[f"{name}, {title}: core-s per million rows"] = round(middle, 3)
    note = (
        f"{options.objects:,} objects, {case.rows:,} rows, {case.megabytes:.0f} MB into one object for each range, on "
        f"the local disk, in warm processes, {options.rounds} rounds in turn. Ours checks the fingerprints of its rows."
    )
    report = Report(
        entry="merge_kernel",
        title="Merge kernel: small objects into one, against DuckDB",
        verdicts=tuple(verdicts),
        grids=tuple(grids),
        notes=(note, kernel_in_use()),
        bars=tuple(Bar(name, value, name.startswith("prism")) for name, value in figures.items()),
        bars_label="core-seconds per million rows, median; shorter is better",
        figures=figures,
    )
    return 0 if report.publish() else 1


if __name__ == "__main__":
    sys.exit(main())

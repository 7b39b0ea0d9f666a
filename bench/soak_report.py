"""The result of a soak as tables, for the terminal and a report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.dagster_figures import RunFigures, TickFigures
from bench.holdings import HEADS, Holding
from bench.report import machine
from bench.traffic import Traffic
from bench.usage import GroupUsage


@dataclass(frozen=True)
class SoakResult:
    """The result of one soak. Latencies are sorted seconds from arrival to readable, for each catalog."""

    traffic: Traffic
    dropped: int
    readable: int
    latencies: tuple[float, ...]
    iceberg_latencies: tuple[float, ...]
    faults: tuple[str, ...]
    seconds: float
    runs: tuple[RunFigures, ...]
    ticks: tuple[TickFigures, ...]
    usage: dict[str, GroupUsage]
    holdings: tuple[Holding, ...]
    most_sessions: int
    """Sessions of PostgreSQL of all processes together, at most."""

    @property
    def growth(self) -> list[str]:
        """A sentence about each count that grew in a long-lived process."""
        return [sentence for holding in self.holdings for sentence in holding.growth]

    def percentile(self, share: float) -> float:
        """Returns the latency not exceeded by this share of the objects. Infinite if some never became readable."""
        return self._percentile(self.latencies, share)

    def iceberg_percentile(self, share: float) -> float:
        """Returns the percentile through Iceberg."""
        return self._percentile(self.iceberg_latencies, share)

    def _percentile(self, latencies: tuple[float, ...], share: float) -> float:
        if not latencies or (len(latencies) < self.dropped and share * self.dropped > len(latencies)):
            return float("inf")
        return latencies[max(0, round(share * len(latencies)) - 1)]

    def as_dict(self) -> dict[str, object]:
        """Returns plain values, without the latency of every object."""
        found = dataclasses.asdict(self)
        del found["latencies"], found["iceberg_latencies"], found["holdings"]
        if self.iceberg_latencies:
            found |= {f"iceberg_p{share}": self.iceberg_percentile(share / 100) for share in (50, 99)}
        return {**found, "p50": self.percentile(0.5), "p99": self.percentile(0.99), "growth": self.growth}


@dataclass(frozen=True)
class _Grid:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def show(self, console: Console) -> None:
        table = Table(*self.heads, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def lines(self) -> list[str]:
        cells = [self.heads, ("---",) * len(self.heads), *self.rows]
        return [f"## {self.title}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]


def publish(result: SoakResult, limit: float, folder: Path) -> None:
    """Prints the tables, and writes them to `soak.md` in a folder."""
    holdings = _Grid("Held by long-lived processes", HEADS, tuple(holding.row() for holding in result.holdings))
    grids = (_latency(result, limit), _runs(result.runs), _ticks(result.ticks), _usage(result), holdings)
    console = Console()
    for grid in grids:
        grid.show(console)
    faults = [*result.faults, *result.growth]
    for fault in faults:
        console.print(f"WRONG: {fault}")
    traffic = result.traffic
    summary = (
        f"{traffic.tables} tables, {traffic.rate:g} objects a minute each for {traffic.minutes:g} minutes, "
        f"{traffic.lines} rows an object: {result.dropped} objects, {result.readable} readable. "
        f"All processes together had {result.most_sessions} sessions of PostgreSQL at most."
    )
    console.print(summary)
    folder.mkdir(exist_ok=True)
    lines = ["# Soak", "", summary, "", *(f"WRONG: {fault}" for fault in faults)]
    (folder / "soak.md").write_text("\n".join([*lines, *(line for grid in grids for line in grid.lines()), *machine()]))


def _latency(result: SoakResult, limit: float) -> _Grid:
    shares = (("half", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("all", 1.0))
    target = f"<= {limit:g} s" if math.isfinite(limit) else ""
    iceberg = bool(result.traffic.commit_seconds)
    rows = tuple(
        (
            name,
            f"{result.percentile(share):.1f}",
            target if share == 0.99 else "",
            *((f"{result.iceberg_percentile(share):.1f}",) if iceberg else ()),
        )
        for name, share in shares
    )
    heads = ("of the objects", "seconds at most", "target", *(("through Iceberg",) if iceberg else ()))
    return _Grid("From arrival to readable", heads, rows)


def _runs(runs: Sequence[RunFigures]) -> _Grid:
    heads = ("stage", "runs", "failed", "tables", "queued s", "starting s", "step s", "around s", "overhead s")
    rows = tuple(
        (
            run.stage,
            str(run.runs),
            str(run.failed),
            f"{run.tables:g}",
            *(f"{value:.1f}" for value in (run.queued, run.starting, run.step, run.around, run.overhead)),
        )
        for run in runs
    )
    return _Grid("Runs (medians)", heads, rows)


def _ticks(ticks: Sequence[TickFigures]) -> _Grid:
    heads = ("sensor", "ticks", "failed", "median s", "longest s", "from one to the next s")
    rows = tuple(
        (tick.sensor, str(tick.ticks), str(tick.failed), *(f"{v:.1f}" for v in (tick.median, tick.longest, tick.pause)))
        for tick in ticks
    )
    return _Grid("Ticks", heads, rows)


def _usage(result: SoakResult) -> _Grid:
    heads = ("processes", "CPU s", "cores", "memory MB", "most MB")
    rows = [_used(name, usage, result.seconds) for name, usage in result.usage.items()]
    total = GroupUsage(
        sum(usage.cpu_seconds for usage in result.usage.values()),
        sum(usage.mean_bytes for usage in result.usage.values()),
        sum(usage.peak_bytes for usage in result.usage.values()),
    )
    return _Grid("Processes", heads, (*rows, _used("all", total, result.seconds)))


def _used(name: str, usage: GroupUsage, seconds: float) -> tuple[str, ...]:
    return (
        name,
        f"{usage.cpu_seconds:.0f}",
        f"{usage.cpu_seconds / seconds:.2f}",
        f"{usage.mean_bytes / 1e6:.0f}",
        f"{usage.peak_bytes / 1e6:.0f}",
    )

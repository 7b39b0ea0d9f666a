"""The result of a soak as tables, for the terminal and a report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.dagster_figures import RunFigures, TickFigures
from bench.holdings import HEADS, Holding
from bench.report import Grid, Report, Verdict
from bench.traffic import Traffic
from bench.usage import GroupUsage


@dataclass(frozen=True)
class Limits:
    """Goals in seconds, infinite where there is none, and notes on the way of the objects."""

    p50: float
    p99: float
    iceberg_p99: float
    target: str = ""
    entry: str = "soak"
    """The name of the report."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SoakResult:
    """The result of one soak. Latencies are sorted seconds from arrival to readable, for each catalog."""

    traffic: Traffic
    dropped: int
    readable: int
    latencies: tuple[float, ...]
    ducklake_latencies: tuple[float, ...]
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
        return percentile(self.latencies, self.dropped, share)

    def ducklake_percentile(self, share: float) -> float:
        """Returns the percentile through DuckLake."""
        return percentile(self.ducklake_latencies, self.dropped, share)

    def iceberg_percentile(self, share: float) -> float:
        """Returns the percentile through Iceberg."""
        return percentile(self.iceberg_latencies, self.dropped, share)

    def as_dict(self) -> dict[str, object]:
        """Returns plain values, without the latency of every object."""
        found = dataclasses.asdict(self)
        del found["latencies"], found["ducklake_latencies"], found["iceberg_latencies"], found["holdings"]
        found |= {f"ducklake_p{share}": self.ducklake_percentile(share / 100) for share in (50, 99)}
        if self.iceberg_latencies:
            found |= {f"iceberg_p{share}": self.iceberg_percentile(share / 100) for share in (50, 99)}
        return {**found, "p50": self.percentile(0.5), "p99": self.percentile(0.99), "growth": self.growth}


def percentile(latencies: Sequence[float], objects: int, share: float) -> float:
    """Returns the latency not exceeded by this share of the objects, infinite if too few have one.

    `latencies` are sorted.
    """
    if not latencies or (len(latencies) < objects and share * objects > len(latencies)):
        return float("inf")
    return latencies[max(0, round(share * len(latencies)) - 1)]


def publish(result: SoakResult, limits: Limits, folder: Path) -> bool:
    """Prints the tables and writes the report of the limits' entry. Returns whether all goals are reached."""
    holdings = Grid("Held by long-lived processes", HEADS, tuple(holding.row() for holding in result.holdings))
    faults = [*result.faults, *result.growth]
    traffic = result.traffic
    summary = (
        f"{traffic.tables} tables, {traffic.rate:g} objects a minute each for {traffic.minutes:g} minutes, "
        f"{traffic.lines} rows an object: {result.dropped} objects, {result.readable} readable. "
        f"All processes together had {result.most_sessions} sessions of PostgreSQL at most."
    )
    return Report(
        entry=limits.entry,
        title="Soak: from arrival to readable",
        verdicts=tuple(_verdicts(result, limits)),
        grids=(_latency(result, limits.p99), _runs(result.runs), _ticks(result.ticks), _usage(result), holdings),
        notes=(summary, *limits.notes, *(f"WRONG: {fault}" for fault in faults)),
        figures={f"p{share}: s": round(result.percentile(share / 100), 2) for share in (50, 90, 99)},
    ).publish(folder)


def _verdicts(result: SoakResult, limits: Limits) -> Iterator[Verdict]:
    target = limits.target
    yield Verdict(target, "faults: lost, doubled or unread", float(len(result.faults)), 0, "", at_most=True)
    yield Verdict(target, "objects that became readable", float(result.readable), float(result.dropped), "")
    for catalog, percentile in (("Glue", result.percentile), ("DuckLake", result.ducklake_percentile)):
        for share, limit in ((50, limits.p50), (99, limits.p99)):
            if math.isfinite(limit):
                measured = percentile(share / 100)
                yield Verdict(target, f"readable through {catalog}, p{share}", measured, limit, "s", at_most=True)
    if result.traffic.commit_seconds:
        listed = float(len(result.iceberg_latencies))
        yield Verdict(target, "objects listed by Iceberg", listed, float(result.dropped), "")
        measured = result.iceberg_percentile(0.99)
        yield Verdict(target, "readable through Iceberg, p99", measured, limits.iceberg_p99, "s", at_most=True)


def _latency(result: SoakResult, limit: float) -> Grid:
    shares = (("half", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("all", 1.0))
    target = f"<= {limit:g} s" if math.isfinite(limit) else ""
    iceberg = bool(result.traffic.commit_seconds)
    rows = tuple(
        (
            name,
            f"{result.percentile(share):.1f}",
            f"{result.ducklake_percentile(share):.1f}",
            target if share == 0.99 else "",
            *((f"{result.iceberg_percentile(share):.1f}",) if iceberg else ()),
        )
        for name, share in shares
    )
    heads = (
        "of the objects",
        "through Glue, s",
        "through DuckLake, s",
        "target",
        *(("through Iceberg, s",) if iceberg else ()),
    )
    return Grid("From arrival to readable", heads, rows)


def _runs(runs: Sequence[RunFigures]) -> Grid:
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
    return Grid("Runs (medians)", heads, rows)


def _ticks(ticks: Sequence[TickFigures]) -> Grid:
    heads = ("sensor", "ticks", "failed", "median s", "longest s", "from one to the next s")
    rows = tuple(
        (tick.sensor, str(tick.ticks), str(tick.failed), *(f"{v:.1f}" for v in (tick.median, tick.longest, tick.pause)))
        for tick in ticks
    )
    return Grid("Ticks", heads, rows)


def _usage(result: SoakResult) -> Grid:
    heads = ("processes", "CPU s", "cores", "memory MB", "most MB")
    rows = [_used(name, usage, result.seconds) for name, usage in result.usage.items()]
    total = GroupUsage(
        sum(usage.cpu_seconds for usage in result.usage.values()),
        sum(usage.mean_bytes for usage in result.usage.values()),
        sum(usage.peak_bytes for usage in result.usage.values()),
    )
    return Grid("Processes", heads, (*rows, _used("all", total, result.seconds)))


def _used(name: str, usage: GroupUsage, seconds: float) -> tuple[str, ...]:
    return (
        name,
        f"{usage.cpu_seconds:.0f}",
        f"{usage.cpu_seconds / seconds:.2f}",
        f"{usage.mean_bytes / 1e6:.0f}",
        f"{usage.peak_bytes / 1e6:.0f}",
    )

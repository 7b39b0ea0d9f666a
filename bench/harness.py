"""Runs systems in turn, compares their outputs first, and reports medians, spreads, core-seconds and ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from bench.bars import Bar
from bench.cores import CoreMeter, OwnCores, spent
from bench.report import Grid, Report, Verdict, median_ratio


@dataclass(frozen=True)
class System:
    """One way to do the work. `prepare` is not timed, `work` is, and `outcome` describes the result."""

    name: str
    prepare: Callable[[int], None]
    work: Callable[[int], None]
    outcome: Callable[[int], Mapping[str, object]]


@dataclass(frozen=True)
class Timing:
    """Seconds and core-seconds of all rounds of one system. `store_seconds` are the servers in the place of AWS."""

    name: str
    seconds: tuple[float, ...]
    core_seconds: tuple[float, ...]
    store_seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)

    @property
    def core_median(self) -> float:
        return statistics.median(self.core_seconds)


def race(systems: Sequence[System], rounds: int, warmups: int = 1, meter: CoreMeter | None = None) -> list[Timing]:
    """Runs each system once, compares the outcomes, runs all `warmups` times more, then times them in turn.

    Raises ValueError if two outcomes differ, because times of different work mean nothing.
    """
    console = Console()
    meter = meter or OwnCores()
    outcomes: dict[str, Mapping[str, object]] = {}
    for system in systems:
        system.prepare(0)
        started = time.perf_counter()
        system.work(0)
        console.print(f"first run of {system.name}: {time.perf_counter() - started:.2f} s")
        outcomes[system.name] = system.outcome(0)
    first = systems[0].name
    for name, outcome in outcomes.items():
        if outcome != outcomes[first]:
            raise ValueError(f"{name} gave {outcome}, {first} gave {outcomes[first]}")
    console.print(f"all gave {dict(outcomes[first])}")
    found: dict[str, list[tuple[float, float, float]]] = {system.name: [] for system in systems}
    for number in range(1, warmups + rounds + 1):
        for system in systems:
            system.prepare(number)
            before, started = meter.read(), time.perf_counter()
            system.work(number)
            seconds = time.perf_counter() - started
            found[system.name].append((seconds, *spent(before, meter.read())))
        kind = "warm-up" if number <= warmups else "round"
        told = ", ".join(f"{name} {each[-1][0]:.2f} s, {each[-1][1]:.2f} core-s" for name, each in found.items())
        console.print(f"{kind} {number}: {told}")
    return [Timing(name, *zip(*each[warmups:], strict=True)) for name, each in found.items()]


def timing_grid(title: str, timings: Sequence[Timing], rows: int | None = None) -> Grid:
    """Returns medians and spreads of all systems, and how often ours is the peer's; per million rows if given."""
    ours = timings[0]
    per = 1e6 / rows if rows else 1.0
    unit = "core-s per million rows" if rows else "core-s"
    heads = (
        "system",
        "s",
        "s, least to most",
        unit,
        f"{unit}, least to most",
        "servers' core-s",
        "s, : ours",
        "core-s, : ours",
    )
    lines = []
    for one in timings:
        core = sorted(one.core_seconds)
        lines.append(
            (
                one.name,
                f"{one.median:.2f}",
                f"{min(one.seconds):.2f} to {max(one.seconds):.2f}",
                f"{one.core_median * per:.2f}",
                f"{core[0] * per:.2f} to {core[-1] * per:.2f}",
                f"{statistics.median(one.store_seconds):.2f}",
                "" if one is ours else f"{median_ratio(one.seconds, ours.seconds):.2f}",
                "" if one is ours else f"{median_ratio(one.core_seconds, ours.core_seconds):.2f}",
            )
        )
    return Grid(title, heads, tuple(lines))


def timing_figures(timings: Sequence[Timing], rows: int | None = None) -> dict[str, float]:
    """Returns the medians by system, for the pages."""
    found = {f"{one.name}: s": round(one.median, 3) for one in timings}
    per = 1e6 / rows if rows else 1.0
    unit = "core-s per million rows" if rows else "core-s"
    return found | {f"{one.name}: {unit}": round(one.core_median * per, 3) for one in timings}


def report(
    title: str,
    timings: Sequence[Timing],
    targets: Mapping[str, float],
    notes: Sequence[str],
    *,
    target: str = "",
    rows: int | None = None,
    figures: Mapping[str, float] | None = None,
) -> bool:
    """Publishes a race as the entry named by the title up to its colon. `targets` are least ratios of seconds by peer.

    Ratios are medians over the pairs of one round. `figures` are further ones for the pages. Returns whether all goals
    are reached.
    """
    ours = timings[0]
    verdicts = [
        Verdict(target, f"seconds, {one.name} : ours", median_ratio(one.seconds, ours.seconds), targets[one.name])
        for one in timings
        if one.name in targets
    ]
    return Report(
        entry=title.split(":")[0].strip().replace(" ", "_").lower(),
        title=title,
        verdicts=tuple(verdicts),
        grids=(timing_grid("Seconds and core-seconds", timings, rows),),
        notes=tuple(notes),
        bars=tuple(Bar(one.name, one.median, one is ours) for one in timings),
        figures=timing_figures(timings, rows) | dict(figures or {}),
    ).publish()

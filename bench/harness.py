"""Runs systems in turn, compares their outputs first, and reports medians, spreads and ratios."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class System:
    """One way to do the work. `prepare` is not timed, `work` is, and `outcome` describes the result."""

    name: str
    prepare: Callable[[int], None]
    work: Callable[[int], None]
    outcome: Callable[[int], Mapping[str, object]]


@dataclass(frozen=True)
class Timing:
    """Seconds of all rounds of one system."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)


def race(systems: Sequence[System], rounds: int, warmups: int = 1) -> list[Timing]:
    """Runs each system once, compares the outcomes, runs all `warmups` times more, then times them in turn.

    Raises ValueError if two outcomes differ, because times of different work mean nothing.
    """
    console = Console()
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
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for number in range(1, warmups + rounds + 1):
        for system in systems:
            system.prepare(number)
            started = time.perf_counter()
            system.work(number)
            seconds[system.name].append(time.perf_counter() - started)
        kind = "warm-up" if number <= warmups else "round"
        console.print(f"{kind} {number}: " + ", ".join(f"{name} {times[-1]:.2f} s" for name, times in seconds.items()))
    return [Timing(name, tuple(times[warmups:])) for name, times in seconds.items()]


def report(title: str, timings: Sequence[Timing], targets: Mapping[str, float], notes: Sequence[str]) -> bool:
    """Prints the table, and writes it to a file named by the title up to its colon.

    Ratios are medians over the pairs of one round. Returns whether all targets are met.
    """
    ours = timings[0]
    heads = ("system", "median s", "min s", "max s", "ours is faster by", "target")
    grid = Table(*heads, title=title)
    lines = [f"# {title}", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    met = True
    for timing in timings:
        ratio = statistics.median(peer / own for peer, own in zip(timing.seconds, ours.seconds, strict=True))
        target = targets.get(timing.name)
        met = met and (target is None or ratio >= target)
        cells = (
            timing.name,
            f"{timing.median:.2f}",
            f"{min(timing.seconds):.2f}",
            f"{max(timing.seconds):.2f}",
            "" if timing is ours else f"{ratio:.2f} x",
            "" if target is None else f">= {target} x",
        )
        grid.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    Console().print(grid)
    _write(title, [*lines, "", *notes, *machine()], timings)
    return met


_NAMED = ("pyarrow", "pyspark", "dagster", "sqlalchemy", "duckdb", "polars", "prism-kernel")


def machine() -> list[str]:
    """Returns time, commit, machine and versions of the measurement, the last lines of a report."""
    stamp = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%MZ")
    versions = [f"Python {platform.python_version()}"]
    for name in _NAMED:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    place = f"{os.cpu_count()} cores of {platform.machine()}"
    return ["", f"Measured {stamp} at {_commit()} on {place} (shared), {', '.join(versions)}."]


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "an unknown commit"


def _write(title: str, lines: Sequence[str], timings: Sequence[Timing]) -> None:
    RESULTS.mkdir(exist_ok=True)
    name = title.split(":")[0].strip().replace(" ", "-").lower()
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    try:
        import matplotlib as mpl
    except ImportError:
        Console().print("no plot: install the extra `bench` for matplotlib")
        return
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 0.7 * len(timings) + 1.2))
    axes.barh([timing.name for timing in timings], [timing.median for timing in timings], color="#4c72b0")
    axes.invert_yaxis()
    axes.set_xlabel("seconds (median; shorter is better)")
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=120)
    pyplot.close(figure)

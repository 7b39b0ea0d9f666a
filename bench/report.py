"""The result of a benchmark: figures beside their goals, printed, and written as JSON, Markdown and a plot.

`bench/results/` keeps the last result of each entry. Pages of `docs/` are made from these files.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.bars import Bar, bar_chart

COMMITTED = Path(__file__).parent / "results"
RESULTS = Path(os.environ.get("BENCH_RESULTS", COMMITTED))
"""The folder of results. `scripts/bench all --quick` sets the variable, so that small runs replace no result."""
_LOAD_AT_START = os.getloadavg()[0]


@dataclass(frozen=True)
class Verdict:
    """One figure beside the goal of a target."""

    target: str
    """`P1` to `P14`, or empty for a goal without a number."""
    what: str
    value: float
    goal: float
    unit: str = "x"
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    @property
    def shown(self) -> str:
        return f"{_plain(self.value)} {self.unit}".strip()

    @property
    def goal_shown(self) -> str:
        return f"{'<=' if self.at_most else '>='} {_plain(self.goal)} {self.unit}".strip()


@dataclass(frozen=True)
class Grid:
    """A table of a report."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Returns Markdown."""
        cells = [self.heads, ("---",) * len(self.heads), *self.rows]
        return [f"## {self.title}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]

    def show(self, console: Console) -> None:
        table = Table(*self.heads, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


@dataclass(frozen=True)
class Report:
    """The result of one entry. `figures` are named numbers for the pages; `bars` and their label are the plot."""

    entry: str
    title: str
    verdicts: tuple[Verdict, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    bars_label: str = "seconds, median; shorter is better"
    figures: Mapping[str, float] = field(default_factory=dict)

    def publish(self, folder: Path | None = None) -> bool:
        """Prints the report and writes its files. Returns whether all goals are reached."""
        folder = folder or RESULTS
        console = Console(width=150)
        grids = (*self.grids, verdict_grid(self.verdicts)) if self.verdicts else self.grids
        for grid in grids:
            grid.show(console)
        for note in self.notes:
            console.print(note, markup=False, highlight=False)
        folder.mkdir(parents=True, exist_ok=True)
        run = surroundings()
        lines = [f"# {self.title}", "", *self.notes, "", *(line for grid in grids for line in grid.lines())]
        (folder / f"{self.entry}.md").write_text("\n".join([*lines, *machine(run)]) + "\n")
        content = {**asdict(self), "command": command(), **run}
        (folder / f"{self.entry}.json").write_text(json.dumps(content, indent=1) + "\n")
        if self.bars:
            (folder / f"{self.entry}.svg").write_text(bar_chart(self.title, self.bars_label, self.bars))
        if folder == COMMITTED:
            subprocess.run(
                [sys.executable, "-m", "prism_assets_tests.docs.generate"], cwd=COMMITTED.parents[1], check=True
            )
        return all(verdict.reached for verdict in self.verdicts)


def verdict_grid(verdicts: Sequence[Verdict]) -> Grid:
    """Returns the table of figures and goals."""
    rows = tuple(
        (one.target, one.what, one.shown, one.goal_shown, "reached" if one.reached else "not reached")
        for one in verdicts
    )
    return Grid("Targets", ("target", "figure", "measured", "goal", ""), rows)


def median_ratio(peer: Sequence[float], ours: Sequence[float]) -> float:
    """Returns the median of peer : ours over the pairs of one round each."""
    return statistics.median(other / own for own, other in zip(ours, peer, strict=True))


def command() -> str:
    """Returns the command of this process as a person types it."""
    name = Path(sys.argv[0]).stem
    return " ".join(["scripts/bench", name, *sys.argv[1:]])


_NAMED = ("pyarrow", "pyspark", "dagster", "sqlalchemy", "duckdb", "polars", "pyiceberg", "prism-kernel")


def surroundings() -> dict[str, Any]:
    """Returns time, commit, machine, load and versions of this measurement."""
    versions = {"Python": platform.python_version()}
    for name in _NAMED:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%MZ"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, shared",
        "load": [round(_LOAD_AT_START, 1), round(os.getloadavg()[0], 1)],
        "versions": versions,
    }


def machine(run: Mapping[str, Any] | None = None) -> list[str]:
    """Returns time, commit, machine and versions of the measurement, the last lines of a report."""
    run = run or surroundings()
    begun, ended = run["load"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return [
        "",
        f"Measured {run['measured']} at {run['commit']} on {run['machine']}, load {begun} at the start and {ended} at "
        f"the end. {versions}.",
    ]


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=COMMITTED.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "an unknown commit"


def _plain(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"

"""Runs every entry in a process of its own, goes on after a failure, and prints the targets at the end.

`--quick` runs each entry with little data, to see that it works: its results go to a folder of their own and mean
nothing. Exit status 1 if a required target is missed or has no result.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.overview import Standing, load_results, standings
from bench.report import RESULTS
from bench.targets import ENTRIES, Entry

_ROOT = Path(__file__).resolve().parents[1]


def run(entry: Entry, folder: Path, *, quick: bool) -> tuple[int, float]:
    """Runs one entry. Returns its exit status and its seconds."""
    begun = time.monotonic()
    words = [sys.executable, "-m", f"bench.{entry.name}", *(entry.quick if quick else entry.full)]
    done = subprocess.run(words, cwd=_ROOT, env={**os.environ, "BENCH_RESULTS": str(folder)}, check=False)
    return done.returncode, time.monotonic() - begun


def show(found: Sequence[Standing], console: Console) -> None:
    """Prints a line for each figure."""
    grid = Table("target", "figure", "measured", "goal", "", title="Targets")
    for standing in found:
        target = standing.target
        number = f"[bold]{target.number}[/bold]" if target.is_required else target.number
        if not standing.verdicts:
            grid.add_row(number, target.work, "", target.goal, "not measured")
        for one in standing.verdicts:
            grid.add_row(number, one.what, one.shown, one.goal_shown, "reached" if one.reached else "not reached")
    console.print(grid)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench all", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data: shows that each entry works")
    parser.add_argument("--only", nargs="+", choices=[entry.name for entry in ENTRIES], help="some entries")
    parser.add_argument("--results", type=Path, help="the folder of results")
    options = parser.parse_args()
    folder = options.results or (Path(tempfile.mkdtemp(prefix="prism-bench-results-")) if options.quick else RESULTS)
    console = Console(width=150)
    failed = []
    for entry in ENTRIES:
        if options.only and entry.name not in options.only:
            continue
        console.rule(entry.name)
        status, seconds = run(entry, folder, quick=options.quick)
        console.print(f"{entry.name}: exit status {status} after {seconds:.0f} s")
        if not (folder / f"{entry.name}.json").exists():
            failed.append(entry.name)
    found = standings(load_results(folder))
    show(found, console)
    if failed:
        console.print(f"without a result: {', '.join(failed)}")
    missed = [standing.target.number for standing in found if standing.fails]
    if missed and not options.quick:
        console.print(f"required and missed: {', '.join(missed)}")
    return 1 if failed or (missed and not options.quick) else 0


if __name__ == "__main__":
    sys.exit(main())

"""What tests of reliability reached: figures noted as they go, and the table that is made of them.

`python -m prism_assets_tests.reliability FIGURES` prints the table of a file that `pytest --figures FIGURES` wrote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

AREAS = (
    "Crash sweep",
    "Random SIGKILL, commands",
    "Random SIGKILL, commands and servers",
    "S3 faults",
    "Glue faults",
    "PostgreSQL faults",
    "Races in a forced order",
    "State machine",
    "Iceberg in any order",
    "Exhaustive model",
)
CONTROLS = "Null controls"
_KINDS = {"I1": "lost", "I2": "doubled", "I3": "shrunken", "I4": "dangling", "I10": "wedged"}


@dataclass(frozen=True)
class Figure:
    """What one test reached in an area, in numbers that add up, and what it found wrong.

    For a null control: what was taken out is `control`, and `violations` are what the suite said of that.
    """

    area: str
    reached: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[str] = ()
    control: str = ""


class Figures:
    """Notes figures in a file, a line each, so that several processes may and a death loses none; or nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def note(self, area: str, violations: Sequence[str] = (), control: str = "", **reached: int) -> None:
        """Notes what was reached in an area."""
        assert area in (*AREAS, CONTROLS), area
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(Figure(area, reached, list(violations), control))) + "\n")


def read(path: Path) -> list[Figure]:
    """All that was noted."""
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()]


def report(figures: Sequence[Figure]) -> str:
    """The report, as Markdown."""
    return "\n".join([*_head(), "", *_areas(figures), "", "## Null controls", "", *_controls(figures), ""])


def _head() -> Iterable[str]:
    version = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    yield "# What the long forms reached"
    yield ""
    yield f"`scripts/test --long` at {version.stdout.strip() or 'no commit'}, {date.today()}, {os.cpu_count()} cores."
    yield "After each fault everything goes on by itself for two runs; then the lake is judged by I1 to I10, and so is"
    yield "whatever a reader saw that polled meanwhile. *Wedged* is what was not at rest after those two runs."


def _areas(figures: Sequence[Figure]) -> Iterable[str]:
    yield f"| Area | Reached | {' | '.join(_KINDS.values())} | other |"
    yield "|---|---|" + "---|" * (len(_KINDS) + 1)
    for area in AREAS:
        mine = [figure for figure in figures if figure.area == area]
        reached = Counter[str]()
        for figure in mine:
            reached.update(figure.reached)
        said = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in reached.items()) or "not run"
        kinds = Counter(_kind(violation) for figure in mine for violation in figure.violations)
        counts = [str(kinds[kind]) if mine else "" for kind in (*_KINDS.values(), "other")]
        yield f"| {area} | {said} | {' | '.join(counts)} |"


def _kind(violation: str) -> str:
    return _KINDS.get(violation.removeprefix("before it lands: ").partition(" ")[0].rstrip(":"), "other")


def _controls(figures: Sequence[Figure]) -> Iterable[str]:
    yield "Each is the product, or the model, with one mechanism taken out. The suite must turn red, and does:"
    yield ""
    yield "| Taken out | The first that the suite said |"
    yield "|---|---|"
    for figure in figures:
        if figure.area == CONTROLS:
            said = figure.violations[0].splitlines()[0][:160].replace("|", "/") if figure.violations else "**nothing**"
            yield f"| {figure.control} | {said} |"


if __name__ == "__main__":
    print(report(read(Path(sys.argv[1]))))

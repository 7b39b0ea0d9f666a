"""Figures of reliability: noted by tests, and put into a table.

`python -m prism_assets_tests.reliability FIGURES REPORT` writes the report from the file of `pytest --figures FIGURES`.
Areas without new figures keep their rows: each row states its commit. Play all files of an area together, because a row
is replaced as a whole.
"""

from __future__ import annotations

import json
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
    "Messages of Kafka",
)
CONTROLS = "Null controls"
_KINDS = {"I1": "lost", "I2": "doubled", "I3": "shrunken", "I4": "dangling", "I10": "wedged"}


@dataclass(frozen=True)
class Figure:
    """The counts and violations of one test in an area. Counts add up.

    For a null control: `control` names the removed part, and `violations` are those found by the suite. `case` names
    one of the many of an area, so a stopped run can go on.
    """

    area: str
    reached: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[str] = ()
    control: str = ""
    case: str = ""


class Figures:
    """Notes figures in a file, one line each, so that several processes may write and a death loses none.

    Or nowhere.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def note(
        self, area: str, violations: Sequence[str] = (), control: str = "", case: str = "", **reached: int
    ) -> None:
        """Notes the figures of an area."""
        assert area in (*AREAS, CONTROLS), area
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(Figure(area, reached, list(violations), control, case))) + "\n")

    def passed(self, area: str) -> dict[str, Mapping[str, int]]:
        """Returns what the noted cases of an area reached, without those that found something."""
        noted = read(self._path) if self._path is not None and self._path.exists() else []
        return {
            figure.case: figure.reached
            for figure in noted
            if figure.area == area and figure.case and not figure.violations
        }


def read(path: Path) -> list[Figure]:
    """Returns all noted figures."""
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()]


def report(figures: Sequence[Figure], before: str = "") -> str:
    """Returns the report as Markdown. Areas and controls without `figures` keep their rows of `before`."""
    kept = dict(_rows(before))
    played = f"{_commit()}, {date.today()}"
    areas = {area: row for area in AREAS if (row := _area(area, figures, played) or kept.get(area))}
    played_controls = [_control(figure, played) for figure in figures if figure.area == CONTROLS]
    controls = dict(played_controls)
    assert len(controls) == len(played_controls), "two controls have one name, and one of them would be lost"
    controls = {**{name: row for name, row in kept.items() if name not in AREAS}, **controls}
    return "\n".join([*_HEAD, "", *_AREAS_HEAD, *areas.values(), "", *_CONTROLS_HEAD, *controls.values(), ""])


_HEAD = (
    "# What the long forms reached",
    "",
    "By `scripts/test --long`, each at the commit that its row names.",
    "After each fault everything goes on by itself for two runs; then the lake is judged by I1 to I10, and so is",
    "whatever a reader saw that polled meanwhile. *Wedged* is what was not at rest after those two runs.",
)
_AREAS_HEAD = (
    f"| Area | Reached | {' | '.join(_KINDS.values())} | other | At |",
    "|---|---|" + "---|" * (len(_KINDS) + 2),
)
_CONTROLS_HEAD = (
    "## Null controls",
    "",
    "Each is the product, or the model, with one mechanism taken out. The suite must turn red, and does:",
    "",
    "| Taken out | The first that the suite said | At |",
    "|---|---|---|",
)


def _rows(text: str) -> Iterable[tuple[str, str]]:
    """The rows of all tables of a report, by their first cell."""
    for line in text.splitlines():
        if line.startswith("| ") and line not in (*_AREAS_HEAD, *_CONTROLS_HEAD):
            yield line.split("|")[1].strip(), line


def _commit() -> str:
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "no commit"


def _area(area: str, figures: Sequence[Figure], played: str) -> str | None:
    mine = [figure for figure in figures if figure.area == area]
    if not mine:
        return None
    reached = Counter[str]()
    for figure in mine:
        reached.update(figure.reached)
    said = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in reached.items())
    kinds = Counter(_kind(violation) for figure in mine for violation in figure.violations)
    counts = [str(kinds[kind]) for kind in (*_KINDS.values(), "other")]
    return f"| {area} | {said} | {' | '.join(counts)} | {played} |"


def _kind(violation: str) -> str:
    return _KINDS.get(violation.removeprefix("before it lands: ").partition(" ")[0].rstrip(":"), "other")


def _control(figure: Figure, played: str) -> tuple[str, str]:
    said = figure.violations[0].splitlines()[0][:160].replace("|", "/") if figure.violations else "**nothing**"
    return figure.control, f"| {figure.control} | {said} | {played} |"


if __name__ == "__main__":
    path = Path(sys.argv[2])
    made = report(read(Path(sys.argv[1])), path.read_text() if path.exists() else "")
    path.write_text(made)
    print(made)

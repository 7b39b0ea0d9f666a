"""The table of targets with their last results, made from the files of `bench/results/`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import COMMITTED, Verdict
from bench.targets import ENTRIES, TARGETS, Entry, Target, entry_of


@dataclass(frozen=True)
class Result:
    """The last result of one entry."""

    entry: str
    command: str
    measured: str
    commit: str
    load: tuple[float, float]
    verdicts: tuple[Verdict, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Standing:
    """One target with all its figures."""

    target: Target
    verdicts: tuple[Verdict, ...]

    @property
    def state(self) -> str:
        """Returns `reached`, `not reached`, or `not measured`."""
        if not self.verdicts:
            return "not measured"
        return "reached" if all(one.reached for one in self.verdicts) else "not reached"

    @property
    def fails(self) -> bool:
        """Whether `scripts/bench all` fails because of this target."""
        return self.target.is_required and self.state != "reached"


def load_results(folder: Path = COMMITTED) -> list[Result]:
    """Returns the last results of all entries that have one."""
    paths = [folder / f"{entry.name}.json" for entry in ENTRIES]
    return [_result(json.loads(path.read_text())) for path in paths if path.exists()]


def _result(content: Mapping[str, Any]) -> Result:
    return Result(
        entry=content["entry"],
        command=content["command"],
        measured=content["measured"],
        commit=content["commit"],
        load=(content["load"][0], content["load"][1]),
        verdicts=tuple(Verdict(**each) for each in content["verdicts"]),
        figures=content["figures"],
    )


def standings(results: Sequence[Result]) -> list[Standing]:
    """Returns each target with its figures of all entries."""
    return [
        Standing(target, tuple(one for result in results for one in result.verdicts if one.target == target.number))
        for target in TARGETS
    ]


def table_of_results(results: Sequence[Result]) -> str:
    """Returns the table of `bench/results/README.md`: a line for each target."""
    measured = {result.entry: result for result in results}
    lines = ["| target | work | against | entry | last result | |", "|---|---|---|---|---|---|"]
    for standing in standings(results):
        target = standing.target
        number = f"**{target.number}**" if target.is_required else target.number
        entries = "; ".join(_named(entry, measured) for entry in entry_of(target.number)) or "none yet"
        whens = ", ".join(sorted({measured[e.name].measured for e in entry_of(target.number) if e.name in measured}))
        lines.append(f"| {number} | {target.work} | {target.peer} | {entries} | {whens} | {standing.state} |")
    return "\n".join(lines) + "\n"


def _named(entry: Entry, measured: Mapping[str, Result]) -> str:
    shown = f"`{entry.command}`"
    linked = f"[{shown}]({entry.name}.md)" if entry.name in measured else shown
    return f"{linked}, {entry.minutes:g} min"


def table_of_figures(results: Sequence[Result]) -> str:
    """Returns the table of `docs/performance.md`: a line for each figure."""
    lines = ["| target | figure | measured | goal | |", "|---|---|---|---|---|"]
    for standing in standings(results):
        target = standing.target
        number = f"**{target.number}**" if target.is_required else target.number
        if not standing.verdicts:
            lines.append(f"| {number} | {target.work} | | {target.goal} | not measured |")
        for one in standing.verdicts:
            reached = "reached" if one.reached else "**not reached**"
            lines.append(f"| {number} | {one.what} | {one.shown} | {one.goal_shown} | {reached} |")
    return "\n".join(lines) + "\n"


def table_of_origins(results: Sequence[Result]) -> str:
    """Returns a line for each result: where and when it was measured."""
    lines = ["| entry | measured | commit | load, begin to end |", "|---|---|---|---|"]
    for one in results:
        lines.append(f"| `{one.entry}` | {one.measured} | {one.commit} | {one.load[0]:g} to {one.load[1]:g} |")
    return "\n".join(lines) + "\n"

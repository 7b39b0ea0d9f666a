"""Cells of faults: the choice of cells for a run, and their results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.reliability import Figures

_Cell = TypeVar("_Cell")


def diagonal(cells: Sequence[_Cell], *sides: Callable[[_Cell], Hashable]) -> list[_Cell]:
    """Returns the fewest cells with each value of each side of a table once, in order."""
    left = [{side(cell) for cell in cells} for side in sides]
    found: list[_Cell] = []
    while any(left):
        news = [sum(side(cell) in values for side, values in zip(sides, left, strict=True)) for cell in cells]
        best = cells[news.index(max(news))]
        found.append(best)
        for side, values in zip(sides, left, strict=True):
            values.discard(side(best))
    return [cell for cell in cells if cell in found]


def play(fleet: Fleet, figures: Figures, area: str, works: Mapping[str, Work]) -> dict[str, dict[str, Any]]:
    """Plays all cells on all workers. A failure of the test itself is also a violation."""
    names = {id(work): name for name, work in works.items()}
    found: dict[str, dict[str, Any]] = {}
    for done in fleet.map(works.values()):
        outcome = done.result or {"asked": 1, "injected": 1, "violations": [f"the test itself failed: {done.error}"]}
        found[names[id(done.work)]] = outcome
        figures.note(area, outcome["violations"], cells=1, injected=outcome["injected"])
    return found

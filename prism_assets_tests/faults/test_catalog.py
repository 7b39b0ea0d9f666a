"""Glue throttles, refuses, loses answers, answers late and lies: the lake heals, and readers lose nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.faults import catalog_cells
from prism_assets_tests.faults.catalog_cells import BATCHES, CELLS, Cell
from prism_assets_tests.faults.cells import diagonal, play
from prism_assets_tests.reliability import Figures


def cells(*, long: bool) -> Sequence[Cell]:
    """All of them take a minute; the short form has each operation, and each kind of fault."""
    return CELLS if long else diagonal(CELLS, lambda cell: cell.operation, lambda cell: cell.kind)


@pytest.fixture(scope="module")
def outcomes(fleet: Fleet, figures: Figures, long: bool) -> dict[str, dict[str, Any]]:
    return play(fleet, figures, "Glue faults", {str(cell): catalog_cells.work_of(cell) for cell in cells(long=long)})


def test_the_lake_comes_through(outcomes: dict[str, dict[str, Any]], cell: Cell) -> None:
    outcome = outcomes[str(cell)]
    assert outcome["injected"] > 0, "the fault never came to pass"
    assert outcome["violations"] == []


@pytest.mark.parametrize("operation", BATCHES[1:])
def test_a_call_that_lands_when_its_caller_is_dead_is_found_by_the_next_runs(
    fleet: Fleet, figures: Figures, operation: str
) -> None:
    work = Work(function=f"{catalog_cells.__name__}:late", arguments={"operation": operation, "skip": 0})
    (done,) = fleet.map([work])
    figures.note("Glue faults", done.result or [], cells=1)
    assert (done.result, done.error) == ([], "")

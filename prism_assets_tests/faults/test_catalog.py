"""Glue that throttles, refuses, loses answers, answers late and lies: the lake heals, and readers lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.faults import catalog_cells
from prism_assets_tests.faults.catalog_cells import BATCHES, CELLS, Cell


@pytest.fixture(scope="module")
def outcomes(fleet: Fleet) -> dict[str, dict[str, Any]]:
    works = {str(cell): catalog_cells.work_of(cell) for cell in CELLS}
    done = {str(Cell(**item.work.arguments)): item for item in fleet.map(works.values())}
    return {name: done[name].result or {"injected": 1, "violations": [done[name].error]} for name in works}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_lake_comes_through(outcomes: dict[str, dict[str, Any]], cell: Cell) -> None:
    outcome = outcomes[str(cell)]
    assert outcome["injected"] > 0, "the fault never came to pass"
    assert outcome["violations"] == []


@pytest.mark.parametrize("operation", BATCHES[1:])
def test_a_call_that_lands_when_its_caller_is_dead_is_found_by_the_next_runs(fleet: Fleet, operation: str) -> None:
    work = Work(function=f"{catalog_cells.__name__}:late", arguments={"operation": operation, "skip": 0})
    (done,) = fleet.map([work])
    assert (done.result, done.error) == ([], "")

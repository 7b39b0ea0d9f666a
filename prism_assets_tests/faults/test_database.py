"""PostgreSQL whose statements fail, that stops, runs out of connections, vanishes, or fails over to an older copy."""

from __future__ import annotations

from typing import Any

import pytest

from prism_assets_tests.crash.fleet import Fleet, Work
from prism_assets_tests.faults import database_cells
from prism_assets_tests.faults.database_cells import CASES, STATEMENTS, Statement


@pytest.fixture(scope="module")
def failing(fleet: Fleet) -> dict[str, dict[str, Any]]:
    works = {str(cell): database_cells.work_of(cell) for cell in STATEMENTS}
    done = {str(Statement(**item.work.arguments)): item for item in fleet.map(works.values())}
    return {name: done[name].result or {"injected": 1, "violations": [done[name].error]} for name in works}


@pytest.fixture(scope="module")
def events(fleet: Fleet) -> dict[tuple[str, str], list[str]]:
    works = [
        Work(function=f"{database_cells.__name__}:run", arguments={"name": name, "point": point})
        for name, point in CASES
    ]
    return {
        (done.work.arguments["name"], done.work.arguments["point"]): done.result if not done.error else [done.error]
        for done in fleet.map(works)
    }


@pytest.mark.parametrize("cell", STATEMENTS, ids=str)
def test_the_lake_comes_through_statements_that_fail(failing: dict[str, dict[str, Any]], cell: Statement) -> None:
    outcome = failing[str(cell)]
    assert outcome["injected"] > 0, "no statement failed"
    assert outcome["violations"] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: " at ".join(filter(None, case)))
def test_the_lake_comes_through(events: dict[tuple[str, str], list[str]], case: tuple[str, str]) -> None:
    assert events[case] == []

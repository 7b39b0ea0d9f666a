"""PostgreSQL fails statements, stops, runs out of connections, vanishes, or fails over to an older copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.faults import database_cells
from prism_assets_tests.faults.cells import play
from prism_assets_tests.faults.database_cells import ALL_STATEMENTS, CASES, LONG_CASES, STATEMENTS, Statement
from prism_assets_tests.reliability import Figures


def cells(*, long: bool) -> Sequence[Statement]:
    return ALL_STATEMENTS if long else STATEMENTS[::3]


def cases(*, long: bool) -> Sequence[tuple[str, str]]:
    return LONG_CASES if long else CASES


@pytest.fixture(scope="module")
def failing(fleet: Fleet, figures: Figures, long: bool) -> dict[str, dict[str, Any]]:
    works = {str(cell): database_cells.work_of(cell) for cell in cells(long=long)}
    return play(fleet, figures, "PostgreSQL faults", works)


@pytest.fixture(scope="module")
def events(fleet: Fleet, figures: Figures, long: bool) -> dict[str, dict[str, Any]]:
    works = {" at ".join(case): database_cells.work_of_case(*case) for case in cases(long=long)}
    return play(fleet, figures, "PostgreSQL faults", works)


def test_the_lake_comes_through_statements_that_fail(failing: dict[str, dict[str, Any]], cell: Statement) -> None:
    outcome = failing[str(cell)]
    assert outcome["injected"] > 0, "no statement failed"
    assert outcome["violations"] == []


def test_the_lake_comes_through(events: dict[str, dict[str, Any]], case: tuple[str, str]) -> None:
    assert events[" at ".join(case)]["violations"] == []

"""S3 through a proxy: nine operations, eight harms. The lake heals, or reports the fault; invariants hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.faults import store_cells
from prism_assets_tests.faults.cells import diagonal, play
from prism_assets_tests.faults.store_cells import CELLS, Cell
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures
from prism_local.stack import LocalStack

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def s3_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers with worlds on an S3 server."""
    stack = LocalStack(tmp_path_factory.mktemp("store") / ".prism")
    stack.up(services={"postgres", "s3"})
    try:
        services = {**stack.environment(), "S3_FOLDER": str(stack.place.data / "s3")}
        made = Fleet(services, PostgresServer(services["PRISM_DATABASE_URL"]).template(), workers=os.cpu_count() or 1)
        yield made
        made.close()
    finally:
        stack.reset()


def cells(*, long: bool) -> Sequence[Cell]:
    """All of them take minutes; the short form has each operation, and each harm."""
    return CELLS if long else diagonal(CELLS, lambda cell: cell.operation, lambda cell: cell.harm)


@pytest.fixture(scope="module")
def outcomes(s3_fleet: Fleet, figures: Figures, long: bool) -> dict[str, dict[str, Any]]:
    return play(s3_fleet, figures, "S3 faults", {str(cell): store_cells.work_of(cell) for cell in cells(long=long)})


def test_the_lake_comes_through(outcomes: dict[str, dict[str, Any]], cell: Cell) -> None:
    outcome = outcomes[str(cell)]
    assert outcome["injected"] > 0, f"the fault never came to pass: asked {outcome['asked']} times"
    assert outcome["violations"] == []

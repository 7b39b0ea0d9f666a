"""S3 through a proxy: nine operations, eight harms. The lake heals, or says what is wrong; its invariants hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from prism_assets.local.stack import LocalStack
from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.faults import store_cells
from prism_assets_tests.faults.store_cells import CELLS, Cell
from prism_assets_tests.postgres import PostgresServer

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def s3_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers whose worlds lie on an S3 server."""
    stack = LocalStack(tmp_path_factory.mktemp("store") / ".prism")
    stack.up(services={"postgres", "s3"})
    try:
        services = {**stack.environment(), "S3_FOLDER": str(stack.place.data / "s3")}
        made = Fleet(services, PostgresServer(services["PRISM_DATABASE_URL"]).template(), workers=os.cpu_count() or 1)
        yield made
        made.close()
    finally:
        stack.reset()


@pytest.fixture(scope="module")
def outcomes(s3_fleet: Fleet) -> dict[str, dict[str, Any]]:
    works = {str(cell): store_cells.work_of(cell) for cell in CELLS}
    done = {str(Cell(**item.work.arguments)): item for item in s3_fleet.map(works.values())}
    return {name: done[name].result or {"asked": 1, "injected": 1, "violations": [done[name].error]} for name in works}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_lake_comes_through(outcomes: dict[str, dict[str, Any]], cell: Cell) -> None:
    outcome = outcomes[str(cell)]
    assert outcome["injected"] > 0, f"the fault never came to pass: asked {outcome['asked']} times"
    assert outcome["violations"] == []

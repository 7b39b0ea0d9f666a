from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from prism_assets.domain.errors import WrongUse
from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, python_of_duckdb


@pytest.fixture(scope="session")
def new_session() -> Callable[[], DuckDBSession]:
    """Starts a DuckDB with its extensions; skips where its environment cannot be made."""
    try:
        python = python_of_duckdb()
    except WrongUse as error:
        pytest.skip(f"there is no DuckDB with the extensions of DuckLake here: {error}")
    return lambda: DuckDBSession(python)


@pytest.fixture(scope="session")
def duckdb_session(new_session: Callable[[], DuckDBSession]) -> Iterator[DuckDBSession]:
    with new_session() as session:
        yield session


@pytest.fixture
def new_lake(services: Mapping[str, str], duckdb_session: DuckDBSession) -> Callable[[World], LakeOfTest]:
    """The lake of a world as a client of DuckLake sees it."""
    return lambda world: LakeOfTest(world, duckdb_session, services["PRISM_DUCKLAKE_URL"])


@pytest.fixture
def lake(world: World, new_lake: Callable[[World], LakeOfTest]) -> Iterator[LakeOfTest]:
    made = new_lake(world)
    yield made
    for name in ("lake", "naive"):
        made.detach(name)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from prism_assets_tests.ducklake.lake import LakeOfTest
from prism_assets_tests.ducklake.sessions import duckdb_session as duckdb_session
from prism_assets_tests.ducklake.sessions import new_session as new_session
from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession


@pytest.fixture
def new_lake(services: Mapping[str, str], duckdb_session: DuckDBSession) -> Callable[[World], LakeOfTest]:
    """The lake of a world as seen by a client of DuckLake."""
    return lambda world: LakeOfTest(world, duckdb_session, services["PRISM_DUCKLAKE_URL"])


@pytest.fixture
def lake(world: World, new_lake: Callable[[World], LakeOfTest]) -> Iterator[LakeOfTest]:
    made = new_lake(world)
    yield made
    for name in ("lake", "naive"):
        made.detach(name)

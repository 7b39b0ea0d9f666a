"""The DuckDB with the extensions, for tests of several folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from prism_assets.domain.errors import WrongUse
from prism_local.readers.sessions import DuckDBSession, python_of_duckdb


@pytest.fixture(scope="session")
def new_session() -> Callable[[], DuckDBSession]:
    """Starts a DuckDB with its extensions. Skips the test without the needed environment."""
    try:
        python = python_of_duckdb()
    except WrongUse as error:
        pytest.skip(f"there is no DuckDB with the extensions of DuckLake here: {error}")
    return lambda: DuckDBSession(python)


@pytest.fixture(scope="session")
def duckdb_session(new_session: Callable[[], DuckDBSession]) -> Iterator[DuckDBSession]:
    with new_session() as session:
        yield session

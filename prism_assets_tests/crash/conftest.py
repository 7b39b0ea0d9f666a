"""Shared fixture of crash tests: a fleet of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.postgres import PostgresServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Takes parameters from the module's `cells(long=…)`, `cases(long=…)` and `removals(long=…)`."""
    for name in ("cell", "case", "removal"):
        if name in metafunc.fixturenames:
            chosen = getattr(metafunc.module, f"{name}s")(long=metafunc.config.getoption("--long"))
            metafunc.parametrize(name, chosen, ids=_name)


def _name(item: object) -> str:
    return " at ".join(filter(None, item)) if isinstance(item, tuple) else str(item)


@pytest.fixture(scope="session")
def fleet(services: Mapping[str, str], postgres: PostgresServer) -> Iterator[Fleet]:
    """Workers that play lives with the unchanged package."""
    made = Fleet(services, postgres.template())
    yield made
    made.close()

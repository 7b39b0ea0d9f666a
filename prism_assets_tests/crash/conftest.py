"""What tests of crashes share: a fleet of workers, and how long they may take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from prism_assets_tests.crash.fleet import Fleet
from prism_assets_tests.postgres import PostgresServer

_LONG_FORMS = ("crash/test_sweep.py", "crash/test_races.py", "crash/test_load.py", "faults/test_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The sweep of every hit, the null controls and the cells of faults take half an hour: they are long forms."""
    if config.getoption("--long"):
        return
    for item in items:
        if any(part in item.nodeid for part in _LONG_FORMS):
            item.add_marker(pytest.mark.skip(reason="a long form: --long"))


@pytest.fixture(scope="session")
def fleet(services: Mapping[str, str], postgres: PostgresServer) -> Iterator[Fleet]:
    """Workers that play lives with the package as it is."""
    made = Fleet(services, postgres.template())
    yield made
    made.close()

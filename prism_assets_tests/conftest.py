"""Shared fixtures: a real PostgreSQL and a Glue server for the session, a fresh platform for each test."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from prism_assets.kernels import compiled
from prism_assets_tests.faults.glue import GlueServer
from prism_assets_tests.glue_limits import enforce_glue_limits
from prism_assets_tests.notifications import QueueOfTest
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.reliability import Figures
from prism_assets_tests.world import World
from prism_local.stack import LocalStack

# Fixed examples, so that a failure repeats. The long forms search further.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("further", derandomize=False, deadline=None)


EXIT_SECONDS = 120.0
"""Spark's client takes ten seconds at exit to give a stopped server up."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms of the tests as well")
    parser.addoption("--figures", type=Path, help="note here what tests of reliability reach")


def pytest_configure(config: pytest.Config) -> None:
    """Lets a terminated run end its servers, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings.load_profile("further" if config.getoption("--long") else "same")


def pytest_unconfigure() -> None:
    """Ends a process that hangs at its exit, and shows where. The limits of tests are over by then."""
    faulthandler.dump_traceback_later(EXIT_SECONDS, exit=True)


@pytest.fixture(autouse=True)
def _kernel_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs the first failure of the kernel in each test."""
    monkeypatch.setattr(compiled, "_failures", compiled.FailureLog())


LONGEST = (
    "crash/test_sweep.py",
    "defs/test_secrets.py",
    "faults/test_database.py",
    "flow/test_walks.py",
    "stages/iceberg/test_any_order.py",
    "kafka/test_offsets.py",
    "kafka/test_strikes.py",
    "defs/test_ticks.py",
    "flow/test_join_tables.py",
    "kernels/records/test_histories.py",
    "faults/test_catalog.py",
    "stages/test_rebuild.py",
    "defs/test_sensors.py",
    "ducklake/test_hazards.py",
    "stages/test_rewrite_races.py",
    "stages/test_erase_records.py",
)
"""Files of more than a minute. They come first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first; the others stay in their order."""
    folder = Path(__file__).parent
    places = {folder / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    """Collects the figures of tests of reliability."""
    return Figures(request.config.getoption("--figures"))


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """PostgreSQL, a Glue catalog and moto, without S3 and Spark; returns their environment.

    The catalog is moto's behind a thin front, which needs a fifth of the time; moto itself is at MOTO_ENDPOINT.
    """
    stack = LocalStack(tmp_path_factory.mktemp("services") / ".prism")
    stack.up(services={"postgres", "aws"})
    glue = GlueServer()
    try:
        environment = stack.environment()
        moto = environment["PRISM_GLUE_ENDPOINT"]
        yield {**environment, "PRISM_GLUE_ENDPOINT": glue.endpoint, "MOTO_ENDPOINT": moto}
    finally:
        glue.close()
        stack.reset()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The whole local stack, Spark included; returns its environment."""
    whole = LocalStack(tmp_path_factory.mktemp("stack") / ".prism")
    whole.up()
    try:
        yield whole.environment()
    finally:
        whole.reset()


@pytest.fixture(scope="session")
def postgres(services: Mapping[str, str]) -> PostgresServer:
    return PostgresServer(services["PRISM_DATABASE_URL"])


@pytest.fixture(scope="session")
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """A database that short tests empty and use again."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session", autouse=True)
def _aws_for_tests() -> Iterator[None]:
    """Sets credentials that only local servers accept, and the limits of Glue that its double does not enforce."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PRISM_", "AWS_"))]:
            if name not in ("PRISM_CACHE", "PRISM_KERNEL", "AWS_CA_BUNDLE"):
                patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_REGION", "us-east-1")
        enforce_glue_limits()
        yield


@pytest.fixture(autouse=True)
def _kept_sessions() -> Iterator[None]:
    """Closes sessions that a process keeps for its one database, because each test has another database."""
    yield
    if resources := sys.modules.get("prism_assets.defs.resources"):
        resources.DATABASES.close()
    if catalogs := sys.modules.get("prism_assets.publishers.iceberg.catalogs"):
        catalogs.ENGINES.close()


@pytest.fixture
def world(services: Mapping[str, str], postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    """A fresh platform: new database, new buckets on disk, new catalog databases, the in-process engine."""
    url = postgres.create_database()
    made = World.create(tmp_path, url, services["PRISM_GLUE_ENDPOINT"])
    try:
        yield made
    finally:
        made.close()
        postgres.drop_database(url)


@pytest.fixture
def queue(services: Mapping[str, str]) -> Iterator[QueueOfTest]:
    """A fresh queue on the local SQS server."""
    made = QueueOfTest(services["PRISM_SQS_ENDPOINT"])
    yield made
    made.delete()

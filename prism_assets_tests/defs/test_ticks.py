"""A code server lives for weeks: hundreds of ticks of all sensors leave no session, file, thread or memory behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest
from sqlalchemy import make_url

from prism_assets.defs.connection_pool import KEPT
from prism_assets.metadata.database import SESSIONS_KEPT
from prism_assets.publishers.iceberg.catalogs import SESSIONS_KEPT as KEPT_BY_ICEBERG
from prism_assets_tests.builders import a_table, some_rows
from prism_assets_tests.defs.held import Held, growing
from prism_assets_tests.defs.tables import a_folder
from prism_assets_tests.defs.ticks import read_looks
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.requests import a_join_table
from prism_assets_tests.world import World

PROJECT = Path(__file__).resolve().parents[2]
EVERY = 20


@pytest.fixture
def environment(settled: World, postgres: PostgresServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a world with a table for every sensor, and of an instance with the project's dagster.yaml."""
    settled.drop(some_rows(3, datetime.now(timezone.utc)))
    tables = a_table(iceberg="true") + "symlink: true\n", a_join_table(more="iceberg: true\n")
    address = postgres.copy_database("template1", "dagster_ticks")
    url = make_url(address)
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    named = {"HOST": url.host, "PORT": url.port, "USER": url.username, "PASSWORD": url.password, "DB": url.database}
    yield {
        **os.environ,
        **{f"PRISM_DAGSTER_PG_{name}": str(value) for name, value in named.items()},
        "DAGSTER_HOME": str(home),
        "PRISM_TABLES_DIR": str(a_folder(tmp_path, *tables)),
    }
    postgres.drop_database(address)


@pytest.fixture
def looks(environment: Mapping[str, str], long: bool) -> list[Held]:
    """Looks at a process after every 20 ticks."""
    ticks = 2_000 if long else 120
    command = [sys.executable, "-m", "prism_assets_tests.defs.ticks", str(ticks), str(EVERY)]
    ended = subprocess.run(command, env=dict(environment), cwd=PROJECT, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = read_looks(ended.stdout)
    assert len(found) == ticks // EVERY
    return found


def test_ticks_leave_nothing_behind(looks: list[Held]) -> None:
    assert max(look.sessions for look in looks) <= KEPT + SESSIONS_KEPT + KEPT_BY_ICEBERG
    assert growing(looks) == [], looks

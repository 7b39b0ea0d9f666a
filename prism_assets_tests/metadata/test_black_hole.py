"""After a host vanishes silently, its session and locks end within a minute, not after two hours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.metadata.database import Database
from prism_assets_tests.metadata.vanishing_host import RUN


@pytest.fixture(scope="module")
def own_network() -> list[str]:
    """The prefix of a command for a separate network."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a network of one's own needs Linux and unshare")
    rights = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    words = [unshare, *rights, "--net", "--"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this system gives nobody a network of one's own: {tried.stderr.strip()}")
    return words


def test_a_run_whose_host_vanished_is_without_its_lock_soon(own_network: list[str], tmp_path: Path) -> None:
    """The control is a lock over a connection with system defaults, which stays."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*own_network, sys.executable, "-m", "prism_assets_tests.metadata.vanishing_host", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"free before": [], "free after": [RUN]}


@pytest.mark.parametrize("kind", ["begin", "outside_transactions"])
def test_the_server_asks_every_session_of_ours_whether_its_host_is_there(database_url: str, kind: str) -> None:
    database = Database(database_url)
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    with getattr(database, kind)() as connection:
        shown = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
    database.dispose()
    assert shown == ["30", "10", "3", "60000"]


def test_our_side_gives_a_server_up_as_soon(database_url: str) -> None:
    database = Database(database_url)
    with database.begin() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        given = {item.keyword.decode(): item.val for item in driver.pgconn.info if item.val}
    database.dispose()
    assert (given["keepalives_idle"], given["keepalives_interval"], given["keepalives_count"]) == (b"30", b"10", b"3")
    assert given["tcp_user_timeout"] == b"60000"


def test_a_transaction_with_locks_ends_when_its_process_stands_still(database_url: str) -> None:
    """A session waiting for the lock gets it, whatever becomes of the first."""
    database = Database(database_url)
    with database.begin() as connection:
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "1min"
    with pytest.raises(DatabaseUnavailable, match="stood still in a transaction"):
        _stand_still(database)
    database.dispose()


def _stand_still(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '50ms'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(7170005, 1)"))
        with database.begin() as other:
            other.execute(text("SELECT pg_advisory_xact_lock(7170005, 1)"))
        connection.execute(text("SELECT 1"))

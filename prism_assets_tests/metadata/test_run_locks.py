"""The lock of a run: held as long as the process works, through all losses of the session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import text

from prism_assets.domain.errors import DatabaseUnavailable
from prism_assets.metadata.database import Database
from prism_assets.metadata.run_locks import run_lock, runs_without_lock

RUN = "11111111-2222"
_HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 7170005 AND granted"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prism_assets.metadata.run_locks._CHECK_SECONDS", 0.05)
    monkeypatch.setattr("prism_assets.metadata.run_locks._RETRY_SECONDS", 0.05)


def is_held(database: Database) -> bool:
    return not runs_without_lock(database, [RUN])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def holders(database: Database) -> set[int]:
    """Returns the PostgreSQL processes with the lock of a run."""
    with database.begin() as connection:
        return set(connection.execute(text(_HOLDERS)).scalars())


def end_sessions(database: Database, pids: set[int]) -> None:
    """Ends them, like a restart or a failover of PostgreSQL."""
    with database.begin() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(p) FROM unnest(CAST(:pids AS int[])) p"), {"pids": [*pids]}
        )


def test_the_lock_is_held_within_the_block_and_no_longer(database: Database) -> None:
    assert not is_held(database)
    with run_lock(database, RUN):
        assert is_held(database)
    assert not is_held(database)
    assert "prism-run-lock" not in {thread.name for thread in threading.enumerate()}


def test_a_lock_that_went_with_its_session_is_taken_again(database: Database) -> None:
    with run_lock(database, RUN):
        for _ in range(2):
            lost = holders(database)
            assert len(lost) == 1
            end_sessions(database, lost)
            wait_until(lambda gone=lost: bool(new := holders(database)) and not new & gone)  # type: ignore[misc]
        assert is_held(database)
    assert not is_held(database)


def test_a_lock_that_a_lost_session_still_holds_is_taken_once_that_ends(database: Database) -> None:
    with database.begin() as stale:
        pid = stale.execute(text("SELECT pg_backend_pid()")).scalar_one()
        stale.execute(text("SELECT pg_advisory_xact_lock(7170005, hashtext(:run))"), {"run": RUN})
        with run_lock(database, RUN):
            assert holders(database) == {pid}
            stale.rollback()
            wait_until(lambda: bool(holders(database) - {pid}))
            assert is_held(database)


def test_a_run_whose_process_stands_still_is_without_its_lock_until_it_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the run's tables would get no other run. The keeper checks rarely here, as if motionless."""
    monkeypatch.setattr("prism_assets.metadata.run_locks._SILENT_SECONDS", 1)
    monkeypatch.setattr("prism_assets.metadata.run_locks._CHECK_SECONDS", 2.0)
    with run_lock(database, RUN):
        assert is_held(database)
        wait_until(lambda: not is_held(database))
        wait_until(lambda: is_held(database))


def test_nothing_of_it_keeps_a_process_alive(database: Database) -> None:
    with run_lock(database, RUN):
        (keeper,) = [thread for thread in threading.enumerate() if thread.name == "prism-run-lock"]
        assert keeper.daemon


def test_a_database_that_is_away_at_the_beginning_is_told() -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable, match="does not answer"), run_lock(away, RUN):
        raise AssertionError("the block was entered")


def test_the_lock_holds_up_no_vacuum(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock's transaction is open as long as the run. Between two checks the transaction has no snapshot."""
    monkeypatch.setattr("prism_assets.metadata.run_locks._CHECK_SECONDS", 60)
    statement = text("SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = ANY(:pids)")

    def between_two_looks() -> bool:
        with database.begin() as connection:
            found = connection.execute(statement, {"pids": [*holders(database)]}).all()
            return found == [("idle in transaction", None, None)]

    with run_lock(database, RUN):
        wait_until(between_two_looks)

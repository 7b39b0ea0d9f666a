"""Events of PostgreSQL: ended sessions, an immediate stop, a failover to an older copy, failing statements."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import sqlalchemy

from prism_local import processes
from prism_local.stack import LocalStack


class Server:
    """A PostgreSQL server of one test, which may stop, start and restore it."""

    def __init__(self, home: Path) -> None:
        self._stack = LocalStack(home)
        self._data = self._stack.place.data / "postgres"

    def start(self) -> None:
        """Starts the server, and waits for an answer."""
        self._stack.up(services={"postgres"})

    @property
    def url(self) -> str:
        """The address, with the password."""
        return self._stack.environment()["PRISM_DATABASE_URL"]

    def stop_at_once(self) -> None:
        """Stops without a checkpoint, like `pg_ctl stop -m immediate`."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """Ends without a message; sessions notice by themselves."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        (pid,) = (service.pid for service in self._stack.status() if service.name == "postgres")
        assert pid is not None, "PostgreSQL does not run"
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        process.send_signal(number)
        left = processes.wait(family, 20)
        for one in left:
            one.kill()
        processes.wait(left, 5)

    def copy(self, folder: Path) -> None:
        """Copies the current data while the server stands still."""
        self.stop_at_once()
        subprocess.run(["cp", "-a", str(self._data), str(folder)], check=True)
        self.start()

    def fail_over_to(self, folder: Path) -> None:
        """Stops, and starts from a copy: later commits are gone, and ids repeat."""
        self.stop_at_once()
        shutil.rmtree(self._data)
        subprocess.run(["cp", "-a", str(folder), str(self._data)], check=True)
        self.start()

    def remove(self) -> None:
        """Stops the server and deletes its data."""
        self._stack.reset()


def end_sessions(engine: sqlalchemy.Engine) -> int:
    """Ends all other sessions of an engine's database. Returns how many."""
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(_END_OTHERS).scalar_one())


_END_OTHERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

WRITES: Sequence[tuple[str, str]] = (
    ("prism_staging_objects", "INSERT"),
    ("prism_staging_objects", "UPDATE"),
    ("prism_stream_batches", "INSERT"),
    ("prism_stream_batches", "UPDATE"),
    ("prism_small_objects", "INSERT"),
    ("prism_partitions", "INSERT"),
    ("prism_partitions", "UPDATE"),
    ("prism_publications", "INSERT"),
    ("prism_merge_jobs", "INSERT"),
    ("prism_merge_jobs", "UPDATE"),
    ("prism_merge_jobs", "DELETE"),
    ("prism_merge_ranges", "INSERT"),
    ("prism_switch_certificates", "INSERT"),
    ("prism_table_publications", "UPDATE"),
)
"""Statements of all stages, by the table they write to."""
STATES = {"deadlock": "40P01", "serialization failure": "40001", "cancelled": "57014", "lock timeout": "55P03"}

_FAILING = """
CREATE SEQUENCE prism_test_faults;
CREATE FUNCTION prism_test_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('prism_test_faults') <= {times} THEN
        RAISE EXCEPTION 'a fault of the test' USING ERRCODE = '{state}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_test_fail AFTER {verb} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION prism_test_fail();
"""


def make_fail(engine: sqlalchemy.Engine, table: str, verb: str, state: str, times: int) -> None:
    """Lets the next statements of a kind on a table fail with an SQLSTATE. Sequences do not roll back: they count."""
    with engine.begin() as connection:
        connection.exec_driver_sql(_FAILING.format(table=table, verb=verb, state=state, times=times))


def failures(engine: sqlalchemy.Engine) -> int:
    """How often a statement of the kind came by."""
    with engine.connect() as connection:
        called, last = connection.exec_driver_sql("SELECT is_called, last_value FROM prism_test_faults").one()
        return int(last) if called else 0

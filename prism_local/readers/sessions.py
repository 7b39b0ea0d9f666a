"""Runs a DuckDB version with DuckLake's extensions, beside the pinned one, in its own process."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from prism_assets.domain.errors import TerminalError, WrongUse
from prism_local.readers import environments
from prism_local.readers.known import CLIENTS, DUCKLAKE

SHARED_HOME = Path.home() / ".cache" / "prism_assets"
"""Holds one environment for all stacks of a user, as for jars."""


class StatementFailed(TerminalError):
    """DuckDB refused a statement. The message is DuckDB's."""


class DuckDBSession:
    """One DuckDB connection. Close it to end its process."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), str(CLIENTS / "duckdb_session.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self.seconds = 0.0
        """How long the last statement took."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs a statement. Values without a JSON type arrive as text. Raises StatementFailed with DuckDB's message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"sql": sql}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise StatementFailed("the process of DuckDB has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise StatementFailed(f"the process of DuckDB ended with status {self._process.wait()}")
        answer = json.loads(line)
        self.seconds = answer["seconds"]
        if "error" in answer:
            raise StatementFailed(answer["error"])
        return [tuple(row) for row in answer["rows"]]

    def run(self, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        """Runs statements one after another. Returns the rows of the last."""
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = self.query(statement)
        return rows

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> DuckDBSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def python_of_duckdb(home: Path = SHARED_HOME) -> Path:
    """Returns the Python with that DuckDB. Creates a missing environment; raises WrongUse with pip's message if this
    fails.
    """
    with _alone(home):
        if environments.find_python(DUCKLAKE, home) is None:
            environments.install(DUCKLAKE, home)
        python = environments.find_python(DUCKLAKE, home)
    if python is None:
        raise WrongUse(f"the environment of {DUCKLAKE.name} in {home} was not made")
    return python


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Holds a lock, so that only one of several processes creates the environment."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "readers.lock").open("w")
    except OSError as error:
        raise WrongUse(f"{home} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

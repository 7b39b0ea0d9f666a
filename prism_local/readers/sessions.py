"""A DuckDB of the version that has the extensions of DuckLake, beside the one that is pinned: a process of its own."""

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
"""Its environment serves all stacks of a user, as the jars do."""


class StatementFailed(TerminalError):
    """DuckDB refused a statement; the message is its own."""


class DuckDBSession:
    """One connection of DuckDB that lives until it is closed."""

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
        """Runs a statement; what JSON has no type for comes as text. StatementFailed with what DuckDB says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"sql": sql}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise StatementFailed("the process of DuckDB has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise StatementFailed(f"the process of DuckDB ended with status {self._process.wait()}")
        said = json.loads(line)
        self.seconds = said["seconds"]
        if "error" in said:
            raise StatementFailed(said["error"])
        return [tuple(row) for row in said["rows"]]

    def run(self, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        """Runs statements one after the other; the rows of the last."""
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
    """The Python with that DuckDB; its environment is made where there is none. WrongUse with what pip says if not."""
    with _alone(home):
        if environments.find_python(DUCKLAKE, home) is None:
            environments.install(DUCKLAKE, home)
        python = environments.find_python(DUCKLAKE, home)
    if python is None:
        raise WrongUse(f"the environment of {DUCKLAKE.name} in {home} was not made")
    return python


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Of several processes that need it at once, one makes it."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "readers.lock").open("w")
    except OSError as error:
        raise WrongUse(f"{home} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""DuckDB as expressions see it: one locked database a process, without files, network and extensions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from prism_assets.domain.errors import ExpressionsFailed, MissingSecret, WorkerUnavailable
from prism_assets.domain.names import SECRET_PREFIX
from prism_assets.domain.words import counted
from prism_assets.kernels.expressions.macros import MACROS, variables

if TYPE_CHECKING:
    import duckdb

ROWS = "prism_rows"
"""The name under which queries read their rows."""

Secrets = Callable[[str], str]
"""Gives the secret of a name. Raises MissingSecret."""

_MEMORY = "512MiB"
_SETTINGS = (
    "SET GLOBAL TimeZone = 'UTC'",  # of the machine otherwise, and so would results be
    "SET threads = 1",
    f"SET memory_limit = '{_MEMORY}'",
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""In this order: the last two refuse the others."""


@lru_cache(maxsize=1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """The database of this process, made at its first expression; another process after a fork makes its own."""
    try:
        import duckdb  # takes a fifth of a second, and most tables have no expression
    except ImportError as error:
        raise WorkerUnavailable(
            f"the worker cannot import duckdb, which expressions of tables need ({error}): install it there, in the "
            "version that all other workers have"
        ) from None

    database = duckdb.connect(":memory:")
    for macro in MACROS.values():
        database.execute(f"CREATE MACRO {macro}")
    # What expressions share, and what is constant in them, optimizers compute outside of TRY, where it fails for all.
    optimizers = database.execute("SELECT string_agg(name) FROM duckdb_optimizers()").fetchall()
    database.execute("SET disabled_optimizers = ?", list(optimizers[0]))
    for setting in _SETTINGS:
        database.execute(setting)
    return database


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of its own to the database of this process; the caller closes it."""
    return _database(os.getpid()).cursor()


def secret_of_worker(name: str) -> str:
    """The secret of this name in the environment of the worker. Raises MissingSecret."""
    place = f"{SECRET_PREFIX}{name.upper()}"
    key = os.environ.get(place)
    if not key:
        raise MissingSecret(
            f"the worker has no secret {place}, which pseudonym needs: set that variable in the environment of the "
            "workers"
        )
    return key


def give_secrets(connection: duckdb.DuckDBPyConnection, names: Collection[str], secret_of: Secrets) -> None:
    """Binds secrets for `pseudonym`. Raises MissingSecret."""
    for name in sorted(names):
        for variable, value in variables(name, secret_of(name)):
            connection.execute(f'SET VARIABLE "{variable}" = ?', [value])


@contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[threading.Event]:
    """Interrupts what the connection does after so many seconds, and says so."""
    rung = threading.Event()

    def ring() -> None:
        rung.set()
        connection.interrupt()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rung
    finally:
        timer.cancel()


class RowFailure(Exception):
    """An expression cannot be computed for at least one of the rows."""


def run(connection: duckdb.DuckDBPyConnection, query: str, rows: pa.Table, seconds: float) -> pa.Table:
    """The answer to a query over `rows`.

    Raises RowFailure where DuckDB refuses a value, and ExpressionsFailed for what no other query would mend. Neither
    tells anything of what is in the rows.
    """
    import duckdb

    connection.register(ROWS, rows)
    try:
        with _interrupted_after(connection, seconds) as rung:
            return connection.sql(query).to_arrow_table()
    except duckdb.OutOfMemoryException:
        raise ExpressionsFailed(
            f"the expressions of the table need more than {_MEMORY} of memory for {counted(rows.num_rows, 'line')}: "
            "make them simpler, or keep their values shorter"
        ) from None
    except duckdb.Error as error:
        if rung.is_set():
            raise ExpressionsFailed(
                f"the expressions of the table took longer than {seconds:g} s for {counted(rows.num_rows, 'line')} "
                "and were stopped: make them simpler"
            ) from None
        raise RowFailure(type(error).__name__) from None
    finally:
        connection.unregister(ROWS)

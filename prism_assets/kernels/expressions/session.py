"""DuckDB for expressions: one locked database a process, without files, network or extensions."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.errors import ExpressionsFailed, MissingSecret, SettingsError, WorkerUnavailable
from prism_assets.domain.names import SECRET_PREFIX
from prism_assets.domain.sql_quoting import quote_identifier
from prism_assets.domain.text import counted
from prism_assets.kernels.expressions.macros import MACROS, variables
from prism_assets.kernels.expressions.memory import RETURNS_MEMORY, ROOM, confined, regain
from prism_assets.secret_references import secret_at

if TYPE_CHECKING:
    import duckdb

ROWS = "prism_rows"
"""The table name for rows in queries."""
_ANSWER = "prism_answer"
_MOST_IDLE = 8
_RINGS_AGAIN = 1.0
"""Seconds until the next interruption, because DuckDB forgets one that arrives before it starts."""
_SLEEPS = 3600.0

Secrets = Callable[[str], str]
"""Returns the secret of a name. Raises MissingSecret."""
_Variables = tuple[tuple[str, bytes], ...]

MEMORY = 512 << 20
"""Bytes of the results of one query."""
_SETTINGS = (
    "SET GLOBAL TimeZone = 'UTC'",  # the default is the machine's zone, and results would depend on it
    "SET threads = 1",
    "SET GLOBAL errors_as_json = true",  # such errors contain a position
    f"SET memory_limit = '{MEMORY >> 20}MiB'",
    "SET allocator_background_threads = true",  # they return memory unused for some seconds
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""The order matters: the last two lock out the others."""


@lru_cache(maxsize=1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Returns this process's database, made at its first expression. A forked process makes its own."""
    for name, value in RETURNS_MEMORY.items():
        os.environ.setdefault(name, value)
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
    # Optimizers would compute shared and constant expressions outside TRY, so a failure would affect all rows.
    optimizers = database.execute("SELECT string_agg(name) FROM duckdb_optimizers()").fetchall()
    database.execute("SET disabled_optimizers = ?", list(optimizers[0]))
    for setting in _SETTINGS:
        database.execute(setting)
    return database


def connect() -> duckdb.DuckDBPyConnection:
    """Returns a connection to this process's database. The caller closes it."""
    return _database(os.getpid()).cursor()


def secret_of_worker(name: str) -> str:
    """Returns a secret from the worker's environment, or from the place named there. Raises MissingSecret."""
    place = f"{SECRET_PREFIX}{name.upper()}"
    key = os.environ.get(place)
    if not key:
        raise MissingSecret(
            f"the worker has no secret {place}, which pseudonym needs: set that variable in the environment of the "
            "workers"
        )
    try:
        return secret_at(key)
    except SettingsError as error:
        raise MissingSecret(f"the worker has no secret {place}, which pseudonym needs: {error}") from None


@dataclass(eq=False)
class _Watched:
    """A running query. `rung` is set before the query is interrupted."""

    connection: duckdb.DuckDBPyConnection
    deadline: float
    rung: threading.Event = field(default_factory=threading.Event)


class _Watchdog:
    """Interrupts slow queries. One thread watches all, because a timer per query costs 0.1 ms."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._changed = threading.Condition()
        self._queries: set[_Watched] = set()
        self._wakes = 0.0
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="prism-expressions", daemon=True)
        self._thread.start()
        atexit.register(self._end)  # a thread that outlives the interpreter leaks connections, with a warning on stderr

    @contextmanager
    def interrupts(self, connection: duckdb.DuckDBPyConnection, after: float) -> Iterator[threading.Event]:
        """Interrupts the connection's current query after `after` seconds and sets the event. Never interrupts a later
        query.
        """
        query = _Watched(connection, time.monotonic() + after)
        with self._changed:
            self._queries.add(query)
            if query.deadline < self._wakes:
                self._changed.notify()
        try:
            yield query.rung
        finally:
            with self._changed:
                self._queries.discard(query)

    def _watch(self) -> None:
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                for query in [query for query in self._queries if query.deadline <= now]:
                    query.rung.set()
                    query.connection.interrupt()
                    query.deadline = now + _RINGS_AGAIN
                self._wakes = min((query.deadline for query in self._queries), default=now + _SLEEPS)
                self._changed.wait(self._wakes - now)

    def _end(self) -> None:
        if self._process == os.getpid():  # a fork has no such thread, and perhaps a lock that is never released
            with self._changed:
                self._is_over = True
                self._changed.notify()
            self._thread.join()


@lru_cache(maxsize=1)
def _watchdog(process: int) -> _Watchdog:
    """Returns this process's watchdog. Threads do not survive a fork."""
    return _Watchdog(process)


class RowFailure(Exception):
    """An expression fails for at least one row."""


class NeedsMemory(ExpressionsFailed):
    """Some rows need more memory than allowed. Fewer rows may need less."""


Answer = Callable[[pa.Table, float], pa.Table]
"""Returns the answer for some rows by a deadline of `time.monotonic`. Raises NeedsMemory to be called with fewer rows.
"""


_LONGEST = 16
"""One row in this many, the longest ones, is searched first for the cause."""
_SPARE = 5
"""Queries that exhaust memory may take this many block times in all, over all blocks of an object."""


@dataclass
class _TimeLeft:
    """The deadline of a block. A query that exhausts memory extends it by its duration, while `spare` lasts."""

    ends: float
    spare: float

    def answer(self, answer: Answer, rows: pa.Table) -> pa.Table:
        """Returns the answer for some rows. Raises NeedsMemory once memory is available again."""
        begun = time.monotonic()
        try:
            return answer(rows, self.ends)
        except NeedsMemory:
            regain()
            taken = min(time.monotonic() - begun, self.spare)
            self.ends += taken
            self.spare -= taken
            raise


def _in_parts(answer: Answer, rows: pa.Table, alone: Callable[[pa.Table], pa.Table], left: _TimeLeft) -> pa.Table:
    with suppress(NeedsMemory):
        return left.answer(answer, rows)
    if rows.num_rows == 1:
        with suppress(NeedsMemory):  # a concurrent thread may have used the room
            return left.answer(answer, rows)
        return alone(rows)
    # Sorts rows by length: two halves of the shorter ones, and the longest.
    order = np.argsort(_lengths(rows), kind="stable")
    long = max(1, rows.num_rows // _LONGEST)
    parts = [part for part in (*np.array_split(order[:-long], 2), order[-long:]) if len(part)]
    answers = [_in_parts(answer, rows.take(pa.array(part)), alone, left) for part in parts]
    whole = pa.concat_tables(answers, promote_options="default")  # answers may differ in their columns
    if whole.nbytes > MEMORY:
        raise ExpressionsFailed(
            f"the results of the table's expressions have more than {MEMORY >> 20} MiB for "
            f"{counted(rows.num_rows, 'line')}: keep their values shorter"
        )
    return whole.take(pa.array(np.argsort(order, kind="stable")))


def _lengths(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Returns the bytes of text in each row."""
    lengths = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            lengths += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return lengths


class _Block:
    """The table that queries read. DuckDB asks it for the current rows each time."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = self.none = schema.empty_table()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


class _Prepared:
    """A prepared query over rows with these columns, on its own connection with these variables."""

    def __init__(self, query: str, schema: pa.Schema, variables: _Variables) -> None:
        self.connection = connect()
        for name, value in variables:
            self.connection.execute(f"SET VARIABLE {quote_identifier(name)} = ?", [value])
        self._query = query
        self._block = _Block(schema)
        self.connection.register(ROWS, self._block)

    def answer(self, rows: pa.Table) -> pa.Table:
        """Returns the answer for these rows."""
        self._block.rows = rows
        try:
            return self._prepared_query()
        finally:
            self._block.rows = self._block.none

    @cached_property
    def _prepared_query(self) -> Callable[[], pa.Table]:
        """Prepares the query on the first block and returns a function that executes it.

        Planning it for every block would take DuckDB 0.3 ms, or 1 ms beside other work.
        """
        connection, statement = self.connection, f"EXECUTE {_ANSWER}"
        connection.execute(f"PREPARE {_ANSWER} AS {self._query}")
        # `execute` of DuckDB 2 copies an answer to Arrow twice and warns about it. `_submit`, used by its relations,
        # copies once. DuckDB 1 has no `_submit` and copies once.
        if submit := getattr(connection, "_submit", None):
            return lambda: submit(statement, None, "arrow").arrow_table()
        return lambda: connection.execute(statement).to_arrow_table()


@cache
def _idle(_process: int) -> OrderedDict[Hashable, _Prepared]:
    """Returns queries prepared by closed sessions of this process, the most recent last. A forked process starts with
    none.
    """
    return OrderedDict()


atexit.register(_idle.cache_clear)  # connections that outlive the interpreter are reported on stderr as leaks


class Session:
    """Answers queries over blocks of rows, with a time limit for each block. For one thread; close it.

    `secrets` are the names used by `pseudonym`. Raises MissingSecret.
    """

    def __init__(self, secrets: Collection[str], secret_of: Secrets, seconds: float) -> None:
        self._seconds = seconds
        self._spare = _SPARE * seconds
        self._variables = tuple(pair for name in sorted(secrets) for pair in variables(name, secret_of(name)))
        self._prepared: dict[Hashable, _Prepared] = {}

    def close(self) -> None:
        """Leaves prepared queries to later sessions."""
        idle = _idle(os.getpid())
        idle.update(self._prepared)
        self._prepared = {}
        while len(idle) > _MOST_IDLE:
            idle.popitem(last=False)

    def answer(self, query: str, rows: pa.Table, *, ends: float | None = None) -> pa.Table:
        """Returns the answer to a query over `rows`. `ends` replaces the deadline if earlier queries used part of the
        time.

        Raises RowFailure if DuckDB refuses a value, and ExpressionsFailed if no other query would help. Neither quotes
        values.
        """
        left = self._seconds if ends is None else ends - time.monotonic()
        if left <= 0:
            raise self._too_slow(rows)
        import duckdb

        rung = threading.Event()
        try:
            prepared = self._prepare(query, rows.schema)
            with _watchdog(os.getpid()).interrupts(prepared.connection, left) as rung:
                return prepared.answer(rows)
        except (duckdb.OutOfMemoryException, MemoryError):
            self._prepared.clear()
            raise NeedsMemory(
                f"the expressions of the table need more than {MEMORY >> 20} MiB of memory for the results of "
                f"{counted(rows.num_rows, 'line')}, or {ROOM >> 30} GiB in between: make them simpler, or keep their "
                "values shorter"
            ) from None
        except duckdb.Error as error:
            if rung.is_set():
                self._prepared.clear()
                raise self._too_slow(rows) from None
            raise RowFailure(type(error).__name__) from None

    def answer_in_parts(self, answer: Answer, rows: pa.Table, alone: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Returns the answer of `answer` for all rows, within the time of one block.

        Divides rows that need too much memory until the rows at fault are alone; `alone` answers for those. Blocks with
        many such rows get extra time. Raises ExpressionsFailed if the results are too large in all, and the errors of
        `answer`.
        """
        with confined():
            left = _TimeLeft(time.monotonic() + self._seconds, self._spare)
            try:
                return _in_parts(answer, rows, alone, left)
            finally:
                self._spare = left.spare

    def _too_slow(self, rows: pa.Table) -> ExpressionsFailed:
        return ExpressionsFailed(
            f"the expressions of the table took longer than {self._seconds:g} s for "
            f"{counted(rows.num_rows, 'line')} and were stopped: make them simpler"
        )

    def _prepare(self, query: str, schema: pa.Schema) -> _Prepared:
        key = query, tuple(schema.names), tuple(schema.types), self._variables
        prepared = self._prepared.get(key) or _idle(os.getpid()).pop(key, None)
        self._prepared[key] = prepared or _Prepared(query, schema, self._variables)
        return self._prepared[key]

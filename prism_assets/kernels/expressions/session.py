"""DuckDB as expressions see it: one locked database a process, without files, network and extensions."""

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

from prism_assets.domain.errors import ExpressionsFailed, MissingSecret, WorkerUnavailable
from prism_assets.domain.names import SECRET_PREFIX
from prism_assets.domain.words import counted
from prism_assets.kernels.expressions.macros import MACROS, variables
from prism_assets.kernels.expressions.memory import RETURNS_MEMORY, ROOM, confined, regain

if TYPE_CHECKING:
    import duckdb

ROWS = "prism_rows"
"""The name under which queries read their rows."""
_ANSWER = "prism_answer"
_MOST_IDLE = 8
_RINGS_AGAIN = 1.0
"""Seconds: an interruption that comes before DuckDB has begun is forgotten."""
_SLEEPS = 3600.0

Secrets = Callable[[str], str]
"""Gives the secret of a name. Raises MissingSecret."""
_Variables = tuple[tuple[str, bytes], ...]

MEMORY = 512 << 20
"""Bytes of the results of one query."""
_SETTINGS = (
    "SET GLOBAL TimeZone = 'UTC'",  # of the machine otherwise, and so would results be
    "SET threads = 1",
    "SET GLOBAL errors_as_json = true",  # which tell the place of an error
    f"SET memory_limit = '{MEMORY >> 20}MiB'",
    "SET allocator_background_threads = true",  # which give memory back that nobody uses for some seconds
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


@dataclass(eq=False)
class _Watched:
    """A query on its way; `rung` is set before it is interrupted."""

    connection: duckdb.DuckDBPyConnection
    deadline: float
    rung: threading.Event = field(default_factory=threading.Event)


class _Watchdog:
    """Interrupts queries that take too long. One thread watches all: a timer for each takes 0.1 ms to begin and end."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._changed = threading.Condition()
        self._queries: set[_Watched] = set()
        self._wakes = 0.0
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="prism-expressions", daemon=True)
        self._thread.start()
        atexit.register(self._end)  # a thread that outlives the interpreter keeps connections, which is told on stderr

    @contextmanager
    def interrupts(self, connection: duckdb.DuckDBPyConnection, after: float) -> Iterator[threading.Event]:
        """Interrupts what the connection does after so many seconds, and says so; never what it does later."""
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
        if self._process == os.getpid():  # a fork has no such thread, and perhaps a lock that nobody lets go
            with self._changed:
                self._is_over = True
                self._changed.notify()
            self._thread.join()


@lru_cache(maxsize=1)
def _watchdog(process: int) -> _Watchdog:
    """The one of this process: threads do not survive a fork."""
    return _Watchdog(process)


class RowFailure(Exception):
    """An expression cannot be computed for at least one of the rows."""


class NeedsMemory(ExpressionsFailed):
    """Some rows need more memory than they may have; fewer of them may need less."""


Answer = Callable[[pa.Table, float], pa.Table]
"""The answer to some rows, until an instant of `time.monotonic`. Raises NeedsMemory for fewer of them to be tried."""


_LONGEST = 16
"""One row in so many, the longest ones, are first looked at for those at fault."""
_SPARE = 5
"""So many times the time of a block may go, in all blocks of an object, into queries that need too much memory."""


@dataclass
class _TimeLeft:
    """The deadline of a block. A query that fails for want of memory moves it by what it took, while `spare` lasts."""

    ends: float
    spare: float

    def answer(self, answer: Answer, rows: pa.Table) -> pa.Table:
        """The answer to some rows, or NeedsMemory when memory is there again."""
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
        with suppress(NeedsMemory):  # a thread beside may have had the room
            return left.answer(answer, rows)
        return alone(rows)
    # The rows from the shortest on: each half of most of them, and the longest.
    order = np.argsort(_lengths(rows), kind="stable")
    long = max(1, rows.num_rows // _LONGEST)
    parts = [part for part in (*np.array_split(order[:-long], 2), order[-long:]) if len(part)]
    answers = [_in_parts(answer, rows.take(pa.array(part)), alone, left) for part in parts]
    whole = pa.concat_tables(answers, promote_options="default")  # answers may have columns that others have not
    if whole.nbytes > MEMORY:
        raise ExpressionsFailed(
            f"the results of the table's expressions have more than {MEMORY >> 20} MiB for "
            f"{counted(rows.num_rows, 'line')}: keep their values shorter"
        )
    return whole.take(pa.array(np.argsort(order, kind="stable")))


def _lengths(rows: pa.Table) -> npt.NDArray[np.int64]:
    """The bytes of the texts of each row."""
    lengths = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            lengths += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return lengths


class _Block:
    """What queries read: columns of which DuckDB asks for the present rows each time."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = self.none = schema.empty_table()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


class _Prepared:
    """A query over rows with these columns, at a connection of its own where these variables are set."""

    def __init__(self, query: str, schema: pa.Schema, variables: _Variables) -> None:
        self.connection = connect()
        for name, value in variables:
            self.connection.execute(f'SET VARIABLE "{name}" = ?', [value])
        self._query = query
        self._block = _Block(schema)
        self.connection.register(ROWS, self._block)

    def answer(self, rows: pa.Table) -> pa.Table:
        """The answer over these rows."""
        self._block.rows = rows
        try:
            return self._prepared_query()
        finally:
            self._block.rows = self._block.none

    @cached_property
    def _prepared_query(self) -> Callable[[], pa.Table]:
        """Prepares the query at the first block; what it returns executes it.

        To plan it anew would take DuckDB 0.3 ms a block, and 1 ms among other work.
        """
        connection, statement = self.connection, f"EXECUTE {_ANSWER}"
        connection.execute(f"PREPARE {_ANSWER} AS {self._query}")
        # `execute` of DuckDB 2 copies an answer to Arrow twice, and warns of it; `_submit`, by which its relations are
        # answered, copies it once. DuckDB 1 has no `_submit`, and no second copy.
        if submit := getattr(connection, "_submit", None):
            return lambda: submit(statement, None, "arrow").arrow_table()
        return lambda: connection.execute(statement).to_arrow_table()


@cache
def _idle(_process: int) -> OrderedDict[Hashable, _Prepared]:
    """What closed sessions of this process had prepared, of the last one at the end; of that before a fork none."""
    return OrderedDict()


atexit.register(_idle.cache_clear)  # connections that outlive the interpreter are told on stderr, as leaks


class Session:
    """Answers queries over blocks of rows, each in so many seconds. To be used in one thread, and closed.

    `secrets` are those that `pseudonym` uses. Raises MissingSecret.
    """

    def __init__(self, secrets: Collection[str], secret_of: Secrets, seconds: float) -> None:
        self._seconds = seconds
        self._spare = _SPARE * seconds
        self._variables = tuple(pair for name in sorted(secrets) for pair in variables(name, secret_of(name)))
        self._prepared: dict[Hashable, _Prepared] = {}

    def close(self) -> None:
        """Leaves what is prepared to sessions to come."""
        idle = _idle(os.getpid())
        idle.update(self._prepared)
        self._prepared = {}
        while len(idle) > _MOST_IDLE:
            idle.popitem(last=False)

    def answer(self, query: str, rows: pa.Table, *, ends: float | None = None) -> pa.Table:
        """The answer to a query over `rows`: until it `ends`, by `time.monotonic`, where others had some of the time.

        Raises RowFailure where DuckDB refuses a value, and ExpressionsFailed for what no other query would mend. None
        tells anything of what is in the rows.
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
        """What `answer` gives for rows until an instant, the time of one block from now.

        Rows that need too much memory are divided, until those at fault stand alone: for each that is what `alone`
        gives. Each takes seconds, which many of them in one block have beside its own. Raises ExpressionsFailed where
        results are too many bytes in all, and what `answer` raises.
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

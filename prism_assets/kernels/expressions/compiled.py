"""The expressions of a table as one query over the columns that were read, checked one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from prism_assets.domain.column_names import names_in_file
from prism_assets.domain.columns import Column
from prism_assets.domain.row_program import Expression, RowProgram, value_field
from prism_assets.kernels.expressions.results import Kind, fetched
from prism_assets.kernels.expressions.session import ROWS, connect
from prism_assets.kernels.expressions.tree import COMPUTED, ExpressionError, Uses, check, not_computed
from prism_assets.kernels.type_rules import stored_type

if TYPE_CHECKING:
    import duckdb

ANY_ROW = "prism row"
"""A column for programs that use none: an Arrow table without columns has no rows."""
KEEP = "prism keep"
MICROSECONDS = pa.timestamp("us")
"""As what DuckDB sees instants: of UTC, and without a zone, as with one it needs more than its core."""


def failed(name: str) -> str:
    """The column of the answer that says where an expression could not be computed."""
    return f"prism failed {name}"


def reject(number: int) -> str:
    """The column of the answer that says where a rejection applies."""
    return f"prism reject {number}"


@dataclass(frozen=True)
class Compiled:
    """The queries that compute everything, the read columns that they use, and how the results are to be typed.

    The answer has a column for each value that is stored, and for `keep` and each rejection. That of `query`, which
    fails as a whole where an expression does for one row, has no more; that of `trying_query`, which takes half as long
    again, never fails so, and has next to each where it failed.
    """

    query: str
    trying_query: str
    inputs: tuple[str, ...]
    kinds: tuple[tuple[str, Kind], ...]
    secrets: frozenset[str]


@dataclass(frozen=True)
class Problem:
    """What is wrong with the expression in a field."""

    field: str
    message: str


class _GrowingQuery:
    """The query while it grows: each value is computed over the answer of all before it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, program: RowProgram) -> None:
        self._connection = connection
        self._query = self._trying_query = f"SELECT * FROM {ROWS}"
        columns = {column.name: pa.array([], seen_type(column)) for column in program.reads}
        connection.register(ROWS, pa.table(columns or {ANY_ROW: pa.array([], pa.bool_())}))
        self._others = names_in_file(program.columns)
        self._waiting: dict[str, str] = {}
        self.secrets: set[str] = set()
        self.columns: set[str] = set()
        self.uses: dict[str, frozenset[str]] = {}

    def uses_of(self, expression: Expression) -> Uses:
        """What an expression uses. Raises ExpressionError."""
        return check(self._connection, expression.text, expression.names, self._others)

    def add(self, expression: Expression, name: str, uses: Uses) -> str:
        """Adds an expression under a name; returns the SQL type of its values. Raises ExpressionError."""
        if uses.columns & self._waiting.keys():
            self._close()
        sql_type = self._type_of(expression)
        self.secrets |= uses.secrets
        self.columns |= uses.columns
        self.uses[name] = uses.columns
        self._waiting[name] = expression.text
        return sql_type

    def queries(self) -> tuple[str, str]:
        """The whole of it: as it is, and with each expression tried."""
        self._close()
        return self._query, self._trying_query

    def _type_of(self, expression: Expression) -> str:
        import duckdb

        try:
            query = f"{COMPUTED}{expression.text}\n) AS v FROM ({self._query})"
            row = self._connection.execute(query).fetchone()
        except duckdb.Error as error:
            raise not_computed(expression.text, error) from None
        return str(row[1]) if row else ""

    def _close(self) -> None:
        if self._waiting:
            self._query = _computed(self._query, self._waiting)
            self._trying_query = _tried(self._trying_query, self._waiting)
            self._waiting = {}


def _computed(query: str, expressions: Mapping[str, str]) -> str:
    """The answer to a query with more columns, each with its value."""
    values = [f"({text}\n) AS {_quoted(name)}" for name, text in expressions.items()]
    return f"SELECT *, {', '.join(values)} FROM ({query})"


def _tried(query: str, expressions: Mapping[str, str]) -> str:
    """The answer to a query with more columns, each with its value, and whether it failed."""
    tried = {name: _quoted(f"prism tried {name}") for name in expressions}
    values = [f"TRY(struct_pack(v := ({text}\n))) AS {tried[name]}" for name, text in expressions.items()]
    taken = [f"{held}.v AS {_quoted(name)}, {held} IS NULL AS {_quoted(failed(name))}" for name, held in tried.items()]
    return f"SELECT *, {', '.join(taken)} FROM (SELECT *, {', '.join(values)} FROM ({query}))"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def seen_type(column: Column) -> pa.DataType:
    """As what Arrow type expressions see a column that is read."""
    arrow = stored_type(column)
    return MICROSECONDS if pa.types.is_timestamp(arrow) else arrow


@lru_cache(maxsize=64)
def compiled(program: RowProgram) -> Compiled:
    """The query of a program. Raises ExpressionError for the first expression that is not allowed."""
    found = _compile(program)
    if isinstance(found, Compiled):
        return found
    raise ExpressionError("; ".join(f"{problem.field}: {problem.message}" for problem in found))


def problems_of(program: RowProgram) -> list[Problem]:
    """What is wrong with the expressions of a program, at most one problem each."""
    found = _compile(program)
    return [] if isinstance(found, Compiled) else found


def _compile(program: RowProgram) -> Compiled | list[Problem]:
    connection = connect()
    try:
        return _Compilation(connection, program).run()
    finally:
        connection.close()


class _Compilation:
    def __init__(self, connection: duckdb.DuckDBPyConnection, program: RowProgram) -> None:
        self._program = program
        self._steps = _GrowingQuery(connection, program)
        self._problems: list[Problem] = []
        self._kinds: dict[str, tuple[Kind, str]] = {}
        self._stored = {column.name: column for column in program.stored}
        self._computed = {column.name for column in program.values}
        self._broken: set[str] = set()

    def run(self) -> Compiled | list[Problem]:
        for expression, name in zip(self._program.expressions(), self._names(), strict=True):
            try:
                self._add(expression, name)
            except ExpressionError as error:
                self._problems.append(Problem(expression.field, str(error)))
                self._broken.add(name)
        if not self._problems:
            self._problems += self._exposed()
        return self._problems or self._whole()

    def _names(self) -> Iterator[str]:
        yield from (column.name for column in self._program.values)
        if self._program.keep is not None:
            yield KEEP
        yield from (reject(number) for number in range(len(self._program.reject)))

    def _add(self, expression: Expression, name: str) -> None:
        uses = self._steps.uses_of(expression)
        if uses.columns & self._broken:
            self._broken.add(name)  # what it is made of has a problem of its own
            return
        sql_type = self._steps.add(expression, name, uses)
        if name not in self._computed and sql_type != "BOOLEAN":
            raise ExpressionError(f"it must be true or false, and is {_called(sql_type)}")
        column = self._stored.get(name)
        if column is None:
            return
        kind = fetched(sql_type, column, _quoted(name))
        if kind is None:
            raise ExpressionError(
                f"{_called(sql_type)} cannot become {column.type}: make it a text with hex(…) or CAST(… AS VARCHAR)"
            )
        self._kinds[name] = kind

    def _exposed(self) -> list[Problem]:
        """A value that is sensitive is made of columns whose values lie open in lines that are set aside."""
        sensitive = self._program.sensitive
        return [
            Problem(
                value_field(column.name),
                f"{column.name} is sensitive and made of {', '.join(sorted(open_))}: mark that as sensitive, too",
            )
            for column in self._program.values
            if column.sensitive and (open_ := self._steps.uses[column.name] - sensitive)
        ]

    def _whole(self) -> Compiled:
        taken = self._kinds
        answers = [f"{sql} AS {_quoted(name)}" for name, (_, sql) in taken.items()]
        conditions = [name for name in self._names() if name not in self._computed]
        answers += [_quoted(name) for name in conditions]
        failures = [_quoted(failed(name)) for name in (*taken, *conditions)]
        computed, tried = self._steps.queries()
        reads = [column.name for column in self._program.reads]
        inputs = tuple(name for name in reads if name in self._steps.columns)
        kinds = tuple((name, kind) for name, (kind, _) in taken.items())
        return Compiled(
            query=_select(answers, computed),
            trying_query=_select([*answers, *failures], tried),
            inputs=inputs,
            kinds=kinds,
            secrets=frozenset(self._steps.secrets),
        )


def _select(columns: Sequence[str], query: str) -> str:
    return f"SELECT {', '.join(columns) or 'NULL'} FROM ({query})"


def _called(sql_type: str) -> str:
    return f"of DuckDB's type {sql_type}"

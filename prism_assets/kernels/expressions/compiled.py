"""Compiles a table's expressions into one DuckDB query over the columns read, checking one expression after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.names import names_in_file
from prism_assets.domain.sql_quoting import quote_identifier
from prism_assets.domain.tables.row_program import Expression, RowProgram, value_field
from prism_assets.kernels.expressions.results import Kind, fetched
from prism_assets.kernels.expressions.session import ROWS, connect
from prism_assets.kernels.expressions.tree import COMPUTED, ExpressionError, Uses, check, not_computed
from prism_assets.kernels.nested_arrays import with_leaves
from prism_assets.kernels.type_rules import named_type

if TYPE_CHECKING:
    import duckdb

ANY_ROW = "prism row"
"""A placeholder column for programs that read none, because an Arrow table without columns has no rows."""
KEEP = "prism keep"
MICROSECONDS = pa.timestamp("us")
"""The type of instants in DuckDB: UTC without a zone. With a zone, DuckDB needs an extension."""


def failed(name: str) -> str:
    """Returns the answer's column with the failures of an expression."""
    return f"prism failed {name}"


def reject(number: int) -> str:
    """Returns the answer's column with the lines of a rejection."""
    return f"prism reject {number}"


@dataclass(frozen=True)
class Compiled:
    """The queries of a program. Their answer has a column for each stored value, for `keep` and for each rejection."""

    query: str
    """Fails as a whole if an expression fails for one row."""
    trying_query: str
    """Never fails that way. Adds a column of failures for each value, and takes half as long again."""
    inputs: tuple[str, ...]
    """The columns read by the queries."""
    kinds: tuple[tuple[str, Kind], ...]
    """The kind of each stored value, for typing the results."""
    secrets: frozenset[str]


@dataclass(frozen=True)
class Problem:
    """What is wrong with the expression of a field."""

    field: str
    message: str


class _GrowingQuery:
    """A query under construction. Each value is computed over the answer of all earlier ones."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, program: RowProgram) -> None:
        self._connection = connection
        self._query = self._trying_query = f"SELECT * FROM {ROWS}"
        columns = {column.name: pa.array([], seen_type(column)) for column in program.reads}
        connection.register(ROWS, pa.table(columns or {ANY_ROW: pa.array([], pa.bool_())}))
        self._others = names_in_file(program.columns)
        self._nested = frozenset(column.name for column in program.columns if column.type.parts)
        self._waiting: dict[str, str] = {}
        self.secrets: set[str] = set()
        self.columns: set[str] = set()
        self.uses: dict[str, frozenset[str]] = {}

    def uses_of(self, expression: Expression) -> Uses:
        """Returns the columns and secrets of an expression. Raises ExpressionError."""
        return check(self._connection, expression.text, expression.names, self._others, nested=self._nested)

    def add(self, expression: Expression, name: str, uses: Uses) -> str:
        """Adds an expression under a name and returns its SQL type. Raises ExpressionError."""
        if uses.columns & self._waiting.keys():
            self._close()
        sql_type = self._type_of(expression)
        self.secrets |= uses.secrets
        self.columns |= uses.columns
        self.uses[name] = uses.columns
        self._waiting[name] = expression.text
        return sql_type

    def queries(self) -> tuple[str, str]:
        """Returns the complete query, and the version that tries each expression."""
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
    """Adds columns with computed values to a query."""
    values = [f"({text}\n) AS {quote_identifier(name)}" for name, text in expressions.items()]
    return f"SELECT *, {', '.join(values)} FROM ({query})"


def _tried(query: str, expressions: Mapping[str, str]) -> str:
    """Adds columns with computed values and their failures to a query."""
    tried = {name: quote_identifier(f"prism tried {name}") for name in expressions}
    values = [f"TRY(struct_pack(v := ({text}\n))) AS {tried[name]}" for name, text in expressions.items()]
    taken = [
        f"{held}.v AS {quote_identifier(name)}, {held} IS NULL AS {quote_identifier(failed(name))}"
        for name, held in tried.items()
    ]
    return f"SELECT *, {', '.join(taken)} FROM (SELECT *, {', '.join(values)} FROM ({query}))"


def seen_type(column: Column) -> pa.DataType:
    """Returns the Arrow type in which expressions see a column."""
    return with_leaves(named_type(column), lambda kind: MICROSECONDS if pa.types.is_timestamp(kind) else kind)


@lru_cache(maxsize=64)
def compiled(program: RowProgram) -> Compiled:
    """Returns the query of a program. Raises ExpressionError for the first expression not allowed."""
    found = _compile(program)
    if isinstance(found, Compiled):
        return found
    raise ExpressionError("; ".join(f"{problem.field}: {problem.message}" for problem in found))


def problems_of(program: RowProgram) -> list[Problem]:
    """Returns the problems of a program's expressions, at most one each."""
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
            self._broken.add(name)  # one of its inputs already has a problem
            return
        sql_type = self._steps.add(expression, name, uses)
        if name not in self._computed and sql_type != "BOOLEAN":
            raise ExpressionError(f"it must be true or false, and is {_called(sql_type)}")
        column = self._stored.get(name)
        if column is None:
            return
        kind = fetched(sql_type, column, quote_identifier(name))
        if kind is None:
            raise ExpressionError(
                f"{_called(sql_type)} cannot become {column.type}: make it a text with hex(…) or CAST(… AS VARCHAR)"
            )
        self._kinds[name] = kind

    def _exposed(self) -> list[Problem]:
        """Returns sensitive values computed from columns that stay readable in quarantined lines."""
        sensitive = self._program.sensitive
        return [
            Problem(
                value_field(column.name),
                f"{column.name} is sensitive and made of {', '.join(sorted(open_))}: mark that as sensitive, too",
            )
            for column in self._program.values
            if column.hides and (open_ := self._steps.uses[column.name] - sensitive)
        ]

    def _whole(self) -> Compiled:
        taken = self._kinds
        answers = [f"{sql} AS {quote_identifier(name)}" for name, (_, sql) in taken.items()]
        conditions = [name for name in self._names() if name not in self._computed]
        answers += [quote_identifier(name) for name in conditions]
        failures = [quote_identifier(failed(name)) for name in (*taken, *conditions)]
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

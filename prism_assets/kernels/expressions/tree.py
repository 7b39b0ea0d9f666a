"""Reads expressions with DuckDB's parser. Refuses everything beyond a computation on the arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prism_assets.domain.columns.names import NO_OTHERS, OtherNames, unknown_column
from prism_assets.domain.names import did_you_mean
from prism_assets.domain.tables.sql_words import RESERVED_WORDS_QUERY, quoting_advice, unquoted_word, with_quoting
from prism_assets.kernels.expressions.allowed import BOUNDED, FUNCTIONS, GROWING, LARGEST
from prism_assets.kernels.expressions.macros import MACROS, SECRET_RULE

if TYPE_CHECKING:
    import duckdb

Node = Mapping[str, Any]

_BEFORE, _ALONE = "SELECT (", "SELECT "
COMPUTED = "DESCRIBE SELECT (\n"
"""The text in front of an expression in queries for `not_computed`."""
_COMPUTING = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA", "OPERATOR",
     "TYPE"}
)  # fmt: skip
_NEVER = {
    "SUBQUERY": "expressions see one row and no table: no SELECT, no ANY",
    "WINDOW": "expressions see one row: no window functions",
    "STAR": "expressions name their columns: no *",
    "PARAMETER": "expressions take no parameters",
    "DEFAULT": quoting_advice("default"),
    "COLLATE": "texts are compared byte by byte: no COLLATE",
}
_WITH_ZONE = frozenset({"timestamptz", "timestamp with time zone", "timetz", "time with time zone"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_SECRET = re.compile(r"[a-z][a-z0-9_]{0,40}")


class ExpressionError(Exception):
    """An expression is not allowed: one sentence, with the position from 1 if known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position})")


@dataclass(frozen=True)
class Uses:
    """The columns and secrets used by an expression."""

    columns: frozenset[str]
    secrets: frozenset[str]


def check(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    names: Collection[str],
    others: OtherNames = NO_OTHERS,
    *,
    nested: Collection[str] = (),
) -> Uses:
    """Returns the columns of `names` used by an expression. Raises ExpressionError if it is not allowed.

    `others` has a sentence for each former column name, to end the error about this name. Only columns of `nested` have
    fields.
    """
    reading = _TreeWalk(connection, text, frozenset(names), others, frozenset(nested))
    reading.visit(_parsed(connection, text, frozenset(names)), frozenset())
    return Uses(frozenset(reading.columns), frozenset(reading.secrets))


def _parsed(connection: duckdb.DuckDBPyConnection, text: str, names: frozenset[str] = frozenset()) -> Node:
    """Returns the tree of an expression in brackets that does not close them early."""
    if "\0" in text:
        raise ExpressionError("there is a NUL in the expression", text.index("\0") + 1)
    if half := _SURROGATE.search(text):  # YAML reads "\ud83d\ude00" as two halves; only JSON joins them
        raise ExpressionError("there is half a character in the expression", half.start() + 1)
    if not text.strip():
        raise ExpressionError("this is no SQL expression: it is empty")
    answer = _serialized(connection, f"{_BEFORE}{text}\n)")
    alone = _serialized(connection, f"{_ALONE}{text}\n")
    if alone["error"] or answer["error"]:
        # First without our brackets, because the user has written none.
        wrong, before = (alone, _ALONE) if alone["error"] else (answer, _BEFORE)
        reserved = set(connection.execute(RESERVED_WORDS_QUERY).fetchall()[0][0])
        if unquoted := _unquoted_name(connection, text, names & reserved):
            word, start = unquoted
            raise ExpressionError(f"this is no SQL expression: {quoting_advice(word)}", start)
        message = with_quoting(str(wrong.get("error_message", "it is no SQL")).splitlines()[0], reserved)
        raise ExpressionError(f"this is no SQL expression: {message}", _character(text, wrong.get("position"), before))
    statements = answer["statements"]
    items = statements[0]["node"].get("select_list", [])
    if len(statements) != 1 or len(items) != 1 or statements[0]["node"]["from_table"]["type"] != "EMPTY":
        raise ExpressionError("this is more than one expression")
    node: Node = items[0]
    return node


def _unquoted_name(connection: duckdb.DuckDBPyConnection, text: str, names: Collection[str]) -> tuple[str, int] | None:
    """Returns a column of `names` that makes the text an expression once quoted, with its position from 1."""
    import duckdb  # is loaded already, as there is a connection

    starts = [start for start, _kind in duckdb.tokenize(text)]
    return unquoted_word(
        text, starts, names, lambda quoted: not _serialized(connection, f"{_BEFORE}{quoted}\n)")["error"]
    )


def _serialized(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    row = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    answer: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    return answer


def _character(text: str, position: object, before: str = _BEFORE) -> int | None:
    """Converts a byte position in the query to a character of the expression, from 1."""
    if not isinstance(position, int | str) or not 0 <= int(position) - len(before) <= len(text.encode()):
        return None
    return len(text.encode()[: int(position) - len(before)].decode(errors="ignore")) + 1


def not_computed(text: str, error: Exception) -> ExpressionError:
    """Translates DuckDB's error about an expression after COMPUTED."""
    raw = str(error).partition(": ")[2]
    details = json.loads(raw) if raw.startswith("{") else {"exception_message": raw or type(error).__name__}
    what = str(details["exception_message"]).splitlines()[0].strip()
    return ExpressionError(f"it cannot be computed: {what}", _character(text, details.get("position"), COMPUTED))


class _TreeWalk:
    """One walk through a tree."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        text: str,
        names: frozenset[str],
        others: OtherNames,
        nested: frozenset[str],
    ) -> None:
        self._connection = connection
        self._text = text
        self._names = names
        self._others = others
        self._nested = nested
        self.columns: set[str] = set()
        self.secrets: set[str] = set()

    def visit(self, node: Node, variables: frozenset[str]) -> None:
        """Checks a node and its descendants. `variables` are those of surrounding lambdas."""
        kind = str(node["class"])
        if kind not in _COMPUTING or node["type"] == "GROUPING_FUNCTION":
            self._refuse(node, _NEVER.get(kind, f"{kind.lower().replace('_', ' ')} is not allowed here"))
        if kind == "COLUMN_REF":
            self._column(node, variables)
        elif kind == "FUNCTION":
            self._function(node)
        elif kind == "LAMBDA" and node.get("syntax_type", "SINGLE_ARROW") == "LAMBDA_KEYWORD":
            variables |= self._new_variables(node)
        elif kind == "LAMBDA":
            self._refuse(node, "write ->> with a path for JSON, or lambda x: … for a function")
        elif kind in ("TYPE", "CAST"):
            self._types(node)
        for child in _children(node):
            self.visit(child, variables)

    def _refuse(self, node: Node, message: str) -> None:
        raise ExpressionError(message, _character(self._text, node.get("query_location")))

    def _new_variables(self, node: Node) -> frozenset[str]:
        """Returns the arguments of a lambda. Refuses names of columns and queries, because DuckDB would resolve them
        differently.
        """
        found = _variables(node["lhs"])
        for name in sorted(found):
            if name in self._names or name.startswith(("unnamed_subquery", "prism_")):
                self._refuse(node, f"a lambda cannot call its argument {name}: choose another name")
        return found

    def _column(self, node: Node, variables: frozenset[str]) -> None:
        first, *fields = [str(name) for name in node["column_names"]]
        if first.lower() in variables:
            return
        name = first.lower()
        if name not in self._names:
            choices = sorted(self._names | variables)
            near = unknown_column(name, choices, self._others) or f"; there are {', '.join(choices) or 'none'}"
            self._refuse(node, f"there is no column {first} above this one{near}")
        if fields and name not in self._nested:
            self._refuse(node, f"columns have no fields: write {first} ->> '$.{'.'.join(fields)}' for JSON")
        self.columns.add(name)

    def _function(self, node: Node) -> None:
        name = str(node["function_name"]).lower()
        path = (node.get("qualified_name") or {}).get("path") or [name]
        if node.get("schema") or node.get("catalog") or len(path) > 1:
            self._refuse(node, f"call functions by their name alone, with everything in brackets: {name}(…)")
        if name not in FUNCTIONS and name not in MACROS and name not in BOUNDED:
            self._refuse(node, self._why_not(name))
        if node.get("distinct") or node.get("filter") or (node.get("order_bys") or {}).get("orders"):
            self._refuse(node, f"{name} takes arguments and nothing else here")
        arguments = _arguments(node)
        if name in BOUNDED and not self._is_small(arguments, BOUNDED[name]):
            self._refuse(node, f"{name} needs its length as a number of at most {LARGEST}, written as such")
        if (name in BOUNDED or name in GROWING) and any(_calls(argument, BOUNDED) for argument in arguments):
            self._refuse(node, f"{name} takes no text that {' or '.join(BOUNDED)} makes: it would grow without bound")
        if name == "pseudonym":
            secret = _constant(arguments[1]) if len(arguments) > 1 else None
            if secret is None or not _SECRET.fullmatch(secret):
                self._refuse(node, SECRET_RULE)
            else:
                self.secrets.add(secret)

    def _why_not(self, name: str) -> str:
        """Returns why a function is refused: DuckDB has it but it is not safe, or it does not exist."""
        found = self._connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ? LIMIT 1", [name])
        if found.fetchone():
            return f"the function {name} is not allowed: its result hangs on more than its arguments, or on many rows"
        return f"there is no function {name}{did_you_mean(name, FUNCTIONS | MACROS.keys() | BOUNDED.keys())}"

    def _is_small(self, arguments: list[Node], place: int) -> bool:
        text = _constant(arguments[place]) if len(arguments) > place else None
        return text is not None and text.isdigit() and int(text) <= LARGEST

    def _types(self, node: Node) -> None:
        type_name = node.get("type_name") or (node.get("cast_type") or {}).get("id") or ""
        if str(type_name).lower() in _WITH_ZONE:
            self._refuse(node, "times are timestamps in UTC here: use timestamp, and at_offset for local times")


def _variables(node: Node) -> frozenset[str]:
    """Returns the names of a lambda's arguments."""
    if node["class"] == "COLUMN_REF":
        return frozenset({str(node["column_names"][0]).lower()})
    return frozenset(name for child in _children(node) for name in _variables(child))


def _arguments(node: Node) -> list[Node]:
    """Returns the arguments of a call. DuckDB wraps each with its name since version 2."""
    if "arguments" in node:
        return [argument["expression"] for argument in node["arguments"]]
    return list(node.get("children", []))


def _calls(node: Node, names: Collection[str]) -> bool:
    """Whether an expression calls one of the functions anywhere."""
    is_one = node["class"] == "FUNCTION" and str(node["function_name"]).lower() in names
    return is_one or any(_calls(child, names) for child in _children(node))


def _constant(node: Node) -> str | None:
    if node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        return str(node["literal"]["text"])
    return str(node["value"].get("value"))


def _children(node: Node) -> Iterator[Node]:
    """Yields the direct child nodes. A lambda's argument names are no children."""
    for key, value in node.items():
        if node["class"] == "LAMBDA" and key == "lhs":
            continue
        yield from _nodes(value)


def _nodes(value: object) -> Iterator[Node]:
    if isinstance(value, dict):
        if "class" in value:
            yield value
        else:
            for part in value.values():
                yield from _nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part)


def values_of(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, tuple[int | str, ...]]:
    """Returns the values columns must have for an expression to be true, from `column = value` and `column IN
    (values)`.

    Considers only conditions joined by AND, with whole numbers and texts.
    """
    found: dict[str, tuple[int | str, ...]] = {}
    for node in _conjuncts(_parsed(connection, text)):
        column, *compared = _compared(node)
        values = tuple(_literal(other) for other in compared)
        if column is None or not values or column["class"] != "COLUMN_REF" or len(column["column_names"]) != 1:
            continue
        if all(type(value) is int for value in values) or all(type(value) is str for value in values):
            found.setdefault(str(column["column_names"][0]).lower(), values)  # type: ignore[arg-type]  # none is None
    return found


def _conjuncts(node: Node) -> Iterator[Node]:
    if node["class"] == "CONJUNCTION" and node["type"] == "CONJUNCTION_AND":
        for child in _children(node):
            yield from _conjuncts(child)
    else:
        yield node


def _compared(node: Node) -> list[Node | None]:
    """Returns the sides of an equation, first the one that may be a column. Returns [None] for other nodes."""
    if node["class"] == "COMPARISON" and node["type"] == "COMPARE_EQUAL":
        left, right = node["left"], node["right"]
        return [left, right] if left["class"] == "COLUMN_REF" else [right, left]
    if node["class"] == "OPERATOR" and node["type"] == "COMPARE_IN":
        return list(_children(node))
    return [None]


def _literal(node: Node | None) -> int | str | None:
    """Returns a literal whole number or text."""
    if node is None or node["class"] != "CONSTANT":
        return None
    literal = node.get("literal", {})
    if literal.get("kind") == "STRING":
        return str(literal["text"])
    return int(literal["text"]) if literal.get("kind") == "INTEGER" else None

"""Finds the tables in a query, and qualifies their names for DuckDB, whose own schemas and databases may clash."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.tables.sql_words import RESERVED_WORDS_QUERY, quoting_advice, unquoted_word

LAKE = "lake"
"""The DuckDB database for a query's tables. `lake.schema.table` works, too."""
DUCKDB_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
"""DuckDB's schemas that describe tables. Table files cannot use these names (`domain/names.py`)."""
_CLAUSES = {"select", "from", "where", "on", "as", "using", "having", "with"}
"""Words that begin a clause and seldom name a column. A query that ends with one lacks the rest of the clause."""
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class QueryTables:
    """The tables in a query, each as (schema, table)."""

    read: frozenset[tuple[str, str]]
    lists_tables: bool
    """Whether the query also asks for a list of tables."""


def tables_of(connection: duckdb.DuckDBPyConnection, sql: str) -> QueryTables:
    """Returns the catalog tables named in a query, without its own CTEs. Raises WrongUse if the text is no query.

    Reads them from the syntax tree. DuckDB's `get_table_names` looks columns up, so it fails on JOIN … USING with
    tables not yet registered; it serves only statements without a tree, such as EXPLAIN.
    """
    try:
        (text,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0]
        tree = json.loads(text)
        if not tree["error"] and len(tree["statements"]) == 1:
            named, shows = set(_named(tree["statements"], frozenset())), '"SHOW_REF"' in text
        else:
            named, shows = {_path(name) for name in connection.get_table_names(sql, qualified=True)}, False
    except duckdb.Error as error:
        raise WrongUse(f"this is not a query: {first_line(error)}{_missing_quotes(connection, sql)}") from error
    for name in named:
        if not name[0]:
            raise WrongUse(f"{name[1]} is not a table: write schema.table, such as log.{name[1]}")
    described = {name for name in named if name[0].lower() in DUCKDB_SCHEMAS}
    return QueryTables(frozenset(named - described), shows or bool(described) or _mentions_describing(sql))


def _missing_quotes(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Returns the advice to quote a word, if quotes make the text a query, else ""."""

    def parses(quoted: str) -> bool:
        (text,) = connection.execute("SELECT json_serialize_sql(?)", [quoted]).fetchall()[0]
        return not json.loads(text)["error"]

    reserved = set(connection.execute(RESERVED_WORDS_QUERY).fetchall()[0][0]) - _CLAUSES
    found = unquoted_word(sql, [start for start, _kind in duckdb.tokenize(sql)], reserved, parses)
    return f"; {quoting_advice(found[0])}" if found else ""


def _mentions_describing(sql: str) -> bool:
    """Whether a query may ask for a list of tables.

    DuckDB lists none of its own tables for statements without a tree. A match inside a text or comment only costs one
    look at Glue.
    """
    lower = sql.lower()
    return any(schema in lower for schema in DUCKDB_SCHEMAS)


def _path(name: str) -> tuple[str, str]:
    """Returns schema and table of a name as DuckDB lists it: `log.events`, `"temp"."user"`, `lake.log.events AS e`."""
    *_, schema, table = ["", *name.replace('"', "").partition(" AS ")[0].split(".")]
    return schema, table


def _named(node: Any, own: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yields table names in a part of a syntax tree. `own` are the CTEs of surrounding queries."""
    if isinstance(node, list):
        for item in node:
            yield from _named(item, own)
    if not isinstance(node, dict):
        return
    own |= {item["key"] for item in node.get("cte_map", {}).get("map", ())}
    if node.get("type") == "BASE_TABLE" and (node["schema_name"] or node["table_name"] not in own):
        yield node["schema_name"], node["table_name"]
    for item in node.values():
        yield from _named(item, own)


def in_the_lake(sql: str, tables: Collection[tuple[str, str]], databases: Collection[str]) -> str:
    """Prefixes `lake.` to tables whose schema has the name of a DuckDB database.

    DuckDB refuses `temp.events` as ambiguous if both a database and a schema have this name. Columns of such a table,
    as in `temp.events.id`, get the prefix, too.
    """
    doubtful = {name for name in tables if name[0].lower() in databases}
    if _SHOW_TABLES.fullmatch(sql):
        return "SHOW ALL TABLES"
    if not doubtful:
        return sql
    text, words = sql.encode(), _words(sql)
    found = []
    for before, (start, schema), dot, (_, table) in zip(words, words[1:], words[2:], words[3:], strict=False):
        if dot[1] == "." != before[1] and (_bare(schema), _bare(table)) in doubtful:
            found.append(start)
    for start in reversed(found):
        text = b"".join((text[:start], f"{LAKE}.".encode(), text[start:]))
    return text.decode()


def _words(sql: str) -> list[tuple[int, str]]:
    """Returns the words of a query, each with its first byte. The first word is empty."""
    text = sql.encode()
    starts = [start for start, _kind in duckdb.tokenize(sql)]
    ends = [*starts[1:], len(text)]
    return [(0, ""), *((start, text[start:end].decode().strip()) for start, end in zip(starts, ends, strict=False))]


def _bare(word: str) -> str:
    return word.strip('"')


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without DuckDB's picture of the position."""
    return str(error).strip().splitlines()[0]

"""SQL over what the catalog shows: DuckDB on Arrow datasets of explicit file lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from prism_assets.domain.errors import PrismError, TerminalError, WrongUse
from prism_assets.domain.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    RealType,
    SmallIntType,
    StringType,
    TimestampType,
    type_in_glue,
)
from prism_assets.objectstore.store_errors import missing_object, unclear
from prism_assets.reading.lake_reader import LakeReader, ReadTable, path_of

_ARROW: Mapping[type[ColumnType], pa.DataType] = {
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    SmallIntType: pa.int16(),
    IntegerType: pa.int32(),
    BigIntType: pa.int64(),
    RealType: pa.float32(),
    DoubleType: pa.float64(),
    TimestampType: pa.timestamp("us", tz="UTC"),  # holds either unit that an object may have
    DateType: pa.date32(),
}


@dataclass(frozen=True)
class QueryResult:
    """Column names and rows of a query."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def arrow_dataset(reader: LakeReader, table: ReadTable) -> ds.Dataset:
    """A dataset of exactly the objects the catalog names, with `dt` from the partition they belong to."""
    columns = [pa.field(name, arrow_type(kind)) for name, kind in table.columns]
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            path_of(item.url),
            filesystem=reader.filesystem,
            partition_expression=ds.field("dt") == pa.scalar(partition.date, pa.date32()),
        )
        for partition in table.partitions
        for item in partition.objects
    ]
    schema = pa.schema([*columns, pa.field("dt", pa.date32())])
    return ds.FileSystemDataset(fragments, schema, parquet, reader.filesystem)


def arrow_type(hive_type: str) -> pa.DataType:
    """The Arrow type of a Hive type name as the catalog has it."""
    kind = type_in_glue(hive_type)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind is None or type(kind) not in _ARROW:
        raise WrongUse(f"{hive_type} is not a type of this platform; the table was made by another tool")
    return _ARROW[type(kind)]


class RowsReader(Protocol):
    """A reader that hands over the rows of a table."""

    def rows(self, name: str) -> pa.Table:
        """All rows of `schema.table`, with `dt`."""
        ...


@runtime_checkable
class DatasetReader(Protocol):
    """A reader that hands over a table as a dataset, of which DuckDB reads what a query asks for."""

    def dataset(self, name: str) -> ds.Dataset:
        """All rows of `schema.table`, with `dt`."""
        ...


Reader = LakeReader | DatasetReader | RowsReader


def run_query(reader: Reader, sql: str) -> QueryResult:
    """Runs one query; tables are `schema.table` as in the catalog. Times are shown in UTC."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for index, name in enumerate(sorted(_tables_of(connection, sql))):
            _register(connection, reader, name, f"prism_{index}")
        try:
            result = connection.execute(sql)
            columns = tuple(column[0] for column in result.description or ())
            return QueryResult(columns, tuple(result.fetchall()))
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise WrongUse(f"the query is wrong: {_with_what_was_meant(error)}") from error
        except duckdb.Error as error:
            raise _failed(_first_line(error)) from error


def _tables_of(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The tables that a query names, as `schema.table`, without those that it makes itself.

    They are read from its tree. DuckDB's own list of them looks columns up, and so knows no JOIN … USING of tables that
    are not there yet; it is asked about what has no tree, such as EXPLAIN.
    """
    try:
        (text,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0]
        tree = json.loads(text)
        if not tree["error"] and len(tree["statements"]) == 1:
            return set(_named(tree["statements"], frozenset()))
        found = connection.get_table_names(sql, qualified=True)
    except duckdb.Error as error:
        raise WrongUse(f"this is not a query: {_first_line(error)}") from error
    return {name.replace('"', "").partition(" AS ")[0] for name in found}


def _named(node: Any, own: frozenset[str]) -> Iterator[str]:
    """Names of tables in a part of a tree; `own` are those that the query around it makes."""
    if isinstance(node, list):
        for item in node:
            yield from _named(item, own)
    if not isinstance(node, dict):
        return
    own |= {item["key"] for item in node.get("cte_map", {}).get("map", ())}
    if node.get("type") == "BASE_TABLE" and (node["schema_name"] or node["table_name"] not in own):
        yield ".".join(filter(None, (node["schema_name"], node["table_name"])))
    for item in node.values():
        yield from _named(item, own)


_READING = re.compile(r"reading the stream registered as '\w+' failed: (\w+): (.*)")
_OBJECT = re.compile(r"key '(?P<key>[^']*)' in bucket '(?P<bucket>[^']*)'|(?:file|source) '(?P<path>[^']*)'")
_TOO_GREAT = ("not in range", "does not fit in precision")
_GONE = ("[errno 2]", "NO_SUCH_KEY", "status 404")


def _failed(message: str) -> PrismError:
    """What keeps a query from its end: mostly an object that cannot be read, which DuckDB tells in words of its own."""
    reading = _READING.search(message)
    if reading is None:
        return TerminalError(f"the query failed: {message}")
    kind, said = reading.groups()
    named = _OBJECT.search(said)
    bucket, key = (named["bucket"], named["key"] or named["path"]) if named else (None, "an object of the table")
    where = f"s3://{bucket}/{key}" if bucket else str(key)
    if any(word in said for word in _GONE):
        return missing_object(where)
    if kind == "Invalid" and any(words in said for words in _TOO_GREAT):
        return TerminalError(
            f"{where} has a number that is too great for the type that its column has in Glue: that is not the one of "
            "its table any more. Repeat, and if it stays so, run `prism catalog`"
        )
    if kind == "Invalid":
        return TerminalError(f"{where} is no sound Parquet object; `prism repair --deep` finds and mends such ones")
    return unclear(where, bucket or "of the table", said)


def _register(connection: Any, reader: Reader, name: str, alias: str) -> None:
    schema, _, table = name.partition(".")
    if not table:
        raise WrongUse(f"{name} is not a table: write schema.table, such as log.{name}")
    connection.register(alias, _rows_of(reader, name))
    connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    connection.execute(f'CREATE VIEW "{schema}"."{table}" AS SELECT * FROM {alias}')


def _rows_of(reader: Reader, name: str) -> ds.Dataset | pa.Table:
    if isinstance(reader, LakeReader):
        return arrow_dataset(reader, reader.table(name))
    return reader.dataset(name) if isinstance(reader, DatasetReader) else reader.rows(name)


def _with_what_was_meant(error: Exception) -> str:
    """The first line, and what DuckDB proposes in another one, if it does."""
    first, *others = str(error).strip().splitlines()
    proposed = [line for line in others if line.startswith(("Candidate", "Did you mean"))]
    return " ".join((first, *proposed[:1]))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]

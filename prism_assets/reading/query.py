"""Runs SQL over the catalog's tables: DuckDB on Arrow datasets with explicit file lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from prism_assets.domain.columns.type_names import type_in_glue
from prism_assets.domain.columns.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    MapType,
    RealType,
    SmallIntType,
    StringType,
    StructType,
    TimestampType,
)
from prism_assets.domain.errors import PrismError, TerminalError, WrongUse
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.sql_quoting import quote_identifier
from prism_assets.objectstore.store_errors import missing_object, unclear
from prism_assets.reading.lake_reader import LakeReader, ReadTable, path_of
from prism_assets.reading.query_tables import DUCKDB_SCHEMAS, LAKE, first_line, in_the_lake, tables_of

_ARROW: Mapping[type[ColumnType], pa.DataType] = {
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    SmallIntType: pa.int16(),
    IntegerType: pa.int32(),
    BigIntType: pa.int64(),
    RealType: pa.float32(),
    DoubleType: pa.float64(),
    TimestampType: pa.timestamp("us", tz="UTC"),  # holds milliseconds and microseconds; objects may have either
    DateType: pa.date32(),
}


@dataclass(frozen=True)
class QueryResult:
    """Column names and rows of a query."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def arrow_dataset(reader: LakeReader, table: ReadTable) -> ds.Dataset:
    """Returns a dataset of exactly the objects in the catalog, with `dt` from their partition."""
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            path_of(item.url),
            filesystem=reader.filesystem,
            partition_expression=ds.field(DAY_COLUMN) == pa.scalar(partition.date, pa.date32()),
        )
        for partition in table.partitions
        for item in partition.objects
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(table), parquet, reader.filesystem)


def arrow_schema(table: ReadTable) -> pa.Schema:
    """Returns the columns of a catalog table, and `dt`."""
    columns = [pa.field(name, arrow_type(kind)) for name, kind in table.columns]
    return pa.schema([*columns, pa.field(DAY_COLUMN, pa.date32())])


def schemas_of(reader: LakeReader) -> Iterator[tuple[str, pa.Schema]]:
    """Yields the columns of every catalog table. Skips tables with other tools' types."""
    for table in reader.tables():
        with suppress(WrongUse):
            yield table.name, arrow_schema(table)


def arrow_type(hive_type: str) -> pa.DataType:
    """Returns the Arrow type of a Hive type name."""
    kind = type_in_glue(hive_type)
    if kind is None:
        raise WrongUse(f"{hive_type} is not a type of this platform; the table was made by another tool")
    return _arrow(kind)


def _arrow(kind: ColumnType) -> pa.DataType:
    match kind:
        case StructType(fields):
            return pa.struct([pa.field(part.name, _arrow(part.type)) for part in fields])
        case ListType(element):
            return pa.list_(pa.field(element.name, _arrow(element.type)))
        case MapType(key, value):
            return pa.map_(_arrow(key.type), _arrow(value.type))
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
    return _ARROW[type(kind)]


class RowsReader(Protocol):
    """A reader that returns a table's rows."""

    def rows(self, name: str) -> pa.Table:
        """Returns all rows of `schema.table`, with `dt`."""
        ...


@runtime_checkable
class DatasetReader(Protocol):
    """A reader that returns a table as a dataset, so DuckDB reads only the queried part."""

    def dataset(self, name: str) -> ds.Dataset:
        """Returns all rows of `schema.table`, with `dt`."""
        ...


@runtime_checkable
class SchemasReader(Protocol):
    """A reader that knows all table names."""

    def schemas(self) -> Iterator[tuple[str, pa.Schema]]:
        """Yields each `schema.table` with its columns and `dt`."""
        ...


Reader = LakeReader | DatasetReader | RowsReader


class UnknownColumn(WrongUse):
    """A query names a column missing from its tables. `tables` lists these as `schema.table`."""

    def __init__(self, message: str, column: str = "", tables: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.column = column
        self.tables = tuple(tables)


def run_query(reader: Reader, sql: str) -> QueryResult:
    """Runs one query over catalog tables, named `schema.table`. Shows times in UTC.

    The tables lie in a DuckDB database `lake`. A query for lists of tables, such as `information_schema.columns`, finds
    all catalog tables.
    """
    with duckdb.connect() as connection:
        tables = tables_of(connection, sql)
        connection.execute(f"SET TimeZone = 'UTC'; ATTACH ':memory:' AS {LAKE}; USE {LAKE}")
        for index, name in enumerate(sorted(tables.read)):
            _register(connection, reader, name, f"prism_{index}")
        if tables.lists_tables:
            _describe_all(connection, reader, tables.read)
        databases = {name for (name,) in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
        try:
            result = connection.execute(in_the_lake(sql, tables.read, databases))
            columns = tuple(column[0] for column in result.description or ())
            return QueryResult(columns, tuple(result.fetchall()))
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            if named := _NO_COLUMN.search(str(error)):
                raise _unknown_column(connection, named[1], tables.read) from error
            raise WrongUse(f"the query is wrong: {_with_proposal(error)}") from error
        except duckdb.Error as error:
            raise _failed(first_line(error)) from error


_READING = re.compile(r"reading the stream registered as '\w+' failed: (\w+): (.*)")
_OBJECT = re.compile(r"key '(?P<key>[^']*)' in bucket '(?P<bucket>[^']*)'|(?:file|source) '(?P<path>[^']*)'")
_TOO_GREAT = ("not in range", "does not fit in precision")
_GONE = ("[errno 2]", "NO_SUCH_KEY", "status 404")


def _failed(message: str) -> PrismError:
    """Translates DuckDB's message about a failed query. Usually an object cannot be read."""
    reading = _READING.search(message)
    if reading is None:
        return TerminalError(f"the query failed: {message}")
    kind, cause = reading.groups()
    named = _OBJECT.search(cause)
    bucket, key = (named["bucket"], named["key"] or named["path"]) if named else (None, "an object of the table")
    where = f"s3://{bucket}/{key}" if bucket else str(key)
    if any(word in cause for word in _GONE):
        return missing_object(where)
    if kind == "Invalid" and any(words in cause for words in _TOO_GREAT):
        return TerminalError(
            f"{where} has a number too great for its column's type in Glue, so Glue shows an outdated type: repeat, "
            "and if it persists, run `prism catalog`"
        )
    if kind == "Invalid":
        return TerminalError(f"{where} is no sound Parquet object; `prism repair --deep` finds and mends damaged ones")
    return unclear(where, bucket or "of the table", cause)


def _register(connection: duckdb.DuckDBPyConnection, reader: Reader, name: tuple[str, str], alias: str) -> None:
    schema, table = name
    connection.register(alias, _rows_of(reader, f"{schema}.{table}"))
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{quote_identifier(schema)}")
    connection.execute(f"CREATE VIEW {LAKE}.{quote_identifier(schema, table)} AS SELECT * FROM {alias}")


def _describe_all(
    connection: duckdb.DuckDBPyConnection, reader: Reader, registered: Collection[tuple[str, str]]
) -> None:
    """Declares the remaining catalog tables as empty tables. Lists none of their objects."""
    for name, columns in _schemas(reader):
        schema, _, table = name.partition(".")
        if (schema, table) in registered or schema in DUCKDB_SCHEMAS:
            continue
        connection.register("prism_described", columns.empty_table())
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{quote_identifier(schema)}")
        connection.execute(f"CREATE TABLE {LAKE}.{quote_identifier(schema, table)} AS SELECT * FROM prism_described")
        connection.unregister("prism_described")


def _schemas(reader: Reader) -> Iterator[tuple[str, pa.Schema]]:
    if isinstance(reader, LakeReader):
        return schemas_of(reader)
    return reader.schemas() if isinstance(reader, SchemasReader) else iter(())


def _rows_of(reader: Reader, name: str) -> ds.Dataset | pa.Table:
    if isinstance(reader, LakeReader):
        return arrow_dataset(reader, reader.table(name))
    return reader.dataset(name) if isinstance(reader, DatasetReader) else reader.rows(name)


_NO_COLUMN = re.compile(r'(?:[Cc]olumn|column named) "([^"]+)" ?(?:not found|in EXCLUDE list not|does not exist|\s)')
_MOST_NAMES = 40


def _unknown_column(
    connection: duckdb.DuckDBPyConnection, column: str, read: Collection[tuple[str, str]]
) -> UnknownColumn:
    """Returns an error with all columns and no guess, because the most similar column may mean something else."""
    columns = []
    for schema, table in sorted(read):
        names = (
            "SELECT column_name FROM duckdb_columns() WHERE (schema_name, table_name) = (?, ?) ORDER BY column_index"
        )
        found = [name for (name,) in connection.execute(names, [schema, table]).fetchall()]
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        columns.append(f"{schema}.{table} has {', '.join(found[:_MOST_NAMES])}{more}")
    message = f"the query is wrong: there is no column {column}; {'; '.join(columns)}"
    return UnknownColumn(message, column, [".".join(name) for name in sorted(read)])


def _with_proposal(error: Exception) -> str:
    """Returns the first line of DuckDB's message, with its proposal if there is one."""
    first, *further = str(error).strip().splitlines()
    proposed = [line for line in further if line.startswith(("Candidate", "Did you mean"))]
    return " ".join((first, *proposed[:1]))

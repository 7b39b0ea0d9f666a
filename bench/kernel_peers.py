"""DuckDB and polars at the work of the kernel: gzip JSON lines to one sorted Parquet file for each object and date.

Neither checks a line, counts one, nor computes a fingerprint. JSON columns stay text. Both use one thread.
`by_libraries` is the part of the work that no reader of lines can save: decompression and Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

_BENCH_TYPES = {
    "event_time": "TIMESTAMP",
    "request_id": "VARCHAR",
    "user_id": "BIGINT",
    "session": "VARCHAR",
    "path": "VARCHAR",
    "status": "INTEGER",
    "elapsed": "DOUBLE",
    "premium": "BOOLEAN",
    "ua": "VARCHAR",
    "referer": "VARCHAR",
}
_WIDE_TYPES = {
    **_BENCH_TYPES,
    "received": "BIGINT",
    "query": "VARCHAR",
    "title": "VARCHAR",
    "body": "VARCHAR",
    "country": "VARCHAR",
    "language": "VARCHAR",
    "attempt": "SMALLINT",
    "bytes": "BIGINT",
    "score": "FLOAT",
    "price": "DECIMAL(12,2)",
    "tax": "DECIMAL(9,4)",
    "order_number": "BIGINT",
    "quantity": "INTEGER",
    "birthday": "DATE",
    "ordered_at": "TIMESTAMPTZ",
}
_NESTED_TYPES = {
    "ts": "TIMESTAMP",
    "event": "VARCHAR",
    "user": "JSON",
    "device": "JSON",
    "items": "JSON",
    "totals": "JSON",
    "elapsed": "DOUBLE",
}
_DUCKDB: Mapping[str, tuple[Mapping[str, str], str]] = {
    "bench": (_BENCH_TYPES, "event_time AS time, * EXCLUDE (event_time)"),
    "wide": (
        _WIDE_TYPES,
        "event_time AS time, * EXCLUDE (event_time, received, ordered_at), make_timestamp_ms(received) AS received, "
        "(ordered_at AT TIME ZONE 'UTC') AS ordered_at",
    ),
    "nested": (
        _NESTED_TYPES,
        "ts AS time, event, elapsed, device, items, CAST(\"user\" ->> '$.id' AS BIGINT) AS user_id, "
        "\"user\" ->> '$.plan.name' AS plan, \"user\" -> '$.geo' AS geo, items ->> '$[0].sku' AS first_sku, "
        "CAST(totals ->> '$.gross' AS DECIMAL(12,2)) AS total",
    ),
}


def by_duckdb(kind: str, objects: list[Path], target: Path) -> None:
    """Converts all objects, one after another."""
    types, columns = _DUCKDB[kind]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        for path in objects:
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE lines AS SELECT {columns} FROM read_json('{path}', columns = "
                f"{dict(types)!r}, format = 'newline_delimited', compression = 'gzip')"
            )
            for (day,) in connection.execute("SELECT DISTINCT time::DATE FROM lines").fetchall():
                connection.execute(
                    f"COPY (FROM lines WHERE time::DATE = DATE '{day}' ORDER BY time) TO "
                    f"'{target}/{path.stem}-{day}.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
                )


def by_polars(kind: str, objects: list[Path], target: Path) -> None:
    """Converts all objects, one after another."""
    schema, columns = _POLARS[kind]()
    import polars as pl

    for path in objects:
        read = pl.read_ndjson(path, schema=schema)
        rows = read.select(columns).with_columns(pl.col("time").dt.date().alias("_day"))
        for (day,), part in rows.partition_by("_day", as_dict=True, include_key=False).items():
            part.sort("time").write_parquet(
                target / f"{path.stem}-{day}.parquet", compression="zstd", compression_level=1
            )


def by_libraries(objects: Sequence[Path], ours: Path, target: Path) -> None:
    """Decompresses all objects with ISA-L, and writes the rows of our files again with pyarrow and our settings.

    The first run reads the rows.
    """
    for path in objects:
        isal_zlib.decompress(path.read_bytes(), 31)
    for number, (rows, dictionaries) in enumerate(_rows_of(ours)):
        pq.write_table(
            rows,
            target / f"{number}.parquet",
            row_group_size=rows.num_rows,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(dictionaries),
            write_page_index=True,
            store_schema=False,
        )


@cache
def _rows_of(folder: Path) -> list[tuple[pa.Table, Sequence[str]]]:
    """Returns the rows of each file, and the columns that have a dictionary."""
    found: list[tuple[pa.Table, Sequence[str]]] = []
    for path in sorted(folder.rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            group = file.metadata.row_group(0)
            columns = [group.column(place) for place in range(group.num_columns)]
            found.append((file.read(), [each.path_in_schema for each in columns if each.has_dictionary_page]))
    return found


def _polars_bench() -> tuple[dict[str, Any], list[Any]]:
    import polars as pl

    schema = {
        "event_time": pl.String,
        "request_id": pl.String,
        "user_id": pl.Int64,
        "session": pl.String,
        "path": pl.String,
        "status": pl.Int32,
        "elapsed": pl.Float64,
        "premium": pl.Boolean,
        "ua": pl.String,
        "referer": pl.String,
    }
    return schema, [_instant("event_time", "time"), pl.exclude("event_time")]


def _polars_wide() -> tuple[dict[str, Any], list[Any]]:
    import polars as pl

    schema, _ = _polars_bench()
    texts = "query title body country language tax order_number quantity birthday ordered_at"
    schema |= dict.fromkeys(texts.split(), pl.String)
    schema |= {"received": pl.Int64, "attempt": pl.Int32, "bytes": pl.Int64, "score": pl.Float32, "price": pl.Float64}
    cast: dict[str, Any] = {
        "attempt": pl.Int16,
        "price": pl.Decimal(12, 2),
        "tax": pl.Decimal(9, 4),
        "order_number": pl.Int64,
        "quantity": pl.Int32,
    }
    made = [pl.col(name).cast(kind) for name, kind in cast.items()]
    made.append(pl.col("birthday").str.to_date("%Y-%m-%d"))
    made.append(pl.from_epoch("received", time_unit="ms"))
    made.append(pl.col("ordered_at").str.to_datetime("%Y-%m-%dT%H:%M:%S%:z", time_unit="us").dt.replace_time_zone(None))
    return schema, [
        _instant("event_time", "time"),
        pl.exclude("event_time", "received", "birthday", "ordered_at", *cast),
        *made,
    ]


def _polars_nested() -> tuple[dict[str, Any], list[Any]]:
    import polars as pl

    schema: dict[str, Any] = dict.fromkeys(("ts", "event", "user", "device", "items", "totals"), pl.String)
    schema["elapsed"] = pl.Float64
    user = pl.col("user").str
    return schema, [
        _instant("ts", "time"),
        *map(pl.col, ("event", "elapsed", "device", "items")),
        user.json_path_match("$.id").cast(pl.Int64).alias("user_id"),
        user.json_path_match("$.plan.name").alias("plan"),
        user.json_path_match("$.geo").alias("geo"),
        pl.col("items").str.json_path_match("$[0].sku").alias("first_sku"),
        pl.col("totals").str.json_path_match("$.gross").cast(pl.Decimal(12, 2)).alias("total"),
    ]


def _instant(source: str, name: str) -> Any:
    import polars as pl

    return pl.col(source).str.to_datetime("%Y-%m-%dT%H:%M:%S%.3fZ", time_unit="us").alias(name)


_POLARS: Mapping[str, Callable[[], tuple[dict[str, Any], list[Any]]]] = {
    "bench": _polars_bench,
    "wide": _polars_wide,
    "nested": _polars_nested,
}

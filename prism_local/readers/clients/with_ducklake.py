"""DuckDB with its extension ducklake: prism's own PostgreSQL is the catalog, and rows are there at the commit."""

# lines
import os
from importlib.resources import files
from urllib.parse import urlsplit

import duckdb

connection = duckdb.connect()
for name in ("httpfs", "postgres_scanner", "ducklake"):
    folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
    connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
endpoint = urlsplit(os.environ["PRISM_S3_ENDPOINT"])
connection.execute(f"""
    CREATE SECRET (
        TYPE s3, KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}', SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}',
        REGION '{os.environ["AWS_REGION"]}', ENDPOINT '{endpoint.netloc}', URL_STYLE 'path',
        USE_SSL {endpoint.scheme == "https"})""")
connection.execute(f"""
    ATTACH 'ducklake:postgres:{os.environ["PRISM_DUCKLAKE_URL"]}' AS lake (
        READ_ONLY, METADATA_SCHEMA 'prism_lake')""")
print(connection.sql("SELECT dt, count(*) FROM lake.log.pv_log WHERE status = 404 GROUP BY dt"))
# end

from typing import Any

TIME = "TIMESTAMPTZ '{}+00:00'"


def version() -> str:
    sql = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'ducklake'"
    found = connection.execute(sql).fetchone()
    return f"{duckdb.__version__}, ducklake {found[0] if found else '?'}"


def source(asked: dict[str, Any]) -> str:
    if asked["snapshot_id"] is not None:
        raise NotImplementedError("the views show the present alone: older snapshots are Iceberg's")
    return f"lake.log.{asked['table'].removeprefix('log.')}"


def query(sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def close() -> None:
    connection.close()

"""DuckDB with its extension iceberg. It knows no catalog in PostgreSQL, so it is told the metadata file."""

# lines
import os
from importlib.resources import files
from urllib.parse import urlsplit

import duckdb

connection = duckdb.connect()
for name in ("httpfs", "avro", "iceberg"):
    folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
    connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
endpoint = urlsplit(os.environ["PRISM_S3_ENDPOINT"])
connection.execute(f"""
    CREATE SECRET (
        TYPE s3, KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}', SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}',
        REGION '{os.environ["AWS_REGION"]}', ENDPOINT '{endpoint.netloc}', URL_STYLE 'path',
        USE_SSL {endpoint.scheme == "https"})""")
connection.execute(f"CREATE VIEW pv_log AS FROM iceberg_scan('{os.environ['PV_LOG']}')")
print(connection.sql("SELECT dt, count(*) FROM pv_log WHERE status = 404 GROUP BY dt"))
# end

from typing import Any

TIME = "TIMESTAMPTZ '{}+00:00'"


def version() -> str:
    sql = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'iceberg'"
    found = connection.execute(sql).fetchone()
    return f"{duckdb.__version__}, iceberg {found[0] if found else '?'}"


def source(asked: dict[str, Any]) -> str:
    at = "" if asked["snapshot_id"] is None else f", snapshot_from_id = {asked['snapshot_id']}"
    return f"iceberg_scan('{asked['metadata_location']}'{at})"


def query(sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def close() -> None:
    connection.close()

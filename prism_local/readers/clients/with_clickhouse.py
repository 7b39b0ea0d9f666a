"""ClickHouse, as chdb in this process. It knows no catalog in PostgreSQL, so it is told the metadata file."""

# lines
import os

from chdb import session

clickhouse = session.Session()


def iceberg(location: str) -> str:
    """The table whose metadata file lies there."""
    folder, _, file = location.removeprefix("s3://").partition("/metadata/")
    address = f"{os.environ['PRISM_S3_ENDPOINT']}/{folder}/"
    keys = f"'{os.environ['AWS_ACCESS_KEY_ID']}', '{os.environ['AWS_SECRET_ACCESS_KEY']}'"
    return f"icebergS3('{address}', {keys}, SETTINGS iceberg_metadata_file_path = 'metadata/{file}')"


print(clickhouse.query(f"SELECT dt, count() FROM {iceberg(os.environ['PV_LOG'])} WHERE status = 404 GROUP BY dt"))
# end

import json
from importlib.metadata import version as version_of
from typing import Any

TIME = "toDateTime64('{}', 6, 'UTC')"
EXPLODE = "arrayJoin"


def version() -> str:
    return f"{query('SELECT version()')[0][0]} (chdb {version_of('chdb')})"


def source(asked: dict[str, Any]) -> str:
    at = "" if asked["snapshot_id"] is None else f" SETTINGS iceberg_snapshot_id = {asked['snapshot_id']}"
    return f"{iceberg(asked['metadata_location'])}{at}"


def query(sql: str) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(str(clickhouse.query(sql, "JSONCompact")))["data"]
    return rows


def close() -> None:
    clickhouse.close()

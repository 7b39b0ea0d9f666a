"""polars, which asks PyIceberg for the table and reads its files by itself."""

# lines
import os

import polars as pl
from pyiceberg.catalog import load_catalog

files = {"s3.endpoint": os.environ["PRISM_S3_ENDPOINT"], "s3.region": os.environ["AWS_REGION"]}
catalog = load_catalog(
    "prism",
    **{"type": "sql", "uri": os.environ["PRISM_DATABASE_URL"], "init_catalog_tables": "false", **files},
)
pv_log = pl.scan_iceberg(catalog.load_table("log_iceberg.pv_log"), storage_options=files)
print(pv_log.filter(pl.col("status") == 404).group_by("dt").len().collect())
# end

from datetime import date, datetime, timezone
from importlib.metadata import version as version_of
from typing import Any


def version() -> str:
    return f"{pl.__version__} (PyIceberg {version_of('pyiceberg')})"


def _scan(asked: dict[str, Any]) -> pl.LazyFrame:
    table = catalog.load_table(asked["identifier"])
    rows = pl.scan_iceberg(table, snapshot_id=asked["snapshot_id"], storage_options=files)
    return rows.with_columns(number=pl.col(asked["key"]).str.head(12).cast(pl.Int64))


def _totals(rows: pl.LazyFrame, key: str) -> list[tuple[Any, ...]]:
    number = pl.col("number")
    found = rows.select(
        rows=pl.len(), different=pl.col(key).n_unique(), total=number.sum(), squares=(number * number).sum()
    )
    return list(found.collect().rows())


def _grouped(rows: pl.LazyFrame, column: str) -> list[tuple[Any, ...]]:
    found = rows.group_by(column).agg(pl.len().alias("rows"), pl.col("number").sum())
    return list(found.collect().rows())


def _leaf(path: list[str]) -> pl.Expr:
    found = pl.col(path[0])
    for name in path[1:]:
        found = found.struct.field(name)
    return found


def _by_element(rows: pl.LazyFrame, nested: dict[str, Any]) -> list[tuple[Any, ...]]:
    items = rows.select(pl.col(nested["list"]).explode().struct.unnest()).drop_nulls(nested["element"])
    return list(items.group_by(nested["element"]).agg(pl.len(), pl.col(nested["amount"]).sum()).collect().rows())


def answer(asked: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows, key, time = _scan(asked), asked["key"], pl.col("time")
    start, end, early = (
        datetime.fromisoformat(asked[name]).replace(tzinfo=timezone.utc) for name in ("start", "end", "early")
    )
    match asked["question"]:
        case "BY_DAY":
            return _grouped(rows, "dt")
        case "ADDED_COLUMN":
            return _grouped(rows, asked["column"])
        case "ONE_DAY":
            return _totals(rows.filter(pl.col("dt") == date.fromisoformat(asked["day"])), key)
        case "TIME_RANGE":
            return _totals(rows.filter(time >= start, time < end), key)
        case "SINCE_1990":
            return _totals(rows.filter(time > early), key)
        case "STRUCT_LEAF":
            return _grouped(rows.with_columns(leaf=_leaf(asked["nested"]["leaf"])), "leaf")
        case "LEAF_FILTER":
            return _totals(rows.filter(_leaf(asked["nested"]["number"]) < asked["nested"]["below"]), key)
        case "UNNESTED":
            return _by_element(rows, asked["nested"])
    return _totals(rows, key)

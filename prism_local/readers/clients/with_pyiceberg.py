"""PyIceberg, with the catalog in PostgreSQL."""

# lines
import os

from pyiceberg.catalog import load_catalog

catalog = load_catalog(
    "prism",
    **{
        "type": "sql",
        "uri": os.environ["PRISM_DATABASE_URL"],
        "init_catalog_tables": "false",
        "s3.endpoint": os.environ["PRISM_S3_ENDPOINT"],
        "s3.region": os.environ["AWS_REGION"],
    },
)
pv_log = catalog.load_table("log_iceberg.pv_log")
print(pv_log.scan(row_filter="status = 404", selected_fields=("dt",)).to_arrow()["dt"].value_counts())
# end

from importlib.metadata import version as version_of
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def version() -> str:
    return version_of("pyiceberg")


def _scan(asked: dict[str, Any], row_filter: str = "true", column: str | None = None) -> pa.Table:
    table = catalog.load_table(asked["identifier"])
    fields = (asked["key"], column) if column else (asked["key"],)
    rows = table.scan(row_filter=row_filter, selected_fields=fields, snapshot_id=asked["snapshot_id"]).to_arrow()
    number = pc.cast(pc.utf8_slice_codeunits(rows[asked["key"]], 0, 12), pa.int64())
    return rows.append_column("number", number)


def _totals(rows: pa.Table, key: str) -> list[list[Any]]:
    numbers = rows["number"]
    squares = pc.multiply(numbers, numbers)
    return [[rows.num_rows, pc.count_distinct(rows[key]).as_py(), pc.sum(numbers).as_py(), pc.sum(squares).as_py()]]


def _grouped(rows: pa.Table, column: str) -> list[list[Any]]:
    groups = rows.group_by(column).aggregate([([], "count_all"), ("number", "sum")])
    return [[row[column], row["count_all"], row["number_sum"]] for row in groups.to_pylist()]


def answer(asked: dict[str, Any]) -> list[list[Any]]:
    start, end, early = (asked[name].replace(" ", "T") + "+00:00" for name in ("start", "end", "early"))
    match asked["question"]:
        case "BY_DAY":
            return _grouped(_scan(asked, column="dt"), "dt")
        case "ADDED_COLUMN":
            return _grouped(_scan(asked, column=asked["column"]), asked["column"])
        case "ONE_DAY":
            return _totals(_scan(asked, _one_day(asked), "dt"), asked["key"])
        case "TIME_RANGE":
            return _totals(_scan(asked, f"time >= '{start}' and time < '{end}'"), asked["key"])
        case "SINCE_1990":
            return _totals(_scan(asked, f"time > '{early}'"), asked["key"])
        case "STRUCT_LEAF":
            return _by_leaf(asked)
        case "LEAF_FILTER":
            nested = asked["nested"]
            return _totals(_scan(asked, f"{'.'.join(nested['number'])} < {nested['below']}"), asked["key"])
        case "UNNESTED":
            return _by_element(asked)
    return _totals(_scan(asked), asked["key"])


def _by_leaf(asked: dict[str, Any]) -> list[list[Any]]:
    first, *rest = asked["nested"]["leaf"]
    rows = _scan(asked, column=first)
    return _grouped(rows.append_column("leaf", pc.struct_field(rows[first], rest)), "leaf")


def _by_element(asked: dict[str, Any]) -> list[list[Any]]:
    nested = asked["nested"]
    items = pa.Table.from_struct_array(pc.list_flatten(_scan(asked, column=nested["list"])[nested["list"]]))
    items = items.filter(pc.is_valid(items[nested["element"]]))
    groups = items.group_by(nested["element"]).aggregate([([], "count_all"), (nested["amount"], "sum")])
    return [[row[nested["element"]], row["count_all"], row[f"{nested['amount']}_sum"]] for row in groups.to_pylist()]


def _one_day(asked: dict[str, Any]) -> str:
    return f"dt = '{asked['day']}'"


def remark(asked: dict[str, Any], rows: list[list[Any]]) -> str | None:
    """Checks a filter on a partition column that no file contains. PyIceberg reads it as null unless selected."""
    if asked["question"] != "ONE_DAY":
        return None
    found = _scan(asked, _one_day(asked)).num_rows
    if found == rows[0][0]:
        return None
    return f"with `dt` in `row_filter` and not in `selected_fields` one day has {found:,} rows and not {rows[0][0]:,}"

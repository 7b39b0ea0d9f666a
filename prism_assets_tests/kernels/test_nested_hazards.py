"""Faults that nested columns have where they are read, written or published the obvious way.

Each has a test that fails on the obvious way. Some stand beside the code they guard:

| obvious way | what goes wrong | test |
|---|---|---|
| bounds by the place of a column | bounds of another leaf, so readers drop rows | here |
| mapping of DuckLake for columns alone | every field is null | `ducklake/test_hazards.py` |
| rewrite through PyIceberg | null lists of structs become empty | `stages/test_nested_tables.py` |
| answers of ClickHouse compared by `IS NULL` | null levels are empty ones | `prism_local/readers`, by leaves |
| cast of an older file by names | a renamed field is null | `kernels/test_nested_objects.py` |
| `count_distinct` or one unit of a whole column | fails; milliseconds stay | here, `test_nested_objects.py` |
| values by a JSON reader of another project | rounded numbers, one of two equal keys | here |
| Spark 4.0 asked only for fields that a file lacks | the parent is null | `docs/readers.md` |
"""

from __future__ import annotations

import io
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets_tests.kernels.builders import Lake
from prism_assets_tests.kernels.test_column_metrics import nested_object
from prism_assets_tests.kernels.test_nested import a_user_table, converted

VALUES = {"a fraction that is none": '{"id": 9007199254740993.0}', "a key twice": '{"id": 1, "id": 2}', "text": '"x"'}


def test_bounds_by_the_place_of_a_column_are_those_of_another_leaf() -> None:
    body = nested_object()
    metadata, names = pq.read_metadata(pa.BufferReader(body)), pq.read_schema(pa.BufferReader(body)).names
    by_place = metadata.row_group(0).column(names.index("time"))
    assert by_place.path_in_schema != "time"
    assert {(item.lower, item.upper) for item in column_metrics(metadata, range(1, 9)) if item.lower == 500} == {
        (500, 502)
    }


def test_no_other_reader_of_json_knows_what_a_value_is(lake: Lake) -> None:
    """DuckDB rounds, keeps one of two equal keys, and makes an object of a text."""
    table = a_user_table("struct<id: bigint>")
    ours = {what: converted(lake, table, value) for what, value in VALUES.items()}
    assert ours["a fraction that is none"].rows[0]["user"] == {"id": 9007199254740993}
    assert ours["a key twice"].reasons == {"duplicate_key": 1}
    assert ours["text"].rows[0]["user"] is None

    def duckdb_says(value: str) -> Any:
        with duckdb.connect() as connection:
            return connection.execute("""SELECT from_json($1, '{"id": "BIGINT"}')""", [value]).fetchall()[0][0]

    assert duckdb_says(VALUES["a fraction that is none"]) == {"id": 9007199254740992}
    assert duckdb_says(VALUES["a key twice"]) in ({"id": 1}, {"id": 2})
    assert duckdb_says(VALUES["text"]) == {"id": None}


def test_a_block_with_one_value_of_another_kind_keeps_its_rows(lake: Lake) -> None:
    """pyarrow.json refuses the whole block."""
    values = ['{"id": 1}', '"x"', '{"id": 2}']
    rows = converted(lake, a_user_table("struct<id: bigint>"), *values).rows
    assert [row["user"] for row in rows] == [{"id": 1}, None, {"id": 2}]
    lines = "".join(f'{{"user": {value}}}\n' for value in values)
    with pytest.raises(pa.ArrowInvalid):
        pyarrow.json.read_json(io.BytesIO(lines.encode()))


def test_distinct_values_of_a_whole_struct_cannot_be_counted() -> None:
    rows = pq.read_table(pa.BufferReader(nested_object()), partitioning=None)
    with pytest.raises(pa.ArrowNotImplementedError):
        pc.count_distinct(rows["user"])
    assert fingerprint_of(rows) != fingerprint_of(rows.slice(1))

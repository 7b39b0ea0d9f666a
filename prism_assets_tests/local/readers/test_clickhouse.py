"""ClickHouse knows no null structs, lists and maps: docs/readers.md warns of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_assets.local_stack import local_home
from prism_local.readers import environments
from prism_local.readers.known import READERS

(CLICKHOUSE,) = [reader for reader in READERS if reader.name == "ClickHouse"]
ASK = "import sys; from chdb import session; print(session.Session().query(sys.argv[1], 'JSONEachRow'), end='')"
KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("account", pa.struct([("name", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.int64())),
    ]
)


def test_a_null_struct_is_a_struct_of_nulls_and_null_lists_and_maps_are_empty(tmp_path: Path) -> None:
    python = environments.find_python(CLICKHOUSE, local_home())
    if python is None:
        pytest.skip("there is no ClickHouse here: scripts/readers installs it")
    rows = [
        {"id": 1, "account": None, "tags": None, "attrs": None},
        {"id": 2, "account": {"name": None}, "tags": [], "attrs": []},
    ]
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows, KINDS), file)
    query = f"SELECT * FROM file('{file}', 'Parquet') ORDER BY id"
    done = subprocess.run([str(python), "-c", ASK, query], capture_output=True, text=True, check=True, timeout=120)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [int(row.pop("id")) for row in found] == [1, 2]
    assert found == [{"account": {"name": None}, "tags": [], "attrs": {}}] * 2

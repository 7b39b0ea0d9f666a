"""The search for rows to erase excludes row groups by statistics, each of the leaf of its column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.files.data_file import DataFile
from prism_assets.kernels.expressions.predicate import Predicate, make_erasure_rule
from prism_assets.kernels.field_ids import field_with_id as with_id
from prism_assets.kernels.matching import find_matching
from prism_assets_tests.kernels.builders import RECEIVED, a_column, a_table


def test_a_struct_before_a_column_does_not_hide_its_matching_rows() -> None:
    user = pa.struct([with_id("a", pa.int64(), 4), with_id("b", pa.int64(), 5)])
    schema = pa.schema([with_id("user", user, 2), with_id("n", pa.int64(), 3)])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        rows = [{"user": {"a": 1, "b": 1000}, "n": number} for number in (500, 501, 502)]
        writer.write_table(pa.Table.from_pylist(rows, schema))
    body = sink.getvalue()
    said = DataFile(
        bucket="lake", key="p/x.parquet", content_length=body.size, row_count=3, fingerprint=0, min_time=RECEIVED,
        max_time=RECEIVED,
    )  # fmt: skip
    rule = make_erasure_rule(a_table(a_column("n", "bigint", 3)), "n = 501")
    with Predicate(rule) as predicate:
        found = find_matching(said, pq.ParquetFile(pa.BufferReader(body)), [predicate])
    assert (found.matching, found.groups_read) == (1, 1)

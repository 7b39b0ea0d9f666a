"""What a fold writes: one Parquet object of records or of changes that wait, under a key that no other fold has."""

from __future__ import annotations

import math

import pyarrow as pa

from prism_assets.domain.files import DataFile
from prism_assets.domain.tables import TableDefinition
from prism_assets.kernels import times
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP, MERGED_SAMPLE, Encoder, dictionary_columns
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.kernels.records.sessions import Numbers
from prism_assets.objectstore.stores import Stores


def write_rows(
    rows: pa.Table,
    first_events: Numbers,
    table: TableDefinition,
    stores: Stores,
    bucket: str,
    key: str,
    *,
    kind: str,
    metric_columns: tuple[int, ...] = (),
) -> DataFile:
    """Writes rows in their order, which are not none; `first_events` are their times. Equal rows give equal bytes."""
    encoder = Encoder(rows.schema, dictionary_columns(rows, MERGED_SAMPLE), table.file_format)
    groups = math.ceil(rows.num_rows / MERGED_ROW_GROUP)
    size = math.ceil(rows.num_rows / groups)
    for start in range(0, rows.num_rows, size):
        encoder.write(rows.slice(start, size))
    body = encoder.finish()
    fingerprint = fingerprint_of(rows)
    there = put_if_absent(
        stores,
        bucket,
        key,
        body,
        kind=kind,
        row_count=rows.num_rows,
        fingerprint=fingerprint,
        file_format=table.file_format,
    )
    return DataFile(
        bucket=bucket,
        key=key,
        content_length=there.content_length,
        row_count=rows.num_rows,
        fingerprint=fingerprint,
        min_time=times.to_datetime(int(first_events.min())),
        max_time=times.to_datetime(int(first_events.max())),
        file_format=there.file_format,
        metrics=column_metrics(encoder.metadata, metric_columns),
    )

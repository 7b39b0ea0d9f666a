"""Writes the objects of folds and rebuilds: records, or waiting changes, under keys with the number of the fold."""

from __future__ import annotations

import math
from datetime import date, datetime

import pyarrow as pa

from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.records.folding import FoldTask, RecordObject, RecordPart
from prism_assets.domain.records.rebuild import RecordRebuildTask
from prism_assets.kernels import times
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP, MERGED_SAMPLE, Encoder, dictionary_columns
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.kernels.records.sessions import Numbers
from prism_assets.kernels.records.shape import RecordShape
from prism_assets.kernels.records.times import event_times, settles_at
from prism_assets.objectstore.stores import Stores


class RecordWriter:
    """Writes the objects of one fold or rebuild of a join table."""

    def __init__(self, task: FoldTask | RecordRebuildTask, shape: RecordShape, stores: Stores, keys: TableKeys) -> None:
        self._task = task
        self._shape = shape
        self._stores = stores
        self._keys = keys

    def write(
        self,
        rows: pa.Table,
        *,
        day: date,
        part: RecordPart,
        bucket: int,
        cohort: int,
        settle: Numbers,
        is_settled: bool = False,
        joined_rows: int = 0,
        oldest_change: datetime | None = None,
    ) -> RecordObject:
        """Writes at least one row, in the given order, as one object. Equal rows give equal bytes.

        For records, `settle` has the settle times of the whole record file, visible and hidden records alike.
        """
        table = self._shape.table
        rows = rows.cast(self._shape.changes if part is RecordPart.PENDING else self._shape.stored)
        encoder = Encoder(rows.schema, dictionary_columns(rows, MERGED_SAMPLE), table.file_format)
        groups = math.ceil(rows.num_rows / MERGED_ROW_GROUP)
        size = math.ceil(rows.num_rows / groups)
        for start in range(0, rows.num_rows, size):
            encoder.write(rows.slice(start, size))
        body = encoder.finish()
        fingerprint = fingerprint_of(rows)
        key = self._keys.record_object(day, part, self._task.fold_id, bucket, cohort)
        there = put_if_absent(
            self._stores,
            self._keys.bucket,
            key,
            body,
            kind=str(part),
            row_count=rows.num_rows,
            fingerprint=fingerprint,
            file_format=table.file_format,
        )
        first_events = event_times(rows[table.partition_column], table.zone)
        metric_columns = self._task.metric_columns if part is RecordPart.VISIBLE else ()
        return RecordObject(
            bucket=self._keys.bucket,
            key=key,
            content_length=there.content_length,
            row_count=rows.num_rows,
            fingerprint=fingerprint,
            min_time=times.to_datetime(int(first_events.min())),
            max_time=times.to_datetime(int(first_events.max())),
            file_format=there.file_format,
            metrics=column_metrics(encoder.metadata, metric_columns),
            date=day,
            part=part,
            bucket_number=bucket,
            cohort=cohort,
            fold_id=self._task.fold_id,
            earliest_settle=settles_at(int(settle.min())),
            latest_settle=settles_at(int(settle.max())),
            oldest_change=oldest_change,
            is_settled=is_settled,
            joined_rows=joined_rows,
            definition_version=self._task.definition_version,
        )

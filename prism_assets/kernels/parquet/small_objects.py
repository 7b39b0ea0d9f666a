"""Writes small objects: the accepted rows of one staging object as one sorted Parquet object per event date."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa

from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels import times
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.accepted_rows import AcceptedRows, DayRows
from prism_assets.kernels.parquet.format import Encoder
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.kernels.typed import Layout
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_PUTS = 4


class SmallObjects:
    """Writes the small objects of one staging object."""

    def __init__(self, layout: Layout, task: ConvertTask, stores: Stores, lake: Lake) -> None:
        self._layout = layout
        self._task = task
        self._stores = stores
        self._bucket = lake.bucket
        self._keys = lake.keys(layout.table)
        self._file_format = layout.table.file_format

    def write(self, rows: AcceptedRows) -> tuple[SmallObject, ...]:
        """Writes the rows by date and empties `rows`. Encodes the next date during an upload."""
        with ThreadPoolExecutor(_PUTS) as pool:
            puts = [pool.submit(self._put, small, body) for small, body in self.encode(rows)]
            return tuple(put.result() for put in puts)

    def encode(self, rows: AcceptedRows) -> Iterator[tuple[SmallObject, pa.Buffer]]:
        """Yields each date's object with its bytes, without writing, and empties `rows`."""
        for day_rows in rows.by_day():
            yield self._encode(
                day_rows, Encoder(rows.schema, rows.dictionaries(), self._file_format, on_disk=rows.on_disk)
            )

    def write_empty(self, rows: AcceptedRows, day: int) -> SmallObject:
        """Writes an object without rows. It replaces an object whose lines no longer have rows of this day."""
        return self._put(*self.encode_empty(rows, day))

    def encode_empty(self, rows: AcceptedRows, day: int) -> tuple[SmallObject, pa.Buffer]:
        """Returns the object of `write_empty` with its bytes. Writes nothing."""
        encoder = Encoder(rows.schema, [], self._file_format)
        return self._finished(encoder, day, [], [self._midnight(day)], 0)

    def _encode(self, rows: DayRows, encoder: Encoder) -> tuple[SmallObject, pa.Buffer]:
        fingerprints: list[int] = []
        bounds: list[datetime] = []
        count = 0
        for group in rows.row_groups:
            encoder.write(group)
            fingerprints.append(fingerprint_of(group))
            bounds = [*bounds[:1], self._instant(group, 0), self._instant(group, group.num_rows - 1)]
            count += group.num_rows
            del group  # before the next one is made
        return self._finished(encoder, rows.day, fingerprints, bounds, count)

    def _finished(
        self, encoder: Encoder, day: int, fingerprints: list[int], bounds: list[datetime], count: int
    ) -> tuple[SmallObject, pa.Buffer]:
        body = encoder.finish()
        date = times.to_date(day)
        delayed = date in self._task.delayed_dates
        small = SmallObject(
            bucket=self._bucket,
            key=self._keys.small_object(
                date,
                self._task.staging_object_id,
                delayed=delayed,
                generation=self._task.generation,
                rewrite_id=self._task.rewrite_id,
            ),
            date=date,
            staging_object_id=self._task.staging_object_id,
            generation=self._task.generation,
            rewrite_id=self._task.rewrite_id,
            delayed=delayed,
            content_length=body.size,
            row_count=count,
            min_time=bounds[0],
            max_time=bounds[-1],
            fingerprint=combine(fingerprints),
            file_format=self._file_format,
            metrics=column_metrics(encoder.metadata, self._task.metric_columns),
            erasure_id=self._task.erasure_id,
            upload_start_time=datetime.now(timezone.utc),
            definition_version=self._task.definition_version,
        )
        return small, body

    def _instant(self, table: pa.Table, row: int) -> datetime:
        """Returns the time of a row. A date counts as its first instant in the table's time zone."""
        column = table.column(self._layout.table.partition_column)
        if pa.types.is_timestamp(column.type):
            return times.to_datetime(column[row].value)
        return self._midnight(column[row].value)

    def _midnight(self, day: int) -> datetime:
        return times.to_datetime(times.midnight_of(day, self._layout.table.zone))

    def _put(self, small: SmallObject, body: pa.Buffer) -> SmallObject:
        started = datetime.now(timezone.utc)
        there = put_if_absent(
            self._stores,
            self._bucket,
            small.key,
            body,
            kind="delayed" if small.delayed else "live",
            row_count=small.row_count,
            fingerprint=small.fingerprint,
            file_format=small.file_format,
        )
        failpoint("stream.after_put")
        return replace(
            small, upload_start_time=started, content_length=there.content_length, file_format=there.file_format
        )

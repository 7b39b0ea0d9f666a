"""Small objects: the accepted rows of one staging object, one sorted Parquet object per event date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.fingerprints import combine
from prism_assets.domain.work import ConvertTask, SmallObject
from prism_assets.failpoints import failpoint
from prism_assets.kernels import times
from prism_assets.kernels.fingerprint import fingerprint
from prism_assets.kernels.joining import LARGE, enlarged
from prism_assets.kernels.judging import Accepted
from prism_assets.kernels.once import put_once
from prism_assets.kernels.parquet import SMALL_ROW_GROUP, SMALL_SAMPLE, Encoder, dictionary_columns, schema_of
from prism_assets.kernels.sorting import order_of
from prism_assets.kernels.typed import Layout
from prism_assets.objectstore.keys import TableKeys
from prism_assets.objectstore.stores import Stores

_PUTS = 4

Indices = npt.NDArray[np.int64]


class SmallObjects:
    """Writes the small objects of one staging object."""

    def __init__(self, layout: Layout, task: ConvertTask, stores: Stores, bucket: str, keys: TableKeys) -> None:
        self._layout = layout
        self._schema = schema_of(layout.columns)
        self._task = task
        self._stores = stores
        self._bucket = bucket
        self._keys = keys

    def write(self, parts: list[Accepted]) -> tuple[SmallObject, ...]:
        """Writes the rows, date by date, and empties `parts`; while one date is put the next is encoded."""
        with ThreadPoolExecutor(_PUTS) as pool:
            puts = [pool.submit(self._put, small, body) for small, body in self.encode(parts)]
            return tuple(put.result() for put in puts)

    def encode(self, parts: list[Accepted]) -> Iterator[tuple[SmallObject, pa.Buffer]]:
        """Yields each date's object with its bytes, nothing written yet, and empties `parts`."""
        numbers = np.concatenate([part.numbers for part in parts] or [np.zeros(0, np.int64)])
        if not len(numbers):
            return
        days = np.concatenate([part.days for part in parts])
        table = self._joined(parts)
        dictionaries = dictionary_columns(table, SMALL_SAMPLE)
        for day in np.unique(days).tolist():
            yield self._encode(table, dictionaries, np.flatnonzero(days == day), numbers, day)

    def _joined(self, parts: list[Accepted]) -> pa.Table:
        """All rows as one table of whole columns; each part lets go of a column as soon as it is joined."""
        large = sum(column.nbytes for part in parts for column in part.columns) > LARGE
        schema = enlarged(self._schema) if large else self._schema
        columns = []
        for field in reversed(schema):
            chunks = [part.columns.pop().cast(field.type) for part in parts]
            columns.append(pa.chunked_array(chunks, field.type).combine_chunks())
        parts.clear()
        return pa.Table.from_arrays(columns[::-1], schema=schema)

    def _encode(
        self, table: pa.Table, dictionaries: Sequence[str], rows: Indices, numbers: Indices, day: int
    ) -> tuple[SmallObject, pa.Buffer]:
        rows = rows[order_of(table, rows, self._sort_by(), numbers[rows])]
        encoder = Encoder(self._schema, dictionaries)
        prints: list[int] = []
        for start in range(0, len(rows), SMALL_ROW_GROUP):
            portion = table.take(pa.array(rows[start : start + SMALL_ROW_GROUP])).cast(self._schema)
            encoder.write(portion)
            prints.append(fingerprint(portion))
        body = encoder.finish()
        date = times.to_date(day)
        delayed = date in self._task.delayed_dates
        first, last = (self._instant(table, row) for row in (rows[0], rows[-1]))
        small = SmallObject(
            key=self._keys.small_object(
                date, self._task.staging_object_id, delayed=delayed, generation=self._task.generation
            ),
            date=date,
            delayed=delayed,
            content_length=body.size,
            row_count=len(rows),
            min_time=first,
            max_time=last,
            fingerprint=combine(prints),
            upload_start_time=datetime.now(timezone.utc),
        )
        return small, body

    def _sort_by(self) -> Sequence[str]:
        partition = self._layout.table.partition_column
        return [partition, *(name for name in self._layout.table.merge.sort_by if name != partition)]

    def _instant(self, table: pa.Table, row: int) -> datetime:
        """The time of a row; a date counts as its first instant in the table's zone."""
        column = table.column(self._layout.table.partition_column)
        if pa.types.is_timestamp(column.type):
            return times.to_datetime(column[row].cast(pa.int64()).as_py())
        day = column[row].cast(pa.int32()).as_py()
        return times.to_datetime(times.midnight_of(day, self._layout.table.zone))

    def _put(self, small: SmallObject, body: pa.Buffer) -> SmallObject:
        started = datetime.now(timezone.utc)
        length = put_once(
            self._stores,
            self._bucket,
            small.key,
            body,
            kind="delayed" if small.delayed else "live",
            row_count=small.row_count,
            prints=small.fingerprint,
        )
        failpoint("convert.after_put")
        return replace(small, upload_start_time=started, content_length=length)

"""Many sorted objects to one: one k-way pass, each row decoded once and encoded once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files import ColumnMetrics, DataFile, MergedRange, time_bounds
from prism_assets.domain.fingerprints import combine
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work.merge import MergeResult, MergeTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP, MERGED_SAMPLE, Encoder, dictionary_columns, schema_of
from prism_assets.kernels.parquet.merge_inputs import Input, Window, merge_order, union_schema
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import Present, put_if_absent
from prism_assets.kernels.typed import Layout
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_READS = 8


def merge_range(task: MergeTask, table: TableDefinition, stores: Stores, lake: Lake) -> MergeResult:
    """Merges the inputs into one object sorted by time, ties in the order of the inputs.

    Nothing is raised for inputs that are not what the task says: nothing is written, and the result's failure names
    them. The same inputs give the same bytes under the same key.
    """
    inputs: list[Input] | None = None
    try:
        inputs = _open(task.inputs, stores)
        return _merged(task, table, inputs, stores, lake.bucket)
    except Exception as error:
        return task.failed(failure_of(error, f"{task.output_key} was merged", at_source=inputs is None))


def _merged(task: MergeTask, table: TableDefinition, inputs: list[Input], stores: Stores, bucket: str) -> MergeResult:
    # Objects without rows have no row group: where there are no others, the columns are those of the definition.
    table = table.with_copied_types() if task.is_copy else table
    schema = union_schema([entry.schema for entry in inputs] or [schema_of(Layout.of(table))], table)
    merged = encoded(inputs, schema, table.stored_order, table.file_format, task.metric_columns)
    check_sums(task.inputs, task.output_key, inputs, merged)
    failpoint("merge.before_put")
    there = merged.put(stores, bucket, task.output_key, kind="merged", file_format=table.file_format)
    failpoint("merge.after_put")
    first, last = time_bounds(task.inputs)
    written = MergedRange(
        bucket=bucket,
        key=task.output_key,
        content_length=there.content_length,
        row_count=merged.row_count,
        fingerprint=merged.fingerprint,
        min_time=first,
        max_time=last,
        file_format=there.file_format,
        metrics=merged.metrics,
        rows_erased=sum(entry.rows_erased for entry in task.inputs),
        erased_fingerprint=combine(entry.erased_fingerprint for entry in task.inputs),
        lower_bound=task.lower_bound,
        upper_bound=task.upper_bound,
        revision=task.revision,
    )
    return MergeResult(job_id=task.job_id, upper_bound=task.upper_bound, written=written)


def _open(files: Sequence[DataFile], stores: Stores) -> list[Input]:
    """Fetches objects to merge, a few at a time; raises InvariantBroken for one that is not what it is said to be."""

    def fetch(entry: DataFile) -> list[Input]:
        return Input.opened(entry, stores.get(entry.bucket, entry.key, length=entry.content_length))

    with ThreadPoolExecutor(_READS) as pool:
        return [part for parts in pool.map(fetch, files) for part in parts]


@dataclass(frozen=True)
class MergedObject:
    """A merged object, the number and the fingerprint of the rows that are in it, and their metrics."""

    body: pa.Buffer
    row_count: int
    fingerprint: int
    metrics: tuple[ColumnMetrics, ...]

    def put(self, stores: Stores, bucket: str, key: str, *, kind: str, file_format: int) -> Present:
        """Puts it under a key of its own; returns what lies there, which a task of before may have put."""
        return put_if_absent(
            stores,
            bucket,
            key,
            self.body,
            kind=kind,
            row_count=self.row_count,
            fingerprint=self.fingerprint,
            file_format=file_format,
        )


def encoded(
    inputs: Sequence[Input], schema: pa.Schema, order: Sequence[str], file_format: int, metric_columns: Sequence[int]
) -> MergedObject:
    """Merges the rows of all inputs, sorted by the columns named in `order`; rows that tie stay in that of the inputs.

    While one portion is encoded in a thread the next one is gathered: half the time where a core is free, and at most
    one portion more in memory.
    """
    encoder: Encoder | None = None
    writing: Future[None] | None = None
    rows, fingerprint = 0, 0
    with ThreadPoolExecutor(1) as pool:
        for portion in _portions(inputs, schema, order):
            encoder = encoder or Encoder(schema, dictionary_columns(portion, MERGED_SAMPLE), file_format)
            if writing:
                writing.result()
            writing = pool.submit(encoder.write, portion)
            rows += portion.num_rows
            fingerprint = combine([fingerprint, fingerprint_of(portion)])
        if writing:
            writing.result()
    encoder = encoder or Encoder(schema, [], file_format)
    body = encoder.finish()
    return MergedObject(body, rows, fingerprint, column_metrics(encoder.metadata, metric_columns))


def _portions(inputs: Sequence[Input], schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows in order, in row groups of nearly equal size: none below the least, unless there are fewer rows."""
    order = merge_order(inputs, schema, names)
    groups = max(1, len(order) // MERGED_ROW_GROUP)
    window = Window(inputs, schema, order)
    ends = [len(order) * number // groups for number in range(groups + 1)]
    for start, end in itertools.pairwise(ends):
        if start < end:
            yield window.take(start, end)


def check_sums(files: Sequence[DataFile], output_key: str, inputs: Sequence[Input], merged: MergedObject) -> None:
    """Raises InvariantBroken unless what was encoded is what the inputs were said to hold."""
    expected = combine(entry.fingerprint for entry in files)
    if merged.row_count == sum(entry.row_count for entry in files) and merged.fingerprint == expected:
        return
    for entry in files:
        found = combine(fingerprint_of(part.read()) for part in inputs if part.said is entry)
        if found != entry.fingerprint:
            raise InvariantBroken(
                f"{entry.key}: the fingerprint of its rows is {found}, recorded was {entry.fingerprint}"
            )
    raise InvariantBroken(f"{output_key}: the merged rows are not those of the inputs; nothing was written")

"""Many objects of settled records to one, sorted by key: the k-way pass that merges of logs make, by another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files import time_bounds
from prism_assets.domain.fingerprints import combine
from prism_assets.domain.folding import RecordObject, RecordPart, SettledMergeResult, SettledMergeTask
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.merge import check_sums, encoded
from prism_assets.kernels.parquet.merge_inputs import Input
from prism_assets.kernels.records.inputs import failed_by, read_all, reading
from prism_assets.kernels.records.shape import RecordShape
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def merge_settled(task: SettledMergeTask, table: TableDefinition, stores: Stores, lake: Lake) -> SettledMergeResult:
    """Merges the inputs into one object; ties of key and time, of which there are none, would stay in their order.

    Nothing is raised for inputs that are not what the task says: nothing is written, and the result names them. The
    same inputs give the same bytes under the same key.
    """
    try:
        return SettledMergeResult(fold_id=task.fold_id, number=task.number, written=_written(task, table, stores, lake))
    except Exception as error:
        return failed_by(task, error, f"settled records of {table.name} {task.date} were merged")


def _opened(task: SettledMergeTask, stores: Stores) -> list[Input]:
    def fetch(item: RecordObject) -> list[Input]:
        with reading(item):
            return Input.opened(item, stores.get(item.bucket, item.key, length=item.content_length))

    return [part for parts in read_all(fetch, task.inputs) for part in parts]


def _check_each(task: SettledMergeTask, inputs: Sequence[Input]) -> None:
    """Raises UnreadInputs for those whose rows are not the recorded ones; called where something is wrong."""

    def check(item: RecordObject) -> None:
        with reading(item):
            found = combine(fingerprint_of(part.read()) for part in inputs if part.said is item)
            if found != item.fingerprint:
                raise InvariantBroken(
                    f"{item.key}: the fingerprint of its rows is {found}, recorded was {item.fingerprint}"
                )

    read_all(check, task.inputs)


def _written(task: SettledMergeTask, table: TableDefinition, stores: Stores, lake: Lake) -> RecordObject:
    if table.join is None:
        raise InvariantBroken(f"{table.name} is no join table; its records are merged under another definition")
    key = lake.keys(table).record_object(task.date, RecordPart.VISIBLE, task.fold_id, 0, task.number)
    order = (*table.join.key, table.partition_column)
    inputs = _opened(task, stores)
    try:
        merged = encoded(inputs, RecordShape(table, table.join).stored, order, table.file_format, task.metric_columns)
        check_sums(task.inputs, key, inputs, merged)
    except MemoryError:
        raise
    except Exception:
        _check_each(task, inputs)
        raise
    failpoint("merge.before_put_settled")
    there = merged.put(stores, lake.bucket, key, kind=str(RecordPart.VISIBLE), file_format=table.file_format)
    failpoint("merge.after_put_settled")
    first, last = time_bounds(task.inputs)
    settle = [item.earliest_settle for item in task.inputs if item.earliest_settle]
    settled = [item.latest_settle for item in task.inputs if item.latest_settle]
    return replace(
        task.inputs[0],
        bucket=lake.bucket,
        key=key,
        content_length=there.content_length,
        row_count=merged.row_count,
        fingerprint=merged.fingerprint,
        min_time=first,
        max_time=last,
        file_format=there.file_format,
        metrics=merged.metrics,
        bucket_number=0,
        cohort=task.number,
        fold_id=task.fold_id,
        earliest_settle=min(settle, default=None),
        latest_settle=max(settled, default=None),
        is_settled=True,
        merges=1 + max(item.merges for item in task.inputs),
        is_merged=False,
        joined_rows=sum(item.joined_rows for item in task.inputs),
        erasure_id=min(item.erasure_id for item in task.inputs),
        object_id=0,
        definition_version=task.definition_version,
    )

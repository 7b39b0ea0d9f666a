"""Merges the ranges of a rebuilt day again, with the same bounds, and so in the same places of the chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Replacement
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rebuilt_objects, rewrites, staged_files
from prism_assets.metadata.rewrites.rebuilds import Rebuild
from prism_assets.metadata.rewrites.rebuilt_objects import RangeToRebuild
from prism_assets.metadata.tables import tables
from prism_assets.stages.bisect import error_of, run_bisected
from prism_assets.stages.context import StageContext

_AT_ONCE = 8


@dataclass
class _GrowingRange:
    """A range in progress: its object so far, and the last small object in it."""

    known: RangeToRebuild
    above: int
    so_far: DataFile | None = None
    inputs: Sequence[SmallObject] = field(default_factory=tuple)

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing left to merge."""
        return self.so_far is not None and self.above == self.known.upper_bound


def merge_ranges_anew(
    context: StageContext, table: TableDefinition, partition: Partition, rebuild: Rebuild, lease: Lease
) -> None:
    """Merges every range without a staged file, a few at once, and records each when complete.

    A range of more small objects than one merge takes grows in steps, like an extended range. Each step is an object
    with the bounds reached so far in its key. A death before a record repeats the merge, with the same bytes under the
    same keys.
    """
    with context.database.begin() as connection:
        missing = rebuilt_objects.load_ranges_to_rebuild(connection, rebuild)
    for start in range(0, len(missing), _AT_ONCE):
        part = [_GrowingRange(known, known.lower_bound) for known in missing[start : start + _AT_ONCE]]
        while growing := [item for item in part if not item.is_whole]:
            for item, current in _grow(context, table, partition, rebuild, growing):
                if item.is_whole:
                    _record(context, rebuild, lease, item, current)


def _grow(
    context: StageContext,
    table: TableDefinition,
    partition: Partition,
    rebuild: Rebuild,
    growing: Sequence[_GrowingRange],
) -> Iterator[tuple[_GrowingRange, TableDefinition]]:
    """Merges one step of each range as one job. Yields each range with the definition of its object's columns."""
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        for item in growing:
            item.inputs = rebuilt_objects.load_inputs(
                connection, keys, rebuild, item.above, item.known.upper_bound, table.merge.max_objects
            )
        # Read after the objects, so none of them has a later definition: the merged ones have all their columns.
        current = tables.load_current(connection, table)
    bounds = [_next_bound(table, item) for item in growing]
    tasks = [
        _task(context, current, partition, rebuild, item, number, bounds[number]) for number, item in enumerate(growing)
    ]
    for result in run_bisected(context.engine, tasks, by_version(current)):
        item = growing[result.number]
        item.so_far, item.above = _written(result), bounds[result.number]
        yield item, current


def _next_bound(table: TableDefinition, item: _GrowingRange) -> int:
    """Returns the last small object of the next step. The last step reaches the bound of the range.

    No object of the range lies above its last one.
    """
    last = item.inputs[-1].object_id if item.inputs else item.known.upper_bound
    is_last = len(item.inputs) < table.merge.max_objects or last == item.known.upper_bound
    return item.known.upper_bound if is_last else last


def _task(
    context: StageContext,
    table: TableDefinition,
    partition: Partition,
    rebuild: Rebuild,
    item: _GrowingRange,
    number: int,
    upper: int,
) -> WriteTask:
    inputs: list[DataFile] = [replace(item.so_far, metrics=())] if item.so_far else []
    inputs += item.inputs
    return WriteTask(
        number=number,
        inputs=tuple(inputs),
        output_key=context.lake.keys(table).merged_object(
            partition.date, item.known.lower_bound, upper, rebuild.rewrite_id
        ),
        table_id=table.table_id,
        definition_version=table.version,
        metric_columns=table.metric_columns,
    )


def _written(result: WriteResult) -> DataFile:
    """Returns the written object, or raises the error of the result."""
    if result.written is not None:
        return result.written
    assert result.failure is not None
    raise error_of([result.failure], result.failure.message)


def _record(
    context: StageContext, rebuild: Rebuild, lease: Lease, item: _GrowingRange, current: TableDefinition
) -> None:
    assert item.so_far is not None
    failpoint("rebuild.after_merge")
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        rewrites.lock_running(connection, rebuild.rewrite_id)
        staged_files.add_range(
            connection, rebuild, rebuild.partition_id, _replacement(rebuild, item, item.so_far, current)
        )
    failpoint("rebuild.after_range")


def _replacement(rebuild: Rebuild, item: _GrowingRange, written: DataFile, current: TableDefinition) -> Replacement:
    made = MergedRange.of(written, item.known.lower_bound, item.known.upper_bound, rebuild.rewrite_id)
    made = replace(made, definition_version=current.version, erasure_id=rebuild.erasure_id)
    return Replacement.in_place_of(replace(made, rewrite_id=item.known.rewrite_id), made)

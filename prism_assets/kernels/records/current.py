"""Computes records with all committed changes for readers, who wait for no fold. Writes nothing.

Sessions, winners and record files are decided as in a fold (`apply_changes.py`). Every record file with a touched or an
erased record is merged, and no record settles. Of all other objects only keys and times are read. Buckets without a
change are not read at all, unless an erasure is under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from prism_assets.domain.columns.types import MICROSECONDS
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.records.folding import FoldTask
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.parquet.format import in_format
from prism_assets.kernels.records.apply_changes import BATCH_ROWS, Found, apply_changes, find
from prism_assets.kernels.records.inputs import read_changes
from prism_assets.kernels.records.record_files import batches
from prism_assets.kernels.records.shape import RecordShape
from prism_assets.kernels.scratch import disk_errors, mapped, new_file
from prism_assets.kernels.times import to_day
from prism_assets.objectstore.stores import Stores

IN_MEMORY = 32 << 20
"""Bytes of merged records of a batch that stay in memory. Bigger batches go to disk."""
_DISK_ROWS = 1 << 16


@dataclass(frozen=True)
class CurrentRecords:
    """Visible records with all of their changes, in the place of the objects with the ids `replaced`."""

    merged: tuple[pa.Table, ...]
    replaced: frozenset[int]


def seen_schema(table: TableDefinition) -> pa.Schema:
    """The columns of readers, and after them the day."""
    names = [column.stored_name for column in table.columns]
    seen = in_format(_shape_of(table).seen, MICROSECONDS)
    return pa.schema([*(pa.field(name, seen.field(name).type) for name in names), pa.field(DAY_COLUMN, pa.date32())])


def current_records(task: FoldTask, table: TableDefinition, stores: Stores) -> CurrentRecords:
    """Merges the records of the task's buckets with their changes. UnreadInputs if an object cannot be read."""
    shape, schema = _shape_of(table), seen_schema(table)
    changes = read_changes(task, shape, stores)
    touched = set(changes.buckets.tolist())
    records = tuple(item for item in task.records if task.erasures or item.bucket_number in touched)
    found = find(replace(task, records=records, settle_before=None), changes, shape, stores)
    erased = set(found.places.files[found.places.erased.mask].tolist())
    due = [number for number, file in enumerate(found.work.files) if file.touched or number in erased]
    return CurrentRecords(
        merged=tuple(_merged(found, due, shape, schema)),
        replaced=frozenset(item.object_id for file in due for item in found.files.recorded(file)),
    )


def _shape_of(table: TableDefinition) -> RecordShape:
    if table.join is None:
        raise InvariantBroken(f"{table.name} is no join table: each of its rows is a line of its own")
    return RecordShape(table, table.join)


def _merged(found: Found, due: list[int], shape: RecordShape, schema: pa.Schema) -> Iterator[pa.Table]:
    """The visible records of some record files, some at a time."""
    days = np.array([to_day(day) for day, _, _ in found.files.addresses], np.int32)
    rows = [file.rows for file in found.work.files]
    for batch in batches(found.files, due, found.work.links, BATCH_ROWS, rows):
        records = apply_changes(batch, found, shape)
        seen = np.flatnonzero(records.merged.visible(len(records.living)) & ~records.erased)
        columns = [records.merged.column(name, seen) for name in schema.names[:-1]]
        dates = pa.array(days[records.living[seen]]).cast(pa.date32())
        yield _kept(pa.table([*columns, dates], names=schema.names).cast(schema))


def _kept(rows: pa.Table) -> pa.Table:
    """The rows; if they are many, mapped from a file on disk."""
    if rows.nbytes <= IN_MEMORY:
        return rows
    file = new_file()
    with disk_errors(), pa.ipc.new_file(pa.PythonFile(file, "w"), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=_DISK_ROWS)
    return pa.ipc.open_file(mapped(file)).read_all()

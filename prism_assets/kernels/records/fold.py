"""Folds changes into the records of some buckets.

1. Read all changes, and of all records only keys and times (`inputs.py`).
2. Find the sessions of records and changes, and their record files (`apply_changes.py`).
3. Decide which record files are written again (`domain/records/fold_plan.py`).
4. Read those as a whole, merge (`apply_changes.py`), and write them sorted by key.
5. Write the changes of all other record files into one object a bucket.

A fold replaces nothing: the stage does, in one transaction, once all objects are written. Until then the objects are
garbage, so a death anywhere is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.records.fold_plan import files_to_write
from prism_assets.domain.records.folding import FoldResult, FoldTask, RecordMove, RecordObject, RecordPart
from prism_assets.domain.records.join_delays import STEPS
from prism_assets.domain.records.joins import CHANGE_LINE, CHANGE_OBJECT, DELETE
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work import UnreadObject
from prism_assets.kernels.records.apply_changes import BATCH_ROWS, FileRecords, Found, apply_changes, find, sessions_of
from prism_assets.kernels.records.inputs import NEW, Changes, failed_by, read_changes, read_places
from prism_assets.kernels.records.merging import MergedRecords
from prism_assets.kernels.records.ordering import record_order
from prism_assets.kernels.records.outputs import RecordWriter
from prism_assets.kernels.records.record_files import RecordFiles, Work, batches
from prism_assets.kernels.records.sessions import Numbers, Sessions
from prism_assets.kernels.records.shape import COMMITTED, LAST_EVENT, RecordShape
from prism_assets.kernels.records.times import event_times, settle_times
from prism_assets.kernels.times import to_datetime
from prism_assets.kernels.unread import UnreadInputs
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

MOST_WAITING = 8
"""The most objects of waiting changes in one bucket. With one more, all become one object."""


def fold_buckets(task: FoldTask, table: TableDefinition, stores: Stores, lake: Lake) -> FoldResult:
    """Writes the objects of a fold. The stage then puts them in the place of others.

    Nothing is raised for inputs that are not as recorded: the result names them. The same task gives the same bytes
    under the same keys.
    """
    try:
        return _fold_readable(task, table, stores, lake.keys(table))
    except Exception as error:
        return failed_by(task, error, f"buckets {', '.join(map(str, task.buckets))} of {table.name} were folded")


def _fold_readable(task: FoldTask, table: TableDefinition, stores: Stores, keys: TableKeys) -> FoldResult:
    """Folds the buckets with readable records. In the others new changes wait. UnreadInputs for changes."""
    bucket_of = {item.object_id: item.bucket_number for item in task.records}
    unread: dict[int, UnreadObject] = {}
    while True:
        waiting = {bucket_of[number] for number in unread}
        folded = _only(task, set(task.buckets) - waiting)
        try:
            done = _Fold(folded, table, stores, keys).run()
            break
        except UnreadInputs as error:
            if any(item.is_changes for item in error.objects):
                raise
            unread |= {item.object_id: item for item in error.objects}
    if not unread:
        return done
    left = _only(task, waiting)
    taken = _Fold(replace(left, records=()), table, stores, keys).take()
    waited = sum(item.row_count for item in left.records if item.part is RecordPart.PENDING)
    return replace(
        done,
        written=(*done.written, *taken.written),
        changes=done.changes + taken.changes,
        folded=done.folded + taken.folded,
        pending=done.pending + taken.pending + waited,
        unsequenced=done.unsequenced + taken.unsequenced,
        bucket_changes=(*done.bucket_changes, *taken.bucket_changes),
        undecided=done.undecided + taken.undecided,
        unread=tuple(unread.values()),
    )


def _only(task: FoldTask, buckets: Collection[int]) -> FoldTask:
    records = tuple(item for item in task.records if item.bucket_number in buckets)
    return replace(task, buckets=tuple(sorted(buckets)), records=records)


@dataclass
class _FoldProgress:
    """Objects written and replaced so far, with counts."""

    written: list[RecordObject] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    settled_objects: list[int] = field(default_factory=list)
    settled: int = 0
    joined: int = 0
    changed: int = 0
    join_delays: Numbers = field(default_factory=lambda: np.zeros(len(STEPS) + 1, np.int64))


class _Fold:
    def __init__(self, task: FoldTask, table: TableDefinition, stores: Stores, keys: TableKeys) -> None:
        if table.join is None:
            raise InvariantBroken(f"{table.name} is no join table; it is folded under another definition than it has")
        self._task = task
        self._table = table
        self._join = table.join
        self._stores = stores
        self._shape = RecordShape(table, table.join)
        self._writer = RecordWriter(task, self._shape, stores, keys)
        self._done = _FoldProgress()

    def run(self) -> FoldResult:
        """Folds in the order of the module's list."""
        changes = read_changes(self._task, self._shape, self._stores)
        found = find(self._task, changes, self._shape, self._stores)
        files, work = found.files, found.work
        due = files_to_write(self._join.publish, work.files, work.links)
        rows = [file.rows for file in work.files]
        for batch in batches(files, list(due), work.links, BATCH_ROWS, rows):
            self._apply(batch, found)
        self._settle(files, work)
        waits = ~np.isin(work.file_of[found.sessions.of_changes], list(due))
        pending = self._leave(changes, waits, found.sessions)
        return FoldResult(
            fold_id=self._task.fold_id,
            number=self._task.number,
            written=tuple(self._done.written),
            replaced=tuple(self._done.replaced),
            settled_objects=tuple(self._done.settled_objects),
            changes=changes.new,
            folded=changes.new + changes.waited - pending,
            pending=pending,
            unsequenced=changes.placeless,
            settled=self._done.settled,
            moves=tuple(_moves(files, work, due)),
            joined=self._done.joined,
            changed=self._done.changed,
            join_delays=tuple(self._done.join_delays.tolist()) if self._done.join_delays.any() else (),
            bucket_changes=_counted(changes.buckets[changes.sources == NEW]),
            erased=tuple(found.places.erased.counted(found.places.objects)),
            undecided=changes.undecided + found.places.erased.undecided,
        )

    def take(self) -> FoldResult:
        """Lets all new changes wait, and reads no records."""
        changes = read_changes(self._task, self._shape, self._stores)
        sessions = sessions_of(read_places([], self._shape), changes, self._shape)
        pending = self._leave(changes, np.ones(len(changes.sources), bool), sessions)
        return FoldResult(
            fold_id=self._task.fold_id,
            number=self._task.number,
            written=tuple(self._done.written),
            changes=changes.new,
            folded=changes.new - pending,
            pending=pending,
            unsequenced=changes.placeless,
            bucket_changes=_counted(changes.buckets),
            undecided=changes.undecided,
        )

    def _apply(self, batch: Sequence[int], found: Found) -> None:
        """Writes some record files again."""
        records = apply_changes(batch, found, self._shape)
        joined = records.merged.joined(len(records.living))
        self._count(records.merged, records.changed, joined)
        self._write(batch, found.files, records, joined)

    def _count(self, merged: MergedRecords, changed: Numbers, joined: npt.NDArray[np.bool_]) -> None:
        """Counts changed records, and the delays between first and last event of those with all groups."""
        whole = changed[joined[changed]]
        first_events = event_times(merged.column(self._table.partition_column, whole), self._table.zone)
        delays = merged.column(LAST_EVENT, whole).to_numpy() - first_events
        steps = np.searchsorted(np.array(STEPS) * 1_000, delays)
        self._done.changed += len(changed)
        self._done.join_delays += np.bincount(steps, minlength=len(STEPS) + 1)

    def _write(
        self, batch: Sequence[int], files: RecordFiles, records: FileRecords, joined: npt.NDArray[np.bool_]
    ) -> None:
        """Writes the remaining records of some record files by key and time, visible and hidden ones apart."""
        merged, living, settled, erased = records.merged, records.living, records.settled, records.erased
        everyone = np.arange(len(living))
        visible = merged.visible(len(living))
        joined = joined & visible
        gone = erased | self._shape.gone(settled, visible)
        if self._join.after == DELETE:
            self._done.settled += int((settled & visible & ~erased).sum())
            self._done.joined += int((settled & joined & ~erased).sum())
        keys = [merged.column(name, everyone) for name in (*self._join.key, self._table.partition_column)]
        order = record_order(2 * living + ~visible, keys)
        order = order[~gone[order]]
        rows = merged.into_table(order)
        settle = settle_times(rows[LAST_EVENT].to_numpy(), self._join)
        living, visible, settled, joined = living[order], visible[order], settled[order], joined[order]
        for file in batch:
            day, bucket, cohort = files.addresses[file]
            self._done.replaced += [item.object_id for item in files.recorded(file)]
            start, end = np.searchsorted(living, [file, file + 1])
            middle = start + int(visible[start:end].sum())
            is_settled = bool(settled[start:end].all())
            for part, own in ((RecordPart.VISIBLE, slice(start, middle)), (RecordPart.HIDDEN, slice(middle, end))):
                if own.start < own.stop:
                    written = self._writer.write(
                        rows.slice(own.start, own.stop - own.start),
                        day=day,
                        part=part,
                        bucket=bucket,
                        cohort=cohort,
                        settle=settle[start:end],
                        is_settled=is_settled,
                        joined_rows=int(joined[own].sum()),
                    )
                    self._done.written.append(written)
            if self._join.after != DELETE and start < end and is_settled:
                self._done.settled += int(middle - start)
                self._done.joined += int(joined[start:end].sum())

    def _settle(self, files: RecordFiles, work: Work) -> None:
        """Settles record files without an open record: no fold reads them again, and their hidden objects go."""
        for file in work.settled_files.tolist():
            for item in files.recorded(file):
                if item.part is RecordPart.VISIBLE:
                    self._done.settled_objects.append(item.object_id)
                    self._done.settled += item.row_count
                    self._done.joined += item.joined_rows
                else:
                    self._done.replaced.append(item.object_id)

    def _leave(self, changes: Changes, waits: npt.NDArray[np.bool_], sessions: Sessions) -> int:
        """Writes the waiting changes, and returns their number. An object whose rows all still wait is kept."""
        left = np.bincount(changes.sources[waits & (changes.sources != NEW)], minlength=len(changes.waiting))
        kept = {number for number, item in enumerate(changes.waiting) if left[number] == item.row_count}
        for bucket in self._task.buckets:
            own = [number for number in kept if changes.waiting[number].bucket_number == bucket]
            rows = np.flatnonzero(waits & (changes.buckets == bucket))
            if len(own) >= MOST_WAITING and (changes.sources[rows] == NEW).any():
                kept -= set(own)
            rows = rows[~np.isin(changes.sources[rows], list(kept))]
            if len(rows):
                self._done.written.append(self._waiting(bucket, changes, rows, sessions))
        self._done.replaced += [item.object_id for number, item in enumerate(changes.waiting) if number not in kept]
        return int(waits.sum())

    def _waiting(self, bucket: int, changes: Changes, rows: Numbers, sessions: Sessions) -> RecordObject:
        objects, lines = (changes.rows[name].to_numpy()[rows] for name in (CHANGE_OBJECT, CHANGE_LINE))
        rows = rows[np.lexsort((lines, objects))]
        settle = settle_times(sessions.last_events[sessions.of_changes[rows]], self._join)
        taken = changes.rows.take(pa.array(rows))
        return self._writer.write(
            taken,
            day=self._task.now.astimezone(timezone.utc).date(),
            part=RecordPart.PENDING,
            bucket=bucket,
            cohort=0,
            settle=settle.min(keepdims=True),
            oldest_change=to_datetime(int(pc.min(taken[COMMITTED]).as_py())),
        )


def _moves(files: RecordFiles, work: Work, due: Container[int]) -> list[RecordMove]:
    """The pairs of days that records move between. A record file is due if a linked one is due."""
    dates = {(files.addresses[one][0], files.addresses[other][0]) for one, other in work.links if one in due}
    return [RecordMove(from_date=one, to_date=other) for one, other in sorted(dates) if one != other]


def _counted(buckets: Numbers) -> tuple[tuple[int, int], ...]:
    """The number of rows of each bucket."""
    different, counts = np.unique(buckets, return_counts=True)
    return tuple(zip(different.tolist(), counts.tolist(), strict=True))

"""Makes the records of some buckets from all changes of the log, as if no fold had run.

1. Divide changes, and the keys of stored records, into slices by a hash of the key (`spool.py`).
2. For each slice, find sessions (`sessions.py`), merge the changes alone (`merging.py`), and drop settled hidden
   records. A stored record only gives its day.
3. Add up number and fingerprint of the records of each day.
4. Write the requested days: open records by record file, as folds do, and settled records of a day together.

A rebuild replaces nothing, like a fold.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.records.folding import RecordMove, RecordObject, RecordPart
from prism_assets.domain.records.rebuild import DaySum, RecordRebuildResult, RecordRebuildTask, RowSum
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels import times
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.records.apply_changes import BATCH_ROWS
from prism_assets.kernels.records.erasing import find_erased
from prism_assets.kernels.records.inputs import NEW, Changes, failed_by, placed, read_parts
from prism_assets.kernels.records.merging import merge_records
from prism_assets.kernels.records.ordering import record_order
from prism_assets.kernels.records.outputs import RecordWriter
from prism_assets.kernels.records.sessions import (
    ALONE,
    Numbers,
    Sessions,
    Spans,
    buckets_of,
    find_sessions,
    key_codes,
    least_of,
)
from prism_assets.kernels.records.shape import LAST_EVENT, LiftedChanges, RecordShape
from prism_assets.kernels.records.spool import Spool
from prism_assets.kernels.records.times import cohorts_of, days_of, event_times, settle_times, to_instant
from prism_assets.kernels.unread import UnreadInputs
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

Mask = npt.NDArray[np.bool_]
_DAY, _KEPT = "_day", "_kept"
"""Columns of a stored record: its day, and whether it stays unchanged."""
_JOINED = "_joined"
"""Column of a made record: whether it has all groups."""
_SETTLED = -1
"""The cohort of settled records before they are cut into objects."""

Address = tuple[int, int, int]
"""Day, bucket and cohort of records that are written together."""
Piece = tuple[int, bool, int, int]
"""A run of such records: slice, whether they are visible, start and end."""


def rebuild_records(task: RecordRebuildTask, table: TableDefinition, stores: Stores, lake: Lake) -> RecordRebuildResult:
    """Adds up the records of each day that the changes make, and writes the requested days. Replaces nothing.

    Nothing is raised for inputs that are not as recorded: the result names them. The same task gives the same bytes
    under the same keys.
    """
    try:
        with ExitStack() as stack:
            return _RecordRebuild(task, table, stores, lake.keys(table), stack).run()
    except Exception as error:
        if isinstance(error, UnreadInputs) and not any(item.is_changes for item in error.objects):
            return RecordRebuildResult(fold_id=task.fold_id, number=task.number, unread=error.objects)
        return failed_by(task, error, f"buckets {', '.join(map(str, task.buckets))} of {table.name} were rebuilt")


@dataclass(frozen=True)
class _StoredRecords:
    """The stored records of one slice: keys, times and days; which are erased, and which stay unchanged."""

    keys: pa.Table
    first_events: Numbers
    last_events: Numbers
    days: Numbers
    erased: Mask
    kept: Mask


@dataclass(frozen=True)
class _SliceRecords:
    """The records made of one slice of keys, sorted by address, visible ones before hidden ones."""

    rows: pa.Table
    days: Numbers
    buckets: Numbers
    cohorts: Numbers
    visible: Mask


class _RecordRebuild:
    def __init__(
        self, task: RecordRebuildTask, table: TableDefinition, stores: Stores, keys: TableKeys, stack: ExitStack
    ) -> None:
        if table.join is None:
            raise InvariantBroken(f"{table.name} is no join table; it is rebuilt under another definition than it has")
        self._task = task
        self._table = table
        self._join = table.join
        self._stores = stores
        self._stack = stack
        self._shape = RecordShape(table, table.join)
        self._writer = RecordWriter(task, self._shape, stores, keys)
        self._settle_before = to_instant(task.settle_before) if task.settle_before else np.iinfo(np.int64).min
        self._result = RecordRebuildResult(fold_id=task.fold_id, number=task.number)
        self._sums: dict[date, DaySum] = {}
        self._moves = set[RecordMove]()
        self._kept = {item.object_id for item in task.kept}
        self._addresses: dict[Address, list[Piece]] = {}
        stored = self._shape.stored
        self._made = self._spool(stored.append(pa.field(_JOINED, pa.bool_())))
        self._place = [*self._join.key, table.partition_column, LAST_EVENT]

    def run(self) -> RecordRebuildResult:
        """Rebuilds in the order of the module's list."""
        changes, there = self._divided_changes(), self._divided_records()
        for number in range(self._task.slices):
            self._make(number, changes.take(number), there.take(number))
        return replace(
            self._result,
            sums=tuple(self._sums[day] for day in sorted(self._sums)),
            written=tuple(self._write()),
            moves=tuple(sorted(self._moves, key=lambda move: (move.from_date, move.to_date))),
        )

    def _spool(self, schema: pa.Schema) -> Spool:
        spool = Spool(schema, self._task.slices)
        self._stack.callback(spool.close)
        return spool

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self._result, name) + count for name, count in more.items()}
        self._result = replace(self._result, **counted)

    def _is_checked_here(self, item: DataFile) -> bool:
        """Whether this task compares an object with its record. Of an object that all tasks read, one task does."""
        if isinstance(item, RecordObject) and not item.merges:
            return True
        return zlib.crc32(item.key.encode()) % self._join.buckets in self._task.buckets

    def _own(self, rows: pa.Table) -> tuple[pa.Table, Numbers]:
        """The rows of the task's buckets, and their slices."""
        found = buckets_of(rows.select(self._join.key), self._join.buckets * self._task.slices)
        own = np.isin(found % self._join.buckets, self._task.buckets)
        return rows.filter(pa.array(own)), found[own] // self._join.buckets

    def _divided_changes(self) -> Spool:
        spool = self._spool(self._shape.changes)
        for _, part in read_parts(self._task.changes, self._shape.changes, self._stores, self._is_checked_here):
            spool.add(*self._own(part))
        return spool

    def _divided_records(self) -> Spool:
        """Keys and days of the stored records. Open hidden records are added up with all columns."""
        stored = self._shape.stored
        schema = pa.schema([stored.field(name) for name in self._place])
        more = [pa.field(_DAY, pa.int64()), pa.field(_KEPT, pa.bool_())]
        spool = self._spool(pa.schema([*schema, *more]))
        hidden = [item for item in self._task.records if item.part is RecordPart.HIDDEN]
        for item, part in read_parts(hidden, stored, self._stores, lambda _: True):
            self._add_hidden_there(item.date, part)
            self._divide(spool, item, part.select(self._place))
        seen = [item for item in self._task.records if item.part is RecordPart.VISIBLE]
        for item, part in read_parts([*seen, *self._task.kept], schema, self._stores, self._is_checked_here):
            self._divide(spool, item, part)
        return spool

    def _divide(self, spool: Spool, item: RecordObject, part: pa.Table) -> None:
        rows, slices = self._own(part)
        days = pa.array(np.full(rows.num_rows, times.to_day(item.date), np.int64))
        kept = pa.array(np.full(rows.num_rows, item.object_id in self._kept, bool))
        spool.add(rows.append_column(_DAY, days).append_column(_KEPT, kept), slices)

    def _add_hidden_there(self, day: date, part: pa.Table) -> None:
        erased = find_erased(self._task.erasures, part).mask
        lasts = settle_times(part[LAST_EVENT].to_numpy(), self._join) >= self._settle_before
        left = part.filter(pa.array(lasts & ~erased))
        self._add(day, hidden_there=RowSum(row_count=left.num_rows, fingerprint=fingerprint_of(left)))

    def _add(self, day: date, **sums: RowSum) -> None:
        self._sums[day] = self._sums.get(day, DaySum(date=day)) + DaySum(date=day, **sums)

    def _make(self, number: int, rows: pa.Table, there: pa.Table) -> None:
        """Makes the records of one slice."""
        changes = self._changes(rows)
        found = self._there(there)
        sessions = self._sessions(changes, found)
        if not sessions.count:
            return
        merged = merge_records(
            self._shape,
            self._shape.stored.empty_table(),
            LiftedChanges(self._shape, changes.rows),
            sessions.of_changes,
            sessions.count,
        )
        visible, joined = merged.visible(sessions.count), merged.joined(sessions.count)
        settled = settle_times(sessions.last_events, self._join) < self._settle_before
        buckets = np.zeros(sessions.count, np.int64)
        buckets[sessions.of_changes] = changes.buckets
        went = self._shape.gone(settled, visible)
        days, is_gone = self._days(sessions, found, buckets, settled, went)
        cohorts = np.where(settled, _SETTLED, cohorts_of(sessions.first_events, self._join))
        order = np.lexsort((~visible, cohorts, buckets, days))
        order = order[~is_gone[order]]
        made = _SliceRecords(
            rows=merged.into_table(order)
            .cast(self._shape.stored)
            .append_column(_JOINED, pa.array(joined[order] & visible[order])),
            days=days[order],
            buckets=buckets[order],
            cohorts=cohorts[order],
            visible=visible[order],
        )
        self._count(records=len(order))
        self._add_up(made)
        self._keep(number, made)

    def _changes(self, rows: pa.Table) -> Changes:
        erased = find_erased(self._task.erasures, rows)
        buckets = buckets_of(rows.select(self._join.key), self._join.buckets)
        changes = placed(rows, buckets, np.full(rows.num_rows, NEW, np.int64), self._shape, (), erased)
        self._count(changes=changes.new, undecided=changes.undecided)
        return changes

    def _there(self, rows: pa.Table) -> _StoredRecords:
        erased = find_erased(self._task.erasures, rows)
        self._count(undecided=erased.undecided)
        return _StoredRecords(
            keys=rows.select(self._join.key),
            first_events=event_times(rows[self._table.partition_column], self._table.zone),
            last_events=rows[LAST_EVENT].to_numpy(),
            days=rows[_DAY].to_numpy(),
            erased=erased.mask,
            kept=rows[_KEPT].to_numpy(),
        )

    def _sessions(self, changes: Changes, there: _StoredRecords) -> Sessions:
        """Finds the sessions of the changes. A stored record takes part with its first event only.

        The first event is the time of a change. Without such a change, or with an earlier one missing, the record is an
        orphan. A record that stays unchanged counts up to its last event.
        """
        stored, new = key_codes([there.keys, changes.rows.select(self._join.key)])
        window = self._join.window_seconds
        ends = np.where(there.kept, there.last_events, there.first_events)
        spans = Spans(stored, there.first_events, ends)
        own = Spans(new, changes.times, changes.times)
        sessions = find_sessions(spans, own, None if window is None else window * 1_000)
        first_changes = least_of(changes.times, sessions.of_changes, sessions.count)
        inside = sessions.of_records != ALONE
        is_orphan = ~inside
        is_orphan[inside] = there.first_events[inside] < first_changes[sessions.of_records[inside]]
        self._count(orphans=int((is_orphan & ~there.erased & ~there.kept).sum()))
        return sessions

    def _days(
        self, sessions: Sessions, there: _StoredRecords, buckets: Numbers, settled: Mask, went: Mask
    ) -> tuple[Numbers, Mask]:
        """The day of each record, and the records that are not made, such as those that `went`; notes moves of rows.

        A lost object may have held a part of a record, or all of it. If it may have held the first event, the record
        lies on the day of its first event, and its row may move there from a later day. If that day has expired, the
        record lies on the day of the lost object. An open object may have held a later event as the first.
        """
        is_new = sessions.elders < 0
        days = self._first_days(sessions, there, buckets)
        is_gone = went.copy()
        if self._task.changes_from is not None and self._join.window_seconds is not None:
            whole_from = to_instant(self._task.changes_from) + self._join.window_seconds * 1_000
            is_gone |= is_new & (sessions.first_events <= whole_from)
        is_gone[sessions.of_records[there.kept & (sessions.of_records != ALONE)]] = True
        if self._task.expired_day is not None:
            expired_day = times.to_day(self._task.expired_day)
            is_old = is_new & ~is_gone & (days <= expired_day)
            for item in sorted(self._task.lost, key=lambda item: item.date):
                if (lost_day := times.to_day(item.date)) > expired_day:
                    until = sessions.first_events if item.is_settled else sessions.last_events
                    maybe = is_old & _may_be_in(item, buckets, sessions.first_events, until)
                    days[maybe] = lost_day
                    is_old &= ~maybe
            self._count(expired=int((is_old & settled).sum()))
            is_gone |= is_old & settled
        inside = np.flatnonzero((sessions.of_records != ALONE) & ~there.kept)
        pairs = {(there.days[row], days[sessions.of_records[row]]) for row in inside.tolist()}
        for item in self._task.lost:
            if item.part is RecordPart.VISIBLE:
                lost_day = times.to_day(item.date)
                maybe = _may_be_in(item, buckets, sessions.first_events, sessions.last_events)
                maybe &= ~is_gone & (days < lost_day)
                pairs |= {(lost_day, day) for day in np.unique(days[maybe]).tolist()}
        dates = ((times.to_date(int(one)), times.to_date(int(other))) for one, other in pairs if one != other)
        self._moves |= {RecordMove(from_date=one, to_date=other) for one, other in dates}
        return days, is_gone

    def _first_days(self, sessions: Sessions, there: _StoredRecords, buckets: Numbers) -> Numbers:
        """The day of each record's eldest part; of its first event if there is none, or an earlier part may be lost."""
        born = days_of(sessions.first_events, self._table.zone).astype(np.int64)
        days = born.copy()
        found = sessions.elders >= 0
        elders = sessions.elders[found]
        days[found] = there.days[elders]
        is_earlier = np.zeros(sessions.count, bool)
        is_earlier[found] = sessions.first_events[found] < there.first_events[elders]
        if self._task.expired_day is not None:
            is_earlier &= born > times.to_day(self._task.expired_day)
        for item in self._task.lost:
            maybe = is_earlier & _may_be_in(item, buckets, sessions.first_events, sessions.first_events)
            days[maybe] = born[maybe]
        return days

    def _add_up(self, made: _SliceRecords) -> None:
        rows = made.rows.drop_columns([_JOINED])
        for day, start, end in _runs(made.days):
            own = rows.slice(start, end - start)
            visible = made.visible[start:end]
            for name, mask in (("visible", visible), ("hidden", ~visible)):
                if mask.any():
                    part = own if mask.all() else own.filter(pa.array(mask))
                    found = RowSum(row_count=part.num_rows, fingerprint=fingerprint_of(part))
                    self._add(times.to_date(day), **{name: found})

    def _keep(self, number: int, made: _SliceRecords) -> None:
        """Keeps the rows of the requested days, and the places of each address."""
        if not self._task.days:
            return
        wanted = np.isin(made.days, [times.to_day(day) for day in self._task.days])
        rows = made.rows.filter(pa.array(wanted))
        parts = [made.days[wanted], made.buckets[wanted], made.cohorts[wanted], made.visible[wanted]]
        self._made.add_to(number, rows)
        changes = np.ones(rows.num_rows, bool)
        changes[1:] = np.any([part[1:] != part[:-1] for part in parts], axis=0)
        starts = [*np.flatnonzero(changes).tolist(), rows.num_rows]
        for start, end in pairwise(starts):
            day, bucket, cohort, visible = (part[start].item() for part in parts)
            self._addresses.setdefault((day, bucket, cohort), []).append((number, visible, start, end))

    def _write(self) -> Iterator[RecordObject]:
        if not self._addresses:
            return
        slices = {number: self._made.take(number) for number in range(self._task.slices)}
        for (day, bucket, cohort), pieces in sorted(self._addresses.items()):
            parts = {
                part: _sorted(
                    pa.concat_tables(
                        slices[number].slice(start, end - start)
                        for number, visible, start, end in pieces
                        if visible == (part is RecordPart.VISIBLE)
                    ),
                    [*self._join.key, self._table.partition_column],
                )
                for part in (RecordPart.VISIBLE, RecordPart.HIDDEN)
                if any(visible == (part is RecordPart.VISIBLE) for _, visible, _, _ in pieces)
            }
            settle = settle_times(np.concatenate([rows[LAST_EVENT].to_numpy() for rows in parts.values()]), self._join)
            for part, rows in parts.items():
                yield from self._cut(times.to_date(day), bucket, cohort, part, rows, settle)

    def _cut(
        self, day: date, bucket: int, cohort: int, part: RecordPart, rows: pa.Table, settle: Numbers
    ) -> Iterator[RecordObject]:
        """Cuts records into objects: one a record file, and for settled records of a day as few as memory allows."""
        whole = BATCH_ROWS if cohort == _SETTLED else rows.num_rows
        for number, start in enumerate(range(0, rows.num_rows, whole)):
            own = rows.slice(start, whole)
            yield self._writer.write(
                own.drop_columns([_JOINED]),
                day=day,
                part=part,
                bucket=bucket,
                cohort=number if cohort == _SETTLED else cohort,
                settle=settle,
                is_settled=cohort == _SETTLED,
                joined_rows=int(own[_JOINED].to_numpy().sum()),
            )


def _may_be_in(item: RecordObject, buckets: Numbers, since: Numbers, until: Numbers) -> Mask:
    """The records whose first event may be in an object: of its bucket, with its times between two instants."""
    first = to_instant(item.min_time) if item.min_time else np.iinfo(np.int64).min
    last = to_instant(item.max_time) if item.max_time else np.iinfo(np.int64).max
    mask: Mask = (since <= last) & (until >= first)
    return mask if item.merges else mask & (buckets == item.bucket_number)


def _runs(values: Numbers) -> Iterator[tuple[int, int, int]]:
    """Yields each run of equal values, with its bounds."""
    starts = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)] if len(values) else []
    for start, end in pairwise(starts):
        yield int(values[start]), start, end


def _sorted(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    columns = [rows[name] for name in names]
    return rows.take(pa.array(record_order(np.zeros(rows.num_rows, np.int64), columns)))

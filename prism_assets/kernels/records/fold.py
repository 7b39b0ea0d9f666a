"""Folds changes into the records of some buckets: read what tells, decide, rewrite what is due, let the rest wait.

1. Read the changes, each once, and of all records only keys and times (`inputs.py`).
2. Find out what belongs together (`sessions.py`), and where it lives (`homes.py`).
3. Decide which homes are rewritten (`domain/fold_plan.py`).
4. Read those as a whole, merge (`merging.py`), and write them sorted by key.
5. Write the changes of all other homes into one object a bucket.

Nothing is replaced here: the stage does that, in one transaction, once all objects are there. Until then they are
garbage, so that a death anywhere is harmless.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.fold_plan import homes_to_rewrite
from prism_assets.domain.folding import FoldResult, FoldTask, RecordMove, RecordObject, RecordPart
from prism_assets.domain.join_delays import STEPS
from prism_assets.domain.joins import CHANGE_GROUP, CHANGE_LINE, CHANGE_OBJECT, DELETE
from prism_assets.domain.keys import TableKeys
from prism_assets.domain.tables import TableDefinition
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.parquet.large_strings import LARGE, enlarged
from prism_assets.kernels.parquet.sorting import sort_keys
from prism_assets.kernels.records.homes import Homes, Work, batches, find_work, homes_of_sessions
from prism_assets.kernels.records.identities import Identities, identities_in
from prism_assets.kernels.records.inputs import NEW, Changes, RecordPlaces, read_changes, read_places
from prism_assets.kernels.records.merging import joined_rows, merge_records, visible_rows
from prism_assets.kernels.records.outputs import write_rows
from prism_assets.kernels.records.sessions import (
    ALONE,
    Numbers,
    Sessions,
    Spans,
    buckets_of,
    dense,
    find_sessions,
    key_codes,
)
from prism_assets.kernels.records.shape import COMMITTED, LAST_EVENT, RecordShape, counted_column
from prism_assets.kernels.records.times import event_times, settle_times, settles_at, to_instant
from prism_assets.kernels.times import to_datetime
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

BATCH_ROWS = 1 << 20
"""Records that are rewritten together; homes have fewer, unless records live for ever."""
MOST_WAITING = 8
"""Objects of waiting changes of one bucket; one more, and they become one."""


def fold_buckets(task: FoldTask, table: TableDefinition, stores: Stores, lake: Lake) -> FoldResult:
    """Writes the objects that take the place of others once the stage says so.

    Nothing is raised for inputs that are not what the task says: the result's failure tells. The same task gives the
    same bytes under the same keys.
    """
    try:
        return _Fold(task, table, stores, lake.keys(table)).run()
    except MemoryError:
        raise
    except Exception as error:
        failure = failure_of(error, f"buckets {', '.join(map(str, task.buckets))} of {table.name} were folded")
    return task.failed(failure)


@dataclass
class _Done:
    """What was written and replaced so far."""

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
        self._keys = keys
        self._shape = RecordShape(table, table.join)
        self._now = to_instant(task.now)
        self._settle_before = to_instant(task.settle_before) if task.settle_before else np.iinfo(np.int64).min
        self._done = _Done()

    def run(self) -> FoldResult:
        """All of it, in the order of the module's list."""
        changes = read_changes(self._task, self._shape, self._stores)
        homes = Homes(self._task.records, self._stores)
        places = read_places(homes.all_objects(), self._shape)
        sessions = self._sessions(places, changes)
        home_of = homes_of_sessions(homes, sessions, places, changes, self._table, self._join)
        work = find_work(
            self._task, self._join, homes, home_of, sessions, places, changes,
            now_ms=self._now, settle_before_ms=self._settle_before,
        )  # fmt: skip
        due = homes_to_rewrite(self._join.publish, work.homes, work.links)
        rows = [home.rows for home in work.homes]
        for batch in batches(homes, list(due), work.links, BATCH_ROWS, rows):
            self._rewrite(batch, homes, work, sessions, places, changes)
        self._settle(homes, work)
        waits = ~np.isin(home_of[sessions.of_changes], list(due))
        pending = self._leave(changes, waits, sessions)
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
            moves=tuple(_moves(homes, work, due)),
            joined=self._done.joined,
            changed=self._done.changed,
            join_delays=tuple(self._done.join_delays.tolist()) if self._done.join_delays.any() else (),
            bucket_changes=_counted(changes.buckets[changes.sources == NEW]),
        )

    def _sessions(self, places: RecordPlaces, changes: Changes) -> Sessions:
        stored, new = key_codes([places.keys, changes.rows.select(self._join.key)])
        window = self._join.window_seconds
        spans = Spans(new, changes.times, changes.times)
        return find_sessions(places.spans(stored), spans, None if window is None else window * 1_000)

    def _rewrite(
        self,
        batch: Sequence[int],
        homes: Homes,
        work: Work,
        sessions: Sessions,
        places: RecordPlaces,
        changes: Changes,
    ) -> None:
        """Writes some homes anew: records that nothing touches as they are, the others merged with their changes."""
        stored = self._read(batch, homes)
        numbers = np.concatenate([np.flatnonzero(places.homes == home) for home in batch])
        session_of = sessions.of_records[numbers]
        touched = session_of != ALONE
        chosen = np.flatnonzero(np.isin(work.home_of[sessions.of_changes], batch))
        parts = stored.filter(pa.array(touched))
        lifted, owners = self._lifted(changes, chosen, sessions.of_changes[chosen], parts, session_of[touched])
        session_of_merged, which = dense(np.concatenate([session_of[touched], owners]), sessions.count)
        count = len(session_of_merged)
        merged = merge_records(self._shape, pa.concat_tables([parts, lifted]), which, count)
        self._count(merged)

        rows = pa.concat_tables([stored, merged])
        living = np.concatenate([places.homes[numbers], work.home_of[session_of_merged]])
        settled = np.concatenate([work.settled_records[numbers], work.settled_sessions[session_of_merged]])
        replaced = np.concatenate([touched, np.zeros(count, bool)])
        self._write(batch, homes, rows, living, settled, replaced)

    def _count(self, merged: pa.Table) -> None:
        """Counts records that this fold has changed, and how far the parts of those that are whole lie apart."""
        first_events = event_times(merged[self._table.partition_column], self._table.zone)
        delays = (merged[LAST_EVENT].to_numpy() - first_events)[joined_rows(self._shape, merged)]
        steps = np.searchsorted(np.array(STEPS) * 1_000, delays)
        self._done.changed += merged.num_rows
        self._done.join_delays += np.bincount(steps, minlength=len(STEPS) + 1)

    def _read(self, batch: Sequence[int], homes: Homes) -> pa.Table:
        """All records of some homes, in the order in which their places were read."""
        tables = [self._shape.stored.empty_table()]
        for home in batch:
            for item in homes.objects[home]:
                tables.append(item.read(self._shape.stored))
                found = buckets_of(tables[-1].select(self._join.key), self._join.buckets)
                if (found != homes.addresses[home][1]).any():
                    raise InvariantBroken(f"{item.said.key}: it holds records of other buckets than {found.min()}")
        return pa.concat_tables(tables)

    def _lifted(
        self, changes: Changes, chosen: Numbers, owners: Numbers, parts: pa.Table, session_of_parts: Numbers
    ) -> tuple[pa.Table, Numbers]:
        """The chosen changes as records, without those that are counted in the record that they are part of."""
        rows = changes.rows.take(pa.array(chosen))
        is_new = np.ones(len(chosen), bool)
        for group in self._join.groups:
            if self._shape.counts(group):
                counted, places = identities_in(parts[counted_column(group)].combine_chunks())
                own = np.flatnonzero(pc.equal(rows[CHANGE_GROUP], group.name).to_numpy())
                found = Identities.of(rows[CHANGE_OBJECT], rows[CHANGE_LINE]).take(own)
                is_new[own] &= ~_are_among(found, owners[own], counted, session_of_parts[places])
        return self._shape.lifted(rows.filter(pa.array(is_new))), owners[is_new]

    def _write(
        self,
        batch: Sequence[int],
        homes: Homes,
        rows: pa.Table,
        living: Numbers,
        settled: npt.NDArray[np.bool_],
        replaced: npt.NDArray[np.bool_],
    ) -> None:
        """Writes what stays of the records of some homes, visible and hidden ones apart, sorted by key and time."""
        visible = visible_rows(self._shape, rows)
        joined = visible & joined_rows(self._shape, rows)
        # Nothing accepted meets a settled record any more: there is nothing that one which nobody sees would win over.
        gone = settled if self._join.after == DELETE else settled & ~visible
        if self._join.after == DELETE:
            self._done.settled += int((settled & visible & ~replaced).sum())
            self._done.joined += int((settled & joined & ~replaced).sum())
        first_events = event_times(rows[self._table.partition_column], self._table.zone)
        names = (*self._join.key, self._table.partition_column)
        keys = [key for name in names for key in sort_keys(rows[name])]
        order = np.lexsort((*reversed(keys), ~visible, living))
        order = order[~(gone | replaced)[order]]
        settle = settle_times(rows[LAST_EVENT].to_numpy(), self._join)
        if rows.nbytes > LARGE:
            rows = rows.cast(enlarged(rows.schema))
        for home in batch:
            self._done.replaced += [item.object_id for item in homes.recorded(home)]
            own = order[living[order] == home]
            for part, chosen in _parts(own, visible):
                is_settled = bool(settled[own].all())
                self._put(
                    home, homes, part, rows, chosen, first_events, settle[own], int(joined[chosen].sum()), is_settled
                )
            if self._join.after != DELETE and len(own) and settled[own].all():
                self._done.settled += int(visible[own].sum())
                self._done.joined += int(joined[own].sum())

    def _put(
        self,
        home: int,
        homes: Homes,
        part: RecordPart,
        rows: pa.Table,
        chosen: Numbers,
        first_events: Numbers,
        settle: Numbers,
        joined: int,
        is_settled: bool,
    ) -> None:
        """Writes one object. Settle times are those of its home: both objects of that are rewritten together."""
        day, bucket, cohort = homes.addresses[home]
        key = self._keys.record_object(day, part, self._task.fold_id, bucket, cohort)
        taken = rows.take(pa.array(chosen)).cast(self._shape.stored)
        metric_columns = self._task.metric_columns if part is RecordPart.VISIBLE else ()
        written = write_rows(
            taken, first_events[chosen], self._table, self._stores, self._keys.bucket, key,
            kind=str(part), metric_columns=metric_columns,
        )  # fmt: skip
        self._done.written.append(
            RecordObject(
                **vars(written),
                date=day,
                part=part,
                bucket_number=bucket,
                cohort=cohort,
                fold_id=self._task.fold_id,
                earliest_settle=settles_at(int(settle.min())),
                latest_settle=settles_at(int(settle.max())),
                is_settled=is_settled,
                joined_rows=joined,
                definition_version=self._task.definition_version,
            )
        )

    def _settle(self, homes: Homes, work: Work) -> None:
        """Says of homes in which all has settled that no fold reads them again; what nobody sees there goes."""
        for home in work.settled_homes.tolist():
            for item in homes.recorded(home):
                if item.part is RecordPart.VISIBLE:
                    self._done.settled_objects.append(item.object_id)
                    self._done.settled += item.row_count
                    self._done.joined += item.joined_rows
                else:
                    self._done.replaced.append(item.object_id)

    def _leave(self, changes: Changes, waits: npt.NDArray[np.bool_], sessions: Sessions) -> int:
        """Writes the changes that wait, and returns how many; objects of which all rows still wait stay as they are."""
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
        day = self._task.now.astimezone(timezone.utc).date()
        key = self._keys.record_object(day, RecordPart.PENDING, self._task.fold_id, bucket, 0)
        taken = changes.rows.take(pa.array(rows))
        written = write_rows(
            taken, changes.times[rows], self._table, self._stores, self._keys.bucket, key, kind=str(RecordPart.PENDING)
        )
        return RecordObject(
            **vars(written),
            date=day,
            part=RecordPart.PENDING,
            bucket_number=bucket,
            cohort=0,
            fold_id=self._task.fold_id,
            earliest_settle=settles_at(int(settle.min())),
            latest_settle=settles_at(int(settle.min())),
            oldest_change=to_datetime(int(pc.min(taken[COMMITTED]).as_py())),
            definition_version=self._task.definition_version,
        )


def _moves(homes: Homes, work: Work, due: Container[int]) -> list[RecordMove]:
    """The days between which records move, each pair once: a home is due if one that is linked to it is."""
    dates = {(homes.addresses[one][0], homes.addresses[other][0]) for one, other in work.links if one in due}
    return [RecordMove(from_date=one, to_date=other) for one, other in sorted(dates) if one != other]


def _counted(buckets: Numbers) -> tuple[tuple[int, int], ...]:
    """How often each bucket is there."""
    different, counts = np.unique(buckets, return_counts=True)
    return tuple(zip(different.tolist(), counts.tolist(), strict=True))


def _parts(rows: Numbers, visible: npt.NDArray[np.bool_]) -> Iterator[tuple[RecordPart, Numbers]]:
    for part, chosen in ((RecordPart.VISIBLE, rows[visible[rows]]), (RecordPart.HIDDEN, rows[~visible[rows]])):
        if len(chosen):
            yield part, chosen


def _are_among(found: Identities, owners: Numbers, known: Identities, known_owners: Numbers) -> npt.NDArray[np.bool_]:
    """Which identities are among others of the same owner."""
    joined = known.followed_by(found)
    triples = np.column_stack([np.concatenate([known_owners, owners]), joined.objects, joined.lines])
    _, which = np.unique(triples, axis=0, return_inverse=True)
    which = which.reshape(-1)
    return np.asarray(np.isin(which[len(known_owners) :], which[: len(known_owners)]))

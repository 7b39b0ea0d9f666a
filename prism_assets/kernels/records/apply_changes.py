"""What records become once the changes that wait for them are in: found out and merged, for folds and for readers.

1. Find out what belongs together (`sessions.py`), and where it lives (`record_files.py`).
2. Read some record files as a whole, and merge their records with their changes (`merging.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.folding import FoldTask
from prism_assets.kernels.records.inputs import Changes, RecordPlaces, read_places
from prism_assets.kernels.records.merging import MergedRecords, merge_records
from prism_assets.kernels.records.record_files import RecordFiles, Work, files_of_sessions, find_work
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
from prism_assets.kernels.records.shape import LiftedChanges, RecordShape
from prism_assets.kernels.records.times import to_instant
from prism_assets.objectstore.stores import Stores

BATCH_ROWS = 1 << 20
"""Records that are merged with their changes together; record files have fewer, unless records live for ever."""


@dataclass(frozen=True)
class Found:
    """What changes there are, of which records they are, and what there is to do to the record files of these."""

    changes: Changes
    files: RecordFiles
    places: RecordPlaces
    sessions: Sessions
    work: Work


@dataclass(frozen=True)
class FileRecords:
    """The records of some record files with all of their changes, none of them gathered yet.

    `living` is the record file of each, `settled` says which settle in this fold, and `erased` which are not to be written;
    those with the numbers `changed` are made of what was there and changes.
    """

    merged: MergedRecords
    living: Numbers
    settled: npt.NDArray[np.bool_]
    erased: npt.NDArray[np.bool_]
    changed: Numbers


def find(task: FoldTask, changes: Changes, shape: RecordShape, stores: Stores) -> Found:
    """Reads of all records of the task only keys and times, and finds out which of them its changes touch."""
    files = RecordFiles(task.records, stores)
    places = read_places(files.all_objects(), shape, task.erasures)
    sessions = sessions_of(places, changes, shape)
    file_of = files_of_sessions(files, sessions, places, changes, shape.table, shape.join)
    work = find_work(
        shape.join, files, file_of, sessions, places, changes,
        now_ms=to_instant(task.now),
        settle_before_ms=to_instant(task.settle_before) if task.settle_before else np.iinfo(np.int64).min,
    )  # fmt: skip
    return Found(changes, files, places, sessions, work)


def sessions_of(places: RecordPlaces, changes: Changes, shape: RecordShape) -> Sessions:
    """Which records and changes belong together."""
    stored, new = key_codes([places.keys, changes.rows.select(shape.join.key)])
    window = shape.join.window_seconds
    spans = Spans(new, changes.times, changes.times)
    return find_sessions(places.spans(stored), spans, None if window is None else window * 1_000)


def apply_changes(batch: Sequence[int], found: Found, shape: RecordShape) -> FileRecords:
    """Reads some record files: records that nothing touches stay as they are, the others are merged with their changes.

    A record has the number of its eldest part among the stored ones, without gaps; those that are born come behind.
    """
    sessions, places, work = found.sessions, found.places, found.work
    stored = _read(batch, found.files, shape)
    numbers = np.concatenate([np.flatnonzero(places.files == file) for file in batch])
    session_of = sessions.of_records[numbers]
    touched = session_of != ALONE
    chosen = np.flatnonzero(np.isin(work.file_of[sessions.of_changes], batch))
    lifted, owners = _lifted(found.changes, chosen, shape), sessions.of_changes[chosen]

    elders = np.arange(len(numbers))
    place_of = np.full(len(places.files), ALONE, np.int64)
    place_of[numbers] = elders
    elders[touched] = place_of[sessions.elders[session_of[touched]]]
    is_elder = elders == np.arange(len(numbers))
    number_of = np.cumsum(is_elder) - 1
    met, which = dense(np.concatenate([session_of[touched], owners]), sessions.count)
    is_born = sessions.elders[met] < 0
    of_met = np.cumsum(is_born) - 1 + int(is_elder.sum())
    of_met[~is_born] = number_of[place_of[sessions.elders[met[~is_born]]]]
    record_of = np.concatenate([number_of[elders], of_met[which[int(touched.sum()) :]]])
    count = int(is_elder.sum()) + int(is_born.sum())

    return FileRecords(
        merged=merge_records(shape, stored, lifted, record_of, count),
        living=np.concatenate([places.files[numbers[is_elder]], work.file_of[met[is_born]]]),
        settled=np.concatenate([work.settled_records[numbers[is_elder]], work.settled_sessions[met[is_born]]]),
        erased=np.concatenate([places.erased.mask[numbers[is_elder]], np.zeros(int(is_born.sum()), bool)]),
        changed=of_met,
    )


def _read(batch: Sequence[int], files: RecordFiles, shape: RecordShape) -> pa.Table:
    """All records of some record files, in the order in which their places were read."""
    tables = [shape.stored.empty_table()]
    for file in batch:
        for item in files.objects[file]:
            tables.append(item.read(shape.stored))
            found = buckets_of(tables[-1].select(shape.join.key), shape.join.buckets)
            if (found != files.addresses[file][1]).any():
                raise InvariantBroken(f"{item.said.key}: it holds records of other buckets than {found.min()}")
    return pa.concat_tables(tables)


def _lifted(changes: Changes, chosen: Numbers, shape: RecordShape) -> LiftedChanges:
    """The chosen changes as records."""
    is_all = len(chosen) == changes.rows.num_rows
    return LiftedChanges(shape, changes.rows if is_all else changes.rows.take(pa.array(chosen)))

"""Merges records with their waiting changes, for folds and for readers.

1. Find sessions of records and changes (`sessions.py`), and the record file of each (`record_files.py`).
2. Read some record files as a whole, and merge their records with their changes (`merging.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.records.folding import FoldTask
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
"""Records to merge at once. A record file has fewer, unless records live for ever."""


@dataclass(frozen=True)
class Found:
    """The changes, their records, and the work on the record files of these."""

    changes: Changes
    files: RecordFiles
    places: RecordPlaces
    sessions: Sessions
    work: Work


@dataclass(frozen=True)
class FileRecords:
    """The records of some record files, merged with all of their changes, before any column is gathered."""

    merged: MergedRecords
    living: Numbers
    """The record file of each record."""
    settled: npt.NDArray[np.bool_]
    """Records that settle in this fold."""
    erased: npt.NDArray[np.bool_]
    """Records that must not be written."""
    changed: Numbers
    """The numbers of the records with changes."""


def find(task: FoldTask, changes: Changes, shape: RecordShape, stores: Stores) -> Found:
    """Finds the records that changes touch. Of the records only keys and times are read."""
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
    """The sessions of stored records and changes."""
    stored, new = key_codes([places.keys, changes.rows.select(shape.join.key)])
    window = shape.join.window_seconds
    spans = Spans(new, changes.times, changes.times)
    return find_sessions(places.spans(stored), spans, None if window is None else window * 1_000)


def apply_changes(batch: Sequence[int], found: Found, shape: RecordShape) -> FileRecords:
    """Reads some record files, and merges their records with the changes. Records without a change stay unchanged.

    Records are numbered without gaps: first in the order of their eldest stored parts, then the new ones.
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
    """All records of some record files, in the order of `read_places`."""
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

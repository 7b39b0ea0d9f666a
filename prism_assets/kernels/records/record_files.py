"""Record files, the objects of one date, bucket and cohort; and the work of a fold on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt

from prism_assets.domain.records.fold_plan import RecordFile
from prism_assets.domain.records.folding import RecordObject, RecordPart
from prism_assets.domain.records.joins import DELETE, JoinOptions
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels import times
from prism_assets.kernels.records.inputs import Changes, RecordPlaces, StoredObject
from prism_assets.kernels.records.sessions import ALONE, Numbers, Sessions, least_of
from prism_assets.kernels.records.shape import COMMITTED
from prism_assets.kernels.records.times import cohorts_of, days_of, settle_times
from prism_assets.objectstore.stores import Stores

Address = tuple[date, int, int]
"""Date, bucket and cohort of a record file."""


class RecordFiles:
    """The numbered record files of some buckets: first those with objects, in the order of addresses, then new ones."""

    def __init__(self, records: Sequence[RecordObject], stores: Stores) -> None:
        stored = sorted(
            (item for item in records if item.part is not RecordPart.PENDING),
            key=lambda item: (item.date, item.bucket_number, item.cohort, item.part.value, item.key),
        )
        self.addresses: list[Address] = []
        self.objects: list[list[StoredObject]] = []
        self._recorded: list[list[RecordObject]] = []
        self._numbers: dict[Address, int] = {}
        for item in stored:
            file = self.at((item.date, item.bucket_number, item.cohort))
            self.objects[file].append(StoredObject(item, stores))
            self._recorded[file].append(item)

    def at(self, address: Address) -> int:
        """The number of the record file at an address. A missing one is added."""
        if address not in self._numbers:
            self._numbers[address] = len(self.addresses)
            self.addresses.append(address)
            self.objects.append([])
            self._recorded.append([])
        return self._numbers[address]

    def all_objects(self) -> Iterator[tuple[int, StoredObject]]:
        """Every object with the number of its record file."""
        return ((file, item) for file, objects in enumerate(self.objects) for item in objects)

    def recorded(self, file: int) -> list[RecordObject]:
        """The recorded objects of a record file."""
        return self._recorded[file]


def files_of_sessions(
    files: RecordFiles,
    sessions: Sessions,
    places: RecordPlaces,
    changes: Changes,
    table: TableDefinition,
    join: JoinOptions,
) -> Numbers:
    """The record file of each session: of its eldest stored record, or, without one, of its first event."""
    found = np.full(sessions.count, ALONE, np.int64)
    is_born = sessions.elders < 0
    found[~is_born] = places.files[sessions.elders[~is_born]]
    buckets = np.zeros(sessions.count, np.int64)
    buckets[sessions.of_changes] = changes.buckets
    born = np.flatnonzero(is_born)
    first = sessions.first_events[born]
    days, cohorts = days_of(first, table.zone).astype(np.int64), cohorts_of(first, join)
    order = np.lexsort((cohorts, buckets[born], days))
    sorted_addresses = np.column_stack([days, buckets[born], cohorts])[order]
    begins = np.ones(len(born), bool)
    begins[1:] = (sorted_addresses[1:] != sorted_addresses[:-1]).any(axis=1)
    different = sorted_addresses[begins].tolist()
    numbers = [files.at((times.to_date(day), bucket, cohort)) for day, bucket, cohort in different]
    found[born[order]] = np.repeat(numbers, np.diff([*np.flatnonzero(begins), len(born)])) if len(born) else ALONE
    return found


@dataclass(frozen=True)
class Work:
    """The figures that decide about each record file, and the records that settle."""

    files: tuple[RecordFile, ...]
    links: tuple[tuple[int, int], ...]
    """Pairs of record files with a common record: the file that the record leaves, then its new one."""
    file_of: Numbers
    """The record file of each session."""
    settled_records: npt.NDArray[np.bool_]
    """Stored records that settle in this fold."""
    settled_sessions: npt.NDArray[np.bool_]
    """Sessions that settle in this fold."""
    settled_files: Numbers
    """Record files with settled records only, and without a change."""


def find_work(
    join: JoinOptions,
    files: RecordFiles,
    file_of: Numbers,
    sessions: Sessions,
    places: RecordPlaces,
    changes: Changes,
    *,
    now_ms: int,
    settle_before_ms: int,
) -> Work:
    """Counts the figures that decide which record files are written again."""
    count = len(files.addresses)
    inside = np.flatnonzero(sessions.of_records != ALONE)
    spanned, own = places.files[inside], file_of[sessions.of_records[inside]]
    of_pairs, in_pairs = _pairs(
        np.concatenate([sessions.of_records[inside], np.arange(sessions.count)]), np.concatenate([spanned, file_of])
    )
    committed = changes.rows[COMMITTED].to_numpy()
    waits_since = least_of(committed, sessions.of_changes, sessions.count)
    oldest = least_of(waits_since[of_pairs], in_pairs, count)
    touched = np.bincount(in_pairs, minlength=count)
    rows = np.bincount(places.files, minlength=count)

    ends = places.last_events.copy()
    ends[inside] = sessions.last_events[sessions.of_records[inside]]
    settled_records = settle_times(ends, join) < settle_before_ms
    settled_sessions = settle_times(sessions.last_events, join) < settle_before_ms
    must = np.zeros(count, bool)
    must[in_pairs[settled_sessions[of_pairs]]] = True
    if join.after == DELETE:
        must[places.files[settled_records]] = True
    must[places.files[places.erased.mask]] = True
    lasting = np.bincount(places.files[~settled_records], minlength=count)
    is_over = (rows > 0) & (lasting == 0) & (touched == 0) & ~must
    return Work(
        files=tuple(
            RecordFile(
                rows=int(rows[file]),
                touched=int(touched[file]),
                waited_seconds=max(0.0, (now_ms - int(oldest[file])) / 1_000) if touched[file] else 0.0,
                settles=bool(must[file]),
            )
            for file in range(count)
        ),
        links=tuple(
            zip(*(side.tolist() for side in _pairs(spanned[spanned != own], own[spanned != own])), strict=True)
        ),
        file_of=file_of,
        settled_records=settled_records,
        settled_sessions=settled_sessions,
        settled_files=np.flatnonzero(is_over) if join.after != DELETE else np.zeros(0, np.int64),
    )


def _pairs(ones: Numbers, others: Numbers) -> tuple[Numbers, Numbers]:
    """Each pair of numbers once."""
    width = int(others.max(initial=0)) + 1
    both = np.sort(ones * width + others)  # np.unique hashes, and is slower for mostly different values
    is_first = np.ones(len(both), bool)
    is_first[1:] = both[1:] != both[:-1]
    return both[is_first] // width, both[is_first] % width


def batches(
    files: RecordFiles, due: Sequence[int], links: Sequence[tuple[int, int]], most_rows: int, rows: Sequence[int]
) -> Iterator[list[int]]:
    """Yields due record files, as many at a time as fit in memory. Linked ones stay together."""
    chief = {file: file for file in due}

    def chief_of(file: int) -> int:
        while chief[file] != file:
            file = chief[file]
        return file

    for one, other in links:
        if one in chief and other in chief:
            low, high = sorted((chief_of(one), chief_of(other)))
            chief[high] = low
    clusters: dict[int, list[int]] = {}
    for file in sorted(due, key=lambda file: files.addresses[file]):
        clusters.setdefault(chief_of(file), []).append(file)
    batch: list[int] = []
    size = 0
    for cluster in clusters.values():
        more = sum(rows[file] for file in cluster)
        if batch and size + more > most_rows:
            yield batch
            batch, size = [], 0
        batch, size = [*batch, *cluster], size + more
    if batch:
        yield batch

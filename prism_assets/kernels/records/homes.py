"""Where records live: the objects of one date, bucket and cohort, and what a fold has to do to each of these homes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt

from prism_assets.domain.fold_plan import Home
from prism_assets.domain.folding import RecordObject, RecordPart
from prism_assets.domain.joins import DELETE, JoinOptions
from prism_assets.domain.tables import TableDefinition
from prism_assets.kernels import times
from prism_assets.kernels.records.inputs import Changes, RecordPlaces, StoredObject
from prism_assets.kernels.records.sessions import ALONE, Numbers, Sessions, least_of
from prism_assets.kernels.records.shape import COMMITTED
from prism_assets.kernels.records.times import cohorts_of, days_of, settle_times
from prism_assets.objectstore.stores import Stores

Address = tuple[date, int, int]
"""Of a home: date, bucket and cohort."""


class Homes:
    """All homes of some buckets by their numbers: those with objects in the order of their addresses, then new ones."""

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
            home = self.at((item.date, item.bucket_number, item.cohort))
            self.objects[home].append(StoredObject(item, stores))
            self._recorded[home].append(item)

    def at(self, address: Address) -> int:
        """The number of the home at an address, a new one if there is none."""
        if address not in self._numbers:
            self._numbers[address] = len(self.addresses)
            self.addresses.append(address)
            self.objects.append([])
            self._recorded.append([])
        return self._numbers[address]

    def all_objects(self) -> Iterator[tuple[int, StoredObject]]:
        """Every object with the number of its home."""
        return ((home, item) for home, objects in enumerate(self.objects) for item in objects)

    def recorded(self, home: int) -> list[RecordObject]:
        """What is recorded of the objects of a home."""
        return self._recorded[home]


def homes_of_sessions(
    homes: Homes, sessions: Sessions, places: RecordPlaces, changes: Changes, table: TableDefinition, join: JoinOptions
) -> Numbers:
    """The home of each session: that of its eldest stored record, or where one with its first event is born."""
    found = np.full(sessions.count, ALONE, np.int64)
    is_born = sessions.elders < 0
    found[~is_born] = places.homes[sessions.elders[~is_born]]
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
    numbers = [homes.at((times.to_date(day), bucket, cohort)) for day, bucket, cohort in different]
    found[born[order]] = np.repeat(numbers, np.diff([*np.flatnonzero(begins), len(born)])) if len(born) else ALONE
    return found


@dataclass(frozen=True)
class Work:
    """What there is to do: of each home the figures that decide, of each session its home, and what has settled.

    `settled_records` and `settled_sessions` say what settles in this fold; `links` are homes that a record spans, that
    which it leaves before that which it goes to. `settled_homes` hold nothing else, and no change touches them.
    """

    homes: tuple[Home, ...]
    links: tuple[tuple[int, int], ...]
    home_of: Numbers
    settled_records: npt.NDArray[np.bool_]
    settled_sessions: npt.NDArray[np.bool_]
    settled_homes: Numbers


def find_work(
    join: JoinOptions,
    homes: Homes,
    home_of: Numbers,
    sessions: Sessions,
    places: RecordPlaces,
    changes: Changes,
    *,
    now_ms: int,
    settle_before_ms: int,
) -> Work:
    """Counts what decides which homes are written anew."""
    count = len(homes.addresses)
    inside = np.flatnonzero(sessions.of_records != ALONE)
    spanned, own = places.homes[inside], home_of[sessions.of_records[inside]]
    of_pairs, in_pairs = _pairs(
        np.concatenate([sessions.of_records[inside], np.arange(sessions.count)]), np.concatenate([spanned, home_of])
    )
    committed = changes.rows[COMMITTED].to_numpy()
    waits_since = least_of(committed, sessions.of_changes, sessions.count)
    oldest = least_of(waits_since[of_pairs], in_pairs, count)
    touched = np.bincount(in_pairs, minlength=count)
    rows = np.bincount(places.homes, minlength=count)

    ends = places.last_events.copy()
    ends[inside] = sessions.last_events[sessions.of_records[inside]]
    settled_records = settle_times(ends, join) < settle_before_ms
    settled_sessions = settle_times(sessions.last_events, join) < settle_before_ms
    must = np.zeros(count, bool)
    must[in_pairs[settled_sessions[of_pairs]]] = True
    if join.after == DELETE:
        must[places.homes[settled_records]] = True
    must[places.homes[places.erased.mask]] = True
    lasting = np.bincount(places.homes[~settled_records], minlength=count)
    is_over = (rows > 0) & (lasting == 0) & (touched == 0) & ~must
    return Work(
        homes=tuple(
            Home(
                rows=int(rows[home]),
                touched=int(touched[home]),
                waited_seconds=max(0.0, (now_ms - int(oldest[home])) / 1_000) if touched[home] else 0.0,
                settles=bool(must[home]),
            )
            for home in range(count)
        ),
        links=tuple(
            zip(*(side.tolist() for side in _pairs(spanned[spanned != own], own[spanned != own])), strict=True)
        ),
        home_of=home_of,
        settled_records=settled_records,
        settled_sessions=settled_sessions,
        settled_homes=np.flatnonzero(is_over) if join.after != DELETE else np.zeros(0, np.int64),
    )


def _pairs(ones: Numbers, others: Numbers) -> tuple[Numbers, Numbers]:
    """Each different pair of two numbers once."""
    width = int(others.max(initial=0)) + 1
    both = np.sort(ones * width + others)  # np.unique hashes, which takes longer where most are different
    is_first = np.ones(len(both), bool)
    is_first[1:] = both[1:] != both[:-1]
    return both[is_first] // width, both[is_first] % width


def batches(
    homes: Homes, due: Sequence[int], links: Sequence[tuple[int, int]], most_rows: int, rows: Sequence[int]
) -> Iterator[list[int]]:
    """Homes that are due, as many at a time as memory takes; those that are linked together."""
    chief = {home: home for home in due}

    def chief_of(home: int) -> int:
        while chief[home] != home:
            home = chief[home]
        return home

    for one, other in links:
        if one in chief and other in chief:
            low, high = sorted((chief_of(one), chief_of(other)))
            chief[high] = low
    clusters: dict[int, list[int]] = {}
    for home in sorted(due, key=lambda home: homes.addresses[home]):
        clusters.setdefault(chief_of(home), []).append(home)
    batch: list[int] = []
    size = 0
    for cluster in clusters.values():
        more = sum(rows[home] for home in cluster)
        if batch and size + more > most_rows:
            yield batch
            batch, size = [], 0
        batch, size = [*batch, *cluster], size + more
    if batch:
        yield batch

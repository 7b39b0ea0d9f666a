"""Finds sessions: records and changes of one key, each at most a window after the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prism_assets.kernels.fingerprint import row_hashes

Numbers = npt.NDArray[np.int64]
ALONE = -1
"""The session of a record without a change."""


def key_codes(parts: Sequence[pa.Table]) -> list[Numbers]:
    """A number for each row of some tables. Rows share a number if all of their columns are equal."""
    codes = np.zeros(sum(part.num_rows for part in parts), np.int64)
    for position, name in enumerate(parts[0].column_names):
        column = pa.chunked_array([chunk for part in parts for chunk in part[name].chunks], parts[0][name].type)
        coded = column.dictionary_encode()
        numbers = [np.asarray(chunk.indices.to_numpy(zero_copy_only=False)) for chunk in coded.chunks]
        found = np.concatenate(numbers).astype(np.int64) if numbers else codes
        if position:
            _, codes = np.unique(codes * (found.max(initial=0) + 1) + found, return_inverse=True)
        else:
            codes = found
    bounds = np.cumsum([part.num_rows for part in parts])[:-1]
    return [np.asarray(part, np.int64) for part in np.split(codes, bounds)]


def buckets_of(keys: pa.Table, buckets: int) -> Numbers:
    """The bucket of each key: the last bits of a stable hash. Doubling the buckets divides each in two."""
    hashes = [row_hashes(batch) for batch in keys.to_batches(max_chunksize=1 << 14)]
    whole = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    return (whole & np.uint64(buckets - 1)).astype(np.int64)


@dataclass(frozen=True)
class Sessions:
    """Sessions, each with its stored records and changes. A session becomes one record.

    - `of_records`, `of_changes`: the session of each stored record and change, or ALONE.
    - `elders`: the stored record with the first event of each session, or -1 for a new record.
    """

    of_records: Numbers
    of_changes: Numbers
    first_events: Numbers
    last_events: Numbers
    elders: Numbers

    @property
    def count(self) -> int:
        """The number of sessions."""
        return len(self.elders)


@dataclass(frozen=True)
class Spans:
    """Numbers of keys, with the first and last times of their events."""

    keys: Numbers
    first_events: Numbers
    last_events: Numbers


def find_sessions(records: Spans, changes: Spans, window_ms: int | None) -> Sessions:
    """Joins changes with each other and with the stored records they touch. None is a window without end."""
    touched = np.isin(records.keys, changes.keys)
    rows = np.concatenate([np.flatnonzero(touched), np.arange(len(changes.keys))])
    of_record = np.arange(len(rows)) < int(touched.sum())
    keys = np.concatenate([records.keys[touched], changes.keys])
    starts = np.concatenate([records.first_events[touched], changes.first_events])
    ends = np.concatenate([records.last_events[touched], changes.last_events])

    numbers = keys if window_ms is None else _cut(keys, starts, ends, window_ms)
    is_touched = np.zeros(int(numbers.max(initial=-1)) + 1, bool)
    is_touched[numbers[~of_record]] = True
    renumbered = np.where(is_touched, np.cumsum(is_touched) - 1, ALONE)

    of_records = np.full(len(records.keys), ALONE, np.int64)
    of_records[rows[of_record]] = renumbered[numbers[of_record]]
    of_changes = renumbered[numbers[~of_record]] if len(rows) else np.zeros(0, np.int64)
    inside = renumbered[numbers] != ALONE
    return _described(renumbered[numbers][inside], starts[inside], ends[inside], of_records, of_changes, records)


def _cut(keys: Numbers, starts: Numbers, ends: Numbers, window_ms: int) -> Numbers:
    """The number of the session of each item."""
    order = np.lexsort((starts, keys))
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = np.cumsum(_begins(keys[order], starts[order], ends[order], window_ms)) - 1
    return numbers


def _begins(keys: Numbers, starts: Numbers, ends: Numbers, window_ms: int) -> npt.NDArray[np.bool_]:
    """Whether a session begins with an item. Items are sorted by key and start; records of a key are disjoint."""
    begins = np.ones(len(keys), bool)
    begins[1:] = keys[1:] != keys[:-1]
    if not len(keys):
        return begins
    longest = np.maximum.accumulate(np.where(ends > starts, np.arange(len(keys)), -1))[:-1]
    inside = (longest >= 0) & (keys[longest] == keys[:-1])
    reach = np.where(inside, np.maximum(starts[:-1], ends[longest]), starts[:-1])
    begins[1:] |= starts[1:] - reach > window_ms
    return begins


def _described(
    numbers: Numbers, starts: Numbers, ends: Numbers, of_records: Numbers, of_changes: Numbers, records: Spans
) -> Sessions:
    count = int(numbers.max(initial=-1)) + 1
    first_events, last_events = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first_events, numbers, starts)
    np.maximum.at(last_events, numbers, ends)
    elders = np.full(count, -1, np.int64)
    inside = np.flatnonzero(of_records != ALONE)
    youngest_first = inside[np.argsort(-records.first_events[inside], kind="stable")]
    elders[of_records[youngest_first]] = youngest_first
    return Sessions(of_records, of_changes, first_events, last_events, elders)


def least_of(values: Numbers, owners: Numbers, count: int) -> Numbers:
    """The least value of each owner; the greatest int64 for an owner without one."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, owners, values)
    return found


def dense(numbers: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The distinct numbers, all below `count`, and the place of each number among them."""
    is_there = np.zeros(count, bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]

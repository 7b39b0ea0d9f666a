"""Merges records that are parts of one: a row number per slot and record, then one gather per column.

Associative, commutative and idempotent: what a slot holds is the greatest of what it held before, so that records are
the same however often, in which order and in what portions changes came. Sums and counts alone add up what they are
given; the fold sees to it that it is given each change once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.joins import COUNT, MAX, MIN, SUM, Group
from prism_assets.domain.types import DecimalType, WholeNumberType
from prism_assets.kernels.parquet.sorting import Key, sort_keys
from prism_assets.kernels.records.identities import identities_in, identity_texts
from prism_assets.kernels.records.shape import (
    LAST_EVENT,
    RecordShape,
    Slot,
    counted_column,
    deleted_column,
)
from prism_assets.kernels.records.times import event_times

Numbers = npt.NDArray[np.int64]
NOBODY = -1


def merge_records(shape: RecordShape, parts: pa.Table, owners: Numbers, count: int) -> pa.Table:
    """The `count` records that stored records and lifted changes are parts of; `owners` says of which each is one."""
    merged = _Merging(shape, parts, owners, count)
    firsts = merged.first_parts()
    for name in (*shape.join.key, shape.table.partition_column):
        merged.take(name, firsts)
    for slot in shape.slots:
        merged.fill(slot)
    for group in shape.join.groups:
        merged.add_up(group)
    merged.columns[LAST_EVENT] = merged.last_events()
    return pa.table([merged.columns[field.name] for field in shape.stored], schema=shape.stored)


def visible_rows(shape: RecordShape, records: pa.Table) -> npt.NDArray[np.bool_]:
    """Which records readers see: those with a group that is there, or whose owner is."""
    seen = np.zeros(records.num_rows, bool)
    for group in [shape.join.owner] if shape.join.owner else shape.join.groups:
        seen |= _is_there(records, group)
    return seen


def joined_rows(shape: RecordShape, records: pa.Table) -> npt.NDArray[np.bool_]:
    """Which records have all groups: each has a winner that does not delete it."""
    joined = np.ones(records.num_rows, bool)
    for group in shape.join.groups:
        joined &= _is_there(records, group)
    return joined


def _is_there(records: pa.Table, group: Group) -> npt.NDArray[np.bool_]:
    alive: npt.NDArray[np.bool_] = pc.fill_null(pc.invert(records[deleted_column(group)]), False).to_numpy()
    return alive


class _Merging:
    """The columns of merged records, as far as they are made."""

    def __init__(self, shape: RecordShape, parts: pa.Table, owners: Numbers, count: int) -> None:
        self._shape = shape
        self._parts = parts
        self._owners = owners
        self._count = count
        self.columns: dict[str, Any] = {}

    def take(self, name: str, rows: Numbers) -> None:
        """Gathers a column: of each record the value of one part, or null where nobody has it."""
        places = pa.array(rows, mask=rows == NOBODY)
        self.columns[name] = self._parts[name].take(places)

    def first_parts(self) -> Numbers:
        """The part of each record with the first event."""
        times = event_times(self._parts[self._shape.table.partition_column], self._shape.table.zone)
        return self._greatest(np.arange(len(times)), [-times])

    def last_events(self) -> pa.Array:
        """The time of the last event of each record."""
        found = np.full(self._count, np.iinfo(np.int64).min)
        np.maximum.at(found, self._owners, self._parts[LAST_EVENT].to_numpy())
        return pa.array(found)

    def fill(self, slot: Slot) -> None:
        """Finds out which part holds a slot of each record, and takes from it what the slot gives."""
        holders = self._holders_of_value(slot) if slot.kind == "value" else self._holders(slot)
        for name in dict.fromkeys((*slot.columns, *slot.place)):
            self.take(name, holders)
        if slot.kind == "winner":
            for merge in (MIN, MAX):
                for name in self._shape.columns_of(slot.group, merge):
                    self.take(name, self._extremes(name, merge))

    def _holders(self, slot: Slot) -> Numbers:
        rows = self._filled(slot.object)
        keys = _order([self._parts[name].take(rows)] for name in slot.place)
        return self._greatest(rows, (-key for key in keys) if slot.kind == "first" else keys)

    def _holders_of_value(self, slot: Slot) -> Numbers:
        """The last part with a value, unless a delete of the group comes behind it."""
        (delete,) = (one for one in self._shape.slots if one.kind == "delete" and one.group == slot.group)
        rows, deletes = self._filled(slot.object), self._filled(delete.object)
        places = zip(slot.place, delete.place, strict=True)
        keys = _order([self._parts[one].take(rows), self._parts[other].take(deletes)] for one, other in places)
        candidates = np.concatenate([rows, np.full(len(deletes), NOBODY)])
        owners = np.concatenate([self._owners[rows], self._owners[deletes]])
        return self._greatest(candidates, keys, owners)

    def _extremes(self, name: str, merge: str) -> Numbers:
        rows = self._filled(name)
        keys = _order([[self._parts[name].take(rows)]])
        return self._greatest(rows, (-key for key in keys) if merge == MIN else keys)

    def _filled(self, name: str) -> Numbers:
        return np.flatnonzero(self._parts[name].is_valid().to_numpy())

    def _greatest(self, rows: Numbers, keys: Iterable[Key], owners: Numbers | None = None) -> Numbers:
        """Of each record the one of `rows` with the greatest keys, the most significant first.

        Key by key, only those that tie so far are looked at further: mostly the first key decides, and none is sorted.
        """
        owners = self._owners[rows] if owners is None else owners
        left = np.arange(len(rows))
        wanted = int(np.count_nonzero(np.bincount(owners, minlength=self._count)))
        for key in keys:
            if len(left) == wanted:
                break
            values, of = key[left], owners[left]
            best = np.full(self._count, values.min(), values.dtype)
            np.maximum.at(best, of, values)
            left = left[values == best[of]]
        found = np.full(self._count, NOBODY, np.int64)
        found[owners[left]] = rows[left]
        return found

    def add_up(self, group: Group) -> None:
        """Adds up sums and counts, and keeps which changes are in them."""
        for name in self._shape.columns_of(group, COUNT):
            self.columns[name] = self._sums(name).cast(pa.int64())
        for name in self._shape.columns_of(group, SUM):
            total = self._sums(self._shape.sum_column(name))
            self.columns[self._shape.sum_column(name)] = total
            self.columns[name] = _fitting(total, self._shape, name)
        if self._shape.counts(group):
            counted = self._parts[counted_column(group)].combine_chunks()
            identities, rows = identities_in(counted)
            self.columns[counted_column(group)] = identity_texts(identities, self._owners[rows], self._count)

    def _sums(self, name: str) -> Any:
        """The sum of each record; null where no part has a value."""
        table = pa.table({"owner": self._owners, "value": self._parts[name]})
        found = table.group_by("owner", use_threads=False).aggregate([("value", "sum")])
        rows = np.full(self._count, NOBODY, np.int64)
        rows[found["owner"].to_numpy()] = np.arange(found.num_rows)
        return found["value_sum"].take(pa.array(rows, mask=rows == NOBODY))


def _fitting(total: Any, shape: RecordShape, name: str) -> Any:
    """A sum as its column shows it: null where it has outgrown the column."""
    kind, stored = shape.table.column(name).type, shape.seen.field(name).type
    if isinstance(kind, WholeNumberType):
        lowest, highest = kind.lowest, kind.highest
    else:
        assert isinstance(kind, DecimalType)
        lowest, highest = -(10 ** (kind.precision - kind.scale)) + 1, 10 ** (kind.precision - kind.scale) - 1
    scale = total.type.scale
    whole = total if not scale else pc.round(pc.abs(total), ndigits=0, round_mode="down").cast(pa.decimal128(38, 0))
    low, high = (pa.scalar(bound, pa.int64()).cast(whole.type) for bound in (lowest, highest))
    fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    return pc.if_else(fits, total, pa.scalar(None, total.type)).cast(stored)


def _order(columns: Iterable[Sequence[Any]]) -> Iterator[Key]:
    """Numbers that order rows by some columns, nulls first, as they are asked for; each column is given in parts."""
    for parts in columns:
        whole = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        *nulls, key = sort_keys(whole)
        yield from (-null for null in nulls)
        yield key

"""Merges the parts of records: finds a row number per slot and record, then gathers each column once.

The merge is associative, commutative and idempotent, because a slot holds the greatest of its values. Records therefore
do not depend on the number, order or portions of changes. Only sums and counts add up, and get each change once: a fold
takes each object of changes in the transaction that commits its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.columns.types import DecimalType, WholeNumberType
from prism_assets.domain.records.joins import COUNT, MAX, MIN, SUM, Group
from prism_assets.kernels.nested_arrays import leaf_types
from prism_assets.kernels.parquet.large_strings import LARGE, enlarged_type
from prism_assets.kernels.parquet.sorting import Key, sort_keys
from prism_assets.kernels.records.shape import (
    LAST_EVENT,
    LiftedChanges,
    RecordShape,
    Slot,
    deleted_column,
)
from prism_assets.kernels.records.times import event_times

Numbers = npt.NDArray[np.int64]
NOBODY = -1


def merge_records(
    shape: RecordShape, stored: pa.Table, lifted: LiftedChanges, owners: Numbers, count: int
) -> MergedRecords:
    """Merges parts, stored records and then lifted changes, to `count` records.

    `owners` has the record of each part. Each record has at least one part.
    """
    merging = _ColumnMerge(shape, stored, lifted, owners, count)
    firsts = merging.first_parts()
    for name in (*shape.join.key, shape.table.partition_column):
        merging.take(name, firsts)
    for slot in shape.slots:
        merging.fill(slot)
    for group in shape.join.groups:
        merging.add_up(group)
    merging.add_last_events()
    return MergedRecords(shape, merging.sources)


class Source:
    """The places of the values of a column: for each record the row of a part, or of `made` values after the parts."""

    def __init__(self, stored: Any, lifted: Callable[[], Any], rows: Numbers, made: Any = None) -> None:
        self._stored, self._lifted, self._made = stored, lifted, made
        self._rows = rows

    def take(self, records: Numbers) -> Any:
        """The values of some records."""
        lifted = self._lifted()
        parts = [chunk for part in (self._stored, lifted, self._made) if part is not None for chunk in _chunks(part)]
        rows = self._rows[records]
        whole = whole_column(pa.chunked_array(parts, lifted.type))
        return pa.chunked_array([whole.take(pa.array(rows, mask=rows == NOBODY))])


@dataclass
class MergedRecords:
    """Merged records before their columns are gathered."""

    shape: RecordShape
    sources: dict[str, Source]

    def column(self, name: str, records: Numbers) -> Any:
        """A column of some records."""
        return self.sources[name].take(records)

    def into_table(self, records: Numbers) -> pa.Table:
        """Some records in this order. Call it once: the source of each column is released after use."""
        columns = {field.name: self.sources.pop(field.name).take(records) for field in self.shape.stored}
        return pa.table(columns)

    def visible(self, count: int) -> npt.NDArray[np.bool_]:
        """The records that readers see: those with any group, or, in a table with an owner, with that group."""
        seen, join = np.zeros(count, bool), self.shape.join
        for group in [join.owner] if join.owner else join.groups:
            seen |= self._has(group, count)
        return seen

    def joined(self, count: int) -> npt.NDArray[np.bool_]:
        """The records with all groups: the winner of each group is no delete."""
        joined = np.ones(count, bool)
        for group in self.shape.join.groups:
            joined &= self._has(group, count)
        return joined

    def _has(self, group: Group, count: int) -> npt.NDArray[np.bool_]:
        deleted = self.column(deleted_column(group), np.arange(count))
        alive: npt.NDArray[np.bool_] = pc.fill_null(pc.invert(deleted), False).to_numpy()
        return alive


def whole_column(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, with 64-bit offsets for long strings."""
    if column.nbytes > LARGE and any(map(pa.types.is_string, leaf_types(column.type))):
        column = column.cast(enlarged_type(column.type))
    return column.combine_chunks()


class _ColumnMerge:
    """Finds the places of the columns of merged records, one after the other."""

    def __init__(
        self, shape: RecordShape, stored: pa.Table, lifted: LiftedChanges, owners: Numbers, count: int
    ) -> None:
        self._shape = shape
        self._stored = stored
        self._lifted = lifted
        self._owners = owners
        self._count = count
        self._is_shared = np.bincount(owners, minlength=count) > 1
        self.sources: dict[str, Source] = {}

    def take(self, name: str, rows: Numbers, made: Any = None) -> None:
        """Takes a column from one row for each record, of a part or of `made`; null for NOBODY."""
        self.sources[name] = Source(self._stored[name], partial(self._lifted.column, name), rows, made)

    def _part(self, name: str) -> pa.ChunkedArray:
        """A column of all parts."""
        parts = (self._stored[name], self._lifted.column(name))
        return pa.chunked_array([chunk for part in parts for chunk in _chunks(part)], self._stored[name].type)

    def first_parts(self) -> Numbers:
        """The part of each record with the first event."""
        times = event_times(self._part(self._shape.table.partition_column), self._shape.table.zone)
        return self._greatest(np.arange(len(times)), lambda rows: [_descending(times[rows])])

    def add_last_events(self) -> None:
        """Finds the time of the last event of each record."""
        found = np.full(self._count, np.iinfo(np.int64).min)
        np.maximum.at(found, self._owners, self._part(LAST_EVENT).to_numpy())
        self._take_made(LAST_EVENT, pa.array(found))

    def fill(self, slot: Slot) -> None:
        """Finds the part with a slot of each record, and takes the columns of the slot from it."""
        holders = self._holders_of_value(slot) if slot.kind == "value" else self._holders(slot)
        for name in dict.fromkeys((*slot.columns, *slot.place)):
            self.take(name, holders)
        if slot.kind == "winner":
            for merge in (MIN, MAX):
                for name in self._shape.columns_of(slot.group, merge):
                    self.take(name, self._extremes(name, merge))

    def _holders(self, slot: Slot) -> Numbers:
        def keys(rows: Numbers) -> Iterator[Key]:
            found = _order([self._part(name).take(rows)] for name in slot.place)
            return map(_descending, found) if slot.kind == "first" else found

        return self._greatest(self._filled(slot.object), keys)

    def _holders_of_value(self, slot: Slot) -> Numbers:
        """The last part with a value, unless a later part deletes the group."""
        (delete,) = (one for one in self._shape.slots if one.kind == "delete" and one.group == slot.group)
        rows, deletes = self._filled(slot.object), self._filled(delete.object)
        count = len(self._owners)
        candidates = np.concatenate([rows, deletes + count])

        def keys(chosen: Numbers) -> Iterator[Key]:
            of_values, of_deletes = chosen[chosen < count], chosen[chosen >= count] - count
            places = zip(slot.place, delete.place, strict=True)
            return _order(
                [self._part(one).take(of_values), self._part(other).take(of_deletes)] for one, other in places
            )

        owners = self._owners[np.concatenate([rows, deletes])]
        is_alone = np.bincount(owners, minlength=self._count) == 1
        found = self._greatest(candidates, keys, owners, ~is_alone)
        return np.where(found < count, found, NOBODY)

    def _extremes(self, name: str, merge: str) -> Numbers:
        def keys(rows: Numbers) -> Iterator[Key]:
            found = _order([[self._part(name).take(rows)]])
            return map(_descending, found) if merge == MIN else found

        return self._greatest(self._filled(name), keys)

    def _filled(self, name: str) -> Numbers:
        return np.flatnonzero(self._part(name).is_valid().to_numpy())

    def _greatest(
        self,
        rows: Numbers,
        keys_of: Callable[[Numbers], Iterable[Key]],
        owners: Numbers | None = None,
        is_shared: npt.NDArray[np.bool_] | None = None,
    ) -> Numbers:
        """The row of each record with the greatest keys, the most significant key first.

        Only rows of records with several rows are compared, key by key, and only as long as they tie. Mostly the first
        key decides, without a sort.
        """
        owners = self._owners[rows] if owners is None else owners
        shared = (self._is_shared if is_shared is None else is_shared)[owners]
        found = np.full(self._count, NOBODY, np.int64)
        found[owners[~shared]] = rows[~shared]
        rows, owners = rows[shared], owners[shared]
        left = np.arange(len(rows))
        wanted = int(np.count_nonzero(np.bincount(owners, minlength=self._count)))
        for key in keys_of(rows) if len(rows) > wanted else ():
            values, of = key[left], owners[left]
            best = np.full(self._count, values.min(), values.dtype)
            np.maximum.at(best, of, values)
            left = left[values == best[of]]
            if len(left) == wanted:
                break
        found[owners[left]] = rows[left]
        return found

    def add_up(self, group: Group) -> None:
        """Adds up sums and counts."""
        for name in self._shape.columns_of(group, COUNT):
            self._take_made(name, self._sums(name).cast(pa.int64()))
        for name in self._shape.columns_of(group, SUM):
            total = self._sums(self._shape.sum_column(name))
            self._take_made(self._shape.sum_column(name), total)
            self._take_made(name, _fitting(total, self._shape, name))

    def _take_made(self, name: str, made: Any) -> None:
        self.take(name, np.arange(len(self._owners), len(self._owners) + self._count), made)

    def _sums(self, name: str) -> Any:
        """The sum of each record; null where no part has a value."""
        table = pa.table({"owner": self._owners, "value": self._part(name)})
        found = table.group_by("owner", use_threads=False).aggregate([("value", "sum")])
        rows = np.full(self._count, NOBODY, np.int64)
        rows[found["owner"].to_numpy()] = np.arange(found.num_rows)
        return found["value_sum"].take(pa.array(rows, mask=rows == NOBODY))


def _chunks(column: Any) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _fitting(total: Any, shape: RecordShape, name: str) -> Any:
    """A sum in the type of its column; null if it is too big."""
    kind, stored = shape.table.column(name).type, shape.seen.field(name).type
    if isinstance(kind, WholeNumberType):
        lowest, highest = kind.lowest, kind.highest
    else:
        assert isinstance(kind, DecimalType)
        lowest, highest = -(10 ** (kind.precision - kind.scale)) + 1, 10 ** (kind.precision - kind.scale) - 1
    scale = total.type.scale
    whole = total if not scale else pc.round(pc.abs(total), ndigits=0, round_mode="down").cast(pa.decimal128(38, 0))
    exact = Decimal if pa.types.is_decimal(whole.type) else int
    low, high = (pa.scalar(exact(bound), whole.type) for bound in (lowest, highest))
    fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    return pc.if_else(fits, total, pa.scalar(None, total.type)).cast(stored)


def _descending(key: Key) -> Key:
    """A key in descending order. Negation would fail for the least integer."""
    return -key if key.dtype.kind == "f" else np.invert(key)


def _order(columns: Iterable[Sequence[Any]]) -> Iterator[Key]:
    """Yields numbers in the order of some columns, nulls first. Each column is given in parts."""
    for parts in columns:
        whole = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        *nulls, key = sort_keys(whole)
        yield from (-null for null in nulls)
        yield key

"""The columns of a stored record: those of readers, and columns `_p_*` for the comparison with later changes.

A slot of a record belongs to one change: to the winner of a group, to the last value of a column, to the first values,
or to the last delete. The slot keeps the sequence and the identity of the change in columns `_p_*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.records.joins import (
    CHANGE_DELETED,
    CHANGE_GROUP,
    CHANGE_LINE,
    CHANGE_OBJECT,
    COUNT,
    DELETE,
    FIRST,
    LAST_NON_NULL,
    MAX,
    MIN,
    SUM,
    WINNER,
    Group,
    JoinOptions,
    hidden_column_id,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.field_ids import field_with_id
from prism_assets.kernels.parquet.format import field_of
from prism_assets.kernels.records.times import event_times

Mask = npt.NDArray[np.bool_]
LAST_EVENT = "_p_last_event"
COMMITTED = "_p_committed"
"""When a waiting change was committed, in milliseconds."""
_SUMS = 38
"""Digits of sums, for any column: a sum may leave the range of its column and come back."""


@dataclass(frozen=True)
class Slot:
    """The `columns` that one change gives to a record, with the place of the change in its group.

    `kind` is winner, first, value or delete. Only groups with `last_non_null` have values and deletes, because a delete
    takes all earlier values. A winner's sequence is stored in the columns that readers see, except for the partition
    column, which gets a hidden copy.
    """

    kind: str
    name: str
    group: Group
    columns: tuple[str, ...]
    sequence: tuple[str, ...]

    @property
    def object(self) -> str:
        """The column with the staging object of the change."""
        return f"_p_{self.kind}_object_{self.name}"

    @property
    def line(self) -> str:
        """The column with the line of the change."""
        return f"_p_{self.kind}_line_{self.name}"

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that order the change among others, the most significant first."""
        return (*self.sequence, self.object, self.line)


def deleted_column(group: Group) -> str:
    """The column that says whether the winner of a group is a delete."""
    return f"_p_deleted_{group.name}"


@dataclass(frozen=True)
class RecordShape:
    """The stored columns of the records of a table, and of its changes."""

    table: TableDefinition
    join: JoinOptions

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """All slots of a record."""
        return tuple(slot for group in self.join.groups for slot in self._slots_of(group))

    def _slots_of(self, group: Group) -> Iterator[Slot]:
        def own_sequence(kind: str, name: str) -> tuple[str, ...]:
            return tuple(f"_p_{kind}_{number}_{name}" for number in range(len(group.sequence)))

        shown = tuple(name for name in group.sequence if name != self.table.partition_column)
        hidden = dict(zip(group.sequence, own_sequence("winner", group.name), strict=True))
        winner = tuple(name if name in shown else hidden[name] for name in group.sequence)
        members = {merge: self.columns_of(group, merge) for merge in (WINNER, FIRST, LAST_NON_NULL)}
        yield Slot("winner", group.name, group, (*shown, *members[WINNER], deleted_column(group)), winner)
        if members[FIRST]:
            yield Slot("first", group.name, group, members[FIRST], own_sequence("first", group.name))
        if members[LAST_NON_NULL]:
            yield Slot("delete", group.name, group, (), own_sequence("delete", group.name))
        for name in members[LAST_NON_NULL]:
            number = str(self.table.column(name).column_id)  # names may change
            yield Slot("value", number, group, (name,), own_sequence("value", number))

    def gone(self, settled: Mask, visible: Mask) -> Mask:
        """The records that folds and rebuilds drop.

        No accepted change meets a settled record, so a hidden settled record wins over nothing.
        """
        return settled if self.join.after == DELETE else settled & ~visible

    def columns_of(self, group: Group, *merges: str) -> tuple[str, ...]:
        """The columns of a group with one of these rules."""
        return tuple(member.column for member in self.join.members_of(group, *merges))

    def sum_column(self, name: str) -> str:
        """The column with a sum beyond the range of the visible column."""
        return f"_p_sum_{self.table.column(name).column_id}"

    @cached_property
    def seen(self) -> pa.Schema:
        """The columns of readers, by column id."""
        columns = sorted(self.table.columns, key=lambda column: column.column_id)
        return pa.schema([field_of(column) for column in columns])

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns of stored records."""
        kinds: dict[str, pa.DataType] = {LAST_EVENT: pa.int64()}
        for slot in self.slots:
            for name, column in zip(slot.sequence, slot.group.sequence, strict=True):
                if name != column:
                    kinds[name] = self.seen.field(column).type
            kinds |= {slot.object: pa.int64(), slot.line: pa.int64()}
        for group in self.join.groups:
            kinds[deleted_column(group)] = pa.bool_()
            for name in self.columns_of(group, SUM):
                kinds[self.sum_column(name)] = pa.decimal128(_SUMS, getattr(self.seen.field(name).type, "scale", 0))
        return _with_hidden(self.seen, kinds)

    @cached_property
    def changes(self) -> pa.Schema:
        """The columns of changes."""
        kinds = {CHANGE_GROUP: pa.string(), CHANGE_DELETED: pa.bool_(), CHANGE_OBJECT: pa.int64()}
        return _with_hidden(self.seen, {**kinds, CHANGE_LINE: pa.int64(), COMMITTED: pa.int64()})


class LiftedChanges:
    """Each change as a record of its own. A column is made only when asked for."""

    def __init__(self, shape: RecordShape, changes: pa.Table) -> None:
        self._shape = shape
        self._changes = changes
        names = pc.fill_null(changes[CHANGE_GROUP], "")
        self._deleted = pc.fill_null(changes[CHANGE_DELETED], False)
        self._own = {group.name: pc.equal(names, group.name) for group in shape.join.groups}
        self._there = {name: pc.and_(own, pc.invert(self._deleted)) for name, own in self._own.items()}
        self._makers: dict[str, Callable[[], Any]] = {}
        time = shape.table.partition_column
        for name in (*shape.join.key, time):
            self._makers[name] = partial(self._plain, name)
        self._makers[LAST_EVENT] = lambda: pa.array(event_times(changes[time], shape.table.zone))
        for group in shape.join.groups:
            self._add_group(group)
        for slot in shape.slots:
            sources = (*slot.group.sequence, CHANGE_OBJECT, CHANGE_LINE)
            for name, source in zip(slot.place, sources, strict=True):
                self._makers[name] = partial(self._place, slot, source)

    def column(self, name: str) -> Any:
        """The values of one stored column."""
        return self._makers[name]().cast(self._shape.stored.field(name).type)

    def _add_group(self, group: Group) -> None:
        """The values that changes give to their group. A delete gives only its sequence."""
        shape, makers = self._shape, self._makers
        makers[deleted_column(group)] = lambda: _where(self._own[group.name], self._deleted)
        for name in group.sequence:
            if name != shape.table.partition_column:
                makers[name] = partial(self._owned, group, name)
        for name in shape.columns_of(group, WINNER, LAST_NON_NULL, FIRST, MIN, MAX):
            makers[name] = partial(self._given, group, name)
        for name in shape.columns_of(group, COUNT):
            makers[name] = partial(self._one, group, name)
        for name in shape.columns_of(group, SUM):
            makers[name] = makers[shape.sum_column(name)] = partial(self._owned, group, name)

    def _plain(self, name: str) -> Any:
        return self._changes[name]

    def _owned(self, group: Group, name: str) -> Any:
        return _where(self._own[group.name], self._changes[name])

    def _given(self, group: Group, name: str) -> Any:
        return _where(self._there[group.name], self._changes[name])

    def _one(self, group: Group, name: str) -> Any:
        """1 for a value to count, else null. Records that were folded before the column was added have null, too."""
        values = self._changes[name]
        return _where(pc.and_(self._own[group.name], pc.is_valid(values)), pa.scalar(1, pa.int64()))

    def _place(self, slot: Slot, source: str) -> Any:
        """A part of the place of each change with this slot."""
        match slot.kind:
            case "delete":
                fills = pc.and_(self._own[slot.group.name], self._deleted)
            case "value":
                fills = pc.and_(self._there[slot.group.name], pc.is_valid(self._changes[slot.columns[0]]))
            case _:
                fills = self._own[slot.group.name]
        return _where(fills, self._changes[source])


def _where(mask: Any, values: Any) -> Any:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _with_hidden(seen: pa.Schema, kinds: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*seen, *(field_with_id(name, kind, hidden_column_id(name)) for name, kind in kinds.items())])

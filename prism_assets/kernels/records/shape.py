"""What a stored record holds: the columns that readers see, and what later changes have to be held against.

A slot is a place in a record that one change holds: that which wins a group, or gave a column its last value, or the
first ones, or deleted last. Of that change the slot knows its place, sequence and identity, in columns `_p_*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.joins import (
    CHANGE_DELETED,
    CHANGE_GROUP,
    CHANGE_LINE,
    CHANGE_OBJECT,
    COUNT,
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
from prism_assets.domain.tables import TableDefinition
from prism_assets.kernels.parquet.format import field_of, field_with_id
from prism_assets.kernels.records.identities import Identities, identity_texts
from prism_assets.kernels.records.times import event_times

HIDDEN = "_p_"
"""How the names of all columns begin that readers do not see."""
LAST_EVENT = "_p_last_event"
COMMITTED = "_p_committed"
"""Of a change that waits: when it was committed, in milliseconds."""
_SUMS = 38
"""Digits of sums, whatever their column takes: a sum may leave the range of its column and come back."""


@dataclass(frozen=True)
class Slot:
    """What one change gives to a record: `columns`, with the place of the change in the order of its group.

    `kind` is winner, first, value or delete; the last two of groups with `last_non_null` alone, as a delete takes all
    values of before. Of winners, columns that readers see hold the sequence already, but for the partition column.
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
        """The column with its line."""
        return f"_p_{self.kind}_line_{self.name}"

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that order it among other changes, the most significant first."""
        return (*self.sequence, self.object, self.line)


def deleted_column(group: Group) -> str:
    """The column that tells whether the winner of a group deletes it."""
    return f"_p_deleted_{group.name}"


def counted_column(group: Group) -> str:
    """The column with the identities of all changes of a group, where a second one of the same would count twice."""
    return f"_p_counted_{group.name}"


@dataclass(frozen=True)
class RecordShape:
    """The stored columns of the records of a table, and those of its changes."""

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

    def columns_of(self, group: Group, *merges: str) -> tuple[str, ...]:
        """The columns of a group with one of these rules."""
        return tuple(member.column for member in self.join.members_of(group, *merges))

    def sum_column(self, name: str) -> str:
        """The column with a sum that may be out of the range of its own."""
        return f"_p_sum_{self.table.column(name).column_id}"

    def counts(self, group: Group) -> bool:
        """Whether a change of the group that came again would change anything."""
        return bool(self.columns_of(group, SUM, COUNT))

    @cached_property
    def seen(self) -> pa.Schema:
        """The columns that readers see, by column id."""
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
            if self.counts(group):
                kinds[counted_column(group)] = pa.string()
        return _with_hidden(self.seen, kinds)

    @cached_property
    def changes(self) -> pa.Schema:
        """The columns of changes."""
        kinds = {CHANGE_GROUP: pa.string(), CHANGE_DELETED: pa.bool_(), CHANGE_OBJECT: pa.int64()}
        return _with_hidden(self.seen, {**kinds, CHANGE_LINE: pa.int64(), COMMITTED: pa.int64()})

    def lifted(self, changes: pa.Table) -> pa.Table:
        """Each change as the record that it would be alone."""
        names = pc.fill_null(changes[CHANGE_GROUP], "")
        deleted = pc.fill_null(changes[CHANGE_DELETED], False)
        time = self.table.partition_column
        columns: dict[str, Any] = {name: changes[name] for name in (*self.join.key, time)}
        columns[LAST_EVENT] = pa.array(event_times(changes[time], self.table.zone))
        for group in self.join.groups:
            columns |= self._lifted_group(group, changes, pc.equal(names, group.name), deleted)
        for slot in self.slots:
            columns |= _lifted_slot(slot, changes, pc.equal(names, slot.group.name), deleted)
        arrays = [columns[field.name].cast(field.type) for field in self.stored]
        return pa.table(arrays, schema=self.stored)

    def _lifted_group(self, group: Group, changes: pa.Table, own: Any, deleted: Any) -> dict[str, Any]:
        """The values that its changes give to a group; a change that deletes gives its sequence alone."""
        there = pc.and_(own, pc.invert(deleted))
        found: dict[str, Any] = {deleted_column(group): _where(own, deleted)}
        for name in group.sequence:
            if name != self.table.partition_column:
                found[name] = _where(own, changes[name])
        for name in self.columns_of(group, WINNER, LAST_NON_NULL, FIRST, MIN, MAX):
            found[name] = _where(there, changes[name])
        for name in self.columns_of(group, COUNT):
            found[name] = _where(own, pc.is_valid(changes[name]).cast(pa.int64()))
        for name in self.columns_of(group, SUM):
            found[name] = _where(own, changes[name])
            found[self.sum_column(name)] = found[name].cast(self.stored.field(self.sum_column(name)).type)
        if self.counts(group):
            identities = Identities.of(changes[CHANGE_OBJECT], changes[CHANGE_LINE])
            texts = identity_texts(identities, np.arange(changes.num_rows), changes.num_rows)
            found[counted_column(group)] = _where(own, texts)
        return found


def _lifted_slot(slot: Slot, changes: pa.Table, own: Any, deleted: Any) -> dict[str, Any]:
    """The place of each change that fills a slot."""
    match slot.kind:
        case "delete":
            fills = pc.and_(own, deleted)
        case "value":
            fills = pc.and_(pc.and_(own, pc.invert(deleted)), pc.is_valid(changes[slot.columns[0]]))
        case _:
            fills = own
    sources = zip(slot.place, (*slot.group.sequence, CHANGE_OBJECT, CHANGE_LINE), strict=True)
    return {name: _where(fills, changes[source]) for name, source in sources}


def _where(mask: Any, values: Any) -> Any:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _with_hidden(seen: pa.Schema, kinds: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*seen, *(field_with_id(name, kind, hidden_column_id(name)) for name, kind in kinds.items())])

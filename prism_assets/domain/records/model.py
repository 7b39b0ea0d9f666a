"""The records of a join table as a function of its accepted changes, in plain Python.

This is the specification. The kernel computes the same by columns and in parts and is tested against it. Explanations
of a record come from here. The rules:

- Changes of a key at most a window apart, directly or by a chain, form one record (`sessions_of`).
- In a group, the change with the greatest sequence wins, ties by identity. Its nulls win, too. A delete wins like any
  other change and stays (`_values_of`).
- Some columns combine all changes of their group instead, as set by `merge`.
- A record is visible if its owner group is present; without an owner, if any group is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from prism_assets.domain.columns.types import ColumnType, DecimalType, WholeNumberType
from prism_assets.domain.records.joins import (
    COUNT,
    FIRST,
    LAST_NON_NULL,
    MAX,
    MIN,
    SUM,
    WINNER,
    Group,
    JoinOptions,
    Member,
)

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One accepted line."""

    group: str
    identity: tuple[int, int]
    """The id of its staging object, and its line there."""
    time: int
    """The time of the event in milliseconds."""
    values: Values
    """Values of the table's columns."""
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The result of a change, and the record's columns with its values."""

    change: Change
    won: bool
    why: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row, visible or not."""

    key: tuple[Any, ...]
    first_event: int
    """The time of its first event."""
    last_event: int
    """The time of its last event."""
    values: Values
    """Values of groups' columns."""
    is_visible: bool
    fates: tuple[Fate, ...]


@dataclass(frozen=True)
class RecordModel:
    """The records of a table. `types` are its columns' types by name."""

    join: JoinOptions
    types: Mapping[str, ColumnType]
    partition_column: str

    def records_of(self, changes: Iterable[Change]) -> list[Record]:
        """Returns all records, settled or not, by key and time. Repeated changes count once."""
        by_key: dict[tuple[Any, ...], list[Change]] = {}
        for change in {change.identity: change for change in changes}.values():
            if self.is_part_of_a_record(change):
                by_key.setdefault(self._key_of(change), []).append(change)
        return [
            self._record(key, session) for key, found in sorted(by_key.items()) for session in self.sessions_of(found)
        ]

    def is_part_of_a_record(self, change: Change) -> bool:
        """Whether a change has a key, a known group, and at least one sequence value."""
        groups = [group for group in self.join.groups if group.name == change.group]
        has_key = all(value is not None for value in self._key_of(change))
        return has_key and any(value is not None for group in groups for value in self.sequence_of(change, group))

    def sequence_of(self, change: Change, group: Group) -> tuple[Any, ...]:
        """Returns the values that order a change within its group."""
        return tuple(
            change.time if name == self.partition_column else change.values.get(name) for name in group.sequence
        )

    def sessions_of(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """Splits the changes of a key at gaps longer than the window."""
        window = self.join.window_seconds
        session: list[Change] = []
        for change in sorted(changes, key=lambda change: (change.time, change.identity)):
            if session and window is not None and change.time - session[-1].time > window * 1_000:
                yield session
                session = []
            session.append(change)
        if session:
            yield session

    def settles_at(self, record: Record) -> int | None:
        """Returns the time after which no accepted change can affect the record."""
        if self.join.window_seconds is None:
            return None
        return record.last_event + (self.join.window_seconds + self.join.lateness_seconds) * 1_000

    def _key_of(self, change: Change) -> tuple[Any, ...]:
        return tuple(change.values.get(name) for name in self.join.key)

    def _place(self, change: Change, group: Group) -> tuple[Any, ...]:
        """Returns the sort key of a change in its group: sequence with nulls first, then identity."""
        return (*((value is not None, value) for value in self.sequence_of(change, group)), change.identity)

    def _record(self, key: tuple[Any, ...], session: Sequence[Change]) -> Record:
        values: dict[str, Any] = {}
        alive: dict[str, bool] = {}
        fates: list[Fate] = []
        for group in self.join.groups:
            ordered = sorted(
                (change for change in session if change.group == group.name),
                key=lambda change, group=group: self._place(change, group),  # type: ignore[misc]
            )
            came_from = self._values_of(group, ordered)
            values |= {name: value for name, (value, _) in came_from.items()}
            alive[group.name] = bool(ordered) and not ordered[-1].deleted
            fates += [self._fate(change, group, ordered, came_from) for change in ordered]
        owner = self.join.owner
        return Record(
            key=key,
            first_event=min(change.time for change in session),
            last_event=max(change.time for change in session),
            values=values,
            is_visible=alive[owner.name] if owner else any(alive.values()),
            fates=tuple(fates),
        )

    def _values_of(self, group: Group, ordered: Sequence[Change]) -> dict[str, tuple[Any, Change | None]]:
        """Returns the value of each column of a group, with the change it comes from, if it comes from one."""
        winner = ordered[-1] if ordered else None
        shown = winner if winner and not winner.deleted else None
        found: dict[str, tuple[Any, Change | None]] = {}
        for name in group.sequence:
            if name != self.partition_column:
                found[name] = (winner.values.get(name) if winner else None, winner)
        for member in self.join.members_of(group, WINNER):
            found[member.column] = (shown.values.get(member.column) if shown else None, shown)
        for member in self.join.members_of(group, LAST_NON_NULL, FIRST, MIN, MAX, SUM, COUNT):
            found[member.column] = self._merged(member, ordered)
        return found

    def _merged(self, member: Member, ordered: Sequence[Change]) -> tuple[Any, Change | None]:
        deletes = [place for place, change in enumerate(ordered) if change.deleted]
        after_delete = ordered[deletes[-1] + 1 :] if deletes else ordered
        non_null = [change for change in after_delete if change.values.get(member.column) is not None]
        if member.merge == FIRST:
            return (ordered[0].values.get(member.column), ordered[0]) if ordered else (None, None)
        if member.merge == COUNT:
            return len(non_null) or None, None
        if not non_null:
            return None, None
        if member.merge == LAST_NON_NULL:
            return non_null[-1].values[member.column], non_null[-1]
        values = [change.values[member.column] for change in non_null]
        if member.merge == SUM:
            return _fitting(sum(values), self.types[member.column]), None
        chosen = min(values) if member.merge == MIN else max(values)
        return chosen, non_null[values.index(chosen)]

    def _fate(
        self,
        change: Change,
        group: Group,
        ordered: Sequence[Change],
        came_from: Mapping[str, tuple[Any, Change | None]],
    ) -> Fate:
        columns = tuple(name for name, (_, source) in came_from.items() if source is change)
        winner = ordered[-1]
        if change is winner:
            what = "deletes" if change.deleted else "has the greatest sequence"
            return Fate(change=change, won=True, why=f"{what} in {group.name}", columns=columns)
        winner_name = f"line {winner.identity[1]} of object {winner.identity[0]}"
        if self.sequence_of(change, group) == self.sequence_of(winner, group):
            why = f"{winner_name} has the same sequence, and comes later"
        else:
            why = f"{winner_name} has a greater sequence{' and deletes' if winner.deleted else ''}"
        return Fate(change=change, won=False, why=why, columns=columns)


def _fitting(total: Any, kind: ColumnType) -> Any:
    """Returns a sum, or None if it exceeds its column."""
    if isinstance(kind, WholeNumberType):
        return total if kind.lowest <= total <= kind.highest else None
    if isinstance(kind, DecimalType):
        return total if abs(total) < Decimal(10) ** (kind.precision - kind.scale) else None
    return total

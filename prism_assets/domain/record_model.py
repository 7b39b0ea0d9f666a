"""What the records of a join table are: a function of the set of accepted changes, in plain Python.

This is the specification. The kernel computes the same with columns and in parts, and is held against it; explanations
of a record come from here. The rules:

- Changes of a key at most a window apart, directly or by a chain, are one record (`sessions_of`).
- In a group the change with the greatest place wins, nulls too: by sequence, then by identity. A delete wins like any
  other change, and stays (`_values_of`).
- Some columns are made of all changes of their group instead, as their `merge` says.
- A record is visible if a group is there, or if its owner is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from prism_assets.domain.joins import COUNT, FIRST, LAST_NON_NULL, MAX, MIN, SUM, WINNER, Group, JoinOptions, Member
from prism_assets.domain.types import ColumnType, DecimalType, WholeNumberType

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One accepted line: of which group, when its event was, in milliseconds, and the values of the table's columns.

    Its identity is the id of its staging object and its line there.
    """

    group: str
    identity: tuple[int, int]
    time: int
    values: Values
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What became of a change, and of which columns of the record the values are its own."""

    change: Change
    won: bool
    why: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row, visible or not. Times are those of its first and last event; `values` are those of groups' columns."""

    key: tuple[Any, ...]
    first_event: int
    last_event: int
    values: Values
    is_visible: bool
    fates: tuple[Fate, ...]


@dataclass(frozen=True)
class RecordModel:
    """The records of a table. `types` are those of its columns by name."""

    join: JoinOptions
    types: Mapping[str, ColumnType]
    partition_column: str

    def records_of(self, changes: Iterable[Change]) -> list[Record]:
        """All records of all times, settled or not, by key and time; each change counts once, however often it came."""
        by_key: dict[tuple[Any, ...], list[Change]] = {}
        for change in {change.identity: change for change in changes}.values():
            if self.is_part_of_a_record(change):
                by_key.setdefault(self._key_of(change), []).append(change)
        return [
            self._record(key, session) for key, found in sorted(by_key.items()) for session in self.sessions_of(found)
        ]

    def is_part_of_a_record(self, change: Change) -> bool:
        """Whether it has a key, a group that there is, and a sequence: one value of it at least."""
        known = [group for group in self.join.groups if group.name == change.group]
        has_key = all(value is not None for value in self._key_of(change))
        return has_key and any(value is not None for group in known for value in self.sequence_of(change, group))

    def sequence_of(self, change: Change, group: Group) -> tuple[Any, ...]:
        """The values that order it among the changes of its group."""
        return tuple(
            change.time if name == self.partition_column else change.values.get(name) for name in group.sequence
        )

    def sessions_of(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """The changes of a key, cut where more than a window lies between two that follow each other."""
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
        """The time from which on nothing accepted can meet the record: it settles once the clock is beyond it."""
        if self.join.window_seconds is None:
            return None
        return record.last_event + (self.join.window_seconds + self.join.lateness_seconds) * 1_000

    def _key_of(self, change: Change) -> tuple[Any, ...]:
        return tuple(change.values.get(name) for name in self.join.key)

    def _place(self, change: Change, group: Group) -> tuple[Any, ...]:
        """The order of the changes of a group: by sequence, where nulls come first, then by identity."""
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
        """The value of each column of a group, and the change that it is from, where it is from one."""
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
        behind = ordered[deletes[-1] + 1 :] if deletes else ordered
        told = [change for change in behind if change.values.get(member.column) is not None]
        if member.merge == FIRST:
            return (ordered[0].values.get(member.column), ordered[0]) if ordered else (None, None)
        if member.merge == COUNT:
            return len(told) or None, None
        if not told:
            return None, None
        if member.merge == LAST_NON_NULL:
            return told[-1].values[member.column], told[-1]
        values = [change.values[member.column] for change in told]
        if member.merge == SUM:
            return _fitting(sum(values), self.types[member.column]), None
        chosen = min(values) if member.merge == MIN else max(values)
        return chosen, told[values.index(chosen)]

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
        told = f"line {winner.identity[1]} of object {winner.identity[0]}"
        if self.sequence_of(change, group) == self.sequence_of(winner, group):
            why = f"{told} has the same sequence, and comes later"
        else:
            why = f"{told} has a greater sequence{' and deletes' if winner.deleted else ''}"
        return Fate(change=change, won=False, why=why, columns=columns)


def _fitting(total: Any, kind: ColumnType) -> Any:
    """A sum, or None where it has outgrown its column."""
    if isinstance(kind, WholeNumberType):
        return total if kind.lowest <= total <= kind.highest else None
    if isinstance(kind, DecimalType):
        return total if abs(total) < Decimal(10) ** (kind.precision - kind.scale) else None
    return total

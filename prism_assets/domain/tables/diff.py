"""Finds the changes between two definitions of a table, for `apply`, catalog runs and contracts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prism_assets.domain.columns.change_kinds import (
    AddColumn,
    AdvanceRename,
    AdvanceWidening,
    ChangeParts,
    DropColumn,
    EndWidening,
    FlipColumn,
    LengthenColumn,
    ReadColumn,
    RenameColumn,
    ReorderColumns,
    ReplaceColumn,
    ShortenColumn,
    WidenColumn,
    WriteWidened,
    read_from,
)
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.part_changes import widened_leaves
from prism_assets.domain.tables.change import Change
from prism_assets.domain.tables.changes import (
    AddStream,
    ChangeSetting,
    ChangeStream,
    CreateTable,
    RemoveStream,
    RenameTable,
    applied,
)
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True)
class Origin:
    """A stream that moves, and its table so far."""

    table: str | None
    """None if it is being forgotten."""
    stream_id: int


@dataclass(frozen=True)
class Moves:
    """Streams that change their table, by URL: their origins, and target tables."""

    origins: Mapping[str, Origin] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)


NOTHING_MOVES = Moves()


def changes_between(
    old: TableDefinition | None, new: TableDefinition, moves: Moves = NOTHING_MOVES
) -> tuple[Change, ...]:
    """Returns the changes from `old`, or from nothing, to `new`. Known columns have their ids, new ones have 0."""
    changes: list[Change] = []
    at = old
    for change in _table_changes(old, new, moves):
        changes.append(change)
        at = applied(at, [change])
    if at is not None:
        names = tuple(column.name for column in new.columns)
        if names != tuple(column.name for column in at.columns):
            changes.append(ReorderColumns(names))
            at = applied(at, [changes[-1]])
        changes += [ChangeSetting(name, getattr(new, name)) for name in _differences(at, new)]
    return tuple(changes)


def _table_changes(old: TableDefinition | None, new: TableDefinition, moves: Moves) -> Iterator[Change]:
    if old is None:
        yield CreateTable(dataclasses.replace(new, streams=()))
    else:
        if str(old.name) != str(new.name):
            yield RenameTable(old.name, new.name, new.grace_days)
        yield from _column_changes(old, new)
    before = {stream.url: stream for stream in old.streams} if old else {}
    for stream in new.streams:
        if stream.url not in before:
            origin = moves.origins.get(stream.url)
            yield AddStream(stream, origin.table, origin.stream_id) if origin else AddStream(stream)
        elif stream != before[stream.url]:
            yield ChangeStream(before[stream.url], stream)
    for stream in before.values():
        if stream.url not in {item.url for item in new.streams}:
            yield RemoveStream(stream, moves.targets.get(stream.url))


def _column_changes(old: TableDefinition, new: TableDefinition) -> Iterator[Change]:
    after = {column.column_id: column for column in new.columns if column.column_id}
    heirs = _heirs(old, new)
    for before in old.columns:
        column = after.get(before.column_id)
        if column is None:
            heir = heirs.get(before.name)
            yield ReplaceColumn(before, heir) if heir else DropColumn(before)
            continue
        if before.name != column.name or before.stored_as != column.stored_as:
            yield RenameColumn(before.name, column.name, column.rename)
        elif before.rename and before.rename != column.rename:
            yield AdvanceRename(column.name, before.rename.former, column.rename)
        if read_from(before) != read_from(column):
            yield ReadColumn(column.name, read_from(before), column.source, column.sources, column.value)
        yield from _widenings(before, column)
        if before.length is not None and column.length is not None and before.length < column.length:
            yield LengthenColumn(column.name, before.length, column.length)
        elif before.length is not None and column.length is not None and before.length > column.length:
            yield ShortenColumn(column.name, before.length, column.length)
    for position, column in enumerate(new.columns):
        if not column.column_id and column not in heirs.values():
            yield AddColumn(column, position)


def _heirs(old: TableDefinition, new: TableDefinition) -> dict[str, Column]:
    """Returns new columns in place of removed ones, by old name. They have this name or state it as `was`."""
    kept = {column.column_id for column in new.columns}
    gone = {column.name for column in old.columns if column.column_id not in kept}
    named = (
        (column.name if column.name in gone else column.was, column) for column in new.columns if not column.column_id
    )
    return {name: column for name, column in named if name in gone}


def _widenings(before: Column, after: Column) -> Iterator[Change]:
    """Yields the changes of a column's type."""
    steps = before.widening is not None and after.type == before.wanted_type
    if before.type.parts and before.type != after.type and not steps:
        yield ChangeParts(after.name, before.type, after.type, after.widening)
    if before.type.parts and not steps:
        if widened_leaves(after.name, before.wanted_type, after.wanted_type) and after.widening:
            yield WidenColumn(after.name, before.wanted_type, after.wanted_type, after.widening)
        elif before.type == after.type and before.widening != after.widening and after.widening:
            yield AdvanceWidening(after.name, after.wanted_type, after.widening)
        elif before.type == after.type and before.widening and after.widening is None:
            yield EndWidening(after.name, before.widening.former, after.type)
    elif before.wanted_type != after.wanted_type:
        yield WidenColumn(after.name, before.wanted_type, after.wanted_type, after.widening)
    elif before.widening == after.widening:
        return
    elif after.widening is None and before.type != after.type:
        yield FlipColumn(after.name, after.type)
    elif after.widening is None and before.widening:
        yield EndWidening(after.name, before.widening.former, after.type)
    elif after.widening and before.type != after.type:
        yield WriteWidened(after.name, after.type, after.widening)
    elif after.widening:
        yield AdvanceWidening(after.name, after.wanted_type, after.widening)


def _differences(before: TableDefinition, after: TableDefinition) -> list[str]:
    """Returns the fields that differ. Fields that exist only in the file are not compared."""
    return [
        field.name
        for field in dataclasses.fields(after)
        if field.compare and getattr(before, field.name) != getattr(after, field.name)
    ]

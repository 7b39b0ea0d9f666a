"""Which changes of columns the rows that are stored allow, and why the others are refused.

Objects hold columns by id and name. Readers by id, as those of Iceberg, follow a column whatever it is called. Readers
of what Glue shows look its name up in each object: no name may stand for two columns in the objects they are sent to.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prism_assets.domain.column_names import unknown_column
from prism_assets.domain.column_transitions import ColumnRename, ColumnWidening, RenameState, WideningState
from prism_assets.domain.columns import Column
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted


@dataclass(frozen=True, kw_only=True)
class HeldName:
    """A name that columns of before may have in objects: of so many days, the first and the last of which are known.

    `waiting` counts staging objects that are still to be converted under a definition with such a column.
    """

    days: int
    first: datetime.date | None
    last: datetime.date | None
    waiting: int = 0


@dataclass(frozen=True)
class StoredColumns:
    """What is stored of a table beside its definition: names that are held, and columns that erasures name, by id.

    `never_read` if no batch ever claimed a staging object of the table: no row hangs on what a column was. With
    `accept_failing_reads` a column is widened at once, and not when all objects have a copy.
    """

    held: Mapping[str, HeldName] = field(default_factory=dict)
    erased_by: Mapping[int, int] = field(default_factory=dict)
    never_read: bool = False
    accept_failing_reads: bool = False


NOTHING_STORED = StoredColumns()


def followed_columns(table: TableDefinition, old: TableDefinition) -> dict[str, Column]:
    """The columns in force that those of a file go on with, by the names in the file: of that name, or what they were.

    `was` says nothing of a column that is in force under its name.
    """
    known = {column.name: column for column in old.columns}
    own = {column.name for column in table.columns}
    found = {}
    for column in table.columns:
        before = known.get(column.name)
        if before is None and column.was is not None and column.was not in own:
            before = known.get(column.was)
        if before is not None:
            found[column.name] = before
    return found


def depends_on_rows(table: TableDefinition, old: TableDefinition) -> bool:
    """Whether a file has a change that is refused, or takes several steps, once the table has been read."""
    followed = followed_columns(table, old)
    pairs = [(column, followed[column.name]) for column in table.columns if column.name in followed]
    return (
        (table.partition_column, table.timezone) != (old.partition_column, old.timezone)
        or any((column.name, column.type) != (before.name, before.wanted_type) for column, before in pairs)
        or any(_is_shorter(column, before) for column, before in pairs)
    )


def predecessors(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> dict[str, Column]:
    """The columns in force whose ids the columns of a file take over, by the names in the file.

    In a table that was never read, a column of another type takes over none: catalogs that know a column by its id
    accept only a wider type for it.
    """
    known = {column.name: column for column in table.columns}
    return {
        name: before
        for name, before in followed_columns(table, old).items()
        if not stored.never_read or _keeps_its_id(known[name], before)
    }


def _keeps_its_id(column: Column, before: Column) -> bool:
    return column.type == before.wanted_type or before.wanted_type.widens_to(column.type)


def _is_shorter(column: Column, before: Column) -> bool:
    return before.length is not None and column.length is not None and column.length < before.length


def kept_columns(table: TableDefinition, old: TableDefinition) -> tuple[Column, ...]:
    """The columns that came by the contract, and that the file does not have: they stay, as rows have them."""
    followed = {column.column_id for column in followed_columns(table, old).values()}
    return tuple(column for column in old.columns if column.evolved and column.column_id not in followed)


def continued_columns(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> tuple[Column, ...]:
    """The columns that come into force: those of a file with the ids that they have, 0 for new ones, and what is kept.

    A renamed column is on the way to its new name from then on, as readers of Glue look for one name in all objects; in
    a table without any object it has the new one everywhere. One that objects have under its first name alone, as
    those of earlier versions did, begins now, if the name is not held: it waits for that, as its file cannot help it.
    """
    followed = predecessors(table, old, stored)
    columns = []
    for column in table.columns:
        before = followed.get(column.name)
        if before and _waits(column, before, stored):
            column = _with_widening(column, before, old.version + 1, stored)
            column = replace(column, column_id=before.column_id, stored_as=before.stored_as)
        elif before and stored.never_read:
            column = replace(column, column_id=before.column_id)
        elif before:
            rename = _rename(column, before, old.version + 1)
            column = _with_widening(column, before, old.version + 1, stored)
            column = replace(column, column_id=before.column_id, rename=rename)
        columns.append(column)
    columns += kept_columns(table, old)
    is_begun = replace(old, columns=tuple(columns)).copies_since == old.version + 1
    return tuple(map(_copied_anew, columns) if is_begun else columns)


def _copied_anew(column: Column) -> Column:
    """One that is copied, as it is when another one is to be: merged objects have one copy, for all columns."""
    if column.widening is None or column.widening.copy_type is None:
        return column
    return replace(column, widening=replace(column.widening, is_flipping=False, flip_version=0, flip_seconds=0))


def waiting_columns(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> Iterator[str]:
    """Why columns of a file that objects have under their first name alone do not take their name yet, a line each."""
    for name, before in followed_columns(table, old).items():
        if _waits(table.column(name), before, stored):
            held = stored.held[name]
            yield (
                f"{old.name} keeps the name {before.stored_as} for {name} in objects and Glue, as {name} was another "
                f"column: {_holders(held)}; to have readers of Glue find {name}, {_remedy(str(old.name), held)}, "
                "and apply again"
            )


def _waits(column: Column, before: Column, stored: StoredColumns) -> bool:
    return column.name == before.name and before.stored_as is not None and column.name in stored.held


def _rename(column: Column, before: Column, version: int) -> ColumnRename | None:
    """How far a column of a file is on the way to its name, under the definition of that version.

    A former name that it takes again before readers know the new one is still that of all objects.
    """
    if column.name == before.name and not before.stored_as:
        return before.rename
    former = before.glue_name
    if former == column.name:
        return None
    return ColumnRename(former=former, state=RenameState.REWRITING, version=version, since=version)


def _with_widening(column: Column, before: Column, version: int, stored: StoredColumns) -> Column:
    """A column of a file with its type in objects, and how far it is on the way to a wider one.

    Merged objects are copied with a wider type first. Where readers may fail it is shown first, and written later, also
    of a column that was on the other way to it; objects have values of the narrowest type that is left.
    """
    widening = before.widening
    is_other = column.type != before.wanted_type
    if is_other or (stored.accept_failing_reads and widening and widening.copy_type):
        at_once = stored.accept_failing_reads
        widening = ColumnWidening(
            former=widening.former if widening else before.type,
            version=version,
            shown_first=column.type if at_once else None,
            copy_type=None if at_once else column.type,
        )
    return replace(column, type=before.type, widening=widening)


def column_problems(
    table: TableDefinition, old: TableDefinition, stored: StoredColumns
) -> Iterator[tuple[str | None, str]]:
    """Why the columns of a file cannot follow on those in force, each with the column if it is one of the file's."""
    followed = followed_columns(table, old)
    for column in table.columns:
        for problem in _problems_of(column, followed.get(column.name), table, old, stored):
            yield column.name, problem
    gone = {column.column_id for column in old.columns}
    gone -= {column.column_id for column in (*predecessors(table, old, stored).values(), *kept_columns(table, old))}
    for column in old.columns:
        if column.column_id in gone and (erasure := stored.erased_by.get(column.column_id)):
            yield (
                None,
                (
                    f"{column.name} {'gets another type' if column.name in followed else 'is missing'}, and erasure "
                    f"{erasure} names it: rows that it took out would come again with late or replayed objects; keep "
                    "the column"
                ),
            )


def _problems_of(
    column: Column, before: Column | None, table: TableDefinition, old: TableDefinition, stored: StoredColumns
) -> Iterator[str]:
    if before is None or before.name != column.name:
        yield from _unusable_name(column, before, table, old, stored)
    else:
        yield from _no_former_name(column, before, table, old)
    if before is not None:
        yield from _changed(before, column, old, stored)
    held = stored.held.get(column.name)
    if held is None or (before is not None and before.name == column.name):
        return
    if all(column.name not in (item.stored_as, item.copied_as) for item in old.columns):
        yield _taken(str(old.name), column.name, held)


def _is_of_join(table: TableDefinition) -> bool:
    return table.join is not None or table.change_log is not None


def _unusable_name(
    column: Column, before: Column | None, table: TableDefinition, old: TableDefinition, stored: StoredColumns
) -> Iterator[str]:
    """Why a column cannot come under a name that none has in force."""
    for other in old.columns:
        if column.name in (other.stored_as, other.copied_as) and other is not before:
            yield f"{column.name} is the name that objects and Glue have for {other.name}; choose another"
    rivals = [item.name for item in table.columns if item.was == column.was and item.name != column.name]
    if before is None:
        if column.was is not None:
            is_own = column.was in {item.name for item in table.columns}
            others = {known: f"it is called {item.name} now" for item in old.columns for known in _other_names(item)}
            meant = "" if is_own else unknown_column(column.was, [item.name for item in old.columns], others)
            why = "is a column of its own" if is_own else "is none of it"
            way_out = f"{meant} Remove" if meant else "; remove"
            yield f"{column.name} is said to be what {column.was} was, which {why}{way_out} `was` to add a column"
    elif rivals:
        yield f"{column.was} is said to be the former name of {', '.join([column.name, *rivals])}; only one can be"
    elif before.name == old.partition_column and not stored.never_read:
        yield f"{before.name} says on which day rows fall, and keeps its name"
    elif _is_of_join(old):
        yield f"{before.name} cannot become {column.name}: columns of join tables cannot be renamed yet"
    elif before.rename and not stored.never_read and column.name != before.glue_name:
        yield (
            f"{before.name} cannot become {column.name} yet: it is still known as {before.rename.former} to readers of "
            f"Glue, as `prism status --table {old.name}` says; rename it when that has ended"
        )


def _other_names(column: Column) -> set[str]:
    """The names that objects have for a column in force beside its own."""
    return {name for name in (column.stored_as, column.copied_as) if name}


def _no_former_name(column: Column, before: Column, table: TableDefinition, old: TableDefinition) -> Iterator[str]:
    """Why `was` cannot stay at a column that is in force under its name, where it stands behind its rename.

    Of another column that is in force it would be a rename to a name that is taken, one of a circle among them; and as
    the key that it names where the file says no other it would have the column read from somewhere else.
    """
    if column.was is None:
        return
    if column.was in {item.name for item in old.columns} and not _keeps_its_name(column.was, table, column.name):
        yield (
            f"{column.was} cannot become {column.name}, which is another column in force; choose a free name, or "
            f"remove `was` from {column.name}, and say `source` if it is to be read from another key"
        )
    elif column.source == column.was != before.source:
        yield (
            f"{column.name} has that name already, and `was: {column.was}` would have it read from the key "
            f"{column.was}; remove it, or say `source: {column.was}`"
        )


def _keeps_its_name(name: str, table: TableDefinition, other: str) -> bool:
    """Whether a file has a column of that name that is not said to be, directly or by a chain, what another was."""
    was = {column.name: column.was for column in table.columns}
    if name not in was:
        return False
    passed = set[str | None]()
    follows: str | None = name
    while follows in was and follows not in passed:
        passed.add(follows)
        follows = was[follows]
    return other not in passed


def _changed(before: Column, after: Column, old: TableDefinition, stored: StoredColumns) -> Iterator[str]:
    if stored.never_read:
        return
    known = before.wanted_type
    if known != after.type and known.widens_to(after.type):
        if _is_of_join(old):
            yield (
                f"{after.name} is {before.type.name} in objects and cannot become {after.type.name}: columns of join "
                "tables cannot be widened yet; add a column instead, with `source` the same key"
            )
        elif not stored.accept_failing_reads and _has_both_widths(before):
            yield (
                f"{after.name} cannot become {after.type.name} yet: it is still on its way to {known.name}, as `prism "
                f"status --table {old.name}` says; widen it again when that has ended, or at once with `prism table "
                "apply --accept-failing-reads`"
            )
    elif known != after.type:
        yield f"{after.name} is {known.name} and cannot become {after.type.name}; add a column instead"
    elif _is_shorter(after, before):
        yield (
            f"{after.name} has the length {before.length}, which values in objects may have, and cannot be cut to "
            f"{after.length}; add a column instead"
        )


def _has_both_widths(column: Column) -> bool:
    """Whether objects that readers are sent to have, or may soon have, values of two types."""
    return column.widening is not None and column.widening.state in (WideningState.SHOWING, WideningState.REWRITING)


def _taken(table: str, name: str, held: HeldName) -> str:
    return (
        f"{name} was another column, whose values readers of Glue would take for those of the new one: "
        f"{_holders(held)}; choose another name, or {_remedy(table, held)}"
    )


def _holders(held: HeldName) -> str:
    if not held.days:
        return f"{counted(held.waiting, 'staging object is', 'staging objects are')} still to be converted with it"
    days = f"{held.first}" if held.days == 1 else f"{counted(held.days, 'day')} from {held.first} to {held.last}"
    return f"objects of {days} may have it under that name"


def _remedy(table: str, held: HeldName) -> str:
    if not held.days:
        return "run `prism stream` first"
    since = "" if held.days == 1 else f" --since {held.first}"
    return (
        f"have them made again: `prism rebuild {table} --date {held.last}{since}` when the days are closed, and "
        "`prism catalog`"
    )


def erased_by(rules: Collection[tuple[int, Collection[int]]]) -> Mapping[int, int]:
    """The first erasure that names a column, by column id; given are erasures with the columns that they name."""
    found: dict[int, int] = {}
    for erasure_id, columns in sorted(rules):
        for column_id in columns:
            found.setdefault(column_id, erasure_id)
    return found

"""Checks changes of columns against stored rows, and explains refusals.

Objects identify columns by id and name. Readers by id, such as Iceberg's, follow renames. Readers of Glue look up the
name in each object, so one name must not stand for two columns in the objects they read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.held_names import HeldName, held_by, remedy, taken
from prism_assets.domain.columns.names import (
    followed_by_name,
    is_shorter,
    read_from_former,
    renamed_to_taken,
    unknown_column,
)
from prism_assets.domain.columns.part_changes import (
    HeldParts,
    continued,
    kept_fields,
    lost_parts,
    part_problems,
    parts_differ,
    shorter_parts,
    widened_leaves,
    with_leaf_types_of,
)
from prism_assets.domain.columns.transitions import ColumnRename, ColumnWidening, RenameState, WideningState
from prism_assets.domain.columns.types import ColumnType, Field, all_parts
from prism_assets.domain.service_limits import GLUE_TYPE
from prism_assets.domain.tables.definition import TableDefinition


@dataclass(frozen=True)
class StoredColumns:
    """Stored facts beside the definition."""

    held: Mapping[str, HeldName] = field(default_factory=dict)
    """Names held by former columns, and by former fields as `part_changes.key_of` writes them."""
    erased_by: Mapping[int, int] = field(default_factory=dict)
    """The first erasure by column id."""
    never_read: bool = False
    """No batch ever claimed a staging object of the table, so no rows depend on its columns."""
    accept_failing_reads: bool = False
    """Widen columns at once, without waiting for copies of all objects."""


NOTHING_STORED = StoredColumns()


def followed_columns(table: TableDefinition, old: TableDefinition) -> dict[str, Column]:
    """Returns the stored column that each column of a file continues, by the name in the file."""
    return followed_by_name(table.columns, old.columns)


def depends_on_rows(table: TableDefinition, old: TableDefinition) -> bool:
    """Whether a file has a change that is refused, or takes several steps, once the table has been read."""
    followed = followed_columns(table, old)
    pairs = [(column, followed[column.name]) for column in table.columns if column.name in followed]
    return (
        (table.partition_column, table.timezone) != (old.partition_column, old.timezone)
        or any(column.name != before.name or _has_other_type(column, before) for column, before in pairs)
        or any(is_shorter(column.length, before.length) for column, before in pairs)
    )


def predecessors(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> dict[str, Column]:
    """Returns the current columns whose ids are kept, by the names in the file.

    In a table that was never read, a column with another type gets a new id, because catalogs accept only a wider type
    for a known id.
    """
    by_name = {column.name: column for column in table.columns}
    return {
        name: before
        for name, before in followed_columns(table, old).items()
        if not stored.never_read or _keeps_its_id(by_name[name], before)
    }


def gone_columns(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> list[Column]:
    """Returns the current columns that lose their id, or the id of a part, by which erasures find their values."""
    types = {column.name: column.type for column in table.columns}
    known = {column.column_id: column.type for column in kept_columns(table, old)}
    for name, before in predecessors(table, old, stored).items():
        known[before.column_id] = continued(types[name], before.type)
    return [
        column
        for column in old.columns
        if column.column_id not in known or not _part_ids(column.type) <= _part_ids(known[column.column_id])
    ]


def _part_ids(kind: ColumnType) -> set[int]:
    return {part.field_id for part in all_parts(kind)}


def _keeps_its_id(column: Column, before: Column) -> bool:
    if column.type.parts:
        return type(column.type) is type(before.type)
    return column.type == before.wanted_type or before.wanted_type.widens_to(column.type)


def _has_other_type(column: Column, before: Column) -> bool:
    """Whether objects would have other values. Greater lengths and other sources of parts are no other type."""
    kind = continued(column.type, before.wanted_type)
    return parts_differ(kind, before.wanted_type) or shorter_parts(column.name, kind, before.type)


def kept_columns(table: TableDefinition, old: TableDefinition) -> tuple[Column, ...]:
    """Returns columns added by the contract and missing in the file. They stay, because rows have them."""
    followed = {column.column_id for column in followed_columns(table, old).values()}
    return tuple(column for column in old.columns if column.evolved and column.column_id not in followed)


def fields_kept(table: TableDefinition, old: TableDefinition) -> list[tuple[str, Field]]:
    """Returns fields of structs added by the contract and missing in the file, with their paths."""
    types = {column.name: column.type for column in table.columns}
    followed = followed_columns(table, old).items()
    return [kept for name, before in followed for kept in kept_fields(name, types[name], before.type)]


def continued_columns(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> tuple[Column, ...]:
    """Returns the new definition's columns: those of the file with known ids, 0 for new ones, and kept columns.

    A renamed column starts its transition, because readers of Glue look for one name in all objects. In a table without
    objects the new name applies at once. A column stored only under its first name starts its rename now, unless the
    name is held; then it waits, because the user cannot change this in the file.
    """
    followed = predecessors(table, old, stored)
    columns = []
    for column in table.columns:
        before = followed.get(column.name)
        if before:
            column = replace(column, type=continued(column.type, before.type, was_read=not stored.never_read))
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
    return tuple(map(_restarted_flip, columns) if is_begun else columns)


def _restarted_flip(column: Column) -> Column:
    """Restarts a column's flip if another column starts one, because merged objects have one copy for all columns."""
    if column.widening is None or column.widening.copy_type is None:
        return column
    return replace(column, widening=replace(column.widening, is_flipping=False, flip_version=0, flip_seconds=0))


def waiting_columns(table: TableDefinition, old: TableDefinition, stored: StoredColumns) -> Iterator[str]:
    """Yields a line for each column stored under its first name that cannot take its own name yet."""
    for name, before in followed_columns(table, old).items():
        if _waits(table.column(name), before, stored):
            held = stored.held[name]
            yield (
                f"{old.name} keeps the name {before.stored_as} for {name} in objects and Glue, as {name} was another "
                f"column: {held_by(held)}; to let readers of Glue find {name}, {remedy(str(old.name), held)}, "
                "and apply again"
            )


def _waits(column: Column, before: Column, stored: StoredColumns) -> bool:
    return column.name == before.name and before.stored_as is not None and column.name in stored.held


def _rename(column: Column, before: Column, version: int) -> ColumnRename | None:
    """Returns the rename state of a column in the file, for definition `version`.

    A column may take back its former name while readers do not know the new one yet, because all objects have it.
    """
    if column.name == before.name and not before.stored_as:
        return before.rename
    former = before.glue_name
    if former == column.name:
        return None
    return ColumnRename(former=former, state=RenameState.REWRITING, version=version, since=version)


def _with_widening(column: Column, before: Column, version: int, stored: StoredColumns) -> Column:
    """Returns a column of the file with its type in objects, and its widening.

    By default merged objects are first copied with the wider type. If failing reads are accepted, Glue shows the type
    first and objects follow, even for a column already being copied. Objects hold the narrowest remaining type.
    """
    narrow, widening = before.type, before.widening
    is_other = column.type != before.wanted_type
    if column.type.parts:
        narrow = with_leaf_types_of(column.type, before.type)
        is_other = bool(widened_leaves(column.name, before.wanted_type, column.type))
        widening = _with_parts_of(column, narrow, widening)
    if is_other or (stored.accept_failing_reads and widening and widening.copy_type):
        at_once = stored.accept_failing_reads
        widening = ColumnWidening(
            former=widening.former if widening else before.type,
            version=version,
            shown_first=column.type if at_once else None,
            copy_type=None if at_once else column.type,
        )
    return replace(column, type=narrow, widening=widening)


def _with_parts_of(column: Column, narrow: ColumnType, widening: ColumnWidening | None) -> ColumnWidening | None:
    """Returns the widening of a nested column with the parts of the file. It ends if the widened leaves are dropped."""
    if widening is None or widening.wanted_type is None:
        return widening
    if widened_leaves(column.name, narrow, column.type):
        at_once, copied = (column.type if kind else None for kind in (widening.shown_first, widening.copy_type))
        return replace(widening, shown_first=at_once, copy_type=copied)
    if not widened_leaves(column.name, widening.former, narrow):
        return None
    return replace(widening, shown_first=None, copy_type=None, is_flipping=False)


def column_problems(
    table: TableDefinition, old: TableDefinition, stored: StoredColumns
) -> Iterator[tuple[str | None, str]]:
    """Yields why columns of the file cannot continue the current ones, each with the column if the file has it."""
    followed = followed_columns(table, old)
    for column in table.columns:
        for problem in _problems_of(column, followed.get(column.name), table, old, stored):
            yield column.name, problem
    for column in gone_columns(table, old, stored):
        if erasure := stored.erased_by.get(column.column_id):
            yield (
                None,
                (
                    f"{column.name} {_LOSES if column.name in followed else 'is missing'}, and erasure {erasure} names "
                    "it: erased rows would return with late or replayed objects; keep the column"
                ),
            )


_LOSES = "gets another type or loses a part"


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
        yield taken(str(old.name), column.name, held)


def _is_of_join(table: TableDefinition) -> bool:
    return table.join is not None or table.change_log is not None


def _unusable_name(
    column: Column, before: Column | None, table: TableDefinition, old: TableDefinition, stored: StoredColumns
) -> Iterator[str]:
    """Yields why a column cannot have a name that no current column has."""
    for other in old.columns:
        if column.name in (other.stored_as, other.copied_as) and other is not before:
            yield f"{column.name} is the name of {other.name} in objects and Glue; choose another"
    rivals = [item.name for item in table.columns if item.was == column.was and item.name != column.name]
    if before is None:
        if column.was is not None:
            is_own = column.was in {item.name for item in table.columns}
            former = {name: f"it is called {item.name} now" for item in old.columns for name in _other_names(item)}
            meant = "" if is_own else unknown_column(column.was, [item.name for item in old.columns], former)
            why = "names a column of this file" if is_own else "names no column of the table"
            way_out = f"{meant} Remove" if meant else "; remove"
            yield f"`was: {column.was}` of {column.name} {why}{way_out} `was` to add a column"
    elif rivals:
        yield f"{', '.join([column.name, *rivals])} say `was: {column.was}`; only one of them can"
    elif before.name == old.partition_column and not stored.never_read:
        yield f"{before.name} decides the day of rows, and keeps its name"
    elif _is_of_join(old):
        yield f"{before.name} cannot become {column.name}: columns of join tables cannot be renamed yet"
    elif before.rename and not stored.never_read and column.name != before.glue_name:
        yield (
            f"{before.name} cannot become {column.name} yet: it is still known as {before.rename.former} to readers of "
            f"Glue, as `prism status --table {old.name}` says; rename it afterwards"
        )


def _other_names(column: Column) -> set[str]:
    """Returns further names of a current column in objects."""
    return {name for name in (column.stored_as, column.copied_as) if name}


def _no_former_name(column: Column, before: Column, table: TableDefinition, old: TableDefinition) -> Iterator[str]:
    """Yields why `was` cannot stay at a column that already has its new name.

    If `was` names another current column, it would be a rename to a taken name. If it names the implied key, the column
    would be read from another key.
    """
    if column.was is None:
        return
    if column.was in {item.name for item in old.columns} and not _keeps_its_name(column.was, table, column.name):
        yield renamed_to_taken(column.was, column.name, "column")
    elif column.source == column.was != before.source:
        yield read_from_former(column.name, column.was)


def _keeps_its_name(name: str, table: TableDefinition, other: str) -> bool:
    """Whether a file has a column `name` that does not rename, directly or by a chain, the column `other`."""
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
    current = before.wanted_type
    if current != after.type and current.widens_to(after.type):
        if _is_of_join(old):
            yield (
                f"{after.name} is {before.type.name} in objects and cannot become {after.type.name}: columns of join "
                "tables cannot be widened yet; add a column instead, with `source` the same key"
            )
        elif not stored.accept_failing_reads and _has_both_widths(before):
            yield (
                f"{after.name} cannot become {after.type.name} yet: it is still on its way to {current.name}, as "
                f"`prism status --table {old.name}` says; widen it again afterwards, or at once with `prism "
                "table apply --accept-failing-reads`"
            )
    elif after.type.parts and type(after.type) is type(current):
        yield from _changed_parts(before, after, old, stored)
    elif type(after.type) is not type(current) or after.type.parameters != current.parameters:
        yield f"{after.name} is {current.name} and cannot become {after.type.name}; add a column instead"
    elif is_shorter(after.length, before.length):
        yield (
            f"{after.name} has the length {before.length}, which values in objects may have, and cannot be cut to "
            f"{after.length}; add a column instead"
        )


def _changed_parts(before: Column, after: Column, old: TableDefinition, stored: StoredColumns) -> Iterator[str]:
    current = before.wanted_type
    held = HeldParts(before.column_id, str(old.name), stored.held)
    yield from part_problems(after.name, after.type, current, held)
    kind = continued(after.type, current)
    wider = widened_leaves(after.name, current, kind)
    if (length := len(kind.glue_type(after.length, whole=True))) > GLUE_TYPE:
        yield (
            f"{after.name} would have {length:,} characters in Glue with its dropped fields, and Glue takes "
            f"{GLUE_TYPE:,}: add a column instead"
        )
    if _is_of_join(old):
        if lost := lost_parts(after.name, after.type, current):
            yield f"{', '.join(lost)} cannot be dropped or renamed: columns of join tables keep their parts yet"
        for path, kind, wanted in wider:
            yield f"{path} is {kind.name} and cannot become {wanted.name}: columns of join tables cannot be widened yet"
    elif wider and not stored.accept_failing_reads and _has_both_widths(before):
        yield (
            f"{wider[0][0]} cannot become {wider[0][2].name} yet: {before.name} is still on its way to another type, "
            f"as `prism status --table {old.name}` says; widen it afterwards, or at once with `prism table apply "
            "--accept-failing-reads`"
        )


def _has_both_widths(column: Column) -> bool:
    """Whether objects for readers have, or may soon have, values of two types."""
    return column.widening is not None and column.widening.state in (WideningState.SHOWING, WideningState.REWRITING)


def erased_by(rules: Collection[tuple[int, Collection[int]]]) -> Mapping[int, int]:
    """Returns the first erasure of each column by id. `rules` are erasures with their columns."""
    found: dict[int, int] = {}
    for erasure_id, columns in sorted(rules):
        for column_id in columns:
            found.setdefault(column_id, erasure_id)
    return found

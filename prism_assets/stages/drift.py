"""Drift: fields in the lines of a table that no column reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import with_fields
from prism_assets.domain.columns.types import Field
from prism_assets.domain.errors import PrismError
from prism_assets.domain.findings import Finding
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.diff import changes_between
from prism_assets.domain.tables.drafted_columns import column_names
from prism_assets.domain.tables.drafted_parts import DraftedField, names_for
from prism_assets.domain.tables.drift import (
    MOST_KEYS,
    SeenField,
    addable,
    full_contract,
    is_full,
    is_whole,
    room_for_columns,
    room_for_parts,
    room_in,
    still_undefined,
    structs_of,
)
from prism_assets.domain.tables.options import EVOLVE
from prism_assets.metadata import locks
from prism_assets.metadata.tables import tables, undefined_fields
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The fields of a table that no column reads, by place, key and kind."""

    table: TableDefinition
    fields: tuple[SeenField, ...]
    is_full: bool
    """The limit of recorded keys is reached, so there may be more."""
    full_contract: Finding | None = None
    """Why the fields become no columns, in a table whose contract adds them."""


def read_drift(context: StageContext, name: str) -> Drift:
    """Returns the fields of a table without a column in the current definition. Raises WrongUse for an unknown name."""
    (table,) = context.choose_logs([name])
    with context.database.begin() as connection:
        seen = undefined_fields.load_fields(connection, [table.table_id])
    fields = tuple(still_undefined(table, seen))
    return Drift(
        table=table,
        fields=fields,
        is_full=len({(field.within, field.key) for field in seen}) >= MOST_KEYS,
        full_contract=full_contract(table, fields),
    )


def find_full_contracts(connection: Connection, chosen: Collection[TableDefinition]) -> Iterator[Finding]:
    """Yields findings on tables with a full contract: it adds columns, and there is no room for more."""
    full = [table for table in chosen if table.contract.new_fields == EVOLVE and is_full(table)]
    if full:
        seen = undefined_fields.load_fields(connection, [table.table_id for table in full])
        for table in full:
            if finding := full_contract(table, still_undefined(table, seen)):
                yield finding


def evolve_tables(context: StageContext, table_ids: Collection[int] | None, now: datetime) -> tuple[Problem, ...]:
    """Adds columns and fields for new keys, where the contract of a table asks for them. Returns problems of tables.

    Objects claimed from then on get the columns. Earlier objects stay unchanged.
    """
    with context.database.begin() as connection:
        wanted = undefined_fields.tables_to_evolve(connection, table_ids)
        if not wanted:
            return ()
        known = [table for table in tables.load_definitions(connection) if table.table_id in wanted]
        seen = undefined_fields.load_fields(connection, wanted)
        former = {table.table_id: tables.load_column_names(connection, table.table_id) for table in known}
    problems = []
    for table in known:
        fields = [field for field in still_undefined(table, seen) if is_whole(field.key)]
        fields = _without_dropped(table, fields, former[table.table_id])
        try:
            if addable(table, fields):
                left = _evolve(context, table, fields, now)
                if finding := full_contract(left, still_undefined(left, seen)):
                    context.progress(f"stream: {finding}")
        except PrismError as error:
            problems.append(Problem.of(error, str(table.name)))
    return tuple(problems)


def _without_dropped(table: TableDefinition, fields: Sequence[SeenField], former: Collection[str]) -> list[SeenField]:
    """Returns the fields whose names were never dropped. Other names never return, so no line is read for them.

    `former` are all names that columns of the table have or had.
    """
    known = [column.name for column in (*table.columns, *table.unstored)]
    names = column_names(sorted({field.key for field in fields if not field.within}), known)
    dropped = {("", key) for key, name in names.items() if name in former}
    for path, struct in structs_of(table):
        keys = sorted({field.key for field in fields if field.within == path})
        names = names_for(keys, [part.name for part in struct.fields])
        dropped |= {(path, key) for key, name in names.items() if name in struct.taken_names}
    return [field for field in fields if (field.within, field.key) not in dropped]


def _within_room(table: TableDefinition, columns: Sequence[Column], fields: Sequence[SeenField]) -> tuple[Column, ...]:
    """Returns the columns a table has room for, those with most lines first: a key that contains an id has one line."""
    lines: Counter[str] = Counter()
    for field in fields:
        lines[field.key] += field.count
    ordered = sorted(columns, key=lambda column: (-lines[column.source], column.name))
    chosen = ordered[: room_for_columns(table)]
    return tuple(column for column in columns if column in chosen)


def _with_fields(
    table: TableDefinition, drafted: Sequence[DraftedField], fields: Sequence[SeenField]
) -> tuple[Column, ...]:
    """Returns the table's columns with new fields in their structs, up to the room there, most frequent keys first.

    A dropped field, or its name, never returns by itself.
    """
    lines = Counter[tuple[str, str]]()
    for field in fields:
        lines[field.within, field.key] += field.count
    structs, left = dict(structs_of(table)), room_for_parts(table)
    new: dict[str, list[Field]] = {}
    for item in sorted(drafted, key=lambda item: -lines[item.within, item.field.source or item.field.name]):
        struct, chosen = structs[item.within], new.setdefault(item.within, [])
        if left and len(chosen) < room_in(table, struct) and item.field.name not in struct.taken_names:
            chosen.append(replace(item.field, evolved=True))
            left -= 1
    return tuple(replace(column, type=with_fields(column.type, column.name, new)) for column in table.columns)


def _evolve(
    context: StageContext, table: TableDefinition, fields: Sequence[SeenField], now: datetime
) -> TableDefinition:
    """Adds columns in one transaction. Returns the definition in force after it.

    A death in it leaves the table unchanged, and the fields to the next run. Columns are drafted before it from objects
    in S3. If the table has changed meanwhile, the next run tries again.
    """
    fields = addable(table, fields)
    columns = context.draft_columns(table, [field for field in fields if not field.within])
    inner = context.draft_fields(table, [field for field in fields if field.within])
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        current = tables.load_current(connection, table)
        if current.version != table.version:
            return current
        # A dropped column, or its name, never returns by itself.
        former = tables.load_column_names(connection, table.table_id)
        new = [replace(column, evolved=True) for column in columns if column.name not in former]
        evolved = _within_room(current, new, fields)
        wanted = replace(current, columns=(*_with_fields(current, inner, fields), *evolved))
        if wanted == current:
            return current
        plan = ApplyPlan((TablePlan(table.name, current, changes_between(current, wanted)),))
        execute_apply(connection, plan, now)
    for line in plan.lines:
        context.progress(f"stream: {line}, by its contract")
    return wanted

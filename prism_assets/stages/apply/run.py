"""Applies table files to PostgreSQL: all or none for people, the sound ones for Dagster."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from prism_assets.domain.columns.change_kinds import ChangeParts, DropColumn
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.part_changes import with_leaf_types_of
from prism_assets.domain.columns.parts import with_ids
from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.tables.change import Change
from prism_assets.domain.tables.changes import AddStream, RenameTable, applied
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import defined_keys
from prism_assets.failpoints import failpoint
from prism_assets.metadata import locks
from prism_assets.metadata.days import partitions
from prism_assets.metadata.intake import streams
from prism_assets.metadata.rewrites import widenings
from prism_assets.metadata.tables import former_names, tables, undefined_fields
from prism_assets.stages.apply.deal import deal_waiting, keep_begun
from prism_assets.stages.apply.erasures import with_missing_erasures
from prism_assets.stages.apply.files import parse_table_files, streams_in_lake
from prism_assets.stages.apply.load import (
    load_plan,
    with_amplification,
    with_consequences,
    with_route_notices,
    without_unseen_changes,
)
from prism_assets.stages.apply.looks import look_at_streams
from prism_assets.stages.apply.plan import ApplyPlan, plan_apply
from prism_assets.stages.apply.shared_prefixes import changed_prefixes
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import compare_erasures
from prism_assets.stages.installation import preview_lake, take_lake


def execute_apply(connection: Connection, plan: ApplyPlan, now: datetime) -> None:
    """Writes the plan in the transaction of the caller's reads, so a death leaves nothing half-done.

    No batch starts meanwhile, and no object is registered. So objects already claimed belong to the former table of
    their stream, and all later ones to the current table.
    """
    changed = changed_prefixes(plan)
    if any(planned.changes for planned in plan.tables):
        locks.hold_epoch(connection)
        streams.lock_streams(connection)
        keep_begun(connection, changed)
        _end_copying(connection, plan)
    in_force: dict[str, TableDefinition] = {}
    for planned in plan.tables:
        table = applied(planned.old, planned.changes)
        in_force[str(table.name)] = table
        if not planned.changes:
            continue
        for change in planned.changes:
            if isinstance(change, RenameTable):
                former_names.rename_table(connection, table.table_id, change.before, change.name, change.grace_days)
        records = in_force[str(planned.records)] if planned.records else None
        if planned.old is None:
            table_id = tables.insert_table(connection, table, now, records.table_id if records else None)
            table = replace(table, table_id=table_id)
        table = _with_ids(connection, table) if records is None else _with_ids_of(records, table)
        table = in_force[str(table.name)] = replace(table, version=table.version + 1)
        tables.save_version(connection, table, now)
        if table.is_copying and not (planned.old and planned.old.is_copying):
            widenings.begin(connection, table.table_id, table.version, "prism table apply")
        tables.save_columns(connection, table, now)
        streams.remove_streams(connection, table)
        moved = [change.moved_id for change in planned.changes if isinstance(change, AddStream) and change.moved_id]
        streams.save_streams(connection, table.table_id, table.streams, moved)
        undefined_fields.forget_fields(connection, table.table_id, defined_keys(table))
        failpoint("apply.in_table")
    if changed:
        deal_waiting(connection, changed)
        failpoint("apply.after_deal")


def _end_copying(connection: Connection, plan: ApplyPlan) -> None:
    """Ends copies of merged objects in tables that no longer make any. Runs before the lock on tables' rows, like
    batches.
    """
    ended = [
        planned.old.table_id
        for planned in plan.tables
        if planned.old and planned.old.is_copying and not applied(planned.old, planned.changes).is_copying
    ]
    if ended:
        partitions.lock_all(connection, ended)
        for table_id in ended:
            widenings.drop(connection, table_id)


def _with_ids(connection: Connection, table: TableDefinition) -> TableDefinition:
    """Gives new columns, and new parts of columns, ids none in the table ever had."""
    counter = itertools.count(tables.highest_column_id(connection, table.table_id) + 1)

    def next_id() -> int:
        return next(counter)

    columns = []
    for column in table.columns:
        number = column.column_id or next_id()
        columns.append(_with_wanted_ids(replace(column, column_id=number, type=with_ids(column.type, next_id))))
    return replace(table, columns=tuple(columns))


def _with_wanted_ids(column: Column) -> Column:
    """Gives the wider types of a nested column all parts of the column, with their ids."""
    widening = column.widening
    if widening is None or not column.type.parts:
        return column
    shown, copied = (
        with_leaf_types_of(column.type, kind) if kind else None for kind in (widening.shown_first, widening.copy_type)
    )
    return replace(column, widening=replace(widening, shown_first=shown, copy_type=copied))


def _with_ids_of(records: TableDefinition, table: TableDefinition) -> TableDefinition:
    """Gives the columns of a log of changes, and their parts, the ids of the records' columns: both mean one column."""
    known = {column.name: column for column in records.columns}
    columns = [
        replace(item, column_id=known[item.name].column_id, type=known[item.name].type) if item.name in known else item
        for item in table.columns
    ]
    return replace(table, columns=tuple(columns))


def run_apply(
    context: StageContext,
    folder: Path,
    now: datetime,
    *,
    dry_run: bool = False,
    restore_marker: bool = False,
    accept_amplification: bool = False,
    accept_failing_reads: bool = False,
) -> ApplyPlan:
    """Migrates the schema and applies the table files of a folder, all or none. Returns the executed plan.

    The first apply joins database and lake for good. A stream that contains the lake's own objects is refused. Raises
    DefinitionError with every problem of every file, and WrongLake, before any change to a table, if database and lake
    do not belong together.

    `restore_marker` restores the lake's lost marker. Without `accept_amplification`, no table with unlimited record
    lifetime is changed if its folds write far more rows than changes. `accept_failing_reads` widens a column with
    stored values at once, instead of after all copies.
    """
    database, lake, stores = context.database, context.lake, context.stores
    files, unsound = parse_table_files(folder)
    wrong = [problem for table in files for problem in context.check_expressions(table)]
    if problems := [*unsound, *streams_in_lake(files, lake.place.url), *wrong]:
        raise DefinitionError("\n".join(problems))
    if dry_run:
        taken = preview_lake(database, lake, stores, restore_marker=restore_marker)
        if not database.has_table("prism_tables"):
            plan = plan_apply(files, [], [])
            return replace(plan, lake=taken, looks=look_at_streams(stores, plan))
    else:
        database.migrate()
        taken = take_lake(database, lake, stores, now, restore_marker=restore_marker)
    held = compare_erasures(context)
    with database.begin() as connection:
        locks.hold_apply(connection)
        plan = load_plan(connection, files, accept_failing_reads=accept_failing_reads)
        plan = with_missing_erasures(plan, held)
        plan = with_amplification(connection, plan, files, now, accept_amplification)
        plan = without_unseen_changes(connection, plan, files)
        if plan.problems:
            raise DefinitionError("\n".join(plan.problems))
        plan = with_consequences(context, connection, plan, now)
        plan = with_route_notices(connection, plan)
        if not dry_run:
            execute_apply(connection, plan, now)
    # After the commit: a slow or unreachable store must not prevent an apply.
    return replace(plan, lake=taken, looks=look_at_streams(stores, plan))


def apply_sound(context: StageContext, folder: Path, now: datetime) -> ApplyPlan:
    """Migrates the schema and applies the sound tables of a folder. A wrong file does not stop another table's change.

    Joins database and lake like `run_apply`. Tables with a problem keep their current definitions; the plan has the
    problems. Tables that would lose a column also stay unchanged: a process with an older folder, or a person in the
    middle of an edit, must not remove data from readers for good.
    """
    database = context.database
    found, problems = parse_table_files(folder)
    wrong = {table.name: context.check_expressions(table) for table in found}
    files = [table for table in found if not wrong[table.name]]
    problems += [problem for table in found for problem in wrong[table.name]]
    database.migrate()
    taken = take_lake(database, context.lake, context.stores, now)
    held = compare_erasures(context)
    with database.begin() as connection:
        locks.hold_apply(connection)
        plan = _without_drops(with_missing_erasures(load_plan(connection, files), held))
        plan = with_route_notices(connection, without_unseen_changes(connection, plan, files))
        execute_apply(connection, plan, now)
    return replace(plan, problems=(*problems, *plan.problems), lake=taken)


def _dropped(change: Change) -> list[str]:
    """Returns the columns and the parts of columns that readers no longer see."""
    match change:
        case DropColumn(column):
            return [f"column {column.name}"]
        case ChangeParts():
            return [f"field {path}" for path in change.dropped]
    return []


def _without_drops(plan: ApplyPlan) -> ApplyPlan:
    """Returns the plan without tables that lose a column, with a problem for each."""
    dropped = {
        planned.name: [name for change in planned.changes for name in _dropped(change)] for planned in plan.tables
    }
    problems = [
        f"{name}: its file has no {', '.join(columns)}: put it back, or drop it with `prism table apply`"
        for name, columns in dropped.items()
        if columns
    ]
    kept = tuple(planned for planned in plan.tables if not dropped[planned.name])
    return replace(plan, tables=kept, problems=(*plan.problems, *problems))

"""Compares the erasures recorded in the lake with the rules in PostgreSQL, and holds tables that lack any.

A restore of PostgreSQL loses rules of erasures. The restored database names objects from before the erasure, which
exist until the reader lease is over, and repair, rebuild and conversion would make their rows again from staging
objects. So every stage that makes or shows rows asks here first, and leaves out tables without one of their erasures.
It asks before each batch, not once per process, because PostgreSQL may be restored under a running process.

One comparison is one query and one listing of one page. A restore loses the newest erasures, so the listing covers only
records younger than the newest known one, with a margin of a day for clocks. Doctor lists all records.

The record of a new erasure is written after its rules are stored and before they are in force (`erase/rules.py`). A
comparison that finds the record of an announced erasure puts it in force at once: its writer may have died, or
PostgreSQL was restored to the moment in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from prism_assets.domain.erasures.records import MARGIN, ErasureRecord, HeldErasure, name_before
from prism_assets.domain.errors import ErasureMissing
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import locks
from prism_assets.metadata.erasures import erasure_records
from prism_assets.metadata.erasures.erasure_records import AnnouncedErasure
from prism_assets.objectstore.erasure_records import list_records, read_columns
from prism_assets.stages.context import StageContext

HeldTables = Mapping[int, tuple[HeldErasure, ...]]
"""Erasures that keep tables from work, by table id."""
_Value = TypeVar("_Value")


def compare_erasures(context: StageContext) -> HeldTables:
    """Notes erasures missing in PostgreSQL. Returns all erasures that keep tables from work."""
    with context.database.begin() as connection:
        until = erasure_records.load_known_until(connection)
    found = list_records(context.stores, context.lake, after=None if until is None else name_before(until - MARGIN))
    with context.database.begin() as connection:
        # After the listing, because an erasure is announced before its record is written.
        unknown = erasure_records.find_unknown(connection, found)
        announced = erasure_records.load_announced(connection)
        held = erasure_records.load_held(connection)
    if not unknown and not announced:
        return held
    for item in announced:
        if item.record in found:
            put_in_force(context, item)
    _note(context, unknown)
    with context.database.begin() as connection:
        return erasure_records.load_held(connection)


def _note(context: StageContext, unknown: Sequence[ErasureRecord]) -> None:
    columns = [read_columns(context.stores, context.lake, record) for record in unknown]
    if unknown:
        with context.database.begin() as connection:
            for record, names in zip(unknown, columns, strict=True):
                erasure_records.note_missing(connection, record, names)


def put_in_force(context: StageContext, announced: AnnouncedErasure) -> bool:
    """Puts the rules of a recorded erasure in force. Returns False if another process did. One transaction."""
    with context.database.begin() as connection:
        locks.hold_epoch(connection)
        made = erasure_records.put_in_force(connection, announced)
        failpoint("erase.in_rule")
    failpoint("erase.after_rule")
    return made


def find_held(context: StageContext, tables: Collection[TableDefinition]) -> HeldTables:
    """Returns erasures that keep tables from work, from all records of the lake. For doctor; changes nothing."""
    found = list_records(context.stores, context.lake, after=None)
    with context.database.begin() as connection:
        unknown = erasure_records.find_unknown(connection, found)
        held = erasure_records.load_held(connection)
        of_unknown = erasure_records.held_by(connection, unknown)
    return {
        table.table_id: both
        for table in tables
        if (both := (*held.get(table.table_id, ()), *of_unknown.get(table.table_id, ())))
    }


def without_held(
    context: StageContext, tables: Collection[TableDefinition], *, missing_only: bool = False
) -> tuple[list[TableDefinition], tuple[Problem, ...]]:
    """Returns the tables free for work, and a problem for each other one. Compares with the lake.

    With `missing_only` tables are free once all their erasures are repeated, because conversions then respect the
    rules.
    """
    held = compare_erasures(context)
    problems = {
        table.table_id: Problem(table=str(table.name), reason=reason)
        for table in tables
        if (reason := _reason(held.get(table.table_id, ()), missing_only=missing_only))
    }
    return [table for table in tables if table.table_id not in problems], tuple(problems.values())


def _reason(held: Sequence[HeldErasure], *, missing_only: bool = False) -> str:
    missing = [item for item in held if item.is_missing]
    return "; ".join(str(item) for item in (missing or ([] if missing_only else held)))


def check_not_held(context: StageContext, *tables: TableDefinition) -> None:
    """Raises ErasureMissing if a table lacks an erasure, or has a repeated one in progress."""
    _, problems = without_held(context, tables)
    if problems:
        raise ErasureMissing(problems[0].reason)


def load_held_names(context: StageContext) -> Mapping[str, tuple[HeldErasure, ...]]:
    """Returns the erasures of the last comparison that keep tables from work, by table name. For status, sensors and
    checks.
    """
    with context.database.begin() as connection:
        held = erasure_records.load_held(connection)
    if not held:
        return {}
    return {str(table.name): held[table.table_id] for table in context.choose_tables(None) if table.table_id in held}


def leave_out_held(context: StageContext, by_table: Mapping[str, _Value]) -> dict[str, _Value]:
    """Returns work by table name without the held tables. For sensors, which request runs."""
    held = load_held_names(context)
    return {name: value for name, value in by_table.items() if name not in held}

"""Drift: what lines of a table hold that it has no column for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from prism_assets.domain.columns import Column
from prism_assets.domain.drift import MOST_KEYS, SeenField, is_whole, still_undefined
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.table_diff import changes_between
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import locks, tables, undefined_fields
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The fields of a table that no column reads, by key and kind; `is_full` where there may be more keys."""

    table: TableDefinition
    fields: tuple[SeenField, ...]
    is_full: bool


def read_drift(context: StageContext, name: str) -> Drift:
    """What was seen in the lines of a table and has no column now. WrongUse for an unknown name."""
    (table,) = context.choose_logs([name])
    with context.database.begin() as connection:
        seen = undefined_fields.load_fields(connection, [table.table_id])
    return Drift(
        table=table,
        fields=tuple(still_undefined(table, seen)),
        is_full=len({field.key for field in seen}) >= MOST_KEYS,
    )


def evolve_tables(context: StageContext, table_ids: Collection[int] | None, now: datetime) -> tuple[Problem, ...]:
    """Adds columns for the fields that were seen of tables whose contract wants it; what hinders one is a problem.

    Objects that are claimed for the first time from then on have them; those of before are as they were.
    """
    with context.database.begin() as connection:
        wanted = undefined_fields.tables_to_evolve(connection, table_ids)
        if not wanted:
            return ()
        known = [table for table in tables.load_definitions(connection) if table.table_id in wanted]
        seen = undefined_fields.load_fields(connection, wanted)
    problems = []
    for table in known:
        fields = [field for field in still_undefined(table, seen) if is_whole(field.key)]
        try:
            if fields:
                _evolve(context, table, context.draft_columns(table, fields), now)
        except PrismError as error:
            problems.append(Problem.of(error, str(table.name)))
    return tuple(problems)


def _evolve(context: StageContext, table: TableDefinition, columns: Collection[Column], now: datetime) -> None:
    """One transaction: a death in it leaves the table as it was, and the fields to the next run.

    Columns were drafted before it, from objects in S3; where the table has changed meanwhile, the next run looks again.
    """
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        current = tables.load_current(connection, table)
        if current.version != table.version:
            return
        # What was dropped does not come again by itself, nor does its name.
        former = tables.load_column_names(connection, table.table_id)
        evolved = tuple(replace(column, evolved=True) for column in columns if column.name not in former)
        if not evolved:
            return
        changes = changes_between(current, replace(current, columns=(*current.columns, *evolved)))
        plan = ApplyPlan((TablePlan(table.name, current, changes),))
        execute_apply(connection, plan, now)
    for line in plan.lines:
        context.progress(f"stream: {line}, by its contract")

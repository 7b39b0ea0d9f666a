"""Has renamed and widened columns come to their new names and types, step by step: each a version of the definition.

What ends a step is known from PostgreSQL alone (`domain/column_transitions.py`). A step is one transaction, as `prism
table apply` is one; a death in it leaves the table as it was, and behind it the run that follows shows the new
definition, as it does any other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.column_transitions import (
    ColumnRename,
    ColumnTransition,
    ColumnWidening,
    RenameState,
    TransitionStep,
    WideningState,
    next_step,
)
from prism_assets.domain.columns import Column
from prism_assets.domain.table_diff import changes_between
from prism_assets.domain.tables import GRACE_DAYS, TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import column_transitions, leases, locks, tables
from prism_assets.metadata.leases import Lease
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class TransitionStatus:
    """A column that objects may have by its former name, or as its former type; since when, and what it waits for.

    `shown_type` is the wider one that catalogs are to show before objects have it.
    """

    column: str
    former: str
    is_widening: bool = False
    shown_type: str | None = None
    begun: datetime
    step: TransitionStep

    @classmethod
    def of(
        cls, column: Column, transition: ColumnTransition, begun: datetime, step: TransitionStep
    ) -> TransitionStatus:
        """That of one transition of a column."""
        if isinstance(transition, ColumnRename):
            return cls(column=column.name, former=transition.former, begun=begun, step=step)
        shown = transition.shown_first.name if transition.shown_first else None
        former = column.type if shown else transition.former
        return cls(column=column.name, former=former.name, is_widening=True, shown_type=shown, begun=begun, step=step)

    @property
    def is_shown(self) -> bool:
        """Whether every catalog shows the wider type that no object has yet."""
        return self.step.to is WideningState.REWRITING and self.step.is_due

    def __str__(self) -> str:
        waits = "the next catalog run goes on with it" if self.step.is_due else self.step.reason
        begun = f"{self.begun:%Y-%m-%d %H:%M}Z"
        if self.shown_type:
            return f"column {self.column} is {self.former}, and to be {self.shown_type} since {begun}: {waits}"
        return f"column {self.column} was {self.former} until {begun}: {waits}"


def read_transitions(
    context: StageContext, connection: Connection, table: TableDefinition, now: datetime
) -> tuple[TransitionStatus, ...]:
    """How far the renamed and widened columns of a table are. Asks nothing where there is none."""
    lease, grace = timedelta(hours=context.settings.gc_reader_lease_hours), timedelta(days=GRACE_DAYS)
    found = []
    for column in table.columns:
        for transition in column.transitions:
            facts = column_transitions.load_facts(connection, table.table_id, transition)
            step = next_step(transition, facts, now, reader_lease=lease, grace=grace)
            found.append(TransitionStatus.of(column, transition, facts.begun, step))
    return tuple(found)


def advance_columns(context: StageContext, lease: Lease, table: TableDefinition, now: datetime) -> tuple[str, ...]:
    """Takes the steps that are due of a table, and says which these were. By the clock of the caller."""
    with context.database.begin() as connection:
        if not tables_to_advance(context, connection, [table], now):
            return ()
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        leases.hold(connection, lease)
        current = tables.load_current(connection, table)
        due = [item for item in read_transitions(context, connection, current, now) if item.step.is_due]
        columns = tuple(_further(column, due, current.version + 1) for column in current.columns)
        changes = changes_between(current, replace(current, columns=columns))
        plan = ApplyPlan((TablePlan(current.name, current, changes),))
        execute_apply(connection, plan, now)
        failpoint("catalog.in_transition")
    failpoint("catalog.after_transition")
    return plan.lines


def _further(column: Column, due: Collection[TransitionStatus], version: int) -> Column:
    """A column behind the steps that are due, which come with that version of the definition."""
    for item in due:
        if item.column != column.name:
            continue
        if item.is_widening:
            column = _with_widening(column, item.step, version)
        elif column.rename:
            to = item.step.to
            further = replace(column.rename, state=to, since=version) if isinstance(to, RenameState) else None
            column = replace(column, rename=further)
    return column


def _with_widening(column: Column, step: TransitionStep, version: int) -> Column:
    """A widened column behind its step: objects are written with the type that catalogs show, or all have it."""
    if step.to is None or column.widening is None or column.widening.shown_first is None:
        return replace(column, widening=None)
    widening = ColumnWidening(former=column.widening.former, version=version)
    return replace(column, type=column.widening.shown_first, widening=widening)


def tables_to_advance(
    context: StageContext, connection: Connection, wanted: Collection[TableDefinition], now: datetime
) -> list[TableDefinition]:
    """Those of the tables that a catalog run would take a step of."""
    return [
        table for table in wanted if any(item.step.is_due for item in read_transitions(context, connection, table, now))
    ]

"""Has renamed columns take their new names for readers of Glue, step by step: each a version of the definition.

What ends a step is known from PostgreSQL alone (`domain/column_renames.py`). A step is one transaction, as `prism table
apply` is one; a death in it leaves the table as it was, and behind it the run that follows shows the new definition, as
it does any other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.column_renames import ColumnRename, RenameStep, next_step
from prism_assets.domain.table_changes import changes_between
from prism_assets.domain.tables import GRACE_DAYS, TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import column_renames, leases, locks, tables
from prism_assets.metadata.leases import Lease
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class RenameStatus:
    """A column that readers of Glue may know by its former name, since when, and what its new name waits for."""

    column: str
    former: str
    begun: datetime
    step: RenameStep

    def __str__(self) -> str:
        waits = "the next catalog run goes on with it" if self.step.is_due else self.step.reason
        return f"column {self.column} was {self.former} until {self.begun:%Y-%m-%d %H:%M}Z: {waits}"


def read_renames(
    context: StageContext, connection: Connection, table: TableDefinition, now: datetime
) -> tuple[RenameStatus, ...]:
    """How far the renamed columns of a table are. Asks nothing where there is none."""
    lease, grace = timedelta(hours=context.settings.gc_reader_lease_hours), timedelta(days=GRACE_DAYS)
    found = []
    for column in table.columns:
        if column.rename is not None:
            facts = column_renames.load_rename(connection, table.table_id, column.rename)
            step = next_step(column.rename, facts, now, reader_lease=lease, grace=grace)
            found.append(RenameStatus(column=column.name, former=column.rename.former, begun=facts.begun, step=step))
    return tuple(found)


def advance_renames(context: StageContext, lease: Lease, table: TableDefinition, now: datetime) -> tuple[str, ...]:
    """Takes the steps that are due of a table, and says which these were. By the clock of the caller."""
    with context.database.begin() as connection:
        if not tables_to_advance(context, connection, [table], now):
            return ()
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        leases.hold(connection, lease)
        current = tables.load_current(connection, table)
        due = {item.column: item.step for item in read_renames(context, connection, current, now) if item.step.is_due}
        columns = tuple(
            replace(column, rename=_further(column.rename, due[column.name], current.version + 1))
            if column.rename and column.name in due
            else column
            for column in current.columns
        )
        changes = changes_between(current, replace(current, columns=columns))
        plan = ApplyPlan((TablePlan(current.name, current, changes),))
        execute_apply(connection, plan, now)
        failpoint("catalog.in_rename")
    failpoint("catalog.after_rename")
    return plan.lines


def _further(rename: ColumnRename, step: RenameStep, version: int) -> ColumnRename | None:
    """A rename behind a step, which comes with that version of the definition."""
    return replace(rename, state=step.to, since=version) if step.to else None


def tables_to_advance(
    context: StageContext, connection: Connection, wanted: Collection[TableDefinition], now: datetime
) -> list[TableDefinition]:
    """Those of the tables that a catalog run would take a step of."""
    return [
        table for table in wanted if any(item.step.is_due for item in read_renames(context, connection, table, now))
    ]

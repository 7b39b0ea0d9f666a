"""Takes renamed and widened columns to their new names and types, step by step.

Each step is a version of the definition.

PostgreSQL alone decides when a step is due (`domain/columns/transitions.py`). A step is one transaction, like `prism
table apply`: a death in it leaves the table unchanged. After it, the next run shows the new definition like any other.
Before copies replace objects of readers, the store is searched for the copies.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.columns.change_kinds import FlipColumn
from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.part_changes import leaf_words
from prism_assets.domain.columns.transitions import (
    ColumnRename,
    ColumnTransition,
    TransitionStep,
    WideningState,
    next_step,
)
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.rewrites import Certificate
from prism_assets.domain.tables.definition import GRACE_DAYS, TableDefinition
from prism_assets.domain.tables.diff import changes_between
from prism_assets.failpoints import failpoint
from prism_assets.metadata import clock, leases, locks
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import staged_files, widenings
from prism_assets.metadata.tables import column_transitions, tables
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import execute_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.rewrite.commit import commit_staged


@dataclass(frozen=True, kw_only=True)
class TransitionStatus:
    """A column with objects under its former name or type, and the next step."""

    column: str
    former: str
    is_widening: bool = False
    wanted_type: str | None = None
    """The wider type that objects of readers do not have yet."""
    is_flipping: bool = False
    begun: datetime
    step: TransitionStep

    @classmethod
    def of(
        cls, column: Column, transition: ColumnTransition, begun: datetime, step: TransitionStep
    ) -> TransitionStatus:
        """Builds the status of one transition of a column."""
        if isinstance(transition, ColumnRename):
            return cls(column=column.name, former=transition.former, begun=begun, step=step)
        wide = transition.wanted_type
        former, other = (column.type, wide) if wide else (transition.former, column.type)
        wanted = leaf_words(column.name, wide, column.type) if wide else None
        return cls(
            column=column.name,
            former=leaf_words(column.name, former, other),
            is_widening=True,
            wanted_type=wanted,
            is_flipping=transition.state is WideningState.FLIPPING,
            begun=begun,
            step=step,
        )

    @property
    def gives_up(self) -> bool:
        """Whether the next step gives up a flip to the wider type, because it took too long."""
        return self.step.to is WideningState.COPYING

    @property
    def is_shown(self) -> bool:
        """Whether every catalog shows the wider type, while no object has it yet."""
        return self.step.to is WideningState.REWRITING and self.step.is_due

    @property
    def outlook(self) -> str:
        """The reason to wait, or that the next run continues."""
        return self.step.reason or "the next catalog run goes on with it"

    def __str__(self) -> str:
        begun = f"{self.begun:%Y-%m-%d %H:%M}Z"
        if self.wanted_type:
            return f"column {self.column} is {self.former}, and to be {self.wanted_type} since {begun}: {self.outlook}"
        return f"column {self.column} was {self.former} until {begun}: {self.outlook}"


def read_transitions(
    context: StageContext,
    connection: Connection,
    table: TableDefinition,
    now: datetime,
    *,
    is_asked_for: bool = False,
) -> tuple[TransitionStatus, ...]:
    """Returns the states of a table's renamed and widened columns. Without such columns it reads nothing.

    `is_asked_for` makes steps due at once that otherwise only a person begins.
    """
    lease, grace = timedelta(hours=context.settings.gc_reader_lease_hours), timedelta(days=GRACE_DAYS)
    found = []
    for column, transition, facts in column_transitions.load_facts(connection, table):
        step = next_step(transition, facts, now, reader_lease=lease, grace=grace, is_asked_for=is_asked_for)
        found.append(TransitionStatus.of(column, transition, facts.begun, step))
    return tuple(found)


def advance_columns(
    context: StageContext, lease: Lease, table: TableDefinition, now: datetime, *, is_asked_for: bool = False
) -> tuple[str, ...]:
    """Takes the due steps of a table. Returns a line for each."""
    with context.database.begin() as connection:
        now = clock.not_ahead(connection, now)  # a flip that began by a clock ahead would last
        found = read_transitions(context, connection, table, now, is_asked_for=is_asked_for)
    due = [item for item in found if item.step.is_due]
    gives_up = any(item.gives_up for item in due)
    if table.is_flipping and not gives_up:
        _hasten_merges(context, lease, table, now)
    if not due:
        return ()
    if table.is_copying and not gives_up:
        _forget_damaged_copies(context, lease, table)
    return _take_steps(context, lease, table, now, is_asked_for=is_asked_for, gives_up=gives_up)


def _take_steps(
    context: StageContext,
    lease: Lease,
    table: TableDefinition,
    now: datetime,
    *,
    is_asked_for: bool = False,
    gives_up: bool = False,
) -> tuple[str, ...]:
    """Decides again under the locks and takes the due steps, in one transaction: a death in it changes nothing.

    With `gives_up` it only gives up flips: the last copy may have come meanwhile, and nobody has searched the store for
    the copies.
    """
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        leases.hold(connection, lease)
        current = tables.load_current(connection, table)
        if current.is_copying:
            # No batch starts and no partition changes while these locks are held, so the counts stay true.
            locks.hold_epoch(connection)
            partitions.lock_all(connection, [table.table_id])
        found = read_transitions(context, connection, current, now, is_asked_for=is_asked_for)
        due = [item for item in found if item.step.is_due and (item.gives_up or not gives_up)]
        columns = tuple(_after_steps(column, due, current.version + 1) for column in current.columns)
        changes = changes_between(current, replace(current, columns=columns))
        plan = ApplyPlan((TablePlan(current.name, current, changes),))
        if any(isinstance(change, FlipColumn) for change in changes):
            if any(column.widening and column.widening.copy_type for column in columns):
                raise InvariantBroken(f"{table.name} has copies for columns that do not flip: nothing was changed")
            _flip(context, connection, current)
        execute_apply(connection, plan, now)
        failpoint("catalog.in_transition")
    failpoint("catalog.after_transition")
    return plan.lines


def give_up_flip(context: StageContext, lease: Lease, table: TableDefinition, now: datetime) -> tuple[str, ...]:
    """Ends a flip that takes too long, so that batches claim new objects again.

    Runs first, so that no later error stops it.
    """
    if not table.is_flipping:
        return ()
    with context.database.begin() as connection:
        now = clock.not_ahead(connection, now)  # a flip that began by a clock ahead would last
        found = read_transitions(context, connection, table, now)
    return _take_steps(context, lease, table, now, gives_up=True) if any(item.gives_up for item in found) else ()


def _hasten_merges(context: StageContext, lease: Lease, table: TableDefinition, now: datetime) -> None:
    """Makes the merges of a flipping table due at once, because new objects wait for them. One transaction."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        waiting = merge_jobs.find_waiting(connection, table.table_id, now)
        for partition_id in sorted(partitions.lock_partitions(connection, waiting)):
            merge_jobs.hasten(connection, partition_id, now)


def _forget_damaged_copies(context: StageContext, lease: Lease, table: TableDefinition) -> None:
    """Forgets copies that are missing in the store or have another length, so that merges make them again.

    Nothing is lost, because the copied objects still exist. One transaction. A copy lost afterwards is found by the
    publication, which names existing objects only.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        widening = widenings.find(connection, table.table_id)
        copies = staged_files.load_replacements(connection, keys, widening) if widening else {}
    listed = context.stores.list(context.lake.bucket, keys.all_merged_prefix) if copies else ()
    lengths = {item.key: item.content_length for item in listed}
    damaged = [
        (partition_id, item.place)
        for partition_id, items in copies.items()
        for item in items
        if lengths.get(item.file.key) != item.file.content_length
    ]
    if widening and damaged:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            staged_files.forget_ranges(connection, widening.rewrite_id, damaged)


def _flip(context: StageContext, connection: Connection, table: TableDefinition) -> None:
    """Replaces the ranges of all days by their copies, in the commit of one rewrite.

    The caller holds the epoch lock and the rows of all partitions of the table, and has found no range without a copy.
    No slices are needed: 10,000 ranges of 400 days take PostgreSQL half a second, and Python one.
    """
    if (widening := widenings.find(connection, table.table_id)) is None:
        raise InvariantBroken(f"{table.name} has no rewrite with its copies: nothing was changed")
    widenings.forget_unneeded(connection, widening, table.copies_since)
    staged = staged_files.load_replacements(connection, context.lake.keys(table), widening)
    commit_staged(connection, widening, staged, Certificate.SAME_ROWS)


def _after_steps(column: Column, due: Collection[TransitionStatus], version: int) -> Column:
    """Returns the column after its due steps, which come with this version of the definition."""
    for item in due:
        if item.column == column.name:
            after = column.after_widening_step if item.is_widening else column.after_rename_step
            column = after(item.step, version)
    return column

"""Flips the columns of one table to their wider types now, with turns through all stages.

The catalog run takes the steps, as it also does on its own. On request, a flip given up earlier begins again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.leases import LeaseKind
from prism_assets.metadata.tables import tables
from prism_assets.stages.catalog.column_transitions import TransitionStatus, advance_columns, read_transitions
from prism_assets.stages.context import StageContext
from prism_assets.stages.leases import leased, takeover_seconds
from prism_assets.stages.run import CycleReport, lasting_errors, run_until_idle


@dataclass(frozen=True, kw_only=True)
class FlipReport:
    """The steps taken, in order, the columns not yet at their wider type, and the problems."""

    table: str
    steps: tuple[str, ...]
    left: tuple[TransitionStatus, ...]
    problems: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The result, for people."""
        left = tuple(f"{self.table}: {item}" for item in self.left)
        return (*self.steps, *(left or (f"all columns of {self.table} have their types",)))

    @property
    def errors(self) -> tuple[str, ...]:
        """Why some columns do not have their types, one sentence each."""
        return self.problems or tuple(f"{self.table}: {item}" for item in self.left)


def run_flip(context: StageContext, name: str, *, clock: Callable[[], datetime]) -> FlipReport:
    """Runs until all columns have their types, or until something else must happen first. A repetition changes nothing.

    After a death the next run of any stage continues.
    """
    (table,) = context.choose_tables([name])
    turns = run_until_idle(context, clock=clock, names=[name])
    steps = _steps(turns)
    if _left(context, table, clock()) and (begun := _begin(context, table, clock())):
        turns = run_until_idle(context, clock=clock, names=[name])
        steps += [*begun, *_steps(turns)]
    return FlipReport(
        table=str(table.name),
        steps=tuple(steps),
        left=_left(context, table, clock()),
        problems=lasting_errors(context, turns, [name]),
    )


def _steps(turns: Sequence[CycleReport]) -> list[str]:
    return [line for turn in turns for table in turn.catalog.tables for line in table.columns_advanced]


def _begin(context: StageContext, table: TableDefinition, now: datetime) -> tuple[str, ...]:
    with leased(context, LeaseKind.CATALOG, [table.table_id], takeover_seconds(context)) as held:
        if table.table_id not in held:
            raise LeaseLost(f"another catalog run is working on {table.name}: repeat it when that has ended")
        with context.database.begin() as connection:
            table = tables.load_current(connection, table)
        return advance_columns(context, held[table.table_id], table, now, is_asked_for=True)


def _left(context: StageContext, table: TableDefinition, now: datetime) -> tuple[TransitionStatus, ...]:
    with context.database.begin() as connection:
        found = read_transitions(context, connection, tables.load_current(connection, table), now)
    return tuple(item for item in found if item.is_widening)

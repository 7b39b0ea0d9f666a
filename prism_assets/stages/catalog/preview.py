"""The dry run of a catalog run. It takes its decisions from the stage's own functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.days.lifecycle import (
    Close,
    Expire,
    MarkClosing,
    Switch,
    WaitForHistory,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    Withdraw,
    next_steps,
)
from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.days.publishers import wanted_publishers, words_of
from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.days import catalog_state
from prism_assets.metadata.days.catalog_state import CatalogState
from prism_assets.stages.catalog.candidates import choose_expiring, load_candidates
from prism_assets.stages.catalog.column_transitions import read_transitions
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.catalog.publish import plan_publish
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class CatalogStep:
    """A step of the run on a partition, or the reason against it. `date` is None for steps on the table."""

    table: str
    date: date | None
    step: str

    def __str__(self) -> str:
        where = self.table if self.date is None else f"{self.table} {self.date}"
        return f"{where}: {self.step}"


def preview(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None, republish: bool = False
) -> list[CatalogStep]:
    """Returns the steps of the next run by table, those on the table first, then by date. Also asks the catalog."""
    return [
        CatalogStep(table=str(table.name), date=day, step=step)
        for table in context.choose_with_dropped(names)
        for day, step in _of_table(context, table, now, republish)
    ]


def _of_table(
    context: StageContext, table: TableDefinition, now: datetime, republish: bool
) -> Iterator[tuple[date | None, str]]:
    with context.database.begin() as connection:
        state = _load_state(context, connection, table)
        table = state.definition
        pending = load_candidates(connection, [table], now)
        most = context.settings.expire_max_days
        _, left = choose_expiring(pending, table, min(now, state.time), most)
        later = {item.partition_id for item in left}
        steps = {
            item.date: _moves(connection, table, item, now)
            for item in pending
            if not (republish or table.dropped) and item.partition_id not in later
        }
        shows_transitions = not (republish or table.dropped)
        for transition in read_transitions(context, connection, table, now) if shows_transitions else ():
            yield None, str(transition)
        shown_by = catalog_state.load_publishers(connection, [table.table_id])[table.table_id]
    for one in context.of_publishers({*shown_by, *wanted_publishers(table)}):
        for day, step in _of_catalog(one, table, now, republish):
            step_text = f"{words_of(one.publisher.name).prefix}{step}"
            if day is None:
                yield None, step_text
            else:
                steps.setdefault(day, []).append(step_text)
    if later:
        yield None, f"leave {counted(len(later), 'more day')} to the next runs, as PRISM_EXPIRE_MAX_DAYS is {most}"
    for day in sorted(steps):
        for step in steps[day]:
            yield day, step


def _of_catalog(
    context: StageContext, table: TableDefinition, now: datetime, republish: bool
) -> Iterator[tuple[date | None, str]]:
    """Yields the steps in the catalog of one publisher."""
    with context.database.begin() as connection:
        state = _load_state(context, connection, table)
        pending = load_candidates(connection, [state.definition], now, state.publisher)
    if state.publisher not in wanted_publishers(state.definition):
        yield None, "remove the table from the catalog"
        return
    try:
        plan = plan_publish(context, state, pending, republish=republish)
    except PrismError as error:
        yield None, f"not define and publish: {error}"
        plan = None
    if plan and plan.differs:
        yield None, "define it in the catalog"
    if state.comparison_due:
        yield None, f"compare it with the catalog: {state.comparison_due}"
    for name in plan.removals if plan else ():
        yield None, f"remove its former name {name} from the catalog"
    for item in plan.publications if plan else ():
        yield item.partition.date, str(item.step)


def _load_state(context: StageContext, connection: Connection, table: TableDefinition) -> CatalogState:
    settings = context.settings
    return catalog_state.load_catalog_state(
        connection, table.table_id, context.publisher.name, settings.catalog_compare_seconds, settings.lease_seconds
    )


def _moves(connection: Connection, table: TableDefinition, partition: Partition, now: datetime) -> list[str]:
    """Returns the state changes of the partition, possible now or waiting. The catalog plans publications."""
    steps = next_steps(partition, StoredFacts(connection, table), now)
    shown = (MarkClosing, Close, Switch, Expire, Withdraw, WaitForHistory, WaitForObjects, WaitForMerge, WaitToExpire)
    return [str(step) for step in steps if isinstance(step, shown) and not step.follows]

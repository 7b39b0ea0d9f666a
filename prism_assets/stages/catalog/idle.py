"""Looks at all tables of a catalog run, in a few statements and calls for all together, before it takes a lease.

A run leaves idle tables out. Without this, each of hundreds of tables costs a lease, twenty statements and a call to
Glue. Every doubt makes a table count as busy, and its own run decides. Tables that the catalog shows as defined need no
second look under the lease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.days.lifecycle import WaitForDayEnd, WaitForMerge, may_switch, next_steps
from prism_assets.domain.days.partitions import GLUE, Partition, SwitchEvidence
from prism_assets.domain.days.publishers import wanted_publishers
from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock, leases
from prism_assets.metadata.days import catalog_state, retention
from prism_assets.metadata.days.publication_intents import load_comparisons_due
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.facts import closes_from
from prism_assets.stages.catalog.report import Waiting
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class FirstLook:
    """Tables as they were right before a run took its first lease."""

    idle: Mapping[int, tuple[Waiting, ...]] = field(default_factory=dict)
    """Tables whose run would change nothing, with their closed days that wait for a merge."""
    as_defined: frozenset[tuple[str, int, int]] = frozenset()
    """Publishers, ids and versions: their catalogs show these tables by these versions of their definitions."""

    def is_defined(self, publisher: str, table: TableDefinition) -> bool:
        """Whether a catalog was seen to show this version of a table."""
        return (publisher, table.table_id, table.version) in self.as_defined


def look_first(context: StageContext, tables: Collection[TableDefinition], now: datetime) -> FirstLook:
    """Finds the idle tables, and the tables that catalogs show as defined.

    The definitions are current. Reads without locks and leases: the result holds for the moment of the call. A catalog
    that does not answer makes all its tables busy.
    """
    chosen = {table.table_id: table for table in tables if not _is_changing(table)}
    if not chosen:
        return FirstLook()
    waiting: dict[int, list[Waiting]] = {number: [] for number in chosen}
    with context.database.begin() as connection:
        begun = catalog_state.load_publishers(connection, chosen)
        compared = catalog_state.undefined_tables(connection)
        compared |= leases.holders(connection, LeaseKind.CATALOG, chosen).keys()
        due = load_comparisons_due(connection, chosen, context.settings.catalog_compare_seconds, None)
        compared |= {table_id for table_id, _ in due}
        busy = {number for number, table in chosen.items() if set(begun[number]) != set(wanted_publishers(table))}
        busy |= _with_earlier_mark(connection, chosen, now)
        for publisher in sorted({GLUE, *(name for names in begun.values() for name in names)}):
            shown = [table for number, table in chosen.items() if publisher in begun[number]]
            candidates = load_candidates(connection, shown, now, publisher)
            closed = {item.partition_id: item.desired_version for item in candidates if may_switch(item)}
            unmerged = small_objects.count_unmerged_live(connection, closed) if closed else {}
            for item in candidates:
                waits = _waits(item, _LoadedFacts(chosen[item.table_id], unmerged), now)
                if waits is None:
                    busy.add(item.table_id)
                elif publisher == GLUE:
                    waiting[item.table_id] += [Waiting.of(item, step) for step in waits]
    # The run of a table in `compared` asks its catalogs itself.
    as_defined = _shown_as_defined(context, [table for number, table in chosen.items() if number not in compared])
    idle = {
        number: tuple(waiting[number])
        for number, table in chosen.items()
        if number not in busy
        and all((publisher, number, table.version) in as_defined for publisher in wanted_publishers(table))
    }
    return FirstLook(idle=idle, as_defined=as_defined)


def _with_earlier_mark(connection: Connection, tables: Mapping[int, TableDefinition], now: datetime) -> set[int]:
    """Returns the tables that still take rows of days past their retention. Their run moves the mark."""
    limited = [table for table in tables.values() if table.retention_days is not None]
    if not limited:
        return set()
    now = clock.not_ahead(connection, now)
    marks = retention.load_marks(connection, [table.table_id for table in limited])
    kept = {table.table_id: day for table in limited if (day := table.oldest_kept(now)) is not None}
    return {number for number, day in kept.items() if number not in marks or marks[number].first_day < day}


def _is_changing(table: TableDefinition) -> bool:
    return table.dropped or any(column.transitions for column in table.columns)


def _shown_as_defined(context: StageContext, tables: Sequence[TableDefinition]) -> frozenset[tuple[str, int, int]]:
    """Returns `FirstLook.as_defined` of these tables. A silent catalog shows none of them."""
    found: set[tuple[str, int, int]] = set()
    for one in context.of_publishers([name for table in tables for name in wanted_publishers(table)]):
        name = one.publisher.name
        shown = [table for table in tables if name in wanted_publishers(table)]
        with suppress(PrismError):
            differing = one.publisher.differing(shown)
            found |= {(name, table.table_id, table.version) for table in shown if table.table_id not in differing}
    return frozenset(found)


class _FactMissing(Exception):
    """The next step depends on more than the day's row and the clock."""


@dataclass(frozen=True)
class _LoadedFacts:
    """The `Facts` loaded for all tables together. The other ones raise `_FactMissing`."""

    table: TableDefinition
    unmerged: Mapping[int, int]
    """Live objects above the merged ranges, by partition. Partitions with none are left out."""

    def closes_from(self, partition: Partition) -> datetime:
        return closes_from(self.table, partition)

    def expires(self, partition: Partition) -> datetime | None:
        return self.table.expires(partition.date)

    def not_ahead(self, now: datetime) -> datetime:
        return now

    def unfinished_objects(self, partition: Partition) -> int:
        raise _FactMissing

    def unfinished_history(self, partition: Partition) -> int | None:
        raise _FactMissing

    def unmerged_live(self, partition: Partition) -> int | None:
        return self.unmerged.get(partition.partition_id, 0)

    def unfinished_before_expiry(self, partition: Partition) -> int:
        raise _FactMissing

    def unfolded_objects(self, partition: Partition) -> int:
        raise _FactMissing

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        raise _FactMissing


def _waits(partition: Partition, facts: _LoadedFacts, now: datetime) -> list[WaitForMerge] | None:
    """Returns the waits to report of a day without any step to take, or None if its table needs a run."""
    try:
        steps = next_steps(partition, facts, now)
    except _FactMissing:
        return None
    if all(isinstance(step, WaitForDayEnd | WaitForMerge) for step in steps):
        return [step for step in steps if isinstance(step, WaitForMerge)]
    return None

"""Finds the tables without any work for a catalog run, in a few statements for all tables together.

A run leaves these tables out. Without this, each of hundreds of tables costs a lease, twenty statements and a call to
Glue. Every doubt makes a table count as busy, and its own run decides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.days.lifecycle import WaitForDayEnd, next_steps
from prism_assets.domain.days.partitions import GLUE, Partition, SwitchEvidence
from prism_assets.domain.days.publishers import wanted_publishers
from prism_assets.domain.errors import PrismError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import leases
from prism_assets.metadata.days import catalog_state
from prism_assets.metadata.days.publication_intents import load_comparisons_due
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.facts import closes_from
from prism_assets.stages.context import StageContext


def find_idle(context: StageContext, tables: Collection[TableDefinition], now: datetime) -> frozenset[int]:
    """Returns the ids of the tables whose run would change nothing and wait for nothing but the end of a day.

    The definitions are current. Reads without locks and leases: the result is as of now, like that of a run that ends
    now. A catalog that does not answer makes all its tables busy.
    """
    chosen = {table.table_id: table for table in tables if not _is_changing(table)}
    if not chosen:
        return frozenset()
    with context.database.begin() as connection:
        begun = catalog_state.load_publishers(connection, chosen)
        busy = catalog_state.undefined_tables(connection)
        busy |= {number for number, table in chosen.items() if set(begun[number]) != set(wanted_publishers(table))}
        busy |= leases.holders(connection, LeaseKind.CATALOG, chosen).keys()
        due = load_comparisons_due(connection, chosen, context.settings.catalog_compare_seconds, None)
        busy |= {table_id for table_id, _ in due}
        for publisher in sorted({GLUE, *(name for names in begun.values() for name in names)}):
            shown = [table for number, table in chosen.items() if publisher in begun[number]]
            candidates = load_candidates(connection, shown, now, publisher)
            busy |= {item.table_id for item in candidates if not _is_quiet(chosen[item.table_id], item, now)}
    quiet = [table for number, table in chosen.items() if number not in busy]
    return frozenset(table.table_id for table in quiet) - _differing(context, quiet)


def _is_changing(table: TableDefinition) -> bool:
    return table.dropped or any(column.transitions for column in table.columns)


def _differing(context: StageContext, tables: Sequence[TableDefinition]) -> frozenset[int]:
    """Returns the tables that a catalog shows otherwise, or all of a catalog that does not answer."""
    differing: frozenset[int] = frozenset()
    for one in context.of_publishers([name for table in tables for name in wanted_publishers(table)]):
        shown = [table for table in tables if one.publisher.name in wanted_publishers(table)]
        try:
            differing |= one.publisher.differing(shown)
        except PrismError:
            differing |= {table.table_id for table in shown}
    return differing


class _FactMissing(Exception):
    """The next step depends on more than the day's row and the clock."""


@dataclass(frozen=True)
class _NoFacts:
    """`Facts` of the lifecycle that need no statement. All others raise `_FactMissing`."""

    table: TableDefinition

    def closes_from(self, partition: Partition) -> datetime:
        return closes_from(self.table, partition)

    def expires(self, partition: Partition) -> datetime | None:
        return self.table.expires(partition.date)

    def not_ahead(self, now: datetime) -> datetime:
        return now

    def unfinished_objects(self, partition: Partition) -> int:
        raise _FactMissing

    def unmerged_live(self, partition: Partition) -> int | None:
        raise _FactMissing

    def unfinished_before_expiry(self, partition: Partition) -> int:
        raise _FactMissing

    def unfolded_objects(self, partition: Partition) -> int:
        raise _FactMissing

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        raise _FactMissing


def _is_quiet(table: TableDefinition, partition: Partition, now: datetime) -> bool:
    """Whether a day has no step but the wait for its end."""
    try:
        return all(isinstance(step, WaitForDayEnd) for step in next_steps(partition, _NoFacts(table), now))
    except _FactMissing:
        return False

"""Which join tables a fold would do something about, and why: from PostgreSQL alone, for sensors, status and people."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass

from prism_assets.domain.folding import FoldFacts, fold_reason
from prism_assets.metadata import tables
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.plan import FoldPlan, load_facts, plan_fold


@dataclass(frozen=True, kw_only=True)
class FoldWork:
    """A join table, what decides about its next fold, and why it is due; None if it is not. `date` is its today."""

    table: str
    date: datetime.date
    facts: FoldFacts
    reason: str | None


def find_fold_work(
    context: StageContext, *, now: datetime.datetime, names: Collection[str] | None = None
) -> list[FoldWork]:
    """All join tables, or those of the names given, by name. Reads without locks."""
    found = []
    chosen = [table for table in context.choose_tables(names) if table.join is not None]
    with context.database.begin() as connection:
        for table in sorted(chosen, key=lambda item: str(item.name)):
            records, changes = tables.load_join(connection, table.table_id)
            facts = load_facts(connection, records, changes)
            assert records.join is not None
            reason = fold_reason(records.join.publish, facts, now)
            found.append(FoldWork(table=str(records.name), date=records.today(now), facts=facts, reason=reason))
    return found


def preview(context: StageContext, *, now: datetime.datetime, names: Collection[str] | None = None) -> list[FoldPlan]:
    """What the next fold of each join table would do, whenever it was folded last; changes nothing."""
    chosen = [table for table in context.choose_tables(names) if table.join is not None]
    plans = []
    with context.database.begin() as connection:
        for table in chosen:
            records, changes = tables.load_join(connection, table.table_id)
            plans.append(
                plan_fold(
                    connection,
                    records,
                    changes,
                    context.lake,
                    now=now,
                    most_objects=context.settings.fold_max_objects,
                    most_bytes=context.settings.fold_max_bytes,
                    ignore_pace=True,
                )
            )
    return plans

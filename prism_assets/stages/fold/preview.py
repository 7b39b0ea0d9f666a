"""What the next folds would do, for people."""

from __future__ import annotations

import datetime
from collections.abc import Collection

from prism_assets.metadata.tables import tables
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.plan import FoldPlan, plan_fold


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

"""The dry run of folds."""

from __future__ import annotations

import datetime
from collections.abc import Collection

from prism_assets.metadata.tables import tables
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.plan import FoldPlan, plan_fold


def preview(context: StageContext, *, now: datetime.datetime, names: Collection[str] | None = None) -> list[FoldPlan]:
    """Returns the plan of each join table's next fold, whenever the last one was. Changes nothing."""
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

"""Closes open days early, because erasures have rows there. Uses turns through all stages, like a flip.

Readers list the live prefix of an open day, where no object can replace another in one step. So its rows are erased
after the close. Objects that arrive later for such a day become delayed objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from prism_assets.failpoints import failpoint
from prism_assets.metadata.clock import database_time
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.plan import erased_together
from prism_assets.stages.erase.report import ErasureReport
from prism_assets.stages.erase.run import continue_erasures
from prism_assets.stages.run import lasting_errors, run_until_idle


def close_open_days(
    context: StageContext,
    names: Collection[str] | None,
    *,
    clock: Callable[[], datetime],
    now: datetime | None = None,
) -> ErasureReport:
    """Closes the open days that erasures of the named tables, or of all, wait for, and continues the erasures.

    A day is closed only if this call counted its rows: an unreadable day may hold no matching row. The turns end when
    no catalog shows rows of the closed days, whatever else arrives. If the call dies after its request, the next
    catalog run closes the days. A repetition does nothing more.

    The stages run by `clock`; erasures by `now`, or by the clock of PostgreSQL.
    """
    started = time.monotonic()
    with context.database.begin() as connection:
        since = database_time(connection)
    report = continue_erasures(context, names=names, now=now, forced=True)
    tables = erased_together(context, names)
    asked_for: dict[str, set[int]] = {}
    for table in tables:
        with context.database.begin() as connection:
            found = erasures.load_open_days(connection, table.table_id, counted_since=since).values()
            if days := {day.partition_id for item in found for day in item}:
                partitions.close_early(connection, days)
                asked_for[str(table.name)] = days
    failpoint("erase.after_ask_for_close")
    if not asked_for:
        return replace(report, seconds=time.monotonic() - started)
    closing = {partition_id for days in asked_for.values() for partition_id in days}

    def are_erased() -> bool:
        """Whether the days are closed, and every catalog shows them without the erased rows."""
        with context.database.begin() as connection:
            partitions_now = partitions.load_partitions(connection, closing).values()
            behind = sum(erasures.count_behind(connection, table.table_id) for table in tables)
        return not behind and not any(partition.is_open for partition in partitions_now)

    turns = run_until_idle(context, clock=clock, names=sorted(asked_for), is_done=are_erased)
    left = continue_erasures(context, names=names, now=now, forced=True)
    errors = lasting_errors(context, turns, sorted(asked_for))
    return replace(left, other_errors=errors, changed=True, seconds=time.monotonic() - started)

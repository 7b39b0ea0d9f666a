"""iceberg_work: requests iceberg for tables with work for the next publication.

A table without `iceberg:` in its file has no asset to request a run for. The tick itself removes it from the catalog,
with two calls and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, request_runs
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.erasure_records import leave_out_held
from prism_assets.stages.iceberg.pending import (
    BEGIN,
    COLUMNS,
    COMPARE,
    DROP,
    PUBLISH,
    RESTORE,
    IcebergWork,
    find_iceberg_work,
)

_RUN_STARTS_IN_SECONDS = 10.0
"""Work due until the run starts is included, because one more run costs as much as commits to a hundred tables."""
_REASON_TEXTS = {
    BEGIN: "to begin",
    COLUMNS: "with other columns",
    RESTORE: "to restore, as others committed to them",
    COMPARE: "to compare with the catalog",
}


def iceberg_work(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Requests iceberg for tables with days to list, other columns, commits of others, or a comparison due."""
    stages.check_lake()
    now = datetime.now(timezone.utc)
    work = find_iceberg_work(stages, now=now)
    if any(DROP not in item.reasons for item in work):
        work = find_iceberg_work(stages, now=now, within_seconds=_RUN_STARTS_IN_SECONDS)
    dropped = _drop(stages, context, [item.table for item in work if DROP in item.reasons], now, deadline)
    wanted = [item for item in work if DROP not in item.reasons]
    days = leave_out_held(stages, {item.table: {item.date} for item in wanted})
    runs = request_runs(PendingDays(Stage.ICEBERG, days), location, context.instance)
    return runs.result(context, _sentence(wanted, len(location.names(Stage.ICEBERG))), dropped)


def _drop(
    stages: StageContext, context: SensorEvaluationContext, names: Sequence[str], now: datetime, deadline: Deadline
) -> str:
    """Removes tables from the catalog one by one. The next tick continues after the deadline."""
    if not names:
        return ""
    # PyIceberg takes as long to import as everything else, and ticks without such a table do not need it.
    from prism_assets.stages.iceberg.run import run_iceberg

    done = 0
    problems: list[str] = []
    for name in names:
        if deadline.is_over:
            break
        report = run_iceberg(stages, now=now, names=[name])
        done += any(table.dropped for table in report.tables)
        problems += report.errors
    for problem in problems:
        context.log.warning(problem)
    first = f", {problems[0]}" if problems else ""
    return (
        f"{done} of {counted(len(names), 'table')} taken out of the catalog, where files name no Iceberg any "
        f"more{first}"
    )


def _sentence(work: Collection[IcebergWork], tables: int) -> str:
    counts = Counter(reason for item in work for reason in item.reasons)
    days = sum(item.days for item in work)
    parts = [f"{counted(days, 'day')} of {counts[PUBLISH]} of {counted(tables, 'table')} to list"]
    return "; ".join(
        [
            *parts,
            *(f"{counted(counts[reason], 'table')} {said}" for reason, said in _REASON_TEXTS.items() if counts[reason]),
        ]
    )

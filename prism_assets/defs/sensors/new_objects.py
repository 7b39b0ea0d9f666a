"""new_objects: registers what arrived in the staging buckets, and requests live for tables with pending objects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import Demand, answer
from prism_assets.metadata.work_counts import PendingCount, count_pending
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover import run_discover

_BUDGET_SECONDS = 20.0
_TABLES_AT_ONCE = 20


@dataclass(frozen=True)
class Found:
    """What the listings of one tick found; `last` is the table to go on behind, None after a whole turn."""

    tables: int
    listed: int
    new: int
    errors: tuple[str, ...]
    last: str | None


def new_objects(stages: StageContext, context: SensorEvaluationContext, location: Location) -> SensorResult:
    """Lists the streams, registers new objects, and requests live for the tables that have pending ones."""
    names = [str(table.name) for table in stages.choose_tables(None)]
    found = _discover(stages, names, context.cursor)
    for error in found.errors:
        context.log.warning(error)
    with stages.database.begin() as connection:
        counts = count_pending(connection, stages.settings.lease_seconds)
    tables = {table.table_id: table for table in stages.choose_tables(None)}
    now = datetime.now(timezone.utc)
    days = {str(tables[count.table_id].name): {tables[count.table_id].today(now)} for count in counts}
    reply = answer(Demand(Stage.LIVE, days), location, context.instance)
    reason = None if reply.requests else SkipReason("; ".join(filter(None, [_sentence(found, counts), reply.rest])))
    return SensorResult(run_requests=list(reply.requests), skip_reason=reason, cursor=found.last or "")


def _discover(stages: StageContext, names: Sequence[str], after: str | None) -> Found:
    """Lists as many tables as the budget allows, beginning behind the one that the tick before ended with.

    What is found is registered before the cursor moves: a tick that dies is repeated by the next.
    """
    deadline = time.monotonic() + _BUDGET_SECONDS
    order = [*(name for name in names if name > (after or "")), *(name for name in names if name <= (after or ""))]
    done = listed = new = 0
    errors: list[str] = []
    while done < len(order) and time.monotonic() < deadline:
        part = order[done : done + _TABLES_AT_ONCE]
        report = run_discover(stages, now=datetime.now(timezone.utc), names=part)
        listed, new = listed + sum(scan.listed for scan in report.scans), new + report.new
        errors += report.errors
        done += len(part)
    last = None if done >= len(order) else order[done - 1]
    return Found(tables=done, listed=listed, new=new, errors=tuple(errors), last=last)


def _sentence(found: Found, counts: Sequence[PendingCount]) -> str:
    pending, abandoned = sum(count.pending for count in counts), sum(count.abandoned for count in counts)
    sentence = f"{found.new} new of {found.listed} objects listed for {found.tables} tables; {pending} pending"
    sentence += f", {abandoned} held by dead workers" if abandoned else ""
    return sentence + (f"; {len(found.errors)} streams could not be listed: {found.errors[0]}" if found.errors else "")

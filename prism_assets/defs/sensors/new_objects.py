"""new_objects: registers new objects of the staging buckets, and requests live for tables with pending objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, days_of, request_runs
from prism_assets.domain.findings import Finding, count_kinds
from prism_assets.domain.text import counted
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover.listings import DiscoverReport, run_discover
from prism_assets.stages.findings.registry import find_work


def new_objects(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Receives messages, lists streams, registers new objects, and requests live for tables with pending ones.

    PostgreSQL has the order of streams, so a tick needs no cursor.
    """
    now = datetime.now(timezone.utc)
    found = run_discover(stages, now=now, deadline=deadline, only_due=True)
    for error in found.errors:
        context.log.warning(error)
    tables = stages.choose_tables(None)
    today = {str(table.name): table.today(now) for table in tables}
    work = find_work(stages, "live", now=now, tables=tables)
    runs = request_runs(PendingDays(Stage.LIVE, days_of(work, today)), location, context.instance)
    sentence = "; ".join(filter(None, [_sentence(found, work, stages.settings.backlog_objects), runs.rest]))
    if not runs.requests:
        return SensorResult(skip_reason=SkipReason(sentence))
    context.log.info(sentence)
    return SensorResult(run_requests=list(runs.requests))


def _sentence(found: DiscoverReport, work: Sequence[Finding], limit: int) -> str:
    counts = count_kinds(work)
    pending, abandoned = counts.get("objects_wait", 0), counts.get("objects_abandoned", 0)
    parts = [found.describe(), f"{pending} pending" + (f", {abandoned} held by dead workers" if abandoned else "")]
    if found.received and found.received.rests:
        parts.append(
            f"messages wait in the queue until fewer than {counted(limit, 'object is', 'objects are')} pending"
        )
    if found.errors:
        parts.append(
            f"{counted(len(found.errors), 'queue or stream', 'queues or streams')} could not be read: {found.errors[0]}"
        )
    return "; ".join(parts)

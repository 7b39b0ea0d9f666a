"""new_objects: registers new objects of the staging buckets, and requests live for tables with pending objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult

from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.requests import PendingDays, days_of, request_runs
from prism_assets.domain.findings import Finding, count_kinds
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.leases import Holder
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline
from prism_assets.stages.discover.listings import DiscoverReport, run_discover
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.live.holdings import live_tables


def new_objects(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Receives messages, lists streams, registers new objects, and requests live for tables with pending ones.

    Tables of a live worker are left to it while its lease is fresh. PostgreSQL has the order of streams, so a tick
    needs no cursor.
    """
    now = datetime.now(timezone.utc)
    tables = stages.choose_tables(None)
    with stages.database.outside_transactions() as connection:
        of_workers = live_tables(connection)
    found = _discover(stages, tables, of_workers, now, deadline)
    for error in found.errors:
        context.log.warning(error)
    own = [table for table in tables if table.table_id not in of_workers]
    today = {str(table.name): table.today(now) for table in own}
    work = find_work(stages, "live", now=now, tables=own)
    runs = request_runs(PendingDays(Stage.LIVE, days_of(work, today)), location, context.instance)
    sentence = _sentence(found, work, stages.settings.backlog_objects)
    return runs.result(context, sentence, _left(of_workers.values()))


def _discover(
    stages: StageContext,
    tables: Sequence[TableDefinition],
    of_workers: Mapping[int, Holder],
    now: datetime,
    deadline: Deadline,
) -> DiscoverReport:
    """Discovers for the tables without a live worker. Workers receive the messages if they have every table."""
    if of_workers and all(table.join or table.table_id in of_workers for table in tables):
        return DiscoverReport(scans=())
    return run_discover(stages, now=now, deadline=deadline, only_due=True, left_to_others=of_workers.keys())


def _left(holders: Iterable[Holder]) -> str:
    """Says how many tables are left to which live workers."""
    counts = Counter(holder.worker for holder in holders)
    return ", ".join(
        f"{counted(count, 'table is', 'tables are')} left to the worker {worker}"
        for worker, count in sorted(counts.items())
    )


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

"""The whole pipeline once, or until nothing is left to do: discover → stream → merge → catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from prism_assets.metadata import merge_jobs, partitions, staging_objects
from prism_assets.stages.catalog import CatalogReport, run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover import DiscoverReport, run_discover
from prism_assets.stages.merge import MergeReport, run_merge
from prism_assets.stages.stream import run_stream
from prism_assets.stages.stream_report import StreamReport

_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class CycleReport:
    """What one turn through all stages did."""

    discover: DiscoverReport
    stream: StreamReport
    merge: MergeReport
    catalog: CatalogReport

    @property
    def changed(self) -> bool:
        """Whether anything was done at all."""
        stream = self.stream.batches or self.stream.revived or self.stream.restarted
        return bool(self.discover.new or stream or self.merge.jobs or self.merge.revived) or self.catalog.changed

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong, one sentence each."""
        return (*self.discover.errors, *self.stream.failed, *self.merge.failed, *self.catalog.errors)


def run_once(context: StageContext, *, now: datetime, names: Collection[str] | None = None) -> CycleReport:
    """One turn. A failing stage stops the turn; what earlier stages committed stays."""
    return CycleReport(
        discover=run_discover(context, now=now, names=names),
        stream=run_stream(context, now=now, names=names),
        merge=run_merge(context, now=now, names=names),
        catalog=run_catalog(context, now=now, names=names),
    )


def run_until_idle(
    context: StageContext, *, clock: Callable[[], datetime], names: Collection[str] | None = None
) -> tuple[CycleReport, ...]:
    """Turns until a turn changes nothing and no other worker holds work; waits for leases of dead workers to end."""
    turns = []
    while True:
        turn = run_once(context, now=clock(), names=names)
        turns.append(turn)
        if turn.changed:
            continue
        if not _is_busy(context, clock(), context.choose_ids(names)):
            return tuple(turns)
        time.sleep(_PAUSE_SECONDS)


def lasting_errors(
    context: StageContext, turns: Sequence[CycleReport], names: Collection[str] | None = None
) -> tuple[str, ...]:
    """What is still wrong after all turns: objects given up, errors of the last turn, merges that failed so far."""
    given_up = [failed for turn in turns[:-1] for failed in turn.stream.failed]
    found = [*given_up, *turns[-1].errors]
    tables = {table.table_id: table for table in context.choose_tables(names)}
    with context.database.begin() as connection:
        failing = {job.partition_id: job for job in merge_jobs.load_status(connection) if job.last_error}
        for item in partitions.load_partitions(connection, failing).values():
            line = f"{item.date}: {failing[item.partition_id].last_error}"
            if item.table_id in tables and not any(line in known for known in found):
                found.append(f"{tables[item.table_id].name} {line}")
    return tuple(found)


def _is_busy(context: StageContext, now: datetime, table_ids: Collection[int] | None) -> bool:
    """Whether work is claimed (by a worker alive or dead), or pending and only waiting for its next try."""
    with context.database.begin() as connection:
        counts = staging_objects.count_unfinished(connection)
        if any((c.pending or c.claimed) and (table_ids is None or c.table_id in table_ids) for c in counts):
            return True
        jobs = merge_jobs.load_status(connection)
        awaited = [job.partition_id for job in jobs if job.running or (job.schedule_time <= now and not job.parked)]
        found = partitions.load_partitions(connection, awaited)
        return any(table_ids is None or item.table_id in table_ids for item in found.values())

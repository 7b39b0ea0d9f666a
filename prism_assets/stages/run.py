"""The whole pipeline once, or until nothing is left: discover → stream → fold → merge → catalog → Iceberg → erase."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.problems import Problem
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.stages.catalog.report import CatalogReport
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import DiscoverReport, run_discover
from prism_assets.stages.erase.report import ErasureReport
from prism_assets.stages.erase.run import continue_erasures
from prism_assets.stages.findings.merges import MERGES
from prism_assets.stages.findings.objects import BEHIND_FLIP, WAITING
from prism_assets.stages.findings.publications import COMPARISONS
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.fold.report import FoldReport
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.iceberg.pending import published_tables
from prism_assets.stages.iceberg.report import IcebergReport
from prism_assets.stages.leases import takeover_seconds
from prism_assets.stages.merge.report import MergeReport
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.report import StreamReport
from prism_assets.stages.stream.run import run_stream

PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class CycleReport:
    """The reports of one turn through all stages."""

    discover: DiscoverReport
    stream: StreamReport
    fold: FoldReport
    merge: MergeReport
    catalog: CatalogReport
    iceberg: IcebergReport | None = None
    erase: ErasureReport | None = None

    @property
    def published(self) -> bool:
        """Whether readers of any catalog see more than before."""
        return self.catalog.changed or (self.iceberg is not None and self.iceberg.changed)

    @property
    def changed(self) -> bool:
        """Whether anything was done at all."""
        stream = self.stream.batches or self.stream.reclaimed or self.stream.restarted or self.stream.discarded
        work = (
            self.discover.new or stream or self.fold.changed or self.merge.jobs or self.merge.reclaimed or self._erased
        )
        return bool(work) or self.published

    @property
    def _erased(self) -> bool:
        return self.erase is not None and self.erase.changed

    @property
    def progressed(self) -> bool:
        """Whether anything succeeded. Failed attempts do not count."""
        stream = self.stream.objects or self.stream.reclaimed or self.stream.discarded
        ended = stream or self.merge.merged or self.merge.reclaimed
        return bool(self.discover.new or ended or self.fold.changed or self._erased) or self.published

    @property
    def errors(self) -> tuple[str, ...]:
        """All errors, one sentence each."""
        others = [report.errors for report in (self.iceberg, self.erase) if report]
        return (
            *self.discover.errors,
            *self.stream.errors,
            *self.fold.errors,
            *self.merge.errors,
            *self.catalog.errors,
            *(error for errors in others for error in errors),
        )


def run_once(context: StageContext, *, now: datetime, names: Collection[str] | None = None) -> CycleReport:
    """Runs one turn. A failing stage ends the turn; commits of earlier stages stay."""
    return CycleReport(
        discover=run_discover(context, now=now, names=names),
        stream=run_stream(context, now=now, names=names),
        fold=run_fold(context, now=now, names=names, ignore_pace=True, wait_seconds=takeover_seconds(context)),
        merge=run_merge(context, now=now, names=names, wait_seconds=takeover_seconds(context)),
        catalog=run_catalog(context, now=now, names=names, wait_seconds=takeover_seconds(context)),
        iceberg=_run_iceberg(context, now, names),
        erase=continue_erasures(context, names=names),
    )


def _run_iceberg(context: StageContext, now: datetime, names: Collection[str] | None) -> IcebergReport | None:
    """Imports the library of Iceberg only if a table is, or was, published as Iceberg."""
    if not published_tables(context, names):
        return None
    from prism_assets.stages.iceberg.run import run_iceberg

    return run_iceberg(context, now=now, names=names, ignore_pace=True, wait_seconds=takeover_seconds(context))


def run_until_idle(
    context: StageContext,
    *,
    clock: Callable[[], datetime],
    names: Collection[str] | None = None,
    patience: float = PATIENCE_SECONDS,
    is_done: Callable[[], bool] = lambda: False,
) -> tuple[CycleReport, ...]:
    """Repeats the turn until one changes nothing and no work is under way. Waits until leases of dead workers expire.

    Also waits for work of other runs and for work before its next try, and reports both as progress. The turns end
    after `patience` seconds in which no object was found, converted, merged or published. They also end when the
    caller's work `is_done`, whatever else arrives.
    """
    turns: list[CycleReport] = []
    told: tuple[str, ...] = ()
    moved = time.monotonic()
    while True:
        now = clock()
        turn = run_once(context, now=now, names=names)
        turns.append(turn)
        if is_done():
            return tuple(turns)
        if turn.progressed:
            moved = time.monotonic()
        if turn.changed and time.monotonic() - moved <= patience:
            continue
        later = clock()
        waits = _waits(context, turns, names, later, clock_moves=later > now)
        if not waits or time.monotonic() - moved > patience:
            return tuple(turns)
        if waits != told:
            context.progress(f"run: waits, for {patience:.0f} s without progress at most: {'; '.join(waits)}")
            told = waits
        time.sleep(_PAUSE_SECONDS)


def lasting_errors(
    context: StageContext, turns: Sequence[CycleReport], names: Collection[str] | None = None
) -> tuple[str, ...]:
    """Returns the errors of these turns that remain, one sentence each.

    These are objects given up, merges that failed and have not succeeded since, and all errors of the last turn.
    Transient errors of earlier turns have passed.
    """
    last = turns[-1]
    failing = _failing_merges(context, turns, context.choose_ids(names))
    streamed = (item for turn in turns for item in turn.stream.problems if turn is last or not item.transient)
    return (
        *last.discover.errors,
        *dict.fromkeys(item.reason for item in streamed),
        *last.fold.errors,
        *map(str, failing.values()),
        *map(str, (*last.merge.record_problems, *last.merge.record_faults)),
        *last.catalog.errors,
        *(last.iceberg.errors if last.iceberg else ()),
        *(last.erase.errors if last.erase else ()),
    )


def _failing_merges(
    context: StageContext, turns: Sequence[CycleReport], table_ids: Collection[int] | None
) -> dict[int, Problem]:
    """Returns the last failures of merges in these turns, by partition, whose job still waits with an error."""
    last = {(problem.table, problem.date): problem for turn in turns for problem in turn.merge.problems}
    if not last:
        return {}
    tables = {table.table_id: str(table.name) for table in context.choose_tables(None)}
    with context.database.begin() as connection:
        failing = [job.partition_id for job in merge_jobs.load_status(connection) if job.last_error]
        found = partitions.load_partitions(connection, failing).values()
    chosen = [item for item in found if table_ids is None or item.table_id in table_ids]
    problems = {item.partition_id: last.get((tables.get(item.table_id, ""), item.date)) for item in chosen}
    return {partition: problem for partition, problem in problems.items() if problem}


def _is_waited_for(finding: Finding) -> bool:
    """Whether a run until idle waits for the work of a finding.

    Work behind a flip ends together with the flip's own.
    """
    return finding.acts is Acts.RUN and finding.ends_runs and finding.kind != BEHIND_FLIP


def _waits(
    context: StageContext,
    turns: Sequence[CycleReport],
    names: Collection[str] | None,
    now: datetime,
    *,
    clock_moves: bool,
) -> tuple[str, ...]:
    """Returns sentences on work still under way: claimed by a living or dead worker, held by another run, or before a
    retry.

    A merge that failed through its surroundings is retried soon, if the clock of this run moves at all. A lost call
    that may still change a catalog is not waited for while the catalog does not answer.
    """
    last = turns[-1]
    subjects = [WAITING, MERGES, *([] if last.catalog.errors else [COMPARISONS])]
    failing = _failing_merges(context, turns, context.choose_ids(names)) if clock_moves else {}
    return (
        *last.catalog.skipped,
        *(f"{item.table}: {item.reason}" for item in last.fold.skipped),
        *(last.iceberg.skipped if last.iceberg else ()),
        *map(str, filter(_is_waited_for, read_findings(context, names, subjects, now=now))),
        *(str(problem) for problem in failing.values() if problem.transient),
    )

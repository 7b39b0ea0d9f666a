"""prism_maintenance: a daily job that prunes what Dagster keeps of old runs, and refreshes PostgreSQL's statistics.

Dagster itself prunes ticks (`retention` in dagster.yaml), not runs. What its UI shows of a partition hangs on rows of
the event log: a partition is green as long as one materialisation of it is there, and its metadata are those of the
newest. So a run goes when it is old and each of its materialisations has been followed by a newer one of the same
asset and partition. Runs that still hold the newest stay, and so do those of backfills that are not over. Runs of
other projects on the same instance are never touched, whatever they made.
"""

# Dagster reads the annotations of ops, so they are not postponed here.
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultScheduleStatus,
    JobDefinition,
    OpExecutionContext,
    RunRecord,
    RunsFilter,
    ScheduleDefinition,
    job,
    op,
)

from prism_assets.defs import failures
from prism_assets.defs.keys import MAINTENANCE
from prism_assets.defs.location import Location
from prism_assets.defs.resources import PlatformResource
from prism_assets.defs.sensors.in_flight import is_ours
from prism_assets.domain.words import counted
from prism_assets.metadata.upkeep import refresh_statistics
from prism_assets.settings import MaintenanceSettings, load

_EVERY_NIGHT = "17 3 * * *"
_PAGE = 100
_FINISHED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_BACKFILL_TAG = "dagster/backfill"
_BACKFILLS_SHOWN = 1_000
_OVER = ("COMPLETED", "FAILED", "CANCELED")

Materialised = Mapping[AssetKey, Mapping[str | None, int]]
"""Ids of the newest materialisations of one run in the event log, by asset and partition."""


@dataclass(frozen=True)
class Pruned:
    """What one maintenance did to old runs of ours. `is_complete` unless its time was over first."""

    deleted: int
    kept: int
    is_complete: bool


def prune_runs(instance: DagsterInstance, *, before: datetime, seconds: float) -> Pruned:
    """Deletes our finished runs from before an instant that nothing hangs on any more, with their events and logs.

    The newest go first: those that were kept by earlier maintenances are only looked at again if there is time.
    """
    deadline = time.monotonic() + seconds
    active = _active_backfills(instance)
    deleted = kept = 0
    for page in _pages(instance, before):
        ours = [record.dagster_run for record in page if is_ours(record.dagster_run)]
        superseded = _superseded(instance, ours, active) if ours else []
        for run_id in superseded:
            _delete(instance, run_id)
        deleted, kept = deleted + len(superseded), kept + len(ours) - len(superseded)
        if time.monotonic() > deadline:
            return Pruned(deleted, kept, is_complete=False)
    return Pruned(deleted, kept, is_complete=True)


def _pages(instance: DagsterInstance, before: datetime) -> Iterator[Sequence[RunRecord]]:
    """Old runs page by page, each read before anything of it is deleted: a page begins behind a run of the one before.

    The page that follows is read first, as the run that it begins behind may be deleted with its own page.
    """
    filters = RunsFilter(statuses=list(_FINISHED), created_before=before)
    page = instance.get_run_records(filters=filters, limit=_PAGE)
    while page:
        following = instance.get_run_records(filters=filters, limit=_PAGE, cursor=page[-1].dagster_run.run_id)
        yield page
        page = following


def _superseded(instance: DagsterInstance, runs: Sequence[DagsterRun], active: Collection[str]) -> list[str]:
    """Those of the runs whose materialisations have all been followed by newer ones, unless of an active backfill."""
    free = [run for run in runs if run.tags.get(_BACKFILL_TAG) not in active]
    made = {run.run_id: _materialised(instance, run.run_id) for run in free}
    newest = _newest(instance, made.values())
    return [run_id for run_id, events in made.items() if _is_superseded(events, newest)]


def _active_backfills(instance: DagsterInstance) -> set[str]:
    """Backfills that are not over: Dagster tells from their runs which partitions are done."""
    found = instance.get_backfills(limit=_BACKFILLS_SHOWN)
    return {backfill.backfill_id for backfill in found if not backfill.status.value.startswith(_OVER)}


def _materialised(instance: DagsterInstance, run_id: str) -> Materialised:
    found: dict[AssetKey, dict[str | None, int]] = defaultdict(dict)
    cursor, more = None, True
    while more:
        part = instance.get_records_for_run(run_id, cursor, DagsterEventType.ASSET_MATERIALIZATION, limit=1_000)
        for record in part.records:
            event = record.event_log_entry.asset_materialization
            if event is not None:
                found[event.asset_key][event.partition] = record.storage_id
        cursor, more = part.cursor, part.has_more
    return found


def _newest(instance: DagsterInstance, made: Collection[Materialised]) -> Materialised:
    """The ids of the newest materialisations of all assets and partitions that the runs have made."""
    partitions: dict[AssetKey, set[str | None]] = defaultdict(set)
    for events in made:
        for key, ids in events.items():
            partitions[key].update(ids)
    return {key: _newest_of(instance, key, wanted) for key, wanted in partitions.items()}


def _newest_of(instance: DagsterInstance, key: AssetKey, wanted: set[str | None]) -> dict[str | None, int]:
    """An event without a partition counts as the newest: no asset of ours has such, and none of others is touched."""
    named = {partition for partition in wanted if partition is not None}
    return dict(instance.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, named).items())


def _is_superseded(events: Materialised, newest: Materialised) -> bool:
    return all(
        partition in newest[key] and storage_id < newest[key][partition]
        for key, ids in events.items()
        for partition, storage_id in ids.items()
    )


def _delete(instance: DagsterInstance, run_id: str) -> None:
    """Logs and events first: a death in between leaves a run without them, which the next maintenance finds again."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.event_log_storage.delete_events(run_id)
    instance.delete_run(run_id)


def build_maintenance(location: Location) -> tuple[JobDefinition, ScheduleDefinition]:
    """The job and its daily schedule, which is on from the start."""

    @op(description="Deletes old runs that no partition's status hangs on, with their events and logs.")
    def prune_old_runs(context: OpExecutionContext) -> None:
        with failures.mapped():
            settings = load(MaintenanceSettings)
        before = datetime.now(timezone.utc) - timedelta(days=settings.run_retention_days)
        pruned = prune_runs(context.instance, before=before, seconds=settings.prune_seconds)
        rest = "" if pruned.is_complete else "; the time was over, the next maintenance goes on"
        context.log.info(
            f"{counted(pruned.deleted, 'run')} from before {before:%Y-%m-%d} deleted, {pruned.kept} kept for the "
            f"newest materialisation of a partition or for a backfill{rest}"
        )

    @op(description="Vacuums the tables whose rows change all the time and refreshes the planner's statistics.")
    def refresh_database(context: OpExecutionContext, platform: PlatformResource) -> None:
        with failures.mapped(), platform.open(location, context.log.info, context.log.warning) as stages:
            refresh_statistics(stages.database)

    @job(name=MAINTENANCE, description="Prunes old runs and refreshes PostgreSQL's statistics.")
    def maintenance() -> None:
        prune_old_runs()
        refresh_database()

    schedule = ScheduleDefinition(
        name=f"{MAINTENANCE}_daily",
        job=maintenance,
        cron_schedule=_EVERY_NIGHT,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
    )
    return maintenance, schedule

"""prism_maintenance, a daily job. It prunes old Dagster runs and refreshes PostgreSQL's statistics.

Dagster prunes ticks (`retention` in dagster.yaml) but not runs. Its UI derives the state of a partition from the event
log: a partition is green while one materialisation of it exists, and shows the metadata of the newest. Therefore an old
run is deleted only after each of its materialisations was followed by a newer one of the same asset and partition. Runs
of unfinished backfills stay. Runs of other projects on the same Dagster instance are never touched.
"""

# Dagster reads the annotations of ops, so this module does not postpone them.
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
from prism_assets.domain.text import counted
from prism_assets.metadata.upkeep import refresh_statistics
from prism_assets.settings import MaintenanceSettings, load

_EVERY_NIGHT = "17 3 * * *"
_PAGE = 100
_FINISHED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_BACKFILL_TAG = "dagster/backfill"
_BACKFILLS_SHOWN = 1_000
_OVER = ("COMPLETED", "FAILED", "CANCELED")

Materialised = Mapping[AssetKey, Mapping[str | None, int]]
"""Event ids of the newest materialisations of one run, by asset and partition."""


@dataclass(frozen=True)
class Pruned:
    """The result of pruning our old runs. `is_complete` is false if the time ran out."""

    deleted: int
    kept: int
    is_complete: bool


def prune_runs(instance: DagsterInstance, *, before: datetime, seconds: float) -> Pruned:
    """Deletes our finished runs from before an instant, with their events and logs, unless something depends on them.

    Starts with the newest. Runs kept by earlier maintenances are older and are checked again only if time remains.
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
    """Yields old runs page by page. Each page starts after the last run of the previous one.

    The next page is read before its predecessor is yielded, because the caller may delete the run it starts after.
    """
    filters = RunsFilter(statuses=list(_FINISHED), created_before=before)
    page = instance.get_run_records(filters=filters, limit=_PAGE)
    while page:
        following = instance.get_run_records(filters=filters, limit=_PAGE, cursor=page[-1].dagster_run.run_id)
        yield page
        page = following


def _superseded(instance: DagsterInstance, runs: Sequence[DagsterRun], active: Collection[str]) -> list[str]:
    """Returns the runs whose materialisations all have newer successors. Leaves out runs of active backfills."""
    free = [run for run in runs if run.tags.get(_BACKFILL_TAG) not in active]
    made = {run.run_id: _materialised(instance, run.run_id) for run in free}
    newest = _newest(instance, made.values())
    return [run_id for run_id, events in made.items() if _is_superseded(events, newest)]


def _active_backfills(instance: DagsterInstance) -> set[str]:
    """Returns unfinished backfills. Dagster derives their finished partitions from their runs."""
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
    """Returns the newest materialisation ids of all assets and partitions made by the runs."""
    partitions: dict[AssetKey, set[str | None]] = defaultdict(set)
    for events in made:
        for key, ids in events.items():
            partitions[key].update(ids)
    return {key: _newest_of(instance, key, wanted) for key, wanted in partitions.items()}


def _newest_of(instance: DagsterInstance, key: AssetKey, wanted: set[str | None]) -> dict[str | None, int]:
    """Returns the newest ids by partition. Events without a partition count as newest, because our assets have none."""
    named = {partition for partition in wanted if partition is not None}
    return dict(instance.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, named).items())


def _is_superseded(events: Materialised, newest: Materialised) -> bool:
    return all(
        partition in newest[key] and storage_id < newest[key][partition]
        for key, ids in events.items()
        for partition, storage_id in ids.items()
    )


def _delete(instance: DagsterInstance, run_id: str) -> None:
    """Deletes logs and events first. A death in between leaves a run without them, and the next maintenance finds it
    again.
    """
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.event_log_storage.delete_events(run_id)
    instance.delete_run(run_id)


def build_maintenance(location: Location) -> tuple[JobDefinition, ScheduleDefinition]:
    """Returns the job and its daily schedule. The schedule is on by default."""

    @op(description="Deletes old runs on which no partition's status depends, with events and logs.")
    def prune_old_runs(context: OpExecutionContext) -> None:
        with failures.mapped():
            settings = load(MaintenanceSettings)
        before = datetime.now(timezone.utc) - timedelta(days=settings.run_retention_days)
        pruned = prune_runs(context.instance, before=before, seconds=settings.prune_seconds)
        rest = "" if pruned.is_complete else "; the time ran out, the next maintenance continues"
        context.log.info(
            f"{counted(pruned.deleted, 'run')} from before {before:%Y-%m-%d} deleted, {pruned.kept} kept for the "
            f"newest materialisation of a partition or for a backfill{rest}"
        )

    @op(description="Vacuums frequently changed tables and refreshes the planner's statistics.")
    def refresh_database(context: OpExecutionContext, prism_platform: PlatformResource) -> None:
        with failures.mapped(), prism_platform.open(location, context.log.info, context.log.warning) as stages:
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

"""Says for each partition its state and what it waits for; the same sentences for the command line and Dagster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.erasure_records import HeldErasure
from prism_assets.domain.lengths import length_warnings
from prism_assets.domain.lifecycle import (
    Publish,
    Step,
    WaitForDayEnd,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    catalog_due,
    next_steps,
)
from prism_assets.domain.partitions import SYMLINK, Partition
from prism_assets.domain.publishers import wanted_publishers, words_of
from prism_assets.domain.silent_streams import SilentStream, objects_left_out, silent_streams
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata import (
    backlog,
    erasure_records,
    gc_log,
    leases,
    merge_jobs,
    partitions,
    publication_notes,
    publications,
)
from prism_assets.metadata.backlog import StagingCounts, StoppedStream
from prism_assets.metadata.leases import Holder, LeaseKind
from prism_assets.metadata.merge_jobs import JobStatus
from prism_assets.metadata.partition_figures import PartitionFigures, partition_figures
from prism_assets.metadata.publication_notes import ComparisonDue
from prism_assets.metadata.quarantine import UnfitValues, unfit_values
from prism_assets.metadata.stream_scans import load_listed
from prism_assets.metadata.unread_objects import UnreadObjects, load_unread
from prism_assets.objectstore.lake import Lake
from prism_assets.stages.catalog.column_transitions import TransitionStatus, read_transitions
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.context import StageContext
from prism_assets.stages.drift import read_full_contracts
from prism_assets.stages.drop.report import DropStatus, read_drops
from prism_assets.stages.erase.report import ErasureStatus, read_erasures
from prism_assets.stages.iceberg.waits import find_iceberg_waits
from prism_assets.stages.merge.settled_merge_plan import has_settled, plan_days
from prism_assets.stages.record_faults import load_waits
from prism_assets.stages.set_aside import set_aside_since

_UNFIT_DAYS = 7
_TO_LINK = f"the next catalog run, to be shown {words_of(SYMLINK).shown} as it is"


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """One partition as people ask for it.

    Rows and bytes are those of the objects that readers are sent to: merged ranges, and small objects above them.
    `rows_erased` left these objects, and are not among the rows; of records of join tables they are not counted.
    """

    table: str
    date: date
    state: str
    rows: int
    rows_erased: int
    small_objects: int
    merged_objects: int
    unmerged_objects: int
    bytes: int
    last_arrival: datetime | None
    waits_for: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One table: its partitions and the staging objects that are not done; `unread` tells which are not read, and why.

    `catalog_holder` is the catalog run that is at it, and since when; `comparison_due` is why the next one compares all
    of it. `unfit_values` are those of the last `unfit_days` that did not fit their column; None if no table is named.
    `cut_values` are sentences about columns that were too short for values of the last day, or of `unfit_days`.
    `undeleted_objects` should have been deleted by a garbage collection of days ago. `stopped` are streams at which
    objects wait that are in no other count. `erasures` are those that are not proved yet. `records_wait` says what
    keeps folds and merges of records back, `open_transitions` which columns objects may have by a former name or type.
    `iceberg_waits` says why a person has to look at its Iceberg table, `full_contract` why no field becomes a column.
    `silent_streams` are those from which nothing comes, and `left_out` says how many objects of others are not read,
    and why. `set_aside` says why most lines of the last days are no rows.
    `held` are erasures that PostgreSQL lacks after it was set back: nothing is done with the table until then.
    Of a table that is being dropped there is nothing but the `drop`.
    """

    table: str
    pending: int
    claimed: int
    unread: tuple[UnreadObjects, ...]
    partitions: tuple[PartitionStatus, ...]
    unfit_values: tuple[UnfitValues, ...] | None = None
    unfit_days: int = _UNFIT_DAYS
    cut_values: tuple[str, ...] = ()
    catalog_holder: Holder | None = None
    comparison_due: ComparisonDue | None = None
    undeleted_objects: int = 0
    stopped: tuple[StoppedStream, ...] = ()
    erasures: tuple[ErasureStatus, ...] = ()
    drop: DropStatus | None = None
    records_wait: tuple[str, ...] = ()
    open_transitions: tuple[TransitionStatus, ...] = ()
    iceberg_waits: tuple[str, ...] = ()
    full_contract: str | None = None
    silent_streams: tuple[SilentStream, ...] = ()
    left_out: tuple[str, ...] = ()
    set_aside: str | None = None
    held: tuple[HeldErasure, ...] = ()


def read_status(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None, day: date | None = None
) -> tuple[TableStatus, ...]:
    """The status of the tables named, or of all. Values that did not fit are counted for named ones only."""
    named = context.choose_with_dropped(names)
    chosen = [table for table in named if not table.dropped]
    gone = [str(table.name) for table in named if table.dropped]
    found = []
    with context.database.begin() as connection:
        counts = {count.table_id: count for count in backlog.count_unfinished(connection)}
        unread = load_unread(connection, [table.table_id for table in chosen])
        jobs: dict[int, list[JobStatus]] = {}
        for job in merge_jobs.load_status(connection):
            jobs.setdefault(job.partition_id, []).append(job)
        for table in chosen:
            status = _table_status(connection, table, counts.get(table.table_id), unread, jobs, now, day)
            found.append(_with_settled(connection, context.lake, table, status, day))
        ids = [table.table_id for table in chosen]
        holders = leases.holders(connection, LeaseKind.CATALOG, ids)
        settings = context.settings
        due = publication_notes.load_comparisons_due(
            connection, ids, settings.catalog_compare_seconds, settings.lease_seconds
        )
        since = now - timedelta(days=1 if names is None else _UNFIT_DAYS)
        undeleted = gc_log.count_overdue(connection)
        unfit = unfit_values(connection, ids, since)
        stopped = backlog.count_stopped(connection, ids)
        transitions = {table.table_id: read_transitions(context, connection, table, now) for table in chosen}
        iceberg = [wait for wait in find_iceberg_waits(connection, chosen) if wait.for_a_person]
        held = {table.table_id: load_waits(connection, table, settings.full_scan_seconds, now) for table in chosen}
        found = _with_intake(connection, chosen, found, now)
    erasures = read_erasures(context, chosen, open_only=True)
    dropped = [
        TableStatus(table=drop.table, pending=0, claimed=0, unread=(), partitions=(), drop=drop)
        for drop in (read_drops(context, gone) if gone else ())
    ]
    return (
        *dropped,
        *(
            replace(
                status,
                catalog_holder=holders.get(table.table_id),
                comparison_due=next((item for (number, _), item in due.items() if number == table.table_id), None),
                unfit_values=None if names is None else tuple(unfit.get(table.table_id, ())),
                cut_values=length_warnings(table.columns, unfit.get(table.table_id, ())),
                undeleted_objects=undeleted.get(table.table_id, 0),
                stopped=tuple(item for item in stopped if item.table_id == table.table_id),
                erasures=tuple(item for item in erasures if item.table == str(table.name)),
                records_wait=held[table.table_id],
                open_transitions=transitions[table.table_id],
                iceberg_waits=tuple(str(wait) for wait in iceberg if wait.table_id == table.table_id),
            )
            for table, status in zip(chosen, found, strict=True)
        ),
    )


def _with_intake(
    connection: Connection, tables: Sequence[TableDefinition], statuses: Sequence[TableStatus], now: datetime
) -> list[TableStatus]:
    """The statuses of these tables, with all that keeps objects, lines and fields from coming in."""
    ids = [table.table_id for table in tables]
    full = read_full_contracts(connection, tables)
    since = now - timedelta(days=_UNFIT_DAYS)
    aside = set_aside_since(connection, tables, since, f" of the last {_UNFIT_DAYS} days")
    listed = load_listed(connection, ids)
    silent = silent_streams(listed, now)
    lacking = erasure_records.load_held(connection)
    return [
        replace(
            status,
            full_contract=full.get(table_id),
            silent_streams=tuple(item for item in silent if item.table_id == table_id),
            set_aside=aside.get(table_id),
            left_out=tuple(objects_left_out(item for item in listed if item.table_id == table_id)),
            held=lacking.get(table_id, ()),
        )
        for table_id, status in zip(ids, statuses, strict=True)
    ]


def _table_status(
    connection: Connection,
    table: TableDefinition,
    counts: StagingCounts | None,
    unread: Sequence[UnreadObjects],
    jobs: dict[int, list[JobStatus]],
    now: datetime,
    day: date | None,
) -> TableStatus:
    figures = partition_figures(connection, table.table_id)
    found = partitions.load_table_partitions(connection, table.table_id, day)
    lagging = _lagging(connection, table, found)
    statuses = [
        _partition_status(connection, table, item, figures[item.partition_id], jobs.get(item.partition_id, []), now)
        for item in found
    ]
    statuses = [
        replace(status, waits_for=(*status.waits_for, _TO_LINK)) if status.date in lagging else status
        for status in statuses
    ]
    return TableStatus(
        table=str(table.name),
        pending=counts.pending if counts else 0,
        claimed=counts.claimed if counts else 0,
        unread=tuple(item for item in unread if item.table_id == table.table_id),
        partitions=tuple(statuses),
    )


def _with_settled(
    connection: Connection, lake: Lake, table: TableDefinition, status: TableStatus, day: date | None
) -> TableStatus:
    """With what merges of settled records wait for, or are due to do, in each of the days."""
    if not has_settled(table):
        return status
    waits = {item.date: item.waits_for for item in plan_days(connection, table.table_id, lake, day)}
    days = (
        replace(item, waits_for=(*item.waits_for, waits[item.date])) if item.date in waits else item
        for item in status.partitions
    )
    return replace(status, partitions=tuple(days))


def _lagging(connection: Connection, table: TableDefinition, found: Sequence[Partition]) -> set[date]:
    """The days that readers of symlinks see otherwise than they should, where a table is to have such readers."""
    if SYMLINK not in wanted_publishers(table):
        return set()
    return {item.date for item in publications.as_shown_by(connection, SYMLINK, found) if catalog_due(item)}


def _partition_status(
    connection: Connection,
    table: TableDefinition,
    item: Partition,
    figures: PartitionFigures,
    jobs: list[JobStatus],
    now: datetime,
) -> PartitionStatus:
    steps = next_steps(item, StoredFacts(connection, table), now)
    waits = [*_waits_in_life(steps), *_waits_for_merge(figures, jobs, now)]
    if any(isinstance(step, Publish) and step.before and not step.follows for step in steps):
        waits.append("the next catalog run, to publish what is new")
    return PartitionStatus(
        table=str(table.name),
        date=item.date,
        state=item.state.value,
        rows=figures.rows,
        rows_erased=figures.rows_erased,
        small_objects=figures.small_objects,
        merged_objects=figures.merged_objects,
        unmerged_objects=figures.unmerged_objects,
        bytes=figures.merged_bytes + figures.unmerged_bytes,
        last_arrival=figures.last_arrival,
        waits_for=tuple(waits),
    )


def waits_in_life(connection: Connection, table: TableDefinition, item: Partition, now: datetime) -> list[str]:
    """What keeps a partition in the state it is in, as a sentence, or nothing."""
    return _waits_in_life(next_steps(item, StoredFacts(connection, table), now))


def _waits_in_life(steps: Sequence[Step]) -> list[str]:
    for step in steps:
        if isinstance(step, Publish) and step.before is None:
            return ["the next catalog run, to become readable"]
    return [sentence for step in steps[:1] if (sentence := _awaited(step))]


def _awaited(step: Step) -> str | None:
    match step:
        case WaitForDayEnd():
            return f"the end of its day at {step.ends:%Y-%m-%d %H:%M}Z"
        case WaitForObjects():
            return f"the close: {step.reason}"
        case WaitForMerge():
            return f"the switch: {step.reason}"
        case WaitToExpire():
            return f"the end of its retention: {step.reason}"
        case Publish():
            return None
        case _:
            return f"the next catalog run, to {step.action}"


def _waits_for_merge(figures: PartitionFigures, jobs: list[JobStatus], now: datetime) -> list[str]:
    if any(job.running for job in jobs):
        return ["a merge that is running"]
    for job in jobs:
        if job.parked and job.retry_time:
            again = f"it is tried again at {job.retry_time:%Y-%m-%d %H:%M}Z"
            return [f"its merge, parked after {job.attempts} tries: {job.last_error}; {again}"]
        if job.parked:
            return [f"somebody to look at its merge, parked after {job.attempts} tries: {job.last_error}"]
        due = "is due" if job.schedule_time <= now else f"is due at {job.schedule_time:%Y-%m-%d %H:%M:%S}Z"
        return [f"its merge of {counted(figures.unmerged_objects, 'object')}, which {due}"]
    return []

"""Garbage collection: plan, then mark, delete and record in parts, table by table under a lease.

Every object, except files of Iceberg tables, is judged a second time before its mark, under the locks of its
partition's row. Commits of Stream and Merge, the switch and the record of a publication take the same locks. Garbage
stays garbage (`domain/files/garbage.py` gives the reason for each kind), so deletion needs no lock. A merge that reads
deleted inputs, or a catalog run that began earlier, fails at its own commit. A task that outlived its driver, or a
repair planned before the reader lease, may write a deleted key again: the object is garbage once more.

A death after the marks leaves marked objects, deleted or not. The next run judges the remaining ones again, whoever
marked them, and records the deleted ones. Deleting twice changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.files.garbage import Garbage, Reason, garbage_reason
from prism_assets.domain.files.keys import QuarantineKey
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drops import Drop
from prism_assets.failpoints import failpoint
from prism_assets.metadata import clock, leases
from prism_assets.metadata.days import publication_history
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import gc_log
from prism_assets.metadata.intake import quarantine
from prism_assets.metadata.kafka import range_upkeep, spool_objects
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.context import StageContext
from prism_assets.stages.gc.archive import archive_old_rows
from prism_assets.stages.gc.plan import GcPlan, Horizon, load_records, plan_gc
from prism_assets.stages.gc.report import NOTHING_ARCHIVED, Archived, GcReport, ObjectSum, TableGcReport, by_reason
from prism_assets.stages.leases import find_holder, leased, takeover_seconds

_AT_ONCE = 500


def run_gc(
    context: StageContext,
    *,
    now: datetime | None = None,
    names: Collection[str] | None = None,
    dry_run: bool = False,
) -> GcReport:
    """Deletes the garbage of the named tables, or of all. A dry run changes nothing.

    Young garbage of tables with a running erasure is deleted, too. `now` defaults to the database's time, because
    publications are recorded by it: a host with a wrong clock must not delete replaced manifests still in use. A
    failing table does not stop the others; its error is in the report.
    """
    started = time.monotonic()
    context.check_lake()
    tables = context.choose_tables(names)
    folders = _folders(context)
    with context.database.begin() as connection:
        horizon = Horizon.at(now or clock.database_time(connection), context.settings)
        erasing = {item.table_id for item in erasures.load_erasures(connection, open_only=True)}
    reports = []
    for table in tables:
        shared = folders[context.lake.keys(table).root] > 1
        own = replace(horizon, erasing=table.table_id in erasing)
        reports.append(report := _report_on(context, table, own, dry_run=dry_run, shared=shared))
        for sentence in report.sentences(dry_run=dry_run):
            context.progress(f"gc: {sentence}")
    return GcReport(tables=tuple(reports), dry_run=dry_run, seconds=time.monotonic() - started)


def collect_dropped(context: StageContext, table: TableDefinition, drop: Drop, now: datetime) -> TableGcReport:
    """Deletes from a dropped table's folder, as much as one run may, once the reader lease is over."""
    settings = context.settings
    if not drop.may_delete(now, settings.gc_reader_lease_hours):
        return TableGcReport(table=str(table.name), table_id=table.table_id)
    there = ObjectSum(objects=drop.objects, content_length=drop.content_length)
    horizon = replace(Horizon.at(now, settings), dropped=there, never_read=drop.never_read)
    return _report_on(
        context, table, horizon, dry_run=False, shared=_folders(context)[context.lake.keys(table).root] > 1
    )


def _folders(context: StageContext) -> Counter[str]:
    """Counts the tables per folder. Nothing is deleted from a shared folder, because sharing is a fault."""
    return Counter(context.lake.keys(table).root for table in context.choose_with_dropped(None))


def _report_on(
    context: StageContext, table: TableDefinition, horizon: Horizon, *, dry_run: bool, shared: bool
) -> TableGcReport:
    name, table_id = str(table.name), table.table_id
    try:
        if shared:
            raise InvariantBroken("another table has the same folder, so nothing of either is deleted: report it")
        if dry_run:
            plan = plan_gc(context, table, horizon)
            return _report(plan, plan.garbage, planned=plan.garbage)
        with leased(context, LeaseKind.GC, [table_id], takeover_seconds(context)) as held:
            if held:
                return _collect(context, table, held[table_id], horizon)
        holder = find_holder(context, LeaseKind.GC, table_id)
        return TableGcReport(table=name, table_id=table_id, skipped=True, holder=holder)
    except PrismError as error:
        return TableGcReport(table=name, table_id=table_id, problems=(Problem.of(error, name),))


def _collect(context: StageContext, table: TableDefinition, lease: Lease, horizon: Horizon) -> TableGcReport:
    """Plans under the lease, settles marks of a dead run, and deletes in parts until done or failed."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        rewrites.drop_forgotten(connection, table.table_id, horizon.forgotten_before, context.settings.lease_seconds)
        marked = gc_log.load_marked(connection, table.table_id)
    plan = plan_gc(context, table, horizon, marked)
    failpoint("gc.after_plan")
    deleted: list[Garbage] = []
    problems: list[Problem] = []
    archived = NOTHING_ARCHIVED
    try:
        _settle(context, lease, plan, marked)
        for start in range(0, len(plan.garbage), _AT_ONCE):
            deleted += _delete(context, lease, table, horizon, plan.garbage[start : start + _AT_ONCE])
        _forget(context, lease, horizon)
        archived = archive_old_rows(context, table, lease, plan.old_days, plan.sources_in_lake, horizon.archive_before)
    except PrismError as error:
        problems.append(Problem.of(error, str(table.name)))
    return _report(plan, deleted, archived=archived, problems=problems)


def _settle(context: StageContext, lease: Lease, plan: GcPlan, marked: Collection[str]) -> None:
    """Records deletions of a dead run's marked objects that are gone, and removes its other marks. One transaction."""
    bucket = context.lake.bucket
    if marked:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            gc_log.record_deletion(connection, bucket, set(marked) - plan.marked)
            gc_log.unmark(connection, bucket, plan.marked)
    failpoint("gc.after_settle")


def _delete(
    context: StageContext, lease: Lease, table: TableDefinition, horizon: Horizon, part: Sequence[Garbage]
) -> Sequence[Garbage]:
    """Marks, deletes and records one part. Returns what was still garbage under the locks."""
    confirmed = _mark(context, lease, table, horizon, part)
    failpoint("gc.after_mark")
    keys = [item.key for item in confirmed]
    context.stores.delete(context.lake.bucket, keys)
    failpoint("gc.after_delete")
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        gc_log.record_deletion(connection, context.lake.bucket, keys)
        spooled = [item.key for item in confirmed if item.key.startswith(context.lake.keys(table).all_spool_prefix)]
        if spooled:
            spool_objects.separate_ranges(connection, table.table_id, context.lake.bucket, spooled)
        failpoint("gc.in_record")
    failpoint("gc.after_record")
    return confirmed


def _mark(
    context: StageContext, lease: Lease, table: TableDefinition, horizon: Horizon, part: Sequence[Garbage]
) -> Sequence[Garbage]:
    keys = context.lake.keys(table)
    named = {item.key: known for item in part if (known := keys.parse(item.key))}
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        records = load_records(context, connection, table, horizon, named, lock=True)
        confirmed = [item for item in part if item.key not in named or garbage_reason(named[item.key], records)]
        gc_log.mark(connection, table.table_id, context.lake.bucket, confirmed)
        quarantine.forget_lines(
            connection,
            {
                item.key: known.staging_object_id
                for item in confirmed
                if item.reason is Reason.EXPIRED and isinstance(known := named[item.key], QuarantineKey)
            },
        )
        failpoint("gc.in_mark")
    return confirmed


def _forget(context: StageContext, lease: Lease, horizon: Horizon) -> None:
    """Deletes publications that no reader used since the reader lease began, old log entries, and old rewrites."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        publication_history.forget_before(connection, lease.subject_id, horizon.lease_began)
        gc_log.forget_before(connection, lease.subject_id, horizon.log_from)
    more = True
    while more:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            more = rewrites.forget_before(connection, lease.subject_id, horizon.archive_before)
    _join_ranges(context, lease)
    failpoint("gc.after_forget")


def _join_ranges(context: StageContext, lease: Lease) -> None:
    """Joins ranges of offsets whose spool objects are gone, in parts. After a death the next run goes on."""
    with context.database.begin() as connection:
        found = range_upkeep.find_joinable(connection, lease.subject_id)
    for topic, partition in found:
        above: int | None = -1
        while above is not None:
            with context.database.begin() as connection:
                leases.hold(connection, lease)
                above = range_upkeep.join(connection, topic, partition, above)


def _report(
    plan: GcPlan,
    deleted: Sequence[Garbage],
    *,
    planned: tuple[Garbage, ...] = (),
    archived: Archived = NOTHING_ARCHIVED,
    problems: Sequence[Problem] = (),
) -> TableGcReport:
    return TableGcReport(
        table=str(plan.table.name),
        table_id=plan.table.table_id,
        listed=plan.listed,
        deleted=by_reason(deleted),
        young=plan.young,
        held_back=ObjectSum.of(plan.held_back),
        needed=plan.needed,
        foreign=plan.foreign,
        foreign_keys=plan.foreign_keys,
        planned=planned,
        old_days=tuple(day.date for day in plan.old_days if day.is_expired),
        merged_days=tuple(day.date for day in plan.old_days if not day.is_expired),
        archived=archived,
        problems=tuple(problems),
    )

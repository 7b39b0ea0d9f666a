"""Plans a garbage collection: lists the store first and reads the records afterwards. Changes nothing.

So every commit made before an object was listed is known when the object is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from itertools import islice

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import least_shown
from prism_assets.domain.files.garbage import (
    DayRecords,
    Garbage,
    Reason,
    Records,
    garbage_reason,
    is_foreign,
    upload_of,
    within_fraction,
)
from prism_assets.domain.files.keys import (
    MergedObjectKey,
    ObjectKey,
    QuarantineKey,
    RecordKey,
    SmallObjectKey,
    SpoolKey,
    TableKeys,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import partitions, publication_history, retention
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.files.archive import OldDay
from prism_assets.metadata.intake import quarantine
from prism_assets.metadata.records import folds, record_objects
from prism_assets.metadata.rewrites import rewrites, staged_files
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.settings import GcSettings
from prism_assets.stages.context import StageContext
from prism_assets.stages.gc.archive import find_old_days
from prism_assets.stages.gc.iceberg import load_iceberg_needs
from prism_assets.stages.gc.report import ObjectSum
from prism_assets.stages.gc.spool import load_spooled

_AT_ONCE = 1_000
_EXAMPLES = 3
_FOR_EVER = datetime.min.replace(tzinfo=timezone.utc)
_END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Horizon:
    """The time limits of a run."""

    floor: datetime
    """Objects modified later are young and stay."""
    lease_began: datetime
    """Readers may still use everything shown at this time or later."""
    now: datetime = _FOR_EVER
    """Spool objects converted `spool_days` before this instant are deleted."""
    quarantine_from: date = date.min
    """Quarantined lines of objects that arrived earlier are deleted."""
    log_from: datetime = _FOR_EVER
    """Log entries of earlier deletions are deleted."""
    metadata_from: datetime = _FOR_EVER
    """Rows of days that expired earlier may leave PostgreSQL."""
    unchanged_from: datetime = _FOR_EVER
    """Rows of kept days that no merge has changed since may leave PostgreSQL."""
    erasing: bool = False
    """An erasure runs: young objects go, too, except files of Iceberg tables. No other rule rests on their age."""
    dropped: ObjectSum | None = None
    """The objects in the folder of a dropped table, counted by the drop. One run deletes a fraction of them."""
    never_read: bool = False
    """No batch ever read the dropped table: one run deletes everything, however young.

    It may consist of metadata alone.
    """

    @property
    def archive_before(self) -> datetime:
        """The metadata of days that expired before this instant leaves PostgreSQL, and so do older logs.

        Nothing leaves for a dropped table, because nobody would delete the archive. Nothing leaves during an erasure,
        because its role has no right to archive.
        """
        return self.metadata_from if self._archives else _FOR_EVER

    @property
    def merged_before(self) -> datetime:
        """The metadata of kept days last merged before this instant leaves PostgreSQL, with the exceptions above."""
        return self.unchanged_from if self._archives else _FOR_EVER

    @property
    def _archives(self) -> bool:
        return not self.erasing and self.dropped is None

    @property
    def forgotten_before(self) -> datetime:
        """Rewrites that began before this instant and have no worker can no longer commit.

        An erasure forgets every rewrite without a worker, however young: its objects may hold erased rows, and the
        proof reads all objects.
        """
        return _END_OF_TIME if self.erasing else self.floor

    @classmethod
    def at(cls, now: datetime, settings: GcSettings) -> Horizon:
        """Returns the limits of a run at an instant."""
        return cls(
            floor=now - timedelta(hours=settings.gc_age_hours),
            lease_began=now - timedelta(hours=settings.gc_reader_lease_hours),
            now=now,
            quarantine_from=now.astimezone(timezone.utc).date() - timedelta(days=settings.quarantine_days),
            log_from=now - timedelta(days=settings.gc_log_days),
            metadata_from=now - timedelta(days=settings.metadata_days),
            # The replay of a quarantined line rebuilds its day, which needs all of the day's metadata.
            unchanged_from=now - timedelta(days=max(settings.archive_after_days, settings.quarantine_days + 1)),
        )


@dataclass(frozen=True, kw_only=True)
class GcPlan:
    """The objects one run deletes from a table, and the reasons why others stay. The dry run shows the same value."""

    table: TableDefinition
    listed: ObjectSum
    garbage: tuple[Garbage, ...]
    held_back: tuple[Garbage, ...]
    young: ObjectSum
    needed: ObjectSum
    foreign: ObjectSum
    foreign_keys: tuple[str, ...]
    marked: frozenset[str]
    """Keys marked by an earlier run and not yet deleted."""
    old_days: tuple[OldDay, ...]
    """Days whose objects' rows leave PostgreSQL."""
    sources_in_lake: frozenset[int]
    """Staging objects with quarantined lines in the lake, or with small objects there of days that may be old.

    Their rows stay: without them nobody knows where these lines and objects come from.
    """


@dataclass
class _JudgedObjects:
    """The objects listed and judged so far."""

    listed: ObjectSum = field(default_factory=ObjectSum)
    young: ObjectSum = field(default_factory=ObjectSum)
    foreign: ObjectSum = field(default_factory=ObjectSum)
    foreign_keys: list[str] = field(default_factory=list)
    garbage: list[Garbage] = field(default_factory=list)
    unjudged: list[ObjectInfo] = field(default_factory=list)
    """Files of an Iceberg table. Its snapshots judge them later."""
    keys_marked: set[str] = field(default_factory=set)
    days: set[date] = field(default_factory=set)
    """Days with any object in the lake."""
    sources_in_lake: set[int] = field(default_factory=set)
    """Staging objects with quarantined lines in the lake, or small objects of days that may be old."""


def plan_gc(
    context: StageContext, table: TableDefinition, horizon: Horizon, marked: Collection[str] = frozenset()
) -> GcPlan:
    """Lists and judges all objects of a table. `marked` are the keys marked by earlier runs."""
    found = _JudgedObjects()
    keys = context.lake.keys(table)
    for part in _parts(context.stores.list(context.lake.bucket, keys.root)):
        found.keys_marked.update(item.key for item in part if item.key in marked)
        _judge(context, table, horizon, part, found)
    needed = _needed(context, table, _of_days(keys, found.garbage))
    iceberg = load_iceberg_needs(context, table, _days_to_ask_for(context, table, found))
    if iceberg is not None:
        needed = _NeededKeys(needed.keys | iceberg)
    _judge_iceberg(found, iceberg, horizon)
    whole = horizon.dropped or found.listed
    # The fraction is a brake against faults. A table file bounds the age of spool objects, so they are not held back.
    unbounded = [item for item in found.garbage if _is_old_spool(keys, item)]
    chosen, held_back = within_fraction(
        (item for item in found.garbage if not needed.holds(item) and not _is_old_spool(keys, item)),
        objects=max(whole.objects, found.listed.objects),
        content_length=max(whole.content_length, found.listed.content_length),
        fraction=1.0 if horizon.never_read else context.settings.gc_max_fraction,
    )
    return GcPlan(
        table=table,
        listed=found.listed,
        garbage=tuple(sorted((*chosen, *unbounded), key=lambda item: (item.date, item.key))),
        held_back=tuple(held_back),
        young=found.young,
        needed=ObjectSum.of([item for item in found.garbage if needed.holds(item)]),
        foreign=found.foreign,
        foreign_keys=tuple(found.foreign_keys),
        marked=frozenset(found.keys_marked),
        old_days=tuple(
            find_old_days(
                context,
                table,
                expired_before=horizon.archive_before,
                merged_before=horizon.merged_before,
                days_in_lake=found.days,
            )
        ),
        sources_in_lake=frozenset(found.sources_in_lake),
    )


def _days_to_ask_for(context: StageContext, table: TableDefinition, found: _JudgedObjects) -> Collection[date] | None:
    """Returns the days with garbage, or all if a foreign writer has put data into the folder of the Iceberg table."""
    own = f"{context.lake.keys(table).iceberg_prefix}metadata/"
    if any(not item.key.startswith(own) for item in found.unjudged):
        return None
    return {item.date for item in _of_days(context.lake.keys(table), found.garbage)}


def _of_days(keys: TableKeys, garbage: Sequence[Garbage]) -> list[Garbage]:
    """Leaves out spool objects: no reader knows them, and their dates are no event dates."""
    return [item for item in garbage if not item.key.startswith(keys.all_spool_prefix)]


def _is_old_spool(keys: TableKeys, item: Garbage) -> bool:
    return item.reason is Reason.EXPIRED and item.key.startswith(keys.all_spool_prefix)


def _parts(listed: Iterator[ObjectInfo]) -> Iterator[Sequence[ObjectInfo]]:
    while part := list(islice(listed, _AT_ONCE)):
        yield part


def _judge(
    context: StageContext, table: TableDefinition, horizon: Horizon, part: Sequence[ObjectInfo], found: _JudgedObjects
) -> None:
    keys = context.lake.keys(table)
    named = {item.key: known for item in part if (known := keys.parse(item.key))}
    with context.database.begin() as connection:
        records = load_records(context, connection, table, horizon, named)
    # A day may have its last merge long before it ends, but is over when it is old. Time zones differ by up to a day.
    last_over = horizon.now.date() + timedelta(days=1)
    for item in part:
        known = named.get(item.key)
        one = ObjectSum(objects=1, content_length=item.content_length)
        found.listed += one
        if isinstance(known, QuarantineKey):
            found.sources_in_lake.add(known.staging_object_id)
        elif known is not None and not isinstance(known, SpoolKey):
            found.days.add(known.date)
            if isinstance(known, SmallObjectKey) and known.date <= last_over:
                found.sources_in_lake.add(known.staging_object_id)
        if item.key.startswith(keys.iceberg_prefix):
            found.unjudged.append(item)
        elif item.key.startswith(keys.archive_prefix):
            if horizon.dropped is not None:
                found.garbage.append(_unnamed(item, Reason.DROPPED))
        elif known is None or is_foreign(known, records):
            found.foreign += one
            found.foreign_keys += [item.key] if len(found.foreign_keys) < _EXAMPLES else []
        elif reason := garbage_reason(known, records):
            is_bounded = isinstance(known, SpoolKey) and reason is Reason.EXPIRED  # by days in the table file
            if item.last_modified > horizon.floor and not horizon.erasing and not is_bounded:
                found.young += one
                continue
            found.garbage.append(
                Garbage(
                    key=item.key,
                    date=known.date,
                    content_length=item.content_length,
                    last_modified=item.last_modified,
                    reason=reason,
                )
            )


def _judge_iceberg(found: _JudgedObjects, needs: frozenset[str] | None, horizon: Horizon) -> None:
    """Judges files in the Iceberg folder. If the table is not published as Iceberg, they are foreign and stay."""
    for item in found.unjudged:
        one = ObjectSum(objects=1, content_length=item.content_length)
        if needs is None and horizon.dropped is None:
            found.foreign += one
            found.foreign_keys += [item.key] if len(found.foreign_keys) < _EXAMPLES else []
        elif needs is not None and item.key in needs:
            continue
        elif item.last_modified > horizon.floor and not horizon.never_read:
            found.young += one
        else:
            found.garbage.append(_unnamed(item, Reason.DROPPED if horizon.dropped else Reason.UNLISTED))


def _unnamed(item: ObjectInfo, reason: Reason) -> Garbage:
    """Returns garbage whose key names no day."""
    return Garbage(
        key=item.key,
        date=item.last_modified.date(),
        content_length=item.content_length,
        last_modified=item.last_modified,
        reason=reason,
    )


def load_records(
    context: StageContext,
    connection: Connection,
    table: TableDefinition,
    horizon: Horizon,
    named: Mapping[str, ObjectKey],
    *,
    lock: bool = False,
) -> Records:
    """Returns the records of keys; with `lock`, after locking the rows of their partitions."""
    keys = context.lake.keys(table)
    days = {known.date for known in named.values() if not isinstance(known, QuarantineKey | SpoolKey)}
    found = {item.partition_id: item for item in partitions.load_days(connection, table.table_id, days)}
    if lock:
        found = partitions.lock_partitions(connection, found)
    shown = publication_history.load_shown_at(connection, found, horizon.lease_began)
    gone = retention.find_gone(connection, found, horizon.lease_began)
    staged = staged_files.load_ranges(connection, found)
    folded = folds.load_positions(connection, found) if table.change_log else {}
    bounds = merge_ranges.load_bounds(connection, found)
    starts = [known for known in named.values() if isinstance(known, SmallObjectKey | QuarantineKey)]
    uploads = small_objects.trace_uploads(connection, table.table_id, {upload_of(known) for known in starts})
    numbers = {_number_of(known) for known in named.values()} | {upload.rewrite_id for upload in uploads.values()}
    if lock:
        # A restored database gives lost numbers again. After this statement it gives none of the listed numbers, so an
        # object that is garbage now because its number is unknown stays garbage.
        rewrites.raise_numbers(connection, max(numbers, default=0))
    known_rewrites = rewrites.load_records(connection, table.table_id, numbers)
    # Read last: an upload or a rewrite that was over by then had committed its quarantined lines before.
    kept = quarantine.find_kept(
        connection, {known.staging_object_id for known in starts if isinstance(known, QuarantineKey)}
    )
    return Records(
        days={
            item.date: DayRecords(
                partition=item,
                bounds=tuple(bounds.get(number, ())),
                rewrite_ids={name: change.rewrite_id for name, change in bounds.get(number, {}).items()},
                fresh=frozenset(
                    name for name, change in bounds.get(number, {}).items() if change.update_time > horizon.lease_began
                ),
                staged=frozenset(staged.get(number, ())),
                shown=least_shown(shown.get(number, {}).values()),
                is_gone=number in gone,
                folded_object_id=folded.get(number, 0) if table.change_log else None,
            )
            for number, item in found.items()
        },
        uploads=uploads,
        rewrites=known_rewrites,
        quarantined={
            upload_of(item): item.rewrite_id for item in map(keys.parse, kept) if isinstance(item, QuarantineKey)
        },
        of_folds=record_objects.trace(
            connection,
            table.table_id,
            [known for known in named.values() if isinstance(known, RecordKey)],
            horizon.lease_began,
        ),
        spooled=load_spooled(
            connection,
            table,
            context.lake.bucket,
            {key: known for key, known in named.items() if isinstance(known, SpoolKey)},
            horizon.now,
        ),
        quarantine_from=horizon.quarantine_from,
        is_dropped=horizon.dropped is not None,
    )


def _number_of(named: ObjectKey) -> int:
    """Returns the number of the rewrite in a key of rows or lines, or 0."""
    return named.rewrite_id if isinstance(named, SmallObjectKey | MergedObjectKey | QuarantineKey) else 0


@dataclass(frozen=True)
class _NeededKeys:
    """Keys and folders that readers are sent to.

    A stray in a listed folder is not needed: readers should not see it.
    """

    keys: frozenset[str] = frozenset()

    def holds(self, item: Garbage) -> bool:
        """Whether readers may read an object unneeded by the records."""
        folder = item.key.rpartition("/")[0] + "/"
        return item.key in self.keys or (folder in self.keys and item.reason is not Reason.STRAY)


def _needed(context: StageContext, table: TableDefinition, garbage: Sequence[Garbage]) -> _NeededKeys:
    """Asks all publishers of a table for the keys that readers are sent to, on the days with garbage.

    This is a second opinion beside the records: a call of long ago may show an older publication again. If a publisher
    cannot answer, nothing of the table is deleted.
    """
    days = {item.date for item in garbage}
    if not days:
        return _NeededKeys()
    catalogs = context.for_catalogs([table])[table.table_id]
    return _NeededKeys(frozenset().union(*(one.publisher.needed_keys(table, days) for one in catalogs)))

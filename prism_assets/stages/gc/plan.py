"""What a garbage collection would delete: the store is listed first, and what is recorded is read behind it.

So whatever was committed before an object was listed is known when the object is judged. Nothing is changed.
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
from prism_assets.domain.files.keys import MergedObjectKey, ObjectKey, QuarantineKey, RecordKey, SmallObjectKey
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import partitions, publication_history, retention
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.files.archive import OldDay
from prism_assets.metadata.intake import quarantine
from prism_assets.metadata.records import folds, record_objects
from prism_assets.metadata.rewrites import range_copies, rewrites
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.settings import GcSettings
from prism_assets.stages.context import StageContext
from prism_assets.stages.gc.archive import find_old_days
from prism_assets.stages.gc.iceberg import load_iceberg_needs
from prism_assets.stages.gc.report import ObjectSum

_AT_ONCE = 1_000
_EXAMPLES = 3
_FOR_EVER = datetime.min.replace(tzinfo=timezone.utc)
_END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Horizon:
    """How far back a run looks: objects modified behind `floor` are young, the reader lease began at `lease_began`.

    Quarantined lines of objects that arrived before `quarantine_from` are kept no longer, nor what was deleted before
    `log_from` known. What expired before `metadata_from` may leave PostgreSQL.
    While rows are `erasing` young objects go, too, but files of Iceberg tables: no other rule rests on their age.
    Of a table that was `dropped` before the lease began everything goes: it is what lay there then, of which one run
    deletes a part. One run deletes all of a table that was `never_read`, as young as it is: that can be metadata alone.
    """

    floor: datetime
    lease_began: datetime
    quarantine_from: date = date.min
    log_from: datetime = _FOR_EVER
    metadata_from: datetime = _FOR_EVER
    erasing: bool = False
    dropped: ObjectSum | None = None
    never_read: bool = False

    @property
    def archive_before(self) -> datetime:
        """What expired before this instant leaves PostgreSQL.

        Nothing of a dropped table does, as nobody would delete what was archived; nor anything while rows are erased,
        as who erases has no right to archive.
        """
        return _FOR_EVER if self.erasing or self.dropped is not None else self.metadata_from

    @property
    def forgotten_before(self) -> datetime:
        """Rewrites that began before this instant and that nobody is at can commit no more.

        While rows are erased all of these: what they wrote may hold such rows, and a proof reads all that lies there.
        """
        return _END_OF_TIME if self.erasing else self.floor

    @classmethod
    def at(cls, now: datetime, settings: GcSettings) -> Horizon:
        """That of a run at an instant."""
        return cls(
            floor=now - timedelta(hours=settings.gc_age_hours),
            lease_began=now - timedelta(hours=settings.gc_reader_lease_hours),
            quarantine_from=now.astimezone(timezone.utc).date() - timedelta(days=settings.quarantine_days),
            log_from=now - timedelta(days=settings.gc_log_days),
            metadata_from=now - timedelta(days=settings.metadata_days),
        )


@dataclass(frozen=True, kw_only=True)
class GcPlan:
    """What one run deletes of a table, the same value for the dry run, and why anything else stays.

    `marked` are the keys that an earlier run has marked and not deleted. What is recorded of the objects of `old_days`
    leaves PostgreSQL, but of those `with_lines`, of which quarantined ones were listed: these would be nobody's then.
    """

    table: TableDefinition
    listed: ObjectSum
    garbage: tuple[Garbage, ...]
    held_back: tuple[Garbage, ...]
    young: ObjectSum
    needed: ObjectSum
    foreign: ObjectSum
    foreign_keys: tuple[str, ...]
    marked: frozenset[str]
    old_days: tuple[OldDay, ...]
    with_lines: frozenset[int]


@dataclass
class _JudgedObjects:
    """What was listed and judged so far; `unjudged` are files of an Iceberg table, which its snapshots judge.

    Of the `days` something lies in the lake, and of staging objects `with_lines` quarantined ones do.
    """

    listed: ObjectSum = field(default_factory=ObjectSum)
    young: ObjectSum = field(default_factory=ObjectSum)
    foreign: ObjectSum = field(default_factory=ObjectSum)
    foreign_keys: list[str] = field(default_factory=list)
    garbage: list[Garbage] = field(default_factory=list)
    unjudged: list[ObjectInfo] = field(default_factory=list)
    keys_marked: set[str] = field(default_factory=set)
    days: set[date] = field(default_factory=set)
    with_lines: set[int] = field(default_factory=set)


def plan_gc(
    context: StageContext, table: TableDefinition, horizon: Horizon, marked: Collection[str] = frozenset()
) -> GcPlan:
    """Lists and judges all objects of a table. `marked` are the keys marked by earlier runs."""
    found = _JudgedObjects()
    keys = context.lake.keys(table)
    for part in _parts(context.stores.list(context.lake.bucket, keys.root)):
        found.keys_marked.update(item.key for item in part if item.key in marked)
        _judge(context, table, horizon, part, found)
    needed = _needed(context, table, found.garbage)
    iceberg = load_iceberg_needs(context, table, _days_to_ask_for(context, table, found))
    if iceberg is not None:
        needed = _NeededKeys(needed.keys | iceberg)
    _judge_iceberg(found, iceberg, horizon)
    whole = horizon.dropped or found.listed
    chosen, held_back = within_fraction(
        (item for item in found.garbage if not needed.holds(item)),
        objects=max(whole.objects, found.listed.objects),
        content_length=max(whole.content_length, found.listed.content_length),
        fraction=1.0 if horizon.never_read else context.settings.gc_max_fraction,
    )
    return GcPlan(
        table=table,
        listed=found.listed,
        garbage=tuple(sorted(chosen, key=lambda item: (item.date, item.key))),
        held_back=tuple(held_back),
        young=found.young,
        needed=ObjectSum.of([item for item in found.garbage if needed.holds(item)]),
        foreign=found.foreign,
        foreign_keys=tuple(found.foreign_keys),
        marked=frozenset(found.keys_marked),
        old_days=tuple(find_old_days(context, table, horizon.archive_before, found.days)),
        with_lines=frozenset(found.with_lines),
    )


def _days_to_ask_for(context: StageContext, table: TableDefinition, found: _JudgedObjects) -> Collection[date] | None:
    """Returns the days with garbage, or all if a foreign writer has put data into the folder of the Iceberg table."""
    own = f"{context.lake.keys(table).iceberg_prefix}metadata/"
    if any(not item.key.startswith(own) for item in found.unjudged):
        return None
    return {item.date for item in found.garbage}


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
    for item in part:
        known = named.get(item.key)
        one = ObjectSum(objects=1, content_length=item.content_length)
        found.listed += one
        if isinstance(known, QuarantineKey):
            found.with_lines.add(known.staging_object_id)
        elif known is not None:
            found.days.add(known.date)
        if item.key.startswith(keys.iceberg_prefix):
            found.unjudged.append(item)
        elif item.key.startswith(keys.archive_prefix):
            if horizon.dropped is not None:
                found.garbage.append(_unnamed(item, Reason.DROPPED))
        elif known is None or is_foreign(known, records):
            found.foreign += one
            found.foreign_keys += [item.key] if len(found.foreign_keys) < _EXAMPLES else []
        elif reason := garbage_reason(known, records):
            if item.last_modified > horizon.floor and not horizon.erasing:
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
    """Of a table that is not published as Iceberg its files are nobody's here, and stay."""
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
    days = {known.date for known in named.values() if not isinstance(known, QuarantineKey)}
    found = {item.partition_id: item for item in partitions.load_days(connection, table.table_id, days)}
    if lock:
        found = partitions.lock_partitions(connection, found)
    shown = publication_history.load_shown_at(connection, found, horizon.lease_began)
    gone = retention.find_gone(connection, found, horizon.lease_began)
    staged = range_copies.load_staged(connection, found)
    folded = folds.load_positions(connection, found) if table.change_log else {}
    bounds = merge_ranges.load_bounds(connection, found)
    starts = [known for known in named.values() if isinstance(known, SmallObjectKey | QuarantineKey)]
    uploads = small_objects.trace_uploads(connection, table.table_id, {upload_of(known) for known in starts})
    numbers = {_number_of(known) for known in named.values()} | {upload.rewrite_id for upload in uploads.values()}
    if lock:
        # A database that was set back gives the numbers again that it has lost. Behind this none of these is given, so
        # that what is garbage now, as its number is on no record, stays garbage.
        rewrites.raise_numbers(connection, max(numbers, default=0))
    known_rewrites = rewrites.load_records(connection, table.table_id, numbers)
    # After these: an upload or a rewrite that is over by then has committed its quarantined lines before.
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
        quarantine_from=horizon.quarantine_from,
        is_dropped=horizon.dropped is not None,
    )


def _number_of(named: ObjectKey) -> int:
    """The number of the rewrite in a key of rows or lines; 0 where there is none."""
    return named.rewrite_id if isinstance(named, SmallObjectKey | MergedObjectKey | QuarantineKey) else 0


@dataclass(frozen=True)
class _NeededKeys:
    """Keys and folders that readers are sent to. A stray in a folder that they list is what they should not see."""

    keys: frozenset[str] = frozenset()

    def holds(self, item: Garbage) -> bool:
        """Whether readers may read an object unneeded by the records."""
        folder = item.key.rpartition("/")[0] + "/"
        return item.key in self.keys or (folder in self.keys and item.reason is not Reason.STRAY)


def _needed(context: StageContext, table: TableDefinition, garbage: Sequence[Garbage]) -> _NeededKeys:
    """What all publishers of the table say that readers are sent to, of the days with garbage.

    A second opinion, as the records decide already: a call of long ago may show an older publication again. If one
    cannot tell, nothing of the table is deleted.
    """
    days = {item.date for item in garbage}
    if not days:
        return _NeededKeys()
    catalogs = context.for_catalogs([table])[table.table_id]
    return _NeededKeys(frozenset().union(*(one.publisher.needed_keys(table, days) for one in catalogs)))

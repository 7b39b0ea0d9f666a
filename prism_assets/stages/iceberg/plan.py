"""Plans a commit: what its Iceberg table lists of each day, against what it should list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.lineage import Lineage, TableHead, lineage_of
from prism_assets.domain.partitions import Partition, Publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.snapshots import (
    DayChange,
    SnapshotChange,
    SnapshotContent,
    day_change,
    expired_by_lengths,
    expired_snapshots,
)
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata.iceberg_tables import IcebergState
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.stages.context import StageContext
from prism_assets.stages.iceberg.content import load_days, uncertified

_OLD_FORMAT = (
    "holds objects whose timestamps are in milliseconds, in which readers of Iceberg find wrong rows: it is shown when "
    "they are merged, or rewritten by `prism iceberg adopt`"
)


@dataclass(frozen=True, kw_only=True)
class IcebergPlan:
    """What the next commit to a table changes, and the days that are left as they are, with the reason of each.

    `is_full` if every day was compared with what its manifests list, and not only those that changed since the last
    commit. `days` are all that were looked at.
    """

    lineage: Lineage
    is_full: bool
    change: SnapshotChange
    days: tuple[SnapshotContent, ...]
    left: tuple[Problem, ...] = ()


def head_of(state: IcebergState, loaded: LoadedTable) -> TableHead:
    """What the catalog shows, against what is recorded."""
    recorded = state.known.snapshot_id if state.known else None
    return TableHead(
        identifier=loaded.identifier,
        table_uuid=loaded.table_uuid,
        snapshot_id=loaded.snapshot_id,
        is_ours=loaded.is_ours,
        others=loaded.foreign_since(recorded),
    )


def plan_commit(context: StageContext, state: IcebergState, loaded: LoadedTable | None, now: datetime) -> IcebergPlan:
    """Compares; changes nothing. A table that is not there yet lists nothing.

    Where the head is the recorded one, days that only grew are compared by what was recorded of them, and manifests are
    read only of days with new ranges, or with objects of another length. Otherwise all manifests are read.
    """
    table = state.definition
    if table.iceberg is None:
        raise InvariantBroken(f"{table.name} is not published as Iceberg")
    head = None if loaded is None else head_of(state, loaded)
    lineage = lineage_of(state.known, head)
    is_full = lineage is not Lineage.SAME
    days = load_days(context, context.lake.keys(table), table.table_id, dirty_only=not is_full)
    left = _left_out(context, table, days)
    shown = [content for content in days if content.partition not in left]
    if loaded is None:
        changes, others = [_all_added(content) for content in shown], False
    elif is_full:
        changes, others = _full_changes(loaded, shown, frozenset(item.partition.date for item in days))
    else:
        changes, others = _recorded_changes(loaded, shown), bool(loaded.other_manifests)
    return IcebergPlan(
        lineage=lineage,
        is_full=is_full,
        change=SnapshotChange(
            days=tuple(changes),
            expired=_expired(loaded, changes, now, timedelta(hours=table.iceberg.keep_hours)) if loaded else (),
            sets_schema=loaded is not None and not loaded.has_schema(table),
            drops_others=others and is_full,
        ),
        days=tuple(days),
        left=tuple(
            Problem(table=str(table.name), reason=reason, date=partition.date) for partition, reason in left.items()
        ),
    )


def _left_out(context: StageContext, table: TableDefinition, days: Sequence[SnapshotContent]) -> dict[Partition, str]:
    has_times = any(column.type.keyword == "timestamp" for column in table.columns)
    old = {content.partition: _OLD_FORMAT for content in days if has_times and content.old_formats}
    return {**old, **uncertified(context, [content for content in days if content.partition not in old])}


def _all_added(content: SnapshotContent) -> DayChange:
    return DayChange(date=content.partition.date, publication=content.publication, added=content.files)


def _recorded_changes(loaded: LoadedTable, days: Sequence[SnapshotContent]) -> list[DayChange]:
    """What days list is known up to the last commit: only what replaces something needs their manifests."""
    grown = {content.partition.date: _grown(content) for content in days}
    listed = loaded.listed([day for day, change in grown.items() if change is None])
    return [
        grown[day] or day_change(day, content.publication, content.files, listed[day], rewrites=False)
        for content in days
        for day in [content.partition.date]
    ]


def _grown(content: SnapshotContent) -> DayChange | None:
    """The change of a day to which only small objects were added; None if its manifests must be read."""
    partition = content.partition
    version = max(partition.current_version, 0)
    if content.publication.version != version or partition.revision != partition.published_revision:
        return None
    last = partition.published_object_id or 0
    added = tuple(item for item in content.small_objects if item.object_id > last)
    if partition.current_version < 0:  # nothing is recorded of the day
        added = content.small_objects
    return DayChange(date=partition.date, publication=content.publication, added=added)


def _full_changes(
    loaded: LoadedTable, days: Sequence[SnapshotContent], known: frozenset[date]
) -> tuple[list[DayChange], bool]:
    """Every day against all manifests; days that are `known` and left out stay as they are, others list nothing."""
    listing = loaded.list_everything()
    changes = [
        day_change(
            content.partition.date,
            content.publication,
            content.files,
            listing.files.get(content.partition.date, ()),
            rewrites=content.partition.date in listing.scattered,
        )
        for content in days
    ]
    planned = {change.date for change in changes}
    for day in sorted(listing.files.keys() - planned):
        if day not in known:
            changes.append(day_change(day, Publication(-1, 0), (), listing.files[day], rewrites=False))
        elif day in listing.scattered:
            changes.append(DayChange(date=day, publication=Publication(-1, 0), rewrites=True))
    return changes, listing.has_strangers or bool(listing.scattered)


def _expired(loaded: LoadedTable, changes: Sequence[DayChange], now: datetime, keep: timedelta) -> tuple[int, ...]:
    """By age; and all but tagged ones where objects got another length, which older snapshots say wrong."""
    heads = frozenset() if loaded.snapshot_id is None else frozenset([loaded.snapshot_id])
    if expired_by_lengths(changes):
        kept = loaded.referenced - heads
        return tuple(item.snapshot_id for item in loaded.snapshots if item.snapshot_id not in kept)
    return expired_snapshots(loaded.snapshots, loaded.referenced | heads, now, keep)

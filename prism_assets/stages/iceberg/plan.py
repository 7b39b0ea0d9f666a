"""Plans a commit: compares the files an Iceberg table lists for each day with the intended ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from prism_assets.domain.columns.types import TimestampType
from prism_assets.domain.days.partitions import NEW_VERSION, Partition, Publication, current_publication
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.iceberg.head import HeadChange, Obstacle, TableHead, compare_head, obstacle_of
from prism_assets.domain.iceberg.snapshots import (
    DayChange,
    ListedFile,
    SnapshotChange,
    SnapshotContent,
    changes_a_length,
    day_change,
    due_tags,
    expired_snapshots,
)
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.iceberg.iceberg_tables import IcebergState
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.stages.context import StageContext
from prism_assets.stages.iceberg.content import load_days, uncertified
from prism_assets.stages.iceberg.report import tags_sentence

_OLD_FORMAT = (
    "holds objects whose timestamps are in milliseconds, in which readers of Iceberg find wrong rows: it is shown when "
    "they are merged, or rewritten by `prism iceberg adopt`"
)


@dataclass(frozen=True, kw_only=True)
class IcebergPlan:
    """The changes of the next commit to a table, and the days left unchanged."""

    head_change: HeadChange
    is_full: bool
    """Every day was compared with its manifests, not only the days changed since the last commit."""
    change: SnapshotChange
    days: tuple[SnapshotContent, ...]
    """All days examined."""
    time: datetime
    """The time of the run, or of the database if earlier."""
    left: tuple[Problem, ...] = ()
    """The days left unchanged, with the reasons."""
    foreign_snapshots: int = 0
    """Snapshots of others that the commit takes back."""


def head_of(state: IcebergState, loaded: LoadedTable) -> TableHead:
    """Returns the head of the catalog and its difference from the record."""
    recorded = state.known.snapshot_id if state.known else None
    return TableHead(
        identifier=loaded.identifier,
        table_uuid=loaded.table_uuid,
        snapshot_id=loaded.snapshot_id,
        is_ours=loaded.is_ours,
        others=loaded.foreign_since(recorded),
        was_rolled_back=loaded.was_rolled_back(recorded),
    )


def plan_commit(
    context: StageContext,
    state: IcebergState,
    loaded: LoadedTable | None,
    now: datetime,
    *,
    optimize: bool = False,
    every_day: bool = False,
) -> IcebergPlan:
    """Compares and plans; changes nothing. A table that does not exist yet lists nothing.

    With the recorded head only dirty days are examined. Days that only grew are compared with the record; manifests are
    read only for days with new ranges or with objects of another length. With any other head every day is compared with
    all manifests. `every_day` examines days left out earlier again. `optimize` also joins manifests of closed days and
    sets tags.
    """
    table = state.definition
    now = min(now, state.time)  # a fast clock would take snapshots from their readers
    if table.iceberg is None:
        raise InvariantBroken(f"{table.name} is not published as Iceberg")
    head = None if loaded is None else head_of(state, loaded)
    head_change = compare_head(state.known, head)
    is_full = head_change is not HeadChange.SAME
    days = load_days(context, context.lake.keys(table), table.table_id, dirty_only=not (is_full or every_day))
    left = _left_out(context, table, days)
    shown = [content for content in days if content.partition not in left]
    if loaded is None:
        changes, drops = [_all_added(content) for content in shown], False
    elif is_full:
        changes, drops = _full_changes(loaded, shown, frozenset(item.partition.date for item in days))
    else:
        changes, drops = _recorded_changes(loaded, shown), False
    change = SnapshotChange(
        days=tuple(changes),
        sets_schema=loaded is not None and not loaded.has_schema(table),
        drops_mixed_manifests=drops,
    )
    if optimize and loaded is not None and not is_full:
        change = _with_optimizing(context, table, loaded, change)
    if loaded is not None:
        repaired = any(_is_repaired(content.partition, is_full=is_full) for content in shown)
        keep = timedelta(hours=max(table.iceberg.keep_hours, context.settings.gc_reader_lease_hours))
        change = replace(change, expired=_expired(loaded, change, now, keep, repaired=repaired))
        change = _without_erased(context, table, loaded, change)
    return IcebergPlan(
        head_change=head_change,
        is_full=is_full,
        change=change,
        days=tuple(days),
        time=now,
        foreign_snapshots=len(head.others) if head else 0,
        left=tuple(
            Problem(table=str(table.name), reason=reason, date=partition.date) for partition, reason in left.items()
        ),
    )


def _with_optimizing(
    context: StageContext, table: TableDefinition, loaded: LoadedTable, change: SnapshotChange
) -> SnapshotChange:
    """Adds the joins of closed days' manifests, and a tag for each of the newest switched days."""
    assert table.iceberg is not None
    with context.database.begin() as connection:
        found = {item.date: item for item in iceberg_tables.load_days(connection, table.table_id, dirty_only=False)}
        is_erasing = erasures.load_rewritten_time(connection, table.table_id) is not None
    changes = {day.date: day for day in change.days}
    for day in loaded.days_to_join(forgets_removed=is_erasing):
        partition = found.get(day)
        if partition is None or partition.is_open:
            continue
        shown = current_publication(partition) or Publication(NEW_VERSION, 0)
        changes[day] = replace(changes.get(day) or DayChange(date=day, publication=shown), rewrites=True)
    switched = [item.date for item in found.values() if item.switched and item.is_published]
    tags, dropped = due_tags(switched, loaded.tags, table.iceberg.daily_tags)
    return replace(change, days=tuple(changes[day] for day in sorted(changes)), tags=tags, dropped_tags=dropped)


def _left_out(context: StageContext, table: TableDefinition, days: Sequence[SnapshotContent]) -> dict[Partition, str]:
    has_times = any(isinstance(column.type, TimestampType) for column in table.columns)
    old = {content.partition: _OLD_FORMAT for content in days if has_times and content.old_formats}
    return {**old, **uncertified(context, [content for content in days if content.partition not in old])}


def _all_added(content: SnapshotContent) -> DayChange:
    return DayChange(date=content.partition.date, publication=content.publication, added=content.files)


def _recorded_changes(loaded: LoadedTable, days: Sequence[SnapshotContent]) -> list[DayChange]:
    """Compares days with the record of the last commit. Only days with replaced files need their manifests."""
    grown = {content.partition.date: _appended(content) for content in days}
    listed = loaded.listed([day for day, change in grown.items() if change is None])
    return [
        grown[day] or _changed(content, listed[day], rewrites=False)
        for content in days
        for day in [content.partition.date]
    ]


def _appended(content: SnapshotContent) -> DayChange | None:
    """Returns the change of a day with additional small objects only. None if its manifests must be read."""
    partition = content.partition
    if content.records:
        return None
    version = max(partition.current_version, 0)
    if content.publication.version != version or partition.revision != partition.published_revision:
        return None
    last = partition.published_object_id or 0
    added = tuple(item for item in content.small_objects if item.object_id > last)
    if partition.current_version < 0:  # the day has no record
        added = content.small_objects
    return DayChange(date=partition.date, publication=content.publication, added=added)


def _changed(content: SnapshotContent, listed: Iterable[ListedFile], *, rewrites: bool) -> DayChange:
    return day_change(
        content.partition.date,
        content.publication,
        content.files,
        listed,
        rewrites=rewrites,
        updates=bool(content.records),
    )


def _full_changes(
    loaded: LoadedTable, days: Sequence[SnapshotContent], known: frozenset[date]
) -> tuple[list[DayChange], bool]:
    """Compares every day with all manifests. A day in `known` but left out stays unchanged; any other day lists
    nothing.
    """
    listing = loaded.list_everything()
    changes = [
        _changed(
            content,
            listing.files.get(content.partition.date, ()),
            rewrites=content.partition.date in listing.mixed,
        )
        for content in days
    ]
    planned = {change.date for change in changes}
    for day in sorted(listing.files.keys() - planned):
        if day not in known:
            changes.append(day_change(day, Publication(-1, 0), (), listing.files[day], rewrites=False))
        elif day in listing.mixed:
            changes.append(DayChange(date=day, publication=Publication(-1, 0), rewrites=True))
    return changes, listing.has_foreign_files or bool(listing.mixed)


def _is_repaired(partition: Partition, *, is_full: bool) -> bool:
    """Whether snapshots may list damaged objects, or old lengths, even if a merge has replaced the objects since.

    Rebuilds and adoptions also raise the revision. Objects that they replace are sound, so these snapshots remain
    readable and keep their normal lifetime.
    """
    return partition.repairs != partition.published_repairs and (is_full or partition.is_published)


def _expired(
    loaded: LoadedTable, change: SnapshotChange, now: datetime, keep: timedelta, *, repaired: bool
) -> tuple[int, ...]:
    """Returns snapshots to expire by age. After a repair, returns all but tagged ones: older snapshots list the damaged
    object, or its old length.
    """
    heads = frozenset() if loaded.snapshot_id is None else frozenset([loaded.snapshot_id])
    if repaired or changes_a_length(change.days):
        kept = loaded.referenced if change.makes_snapshot else loaded.referenced | heads
        return tuple(item.snapshot_id for item in loaded.snapshots if item.snapshot_id not in kept)
    return expired_snapshots(loaded.snapshots, loaded.referenced | heads, now, keep)


def _without_erased(
    context: StageContext, table: TableDefinition, loaded: LoadedTable, change: SnapshotChange
) -> SnapshotChange:
    """While rows are erased, older snapshots and our tags on them go. Tagged snapshots go with the next commit."""
    with context.database.begin() as connection:
        rewritten = erasures.load_rewritten_time(connection, table.table_id)
    if rewritten is None:
        return change
    kept = loaded.referenced | (frozenset() if change.makes_snapshot else frozenset([loaded.snapshot_id]))
    old = [item.snapshot_id for item in loaded.snapshots if item.time < rewritten]
    expired = dict.fromkeys([*change.expired, *(number for number in old if number not in kept)])
    tags = [name for name, number in loaded.own_tags.items() if number in old and number != loaded.snapshot_id]
    dropped = dict.fromkeys([*change.dropped_tags, *sorted(tags)])
    return replace(change, expired=tuple(expired), dropped_tags=tuple(dropped))


@dataclass(frozen=True, kw_only=True)
class IcebergPreview:
    """The plan of a table's next publication, or the obstacle."""

    table: str
    plan: IcebergPlan
    obstacle: Obstacle | None = None
    tag_bytes: int | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each day, and for other parts of the commit."""
        change = self.plan.change
        lines = [f"{self.table}: {self.obstacle.reason}"] if self.obstacle else []
        if self.plan.head_change is HeadChange.NEW:
            lines.append(f"{self.table}: create the table")
        if self.plan.head_change is HeadChange.LOST:
            lines.append(f"{self.table}: register the table again, which the catalog has lost")
        lines += [f"{self.table} {_day_line(day)}" for day in change.changed_days]
        if change.sets_schema:
            lines.append(f"{self.table}: set the columns of the definition in force")
        if change.expired:
            lines.append(f"{self.table}: expire {counted(len(change.expired), 'snapshot')}")
        lines += [f"{self.table}: set tag {tag}" for tag in change.tags]
        lines += [f"{self.table}: drop tag {tag}" for tag in change.dropped_tags]
        if self.tag_bytes is not None:
            lines.append(f"{self.table}: {tags_sentence(self.tag_bytes)}")
        return (*lines, *(f"{problem}" for problem in self.plan.left))


def _day_line(day: DayChange) -> str:
    parts = []
    if day.added:
        parts.append(f"add {counted(len(day.added), 'file')} of {counted(day.rows_in, 'row')}")
    if day.removed:
        parts.append(f"remove {counted(len(day.removed), 'file')} of {counted(day.rows_out, 'row')}")
    return f"{day.date}: {', '.join(parts) or 'join its manifests'}"


def preview(
    context: StageContext, *, now: datetime, names: Collection[str] | None = None, optimize: bool = False
) -> list[IcebergPreview]:
    """Returns the plan of the next publication of each table. Changes nothing."""
    found = []
    for table in context.choose_tables(names):
        if table.iceberg is None:
            continue
        with context.database.begin() as connection:
            state = iceberg_tables.load_iceberg_state(connection, table.table_id)
        loaded = context.iceberg.load(table)
        plan = plan_commit(context, state, loaded, now, optimize=optimize, every_day=True)
        name = str(table.name)
        obstacle = obstacle_of(state.known, head_of(state, loaded), name, table.iceberg.on_foreign) if loaded else None
        tag_bytes = loaded.bytes_of_tags() if loaded and optimize else None
        found.append(IcebergPreview(table=name, plan=plan, obstacle=obstacle, tag_bytes=tag_bytes))
    return found

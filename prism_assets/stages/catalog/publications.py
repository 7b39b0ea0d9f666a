"""Publishes partitions in three steps: read the content, call the publisher, record the publication. Only upwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.days.lifecycle import Publish, publication_due
from prism_assets.domain.days.partitions import Partition, Publication, current_publication, wanted_publication
from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files.data_file import PartitionContent, smallest_urls
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.order import awaited_day
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.records import record_moves
from prism_assets.stages.catalog.calls import FencedCalls
from prism_assets.stages.catalog.content import load_contents
from prism_assets.stages.context import StageContext

_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class PublicationPlan:
    """A partition to publish, and its step."""

    partition: Partition
    step: Publish


@dataclass(frozen=True, kw_only=True)
class PublishedPartition:
    """A partition whose location in the catalog was set and read back."""

    date: date
    location: str
    location_before: str | None
    """None if it had no location."""
    before: Publication | None
    """The publication readers saw before."""
    after: Publication
    """The publication readers see now."""
    objects: int
    rows: int
    bytes: int
    examples: tuple[str, ...] = ()
    """Addresses of its smallest objects."""


@dataclass(frozen=True, kw_only=True)
class HeldBack:
    """A day of records whose new content must wait: some of its records have moved to another day, published first."""

    awaited: date
    date: date

    @property
    def reason(self) -> str:
        """The reason, as a sentence without its subject."""
        return f"is not published: records of it have moved to {self.awaited}, which is shown before it"


def plan_publications(found: Sequence[Partition], also: Collection[date] = frozenset()) -> list[PublicationPlan]:
    """Plans the due publications, and those of the days in `also` as recorded."""
    plans = []
    for item in found:
        step = publication_due(item)
        if step is None and item.date in also and not (item.expired or item.has_nothing_to_show):
            step = Publish(before=current_publication(item), wanted=wanted_publication(item))
        if step:
            plans.append(PublicationPlan(partition=item, step=step))
    return plans


def publish_partitions(
    context: StageContext,
    table: TableDefinition,
    plans: Sequence[PublicationPlan],
    lease: Lease,
    calls: FencedCalls,
    now: datetime,
    *,
    is_compared: bool,
) -> Iterator[PublishedPartition | HeldBack | Problem]:
    """Publishes partitions, a hundred at once. Yields each published one, and a problem for each other one.

    `is_compared` if the catalog may differ from the record: the publisher then reads the partitions first.

    A day of records is held back until the days that now have some of its records are shown. A death after the
    publisher's call leaves an old record; the next run publishes the same content again. The lease and the upward-only
    record keep the order of versions.
    """
    left = list(plans)
    while left:
        contents, awaited = _load_contents(context, table, [plan.partition for plan in left])
        if not contents:
            yield from (HeldBack(date=day, awaited=awaited[day]) for day in sorted(awaited))
            return
        part = [plan for plan in left if plan.partition.date in contents]
        left = [plan for plan in left if plan.partition.date not in contents]
        recorded = None if is_compared else {plan.partition.date for plan in part if plan.step.before}
        failed = context.publisher.publish(table, contents, calls, recorded)
        failpoint("catalog.after_publish")
        shown = [plan for plan in part if plan.partition.date not in failed]
        if shown:
            _record(context, table, {plan.partition: contents[plan.partition.date] for plan in shown}, lease, now)
            failpoint("catalog.after_advance")
        for plan in shown:
            yield _published(context, table, plan, contents[plan.partition.date])
        for day, error in sorted(failed.items()):
            yield Problem.of(error, str(table.name), day)


def withdraw_partitions(
    context: StageContext,
    table: TableDefinition,
    gone: Sequence[Partition],
    lease: Lease,
    calls: FencedCalls,
    now: datetime,
) -> Iterator[date | Problem]:
    """Removes expired partitions from the catalog, a hundred at once. Yields their days, and a problem for each other
    one.

    A death after the publisher's call leaves days on record without a location; the next run removes them again.
    """
    for start in range(0, len(gone), _AT_ONCE):
        part = gone[start : start + _AT_ONCE]
        failed = context.publisher.withdraw(table, [item.date for item in part], calls)
        failpoint("catalog.after_withdraw")
        done = [item for item in part if item.date not in failed]
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            for partition_id in sorted(partitions.lock_partitions(connection, [item.partition_id for item in done])):
                publications.withdraw(connection, partition_id, context.publisher.name, now)
            failpoint("catalog.in_withdraw")
        yield from (item.date for item in done)
        for day, error in sorted(failed.items()):
            yield Problem.of(error, str(table.name), day)


def _load_contents(
    context: StageContext, table: TableDefinition, wanted: Sequence[Partition]
) -> tuple[dict[date, PartitionContent], dict[date, date]]:
    """Returns the contents of the first hundred partitions that may be shown, and the awaited day of each other one."""
    if table.join is None:
        return _load_snapshot(context, table, wanted[:_AT_ONCE]), {}
    keys, publisher = context.lake.keys(table), context.publisher.name
    with context.database.repeatable_read() as connection:  # so that a moving record is in at least one of its days
        pending = partitions.load_pending(connection, [table.table_id], publisher)
        shown = publications.as_shown_by(connection, publisher, pending)
        due = {item.partition_id: item for item in shown if publication_due(item)}
        moves = record_moves.load_between(connection, due)
        found = partitions.load_partitions(connection, [item.partition_id for item in wanted])
        there = publications.as_shown_by(connection, publisher, [found[item.partition_id] for item in wanted])
        awaited = {item.date: day for item in there if (day := awaited_day(item, due, moves))}
        ready = [item for item in there if item.date not in awaited][:_AT_ONCE]
        return load_contents(connection, keys, {item: wanted_publication(item) for item in ready}), awaited


def _load_snapshot(
    context: StageContext, table: TableDefinition, wanted: Sequence[Partition]
) -> dict[date, PartitionContent]:
    """Reads the current contents of partitions at one moment. No commit waits for the load of a large day."""
    with context.database.repeatable_read() as connection:
        found = partitions.load_partitions(connection, [item.partition_id for item in wanted])
        days = [found[item.partition_id] for item in wanted]
        return load_contents(connection, context.lake.keys(table), {day: wanted_publication(day) for day in days})


def _record(
    context: StageContext,
    table: TableDefinition,
    shown: Mapping[Partition, PartitionContent],
    lease: Lease,
    now: datetime,
) -> None:
    """Records the publications, in id order like all others who lock these rows."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        locked = partitions.lock_partitions(connection, [item.partition_id for item in shown])
        name = context.publisher.name
        for item in shown:
            publication = shown[item].publication
            dirty = wanted_publication(locked[item.partition_id]) != publication
            if not publications.advance(connection, item.partition_id, name, publication, now, dirty=dirty):
                raise LeaseLost(f"{table.name} {item.date} was published by a newer run meanwhile; repeat")
        failpoint("catalog.in_record")


def _published(
    context: StageContext, table: TableDefinition, plan: PublicationPlan, content: PartitionContent
) -> PublishedPartition:
    day, before = plan.partition.date, plan.step.before
    return PublishedPartition(
        date=day,
        location=context.publisher.location(table, day, content.publication),
        location_before=None if before is None else context.publisher.location(table, day, before),
        before=before,
        after=content.publication,
        objects=len(content.files),
        rows=content.row_count,
        bytes=content.content_length,
        examples=smallest_urls(content.files),
    )

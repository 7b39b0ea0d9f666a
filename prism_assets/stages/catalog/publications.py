"""Publishing: what a partition holds, the publisher, and only then the record of what it shows, upwards only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files import PartitionContent, smallest_urls
from prism_assets.domain.lifecycle import Publish, publication_due
from prism_assets.domain.partitions import Partition, Publication, current_publication, wanted_publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, partitions, publications
from prism_assets.metadata.leases import Lease
from prism_assets.stages.catalog.calls import NotedCalls
from prism_assets.stages.catalog.content import load_content
from prism_assets.stages.context import StageContext

_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class PublicationPlan:
    """A partition that is to be published, and how."""

    partition: Partition
    step: Publish


@dataclass(frozen=True, kw_only=True)
class PublishedPartition:
    """A partition whose location in the catalog was set and read back, and where it was before, if anywhere.

    `before` and `after` are what readers could read before and can read now, `examples` addresses of its smallest
    objects.
    """

    date: date
    location: str
    location_before: str | None
    before: Publication | None
    after: Publication
    objects: int
    rows: int
    bytes: int
    examples: tuple[str, ...] = ()


def plan_publications(found: Sequence[Partition], also: Collection[date] = frozenset()) -> list[PublicationPlan]:
    """The partitions whose publication is due, and those of the given days, as they are recorded."""
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
    calls: NotedCalls,
    now: datetime,
) -> Iterator[PublishedPartition | Problem]:
    """Publishes partitions, a hundred at once; yields those published, and what is wrong with those that are not.

    A death behind the publisher leaves a record that lags: the next run publishes the same again. The order of versions
    is kept by the lease and by the upward-only record.
    """
    for start in range(0, len(plans), _AT_ONCE):
        part = plans[start : start + _AT_ONCE]
        contents = {plan.partition.date: _load_content(context, table, plan.partition) for plan in part}
        failed = context.publisher.publish(table, contents, calls)
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
    calls: NotedCalls,
    now: datetime,
) -> Iterator[date | Problem]:
    """Takes expired partitions out of the catalog, a hundred at once; yields their days, and what is wrong with others.

    A death behind the publisher leaves a record of days that are not there: the next run takes them out again.
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


def _load_content(context: StageContext, table: TableDefinition, partition: Partition) -> PartitionContent:
    """What the partition consists of now, read under the lock of its row."""
    with context.database.begin() as connection:
        locked = partitions.lock_partition(connection, partition.partition_id)
        return load_content(connection, context.lake.keys(table), locked, wanted_publication(locked))


def _record(
    context: StageContext,
    table: TableDefinition,
    shown: Mapping[Partition, PartitionContent],
    lease: Lease,
    now: datetime,
) -> None:
    """Records what the catalog shows, in id order as all others lock these rows."""
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

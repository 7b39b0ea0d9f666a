"""Publishing: what a partition holds, the publisher, and only then the record of what it shows, upwards only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files import PartitionContent
from prism_assets.domain.lifecycle import Publish, publication_due
from prism_assets.domain.partitions import Partition, Publication, current_publication, wanted_publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import catalog_notes, leases, partitions, publications
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext
from prism_assets.stages.publish.content import load_content

_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class PublicationPlan:
    """A partition that is to be published, and how."""

    partition: Partition
    step: Publish


@dataclass(frozen=True, kw_only=True)
class PublishedPartition:
    """A partition whose location in the catalog was set and read back, and where it was before, if anywhere.

    `before` and `after` are what readers could read before and can read now.
    """

    date: date
    location: str
    location_before: str | None
    before: Publication | None
    after: Publication
    objects: int
    rows: int
    bytes: int


class WatchedCalls:
    """Calls to the catalog by the holder of a table's lease, noted before and after.

    The lease is renewed right before each call, so that nobody takes it over while the call begins. A death or a lost
    answer leaves the note with the time until which the call may land; a death before or after it, with one long over.
    A process that stood still before its call for longer than that finds its note taken back, and notes the call anew
    when it has made it: nobody was prepared for it.
    """

    def __init__(self, context: StageContext, lease: Lease, note_id: int) -> None:
        self._context = context
        self._lease = lease
        self._note_id = note_id
        self._is_open = False
        self._was_lost = False

    def begin(self) -> None:
        """Raises LeaseLost if another run has the table now."""
        self._was_lost |= self._is_open
        self._is_open = False
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            self._note_call(connection)
        self._is_open = True
        failpoint("catalog.before_call")

    def answered(self) -> None:
        """Nothing is on its way any more, unless an earlier call was never answered."""
        failpoint("catalog.after_call")
        self._is_open = False
        if not self._was_lost:
            with self._context.database.begin() as connection:
                catalog_notes.end_calls(connection, self._present_note(connection))

    def break_off(self) -> None:
        """Called when the run ends with an error: a call that was never answered may land from now on."""
        if self._is_open or self._was_lost:
            with self._context.database.begin() as connection:
                self._note_call(connection)

    def _note_call(self, connection: Connection) -> None:
        note_id = self._present_note(connection)
        catalog_notes.begin_call(connection, note_id, self._context.publisher.longest_call_seconds)

    def _present_note(self, connection: Connection) -> int:
        """The note of this run, made anew if another run took it back."""
        if not catalog_notes.lock_note(connection, self._note_id):
            self._note_id = catalog_notes.begin_publication(connection, self._lease, self._context.worker)
        return self._note_id


def plan_publications(found: Sequence[Partition], also: Collection[date] = frozenset()) -> list[PublicationPlan]:
    """The partitions whose publication is due, and those of the given days, as they are recorded."""
    plans = []
    for item in found:
        step = publication_due(item)
        if step is None and item.date in also:
            step = Publish(before=current_publication(item), wanted=wanted_publication(item))
        if step:
            plans.append(PublicationPlan(partition=item, step=step))
    return plans


def publish(
    context: StageContext,
    table: TableDefinition,
    plans: Sequence[PublicationPlan],
    lease: Lease,
    calls: WatchedCalls,
    now: datetime,
) -> Iterator[PublishedPartition | Problem]:
    """Publishes partitions, a hundred at once; yields those published, and what is wrong with those that are not.

    A death behind the publisher leaves a record that lags: the next run publishes the same again. The order of versions
    is kept by the lease and by the upward-only record.
    """
    for start in range(0, len(plans), _AT_ONCE):
        part = plans[start : start + _AT_ONCE]
        contents = {plan.partition.date: _load_content(context, table, plan.partition) for plan in part}
        refused = context.publisher.publish(table, contents, calls)
        failpoint("catalog.after_publish")
        shown = [plan for plan in part if plan.partition.date not in refused]
        if shown:
            _record(context, table, {plan.partition: contents[plan.partition.date] for plan in shown}, lease, now)
            failpoint("catalog.after_advance")
        for plan in shown:
            yield _published(context, table, plan, contents[plan.partition.date])
        for day, error in sorted(refused.items()):
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
    )

"""Publishing: manifest, verification, catalog, reading back, and only then the record of it, upwards only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import InvariantBroken, LeaseLost, ObjectMissing
from prism_assets.domain.files import PartitionContent
from prism_assets.domain.lifecycle import Publish, publication_due
from prism_assets.domain.partitions import Partition, Publication, current_publication, wanted_publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, partitions, publications
from prism_assets.metadata.leases import Lease
from prism_assets.objectstore.manifests import write_manifest
from prism_assets.stages.context import StageContext
from prism_assets.stages.publish.content import load_content, location_of, manifest_key

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


@dataclass(frozen=True)
class _Wanted:
    """What a partition is to show, and where."""

    publication: Publication
    location: str
    manifest_key: str | None
    content: PartitionContent


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
                publications.end_calls(connection, self._present_note(connection))

    def break_off(self) -> None:
        """Called when the run ends with an error: a call that was never answered may land from now on."""
        if self._is_open or self._was_lost:
            with self._context.database.begin() as connection:
                self._note_call(connection)

    def _note_call(self, connection: Connection) -> None:
        note_id = self._present_note(connection)
        publications.begin_call(connection, note_id, self._context.catalog.longest_call_seconds)

    def _present_note(self, connection: Connection) -> int:
        """The note of this run, made anew if another run took it back."""
        if not publications.lock_note(connection, self._note_id):
            self._note_id = publications.begin_publication(connection, self._lease, self._context.worker)
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

    A death behind the manifest leaves a key that nothing names, behind the catalog's update a record that lags:
    the next run publishes the same again. The order of versions is kept by the lease and by the upward-only record.
    """
    before = {plan.partition.partition_id: plan.step.before for plan in plans}
    for start in range(0, len(plans), _AT_ONCE):
        problems: list[Problem] = []
        written = dict(_written(context, table, plans[start : start + _AT_ONCE], problems))
        yield from problems
        failpoint("catalog.after_manifest")
        if not written:
            continue
        locations = {item.date: wanted.location for item, wanted in written.items()}
        refused = context.catalog.publish(table, locations, calls)
        failpoint("catalog.after_publish")
        shown = {item: wanted for item, wanted in written.items() if item.date not in refused}
        _record(context, table, shown, lease, now)
        failpoint("catalog.after_advance")
        for item, wanted in shown.items():
            yield _published(context, table, item.date, before[item.partition_id], wanted)
        for day, error in sorted(refused.items()):
            yield Problem.of(error, str(table.name), day)


def _written(
    context: StageContext, table: TableDefinition, plans: Sequence[PublicationPlan], problems: list[Problem]
) -> Iterator[tuple[Partition, _Wanted]]:
    """Writes the manifests. One partition with a damaged object does not keep the others from their readers."""
    for plan in plans:
        try:
            wanted = _wanted(context, table, plan)
            failpoint("catalog.before_manifest")
            _write_verified(context, table, wanted)
        except (InvariantBroken, ObjectMissing) as error:
            problems.append(Problem.of(error, str(table.name), plan.partition.date))
            continue
        yield plan.partition, wanted


def _record(
    context: StageContext,
    table: TableDefinition,
    shown: Mapping[Partition, _Wanted],
    lease: Lease,
    now: datetime,
) -> None:
    """Records what the catalog shows, in id order as all others lock these rows."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        for item in sorted(shown, key=lambda item: item.partition_id):
            if not partitions.advance_published(connection, item.partition_id, shown[item].publication, now):
                raise LeaseLost(f"{table.name} {item.date} was published by a newer run meanwhile; repeat")
        failpoint("catalog.in_record")


def _published(
    context: StageContext, table: TableDefinition, day: date, before: Publication | None, wanted: _Wanted
) -> PublishedPartition:
    return PublishedPartition(
        date=day,
        location=wanted.location,
        location_before=None if before is None else location_of(context.lake, table, day, before),
        before=before,
        after=wanted.publication,
        objects=len(wanted.content.files),
        rows=wanted.content.row_count,
        bytes=wanted.content.content_length,
    )


def _wanted(context: StageContext, table: TableDefinition, plan: PublicationPlan) -> _Wanted:
    """What the partition consists of now, read under the lock of its row."""
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        partition = partitions.lock_partition(connection, plan.partition.partition_id)
        publication = wanted_publication(partition)
        content = load_content(connection, keys, partition, publication)
    return _Wanted(
        publication=publication,
        location=location_of(context.lake, table, partition.date, publication),
        manifest_key=manifest_key(keys, partition.date, publication),
        content=content,
    )


def _write_verified(context: StageContext, table: TableDefinition, wanted: _Wanted) -> None:
    """Writes the manifest after every object it names was seen with the length it names. Its key is never reused
    for other content: the version, the last object id and the revision in it decide the content.
    """
    if wanted.manifest_key is None:
        return
    files = wanted.content.files
    found = dict(_listed(context, {_folder(file.url) for file in files}))
    for file in files:
        length = found.get(file.url)
        if length != file.content_length:
            state = "is missing" if length is None else f"has {length} bytes"
            raise InvariantBroken(f"{file.url} {state}, not {file.content_length} bytes; {table.name} is not published")
    context.stores.put(context.lake.bucket, wanted.manifest_key, write_manifest(files))


def _folder(url: str) -> str:
    return url.rsplit("/", 1)[0] + "/"


def _listed(context: StageContext, folders: set[str]) -> Iterator[tuple[str, int]]:
    for folder in sorted(folders):
        prefix = folder.removeprefix(context.lake.url(""))
        for item in context.stores.list(context.lake.bucket, prefix):
            yield context.lake.url(item.key), item.content_length

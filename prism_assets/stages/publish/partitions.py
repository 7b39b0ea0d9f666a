"""Publishing: manifest, verification, catalog, reading back, and only then the record of it, upwards only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import InvariantBroken, LeaseLost, ObjectMissing
from prism_assets.domain.lifecycle import Publish, publication_due
from prism_assets.domain.partitions import Partition, Publication, current_publication, wanted_publication
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, merge_ranges, partitions, publications, small_objects
from prism_assets.metadata.leases import Lease
from prism_assets.objectstore.keys import TableKeys
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.manifests import ManifestEntry, write_manifest
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
class _Content:
    publication: Publication
    location: str
    manifest_key: str | None
    entries: tuple[ManifestEntry, ...]
    rows: int


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
        contents = dict(_written(context, table, plans[start : start + _AT_ONCE], problems))
        yield from problems
        failpoint("catalog.after_manifest")
        if not contents:
            continue
        locations = {item.date: content.location for item, content in contents.items()}
        refused = context.catalog.publish(table, locations, calls)
        failpoint("catalog.after_publish")
        shown = {item: content for item, content in contents.items() if item.date not in refused}
        _record(context, table, shown, lease, now)
        failpoint("catalog.after_advance")
        for item, content in shown.items():
            yield _published(context, table, item.date, before[item.partition_id], content)
        for day, error in sorted(refused.items()):
            yield Problem.of(error, str(table.name), day)


def _written(
    context: StageContext, table: TableDefinition, plans: Sequence[PublicationPlan], problems: list[Problem]
) -> Iterator[tuple[Partition, _Content]]:
    """Writes the manifests. One partition with a damaged object does not keep the others from their readers."""
    for plan in plans:
        try:
            content = _content(context, table, plan)
            failpoint("catalog.before_manifest")
            _write_verified(context, table, content)
        except (InvariantBroken, ObjectMissing) as error:
            problems.append(Problem.of(error, str(table.name), plan.partition.date))
            continue
        yield plan.partition, content


def _record(
    context: StageContext,
    table: TableDefinition,
    contents: Mapping[Partition, _Content],
    lease: Lease,
    now: datetime,
) -> None:
    """Records what the catalog shows, in id order as all others lock these rows."""
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        for item in sorted(contents, key=lambda item: item.partition_id):
            if not partitions.advance_published(connection, item.partition_id, contents[item].publication, now):
                raise LeaseLost(f"{table.name} {item.date} was published by a newer run meanwhile; repeat")
        failpoint("catalog.in_record")


def _published(
    context: StageContext, table: TableDefinition, day: date, before: Publication | None, content: _Content
) -> PublishedPartition:
    return PublishedPartition(
        date=day,
        location=content.location,
        location_before=None if before is None else location_of(context.lake, table, day, before),
        before=before,
        after=content.publication,
        objects=len(content.entries),
        rows=content.rows,
        bytes=sum(entry.content_length for entry in content.entries),
    )


def location_of(lake: Lake, table: TableDefinition, day: date, publication: Publication) -> str:
    """Where the catalog must send readers of a partition for a publication: the live prefix, or the manifest."""
    keys = lake.keys(table)
    manifest = _manifest_key(keys, day, publication)
    return lake.url(manifest or keys.live_prefix(day))


def _manifest_key(keys: TableKeys, day: date, publication: Publication) -> str | None:
    if publication.is_live_prefix:
        return None
    return keys.manifest(day, publication.version, publication.published_object_id, publication.revision)


def _content(context: StageContext, table: TableDefinition, plan: PublicationPlan) -> _Content:
    """What the partition consists of now: its ranges, then the small objects above them.

    Read under the lock of its row, which commits of Stream and Merge take too: ranges and small objects agree.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        partition = partitions.lock_partition(connection, plan.partition.partition_id)
        wanted = wanted_publication(partition)
        chain = merge_ranges.load_chain(connection, partition.partition_id) if partition.switched else []
        small = small_objects.load_above(connection, partition.partition_id, wanted.version, None)
    entries = [
        ManifestEntry(
            context.lake.url(keys.merged_object(partition.date, r.lower_bound, r.upper_bound)),
            r.content_length,
        )
        for r in chain
    ] + [
        ManifestEntry(
            context.lake.url(
                keys.small_object(
                    partition.date, item.staging_object_id, delayed=item.delayed, generation=item.generation
                )
            ),
            item.content_length,
        )
        for item in small
    ]
    return _Content(
        publication=wanted,
        location=location_of(context.lake, table, partition.date, wanted),
        manifest_key=_manifest_key(keys, partition.date, wanted),
        entries=tuple(entries),
        rows=sum(r.row_count for r in chain) + sum(item.row_count for item in small),
    )


def _write_verified(context: StageContext, table: TableDefinition, content: _Content) -> None:
    """Writes the manifest after every object it names was seen with the length it names. Its key is never reused
    for other content: the version, the last object id and the revision in it decide the content.
    """
    if content.manifest_key is None:
        return
    found = dict(_listed(context, {_folder(entry.url) for entry in content.entries}))
    for entry in content.entries:
        length = found.get(entry.url)
        if length != entry.content_length:
            state = "is missing" if length is None else f"has {length} bytes"
            raise InvariantBroken(
                f"{entry.url} {state}, not {entry.content_length} bytes; {table.name} is not published"
            )
    context.stores.put(context.lake.bucket, content.manifest_key, write_manifest(content.entries))


def _folder(url: str) -> str:
    return url.rsplit("/", 1)[0] + "/"


def _listed(context: StageContext, folders: set[str]) -> Iterator[tuple[str, int]]:
    for folder in sorted(folders):
        prefix = folder.removeprefix(context.lake.url(""))
        for item in context.stores.list(context.lake.bucket, prefix):
            yield context.lake.url(item.key), item.content_length

"""Plans a repair: the small objects of a partition that contradict a listing, and their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, needed_above
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.files.garbage import upload_of
from prism_assets.domain.files.keys import SmallObjectKey, TableKeys
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.domain.work.repair import RepairTask
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.intake import claims
from prism_assets.metadata.intake.claims import ClaimedObject
from prism_assets.metadata.records import folds
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.source_tasks import SourceTasks

MISSING = "is missing"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A small object to examine. `fault` contradicts the listing; it is None if only reading can find a fault."""

    known: SmallObject
    fault: str | None

    @property
    def key(self) -> str:
        """The key of the object."""
        return self.known.key

    @property
    def start(self) -> tuple[int, int, int]:
        """Its staging object, the generation of this object, and the definition version."""
        return self.known.staging_object_id, self.known.generation, self.known.definition_version


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """The suspects of one partition."""

    table: TableDefinition
    partition: Partition
    checked: int
    """The number of objects that readers or merges need."""
    suspects: tuple[Suspect, ...]
    strays: tuple[str, ...] = ()
    """Keys in the live prefix that no batch has committed or will commit."""

    def is_in_place(self, known: SmallObject) -> bool:
        """Whether a repair writes an object under its own key.

        Readers list the live prefix of an open day, and would read the rows of a second object there twice.
        """
        return self.partition.is_open and not known.delayed and not known.rewrite_id


def plan_repair(context: StageContext, table: TableDefinition, found: Partition, *, deep: bool) -> RepairPlan:
    """Plans one partition.

    Reads the records first and lists afterwards, so that a later commit does not seem to be missing.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        partition = partitions.load_partitions(connection, [found.partition_id])[found.partition_id]
        known = load_needed(connection, keys, table, partition)
    listing = list_day(context, keys, partition, known)
    return RepairPlan(
        table=table,
        partition=partition,
        checked=len(known),
        suspects=find_suspects(known, listing.lengths, deep=deep),
        strays=_find_strays(context, keys, partition, listing.unknown) if partition.is_open else (),
    )


def load_needed(
    connection: Connection, keys: TableKeys, table: TableDefinition, partition: Partition
) -> list[SmallObject]:
    """Returns the small objects of a partition needed by readers, merges or folds. Reads without locks."""
    above = needed_above(partition, publications.oldest_version(connection, partition))
    if table.change_log is not None:
        folded = folds.load_positions(connection, [partition.partition_id])
        above = min(above, folded.get(partition.partition_id, 0))
    return small_objects.load_above(connection, keys, partition.partition_id, above)


@dataclass(frozen=True, kw_only=True)
class DayListing:
    """The lengths of objects in a day's folders, by key. `unknown` keys are live ones without a record."""

    lengths: Mapping[str, int]
    unknown: tuple[str, ...]


def list_day(
    context: StageContext, keys: TableKeys, partition: Partition, recorded: Sequence[SmallObject]
) -> DayListing:
    """Lists the live prefix of a day, and the folders of its recorded small objects."""
    live = keys.live_prefix(partition.date)
    own = {item.key for item in recorded}
    lengths = {
        item.key: item.content_length
        for folder in {live, *(key.rpartition("/")[0] + "/" for key in own)}
        for item in context.stores.list(context.lake.bucket, folder)
    }
    return DayListing(
        lengths=lengths, unknown=tuple(sorted(key for key in lengths.keys() - own if key.startswith(live)))
    )


def _find_strays(
    context: StageContext, keys: TableKeys, partition: Partition, unknown: Sequence[str]
) -> tuple[str, ...]:
    """Returns the keys written by a task that outlived its driver, for a start that is over.

    Call it after the listing, so that objects committed meanwhile are not strays. Uploads that a batch may still
    commit, and foreign keys, are not strays either.
    """
    uploads = {key: upload_of(named) for key in unknown if isinstance(named := keys.parse(key), SmallObjectKey)}
    with context.database.begin() as connection:
        records = small_objects.trace_uploads(connection, partition.table_id, set(uploads.values()))
    return tuple(key for key, upload in uploads.items() if records[upload].is_stray)


def find_suspects(recorded: Iterable[SmallObject], listed: Mapping[str, int], *, deep: bool) -> tuple[Suspect, ...]:
    """Returns the recorded objects that contradict a listing {key: length}. With `deep`, returns all."""
    found = [Suspect(known=known, fault=_fault(known, listed.get(known.key))) for known in recorded]
    return tuple(suspect for suspect in found if suspect.fault or deep)


def _fault(known: SmallObject, length: int | None) -> str | None:
    if length is None:
        return MISSING
    return None if length == known.content_length else f"has {length} bytes, not {known.content_length}"


def repair_chunks(
    context: StageContext, plans: Sequence[RepairPlan], *, look_only: bool
) -> Iterator[tuple[RepairTask, ...]]:
    """Yields tasks for the suspects in parts the size of a batch of Stream.

    One task covers all days of a staging object.

    Days rebuilt under another definition get a separate task. A part has at least one task.
    """
    recorded = _recorded(plans)
    size = context.batch_size
    starts, most = sorted(recorded), size.objects
    for first in range(0, len(starts), most):
        part = {start: recorded[start] for start in starts[first : first + most]}
        with context.database.begin() as connection:
            items = claims.load_claimed(connection, {number for number, *_ in part})
            rules = erasures.load_rules(connection, {plan.table.table_id for plan in plans})
            versions: dict[int, set[int]] = {}
            for number, _, version in part:
                versions.setdefault(number, set()).add(version)
            sources = SourceTasks.load(connection, items.values(), versions)
        tasks = [
            RepairTask(
                source=source_of(sources, items[number], known, rules.get(items[number].table_id, ())),
                recorded=tuple(known),
                look_only=look_only,
            )
            for (number, *_), known in part.items()
        ]
        yield from _within(tasks, size.bytes)


def _recorded(plans: Sequence[RepairPlan]) -> dict[tuple[int, int, int], list[SmallObject]]:
    """Returns the suspects by staging object, generation and definition."""
    recorded: dict[tuple[int, int, int], list[SmallObject]] = {}
    for plan in plans:
        for suspect in plan.suspects:
            recorded.setdefault(suspect.start, []).append(suspect.known)
    return recorded


def _within(tasks: Sequence[RepairTask], most_bytes: int) -> Iterator[tuple[RepairTask, ...]]:
    part, size = list[RepairTask](), 0
    for task in tasks:
        if part and size + task.source.content_length > most_bytes:
            yield tuple(part)
            part, size = [], 0
        part.append(task)
        size += task.source.content_length
    if part:
        yield tuple(part)


def source_of(
    sources: SourceTasks, item: ClaimedObject, recorded: Sequence[SmallObject], rules: Sequence[ErasureRule]
) -> ConvertTask:
    """Returns the task of the staging object's first conversion. Tiers are those on record, whatever is marked since.

    For each day the rules up to its recorded erasure apply: a day that waits for an erasure still has the rows.
    """
    delayed = frozenset(entry.date for entry in recorded if entry.delayed)
    return replace(
        sources.task(item, delayed, recorded[0].definition_version),
        generation=recorded[0].generation,
        erasures=tuple(rules),
        erased_up_to={entry.date: entry.erasure_id for entry in recorded},
    )

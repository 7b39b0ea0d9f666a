"""What a repair has to look at: the small objects of a partition that a listing contradicts, and the tasks for them."""

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
    """A small object to be looked at. `fault` is what the listing says against it; None where only reading can tell."""

    known: SmallObject
    fault: str | None

    @property
    def key(self) -> str:
        """Where it lies."""
        return self.known.key

    @property
    def start(self) -> tuple[int, int, int]:
        """The staging object that it comes from, which start of it, and under which definition."""
        return self.known.staging_object_id, self.known.generation, self.known.definition_version


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """What is to be looked at in one partition, out of `checked` objects that readers or merges need.

    `strays` are keys that readers of the live prefix see and that nothing will ever commit.
    """

    table: TableDefinition
    partition: Partition
    checked: int
    suspects: tuple[Suspect, ...]
    strays: tuple[str, ...] = ()

    def is_in_place(self, known: SmallObject) -> bool:
        """Whether a repair keeps the key of an object: readers list it, and find every other object beside it."""
        return self.partition.is_open and not known.delayed and not known.rewrite_id


def plan_repair(context: StageContext, table: TableDefinition, found: Partition, *, deep: bool) -> RepairPlan:
    """Reads what is recorded first and lists afterwards: what is committed meanwhile is not taken for missing."""
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
    """The small objects of a partition that readers or merges need, or folds. Reads without locks."""
    above = needed_above(partition, publications.oldest_version(connection, partition))
    if table.change_log is not None:
        folded = folds.load_positions(connection, [partition.partition_id])
        above = min(above, folded.get(partition.partition_id, 0))
    return small_objects.load_above(connection, keys, partition.partition_id, above)


@dataclass(frozen=True, kw_only=True)
class DayListing:
    """What lies in the folders of a day: lengths by key. `unknown` keys are live ones that are on no record."""

    lengths: Mapping[str, int]
    unknown: tuple[str, ...]


def list_day(
    context: StageContext, keys: TableKeys, partition: Partition, recorded: Sequence[SmallObject]
) -> DayListing:
    """Lists where readers of a day look as long as it is open, and where its recorded small objects are."""
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
    """Those of the keys that are of a start of an object that is over: a task outlived its driver and wrote them.

    Asked after the listing, so that what a batch has committed meanwhile is none. What a batch may still commit is
    none either, nor is a key that was never one of ours.
    """
    uploads = {key: upload_of(named) for key in unknown if isinstance(named := keys.parse(key), SmallObjectKey)}
    with context.database.begin() as connection:
        records = small_objects.trace_uploads(connection, partition.table_id, set(uploads.values()))
    return tuple(key for key, upload in uploads.items() if records[upload].is_stray)


def find_suspects(recorded: Iterable[SmallObject], listed: Mapping[str, int], *, deep: bool) -> tuple[Suspect, ...]:
    """The recorded objects that a listing {key: length} contradicts; with `deep`, all."""
    found = [Suspect(known=known, fault=_fault(known, listed.get(known.key))) for known in recorded]
    return tuple(suspect for suspect in found if suspect.fault or deep)


def _fault(known: SmallObject, length: int | None) -> str | None:
    if length is None:
        return MISSING
    return None if length == known.content_length else f"has {length} bytes, not {known.content_length}"


def repair_chunks(
    context: StageContext, plans: Sequence[RepairPlan], *, look_only: bool
) -> Iterator[tuple[RepairTask, ...]]:
    """The suspects as tasks, in parts as big as a batch of Stream: one for all days of a start of a staging object.

    Days that were rebuilt under another definition are a task of their own. A part has at most `stream_max_objects`
    tasks and `stream_max_bytes` bytes of staging objects, and always one.
    """
    recorded = _recorded(plans)
    starts, most = sorted(recorded), context.settings.stream_max_objects
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
        yield from _within(tasks, context.settings.stream_max_bytes)


def _recorded(plans: Sequence[RepairPlan]) -> dict[tuple[int, int, int], list[SmallObject]]:
    """The suspects by staging object, generation and definition."""
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
    """The staging object as it was converted. Its tiers are those on record, whatever is marked by now.

    Rows are left out of each day as they were by then: a day that waits for an erasure has them.
    """
    delayed = frozenset(entry.date for entry in recorded if entry.delayed)
    return replace(
        sources.task(item, delayed, recorded[0].definition_version),
        generation=recorded[0].generation,
        erasures=tuple(rules),
        erased_up_to={entry.date: entry.erasure_id for entry in recorded},
    )

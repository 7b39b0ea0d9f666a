"""Repair: small objects that readers or merges need, and that are missing or damaged in S3, are converted again.

What is recorded in PostgreSQL is compared with a listing; a deep repair also reads every object. Rows are never
changed: an object is written again only if its staging object still gives exactly the rows that were committed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.partitions import Partition, needed_above
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import ConvertTask, Failure, RecordedObject, RepairedObject, RepairResult, RepairTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import locks, partitions, small_objects, staging_objects, tables
from prism_assets.metadata.small_objects import KnownSmallObject
from prism_assets.stages.context import StageContext
from prism_assets.stages.halving import Halving

_PARTITIONS_AT_ONCE = 100
_LISTINGS = 8
_MISSING = "is missing"

Results = Mapping[int, RepairResult]
"""Results by staging object id."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A small object to be looked at. `fault` is what the listing says against it; None where only reading can tell."""

    known: KnownSmallObject
    key: str
    fault: str | None


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """What is to be looked at in one partition, out of `checked` objects that readers or merges need."""

    table: TableDefinition
    partition: Partition
    checked: int
    suspects: tuple[Suspect, ...]


@dataclass(frozen=True, kw_only=True)
class IrreparableObject:
    """A small object that is still not sound, and why. `transient` if the same call may succeed later."""

    table: str
    date: date
    key: str
    reason: str
    transient: bool


@dataclass(frozen=True, kw_only=True)
class PartitionRepair:
    """What was found in one partition. `skipped` if another repair is at it."""

    table: str
    table_id: int
    date: date
    checked: int = 0
    missing: int = 0
    damaged: int = 0
    repaired: int = 0
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a repair found and did; `partitions` are those where something was wrong, or that were skipped."""

    checked: int
    missing: int
    damaged: int
    repaired: int
    partitions: tuple[PartitionRepair, ...]
    irreparable: tuple[IrreparableObject, ...]
    seconds: float

    @property
    def errors(self) -> tuple[str, ...]:
        """What is still wrong, one sentence an object."""
        return tuple(f"{item.table} {item.date}: {item.key} {item.reason}" for item in self.irreparable)


def run_repair(
    context: StageContext,
    *,
    names: Collection[str] | None = None,
    day: date | None = None,
    deep: bool = False,
    dry_run: bool = False,
) -> RepairReport:
    """Repairs the small objects of the tables named, of one event date or of all.

    With `deep` every object is read, not only listed. A dry run writes nothing. Repeating it does nothing more.
    """
    started = time.monotonic()
    chosen = {table.table_id: table for table in context.choose_tables(names)}
    context.stores.check_bucket(context.lake.bucket)
    with context.database.begin() as connection:
        found = partitions.load_needed(connection, list(chosen), day)
    done: list[PartitionRepair] = []
    left: list[IrreparableObject] = []
    for start in range(0, len(found), _PARTITIONS_AT_ONCE):
        part = found[start : start + _PARTITIONS_AT_ONCE]
        for repaired, irreparable in _repair_part(context, chosen, part, deep=deep, dry_run=dry_run):
            done.append(repaired)
            left += irreparable
        context.progress(f"repair: {sum(item.checked for item in done)} objects checked")
    return _report(done, left, time.monotonic() - started)


def _report(done: Sequence[PartitionRepair], left: Sequence[IrreparableObject], seconds: float) -> RepairReport:
    return RepairReport(
        checked=sum(item.checked for item in done),
        missing=sum(item.missing for item in done),
        damaged=sum(item.damaged for item in done),
        repaired=sum(item.repaired for item in done),
        partitions=tuple(item for item in done if item.missing or item.damaged or item.repaired or item.skipped),
        irreparable=tuple(left),
        seconds=seconds,
    )


def _repair_part(
    context: StageContext,
    chosen: Mapping[int, TableDefinition],
    part: Sequence[Partition],
    *,
    deep: bool,
    dry_run: bool,
) -> Iterator[tuple[PartitionRepair, list[IrreparableObject]]]:
    """Plans, looks and converts as one job, and commits partition by partition, all under the locks of repair."""
    ids = [partition.partition_id for partition in part]
    locked = nullcontext(frozenset(ids)) if dry_run else locks.repair_locks(context.database, ids)
    with locked as taken:
        plans = _plans(context, chosen, [item for item in part if item.partition_id in taken], deep=deep)
        failpoint("repair.after_plan")
        results = _results(context, plans, look_only=dry_run) if deep or not dry_run else {}
        for plan in plans:
            if not dry_run:
                _commit(context, plan, results)
            yield _outcome(plan, results, dry_run=dry_run)
    for item in part:
        if item.partition_id not in taken:
            name = str(chosen[item.table_id].name)
            yield PartitionRepair(table=name, table_id=item.table_id, date=item.date, skipped=True), []


def _plans(
    context: StageContext, chosen: Mapping[int, TableDefinition], part: Sequence[Partition], *, deep: bool
) -> list[RepairPlan]:
    """The plans of partitions, a few listed at once: a day of hundreds of tables is hundreds of listings."""
    with ThreadPoolExecutor(_LISTINGS) as pool:
        return list(pool.map(lambda item: _plan(context, chosen[item.table_id], item, deep=deep), part))


def _plan(context: StageContext, table: TableDefinition, found: Partition, *, deep: bool) -> RepairPlan:
    """Reads what is recorded first and lists afterwards: what is committed meanwhile is not taken for missing."""
    with context.database.begin() as connection:
        partition = partitions.load_partitions(connection, [found.partition_id])[found.partition_id]
        known = small_objects.load_above(connection, partition.partition_id, needed_above(partition), None)
    keys = context.lake.keys(table)
    folder = {True: keys.delayed_prefix(partition.date), False: keys.live_prefix(partition.date)}
    listed = {
        item.key: item.content_length
        for delayed in {item.delayed for item in known}
        for item in context.stores.list(context.lake.bucket, folder[delayed])
    }
    named = [(item, keys.small_object(partition.date, item.staging_object_id, delayed=item.delayed)) for item in known]
    suspects = find_suspects(named, listed, deep=deep)
    return RepairPlan(table=table, partition=partition, checked=len(known), suspects=suspects)


def find_suspects(
    named: Sequence[tuple[KnownSmallObject, str]], listed: Mapping[str, int], *, deep: bool
) -> tuple[Suspect, ...]:
    """The recorded objects, given with their keys, that a listing {key: length} contradicts; with `deep`, all."""
    suspects = []
    for known, key in named:
        length = listed.get(key)
        fault = None
        if length is None:
            fault = _MISSING
        elif length != known.content_length:
            fault = f"has {length} bytes, not {known.content_length}"
        if fault or deep:
            suspects.append(Suspect(known=known, key=key, fault=fault))
    return tuple(suspects)


def _results(context: StageContext, plans: Sequence[RepairPlan], *, look_only: bool) -> Results:
    """Looks at the suspects of all partitions as one job; a staging object that kills it ends up alone.

    The engine writes a key only after it found the rows equal: a death in the job leaves some objects repaired.
    """
    tasks = _tasks(context, plans, look_only=look_only)
    if not tasks:
        return {}
    with context.database.begin() as connection:
        wanted = {(task.table_id, task.definition_version) for task in tasks}
        definitions = tables.load_versions(connection, wanted)
    halving = Halving[RepairTask, RepairResult](
        run=lambda part: context.engine.repair(part, definitions),
        task_id=lambda task: task.staging_object_id,
        result_id=lambda result: result.staging_object_id,
        probe=context.engine.probe,
        poisoned=lambda task, error: RepairResult(
            staging_object_id=task.staging_object_id, failure=Failure(message=str(error), transient=False)
        ),
    )
    return {result.staging_object_id: result for result in halving.results(tasks)}


def _tasks(context: StageContext, plans: Sequence[RepairPlan], *, look_only: bool) -> list[RepairTask]:
    """One task a staging object, for all of its days."""
    recorded: dict[int, list[RecordedObject]] = {}
    for plan in plans:
        for suspect in plan.suspects:
            known = suspect.known
            recorded.setdefault(known.staging_object_id, []).append(
                RecordedObject(
                    date=plan.partition.date,
                    delayed=known.delayed,
                    content_length=known.content_length,
                    row_count=known.row_count,
                    fingerprint=known.fingerprint,
                )
            )
    with context.database.begin() as connection:
        sources = staging_objects.load_claimed(connection, recorded)
    return [
        RepairTask(source=_source(sources[number], items), recorded=tuple(items), look_only=look_only)
        for number, items in sorted(recorded.items())
    ]


def _source(item: staging_objects.ClaimedObject, recorded: Sequence[RecordedObject]) -> ConvertTask:
    """The staging object as it was converted. Its tiers are those on record, whatever is marked by now."""
    return ConvertTask(
        staging_object_id=item.staging_object_id,
        bucket=item.bucket,
        key=item.key,
        etag=item.etag,
        content_length=item.content_length,
        received=item.first_receive_time,
        stream_name=item.stream_name,
        delayed_dates=frozenset(entry.date for entry in recorded if entry.delayed),
        table_id=item.table_id,
        definition_version=item.definition_version,
    )


def _found(plan: RepairPlan, suspect: Suspect, results: Results) -> RepairedObject | None:
    result = results.get(suspect.known.staging_object_id)
    objects = result.objects if result else ()
    return next((item for item in objects if item.date == plan.partition.date), None)


def _commit(context: StageContext, plan: RepairPlan, results: Results) -> None:
    """Records the lengths of repaired objects where they are others than before: another version encodes otherwise.

    After the object is written, never before. A death in between leaves an object that readers of the live prefix
    read well, and a length that no manifest can be published with; the next repair finds the object sound and comes
    here again. The revision has a manifest that names the old length replaced; its readers failed before, too.
    """
    changed = []
    for suspect in plan.suspects:
        found = _found(plan, suspect, results)
        if found and found.content_length not in (None, suspect.known.content_length):
            changed.append((suspect.known, found.content_length or 0))
    if not changed:
        return
    failpoint("repair.before_commit")
    with context.database.begin() as connection:
        partitions.lock_partition(connection, plan.partition.partition_id)
        for known, length in changed:
            if not small_objects.set_length(connection, known.object_id, known.content_length, length):
                raise LeaseLost(
                    f"{plan.table.name} {plan.partition.date} was repaired by another run meanwhile; repeat"
                )
        partitions.raise_revision(connection, plan.partition.partition_id)
        failpoint("repair.in_commit")
    failpoint("repair.after_commit")


def _outcome(plan: RepairPlan, results: Results, *, dry_run: bool) -> tuple[PartitionRepair, list[IrreparableObject]]:
    missing = damaged = repaired = 0
    left = []
    for suspect in plan.suspects:
        found = _found(plan, suspect, results)
        fault = suspect.fault or (found.fault if found else None)
        result = results.get(suspect.known.staging_object_id)
        if fault is None and found:
            continue
        missing += fault == _MISSING
        damaged += fault not in (None, _MISSING)
        if found and found.content_length is not None:
            repaired += not dry_run
        elif result and result.failure:
            left.append(_irreparable(plan, suspect, fault, result.failure))
    entry = PartitionRepair(
        table=str(plan.table.name),
        table_id=plan.table.table_id,
        date=plan.partition.date,
        checked=plan.checked,
        missing=missing,
        damaged=damaged,
        repaired=repaired,
    )
    return entry, left


def _irreparable(plan: RepairPlan, suspect: Suspect, fault: str | None, failure: Failure) -> IrreparableObject:
    what = f"{fault} and cannot be repaired" if fault else "cannot be looked at"
    return IrreparableObject(
        table=str(plan.table.name),
        date=plan.partition.date,
        key=suspect.key,
        reason=f"{what}: {failure.message}",
        transient=failure.transient,
    )

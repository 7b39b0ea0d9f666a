"""Repair: converts missing or damaged small objects again, if readers or merges need them.

Records in PostgreSQL are compared with a listing. A deep repair also reads every object. Rows are never changed: an
object is written again only if its staging object still gives exactly the committed rows.

In the live prefix of an open day, which readers list, an object is written in place. Everywhere else a repair is a
rewrite: the object gets a new key, and readers get it with the next publication of the day (`commit.py`).

The work has parts the size of a batch of Stream, each committed before the next begins. A fault of one partition is an
entry of the report, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import date

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.errors import (
    WORTH_REPEATING,
    ErasureMissing,
    LeaseLost,
    PrismError,
    StaleRewrite,
    TransientError,
)
from prism_assets.domain.files.rewrites import MOST_PLANS
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work import is_occupied
from prism_assets.domain.work.repair import RepairResult, RepairTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.records import record_faults
from prism_assets.metadata.tables import tables
from prism_assets.stages.bisect import run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.leases import leased, takeover_seconds
from prism_assets.stages.repair.commit import (
    DayRepair,
    begin_day,
    commit_day,
    end_days,
    with_new_keys,
)
from prism_assets.stages.repair.outcome import Results, looked_at, outcome_of
from prism_assets.stages.repair.plan import RepairPlan, plan_repair, repair_chunks
from prism_assets.stages.repair.report import IrreparableObject, PartitionRepair, RepairReport
from prism_assets.stages.rewrite.numbers import drop_occupied

_PARTITIONS_AT_ONCE = 100
_LISTINGS = 8


def run_repair(
    context: StageContext,
    *,
    names: Collection[str] | None = None,
    day: date | None = None,
    deep: bool = False,
    dry_run: bool = False,
) -> RepairReport:
    """Repairs the small objects of the named tables, or of all, on one event date or on all.

    With `deep` every object is read, not only listed. A dry run writes nothing. A repetition does nothing more. Raises
    only before the first examination: for a wrong name, a missing or unlistable bucket, or a store or database that
    does not answer. Later errors are in the report.
    """
    started = time.monotonic()
    context.check_lake()
    chosen = {table.table_id: table for table in context.choose_tables(names)}
    context.stores.check_bucket(context.lake.bucket)
    with context.database.begin() as connection:
        found = partitions.load_needed(connection, list(chosen), day)
    _, held = without_held(context, chosen.values())
    reasons = {item.table: item.reason for item in held}
    repair = _RepairRun(context, chosen, deep=deep, dry_run=dry_run)
    repair.run([item for item in found if str(chosen[item.table_id].name) not in reasons])
    repair.refuse([item for item in found if str(chosen[item.table_id].name) in reasons], reasons)
    return _report(repair.done, repair.left, time.monotonic() - started)


def _report(done: Sequence[PartitionRepair], left: Sequence[IrreparableObject], seconds: float) -> RepairReport:
    return RepairReport(
        checked=sum(item.checked for item in done),
        missing=sum(item.missing for item in done),
        damaged=sum(item.damaged for item in done),
        repaired=sum(item.repaired for item in done),
        strays=sum(item.strays for item in done),
        partitions=tuple(
            item for item in done if item.missing or item.damaged or item.repaired or item.strays or item.skipped
        ),
        irreparable=tuple(left),
        seconds=seconds,
    )


class _RepairRun:
    """The findings of one call so far, and its errors."""

    def __init__(
        self, context: StageContext, chosen: Mapping[int, TableDefinition], *, deep: bool, dry_run: bool
    ) -> None:
        self._context = context
        self._chosen = chosen
        self._deep = deep
        self._dry_run = dry_run
        self.done: list[PartitionRepair] = []
        self.left: list[IrreparableObject] = []
        self._told: set[int] = set()
        self._uncommitted: set[int] = set()
        """Partitions with objects under new keys whose rewrite was not committed."""

    def run(self, found: Sequence[Partition]) -> None:
        """Repairs partitions in turn. Ends early if the engine, the store or PostgreSQL is gone."""
        for start in range(0, len(found), _PARTITIONS_AT_ONCE):
            try:
                self._part(found[start : start + _PARTITIONS_AT_ONCE])
            except PrismError as error:
                self._give_up([item for item in found[start:] if item.partition_id not in self._told], error)
                return
            self._context.progress(f"repair: {counted(sum(item.checked for item in self.done), 'object')} checked")

    def refuse(self, found: Sequence[Partition], reasons: Mapping[str, str]) -> None:
        """Refuses the days of tables that lack an erasure, with one entry per table: a repair would bring erased rows
        back.
        """
        for reason in dict.fromkeys(reasons.values()):
            days = [item for item in found if reasons[str(self._chosen[item.table_id].name)] == reason]
            if days:
                self._give_up(days, ErasureMissing(reason))

    def _give_up(self, rest: Sequence[Partition], error: PrismError) -> None:
        """Adds one entry per table for days not examined, because there may be thousands."""
        by_table: dict[int, list[Partition]] = {}
        for item in rest:
            by_table.setdefault(item.table_id, []).append(item)
        for days in by_table.values():
            first = min(days, key=lambda item: item.date)
            more = f", nor were {counted(len(days) - 1, 'other day')} of the table" if len(days) > 1 else ""
            self._note_left(first, f"was not looked at{more}: {error}", error)

    def _note_left(self, partition: Partition, reason: str, error: PrismError) -> None:
        """Adds an entry for a whole day."""
        table = self._chosen[partition.table_id]
        self.left.append(
            IrreparableObject(
                table=str(table.name),
                date=partition.date,
                key=self._context.lake.keys(table).live_prefix(partition.date),
                reason=reason,
                transient=isinstance(error, WORTH_REPEATING),
            )
        )

    def _part(self, part: Sequence[Partition]) -> None:
        """Plans, examines, converts and commits under the leases of repair. A dry run needs none."""
        with self._leased(part) as held:
            if others := [item for item in part if not self._dry_run and item.partition_id not in held]:
                self._skip(others)
            for plans in self._planned([item for item in part if item not in others]):
                failpoint("repair.after_plan")
                self._repair_until_committed(plans, held)

    def _leased(self, part: Sequence[Partition]) -> AbstractContextManager[Mapping[int, Lease]]:
        if self._dry_run:
            return nullcontext({})
        ids = [item.partition_id for item in part]
        return leased(self._context, LeaseKind.REPAIR, ids, takeover_seconds(self._context))

    def _skip(self, others: Sequence[Partition]) -> None:
        with self._context.database.begin() as connection:
            holders = leases.holders(connection, LeaseKind.REPAIR, [item.partition_id for item in others])
        for item in others:
            entry = PartitionRepair(
                table=str(self._chosen[item.table_id].name),
                table_id=item.table_id,
                date=item.date,
                skipped=True,
                holder=holders.get(item.partition_id),
            )
            self._tell(item, entry)

    def _tell(self, partition: Partition, entry: PartitionRepair) -> None:
        self._told.add(partition.partition_id)
        self.done.append(entry)

    def _planned(self, part: Sequence[Partition]) -> Iterator[list[RepairPlan]]:
        """Yields the plans of partitions once they have enough suspects for a job. Lists a few partitions at once.

        A day of hundreds of tables takes hundreds of listings, and mostly one job.
        """
        waiting: list[RepairPlan] = []
        with ThreadPoolExecutor(_LISTINGS) as pool:
            for start in range(0, len(part), _LISTINGS):
                few = part[start : start + _LISTINGS]
                waiting += self._sound_plans(few, list(pool.map(self._plan, few)))
                if sum(len(plan.suspects) for plan in waiting) >= self._context.batch_size.objects:
                    yield waiting
                    waiting = []
        if waiting:
            yield waiting

    def _plan(self, partition: Partition) -> RepairPlan | PrismError:
        try:
            return plan_repair(self._context, self._chosen[partition.table_id], partition, deep=self._deep)
        except PrismError as error:
            return error

    def _sound_plans(self, few: Sequence[Partition], made: Sequence[RepairPlan | PrismError]) -> list[RepairPlan]:
        """Returns the plans. Errors become entries, but if the store refused every partition, its error is raised."""
        if any(isinstance(item, TransientError) for item in made):
            self._context.stores.check_bucket(self._context.lake.bucket)
        for partition, item in zip(few, made, strict=True):
            if isinstance(item, PrismError):
                self._told.add(partition.partition_id)
                self._note_left(partition, f"cannot be looked at: {item}", item)
        return [item for item in made if isinstance(item, RepairPlan)]

    def _repair_until_committed(self, plans: Sequence[RepairPlan], held: Mapping[int, Lease]) -> None:
        """Repairs some partitions.

        Plans partitions again whose rewrites are stale because others replaced an object.
        """
        for _ in range(MOST_PLANS):
            stale = self._repair(plans, held)
            if not stale:
                return
            plans = self._sound_plans(stale, [self._plan(item) for item in stale])
        for partition in stale:
            error = StaleRewrite("others replace its objects again and again; repeat")
            self._note_left(partition, f"was not repaired: {error}", error)

    def _repair(self, plans: Sequence[RepairPlan], held: Mapping[int, Lease]) -> list[Partition]:
        """Examines the suspects of some partitions, and reports on each, even if the engine is lost on the way.

        Returns the partitions to plan again, without a report on them.
        """
        stale: set[int] = set()
        results: dict[tuple[int, int, int], RepairResult] = {}
        gone: PrismError | None = None
        try:
            if not self._dry_run:
                self._remove_strays(plans)
            if self._deep or not self._dry_run:
                self._look(plans, results, held, stale)
        except PrismError as error:
            gone = error
        for plan in plans:
            number = plan.partition.partition_id
            if number in stale and not gone:
                continue
            is_committed = number not in stale | self._uncommitted
            entry, left = outcome_of(plan, results, dry_run=self._dry_run, is_committed=is_committed)
            self._tell(plan.partition, entry)
            self.left += left
            if not (self._dry_run or gone or left) and plan.table.change_log is not None:
                _fold_again(self._context, plan)
            if gone and (missed := sum(item.start not in results for item in plan.suspects)):
                self._note_left(
                    plan.partition,
                    f"has {counted(missed, 'object that was', 'objects that were')} not looked at: {gone}",
                    gone,
                )
        if gone:
            raise gone
        return [plan.partition for plan in plans if plan.partition.partition_id in stale]

    def _remove_strays(self, plans: Sequence[RepairPlan]) -> None:
        """Removes keys that nobody will commit. A death in between leaves the rest to the next repair."""
        if strays := [key for plan in plans for key in plan.strays]:
            self._context.stores.delete(self._context.lake.bucket, strays)
            failpoint("repair.after_remove")

    def _look(
        self,
        plans: Sequence[RepairPlan],
        results: dict[tuple[int, int, int], RepairResult],
        held: Mapping[int, Lease],
        stale: set[int],
    ) -> None:
        """Adds results part by part. Objects written before a loss of the engine are recorded in any case."""
        for chunk in repair_chunks(self._context, plans, look_only=self._dry_run):
            days = {} if self._dry_run else self._begin_days(plans, chunk, held)
            tasks = chunk if self._dry_run else tuple(with_new_keys(self._context, chunk, days))
            found: dict[tuple[int, int, int], RepairResult] = {}
            try:
                for result in _run_tasks(self._context, tasks):
                    found[result.task_id] = result
            finally:
                results |= found
                for day in days.values():
                    self._commit(day, found, stale)
                end_days(self._context, days.values())

    def _begin_days(
        self, plans: Sequence[RepairPlan], chunk: Sequence[RepairTask], held: Mapping[int, Lease]
    ) -> dict[tuple[int, date], DayRepair]:
        """Begins the rewrites of the days of a part, by table and date. Leaves days out whose lease is lost."""
        days: dict[tuple[int, date], DayRepair] = {}
        for plan in sorted(plans, key=lambda item: item.partition.partition_id):
            table_id, day = plan.table.table_id, plan.partition.date
            objects = [
                known for task in chunk if task.table_id == table_id for known in task.recorded if known.date == day
            ]
            if not objects:
                continue
            try:
                lease = held[plan.partition.partition_id]
                days[table_id, day] = begin_day(self._context, plan, lease, objects)
            except LeaseLost as error:
                self._note_left(plan.partition, f"was not repaired: {error}", error)
        return days

    def _commit(self, day: DayRepair, found: Results, stale: set[int]) -> None:
        """Commits a day of a part. Notes days to plan again in `stale`."""
        partition = day.plan.partition
        repaired = [(item.known, seen) for item in day.plan.suspects if (seen := looked_at(day.plan, item, found))]
        try:
            ended = [found[item.start] for item in day.plan.suspects if item.start in found]
            if any(map(is_occupied, ended)):
                # The key of another day may be occupied: one task writes all days of a staging object.
                begun = [day.rewrite] if day.rewrite else []
                drop_occupied(self._context, day.plan.table, [partition.date], begun)
                stale.add(partition.partition_id)
            else:
                commit_day(self._context, day, repaired)
        except StaleRewrite:
            stale.add(partition.partition_id)
        except PrismError as error:
            self._uncommitted.add(partition.partition_id)
            self._note_left(partition, f"has repaired objects that are not recorded: {error}", error)


def _fold_again(context: StageContext, plan: RepairPlan) -> None:
    """Lets the next fold read set-aside objects of a day that is sound now."""
    with context.database.begin() as connection:
        record_faults.retry(connection, plan.partition.partition_id)


def _run_tasks(context: StageContext, tasks: Sequence[RepairTask]) -> Iterator[RepairResult]:
    """Examines the suspects of one part as one job. A staging object that kills the job ends up alone.

    The engine writes a key only after it found the rows equal: a death in the job leaves some objects repaired.
    """
    with context.database.begin() as connection:
        versions = {(task.table_id, task.definition_version) for task in tasks}
        definitions = tables.load_versions(connection, versions)
    return run_bisected(context.engine, tasks, definitions)

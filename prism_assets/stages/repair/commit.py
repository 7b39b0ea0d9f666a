"""The commit of a repair: new lengths in the live prefix of an open day, and a rewrite for all other objects of a day.

Readers list the live prefix, so an object there keeps its key. Any other object gets a new key, as in every rewrite.
Readers of the day see the damage until the next publication, which names the new object. The damaged object is garbage
once no reader uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date

from prism_assets.domain.errors import LeaseLost, PrismError
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.files.rewrites import Certificate, Replacement, Rewrite, RewriteKind
from prism_assets.domain.work.repair import RepairedObject, RepairTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rewrites
from prism_assets.metadata.tables import tables
from prism_assets.stages.context import StageContext
from prism_assets.stages.repair.plan import RepairPlan
from prism_assets.stages.rewrite.commit import commit_rewrite


@dataclass(frozen=True)
class DayRepair:
    """The repair of one day in one part of the work."""

    plan: RepairPlan
    lease: Lease
    rewrite: Rewrite | None
    """The rewrite with the number of the new keys. None if all objects are written under their own keys."""

    def new_key(self, context: StageContext, known: SmallObject) -> str | None:
        """Returns the new key of an object, or None to write it under its own key."""
        if self.rewrite is None or self.plan.is_in_place(known):
            return None
        return context.lake.keys(self.plan.table).small_object(
            known.date,
            known.staging_object_id,
            delayed=known.delayed,
            generation=known.generation,
            rewrite_id=self.rewrite.rewrite_id,
        )


def begin_day(context: StageContext, plan: RepairPlan, lease: Lease, objects: Collection[SmallObject]) -> DayRepair:
    """Begins the rewrite of a day, if some of the objects need new keys. Raises LeaseLost.

    After a death nobody can commit the rewrite, and garbage collection drops it.
    """
    if all(map(plan.is_in_place, objects)):
        return DayRepair(plan, lease, None)
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        rewrite = rewrites.begin(
            connection,
            plan.partition,
            RewriteKind.REPAIR,
            definition_version=tables.load_current(connection, plan.table).version,
            worker=context.worker,
            lease_token=lease.token,
        )
    failpoint("repair.after_begin")
    return DayRepair(plan, lease, rewrite)


def with_new_keys(
    context: StageContext, tasks: Sequence[RepairTask], days: Mapping[tuple[int, date], DayRepair]
) -> Iterator[RepairTask]:
    """Yields the tasks with new keys for all objects not written in place, without objects of other days."""
    for task in tasks:
        recorded = tuple(known for known in task.recorded if (task.table_id, known.date) in days)
        keys = {known.date: days[task.table_id, known.date].new_key(context, known) for known in recorded}
        if recorded:
            yield replace(task, recorded=recorded, new_keys={day: key for day, key in keys.items() if key})


def commit_day(context: StageContext, day: DayRepair, found: Sequence[tuple[SmallObject, RepairedObject]]) -> None:
    """Records the repaired objects of a day: new lengths in place, and the rewrite, in one transaction.

    `found` has the recorded objects, each with the answer of the kernel. Raises StaleRewrite if others replaced one.

    A death before it leaves objects under new keys to garbage collection, and repaired objects with outdated lengths on
    record. Readers of the live prefix read these well, and no manifest can be published with the old length. The next
    repair finds the object sound and comes here again.
    """
    lengths = [
        (known, item.content_length)
        for known, item in found
        if item.key == known.key and item.content_length not in (None, known.content_length)
    ]
    rewrite = day.rewrite
    chosen = [
        Replacement.in_place_of(known, _under_new_key(known, item, rewrite))
        for known, item in found
        if rewrite is not None and item.key != known.key
    ]
    if not lengths and not chosen:
        return
    partition_id = day.plan.partition.partition_id
    failpoint("repair.before_commit")
    with context.database.begin() as connection:
        leases.hold(connection, day.lease)
        if partitions.lock_partition(connection, partition_id).expired:
            return  # no manifest names its objects any more
        for known, length in lengths:
            if not small_objects.set_length(connection, known, length or 0):
                raise LeaseLost(f"{day.plan.table.name} {known.date} was repaired by another run meanwhile; repeat")
        if lengths:
            partitions.raise_revisions(connection, [partition_id])
        if rewrite is not None and chosen:
            commit_rewrite(connection, rewrite, chosen, Certificate.SAME_ROWS)
        partitions.count_repair(connection, partition_id)
        failpoint("repair.in_commit")
    failpoint("repair.after_commit")


def _under_new_key(known: SmallObject, item: RepairedObject, rewrite: Rewrite) -> SmallObject:
    """Returns the object in its new place. Rows and all facts except key and length are the recorded ones."""
    return replace(known, key=item.key, content_length=item.content_length or 0, rewrite_id=rewrite.rewrite_id)


def end_days(context: StageContext, days: Collection[DayRepair]) -> None:
    """Drops the rewrites without a commit. If PostgreSQL is gone, garbage collection drops them later."""
    with suppress(PrismError), context.database.begin() as connection:
        for day in days:
            if day.rewrite is not None:
                rewrites.drop(connection, day.rewrite.rewrite_id)

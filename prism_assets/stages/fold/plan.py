"""What a fold of a join table takes: read from PostgreSQL, and cut into tasks by buckets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.erasures import ErasureRule
from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files import SmallObject
from prism_assets.domain.folding import (
    FoldFacts,
    FoldTask,
    RecordObject,
    RecordPart,
    UnfoldedChanges,
    bucket_tasks,
    fold_reason,
)
from prism_assets.domain.joins import DELETE, JoinOptions
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata import erasures, folds, record_faults, record_objects, settle_clock, small_objects
from prism_assets.metadata.folds import UnfoldedDay
from prism_assets.metadata.record_faults import SetAside
from prism_assets.objectstore.lake import Lake

ERASING = "records are erased"


@dataclass(frozen=True, kw_only=True)
class FoldPlan:
    """What one fold does to a join table: the value that is executed, shown and tested.

    It takes of each of the `days` of the log of changes the small objects up to that in `uppers`, which hold so many
    rows as `taken_rows` says, without those that are left out, and of some days changes that were left out before, with
    so many rows as `rows_again` says, both with those that were erased. `reason` is None if nothing is due; then
    `changes` are what waits. What `erasures` match is left out; `own_erasures` are those of the records.
    """

    table: TableDefinition
    options: JoinOptions
    reason: str | None
    days: tuple[UnfoldedDay, ...]
    uppers: Mapping[int, int]
    taken_rows: Mapping[int, int]
    rows_again: Mapping[int, int]
    changes: tuple[UnfoldedChanges, ...]
    records: tuple[RecordObject, ...]
    settle_before: datetime | None
    is_whole: bool
    erasures: tuple[ErasureRule, ...] = ()
    own_erasures: frozenset[int] = frozenset()

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.table.name}: nothing to fold"
        pending = sum(item.row_count for item in self.records if item.part is RecordPart.PENDING)
        changes = sum(item.row_count for item in self.changes)
        waiting = f" and {pending:,} that wait" if pending else ""
        rest = "" if self.is_whole else "; the rest follows in the next fold"
        return (
            f"{self.table.name}: {self.reason}: fold {counted(changes, 'change')}{waiting} into records of "
            f"{counted(self.options.buckets, 'bucket')}{rest}"
        )


def load_facts(connection: Connection, table: TableDefinition, changes: TableDefinition) -> FoldFacts:
    """What decides whether a join table is due, as PostgreSQL has it now. Reads without locks.

    What may settle is read before what is new: a change that is committed in between is taken, and one that is claimed
    in between is accepted by a clock that is no earlier.
    """
    return _load(connection, table, changes)[0]


def _load(
    connection: Connection, table: TableDefinition, changes: TableDefinition
) -> tuple[FoldFacts, Sequence[SetAside], Sequence[UnfoldedDay]]:
    """The facts, with the changes set aside and the days with new ones that they count."""
    options = table.join
    assert options is not None
    settle_before = settle_clock.settle_before(connection, table.table_id)
    set_aside = record_faults.load_set_aside(connection, changes.table_id)
    days = folds.load_unfolded(connection, changes.table_id)
    times = record_objects.load_times(connection, table.table_id)
    facts = FoldFacts(
        unfolded_objects=sum(item.is_to_be_retried for item in set_aside)
        + sum(small_objects.count_above(connection, day.partition_id, day.folded_object_id) for day in days),
        last_fold=folds.last_finished(connection, [table.table_id]).get(table.table_id),
        oldest_pending=times.oldest_pending,
        # Records that go when they settle make a fold due one by one; those that stay, when all of their object have.
        next_settle=times.first_settles if options.after == DELETE else times.first_settled_whole,
        settle_before=settle_before,
    )
    return facts, set_aside, days


def plan_fold(
    connection: Connection,
    table: TableDefinition,
    changes: TableDefinition,
    lake: Lake,
    *,
    now: datetime,
    most_objects: int,
    most_bytes: int,
    ignore_pace: bool = False,
    is_erasing: bool = False,
) -> FoldPlan:
    """Reads without locks; the commit checks that nothing of it has changed.

    Where more waits than one fold takes nothing settles, as a change that is left behind may be of a record that would.
    What is set aside is left out, and taken when it is to be tried again. It takes one object at least. While it
    `is_erasing` it is due, whatever waits. LeaseLost where changes are of a later definition than the one that was read
    before.
    """
    options = table.join
    assert options is not None
    facts, set_aside, unfolded = _load(connection, table, changes)
    taken = _take(connection, changes, lake, set_aside, unfolded, most_objects, most_bytes)
    if not taken.is_whole:
        facts = replace(facts, settle_before=None)
    if ignore_pace:
        facts = replace(facts, last_fold=None)
    rules, own = erasures.load_join_rules(connection, table.table_id, changes.table_id)
    return FoldPlan(
        table=table,
        options=options,
        reason=fold_reason(options.publish, facts, now) or (ERASING if is_erasing else None),
        days=tuple(taken.days),
        uppers=taken.uppers,
        taken_rows=taken.rows,
        rows_again=taken.rows_again,
        changes=tuple(UnfoldedChanges.of_small(item) for item in taken.objects if item.row_count),
        records=tuple(record_objects.load_open(connection, lake.keys(table), table.table_id)),
        settle_before=facts.settle_before,
        is_whole=taken.is_whole,
        erasures=rules,
        own_erasures=own,
    )


@dataclass
class _TakenChanges:
    """The objects of changes that a fold takes, and per partition up to which and with how many rows.

    `rows_again` are those of objects that were set aside and are tried again. It `is_whole` if nothing is left behind.
    """

    objects: list[SmallObject]
    rows_again: Counter[int]
    is_whole: bool
    days: list[UnfoldedDay] = field(default_factory=list)
    uppers: dict[int, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)


def _take(
    connection: Connection,
    changes: TableDefinition,
    lake: Lake,
    set_aside: Sequence[SetAside],
    unfolded: Sequence[UnfoldedDay],
    most_objects: int,
    most_bytes: int,
) -> _TakenChanges:
    """What is to be tried again, and behind that what is new, day by day, as far as both bounds go."""
    left_out = {item.object_id for item in set_aside if not item.is_due}
    again = {item.object_id: item.partition_id for item in set_aside if item.is_to_be_retried}
    due = small_objects.load_these(connection, lake.keys(changes), again)
    inputs = due[: _fitting(due[:most_objects], most_bytes, at_least=True)]
    rows_again = Counter[int]()
    for item in inputs:
        rows_again[again[item.object_id]] += item.row_count + item.rows_erased
    taken = _TakenChanges(inputs, rows_again, is_whole=len(inputs) == len(due))
    for day in unfolded:
        left = max(0, most_objects - len(inputs))
        found = small_objects.load_above(
            connection, lake.keys(changes), day.partition_id, day.folded_object_id, limit=left + 1
        )
        count = _fitting(found[:left], most_bytes - sum(item.content_length for item in inputs), at_least=not inputs)
        taken.is_whole &= len(found) == count
        if any(item.definition_version > changes.version for item in found):
            raise LeaseLost(f"{changes.name} was changed in the middle of planning a fold of it; repeat")
        if found := found[:count]:
            taken.days.append(day)
            taken.uppers[day.partition_id] = found[-1].object_id
            found = [item for item in found if item.object_id not in left_out]
            taken.rows[day.partition_id] = sum(item.row_count + item.rows_erased for item in found)
            inputs += found
    return taken


def _fitting(found: Sequence[SmallObject], most_bytes: int, *, at_least: bool) -> int:
    """How many of the first objects have so many bytes together, or one if there must be one."""
    sizes = itertools.accumulate(item.content_length for item in found)
    count = sum(size <= most_bytes for size in sizes)
    return max(count, min(1, len(found))) if at_least else count


def fold_tasks(plan: FoldPlan, fold_id: int, now: datetime) -> list[FoldTask]:
    """What the engine is to do about a plan."""
    return bucket_tasks(
        plan.table,
        plan.records,
        plan.changes,
        fold_id=fold_id,
        now=now,
        settle_before=plan.settle_before,
        erasures=plan.erasures,
    )

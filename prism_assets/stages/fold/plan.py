"""Plans a fold of a join table: reads the changes and records from PostgreSQL, and cuts tasks by buckets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.records.folding import (
    FoldFacts,
    FoldTask,
    RecordObject,
    RecordPart,
    UnfoldedChanges,
    bucket_tasks,
    fold_reason,
)
from prism_assets.domain.records.joins import DELETE, JoinOptions
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.records import folds, record_faults, record_objects, watermark
from prism_assets.metadata.records.folds import UnfoldedDay
from prism_assets.metadata.records.record_faults import SetAside
from prism_assets.objectstore.lake import Lake

ERASING = "records are erased"


@dataclass(frozen=True, kw_only=True)
class FoldPlan:
    """One fold of a join table, as executed, shown and tested."""

    table: TableDefinition
    options: JoinOptions
    reason: str | None
    """None if nothing is due; `changes` then has the waiting ones."""
    days: tuple[UnfoldedDay, ...]
    """Days of the log of changes with new small objects."""
    uppers: Mapping[int, int]
    """The last small object the fold takes of each day."""
    taken_rows: Mapping[int, int]
    """Rows of the taken objects per day, erased ones included. Left-out objects do not count."""
    rows_again: Mapping[int, int]
    """Rows of objects left out by earlier folds and tried again, erased ones included."""
    changes: tuple[UnfoldedChanges, ...]
    records: tuple[RecordObject, ...]
    settle_before: datetime | None
    is_whole: bool
    erasures: tuple[ErasureRule, ...] = ()
    """Rules whose matches are left out."""
    own_erasures: frozenset[int] = frozenset()
    """The ids of erasures of the records. All other erasures are of the log of changes."""

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
    """Returns the facts that decide whether a join table is due. Reads without locks.

    Reads the limit of settling first, then the new changes, so no change escapes both: an object finished between the
    two reads is counted, and the changes of one claimed between them are accepted at or after the limit.
    """
    return _load(connection, table, changes)[0]


def _load(
    connection: Connection, table: TableDefinition, changes: TableDefinition
) -> tuple[FoldFacts, Sequence[SetAside], Sequence[UnfoldedDay]]:
    """Returns the facts, with the set-aside changes and the days with new ones they count."""
    options = table.join
    assert options is not None
    settle_before = watermark.settle_before(connection, table.table_id)
    set_aside = record_faults.load_set_aside(connection, changes.table_id)
    days = folds.load_unfolded(connection, changes.table_id)
    times = record_objects.load_times(connection, table.table_id)
    facts = FoldFacts(
        unfolded_objects=sum(item.is_to_be_retried for item in set_aside)
        + sum(small_objects.count_above(connection, day.partition_id, day.folded_object_id) for day in days),
        last_fold=folds.last_finished(connection, [table.table_id]).get(table.table_id),
        oldest_pending=times.oldest_pending,
        # If settled records are deleted, each one makes a fold due; if they stay, a whole object of them does.
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
    """Plans a fold. Reads without locks; the commit checks that nothing has changed.

    If more changes wait than one fold takes, nothing settles, because a remaining change may belong to a settling
    record. Set-aside objects are left out until their retry is due. The fold takes at least one object. While
    `is_erasing` it is always due. Raises LeaseLost if changes have a later definition than the one read before.
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
    """The objects of changes a fold takes, with last object and rows per partition."""

    objects: list[SmallObject]
    rows_again: Counter[int]
    """Rows of set-aside objects that are tried again."""
    is_whole: bool
    """No object remains."""
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
    """Takes objects to be retried first, then new ones day by day, up to both limits."""
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
    """Returns how many of the first objects fit into `most_bytes`, or one if `at_least`."""
    sizes = itertools.accumulate(item.content_length for item in found)
    count = sum(size <= most_bytes for size in sizes)
    return max(count, min(1, len(found))) if at_least else count


def fold_tasks(plan: FoldPlan, fold_id: int, now: datetime) -> list[FoldTask]:
    """Returns the engine's tasks of a plan."""
    return bucket_tasks(
        plan.table,
        plan.records,
        plan.changes,
        fold_id=fold_id,
        now=now,
        settle_before=plan.settle_before,
        erasures=plan.erasures,
    )

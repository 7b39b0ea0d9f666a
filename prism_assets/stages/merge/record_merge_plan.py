"""Plans merges of records day by day from PostgreSQL, and makes tasks of a plan."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from prism_assets.domain.merges.plan import DEFAULT_SHRINKAGE
from prism_assets.domain.records.folding import RecordPart
from prism_assets.domain.records.joins import DELETE
from prism_assets.domain.records.merge_plan import KEPT_FOR_LAST, RecordMergePlan, may_be_due, plan_record_merge
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work.write import WriteTask
from prism_assets.metadata.records import folds, record_objects
from prism_assets.metadata.records.record_objects import UnmergedDay
from prism_assets.metadata.tables import tables
from prism_assets.objectstore.lake import Lake
from prism_assets.stages.context import StageContext
from prism_assets.stages.fold.plan import load_facts

_MOST_TARGETS = 8
"""A merge reads at most this many times the target size, because folds of the table wait for its end."""


@dataclass(frozen=True, kw_only=True)
class RecordMergeDay:
    """The next merge of a day of records, as executed, shown and tested."""

    table: TableDefinition
    partition_id: int
    date: datetime.date
    objects: int
    """Settled objects to be merged."""
    plan: RecordMergePlan

    def describe(self) -> str:
        """Returns a line for people."""
        plan = self.plan
        inputs = sum(map(len, plan.groups))
        parts = [f"write {len(plan.groups)} new of {counted(inputs, 'settled object')}"] if plan.groups else []
        parts += [f"keep {len(plan.kept)} that are big enough, or alone"] if plan.kept else []
        left = (
            f"; {counted(plan.left_behind, 'object stays', 'objects stay')} behind: {plan.reason}"
            if plan.left_behind
            else ""
        )
        return f"{self.table.name} {self.date}: {' and '.join(parts) or 'nothing to write'}{left}"


def has_settled(table: TableDefinition) -> bool:
    """Whether a table has records that settle and stay."""
    return table.join is not None and table.join.window_seconds is not None and table.join.after != DELETE


def plan_days(
    connection: Connection, table_id: int, lake: Lake, day: datetime.date | None = None
) -> Iterator[RecordMergeDay]:
    """Yields all days of a join table with unmerged settled records, oldest first, each with its plan.

    Reads without locks, and decides whether a day is over before it reads the day's objects. A day's objects are read
    only when the caller reaches it, so a caller that needs the first due day reads no others.
    """
    unmerged = record_objects.load_unmerged_days(connection, table_id, day)
    if not unmerged:
        return
    table, changes = tables.load_join(connection, table_id)
    settled_before = _settled_before(connection, table, changes)
    shrinkage = record_objects.observed_shrinkage(connection, table_id) or DEFAULT_SHRINKAGE
    for item in unmerged:
        yield _plan_day(connection, table, lake, item, settled_before, shrinkage)


def _settled_before(
    connection: Connection, table: TableDefinition, changes: TableDefinition
) -> datetime.datetime | None:
    """Returns the time before which every record is in an object, because no unfolded change is older.

    The value of the last fold of all changes, or the current one if there is nothing to fold.
    """
    facts = load_facts(connection, table, changes)
    if facts.settle_before is not None and not facts.unfolded_objects:
        return facts.settle_before
    return folds.last_settled_before(connection, table.table_id)


def _plan_day(
    connection: Connection,
    table: TableDefinition,
    lake: Lake,
    item: UnmergedDay,
    settled_before: datetime.datetime | None,
    shrinkage: float,
) -> RecordMergeDay:
    assert table.join is not None
    assert table.join.window_seconds is not None
    lasts = datetime.timedelta(seconds=table.join.window_seconds + table.join.lateness_seconds)
    ends = table.day_ends(item.date) + lasts
    is_over = not item.is_open and settled_before is not None and ends <= settled_before
    is_near = may_be_due(
        table.merge,
        is_over=is_over,
        objects=item.objects,
        content_length=item.content_length,
        shrinkage=shrinkage,
    )
    shown = record_objects.load_shown(connection, lake.keys(table), item.partition_id) if is_near else []
    plan = plan_record_merge(
        policy=table.merge,
        is_over=is_over,
        shown=shown,
        shrinkage=shrinkage,
        most_bytes=_MOST_TARGETS * table.merge.target_bytes,
    )
    if not is_near:
        plan = replace(plan, left_behind=item.objects, left_behind_bytes=item.content_length, reason=KEPT_FOR_LAST)
    return RecordMergeDay(table=table, partition_id=item.partition_id, date=item.date, objects=item.objects, plan=plan)


def record_merge_tasks(day: RecordMergeDay, merge_id: int, lake: Lake) -> list[WriteTask]:
    """Returns a task for each object to write, numbered like the groups, under keys with the merge's number."""
    keys = lake.keys(day.table)
    return [
        WriteTask(
            number=number,
            # Without metrics, because no kernel reads them and a task may have thousands of inputs.
            inputs=tuple(replace(item, metrics=()) for item in group),
            output_key=keys.record_object(day.date, RecordPart.VISIBLE, merge_id, 0, number),
            table_id=day.table.table_id,
            definition_version=day.table.version,
            object_type=str(RecordPart.VISIBLE),
            metric_columns=day.table.metric_columns,
        )
        for number, group in enumerate(day.plan.groups)
    ]


def preview_record_merges(
    context: StageContext, names: Collection[str] | None = None, day: datetime.date | None = None
) -> list[RecordMergeDay]:
    """Returns the next merges of records, and waiting days. Changes nothing."""
    chosen = [table for table in context.choose_tables(names) if has_settled(table)]
    with context.database.begin() as connection:
        return [planned for table in chosen for planned in plan_days(connection, table.table_id, context.lake, day)]

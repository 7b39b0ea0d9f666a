"""Reads the facts of a merge from PostgreSQL, and turns the plan into tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.rewrites import Rewrite
from prism_assets.domain.merges.plan import DEFAULT_SHRINKAGE, MergePlan, PlannedRange, plan_merge
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work.write import WriteTask
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs, merge_ranges, small_objects
from prism_assets.metadata.rewrites import widenings
from prism_assets.metadata.tables import column_transitions
from prism_assets.metadata.tables.tables import load_current
from prism_assets.objectstore.lake import Lake
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """The plan of one job. Execution, dry run and tests share it."""

    table: TableDefinition
    partition: Partition
    merge: MergePlan

    def describe(self) -> str:
        """One line for people."""
        ranges = ", ".join(map(_describe, self.merge.ranges))
        count, reason = self.merge.left_behind, self.merge.reason
        left = (
            f"; {counted(count, 'object stays', 'objects stay')} behind: {reason}"
            if count
            else f"; {reason}"
            if self.merge.backlog
            else ""
        )
        return f"{self.table.name} {self.partition.date}: {'write ' + ranges if ranges else 'nothing to write'}{left}"


def _describe(planned: PlannedRange) -> str:
    if planned.is_copy:
        return f"a copy of ({planned.lower_bound}, {planned.upper_bound}] with wider types"
    if planned.is_rewritten:
        return f"({planned.lower_bound}, {planned.upper_bound}] again"
    verb = "extend" if planned.extends else "new"
    return f"{verb} ({planned.lower_bound}, {planned.upper_bound}] with {counted(len(planned.objects), 'object')}"


def plan_partition(
    connection: Connection, partition_id: int, tables: Mapping[int, TableDefinition], lake: Lake, attempts: int = 0
) -> PartitionPlan:
    """Plans the merge of one partition from the current rows. `attempts` counts the failed attempts so far.

    Reads without locks, because the commit checks again. The plan of an expired day is empty, and its job just ends.
    """
    partition = partitions.load_partitions(connection, [partition_id])[partition_id]
    table = tables[partition.table_id]
    keys, limit = lake.keys(table), table.merge.max_objects
    chain = merge_ranges.load_chain(connection, keys, partition_id)
    upper = chain[-1].upper_bound if chain else 0
    unmerged = [] if partition.expired else small_objects.load_above(connection, keys, partition_id, upper, limit + 1)
    # Read after the objects, so none of them has a later definition: the merged object has the columns of all.
    table = load_current(connection, table)
    plan = plan_merge(
        policy=table.merge,
        is_open=partition.is_open,
        chain=chain,
        unmerged=unmerged[:limit],
        more=len(unmerged) > limit,
        shrinkage=merge_ranges.observed_shrinkage(connection, partition_id) or DEFAULT_SHRINKAGE,
        rewritten_below=0 if partition.expired else table.rewritten_below,
        uncopied=(
            widenings.find_uncopied(connection, partition_id, chain, table.copies_since)
            if table.is_copying and not partition.expired
            else ()
        ),
        attempts=attempts,
    )
    return PartitionPlan(table=table, partition=partition, merge=plan)


def range_task(plan: PartitionPlan, rewrite: Rewrite, place: int, number: int, lake: Lake) -> WriteTask:
    """Returns the task of one planned range. The object of an extended range is its first input."""
    planned, day = plan.merge.ranges[place], plan.partition.date
    return WriteTask(
        number=number,
        inputs=tuple(map(_input, planned.inputs)),
        output_key=lake.keys(plan.table).merged_object(
            day, planned.lower_bound, planned.upper_bound, rewrite.rewrite_id
        ),
        table_id=plan.table.table_id,
        definition_version=plan.table.version,
        metric_columns=plan.table.metric_columns,
        is_copy=planned.is_copy,
    )


def _input(file: DataFile) -> DataFile:
    """Removes metrics: no kernel reads them, and a task may have thousands of inputs."""
    return replace(file, metrics=())


def preview(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    day: date | None = None,
    ignore_schedule: bool = False,
) -> list[PartitionPlan]:
    """Returns the plans of a merge run at `now`. Claims nothing."""
    tables = {table.table_id: table for table in context.choose_logs(names)}
    with context.database.begin() as connection:
        jobs = merge_jobs.load_status(connection)
        died = {job.partition_id for job in merge_jobs.expired(connection, context.settings.lease_seconds)}
        running = {job.partition_id for job in jobs if job.running} - died
        attempts = {job.partition_id: job.attempts for job in jobs if job.partition_id not in running}
        due = {job.partition_id for job in jobs if job.is_due(now) or (ignore_schedule and not job.running)} | died
        if ignore_schedule:
            due |= set(partitions.ids_unmerged(connection, list(tables), day))
        due |= {item.partition_id for item in column_transitions.load_days_to_rewrite(connection, tables.values(), day)}
        wanted = [
            partition.partition_id
            for partition in partitions.load_partitions(connection, due - running).values()
            if partition.table_id in tables and day in (None, partition.date)
        ]
        return [
            plan_partition(connection, partition_id, tables, context.lake, attempts.get(partition_id, 0))
            for partition_id in sorted(wanted)
        ]

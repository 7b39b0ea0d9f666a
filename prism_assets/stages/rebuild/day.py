"""Rebuilds a day: converts its staging objects again under new keys, and replaces the old objects in one step.

No reader is sent to new objects before the commit. The commit is one transaction under the lock of the partition's row.
Small objects keep their ids and ranges their bounds, so each row stays in its place, and only the object of a place
changes. Clients of DuckLake read the new objects from then on. Glue and Iceberg show them by one publication each, in
the next catalog run. Old objects stay until no reader can use them (`domain/files/garbage.py`).

A death leaves converted objects on record, under a lease that expires. The next rebuild of the day continues with them,
or drops them if the definition has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, contradiction
from prism_assets.domain.errors import (
    EngineUnavailable,
    InvariantBroken,
    KeyOccupied,
    LeaseLost,
    PrismError,
    TerminalError,
    TransientError,
)
from prism_assets.domain.files.data_file import MergedRange
from prism_assets.domain.files.rewrites import MOST_PLANS, Certificate
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.text import counted, listed
from prism_assets.domain.work.rebuild import RebuildResult
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, locks
from prism_assets.metadata.days import partitions
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.intake import backlog
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.rewrites import rebuild_sources, rebuilds, rebuilt_objects, rewrites, staged_files
from prism_assets.metadata.rewrites.rebuild_sources import DayToRebuild, SourceToRebuild
from prism_assets.metadata.rewrites.rebuilds import Rebuild
from prism_assets.metadata.tables import tables
from prism_assets.stages.bisect import error_of, run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.leases import find_holder, leased, takeover_seconds
from prism_assets.stages.rebuild.plan import RebuildPart, arrival_of, next_part, obstacle_of
from prism_assets.stages.rebuild.ranges import merge_ranges_anew
from prism_assets.stages.rebuild.report import RebuiltDay, RebuiltTotals
from prism_assets.stages.rewrite.commit import commit_staged
from prism_assets.stages.rewrite.numbers import highest_number

_EXAMPLES = 5


def rebuild_day(
    context: StageContext, table: TableDefinition, day: DayToRebuild, *, without_missing: bool, now: datetime
) -> RebuiltDay:
    """Rebuilds one day, under its lease, because two rebuilds at once would do the same work twice.

    With `without_missing` rows of missing staging objects stay as they are. Otherwise a day with missing staging
    objects stays unchanged.
    """
    partition = day.partition
    if partition is None or partition.is_waiting_for_rows:
        partition = _make_day(context, table, day, now)
    day = replace(day, partition=partition)
    with context.database.begin() as connection:
        _refuse(connection, table, day, now)
    number = partition.partition_id
    with leased(context, LeaseKind.REBUILD, [number], takeover_seconds(context)) as held:
        if number in held:
            return _DayRebuild(context, table, day, partition, held[number], without_missing, now).run()
    return RebuiltDay(
        table=str(table.name),
        table_id=table.table_id,
        date=partition.date,
        version=table.version,
        skipped=True,
        holder=find_holder(context, LeaseKind.REBUILD, number),
    )


def _make_day(context: StageContext, table: TableDefinition, day: DayToRebuild, now: datetime) -> Partition:
    """Makes a missing day as a closed day without rows, so the rebuild publishes its rows like those of any closed day,
    and nobody lists its folder.

    The first transaction marks the day and the second closes it, as for other days. Objects claimed after the mark
    become delayed objects. Objects claimed before it delay the close: while any is unfinished, raises TransientError,
    and the next call continues. A day made so is in no catalog and holds up nothing, even if the process dies here or
    no line turns out to be a row of the day.
    """
    if day.partition is None:
        with context.database.begin() as connection:
            locks.hold_epoch(connection)
            _refuse(connection, table, day, now)
            partitions.make_marked(connection, table.table_id, day.date)
            failpoint("rebuild.in_mark_day")
        failpoint("rebuild.after_mark_day")
    with context.database.begin() as connection:
        (made,) = partitions.load_days(connection, table.table_id, [day.date])
        made = partitions.lock_partition(connection, made.partition_id)
        if made.is_waiting_for_rows:
            if left := backlog.unfinished_before(connection, table.table_id, made.closing_batch_id):
                objects = counted(left, "staging object is", "staging objects are")
                raise TransientError(f"{objects} being converted, and may have rows of it: repeat when that has ended")
            partitions.close(connection, made.partition_id)
            made = partitions.lock_partition(connection, made.partition_id)
        failpoint("rebuild.in_make_day")
    failpoint("rebuild.after_make_day")
    return made


class _DayRebuild:
    """A running rebuild of one day, under its lease."""

    def __init__(
        self,
        context: StageContext,
        table: TableDefinition,
        day: DayToRebuild,
        partition: Partition,
        lease: Lease,
        without_missing: bool,
        now: datetime,
    ) -> None:
        self._context = context
        self._table = table
        self._day = day
        self._partition = partition
        self._lease = lease
        self._without_missing = without_missing
        self._now = now
        self._left_in_quarantine = 0

    def run(self) -> RebuiltDay:
        """Converts, merges and commits. If keys are occupied by other rows, the next call uses other keys."""
        rebuild = self._begin()
        failpoint("rebuild.after_begin")
        if rebuild is None:
            return self._report(None)
        try:
            return self._carry_out(rebuild)
        except KeyOccupied:
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                rewrites.drop(connection, rebuild.rewrite_id)
            raise

    def _begin(self) -> Rebuild | None:
        """Begins or continues the rebuild in one transaction.

        A death in it begins nothing; after it, the next call continues.
        """
        highest = highest_number(self._context, self._table, self._partition.date)
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            self._table = tables.load_current(connection, self._table)
            arrival = arrival_of(self._table, self._partition.date)
            totals = rebuild_sources.count(connection, self._day, self._table.version, arrival)
            self._left_in_quarantine = totals.left_in_quarantine
            if not totals.objects:
                return None
            begun = rebuilds.begin(
                connection, self._partition, self._table.version, self._context.worker, self._lease, highest
            )
            # An erasure may have been made since the first check.
            _refuse(connection, self._table, self._day, self._now)
            return begun

    def _report(
        self, totals: RebuiltTotals | None, missing: Sequence[str] = (), rebuild: Rebuild | None = None
    ) -> RebuiltDay:
        return RebuiltDay(
            table=str(self._table.name),
            table_id=self._table.table_id,
            date=self._partition.date,
            version=self._table.version,
            totals=totals if totals and totals.objects else None,
            missing=tuple(missing),
            left_in_quarantine=self._left_in_quarantine,
            resumed=rebuild is not None and rebuild.resumed,
        )

    def _carry_out(self, rebuild: Rebuild) -> RebuiltDay:
        for _ in range(MOST_PLANS):
            self._convert(rebuild)
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                missing = rebuilt_objects.leave_out(connection, rebuild)
            if missing and not self._without_missing:
                raise TerminalError(_gone(missing))
            merge_ranges_anew(self._context, self._table, self._partition, rebuild, self._lease)
            failpoint("rebuild.before_commit")
            if (totals := self._commit(rebuild)) is not None:
                failpoint("rebuild.after_commit")
                return self._report(totals, missing, rebuild)
        raise LeaseLost("other runs changed the day as often as it was ready to be rebuilt: repeat it")

    def _convert(self, rebuild: Rebuild) -> None:
        """Converts the remaining objects in parts: first those with rows of the day, then others."""
        count, above, with_rows = 0, 0, True
        while True:
            part = next_part(self._context, self._table, self._day, rebuild, above if with_rows else None)
            if part is None:
                if not with_rows:
                    return
                with_rows = False
                continue
            count += self._convert_part(rebuild, part)
            above = max((item.object_id or 0 for item in part.candidates), default=above)
            self._context.progress(
                f"rebuild: {self._table.name} {self._partition.date}, {counted(count, 'object')} converted"
            )

    def _convert_part(self, rebuild: Rebuild, part: RebuildPart) -> int:
        """Converts some objects as one job, and records those that succeeded, even if others failed.

        A death before the record leaves keys that are written again byte by byte.
        """
        known = {item.staging_object_id: item for item in part.candidates}
        ready: list[tuple[SourceToRebuild, RebuildResult]] = []
        failed: list[RebuildResult] = []
        gone: EngineUnavailable | None = None
        try:
            for result in run_bisected(self._context.engine, part.tasks, by_version(self._table)):
                if result.failure and not result.is_missing:
                    failed.append(result)
                else:
                    ready.append((known[result.staging_object_id], result))
        except EngineUnavailable as error:
            gone = error
        failpoint("rebuild.after_convert")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            rewrites.lock_running(connection, rebuild.rewrite_id)
            in_order = sorted(ready, key=lambda item: item[0].staging_object_id)
            rebuilt_objects.add_converted(connection, rebuild, in_order)
            failpoint("rebuild.in_ready")
        failpoint("rebuild.after_ready")
        if gone:
            raise gone
        if failed:
            raise _error_of(failed)
        return len(ready)

    def _commit(self, rebuild: Rebuild) -> RebuiltTotals | None:
        """Puts the staged files in place, in one transaction. Returns None if one of them has changed meanwhile.

        A death before it changes nothing. After it, the day is rebuilt and marked for publication. Objects that came
        meanwhile stay beside it.
        """
        number = self._partition.partition_id
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            locks.share_epoch(connection)  # a rule is there before, or finds what is committed here
            locked = partitions.lock_partition(connection, number)
            _refuse(connection, self._table, replace(self._day, partition=locked), self._now)  # it may have expired
            rewrites.check_plan(connection, rebuild)
            changed = rebuilt_objects.forget_changed(connection, rebuild)
            rebuilt_objects.leave_out(connection, rebuild)
            if changed or rebuilt_objects.load_ranges_to_rebuild(connection, rebuild):
                return None
            before = rebuilt_objects.load_totals(connection, rebuild)
            rebuilt_objects.forget_left_out(connection, rebuild)
            staged = staged_files.load_replacements(connection, self._context.lake.keys(self._table), rebuild)
            chosen = staged.get(number, [])
            added = rebuilt_objects.add_small_objects(connection, rebuild)
            commit_staged(connection, rebuild, {number: chosen}, Certificate.NEW_ROWS)
            rebuilt_objects.apply_rest(connection, rebuild)
            if added:
                due = self._now + timedelta(seconds=self._table.merge.interval)
                merge_jobs.schedule(connection, [number], due)
            failpoint("rebuild.in_commit")
            if locked.switched:
                _certify(connection, self._table, locked)
            after = rebuilt_objects.load_totals(connection, rebuild)
            rewrites.forget_converted(connection, rebuild.rewrite_id)
        ranges = sum(isinstance(item.file, MergedRange) for item in chosen)
        return RebuiltTotals.between(before, after, ranges=ranges, added=added)


def _refuse(connection: Connection, table: TableDefinition, day: DayToRebuild, now: datetime) -> None:
    """TerminalError where the day cannot be rebuilt."""
    if obstacle := obstacle_of(connection, table, day, now):
        raise TerminalError(f"it is not rebuilt: {obstacle}")


def _certify(connection: Connection, table: TableDefinition, partition: Partition) -> None:
    """Renews the certificate of a switched day for its rebuilt ranges. Changes nothing if rows contradict."""
    evidence = partitions.switch_evidence(connection, partition.partition_id)
    if reason := contradiction(evidence):
        raise InvariantBroken(f"{table.name} {partition.date}: {reason}; nothing of the day was rebuilt")
    partitions.certify_again(connection, partition.partition_id, evidence)


def _gone(missing: Sequence[str]) -> str:
    return (
        f"{counted(len(missing), 'staging object is', 'staging objects are')} gone, or changed since the conversion: "
        f"{listed(missing, _EXAMPLES)}; restore what is gone, or leave the rows as they are with "
        "--without-missing"
    )


def _error_of(failed: Sequence[RebuildResult]) -> PrismError:
    """Why objects could not be converted, the first of them named; transient if waiting may help all of them."""
    failures = [result.failure for result in failed if result.failure]
    messages = [failure.message for failure in failures]
    more = f"; and {len(messages) - _EXAMPLES} more" if len(messages) > _EXAMPLES else ""
    text = f"{counted(len(messages), 'staging object')} could not be converted: {'; '.join(messages[:_EXAMPLES])}{more}"
    return error_of(failures, text, "; give Spark's Python workers more memory")

"""Erases records of a join table: unsettled ones by a fold, settled ones by a rewrite of their objects.

The rule exists before. A fold that began earlier ignores it, and therefore does not mark its output as searched. Every
later fold leaves out matching records and changes. So every committed object is searched, by its fold or here, and no
row returns.

Both kinds of work hold the lease of the table's folds. The rewrite of settled objects takes a number from the sequence
of folds, like merges of records, so readers, catalogs and garbage collection know the current objects. A death before
its commit leaves a running rewrite, which the next one drops, and objects without any reference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from prism_assets.domain.erasures.rules import Erasure, ErasureRule
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.rewrites import RewriteKind
from prism_assets.domain.records.folding import RecordObject, RecordPart
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.records import record_objects
from prism_assets.metadata.records.folds import FoldCounts
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureProgress
from prism_assets.stages.erase.search import AT_ONCE, as_read, is_excluded, run_rewrites
from prism_assets.stages.erase.table_erasure import TableErasure
from prism_assets.stages.findings.records import find_record_faults
from prism_assets.stages.fold.run import fold_without_erased
from prism_assets.stages.leases import leased, takeover_seconds
from prism_assets.stages.rewrite.begin import begin_record_rewrite
from prism_assets.stages.rewrite.numbers import run_under_free_number


class RecordErasure(TableErasure):
    """One erasure of the records of a join table."""

    def __init__(
        self,
        context: StageContext,
        table: TableDefinition,
        lease: Lease,
        erasure: Erasure,
        rules: Sequence[ErasureRule],
        now: datetime,
    ) -> None:
        super().__init__(context, table, lease, erasure, rules)
        self._now = now

    def run(self) -> ErasureProgress:
        """Folds if unsettled records were not searched, then rewrites settled objects with matching records.

        Settled objects are searched without the lease of folds, because they never change. Objects written meanwhile by
        a merge are found by the next call. At the end the lease of folds is taken in any case: a fold that began before
        the rule is then over, or cannot commit, so its output is seen.
        """
        if any(not item.is_settled for item in self._unsearched()):
            self._with_lease(self._fold)
        hits = self._search([item for item in self._unsearched() if item.is_settled])
        for start in range(0, len(hits), AT_ONCE):
            self._with_lease(partial(self._rewrite, hits[start : start + AT_ONCE]))
        if self.done.is_whole:
            self._with_lease(self._look_again)
        return self.done

    def _look_again(self, _lease: Lease) -> None:
        self.done.overtaken += bool(self._unsearched())

    def _with_lease(self, work: Callable[[Lease], None]) -> None:
        table_id = self._table.table_id
        with leased(self._context, LeaseKind.FOLD, [table_id], takeover_seconds(self._context)) as held:
            if held:
                work(held[table_id])
            else:
                self.done.overtaken += 1

    def search_again(self, keys: Collection[str]) -> int:
        """Marks needed objects of records as unsearched."""
        table_id, number = self._table.table_id, self._erasure.erasure_id
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            current = record_objects.load_current(connection, self._context.lake.keys(self._table), table_id)
            found = [item.object_id for item in current if item.key in keys]
            record_objects.mark_unsearched(connection, found, number)
            if found:
                erasures.search_again(connection, self._erasure)
        return len(found)

    def _unsearched(self) -> list[RecordObject]:
        """Returns objects of records that were not searched."""
        with self._context.database.begin() as connection:
            keys = self._context.lake.keys(self._table)
            return record_objects.load_unsearched(connection, keys, self._table.table_id, self._erasure.erasure_id)

    def _fold(self, lease: Lease) -> None:
        """Folds without the matching records.

        Afterwards only buckets with unreadable or undecided rows remain unsearched.
        """
        before = sum(not item.is_settled for item in self._unsearched())
        fold = fold_without_erased(self._context, lease, self._now)
        self._context.progress(f"erase: {fold}")
        left = sum(not item.is_settled for item in self._unsearched())
        self.done.marked += max(0, before - left)
        if left and fold.undecided:
            self._note(_undecided(fold.undecided))
        elif left:
            with self._context.database.begin() as connection:
                faults = list(find_record_faults(connection, self._table))
            for fault in faults:
                self._note(fault.text)

    def _search(self, settled: Sequence[RecordObject]) -> list[RecordObject]:
        """Returns the objects with matching records. Marks all others as searched if the result is certain."""
        searched = [item for item in settled if all(is_excluded(rule, item) for rule in self._rules)]
        self._mark(searched)
        known = {item.object_id for item in searched}
        unknown = [item for item in settled if item.object_id not in known]
        hits: list[RecordObject] = []
        for start in range(0, len(unknown), AT_ONCE):
            part = unknown[start : start + AT_ONCE]
            tasks = record_tasks(self._context, self._table, self._rules, part)
            found = self._decided(part, run_rewrites(self._context, self._table, tasks))
            self._mark([part[result.number] for result in found if not result.matching])
            hits += [part[result.number] for result in found if result.matching]
            self._context.progress(
                f"erase: {min(start + AT_ONCE, len(unknown))} of {counted(len(unknown), 'object')} of records looked "
                "through"
            )
        return hits

    def _rewrite(self, hits: Sequence[RecordObject], lease: Lease) -> None:
        """Rewrites those of the objects that are still current."""
        current = {item.object_id for item in self._unsearched()}
        for own in _apart([item for item in hits if item.object_id in current]):
            self._replace(lease, own)

    def _decided(self, objects: Sequence[RecordObject], results: Iterable[WriteResult]) -> list[WriteResult]:
        """Returns the results with a decision on every row. Notes the reasons of the others."""
        found = []
        for result in results:
            failure = result.failure
            if failure is not None:
                self._note(failure.message, transient=failure.transient)
            elif result.undecided:
                self._note(f"{objects[result.number].key}: {_undecided(result.undecided)}")
            else:
                found.append(result)
        return found

    def _mark(self, searched: Sequence[RecordObject]) -> None:
        if not searched:
            return
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            record_objects.mark_searched(connection, [item.object_id for item in searched], self._erasure.erasure_id)
        self.done.marked += len(searched)

    def _replace(self, lease: Lease, hits: Sequence[RecordObject]) -> None:
        """Writes objects without the matching records, and replaces the old ones.

        One transaction locks both leases, the rows of the partitions in id order, then those of the objects, like the
        commit of a fold.
        """
        table_id, number = self._table.table_id, self._erasure.erasure_id
        begin = partial(
            begin_record_rewrite, self._context, lease=lease, table=self._table, kind=RewriteKind.ERASE_RECORDS
        )

        def run(fold: int) -> list[WriteResult]:
            tasks = record_tasks(self._context, self._table, self._rules, hits, fold)
            return list(run_rewrites(self._context, self._table, tasks))

        with self._context.database.begin() as connection:
            fold_id = begin(connection)
        failpoint("erase.after_begin_records")
        fold_id, results = run_under_free_number(self._context, self._table, fold_id, run, begin)
        done = [(hits[result.number], result) for result in self._decided(hits, results)]
        _check_counts(done)
        if not done:
            with self._context.database.begin() as connection:
                rewrites.drop(connection, fold_id)
            return
        written = [
            _in_place(before, result.written, self._table.version, fold_id, number)
            for before, result in done
            if result.written is not None
        ]
        failpoint("erase.before_commit_records")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            leases.hold(connection, lease)
            days = {before.date for before, _ in done}
            partition_ids = partitions.ensure_and_lock_records(connection, table_id, days)
            record_objects.replace(connection, [before.object_id for before, _ in done], fold_id)
            record_objects.insert_written(connection, table_id, written, partition_ids)
            for day in sorted(days - retention.load_expired(connection, table_id)):  # no reader sees an expired day
                partitions.raise_desired(connection, partition_ids[day], fold_id)
            rows = sum(result.matching for _, result in done)
            erasures.count_rewritten(connection, number, len(done), rows)
            rewrites.finish(connection, fold_id, FoldCounts.of(written))
            failpoint("erase.in_commit_records")
        failpoint("erase.after_commit_records")
        self.done.objects += len(done)
        self.done.rows += rows


def _check_counts(done: Sequence[tuple[RecordObject, WriteResult]]) -> None:
    for before, result in done:
        kept = result.written.row_count if result.written else 0
        if kept + result.matching != before.row_count:
            raise InvariantBroken(
                f"{before.key}: of {before.row_count} rows {kept} were written again and {result.matching} are "
                "erased; nothing was changed"
            )


def _undecided(count: int) -> str:
    return (
        f"the predicate fails on {counted(count, 'key')}: erase by one that always has a result, such as with try_cast"
    )


def record_tasks(
    context: StageContext,
    table: TableDefinition,
    rules: Sequence[ErasureRule],
    objects: Sequence[RecordObject],
    fold_id: int | None = None,
) -> list[WriteTask]:
    """Returns tasks that search objects of records, numbered in their order.

    With a fold's number they also rewrite them.
    """
    keys = context.lake.keys(table)
    return [
        WriteTask(
            number=number,
            inputs=(as_read(item),),
            erasures=tuple(rules),
            table_id=table.table_id,
            definition_version=table.version,
            output_key=None
            if fold_id is None
            else keys.record_object(item.date, item.part, fold_id, item.bucket_number, item.cohort),
            object_type=str(item.part),
            metric_columns=table.metric_columns if item.part is RecordPart.VISIBLE else (),
            skips_empty=True,
        )
        for number, item in enumerate(objects)
    ]


def _apart(hits: Sequence[RecordObject]) -> Iterator[Sequence[RecordObject]]:
    """Splits objects into groups that one fold can write.

    Objects of the same day, bucket and cohort would share a key.
    """
    left = list(hits)
    while left:
        chosen = {(item.date, item.part, item.bucket_number, item.cohort): item for item in left}
        yield list(chosen.values())
        left = [item for item in left if chosen[item.date, item.part, item.bucket_number, item.cohort] is not item]


def _in_place(before: RecordObject, written: DataFile, version: int, fold_id: int, erasure_id: int) -> RecordObject:
    """Returns the record of a rewritten settled object.

    It keeps its settle times, because no fold reads them any more.
    """
    return replace(
        before,
        key=written.key,
        content_length=written.content_length,
        row_count=written.row_count,
        fingerprint=written.fingerprint,
        file_format=written.file_format,
        metrics=written.metrics,
        joined_rows=min(before.joined_rows, written.row_count),
        definition_version=version,
        fold_id=fold_id,
        erasure_id=erasure_id,
        object_id=0,
    )

"""Erases rows by rewrites of their objects, under the lease of erasures. Commits in parts.

An object with matching rows is written again under a new key. The old object stays for readers that were sent to it.
One transaction, which holds the partition's row, records the new object in place of the old one, and marks the day for
publication. Publications, merges and the switch lock the same row, so a merge that read the old object cannot commit
any more. A death before the record leaves an object without any reference, for garbage collection. The next call writes
under another number.

Readers of an open day list the live prefix, where no object can replace another in one step. Objects of open days are
counted here, and rewritten by the first call after the close of their day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prism_assets.domain.erasures.rules import Erasure, ErasureRule
from prism_assets.domain.errors import ObjectMissing, StaleRewrite
from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.files.rewrites import Certificate, Replacement, Rewrite, RewriteKind
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work import Failure, is_occupied
from prism_assets.domain.work.redact import RedactResult
from prism_assets.domain.work.write import WriteResult
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.intake import redactions
from prism_assets.metadata.leases import Lease
from prism_assets.metadata.rewrites import rewrites, searched_objects
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureProgress
from prism_assets.stages.erase.search import (
    AT_ONCE,
    Candidate,
    Candidates,
    load_candidates,
    load_quarantined,
    load_unsearched_lines,
    rewrite_tasks,
    run_redactions,
    run_rewrites,
    with_sources,
)
from prism_assets.stages.erase.table_erasure import TableErasure
from prism_assets.stages.rewrite.begin import begin_rewrites
from prism_assets.stages.rewrite.commit import commit_rewrite
from prism_assets.stages.rewrite.numbers import drop_occupied

_TRIES = 3


class RowErasure(TableErasure):
    """One erasure of rows of a table.

    With `counts_open_days` it also reads objects of open days and counts matching rows.
    """

    def __init__(
        self,
        context: StageContext,
        table: TableDefinition,
        lease: Lease,
        erasure: Erasure,
        rules: Sequence[ErasureRule],
        *,
        counts_open_days: bool,
    ) -> None:
        super().__init__(context, table, lease, erasure, rules)
        self._counts_open_days = counts_open_days

    def run(self) -> ErasureProgress:
        """Searches all unsearched objects, and rewrites those with matching rows. A repetition does nothing more.

        A merge that read old objects may commit until they are replaced, and not afterwards. So the call ends with a
        second look for unsearched objects.
        """
        found = self._find()
        failpoint("erase.after_search")
        for start in range(0, len(found.to_read), AT_ONCE):
            self._part(found.to_read[start : start + AT_ONCE])
            self._context.progress(
                f"erase: {min(start + AT_ONCE, len(found.to_read))} of {counted(len(found.to_read), 'object')} searched"
            )
        self._count_open_days(found.open_days)
        self._redact()
        if self.done.is_whole:
            self.done.overtaken += self._count_unsearched()
        return self.done

    def _count_unsearched(self) -> int:
        """Counts objects that came, or whose day closed, since the search began.

        Days that are still open do not count.
        """
        left = self._find()
        return len(left.to_read) + (0 if self.done.open_objects else len(left.open_days))

    def _count_open_days(self, found: Sequence[Candidate]) -> None:
        """Counts matching rows of open days, and marks objects without any as searched.

        Objects with matches stay unwritten, so each look reads them again. One look an hour is enough, because only the
        close of the day changes the result.
        """
        if not found or not self._counts_open_days:
            self._wait_for(found)
            return
        rows = objects = 0
        hits: list[Candidate] = []
        for start in range(0, len(found), AT_ONCE):
            part = found[start : start + AT_ONCE]
            tasks = rewrite_tasks(self._context, self._table, self._rules, part, None)
            results = {result.number: result for result in run_rewrites(self._context, self._table, tasks)}
            searched = [number for number, result in results.items() if not result.failure and not result.matching]
            self._mark([part[number] for number in sorted(searched)])
            hits += [item for number, item in enumerate(part) if number not in searched]
            # An object with rows of an earlier erasure alone waits, too, and is counted for that erasure.
            rows += sum(result.matching_last for number, result in results.items() if part[number].counts)
            objects += sum(bool(result.failure or result.matching_last) for result in results.values())
        self._wait_for(hits)
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            erasures.record_open_days(connection, self._erasure.erasure_id, objects, rows)

    def _wait_for(self, waiting: Sequence[Candidate]) -> None:
        self.done.open_objects += len(waiting)
        self.done.open_partitions |= {item.partition.partition_id for item in waiting}

    def search_again(self, keys: Collection[str]) -> int:
        """Marks needed objects and quarantined lines as unsearched."""
        # Without rules every needed object counts as excluded.
        recorded = load_candidates(self._context, self._table, (), before_erasure=None).excluded
        found = [item for item in recorded if item.file.key in keys]
        number = self._erasure.erasure_id
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            searched_objects.mark_unsearched(connection, number, [(item.partition, item.file) for item in found])
            count = len(found) + redactions.mark_unsearched(connection, self._table.table_id, number, keys)
            if count:
                erasures.search_again(connection, self._erasure)
        return count

    def _find(self, partition_ids: Collection[int] | None = None) -> Candidates:
        """Returns needed objects that were not searched, of some days or all. Marks what column metrics exclude."""
        found = load_candidates(
            self._context,
            self._table,
            self._rules,
            before_erasure=self._erasure.erasure_id,
            partition_ids=partition_ids,
        )
        self._mark(found.excluded)
        return found

    def _part(self, part: Sequence[Candidate]) -> None:
        """Rewrites the objects of some days, each day as its own rewrite.

        Repeats with higher numbers if keys are occupied.

        A missing or damaged small object, as after a restore of PostgreSQL, is remade in memory, because a repair would
        show the erased rows.
        """
        for turn in range(_TRIES):
            days = (item.partition for item in part)
            begun = begin_rewrites(self._context, self._lease, self._table, days, RewriteKind.ERASE)
            failpoint("erase.after_begin")
            results = {result.number: result for result in self._written(part, begun)}
            occupied = {part[number].partition.date for number, result in results.items() if is_occupied(result)}
            if not occupied or turn == _TRIES - 1:
                self._commit(part, results, begun)
                return
            drop_occupied(self._context, self._table, occupied, begun.values())

    def _written(self, part: Sequence[Candidate], begun: Mapping[int, Rewrite]) -> Iterator[WriteResult]:
        numbers = [begun[item.partition.partition_id].rewrite_id for item in part]
        tasks = rewrite_tasks(self._context, self._table, self._rules, part, numbers)
        objects, unread = dict[int, SmallObject](), dict[int, WriteResult]()
        for result in run_rewrites(self._context, self._table, tasks):
            file, failure = part[result.number].file, result.failure
            if failure and not failure.occupied and not failure.transient and isinstance(file, SmallObject):
                objects[result.number], unread[result.number] = file, result
            else:
                yield result
        if unread:
            chosen = [task for task in tasks if task.number in unread]
            sources = with_sources(self._context, self._table, chosen, objects)
            for result in run_rewrites(self._context, self._table, sources):
                yield unread[result.number] if result.failure and not is_occupied(result) else result

    def _commit(
        self, part: Sequence[Candidate], results: Mapping[int, WriteResult], begun: Mapping[int, Rewrite]
    ) -> None:
        by_partition: dict[int, list[int]] = {}
        for place in sorted(results):
            by_partition.setdefault(part[place].partition.partition_id, []).append(place)
        for partition_id, places in by_partition.items():
            searched = [part[place] for place in places if not results[place].failure and not results[place].matching]
            hits = [
                (part[place], written, results[place])
                for place in places
                if (written := results[place].written) is not None
            ]
            self._mark(searched)
            self._record(begun[partition_id], hits)
        self._tell([(part[place], failure) for place in sorted(results) if (failure := results[place].failure)])

    def _tell(self, failed: Sequence[tuple[Candidate, Failure]]) -> None:
        """Notes unreadable objects. Objects replaced or repaired meanwhile are left to the next call."""
        days = {item.partition.partition_id for item, _ in failed}
        left = {item.file.key: item.file for item in self._find(days).to_read} if failed else {}
        for item, failure in failed:
            if left.get(item.file.key) == item.file:
                self._note(failure.message, day=item.partition.date, transient=failure.transient)
            else:
                self.done.overtaken += 1

    def _mark(self, searched: Sequence[Candidate]) -> None:
        by_partition: dict[int, list[Candidate]] = {}
        for item in searched:
            by_partition.setdefault(item.partition.partition_id, []).append(item)
        for partition_id, items in by_partition.items():
            files = [item.file for item in items]
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                searched_objects.mark_searched(
                    connection,
                    partition_id,
                    self._erasure.erasure_id,
                    [file for file in files if isinstance(file, SmallObject)],
                    [file for file in files if isinstance(file, MergedRange)],
                )
            self.done.marked += len(items)

    def _record(self, rewrite: Rewrite, hits: Sequence[tuple[Candidate, DataFile, WriteResult]]) -> None:
        """Commits the rewritten objects of one day in one transaction, if there are any."""
        try:
            done = bool(hits) and self._replace(rewrite, hits)
        except StaleRewrite:
            self.done.overtaken += len(hits)
            done = False
        if not done:
            with self._context.database.begin() as connection:
                rewrites.drop(connection, rewrite.rewrite_id)

    def _replace(self, rewrite: Rewrite, hits: Sequence[tuple[Candidate, DataFile, WriteResult]]) -> bool:
        """Replaces objects.

        Returns False if the day has expired: no reader sees it, and garbage collection deletes its objects.
        """
        number = self._erasure.erasure_id
        failpoint("erase.before_commit")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            locked = partitions.lock_partition(connection, rewrite.partition_id)
            if locked.expired:
                return False
            # Rows of small objects covered by ranges meanwhile are counted in the ranges alone.
            rows = sum(result.matching for candidate, _, result in hits if replace(candidate, partition=locked).counts)
            chosen = [
                Replacement.in_place_of(candidate.file, self._rewritten(candidate, written, rewrite))
                for candidate, written, _ in hits
            ]
            commit_rewrite(connection, rewrite, chosen, Certificate.ROWS_LESS_ERASED)
            files = [candidate.file for candidate, _, _ in hits]
            small = [file for file in files if isinstance(file, SmallObject)]
            erasures.add_sources(connection, [(number, file.staging_object_id, True) for file in small])
            for file in files:
                if isinstance(file, MergedRange):
                    erasures.add_possible_sources(connection, number, rewrite.partition_id, file)
            erasures.count_rewritten(connection, number, len(hits), rows)
            failpoint("erase.in_commit")
        failpoint("erase.after_commit")
        self.done.objects += len(hits)
        self.done.rows += rows
        return True

    def _rewritten(self, candidate: Candidate, written: DataFile, rewrite: Rewrite) -> SmallObject | MergedRange:
        return replace(
            candidate.file,
            **_facts(written),
            rewrite_id=rewrite.rewrite_id,
            erasure_id=self._erasure.erasure_id,
            definition_version=candidate.version(self._table),
        )

    def _redact(self) -> None:
        """Removes lines from quarantine. Remaining lines get a new object; garbage collection deletes the old one."""
        unsearched = load_unsearched_lines(self._context, self._table, self._erasure.erasure_id)
        for start in range(0, len(unsearched), AT_ONCE):
            chosen = unsearched[start : start + AT_ONCE]
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                number = rewrites.begin_of_table(
                    connection,
                    self._table.table_id,
                    RewriteKind.ERASE,
                    definition_version=self._table.version,
                    worker=self._context.worker,
                    lease_token=self._lease.token,
                )
            failpoint("erase.after_begin_lines")
            quarantined = load_quarantined(self._context, self._table, self._rules, chosen, number)
            by_id = {item.task.task_id: item for item in quarantined}
            for result in run_redactions(self._context, quarantined):
                self._record_lines(number, by_id[result.staging_object_id].key, result)
            with self._context.database.begin() as connection:
                rewrites.finish(connection, number)

    def _record_lines(self, rewrite_id: int, key: str, result: RedactResult) -> None:
        if result.failure is not None:
            if not self._is_gone(key):
                self._note(result.failure.message, transient=result.failure.transient)
                return
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                redactions.mark_gone(connection, self._erasure.erasure_id, result.staging_object_id, key)
            self.done.redacted += 1
            return
        failpoint("erase.before_commit_lines")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            rewrites.lock_running(connection, rewrite_id)  # once it was dropped, its objects are garbage
            number = self._erasure.erasure_id
            done = redactions.record_redaction(connection, number, key, result)
            if result.erased or result.withheld:
                erasures.add_sources(connection, [(number, result.staging_object_id, result.erased > 0)])
            failpoint("erase.in_commit_lines")
        self.done.redacted += done
        self.done.overtaken += not done

    def _is_gone(self, key: str) -> bool:
        """Whether an object with lines is missing, as after a restore of PostgreSQL, while its bucket exists."""
        self._context.stores.check_bucket(self._context.lake.bucket)
        try:
            self._context.stores.head(self._context.lake.bucket, key)
        except ObjectMissing:
            return True
        return False


def _facts(written: DataFile) -> dict[str, Any]:
    names = (
        "key", "content_length", "row_count", "fingerprint", "file_format", "metrics", "rows_erased",
        "erased_fingerprint",
    )  # fmt: skip
    return {name: getattr(written, name) for name in names}

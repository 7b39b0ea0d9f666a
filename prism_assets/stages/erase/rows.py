"""Erases rows by rewriting the objects that hold them: execute, then commit part by part, under the lease of erasures.

An object that holds such rows is written again under a key of its own; the old one stays as it is, for readers that
were sent to it. In one transaction that holds the partition's row, which publications, merges and the switch take, too,
the new object is recorded in the old one's place, and every catalog that names the old one is behind. A merge that read
the old one cannot commit any more. A death before the record leaves an object that nobody names, and the next call
finds the same rows there, or takes the next key.

Readers of an open day list the live prefix. There the new object is put over the old one, in one write, after its
record: so a listing shows each of the other rows once at any time. A death in between has the next call put it there.
Where the table is published as Iceberg, too, that waits for the commit that lists the new key: manifests say lengths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection

from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.files import DataFile, MergedRange, SmallObject
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.domain.work import Failure
from prism_assets.domain.work.erase import CleanResult
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import (
    erasures,
    leases,
    live_copies,
    partitions,
    quarantine_cleaning,
    rewritten_objects,
    small_objects,
)
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.report import ErasureProgress
from prism_assets.stages.erase.search import (
    AT_ONCE,
    Candidate,
    Candidates,
    load_candidates,
    load_lots,
    load_unclean,
    rewrite_tasks,
    run_lots,
    run_rewrites,
    with_sources,
)
from prism_assets.stages.erase.table_erasure import TableErasure
from prism_assets.stages.free_keys import TakenRevisions, run_under_free_keys
from prism_assets.stages.leases import leased
from prism_assets.stages.live_copies import put_copy


class RowErasure(TableErasure):
    """One erasure of the rows of a table."""

    def run(self) -> ErasureProgress:
        """Searches everything that was not searched, and rewrites what has to be. Repeating it does nothing more.

        A merge that read objects of before may have committed what it wrote of them until these were replaced, and
        none can behind that. So in the end it is looked once more whether everything was searched.
        """
        found = self._find()
        failpoint("erase.after_search")
        for start in range(0, len(found.unknown), AT_ONCE):
            self._part(found.unknown[start : start + AT_ONCE])
            self._context.progress(
                f"erase: {min(start + AT_ONCE, len(found.unknown))} of {counted(len(found.unknown), 'object')} looked "
                "through"
            )
        self.done.copies += put_live_copies(self._context, self._table, self._lease)
        self._clean()
        if self.done.is_whole:
            self.done.overtaken += len(self._unsearched())
        return self.done

    def search_again(self, keys: Collection[str]) -> int:
        """Objects that readers or merges need, and quarantined lines."""
        # Without rules column metrics exclude nothing: all that is needed comes as if it held no row.
        recorded = load_candidates(self._context, self._table, (), before_erasure=None).clean
        found = [item for item in recorded if item.file.key in keys]
        number = self._erasure.erasure_id
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            rewritten_objects.mark_unsearched(connection, number, [(item.partition, item.file) for item in found])
            count = len(found) + quarantine_cleaning.mark_unsearched(connection, self._table.table_id, number, keys)
            if count:
                erasures.search_again(connection, self._erasure)
        return count

    def _unsearched(self) -> Sequence[Candidate]:
        """What readers or merges need and was not searched. What column metrics tell of is marked on the way."""
        return self._find().unknown

    def _find(self) -> Candidates:
        found = load_candidates(self._context, self._table, self._rules, before_erasure=self._erasure.erasure_id)
        self._mark(found.clean)
        return found

    def _part(self, part: Sequence[Candidate]) -> None:
        """Rewrites objects. A task whose key is taken by other rows, as an adoption leaves them, gets a free key.

        Merged objects get no key that a rebuild has, or had: objects under such keys are garbage. Small objects that
        are not as recorded, as after PostgreSQL was set back, are made again in memory: a repair would show their rows.
        """
        with self._context.database.begin() as connection:
            rebuilds = rewritten_objects.last_rebuilds(connection, {item.partition.partition_id for item in part})
        revisions = [
            1 + max(item.file.revision, rebuilds.get(item.partition.partition_id, 0))
            if isinstance(item.file, MergedRange)
            else 1 + item.file.revision
            for item in part
        ]
        keys = self._context.lake.keys(self._table)

        taken = TakenRevisions(self._context, keys)

        def under_free_key(task: WriteTask) -> WriteTask:
            assert task.output_key is not None
            revisions[task.number] = taken.next_revision(task.output_key)
            return replace(task, output_key=part[task.number].key_of(keys, revisions[task.number]))

        def run(tasks: Sequence[WriteTask]) -> Iterator[WriteResult]:
            objects, unread = dict[int, SmallObject](), dict[int, WriteResult]()
            for result in run_rewrites(self._context, self._table, tasks):
                file, failure = part[result.number].file, result.failure
                if failure and not failure.occupied and not failure.transient and isinstance(file, SmallObject):
                    objects[result.number], unread[result.number] = file, result
                else:
                    yield result
            if unread:
                chosen = [task for task in tasks if task.number in unread]
                for result in run_rewrites(
                    self._context, self._table, with_sources(self._context, self._table, chosen, objects)
                ):
                    yield unread[result.number] if result.failure and not result.failure.occupied else result

        results = run_under_free_keys(
            run,
            rewrite_tasks(self._context, self._table, self._rules, part, revisions),
            under_free_key,
        )
        self._commit(part, {result.number: result for result in results}, revisions)

    def _commit(self, part: Sequence[Candidate], results: Mapping[int, WriteResult], revisions: Sequence[int]) -> None:
        by_partition: dict[int, list[int]] = {}
        for place in sorted(results):
            by_partition.setdefault(part[place].partition.partition_id, []).append(place)
        for places in by_partition.values():
            clean = [part[place] for place in places if not results[place].failure and not results[place].matching]
            hits = [
                (part[place], written, results[place], revisions[place])
                for place in places
                if (written := results[place].written) is not None
            ]
            self._mark(clean)
            if hits:
                self._record(hits)
        self._tell([(part[place], failure) for place in sorted(results) if (failure := results[place].failure)])

    def _tell(self, failed: Sequence[tuple[Candidate, Failure]]) -> None:
        """Notes what cannot be looked through. What others replaced meanwhile, or repaired, the next call knows of."""
        files = [item.file for item in self._unsearched()] if failed else []
        for item, failure in failed:
            if item.file in files:
                self._note(failure.message, day=item.partition.date, transient=failure.transient)
            else:
                self.done.overtaken += 1

    def _mark(self, clean: Sequence[Candidate]) -> None:
        by_partition: dict[int, list[Candidate]] = {}
        for item in clean:
            by_partition.setdefault(item.partition.partition_id, []).append(item)
        for partition_id, items in by_partition.items():
            files = [item.file for item in items]
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                rewritten_objects.mark_clean(
                    connection,
                    partition_id,
                    self._erasure.erasure_id,
                    [file for file in files if isinstance(file, SmallObject)],
                    [file for file in files if isinstance(file, MergedRange)],
                )
            self.done.marked += len(items)

    def _record(self, hits: Sequence[tuple[Candidate, DataFile, WriteResult, int]]) -> None:
        """Records rewritten objects of one partition, in one transaction."""
        partition_id = hits[0][0].partition.partition_id
        objects = rows = 0
        failpoint("erase.before_commit")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            locked = partitions.lock_partition(connection, partition_id)
            if locked.expired:  # nobody is sent there any more, and garbage collection deletes all of it
                return
            for candidate, written, result, revision in hits:
                before, version, number = candidate.file, self._table.version, self._erasure.erasure_id
                after = replace(before, **_facts(written), revision=revision)
                if isinstance(before, MergedRange) and locked.rebuild >= revision:
                    done = False  # a copy under a number that is not lower may hold the rows, and stay as long as this
                elif isinstance(before, SmallObject):
                    done = rewritten_objects.replace_small_object(connection, before, after, number)
                    erasures.add_sources(connection, [(number, before.staging_object_id, True)])
                else:
                    done = rewritten_objects.replace_range(connection, partition_id, before, after, number, version)
                    erasures.add_possible_sources(connection, number, partition_id, before)
                if not done:
                    self.done.overtaken += 1
                    continue
                # Rows of small objects that ranges cover are counted there alone.
                is_covered = isinstance(before, SmallObject) and before.object_id <= candidate.partition.desired_version
                objects, rows = objects + 1, rows + (0 if is_covered else result.matching)
            if objects:
                # Of an open day they come under the live keys, too, where older snapshots say other lengths.
                partitions.raise_revision(connection, partition_id, repaired=locked.is_open)
                erasures.count_rewritten(connection, self._erasure.erasure_id, objects, rows)
            failpoint("erase.in_commit")
        failpoint("erase.after_commit")
        self.done.objects += objects
        self.done.rows += rows

    def _clean(self) -> None:
        """Takes lines out of quarantine. What is left is another object; the old one goes with the next collection."""
        unclean = load_unclean(self._context, self._table, self._erasure.erasure_id)
        for start in range(0, len(unclean), AT_ONCE):
            lots = load_lots(
                self._context,
                self._table,
                self._rules,
                unclean[start : start + AT_ONCE],
                writes=True,
            )
            by_id = {lot.task.task_id: lot for lot in lots}
            for result in run_lots(self._context, lots):
                self._clean_one(by_id[result.staging_object_id].key, result)

    def _clean_one(self, key: str, result: CleanResult) -> None:
        if result.failure is not None:
            if not self._is_gone(key):
                self._note(result.failure.message, transient=result.failure.transient)
                return
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                quarantine_cleaning.mark_gone(connection, self._erasure.erasure_id, result.staging_object_id, key)
            self.done.lots += 1
            return
        failpoint("erase.before_commit_lines")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            number = self._erasure.erasure_id
            done = quarantine_cleaning.record_cleaning(connection, number, key, result)
            if result.erased or result.withheld:
                erasures.add_sources(connection, [(number, result.staging_object_id, result.erased > 0)])
            failpoint("erase.in_commit_lines")
        self.done.lots += done
        self.done.overtaken += not done

    def _is_gone(self, key: str) -> bool:
        """Whether an object with lines is not there, as after PostgreSQL was set back, while its bucket is."""
        self._context.stores.check_bucket(self._context.lake.bucket)
        try:
            self._context.stores.head(self._context.lake.bucket, key)
        except ObjectMissing:
            return True
        return False


def put_live_copies(context: StageContext, table: TableDefinition, lease: Lease) -> int:
    """Puts rewritten objects of open days over the ones that readers list; how many. Repeating it does nothing more.

    Days that a repair is at are left to the next call.
    """
    with context.database.begin() as connection:
        waiting = live_copies.load_uncopied(connection, table.table_id)
    done = 0
    for partition_id, found in groupby(waiting, key=itemgetter(0)):
        with leased(context, LeaseKind.REPAIR, [partition_id]) as held:
            if partition_id in held:
                done += sum(_put_live_copy(context, table, lease, *one) for one in found)
    return done


def _put_live_copy(
    context: StageContext, table: TableDefinition, lease: Lease, partition_id: int, object_id: int
) -> bool:
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        (item,) = small_objects.load_above(connection, keys, partition_id, object_id - 1, 1)

    def is_wanted(connection: Connection) -> bool:
        leases.hold(connection, lease)
        copied = live_copies.live_revision(connection, item.object_id, item.revision)
        return copied is not None and copied < item.revision

    if not put_copy(context, keys, item, is_wanted):
        return False
    with context.database.begin() as connection:
        leases.hold(connection, lease)
        live_copies.record_copy(connection, item.object_id, item.revision)
    return True


def _facts(written: DataFile) -> dict[str, Any]:
    names = (
        "key", "content_length", "row_count", "fingerprint", "file_format", "metrics", "rows_erased",
        "erased_fingerprint",
    )  # fmt: skip
    return {name: getattr(written, name) for name in names}

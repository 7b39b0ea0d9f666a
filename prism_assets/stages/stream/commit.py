"""Ends batches of Stream: commits results in one transaction, or gives each object of a dead batch a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from prism_assets.domain.problems import Problem
from prism_assets.domain.streams.attempts import (
    AttemptPolicy,
    GiveUp,
    Verdict,
    after_death,
    after_failure,
    after_lost_engine,
    after_rewrite,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drift import FieldKind, SeenField, summed
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertResult, ConvertTask, SourceVersion
from prism_assets.failpoints import failpoint
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import merge_jobs, small_objects
from prism_assets.metadata.intake import abandoned_uploads, attempts, batches, claims, quarantine, staging_objects
from prism_assets.metadata.intake.attempts import ChangedObject, FailedAttempt
from prism_assets.metadata.intake.claims import ClaimedObject
from prism_assets.metadata.tables import undefined_fields
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.plan import StreamPlan
from prism_assets.stages.stream.report import (
    PartitionChange,
    StreamReport,
    TableLines,
    sum_changes,
    sum_lines,
    sum_reasons,
)
from prism_assets.stages.stream.source_tasks import SourceTasks
from prism_assets.stages.stream.uploads import upload_of

_REWRITTEN = "it was written again before it was read"
_WITNESSES = 5
"""A refused object differs from a store that serves nothing if one of this many converted objects is still readable."""


@dataclass
class _SortedResults:
    """Results of a batch by outcome."""

    done: list[ConvertResult] = field(default_factory=list)
    changed: list[ChangedObject] = field(default_factory=list)
    failed: list[FailedAttempt] = field(default_factory=list)

    @property
    def given_up(self) -> list[tuple[int, str, GiveUp]]:
        """Objects given up, with reason and verdict."""
        failed = [(item.staging_object_id, item.error, item.verdict) for item in self.failed]
        changed = [(item.staging_object_id, item.reason, item.verdict) for item in self.changed]
        return [(number, why, verdict) for number, why, verdict in failed + changed if isinstance(verdict, GiveUp)]

    def converted_again(self, plan: StreamPlan) -> list[int]:
        """Returns converted objects of a later generation. An earlier one, as before a replay, may have lines in
        quarantine.
        """
        return [result.staging_object_id for result in self.done if plan.task(result).generation]

    @property
    def abandoned(self) -> list[int]:
        """Objects with useless uploads: given up or restarted."""
        changed = {item.staging_object_id for item in self.changed}
        return sorted(changed | {number for number, _, _ in self.given_up})


def commit_batch(
    context: StageContext, plan: StreamPlan, results: Sequence[ConvertResult], now: datetime
) -> StreamReport:
    """Commits a batch in one transaction: batch row, partition rows in id order, then the small objects.

    A death before the commit leaves keys that the retry writes again byte by byte. A death after it loses nothing.
    Objects to delete from S3 are only noted here: see `uploads`.
    """
    outcome = _sort_out(plan, results, serving_buckets(context, plan, results), policy_of(context))
    written = [(plan.task(result).table_id, small) for result in outcome.done for small in result.objects]
    batch_id = plan.batch.batch_id
    with context.database.begin() as connection:
        batches.lock_running(connection, plan.batch)
        partition_ids = partitions.ensure_and_lock(connection, {(table, small.date) for table, small in written})
        failpoint("stream.in_commit")
        highest = small_objects.insert_small_objects(
            connection, [(partition_ids[table, small.date], small) for table, small in written]
        )
        failpoint("stream.after_insert")
        partitions.raise_last_object(connection, highest)
        staging_objects.finish(connection, batch_id, outcome.done)
        quarantine.forget_quarantine(connection, outcome.converted_again(plan))
        quarantine.insert_quarantine(connection, outcome.done)
        attempts.fail_attempts(connection, batch_id, outcome.failed)
        attempts.take_up_versions(connection, batch_id, outcome.changed)
        abandoned_uploads.abandon_uploads(connection, [plan.upload(number) for number in outcome.abandoned])
        _schedule_merges(connection, plan, partition_ids, now)
        undefined_fields.count_fields(connection, _seen_fields(plan, outcome.done), now)
        erasures.add_sources(connection, _erased_sources(plan, outcome.done))
        batches.finish_batch(connection, plan.batch)
    return _report(plan, outcome)


def policy_of(context: StageContext) -> AttemptPolicy:
    """Returns the limits of attempts from the settings."""
    return AttemptPolicy(max_attempts=context.settings.max_attempts, max_refusals=context.settings.max_refusals)


def serving_buckets(context: StageContext, plan: StreamPlan, results: Sequence[ConvertResult]) -> frozenset[str]:
    """Returns buckets that refused an object of the batch and serve others: the fault lies with the object.

    If no other object of the batch was read, a converted one is requested. Runs before the transaction.
    """
    refused, read = set[str](), set[str]()
    for result in results:
        if result.failure is None or (result.failure.at_source and not result.failure.transient):
            read.add(plan.task(result).bucket)
        elif result.failure.at_source:
            refused.add(plan.task(result).bucket)
    return frozenset(bucket for bucket in refused if bucket in read or _serves(context, bucket))


def _serves(context: StageContext, bucket: str) -> bool:
    """Whether the bucket serves a converted object, or reports it as deleted, because buckets are cleaned up."""
    with context.database.begin() as connection:
        keys = staging_objects.keys_of_converted(connection, bucket, _WITNESSES)
    return any(context.stores.serves(bucket, key, if_missing=True) for key in keys)


def _sort_out(
    plan: StreamPlan, results: Sequence[ConvertResult], serving: Collection[str], policy: AttemptPolicy
) -> _SortedResults:
    outcome = _SortedResults()
    for result in results:
        item = plan.claimed[result.staging_object_id]
        if result.changed is not None:
            outcome.changed.append(_changed_object(item, result.changed, _REWRITTEN, policy))
        elif result.failure is not None and result.failure.occupied:
            version = _version_read(plan.task(result))
            outcome.changed.append(_changed_object(item, version, result.failure.message, policy))
        elif result.failure is not None:
            verdict = after_failure(
                result.failure,
                attempts=item.attempts,
                outages=item.outages,
                policy=policy,
                source_serves_others=item.bucket in serving,
            )
            outcome.failed.append(
                FailedAttempt(staging_object_id=item.staging_object_id, error=result.failure.message, verdict=verdict)
            )
        else:
            outcome.done.append(result)
    return outcome


def _changed_object(item: ClaimedObject, version: SourceVersion, reason: str, policy: AttemptPolicy) -> ChangedObject:
    verdict = after_rewrite(rewrites=item.rewrites, policy=policy)
    return ChangedObject(staging_object_id=item.staging_object_id, version=version, reason=reason, verdict=verdict)


def _version_read(task: ConvertTask) -> SourceVersion:
    """Returns the version read by this attempt. Its keys have other rows, so the object restarts with others."""
    return SourceVersion(etag=task.etag, content_length=task.content_length, last_modified=task.sent)


def _seen_fields(plan: StreamPlan, done: Sequence[ConvertResult]) -> list[SeenField]:
    return summed(
        SeenField(
            table_id=task.table_id,
            key=field.key,
            within=field.within,
            kind=FieldKind(field.kind),
            count=field.count,
            bucket=task.bucket,
            object_key=task.key,
            line=field.line,
        )
        for result in done
        for task in (plan.task(result),)
        for field in result.undefined
    )


def _erased_sources(plan: StreamPlan, done: Sequence[ConvertResult]) -> list[tuple[int, int, bool]]:
    """Returns objects with erased lines, per erasure. With several erasures it is unknown which one matched."""
    return [
        (rule.erasure_id, result.staging_object_id, len(rules) == 1)
        for result in done
        if result.lines_erased
        for rules in (plan.task(result).erasures,)
        for rule in rules
    ]


def _schedule_merges(
    connection: Connection, plan: StreamPlan, partition_ids: Mapping[tuple[int, date], int], now: datetime
) -> None:
    """Schedules a merge of each touched partition after the table's interval; a waiting merge serves this batch too."""
    intervals = {table_id: table.merge.interval for (table_id, _), table in plan.definitions.items()}
    by_interval: dict[int, list[int]] = {}
    for (table_id, _), partition_id in partition_ids.items():
        by_interval.setdefault(intervals[table_id], []).append(partition_id)
    for interval, ids in by_interval.items():
        merge_jobs.schedule(connection, ids, now + timedelta(seconds=interval))


def _report(plan: StreamPlan, outcome: _SortedResults) -> StreamReport:
    changes = [
        PartitionChange(
            table_id=plan.task(result).table_id,
            date=small.date,
            objects=1,
            delayed_objects=int(small.delayed),
            rows=small.row_count,
            bytes=small.content_length,
        )
        for result in outcome.done
        for small in result.objects
    ]
    return StreamReport(
        batches=1,
        batch_ids=(plan.batch.batch_id,),
        objects=len(outcome.done),
        lines_in=sum(result.lines_in for result in outcome.done),
        rows_out=sum(result.rows_out for result in outcome.done),
        quarantined=sum(result.lines_quarantined for result in outcome.done),
        filtered=sum(result.lines_filtered for result in outcome.done),
        elsewhere=sum(result.lines_elsewhere for result in outcome.done),
        unfit_values=sum(error.count for result in outcome.done for error in result.value_errors),
        small_objects=len(changes),
        bytes_in=sum(task.content_length for task in plan.tasks),
        retried=len(outcome.failed) + len(outcome.changed) - len(outcome.given_up),
        problems=tuple(
            _problem(plan.table(number), plan.claimed[number], why, verdict)
            for number, why, verdict in outcome.given_up
        ),
        changes=sum_changes(changes),
        lines=sum_lines(
            TableLines(
                table_id=plan.task(result).table_id,
                lines_in=result.lines_in,
                quarantined=result.lines_quarantined,
                filtered=result.lines_filtered,
                elsewhere=result.lines_elsewhere,
                reasons=sum_reasons((count.reason, count.line_count) for count in result.quarantined),
            )
            for result in outcome.done
        ),
    )


def _problem(table: TableDefinition, source: ClaimedObject, why: str, verdict: GiveUp) -> Problem:
    again = "" if verdict.retry_after is None else "; it is tried again by itself"
    return Problem(table=str(table.name), reason=f"gave up s3://{source.bucket}/{source.key}: {why}{again}")


def reclaim_expired(context: StageContext) -> StreamReport:
    """Declares batches with lost leases dead, and returns their objects to the pending ones or gives them up.

    One transaction: a death in it leaves the batch unchanged. After it, the batch's own commit fails.
    """
    with context.database.begin() as connection:
        dead = {item.batch_id: item for item in batches.declare_dead(connection, context.settings.lease_seconds)}
        held: dict[int, list[ClaimedObject]] = {}
        for batch_id, item in claims.load_of_batches(connection, dead):
            held.setdefault(batch_id, []).append(item)
        report = StreamReport()
        for batch_id, objects in held.items():
            alone = len(objects) == 1
            proven = dead[batch_id].probed or (alone and batches.has_finished_after(connection, batch_id))
            message = f"the worker of batch {batch_id} died or stood still"
            decide = partial(after_death, proven=proven, noticed_late=True, policy=policy_of(context))
            report += _charge(connection, batch_id, objects, message, decide)
    return report


def charge_batch(context: StageContext, plan: StreamPlan, message: str, *, proven: bool = False) -> StreamReport:
    """Ends one's own batch that cannot be committed, and charges its objects like a worker's death.

    `proven` if only the objects can be the cause, or if the engine worked just before.
    """
    decide = partial(after_death, proven=proven, noticed_late=False, policy=policy_of(context))
    return _end_charged(context, plan, message, decide)


def charge_lost_engine(context: StageContext, plan: StreamPlan, message: str, *, proven: bool) -> StreamReport:
    """Ends one's own batch after its engine disappeared. `proven` if the engine worked just before."""
    return _end_charged(context, plan, message, partial(after_lost_engine, proven=proven, policy=policy_of(context)))


def release_batch(context: StageContext, plan: StreamPlan) -> None:
    """Returns the objects of one's own batch without a charge, after a fault of something else."""
    with context.database.begin() as connection:
        if batches.end_as_dead(connection, plan.batch):
            attempts.release(connection, plan.batch.batch_id)


_Decide = Callable[..., Verdict]
"""Returns the verdict on an object after `attempts`, with `companions` other objects in its batch."""


def _end_charged(context: StageContext, plan: StreamPlan, message: str, decide: _Decide) -> StreamReport:
    batch_id = plan.batch.batch_id
    with context.database.begin() as connection:
        if not batches.end_as_dead(connection, plan.batch):
            return StreamReport()
        objects = [item for _, item in claims.load_of_batches(connection, [batch_id])]
        return _charge(connection, batch_id, objects, message, decide)


def _charge(
    connection: Connection, batch_id: int, objects: Sequence[ClaimedObject], message: str, decide: _Decide
) -> StreamReport:
    """Gives each object of a batch without a commit its verdict."""
    companions = len(objects) - 1
    error = f"{message}, with {counted(companions, 'other object')}" if companions else f"{message} over it alone"
    failed = [
        FailedAttempt(
            staging_object_id=item.staging_object_id,
            error=error,
            verdict=decide(attempts=item.attempts, companions=companions),
        )
        for item in objects
    ]
    attempts.fail_attempts(connection, batch_id, failed)
    given_up = {item.staging_object_id: item.verdict for item in failed if isinstance(item.verdict, GiveUp)}
    sources = [item for item in objects if item.staging_object_id in given_up]
    table_of = note_abandoned(connection, sources)
    problems = [
        _problem(table_of[item.staging_object_id], item, error, given_up[item.staging_object_id]) for item in sources
    ]
    return StreamReport(reclaimed=len(objects), problems=tuple(problems))


def note_abandoned(connection: Connection, items: Sequence[ClaimedObject]) -> dict[int, TableDefinition]:
    """Notes possible uploads of unfinished attempts for removal. Returns the definitions, by object."""
    if not items:
        return {}
    sources = SourceTasks.load(connection, items)
    uploads = [upload_of(sources.task(item, frozenset()), sources.table(item)) for item in items]
    abandoned_uploads.abandon_uploads(connection, uploads)
    return {item.staging_object_id: sources.table(item) for item in items}

"""Starts batches of Stream: claims objects, and takes the snapshot that decides on the tier of their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.tables.accepted import DateRange, accepted_days
from prism_assets.domain.tables.definition import Definitions, TableDefinition
from prism_assets.domain.work.convert import ConvertResult, ConvertTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import locks
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.intake import batches, claims
from prism_assets.metadata.intake.abandoned_uploads import AbandonedUpload
from prism_assets.metadata.intake.batches import Batch
from prism_assets.metadata.intake.claims import EVERYTHING, ClaimedObject, Wanted
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.source_tasks import SourceTasks
from prism_assets.stages.stream.uploads import upload_of


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """One batch: its claimed objects, their tasks, and the definitions of these."""

    batch: Batch
    claimed: Mapping[int, ClaimedObject]
    tasks: tuple[ConvertTask, ...]
    definitions: Definitions

    @property
    def holds_suspects(self) -> bool:
        """Whether an earlier batch died with objects of this one."""
        return any(item.batch_limit is not None for item in self.claimed.values())

    def task(self, result: ConvertResult) -> ConvertTask:
        """Returns the task of a result."""
        return self._by_id[result.staging_object_id]

    def table(self, staging_object_id: int) -> TableDefinition:
        """Returns the definition an object is converted under."""
        task = self._by_id[staging_object_id]
        return self.definitions[task.table_id, task.definition_version]

    def upload(self, staging_object_id: int) -> AbandonedUpload:
        """Returns the possible uploads of attempts for an object."""
        return upload_of(self._by_id[staging_object_id], self.table(staging_object_id))

    @cached_property
    def _by_id(self) -> Mapping[int, ConvertTask]:
        return {task.staging_object_id: task for task in self.tasks}


def start_batch(
    context: StageContext, table_ids: Collection[int] | None, wanted: Wanted = EVERYTHING
) -> StreamPlan | None:
    """Claims wanted pending objects, and takes the snapshot that decides on their tiers and their erasures.

    Returns None if none is pending.

    A later erasure finds earlier batches by their ids, and waits until they have ended. One transaction: a death in it
    claims nothing. After it, the objects wait for the end of this batch's lease.
    """
    size = context.batch_size
    with context.database.begin() as connection:
        locks.share_epoch(connection)
        batch = batches.insert_batch(connection, context.worker)
        claimed = claims.claim_pending(connection, batch.batch_id, table_ids, size.objects, size.bytes, wanted)
        if not claimed:
            connection.rollback()
            return None
        sources = SourceTasks.load(connection, claimed)
        rules = erasures.load_rules(connection, {item.table_id for item in claimed})
        tasks = {item.staging_object_id: sources.task(item, frozenset()) for item in claimed}
        accepted = {
            item.staging_object_id: accepted_days(sources.table(item), tasks[item.staging_object_id])
            for item in claimed
        }
        marks = partitions.closing_marks(connection, _days_by_table(claimed, accepted))
        failpoint("stream.in_start")
    failpoint("stream.after_start")
    return StreamPlan(
        batch=batch,
        claimed={item.staging_object_id: item for item in claimed},
        tasks=tuple(
            replace(
                tasks[item.staging_object_id],
                delayed_dates=_delayed(item, accepted[item.staging_object_id], marks.get(item.table_id, {})),
                metric_columns=sources.table(item).metric_columns,
                erasures=_respected(item, rules),
            )
            for item in claimed
        ),
        definitions=sources.definitions,
    )


def _respected(item: ClaimedObject, rules: Mapping[int, tuple[ErasureRule, ...]]) -> tuple[ErasureRule, ...]:
    """Returns erasures older than the object's first claim. A later one rewrites the rows of this batch."""
    return tuple(rule for rule in rules.get(item.table_id, ()) if rule.erasure_id <= item.respected_erasure_id)


def _days_by_table(claimed: Collection[ClaimedObject], accepted: Mapping[int, DateRange]) -> dict[int, DateRange]:
    """Returns the range of accepted days of each table's objects."""
    found: dict[int, DateRange] = {}
    for item in claimed:
        own = accepted[item.staging_object_id]
        others = found.get(item.table_id, own)
        found[item.table_id] = DateRange(min(own.first, others.first), max(own.last, others.last))
    return found


def _delayed(item: ClaimedObject, accepted: DateRange, marks: Mapping[date, int]) -> frozenset[date]:
    """Returns days whose rows go to the delayed tier: marked before the object's first claim. Depends only on the
    snapshot.

    Only days accepted for the object count, because a table has more closed days than a task should carry.
    """
    return frozenset(day for day in accepted if day in marks and item.first_batch_id > marks[day])

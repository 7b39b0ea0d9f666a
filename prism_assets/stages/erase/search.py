"""Finds the objects of a table with rows of erasures: first by column metrics, then by tasks that read the objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from prism_assets.domain.days.partitions import Partition, needed_above
from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.files.data_file import DataFile, MergedRange, SmallObject
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.tables.definition import TableDefinition, by_version
from prism_assets.domain.work.redact import RedactResult, RedactTask
from prism_assets.domain.work.repair import RepairTask
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.intake import claims, redactions
from prism_assets.metadata.records import folds
from prism_assets.metadata.tables import tables
from prism_assets.stages.bisect import run_bisected
from prism_assets.stages.context import StageContext
from prism_assets.stages.repair.plan import source_of
from prism_assets.stages.stream.source_tasks import SourceTasks

AT_ONCE = 500
"""Objects per job."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An object that readers or merges need, and that may hold rows of an erasure."""

    partition: Partition
    file: SmallObject | MergedRange

    @property
    def counts(self) -> bool:
        """Whether to count its rows. Rows of a small object covered by a range are counted in the range."""
        return isinstance(self.file, MergedRange) or self.file.object_id > self.partition.desired_version

    def version(self, table: TableDefinition) -> int:
        """Returns the definition version of the rewritten object: of a merged object the current one, of a small one
        its own.
        """
        return table.version if isinstance(self.file, MergedRange) else self.file.definition_version

    def key_of(self, keys: TableKeys, rewrite_id: int) -> str:
        """Returns the object's key in a rewrite."""
        file, day = self.file, self.partition.date
        if isinstance(file, MergedRange):
            return keys.merged_object(day, file.lower_bound, file.upper_bound, rewrite_id)
        number, generation = file.staging_object_id, file.generation
        return keys.small_object(day, number, delayed=file.delayed, generation=generation, rewrite_id=rewrite_id)


@dataclass
class Candidates:
    """Objects of a table by their state."""

    to_read: list[Candidate] = field(default_factory=list)
    """To be searched, and rewritten if they hold matching rows."""
    open_days: list[Candidate] = field(default_factory=list)
    """Objects of open days. Readers list them, so they are rewritten after the close of their day."""
    excluded: list[Candidate] = field(default_factory=list)
    """Objects without matching rows by their column metrics."""


def load_candidates(
    context: StageContext,
    table: TableDefinition,
    rules: Sequence[ErasureRule],
    *,
    before_erasure: int | None,
    partition_ids: Collection[int] | None = None,
) -> Candidates:
    """Returns needed objects of a table that were not yet searched for an erasure, or all needed objects.

    `partition_ids` limits them to these days.

    In a log of changes, folds still need small objects above their position. Each partition is read in its own
    transaction. Later commits are found by the next call.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        found = partitions.load_table_partitions(connection, table.table_id)
    candidates = Candidates()
    for item in found:
        partition_id = item.partition_id
        if partition_ids is not None and partition_id not in partition_ids:
            continue
        with context.database.begin() as connection:
            (partition,) = partitions.load_partitions(connection, [partition_id]).values()
            if partition.expired:  # no reader sees the day, and garbage collection deletes all its objects
                continue
            chain = merge_ranges.load_chain(connection, keys, partition_id)
            above = needed_above(partition)
            if table.change_log is not None:
                above = min(above, folds.load_positions(connection, [partition_id]).get(partition_id, 0))
            objects = small_objects.load_above(connection, keys, partition_id, above, before_erasure=before_erasure)
        ranges = [entry for entry in chain if before_erasure is None or entry.erasure_id < before_erasure]
        files: tuple[SmallObject | MergedRange, ...] = (*ranges, *objects)
        others = candidates.open_days if partition.is_open else candidates.to_read
        for file in files:
            excluded = all(is_excluded(rule, file) for rule in rules)
            to = candidates.excluded if excluded else others
            to.append(Candidate(partition=partition, file=file))
    return candidates


def is_excluded(rule: ErasureRule, file: DataFile) -> bool:
    """Whether the column metrics of an object prove that no row of it matches."""
    metrics = {column.column_id: column for column in file.metrics}
    for wanted in rule.values:
        known = metrics.get(wanted.column_id)
        if known and (known.nulls == file.row_count or wanted.lie_outside(known.lower, known.upper)):
            return True
    return False


def rewrite_tasks(
    context: StageContext,
    table: TableDefinition,
    rules: Sequence[ErasureRule],
    candidates: Sequence[Candidate],
    numbers: Sequence[int] | None,
) -> list[WriteTask]:
    """Returns tasks that search objects, in their order.

    With `numbers` they also rewrite them, each under its number.
    """
    keys = context.lake.keys(table)
    return [
        WriteTask(
            number=number,
            inputs=(as_read(candidate.file),),
            erasures=tuple(rules),
            table_id=table.table_id,
            definition_version=candidate.version(table),
            output_key=None if numbers is None else candidate.key_of(keys, numbers[number]),
            object_type="merged" if isinstance(candidate.file, MergedRange) else "delayed",
            metric_columns=table.metric_columns,
        )
        for number, candidate in enumerate(candidates)
    ]


def with_sources(
    context: StageContext, table: TableDefinition, tasks: Sequence[WriteTask], objects: Mapping[int, SmallObject]
) -> list[WriteTask]:
    """Returns tasks that remake their small object if it is missing or damaged.

    `objects` are given by number of the task.
    """
    numbers = {item.staging_object_id for item in objects.values()}
    with context.database.begin() as connection:
        items = claims.load_claimed(connection, numbers)
        rules = erasures.load_rules(connection, [table.table_id]).get(table.table_id, ())
        versions: dict[int, set[int]] = {}
        for item in objects.values():
            versions.setdefault(item.staging_object_id, set()).add(item.definition_version)
        sources = SourceTasks.load(connection, items.values(), versions)
    made = []
    for task in tasks:
        known = objects[task.number]
        source = source_of(sources, items[known.staging_object_id], [known], rules)
        made.append(replace(task, remade_from=RepairTask(source=source, recorded=(replace(known, metrics=()),))))
    return made


def as_read(file: DataFile) -> DataFile:
    """Returns an object of any kind in the form that kernels read: without its place in the table, without metrics."""
    return DataFile(
        bucket=file.bucket,
        key=file.key,
        content_length=file.content_length,
        row_count=file.row_count,
        fingerprint=file.fingerprint,
        min_time=file.min_time,
        max_time=file.max_time,
        file_format=file.file_format,
        rows_erased=file.rows_erased,
        erased_fingerprint=file.erased_fingerprint,
    )


def run_rewrites(context: StageContext, table: TableDefinition, tasks: Sequence[WriteTask]) -> Iterator[WriteResult]:
    """Runs tasks as one job. A task that kills the job ends up alone."""
    with context.database.begin() as connection:
        known = tables.load_versions(connection, {(task.table_id, task.definition_version) for task in tasks})
    return run_bisected(context.engine, tasks, {**known, **by_version(table)})


@dataclass(frozen=True, kw_only=True)
class QuarantinedLines:
    """The quarantined lines of one staging object, and the task that looks through them."""

    key: str
    task: RedactTask


def load_quarantined(
    context: StageContext,
    table: TableDefinition,
    rules: Sequence[ErasureRule],
    found: Collection[tuple[int, str]],
    rewrite_id: int | None = None,
) -> list[QuarantinedLines]:
    """Returns tasks for quarantined lines, given as (staging object id, key).

    Remaining lines are written only by a rewrite.
    """
    keys = context.lake.keys(table)
    with context.database.begin() as connection:
        sources = claims.load_claimed(connection, {number for number, _ in found})
        begun = [item for item in sources.values() if item.definition_version is not None]
        tasks = SourceTasks.load(connection, begun, {item.staging_object_id: [table.version] for item in begun})
    quarantined = []
    for number, key in sorted(found):
        # A restarted object has no definition. The next batch reads it again, and quarantines lines by current rules.
        if number not in sources or sources[number].definition_version is None:
            continue
        item = sources[number]
        source = replace(tasks.task(item, frozenset()), erasures=tuple(rules))
        present = None if item.definition_version == table.version else tasks.other(item, table.version)
        named = keys.parse(key)
        arrival: date = getattr(named, "date", source.received.date())
        output = keys.quarantine(arrival, number, source.generation, rewrite_id) if rewrite_id else None
        quarantined.append(
            QuarantinedLines(key=key, task=RedactTask(source=source, key=key, present=present, output_key=output))
        )
    return quarantined


def run_redactions(context: StageContext, quarantined: Sequence[QuarantinedLines]) -> Iterator[RedactResult]:
    """Runs the tasks of quarantined lines as one job."""
    with context.database.begin() as connection:
        versions = {(item.task.table_id, item.task.definition_version) for item in quarantined}
        definitions = tables.load_versions(connection, versions)
    return run_bisected(context.engine, [item.task for item in quarantined], definitions)


def load_unsearched_lines(context: StageContext, table: TableDefinition, erasure_id: int) -> list[tuple[int, str]]:
    """Returns quarantined lines not yet searched for an erasure, as (staging object id, key)."""
    with context.database.begin() as connection:
        found = redactions.load_unsearched_lines(connection, table.table_id, erasure_id)
    return sorted(found.items())

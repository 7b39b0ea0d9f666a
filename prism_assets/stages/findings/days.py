"""The life of days: the next step of each day, and its obstacle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prism_assets.domain.days.lifecycle import (
    Publish,
    Step,
    WaitForDayEnd,
    WaitForHistory,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    catalog_due,
    next_steps,
    work_for_a_run,
)
from prism_assets.domain.days.partitions import SYMLINK, Partition
from prism_assets.domain.days.publishers import wanted_publishers, words_of
from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.days import catalog_state, publications
from prism_assets.stages.catalog.candidates import load_candidates
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.findings.subject import Look, Subject


def find_days(look: Look) -> Iterator[Finding]:
    """Days with a step left. `next_steps` decides the sentence of each."""
    tables = {table.table_id: table for table in look.tables}
    for partition in look.partitions:
        if table := tables.get(partition.table_id):
            yield from find_day(look, table, partition)
    linked = [table for table in look.tables if SYMLINK in wanted_publishers(table)]
    if linked and look.loaded is None:
        shown = catalog_state.load_publishers(look.connection, list(look.names))
        linked = [table for table in linked if SYMLINK in shown.get(table.table_id, ())]
    if linked:
        yield from _behind_for_symlinks(look, {table.table_id: table for table in linked})


def find_day(look: Look, table: TableDefinition, partition: Partition) -> Iterator[Finding]:
    """A first publication alone; otherwise the first step, and a due publication."""
    steps = next_steps(partition, StoredFacts(look.connection, table, for_people=look.for_people), look.now)
    is_first = any(isinstance(step, Publish) and step.before is None for step in steps)
    if is_first and (move := work_for_a_run(steps)):
        yield _next_run(table, partition, move.action, "become readable")
    for position, step in enumerate(steps):
        if (
            look.for_people
            and isinstance(step, WaitForMerge)
            and (finding := _unswitched(look, table, partition, step))
        ):
            yield finding
        elif position == 0 and not is_first and not isinstance(step, Publish):
            yield _awaited(table, partition, step)
    if any(isinstance(step, Publish) and step.before and not step.follows for step in steps):
        yield _next_run(table, partition, Publish.action, "publish what is new")


def _awaited(table: TableDefinition, partition: Partition, step: Step) -> Finding:
    match step:
        case WaitForDayEnd():
            return _waits(table, partition, "day_end", f"the end of its day at {step.ends:%Y-%m-%d %H:%M}Z")
        case WaitForHistory() | WaitForObjects():
            return _waits(table, partition, "close", f"the close: {step.reason}")
        case WaitForMerge():
            return _waits(table, partition, "switch", f"the switch: {step.reason}")
        case WaitToExpire():
            return _waits(table, partition, "expire", f"the end of its retention: {step.reason}")
        case _:
            return _next_run(table, partition, step.action, step.action)


def _waits(table: TableDefinition, partition: Partition, kind: str, what: str) -> Finding:
    return Finding(
        kind=kind,
        table=str(table.name),
        date=partition.date,
        says=f"waits for {what}",
        acts=Acts.TIME,
        ends_runs=False,
    )


def _next_run(table: TableDefinition, partition: Partition, kind: str, what: str) -> Finding:
    return Finding(
        kind=kind,
        table=str(table.name),
        date=partition.date,
        says=f"waits for the next catalog run, to {what}",
        acts=Acts.RUN,
        ends_runs=False,
    )


def _unswitched(look: Look, table: TableDefinition, partition: Partition, step: WaitForMerge) -> Finding | None:
    """A closed day without a way to the switch: the rows contradict each other, or no merge is scheduled."""
    if step.is_contradiction:
        kind, invariant, says = "unequal_ranges", "I5", step.reason
        remedy = "Keep all objects, and report it: readers miss nothing"
    elif all(job.partition_id != partition.partition_id for job in look.jobs):
        kind, invariant, says = "never_merged", "I10", f"{step.reason}, and no merge is scheduled"
        remedy = f"Run `prism merge --all --table {table.name} --date {partition.date}`"
    else:
        return None
    return Finding(
        kind=kind,
        table=str(table.name),
        date=partition.date,
        says=f"waits for the switch: {says}",
        remedy=remedy,
        invariant=invariant,
    )


def _behind_for_symlinks(look: Look, tables: Mapping[int, TableDefinition]) -> Iterator[Finding]:
    """Days with outdated symlinks, of the tables by id."""
    if look.loaded is None:
        found = load_candidates(look.connection, list(tables.values()), look.now, SYMLINK)
    else:
        of_tables = [item for item in look.loaded if item.table_id in tables]
        found = publications.as_shown_by(look.connection, SYMLINK, of_tables)
    for item in found:
        if due := catalog_due(item):
            yield _next_run(tables[item.table_id], item, due.action, f"be shown {words_of(SYMLINK).shown} as it is")


DAYS = Subject(find=find_days, runs="catalog")

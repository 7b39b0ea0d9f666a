"""Loads the facts for a plan from PostgreSQL: current definitions, stored columns, and costs of changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.columns.change_kinds import WidenColumn
from prism_assets.domain.columns.changes import (
    StoredColumns,
    depends_on_rows,
    erased_by,
    followed_columns,
    gone_columns,
)
from prism_assets.domain.columns.part_changes import reused_names
from prism_assets.domain.columns.transitions import flip_outlook
from prism_assets.domain.days.partitions import SYMLINK
from prism_assets.domain.streams.prefix_changes import History
from prism_assets.domain.tables.changes import applied
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata import locks
from prism_assets.metadata.days import catalog_state, retention
from prism_assets.metadata.erasures import erasures
from prism_assets.metadata.intake import streams
from prism_assets.metadata.tables import column_transitions, drops, former_names, tables
from prism_assets.stages.apply.amplification import find_amplification
from prism_assets.stages.apply.names import TableNames
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan, plan_apply
from prism_assets.stages.apply.shared_prefixes import PrefixFacts, changed_prefixes, regrouped, with_whole_groups
from prism_assets.stages.context import StageContext


def load_plan(
    connection: Connection,
    files: Sequence[TableDefinition],
    *,
    accept_failing_reads: bool = False,
) -> ApplyPlan:
    """Compares the files with the current definitions."""
    former = former_names.load_former_names(connection)
    known = tables.load_definitions(connection)
    names = TableNames.of(files, known, former)
    stored = {
        old.table_id: _stored_columns(connection, table, old, accept_failing_reads=accept_failing_reads)
        for table in files
        if (old := names.old(table))
    }
    dropped = [drop.name for drop in drops.load_drops(connection)]
    linked = _linked_tables(connection, known)
    return plan_apply(files, known, streams.load_streams(connection), former, stored, dropped, linked)


def _linked_tables(connection: Connection, known: Sequence[TableDefinition]) -> set[int]:
    """Returns tables that a database shows by symlinks, or may show although their files no longer ask for it."""
    found = catalog_state.load_publishers(connection, [table.table_id for table in known])
    return {table_id for table_id, names in found.items() if SYMLINK in names}


def _stored_columns(
    connection: Connection,
    table: TableDefinition,
    old: TableDefinition,
    *,
    accept_failing_reads: bool,
) -> StoredColumns:
    """Loads facts about stored columns, each only if the plan depends on it.

    Objects are checked for names taken over by other columns. Erasures are loaded if a column, or a part of one, is
    removed. Whether a batch ever claimed an object matters only if stored rows decide on a change.
    """
    followed = followed_columns(table, old)
    ids = {column.name: followed[column.name].column_id if column.name in followed else 0 for column in table.columns}
    new = ids.keys() - {name for name, column in followed.items() if column.stored_name == name}
    used = new & tables.load_column_names(connection, old.table_id) if new else ()
    reused = [
        key
        for column in table.columns
        if (before := followed.get(column.name))
        for key in reused_names(column.type, before.type, before.column_id)
    ]
    wanted = {**{name: ids[name] for name in used}, **dict.fromkeys(reused, 0)}
    held = tables.load_held_names(connection, old.table_id, wanted)
    never_read = depends_on_rows(table, old) and _was_never_read(connection, old)
    known = StoredColumns(held, {}, never_read, accept_failing_reads)
    if not gone_columns(table, old, known):
        return known
    rules = erasures.load_rules(connection, [old.table_id]).get(old.table_id, ())
    named = [(rule.erasure_id, [column.column_id for column in rule.defined]) for rule in rules]
    return dataclasses.replace(known, erased_by=erased_by(named))


def _was_never_read(connection: Connection, old: TableDefinition) -> bool:
    """Whether no batch ever claimed an object of a table. If so, no batch starts until the change is done.

    A table with claimed objects does not make batches wait, because Dagster asks in each tick while a file is refused.
    """
    if not tables.was_never_read(connection, old.table_id):
        return False
    locks.hold_epoch(connection)
    return tables.was_never_read(connection, old.table_id)


def with_amplification(
    connection: Connection,
    plan: ApplyPlan,
    files: Sequence[TableDefinition],
    now: datetime,
    is_accepted: bool,
) -> ApplyPlan:
    """Adds notices and problems on the cost of unlimited record lifetimes."""
    of_files = {table.name: table for table in files}
    planned = [(of_files[item.name], item.old, bool(item.changes)) for item in plan.tables]
    cost = find_amplification(connection, planned, now, is_accepted=is_accepted)
    return dataclasses.replace(plan, problems=(*plan.problems, *cost.problems), notices=(*plan.notices, *cost.notices))


def with_consequences(context: StageContext, connection: Connection, plan: ApplyPlan, now: datetime) -> ApplyPlan:
    """Adds the rewrites caused by widened columns, and the expiry caused by a new retention."""
    plans = []
    for planned in plan.tables:
        lines = (*_rewritten(connection, planned), *_expired(context, connection, planned, now))
        plans.append(dataclasses.replace(planned, consequences=lines))
    return dataclasses.replace(plan, tables=tuple(plans))


def without_unseen_changes(connection: Connection, plan: ApplyPlan, files: Sequence[TableDefinition]) -> ApplyPlan:
    """Returns the plan without changes of shared prefixes that do not fit together, or that no ledger would show.

    If nobody has begun an object of a prefix, no batch starts until the change is done. Files without a change cost no
    statement.
    """
    if not any(planned.changes for planned in plan.tables):
        return plan
    known = tables.load_definitions(connection)
    places = regrouped(plan)
    past = _past(connection, plan, known, places)
    if any(not history.begun_by for records in past.values() for history in records.values()):
        locks.hold_epoch(connection)
        past = _past(connection, plan, known, places)
    return with_whole_groups(plan, PrefixFacts(known, files, past))


def _past(
    connection: Connection,
    plan: ApplyPlan,
    known: Sequence[TableDefinition],
    places: Collection[tuple[str, str]],
) -> dict[str, dict[str, History]]:
    """Returns the past of some prefixes, by URL and by the path to records."""
    names = {table.table_id: str(table.name) for table in known}
    names |= {item.old.table_id: str(item.name) for item in plan.tables if item.old is not None}
    begun: dict[int, set[str]] = {}
    for stream_id, table_id in streams.load_begun(connection, places) if places else ():
        begun.setdefault(stream_id, set()).add(names.get(table_id, "a dropped table"))
    found: dict[str, dict[str, History]] = {}
    for item in streams.load_streams(connection) if places else ():
        if (item.stream.bucket, item.stream.key_prefix) in places:
            of_url = found.setdefault(item.stream.url, {})
            earlier = of_url.get(item.records, History())
            of_url[item.records] = History(
                stream_ids=earlier.stream_ids | {item.stream_id},
                begun_by=earlier.begun_by | begun.get(item.stream_id, set()),
            )
    return found


def with_route_notices(connection: Connection, plan: ApplyPlan) -> ApplyPlan:
    """Adds what becomes of objects already read by tables with changed routes. Reads without locks."""
    changed = changed_prefixes(plan)
    concerned = {name for prefix in changed for name in prefix.before}
    read = {
        str(planned.name)
        for planned in plan.tables
        if planned.old is not None
        and str(planned.name) in concerned
        and not tables.was_never_read(connection, planned.old.table_id)
    }
    sentences = [prefix.sentence for prefix in changed if read & prefix.before.keys()]
    return dataclasses.replace(plan, notices=(*plan.notices, *sentences))


def _rewritten(connection: Connection, planned: TablePlan) -> Iterator[str]:
    """Describes the effect of widenings on objects, and on rows of open days."""
    begun = any(isinstance(change, WidenColumn) and change.widening for change in planned.changes)
    if not begun or not planned.old:
        return
    table = applied(planned.old, planned.changes)
    if table.is_copying:
        verb, left = "copy", column_transitions.load_left_to_copy(connection, table)
    else:
        verb, left = "rewrite", column_transitions.load_left_to_rewrite(connection, table.table_id, table.version + 1)
    if not left.is_empty:
        yield f"{verb} objects of {planned.name} with wider types: {left}"
    if table.is_copying:
        yield flip_outlook(str(planned.name), left)


def _expired(context: StageContext, connection: Connection, planned: TablePlan, now: datetime) -> Iterator[str]:
    """Yields a line on days that expire, with their rows."""
    table = applied(planned.old, planned.changes)
    oldest_kept = table.oldest_kept(now)
    if planned.old is None or oldest_kept is None or table.retention_days == planned.old.retention_days:
        return
    found = retention.count_older(connection, table.table_id, oldest_kept)
    if found.days:
        yield (
            f"expire {counted(found.days, 'day')} of {table.name} before {oldest_kept}, with "
            f"{counted(found.rows, 'row')}, at most "
            f"{context.settings.expire_max_days} days in each catalog run (PRISM_EXPIRE_MAX_DAYS)"
        )

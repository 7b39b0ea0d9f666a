"""Plans erasures: finds the objects, and counts matching rows. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from prism_assets.domain.erasures.records import HeldErasure
from prism_assets.domain.erasures.rules import ErasureRule, digest_of
from prism_assets.domain.errors import InvariantBroken, WrongUse
from prism_assets.domain.names import SECRET_PREFIX
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.folding import RecordPart
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.write import WriteTask
from prism_assets.metadata.erasures import erasure_records
from prism_assets.metadata.records import record_objects
from prism_assets.secret_references import secret_at
from prism_assets.stages.column_names import other_names
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.records import record_tasks
from prism_assets.stages.erase.report import ErasurePlan
from prism_assets.stages.erase.search import (
    AT_ONCE,
    is_excluded,
    load_candidates,
    load_quarantined,
    load_unsearched_lines,
    rewrite_tasks,
    run_redactions,
    run_rewrites,
)
from prism_assets.stages.erasure_records import compare_erasures

_PLANNED_ID = (1 << 63) - 1
"""The id of an erasure that is only planned. It is above all others, so nothing counts as searched for it."""


def plan_erasure(context: StageContext, name: str, where: str) -> ErasurePlan:
    """Returns the plan of an erasure. Changes nothing. Raises WrongUse for a predicate that cannot be used."""
    context.check_lake()
    compare_erasures(context)
    return plan_rules(context, rules_of(context, name, where))


def erased_together(context: StageContext, names: Collection[str] | None) -> list[TableDefinition]:
    """Returns the named tables, or all. For either table of a join table both are returned, because rows leave both."""
    chosen = context.choose_tables(names)
    if names is None:
        return chosen
    found = {item.table_id: item for table in chosen for item in _erased_with(context, str(table.name))}
    return list(found.values())


def _erased_with(context: StageContext, name: str) -> list[TableDefinition]:
    """Returns the tables that lose rows together: for either name of a join table, its records and their log of
    changes.
    """
    (table,) = context.choose_tables([name])
    if table.join is None and table.change_log is None:
        return [table]
    known = context.choose_tables(None)
    (records,) = [item for item in known if item.join and table.name in (item.name, log_name(item.name))]
    return [records, next(item for item in known if item.name == log_name(records.name))]


def rules_of(context: StageContext, name: str, where: str) -> list[tuple[TableDefinition, ErasureRule]]:
    """Returns the tables to erase from, each with its own rule. Raises WrongUse for a predicate that cannot be used.

    For a join table the predicate may only name columns of the key. All changes of a record have its key, while other
    columns stand in some of them only. So a record goes as a whole, and the remaining records still follow from the
    remaining changes.
    """
    tables = _erased_with(context, name)
    others = {table.table_id: other_names(context, table) for table in tables}
    if tables[0].join is not None:
        changes = tables[-1]
        own = context.make_erasure_rule(changes, where, others[changes.table_id])
        _check_key(tables[0], tables[0].join.key, own)
    return [(table, context.make_erasure_rule(table, where, others[table.table_id])) for table in tables]


def _check_key(table: TableDefinition, key: Sequence[str], rule: ErasureRule) -> None:
    others = [column.name for column in rule.defined if column.name not in key]
    if others:
        keys = ", ".join(key)
        raise WrongUse(
            f"--where names {', '.join(others)}, and records of {table.name} are erased as a whole, by columns of "
            f'their key alone ({keys}): find the keys first, such as by `prism query "SELECT DISTINCT {keys} FROM '
            f'{log_name(table.name)} WHERE ..."`, and erase by these, such as --where "{key[0]} IN (...)"'
        )


def plan_rules(context: StageContext, rules: Sequence[tuple[TableDefinition, ErasureRule]]) -> ErasurePlan:
    """Returns the plan for the table of the first rule. The plan of records contains that of their changes."""
    (table, rule), *others = rules
    digest = digest_of(table.name, rule, _digest_key(context))
    with context.database.begin() as connection:
        held = erasure_records.load_held(connection).get(table.table_id, ())
    missing = [item for item in held if item.is_missing]
    if not others:
        return replace(_plan_rows(context, table, rule, digest, skips_unread=bool(held)), notes=_notes(missing, digest))
    ((changes, own),) = others
    return replace(
        _plan_records(context, table, rule, digest),
        changes=_plan_rows(context, changes, own, digest, skips_unread=bool(held)),
        notes=_notes(missing, digest),
    )


def _notes(missing: Sequence[HeldErasure], digest: str) -> tuple[str, ...]:
    """Notes whether the predicate repeats an erasure missing from PostgreSQL."""
    repeated = [item for item in missing if item.record.digest == digest]
    if repeated:
        return (f"it repeats the erasure of {repeated[0].record.create_time:%Y-%m-%d %H:%M}Z, which PostgreSQL lacks",)
    return tuple(f"it does not repeat a missing erasure: {item}" for item in missing)


def _plan_records(context: StageContext, table: TableDefinition, rule: ErasureRule, digest: str) -> ErasurePlan:
    """Counts records in the objects that readers see or the next fold reads. Pending changes are not records."""
    with context.database.begin() as connection:
        shown = record_objects.load_unsearched(connection, context.lake.keys(table), table.table_id, _PLANNED_ID)
    unknown = [item for item in shown if not is_excluded(rule, item)]
    days = [None if item.part is RecordPart.PENDING else item.date for item in unknown]
    found = _search(context, table, record_tasks(context, table, [rule], unknown), days, skips_unread=True)
    rows = sum(item.row_count for item in shown if item.part is not RecordPart.PENDING)
    return found.plan(table, digest, rows=rows, objects=len(shown))


def _plan_rows(
    context: StageContext, table: TableDefinition, rule: ErasureRule, digest: str, *, skips_unread: bool
) -> ErasurePlan:
    """Counts matching rows in ranges, and in the small objects above them.

    After a restore PostgreSQL may name missing objects. With `skips_unread` they are only counted as unread, and the
    erasure itself deals with them.
    """
    shown = load_candidates(context, table, [rule], before_erasure=None)
    unknown = [*shown.to_read, *shown.open_days]
    days = [item.partition.date if item.counts else None for item in unknown]
    tasks = rewrite_tasks(context, table, [rule], unknown, None)
    found = _search(context, table, tasks, days, skips_unread=skips_unread)
    lines, withheld, unread = _count_lines(context, table, rule)
    found.unread += unread
    everything = (*shown.excluded, *unknown)
    rows = sum(item.file.row_count for item in everything if item.counts)
    plan = found.plan(table, digest, rows=rows, objects=len(everything), lines=lines, lines_withheld=withheld)
    open_days = {item.partition.date for item in shown.open_days} & plan.by_day.keys()
    return replace(plan, open_days={day: table.day_ends(day) for day in sorted(open_days)})


@dataclass
class _ErasureHits:
    """Matching rows and objects."""

    objects: int = 0
    content_length: int = 0
    read: int = 0
    unread: int = 0
    undecided: int = 0
    by_day: dict[date, int] = field(default_factory=dict)

    def plan(
        self, table: TableDefinition, digest: str, *, rows: int, objects: int, lines: int = 0, lines_withheld: int = 0
    ) -> ErasurePlan:
        """Returns the plan of a table, from its numbers of rows, objects and quarantined lines."""
        return ErasurePlan(
            table=str(table.name),
            digest=digest,
            rows=rows,
            matching=sum(self.by_day.values()),
            undecided=self.undecided,
            objects=self.objects,
            objects_searched=objects,
            objects_read=self.read,
            bytes_to_write=self.content_length,
            by_day=self.by_day,
            lines=lines,
            lines_withheld=lines_withheld,
            objects_unread=self.unread,
        )


def _search(
    context: StageContext,
    table: TableDefinition,
    tasks: Sequence[WriteTask],
    days: Sequence[date | None],
    *,
    skips_unread: bool,
) -> _ErasureHits:
    """Runs search tasks, numbered in order of `days`, and counts matching rows by day.

    Rows of objects without a day are counted elsewhere. Raises InvariantBroken for an unreadable object unless
    `skips_unread`.
    """
    found = _ErasureHits()
    for start in range(0, len(tasks), AT_ONCE):
        for result in run_rewrites(context, table, tasks[start : start + AT_ONCE]):
            if result.failure is not None and not skips_unread:
                raise InvariantBroken(f"{result.failure.message}: repair it, and repeat; nothing was erased")
            found.unread += result.failure is not None
            found.read += bool(result.row_groups_read)
            found.undecided += result.undecided
            if result.matching:
                found.objects += 1
                found.content_length += tasks[result.number].input_bytes
                day = days[result.number]
                if day is not None:
                    found.by_day[day] = found.by_day.get(day, 0) + result.matching
    return found


def _count_lines(context: StageContext, table: TableDefinition, rule: ErasureRule) -> tuple[int, int, int]:
    """Returns numbers of matching quarantined lines, of lines that cannot be judged, and of unreadable objects with
    lines.
    """
    found = load_unsearched_lines(context, table, _PLANNED_ID)
    matching = withheld = unread = 0
    for start in range(0, len(found), AT_ONCE):
        quarantined = load_quarantined(context, table, [rule], found[start : start + AT_ONCE])
        for result in run_redactions(context, quarantined) if quarantined else ():
            matching, withheld = matching + result.erased, withheld + result.withheld
            unread += result.failure is not None
    return matching, withheld, unread


def _digest_key(context: StageContext) -> str:
    """Returns the installation's secret for digests, or its id without such a secret."""
    return secret_at(os.environ.get(f"{SECRET_PREFIX}ERASURE", "")) or str(context.installation.installation_id)

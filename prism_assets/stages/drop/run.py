"""Drops tables: plan, put a definition in force that shows it nowhere, take it out of catalogs, delete, forget.

The definition comes first, in one transaction: from then on no stage but this one and the catalog's finds the table.
All that follows is found out anew by each call, so a death anywhere leaves it to the next: `prism table drop` again,
`prism gc` and the daily garbage collection go on with drops until nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from prism_assets.domain.change_log import log_name
from prism_assets.domain.drops import Drop, DropFacts, DropState, drop_obstacles
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.names import TableName
from prism_assets.domain.problems import Problem
from prism_assets.domain.publishers import words_of
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import (
    catalog_state,
    clock,
    drops,
    former_names,
    iceberg_tables,
    leases,
    locks,
    streams,
    tables,
)
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.stages.apply.files import parse_table_files
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.drop.report import DropPlan, DropReport, DropStatus
from prism_assets.stages.gc.report import ObjectSum
from prism_assets.stages.gc.run import collect_dropped
from prism_assets.stages.iceberg.pending import published_tables
from prism_assets.stages.leases import leased, takeover_seconds


def plan_drop(context: StageContext, name: str, now: datetime | None = None) -> tuple[DropPlan, ...]:
    """Says what would go with a table, or with both of a join table; changes nothing. WrongUse for an unknown name."""
    context.check_lake()
    chosen = _choose(context, name)
    files = _files(context.settings.tables_dir)
    return tuple(_plan(context, table, files.get(str(chosen[-1].name)), now) for table in chosen)


def _choose(context: StageContext, name: str) -> list[TableDefinition]:
    """The table, or the two of a join table: the log of changes first, as it names the records."""
    (table,) = context.choose_tables([name])
    if table.change_log is not None:
        raise WrongUse(f"{name} logs the changes of a join table, and goes with it: drop that")
    return [*(context.choose_tables([str(log_name(table.name))]) if table.join else ()), table]


def _files(folder: Path) -> dict[str, str]:
    """The files of tables that are defined in the folder of table files, if this process has it."""
    if not folder.is_dir():
        return {}
    found, _ = parse_table_files(folder)
    return {str(table.name): table.path or "" for table in found}


def _plan(context: StageContext, table: TableDefinition, file: str | None, now: datetime | None) -> DropPlan:
    root = context.lake.keys(table).root
    objects: dict[str, ObjectSum] = {}
    for item in context.stores.list(context.lake.bucket, root):
        folder, slash, _ = item.key.removeprefix(root).partition("/")
        part = f"{folder}{slash}" if slash else ""
        objects[part] = objects.get(part, ObjectSum()) + ObjectSum(objects=1, content_length=item.content_length)
    with context.database.begin() as connection:
        facts = DropFacts(
            retired_since=drops.retired_since(connection, table.table_id),
            unfinished_objects=drops.count_unfinished(connection, table.table_id),
            open_erasures=drops.count_open_erasures(connection, table.table_id),
            never_read=tables.was_never_read(connection, table.table_id),
            file=file,
        )
        rows = drops.count_rows(connection, table.table_id)
        time = now or clock.database_time(connection)
    return DropPlan(
        table=str(table.name),
        catalogs=_catalogs(context, table),
        folder=context.lake.url(root),
        objects=objects,
        rows=rows,
        never_read=facts.never_read,
        obstacles=tuple(drop_obstacles(table, facts, time)),
    )


def _catalogs(context: StageContext, table: TableDefinition) -> tuple[str, ...]:
    """Where readers find a table now, with the names that they use."""
    with context.database.begin() as connection:
        shown = catalog_state.load_publishers(connection, [table.table_id])[table.table_id]
        known = iceberg_tables.load_known_tables(connection, [table.table_id])
        former = former_names.load_former_names(connection)
    names = ", ".join([str(table.name), *(str(item.name) for item in former if item.table_id == table.table_id)])
    found = [f"{words_of(name).catalog}, as {names}" for name in shown]
    found += [f"the catalog of Iceberg tables, as {item.identifier}" for item in known.values()]
    return (*found, "DuckLake") if table.ducklake else tuple(found)


def run_drop(
    context: StageContext, name: str, *, confirm: str | None = None, now: datetime | None = None
) -> DropReport:
    """Begins to drop a table, and goes as far as it comes at once; of one that was begun, goes on.

    `confirm` is the name, typed again: WrongUse without it, and where the table must not be dropped. Without `now` it
    is the time of the database.
    """
    context.check_lake()
    begun = _find(context, name)
    if begun is not None and begun.state is DropState.DROPPED:
        return DropReport(drops=(DropStatus.of(begun, context.settings.gc_reader_lease_hours),))
    if begun is None:
        chosen, plans = _choose(context, name), plan_drop(context, name, now)
        _check_plans(plans, name, confirm)
        _forget_waiting(context, [table for table, plan in zip(chosen, plans, strict=True) if plan.never_read])
        _begin(context, chosen, plans)
        failpoint("drop.after_begin")
    report = continue_drops(context, names=[name, str(log_name(_name_of(name)))], now=now)
    return replace(report, changed=report.changed or begun is None)


def _find(context: StageContext, name: str) -> Drop | None:
    """The drop of a table of this name, unless there is another table of the name now."""
    with context.database.begin() as connection:
        known = {str(table.name): table for table in tables.load_definitions(connection)}
        if name in known and not known[name].dropped:
            return None
        return next((drop for drop in drops.load_drops(connection) if str(drop.name) == name), None)


def _name_of(name: str) -> TableName:
    schema, _, table = name.partition(".")
    return TableName(schema, table)


def _check_plans(plans: Sequence[DropPlan], name: str, confirm: str | None) -> None:
    if obstacles := [obstacle for plan in plans for obstacle in plan.obstacles]:
        raise WrongUse("\n".join([*obstacles, "nothing was dropped"]))
    if confirm != name:
        said = "" if confirm is None else f", and not {confirm}"
        whole = sum((plan.sum for plan in plans), ObjectSum())
        raise WrongUse(
            f"{name} goes for good, with {whole}: if that is meant, repeat with --confirm {name}{said}; nothing was "
            "dropped"
        )


def _forget_waiting(context: StageContext, never_read: Sequence[TableDefinition]) -> None:
    """Forgets what waits at tables that were never read, part by part, before all batches are kept waiting.

    A death after a part is harmless: the next listing registers the same objects again. It does so, too, if a batch
    claims an object meanwhile, because the table is then not dropped.
    """
    for table in never_read:
        more = True
        while more:
            with context.database.begin() as connection:
                more = drops.forget_some_waiting(connection, table.table_id)
                failpoint("drop.in_forget_waiting")
            failpoint("drop.after_forget_waiting")


def _begin(context: StageContext, chosen: Sequence[TableDefinition], plans: Sequence[DropPlan]) -> None:
    """Puts definitions in force that are shown nowhere, and records the drops. One transaction, for two tables, too.

    No batch is starting meanwhile, and nothing waits to be converted, or is forgotten here: so none converts anything
    more of it. A death before the end leaves the table as it was. WrongUse if it was changed since it was looked at.
    """
    with context.database.begin() as connection:
        locks.hold_apply(connection)
        locks.hold_epoch(connection)
        streams.lock_streams(connection)
        for table, plan in zip(chosen, plans, strict=True):
            is_done = (
                tables.was_never_read(connection, table.table_id)
                if plan.never_read
                else not drops.count_unfinished(connection, table.table_id)
            )
            if (
                not is_done
                or tables.load_current(connection, table).version != table.version
                or drops.count_open_erasures(connection, table.table_id)
            ):
                raise WrongUse(f"{table.name} was changed meanwhile: look at it again; nothing was dropped")
            hidden = replace(
                table, dropped=True, streams=(), iceberg=None, symlink=False, ducklake=False, version=table.version + 1
            )
            tables.save_version(connection, hidden, clock.database_time(connection))
            streams.remove_streams(connection, hidden)
            if plan.never_read:
                drops.forget_waiting_objects(connection, table.table_id)
            lies_there = plan.sum
            drops.begin(
                connection,
                table,
                lies_there.objects,
                lies_there.content_length,
                context.worker,
                never_read=plan.never_read,
            )
        failpoint("drop.in_begin")


def continue_drops(
    context: StageContext, *, names: Collection[str] | None = None, now: datetime | None = None
) -> DropReport:
    """Goes on with the drops of some tables, or of all that are not over, each as far as it comes now.

    Without `now` it is the time of the database. One that fails does not stop the others.
    """
    context.check_lake()
    with context.database.begin() as connection:
        found = drops.load_drops(connection, open_only=True)
        time = now or clock.database_time(connection)
    run = _DropRun(context, time)
    chosen = [drop for drop in found if names is None or str(drop.name) in names]
    statuses = tuple(run.drop(drop) for drop in chosen)
    return DropReport(
        drops=statuses,
        deleted=run.deleted,
        foreign=tuple(run.foreign),
        problems=tuple(run.problems),
        changed=run.changed,
    )


class _DropRun:
    """One call over several tables."""

    def __init__(self, context: StageContext, time: datetime) -> None:
        self._context = context
        self._time = time
        self.deleted = ObjectSum()
        self.foreign: list[str] = []
        self.problems: list[Problem] = []
        self.changed = False

    def drop(self, drop: Drop) -> DropStatus:
        """Each step where the one before it has come to its end."""
        left = None
        try:
            if drop.state is DropState.HIDING:
                self._hide(drop)
            if self._state(drop) is DropState.DELETING:
                left = self._delete(drop)
            if self._state(drop) is DropState.FORGETTING:
                self._forget(drop)
        except PrismError as error:
            self.problems.append(Problem.of(error, str(drop.name)))
        return DropStatus.of(self._read(drop), self._context.settings.gc_reader_lease_hours, left)

    def _read(self, drop: Drop) -> Drop:
        with self._context.database.begin() as connection:
            return next(item for item in drops.load_drops(connection) if item.table_id == drop.table_id)

    def _state(self, drop: Drop) -> DropState:
        return self._read(drop).state

    def _hide(self, drop: Drop) -> None:
        """Has all catalogs forget the table, and records when the last one had.

        A death in between has the next call ask again. As long as a call of before may land and show the table again,
        the catalog of that call stays on record, and nothing is deleted.
        """
        name = str(drop.name)
        wait = takeover_seconds(self._context)
        report = run_catalog(self._context, now=self._time, names=[name], wait_seconds=wait)
        self.problems += [problem for table in report.tables for problem in table.problems]
        self.changed |= report.changed
        if published_tables(self._context, [name]):
            from prism_assets.stages.iceberg.run import run_iceberg

            iceberg = run_iceberg(self._context, now=self._time, names=[name], ignore_pace=True, wait_seconds=wait)
            self.problems += [problem for table in iceberg.tables for problem in table.problems]
        with self._context.database.begin() as connection:
            self.changed |= drops.record_hidden(connection, drop.table_id)
            failpoint("drop.in_hide")
        failpoint("drop.after_hide")

    def _delete(self, drop: Drop) -> ObjectSum | None:
        """What is left behind a garbage collection; none if it is not time yet.

        Whether anybody may still write is asked before the folder is listed, and nobody begins to: so what the listing
        does not have never comes. A death leaves objects that the next call finds.
        """
        context, hidden = self._context, self._read(drop)
        if not hidden.may_delete(self._time, context.settings.gc_reader_lease_hours):
            return None
        (table,) = context.choose_with_dropped([str(drop.name)])
        with context.database.begin() as connection:
            drops.delete_merges(connection, drop.table_id)
            is_at_rest = drops.is_at_rest(connection, drop.table_id, context.settings.lease_seconds)
        report = collect_dropped(context, table, hidden, self._time)
        self.deleted += report.sum
        self.changed |= bool(report.sum.objects)
        self.problems += report.problems
        left = ObjectSum(
            objects=report.listed.objects - report.sum.objects - report.foreign.objects,
            content_length=report.listed.content_length - report.sum.content_length - report.foreign.content_length,
        )
        failpoint("drop.after_delete")
        if report.problems or report.skipped or left.objects or not is_at_rest:
            return left
        self.foreign += report.foreign_keys
        with context.database.begin() as connection:
            drops.record_emptied(connection, drop.table_id)
            failpoint("drop.in_empty")
        failpoint("drop.after_empty")
        self.changed = True
        return left

    def _forget(self, drop: Drop) -> None:
        """Forgets days, then staging objects, in parts, and the table last.

        A death leaves rows that the next call finds: no stage asks for any of them, as the table is dropped.
        """
        context, table_id = self._context, drop.table_id
        with leased(context, LeaseKind.GC, [table_id], takeover_seconds(context)) as held:
            if not held:
                return
            lease = held[table_id]
            while self._forget_days(lease):
                failpoint("drop.after_forget_days")
            behind: int | None = 0
            while behind is not None:
                behind = self._forget_objects(lease, behind)
                failpoint("drop.after_forget_objects")
            with context.database.begin() as connection:
                leases.hold(connection, lease)
                streams.lock_streams(connection)
                drops.forget_table(connection, table_id)
                failpoint("drop.in_end")
            failpoint("drop.after_end")
            self.changed = True

    def _forget_days(self, lease: Lease) -> int:
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            return drops.forget_days(connection, lease.subject_id)

    def _forget_objects(self, lease: Lease, behind: int) -> int | None:
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            return drops.forget_objects(connection, lease.subject_id, behind)

"""Drops tables: plan, hide by a new definition, remove from catalogs, delete objects, forget rows.

The definition comes first, in one transaction. From then on only this stage and the catalog's find the table. Each call
determines the remaining steps again, so after a death the next one continues: `prism table drop` again, `prism gc` or
the daily garbage collection, until nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from prism_assets.domain.days.publishers import words_of
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.names import TableName
from prism_assets.domain.problems import Problem
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.tables.drops import Drop, DropFacts, DropState, drop_obstacles
from prism_assets.failpoints import failpoint
from prism_assets.metadata import clock, leases, locks
from prism_assets.metadata.days import catalog_state
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.intake import streams
from prism_assets.metadata.kafka import range_upkeep
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.metadata.tables import drops, former_names, tables
from prism_assets.stages.apply.files import parse_table_files
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.drop.report import DropPlan, DropReport, DropStatus
from prism_assets.stages.gc.report import ObjectSum
from prism_assets.stages.gc.run import collect_dropped
from prism_assets.stages.iceberg.pending import published_tables
from prism_assets.stages.leases import leased, takeover_seconds


def plan_drop(context: StageContext, name: str, now: datetime | None = None) -> tuple[DropPlan, ...]:
    """Returns the parts a drop removes with a table, or with both tables of a join table. Changes nothing.

    Raises WrongUse for an unknown name.
    """
    context.check_lake()
    chosen = _choose(context, name)
    files = _files(context.settings.tables_dir)
    return tuple(_plan(context, table, files.get(str(chosen[-1].name)), now) for table in chosen)


def _choose(context: StageContext, name: str) -> list[TableDefinition]:
    """Returns the table, or the two of a join table: the log of changes first, because it refers to the records."""
    (table,) = context.choose_tables([name])
    if table.change_log is not None:
        raise WrongUse(f"{name} logs the changes of a join table, and goes with it: drop that")
    return [*(context.choose_tables([str(log_name(table.name))]) if table.join else ()), table]


def _files(folder: Path) -> dict[str, str]:
    """Returns the files of tables in the folder of table files, if this process has the folder."""
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
            shared=_shared(connection, table),
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


def _shared(connection: Connection, table: TableDefinition) -> dict[str, set[str]]:
    """Returns the other tables that read the same records of a table's prefixes, by URL."""
    own = {(stream.url, stream.records) for stream in table.streams if stream.topic is None}
    found: dict[str, set[str]] = {}
    for other in tables.load_definitions(connection):
        for stream in other.streams if other.table_id != table.table_id else ():
            if (stream.url, stream.records) in own:
                found.setdefault(stream.url, set()).add(str(other.name))
    return found


def _catalogs(context: StageContext, table: TableDefinition) -> tuple[str, ...]:
    """Returns the catalogs that show a table, with its names there."""
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
    """Begins to drop a table, or continues, as far as possible now.

    `confirm` is the name, typed again. Raises WrongUse without it, or if the table must not be dropped. `now` defaults
    to the time of the database.
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
    """Returns the drop of a table of this name, unless another table has the name now."""
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
        typed = "" if confirm is None else f", and not {confirm}"
        whole = sum((plan.sum for plan in plans), ObjectSum())
        raise WrongUse(
            f"{name} goes for good, with {whole}: if that is meant, repeat with --confirm {name}{typed}; nothing was "
            "dropped"
        )


def _forget_waiting(context: StageContext, never_read: Sequence[TableDefinition]) -> None:
    """Deletes rows of waiting objects at tables never read, in parts, before all batches must wait.

    A death after a part is harmless: the next listing registers the same objects again. The same happens if a batch
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
    """Stores definitions that no catalog shows, and records the drops. One transaction, also for two tables.

    No batch starts meanwhile, and no object waits, or its row is deleted here, so no batch converts any more of the
    table. A death before the end leaves the table unchanged. Raises WrongUse if the table changed since its plan.
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
                or _shared(connection, table)
            ):
                raise WrongUse(f"{table.name} was changed meanwhile: look at it again; nothing was dropped")
            hidden = replace(
                table, dropped=True, streams=(), iceberg=None, symlink=False, ducklake=False, version=table.version + 1
            )
            tables.save_version(connection, hidden, clock.database_time(connection))
            streams.remove_streams(connection, hidden)
            if plan.never_read:
                drops.forget_waiting_objects(connection, table.table_id)
            total = plan.sum
            drops.begin(
                connection,
                table,
                total.objects,
                total.content_length,
                context.worker,
                never_read=plan.never_read,
            )
        failpoint("drop.in_begin")


def continue_drops(
    context: StageContext, *, names: Collection[str] | None = None, now: datetime | None = None
) -> DropReport:
    """Continues the drops of some tables, or all unfinished ones, each as far as possible now.

    `now` defaults to the time of the database. A failing drop does not stop the others.
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
        """Takes each step once the previous one is complete."""
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
        """Removes the table from all catalogs, and records when the last one no longer has it.

        After a death the next call asks again. While an earlier call may still show the table again, its catalog stays
        on record, and nothing is deleted.
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
        """Returns the objects left after a garbage collection, or None before the end of the reader lease.

        Asks before the listing whether anybody may still write. Nobody begins to, so the listing is complete. After a
        death the next call finds the remaining objects.
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
        """Deletes rows of days, then of staging objects, in parts, and the table last.

        After a death the next call finds the remaining rows. No stage uses them, because the table is dropped.
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
            while self._forget_ranges(lease):
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

    def _forget_ranges(self, lease: Lease) -> bool:
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            return range_upkeep.forget_some(connection, lease.subject_id)

    def _forget_objects(self, lease: Lease, behind: int) -> int | None:
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            return drops.forget_objects(connection, lease.subject_id, behind)

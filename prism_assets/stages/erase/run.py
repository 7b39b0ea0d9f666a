"""Erases rows: plan (`plan.py`), make the rule (`rules.py`), rewrite, wait for catalogs and readers, delete, prove.

The rule comes first: every batch that begins later respects it. Objects begun by earlier batches are known by the ids
of these batches, and are searched after their conversion. Each call determines the remaining work again, so a death
leaves it to the next call: `prism erase --continue`, `prism run` and the daily garbage collection continue erasures
until they are proved. Dagster's asset `merged` continues the rewrites of closed days.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from prism_assets.domain.erasures.rules import Erasure, ErasureRule, ErasureState, confirmation_needed
from prism_assets.domain.errors import PrismError, TerminalError, WrongUse
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata import clock, leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erasure_records, erasures
from prism_assets.metadata.leases import Holder, Lease, LeaseKind
from prism_assets.stages.catalog.transitions import close_days
from prism_assets.stages.context import StageContext
from prism_assets.stages.erase.plan import erased_together, plan_rules, rules_of
from prism_assets.stages.erase.prove import prove
from prism_assets.stages.erase.records import RecordErasure
from prism_assets.stages.erase.report import ErasurePlan, ErasureReport, ErasureStatus, read_erasures
from prism_assets.stages.erase.rows import RowErasure
from prism_assets.stages.erase.rules import go_on_with_announced, make_rules
from prism_assets.stages.erase.table_erasure import TableErasure
from prism_assets.stages.erasure_records import compare_erasures, without_held
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.leases import find_holder, leased, takeover_seconds

_LOOK_INTERVAL = timedelta(hours=1)
"""The pause after a failed proof before everything is read again, and between two counts of open days."""


def run_erase(
    context: StageContext, name: str, where: str, *, rows: int | None = None, now: datetime | None = None
) -> ErasureReport:
    """Makes the rule and does all work possible at once. The same predicate again is the same erasure.

    Raises WrongUse, without a change, for a predicate that cannot be used, or that matches so much that `rows` must
    confirm the number of rows.
    """
    started = time.monotonic()
    context.check_lake()
    compare_erasures(context)
    rules = rules_of(context, name, where)
    plan = plan_rules(context, rules)
    _check_plan(plan, rows)
    made = make_rules(context, rules, plan.digest)
    report = continue_erasures(context, names=[name], now=now, forced=True)
    chosen = tuple(item for item in report.erasures if item.digest == plan.digest)
    known = chosen or _status(context, [table for table, _ in rules], plan.digest)
    return replace(report, erasures=known, changed=report.changed or made, seconds=time.monotonic() - started)


def _check_plan(plan: ErasurePlan, rows: int | None) -> None:
    if plan.all_undecided:
        raise WrongUse(
            f"--where fails on {counted(plan.all_undecided, 'row')}, such as by a cast: write it so that it always "
            "has a result, with try_cast; nothing was erased"
        )
    reason = confirmation_needed(plan.all_matching, plan.all_rows)
    if reason and rows != plan.all_matching:
        both = ", of records and of changes" if plan.changes else ""
        said = "" if rows is None else f", and not {rows}"
        raise WrongUse(
            f"{reason}{both}: if that is meant, repeat with --rows {plan.all_matching}{said}; nothing was erased"
        )


def _status(context: StageContext, tables: Collection[TableDefinition], digest: str) -> tuple[ErasureStatus, ...]:
    return tuple(item for item in read_erasures(context, tables) if item.digest == digest)


def sources_of(context: StageContext, erasure_id: int) -> list[tuple[str, bool]]:
    """Returns URLs of staging objects with rows of an erasure, and whether that is certain.

    Their owner must delete these.
    """
    with context.database.begin() as connection:
        if not erasures.is_known(connection, erasure_id):
            raise WrongUse(f"there is no erasure {erasure_id}: `prism erase --status` tells of all")
        return erasures.load_sources(connection, erasure_id)


def continue_erasures(
    context: StageContext,
    *,
    names: Collection[str] | None = None,
    now: datetime | None = None,
    forced: bool = False,
    briefly: bool = False,
) -> ErasureReport:
    """Continues the unproved erasures of the named tables, or of all, as far as possible now.

    `now` defaults to the database's time. `forced` repeats a proof that failed a moment ago. A table held by another
    call is waited for until a dead holder has lost its lease, as in garbage collection. With `briefly` it waits for
    nothing and proves nothing, because a proof reads the whole table.
    """
    started = time.monotonic()
    context.check_lake()
    tables = {table.table_id: table for table in erased_together(context, names)}
    announced = go_on_with_announced(context, tables.values())
    _, held = without_held(context, tables.values(), missing_only=True)
    with context.database.begin() as connection:
        found = erasures.load_erasures(connection, list(tables), open_only=True)
        time_of = now or clock.database_time(connection)
    if not found:
        return ErasureReport(problems=held, changed=announced, seconds=time.monotonic() - started)
    run = _ErasureRun(context, time_of, now, forced, briefly)
    refused = {problem.table for problem in held}
    for table_id in sorted({item.table_id for item in found}):
        if str(tables[table_id].name) not in refused:
            run.table(tables[table_id])
    statuses = read_erasures(context, [tables[table_id] for table_id in {item.table_id for item in found}])
    ids = {item.erasure_id for item in found}
    return ErasureReport(
        erasures=tuple(item for item in statuses if item.erasure_id in ids),
        problems=(*held, *run.problems),
        holders=run.holders,
        changed=run.changed or announced,
        seconds=time.monotonic() - started,
    )


class _ErasureRun:
    """One call over several tables."""

    def __init__(
        self, context: StageContext, time: datetime, now: datetime | None, forced: bool, briefly: bool
    ) -> None:
        self._context = context
        self._time = time
        self._now = now
        self._forced = forced
        self._wait_seconds = 0.0 if briefly else takeover_seconds(context)
        self._steps = _STEPS[:-1] if briefly else _STEPS
        self.problems: list[Problem] = []
        self.holders: dict[str, Holder | None] = {}
        self.changed = False
        self._earlier: list[ErasureRule] = []
        """Rules of unfinished older erasures of the current table. They still rewrite objects."""
        self._repeated: set[str] = set()
        """Digests of the current table's erasures that PostgreSQL had lost and that are repeated."""

    def table(self, table: TableDefinition) -> None:
        """Continues the erasures of one table. A failure does not stop other tables."""
        name = str(table.name)
        try:
            with leased(self._context, LeaseKind.ERASE, [table.table_id], self._wait_seconds) as held:
                if held:
                    self._all_of(table, held[table.table_id])
                    return
            self.holders[name] = find_holder(self._context, LeaseKind.ERASE, table.table_id)
        except PrismError as error:
            self.problems.append(Problem.of(error, name))

    def _all_of(self, table: TableDefinition, lease: Lease) -> None:
        """Continues the erasures of a table, the oldest first.

        Reads them under the lease, because another call may have continued them.
        """
        with self._context.database.begin() as connection:
            found = erasures.load_erasures(connection, [table.table_id], open_only=True)
            held = erasure_records.load_held(connection).get(table.table_id, ())
        self._repeated = {item.record.digest for item in held}
        # Objects without the rows of all repeated erasures must not get rows of some of them back.
        again = [item for item in found if item.digest in self._repeated and item.state is ErasureState.REWRITING]
        self._earlier = [item.rule for item in again]
        for erasure in found:
            state = erasure.state
            for step in self._steps[list(ErasureState).index(state) :]:
                if not step(self, table, lease, self._read(erasure)):
                    break
                self.changed = True
            if self._read(erasure).state is ErasureState.REWRITING and erasure not in again:
                self._earlier.append(erasure.rule)

    def _read(self, erasure: Erasure) -> Erasure:
        with self._context.database.begin() as connection:
            found = erasures.load_erasures(connection, [erasure.table_id])
        return next(item for item in found if item.erasure_id == erasure.erasure_id)

    def _rewrite(self, table: TableDefinition, lease: Lease, erasure: Erasure) -> bool:
        """Searches and rewrites. Returns whether nothing is left to rewrite.

        Objects begun before the rule are counted before the search. Objects committed in between are searched by the
        next call.
        """
        with self._context.database.begin() as connection:
            begun = erasures.count_begun_before(connection, erasure)
        try:
            done = self._of(table, lease, erasure).run()
            if done.open_objects and erasure.digest in self._repeated and self._close_open_days(table, lease, erasure):
                self.changed = True
                done = self._of(table, lease, erasure).run()
        except TerminalError as error:
            # Without a look on record, a closed day would be due again at once, for ever.
            self._note(lease, erasure, str(error), open_partitions=erasure.open_partitions)
            raise
        self.changed |= done.changed
        self.problems += done.problems
        if done.is_whole and not begun and not done.open_objects:
            return self._advance(lease, erasure, ErasureState.PUBLISHING)
        reason = ""
        if not done.is_whole:
            reason = str(done.problems[0]) if done.problems else "the next call: others were at the same objects"
        elif begun:
            reason = f"{counted(begun, 'object')} that batches began before it was made, to be searched once converted"
        # A closed day with an object that could not be rewritten stays due.
        waits_for = done.open_partitions | (set() if done.is_whole else set(erasure.open_partitions))
        self._note(lease, erasure, reason or None, open_partitions=waits_for)
        return False

    def _close_open_days(self, table: TableDefinition, lease: Lease, erasure: Erasure) -> bool:
        """Closes the open days that a repeated erasure waits for. Returns whether any is closed now.

        No catalog run closes them, because catalog runs leave the table alone until the repetition ends. The restored
        database may take a day for open that was already shown without the rows, and an open day would show them again.
        """
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            days = erasures.load_open_days(connection, table.table_id).get(erasure.erasure_id, [])
            partitions.close_early(connection, [day.partition_id for day in days])
            found = list(partitions.load_partitions(connection, [day.partition_id for day in days]).values())
        failpoint("erase.after_ask_for_close")
        with leased(self._context, LeaseKind.CATALOG, [table.table_id], takeover_seconds(self._context)) as held:
            mine = held.get(table.table_id)
            return mine is not None and bool(close_days(self._context, table, mine, found, self._time))

    def _of(self, table: TableDefinition, lease: Lease, erasure: Erasure) -> TableErasure:
        rules = (*(rule for rule in self._earlier if rule != erasure.rule), erasure.rule)
        if table.join is None:
            counts = self._forced or not erasure.open_time or self._time >= erasure.open_time + _LOOK_INTERVAL
            return RowErasure(self._context, table, lease, erasure, rules, counts_open_days=counts)
        return RecordErasure(self._context, table, lease, erasure, rules, self._time)

    def _publish(self, table: TableDefinition, lease: Lease, erasure: Erasure) -> bool:
        """Returns whether no catalog sends readers to an old object any more."""
        with self._context.database.begin() as connection:
            behind = (
                erasures.count_behind(connection, table.table_id)
                if table.join is None
                else erasures.count_records_behind(connection, erasure)
            )
        return not behind and self._advance(lease, erasure, ErasureState.WAITING)

    def _prove(self, table: TableDefinition, lease: Lease, erasure: Erasure) -> bool:
        """Deletes replaced objects after the reader lease, and reads all others.

        Objects that still hold matching rows are searched by the next call, even if they are marked as searched: a
        later definition may judge their lines differently.
        """
        lease_hours = timedelta(hours=self._context.settings.gc_reader_lease_hours)
        if erasure.published_time is None or self._time < erasure.published_time + lease_hours:
            return False
        if not self._forced and erasure.look_time and self._time < erasure.look_time + _LOOK_INTERVAL:
            return False
        report = run_gc(self._context, now=self._now, names=[str(table.name)])
        self.changed |= bool(report.deleted.objects)
        self.problems += report.problems
        failpoint("erase.after_gc")
        unproved = prove(self._context, table, lease, erasure)
        if unproved is None:
            return True
        reason = unproved.reason
        if unproved.left and (left := self._of(table, lease, erasure).search_again(unproved.left)):
            reason = f"the next call, which searches {counted(left, 'object')}: {reason}"
            self.changed = True
        self._note(lease, erasure, reason)
        return False

    def _advance(self, lease: Lease, erasure: Erasure, state: ErasureState) -> bool:
        failpoint("erase.before_advance")
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            erasures.advance(connection, erasure, state)
            erasure_records.end_repetition(connection, erasure.digest)
        failpoint("erase.after_advance")
        return True

    def _note(self, lease: Lease, erasure: Erasure, reason: str | None, open_partitions: Collection[int] = ()) -> None:
        with self._context.database.begin() as connection:
            leases.hold(connection, lease)
            erasures.note_look(connection, erasure, reason, open_partitions=open_partitions)


_STEPS = (_ErasureRun._rewrite, _ErasureRun._publish, _ErasureRun._prove)

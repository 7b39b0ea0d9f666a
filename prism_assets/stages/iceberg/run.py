"""Publishes tables as Iceberg: load, plan, commit, read back, record. Each table has its own lease.

So a slow Iceberg catalog never delays the catalog run. A failed commit leaves no record; the next run compares again. A
death before the commit leaves files without any reference. A death between commit and record leaves an unrecorded head:
the next run compares every day with its manifests, and finds nothing to do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from prism_assets.domain.errors import InvariantBroken, ObjectMissing, PrismError, WrongUse
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.iceberg.commit import COMMITTED, REFUSED, SETTLED, IcebergCommit, IcebergDay
from prism_assets.domain.iceberg.head import HeadChange, obstacle_of
from prism_assets.domain.iceberg.snapshots import (
    ACTIVE,
    FAILED,
    FOREIGN,
    KnownTable,
    next_pace_time,
    seconds_to_wait,
    wanted_snapshot,
)
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions, publications
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.iceberg.iceberg_tables import IcebergState
from prism_assets.metadata.leases import Lease, LeaseKind
from prism_assets.publishers.iceberg.loaded import LoadedTable
from prism_assets.publishers.iceberg.publisher import (
    CommitRefused,
    Committed,
    IcebergPublisher,
    MetadataMissing,
)
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import without_held
from prism_assets.stages.iceberg.pending import published_tables
from prism_assets.stages.iceberg.plan import IcebergPlan, head_of, plan_commit
from prism_assets.stages.iceberg.report import IcebergReport, IcebergTableReport
from prism_assets.stages.leases import find_holder, leased

_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class _Options:
    now: datetime
    ignore_pace: bool
    restore: bool
    optimize: bool
    register: bool
    anew: bool


def run_iceberg(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    ignore_pace: bool = False,
    restore: bool = False,
    optimize: bool = False,
    register: bool = False,
    anew: bool = False,
    wait_seconds: float = 0.0,
) -> IcebergReport:
    """Publishes all tables with `iceberg:` in their files. A failing table does not stop the others.

    A table gets at most one commit per `commit_seconds`, unless `ignore_pace`. `restore` takes back commits of others
    even with `on_foreign: stop`. `optimize` also joins manifests of closed days and keeps tags. `register` first
    removes a foreign table of the same name from the catalog. `anew` also removes our own table, and creates it again
    over the same objects.
    """
    started = time.monotonic()
    context.check_lake()
    options = _Options(
        now=now, ignore_pace=ignore_pace, restore=restore, optimize=optimize, register=register, anew=anew
    )
    tables = published_tables(context, names)
    if restore or register:
        _check_named(names or (), tables)
    _, held = without_held(context, [table for table in tables if not table.dropped])
    problems = {item.table: item for item in held}
    reports = [
        IcebergTableReport(table=name, table_id=table.table_id, problems=(problems[name],))
        if (name := str(table.name)) in problems
        else _report_on(context, table, options, wait_seconds)
        for table in tables
    ]
    return IcebergReport(tables=tuple(reports), seconds=time.monotonic() - started)


def _check_named(names: Collection[str], published: Collection[TableDefinition]) -> None:
    others = sorted(set(names) - {str(table.name) for table in published})
    if others:
        raise WrongUse(
            f"{', '.join(others)} is not published as an Iceberg table: write `iceberg: true` into its table file, and "
            "run `prism table apply`"
        )


def _report_on(
    context: StageContext, table: TableDefinition, options: _Options, wait_seconds: float
) -> IcebergTableReport:
    name, table_id = str(table.name), table.table_id
    try:
        with leased(context, LeaseKind.ICEBERG, [table_id], wait_seconds) as held:
            if held:
                report = _TableRun(context, held[table_id], options).run()
                if report.changed:
                    context.progress(f"iceberg: {name} changed")
                return report
        holder = find_holder(context, LeaseKind.ICEBERG, table_id)
        return IcebergTableReport(table=name, table_id=table_id, skipped=True, holder=holder)
    except PrismError as error:
        return IcebergTableReport(table=name, table_id=table_id, problems=(Problem.of(error, name),))


class _TableRun:
    """One table, under its lease."""

    def __init__(self, context: StageContext, lease: Lease, options: _Options) -> None:
        self._context = context
        self._lease = lease
        self._options = options
        self._now = options.now
        self._created = False

    @property
    def _publisher(self) -> IcebergPublisher:
        return self._context.iceberg

    def run(self) -> IcebergTableReport:
        """Plans and commits. Repeats a few times at once, with a new plan, if somebody else committed first."""
        for number in range(_TRIES):
            started = time.monotonic()
            state = self._state()
            try:
                return self._publish(state, started)
            except CommitRefused as error:
                self._log_refused(error, time.monotonic() - started)
                if number == _TRIES - 1:
                    raise
                time.sleep(_FIRST_PAUSE_SECONDS * 2**number * random.uniform(0.5, 1.5))
        raise AssertionError

    def _state(self) -> IcebergState:
        """Reads the state under the lease, because an earlier definition may have been replaced and published
        meanwhile.
        """
        with self._context.database.begin() as connection:
            return iceberg_tables.load_iceberg_state(connection, self._lease.subject_id)

    def _publish(self, state: IcebergState, started: float) -> IcebergTableReport:
        table = state.definition
        if table.iceberg is None:
            return self._drop(table)
        report = IcebergTableReport(
            table=str(table.name), table_id=table.table_id, identifier=".".join(self._publisher.identifier(table))
        )
        if (pause := self._pause(state)) > 0:
            return replace(report, waiting=f"it was committed to less than {pause:.0f} s ago")
        state = self._begun(state, report.identifier)
        loaded = self._load(state)
        failpoint("iceberg.after_load")
        if loaded is None:
            loaded = self._make(state)
            state = self._state()
        if reason := self._reason_to_wait(state, loaded):
            return replace(report, problems=(Problem(table=report.table, reason=reason),))
        if state.known is None or state.known.table_uuid is None:
            self._wait_for_writers()
        plan, committed = self._planned_and_committed(state, loaded)
        commit = self._commit_of(state, plan, committed, time.monotonic() - started)
        self._record(state, plan, committed, commit)
        return replace(
            report,
            created=self._created,
            commit=commit,
            metadata_location=committed.loaded.metadata_location,
            snapshot_id=committed.snapshot_id,
            snapshots=len(committed.loaded.snapshots),
            tag_bytes=committed.loaded.bytes_of_tags() if self._options.optimize else None,
            restored=plan.head_change is HeadChange.FOREIGN,
            problems=plan.left,
        )

    def _pause(self, state: IcebergState) -> float:
        """Returns the seconds until the next commit may come."""
        known, options = state.known, state.definition.iceberg
        if self._options.ignore_pace or known is None or options is None:
            return 0
        return seconds_to_wait(known, options.commit_seconds, state.time)

    def _begun(self, state: IcebergState, identifier: str) -> IcebergState:
        """Begins the table: every later transaction marks changes of its days."""
        if state.known is not None:
            if state.known.identifier != identifier:
                raise WrongUse(
                    f"it is published as {state.known.identifier}, and would be {identifier} now: set "
                    "PRISM_ICEBERG_DATABASE_SUFFIX and PRISM_GLUE_DATABASE_PREFIX back, or take `iceberg:` out of its "
                    "file, publish, and put it in again"
                )
            return state
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            iceberg_tables.begin(connection, self._lease.subject_id, identifier)
        failpoint("iceberg.after_begin")
        return self._state()

    def _wait_for_writers(self) -> None:
        """Waits, before the first read of days, for transactions begun before days were marked. Needed until the first
        record.
        """
        with self._context.database.begin() as connection:
            iceberg_tables.wait_for_writers(connection)

    def _load(self, state: IcebergState) -> LoadedTable | None:
        """Loads the table. First removes it from the catalog if it must be created again, or if its metadata file is
        lost.
        """
        table, known = state.definition, state.known
        try:
            loaded = self._publisher.load(table)
        except MetadataMissing:
            if known is None or known.table_uuid is None:
                raise
            self._forget_name(table)
            return None
        if loaded is None or known is None:
            return loaded
        replaced = known.table_uuid not in (None, loaded.table_uuid)
        if (self._options.register and replaced) or (self._options.anew and loaded.is_ours):
            self._forget_name(table)
            return None
        return loaded

    def _forget_name(self, table: TableDefinition) -> None:
        self._hold()
        self._publisher.unregister(table)

    def _planned_and_committed(self, state: IcebergState, loaded: LoadedTable) -> tuple[IcebergPlan, Committed]:
        """Plans and commits. Notes an unreadable table as failed, because only a person can mend it."""
        try:
            plan = plan_commit(self._context, state, loaded, self._now, optimize=self._options.optimize)
            # After loading the objects: none has a later definition, so the schema has the types of all.
            if self._state().definition.version != state.definition.version:
                raise CommitRefused(f"{state.definition.name} was changed meanwhile; nothing was committed")
            return plan, self._commit(state.definition, loaded, plan)
        except MetadataMissing:  # the next run creates the table again
            raise
        except (ObjectMissing, InvariantBroken) as error:
            reason = f"{error}; `prism iceberg register --anew {state.definition.name}` makes the table again"
            self._note_state(state.definition, FAILED, reason)
            raise InvariantBroken(reason) from error

    def _reason_to_wait(self, state: IcebergState, loaded: LoadedTable) -> str | None:
        """Returns why the table stays as it is: a foreign table has its name, or a foreign commit is unreported."""
        table = state.definition
        assert table.iceberg is not None
        obstacle = obstacle_of(state.known, head_of(state, loaded), str(table.name), table.iceberg.on_foreign)
        if obstacle is None or (obstacle.state == FOREIGN and self._options.restore):
            return None
        self._note_state(table, obstacle.state, obstacle.reason)
        return obstacle.reason

    def _note_state(self, table: TableDefinition, state: str, reason: str | None) -> None:
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            iceberg_tables.record_state(connection, table.table_id, state, reason)

    def _make(self, state: IcebergState) -> LoadedTable:
        """Creates the table, or registers it again after the catalog lost it.

        Existing metadata is registered. Without any, the table is created again over the same objects. The result may
        be the table of somebody who came first.
        """
        table, known = state.definition, state.known
        self._created = True
        if known is not None and known.metadata_location:
            found = None
            if not self._options.anew:
                found = self._publisher.newest_metadata(table, known.metadata_location, known.snapshot_id)
            if found is not None:
                self._hold()
                return self._publisher.register(table, found)
            self._start_over(table, known)
        self._hold()
        return self._publisher.create(table, self._now)

    def _start_over(self, table: TableDefinition, known: KnownTable) -> None:
        """Clears the record of a table without metadata, so the next commit lists every object again."""
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            iceberg_tables.record_commit(
                connection, KnownTable(table_id=table.table_id, identifier=known.identifier, state=known.state)
            )

    def _commit(self, table: TableDefinition, loaded: LoadedTable, plan: IcebergPlan) -> Committed:
        if plan.change.changes_nothing:
            return Committed(loaded, loaded.snapshot_id, settled=False)
        return self._publisher.commit(table, loaded, plan.change, plan.time, self._hold)

    def _hold(self) -> None:
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)

    def _record(
        self, state: IcebergState, plan: IcebergPlan, committed: Committed, commit: IcebergCommit | None
    ) -> None:
        """Records the head and its days in one transaction, after reading them back.

        A death before it leaves an unrecorded head of ours. `dirty` stays set for days changed meanwhile.
        """
        failpoint("iceberg.after_readback")
        listed = {change.date: change for change in plan.change.days}
        left = {problem.date for problem in plan.left}
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            of_plan = {content.partition.partition_id: content for content in plan.days}
            locked = partitions.lock_partitions(connection, list(of_plan))
            for partition_id, content in of_plan.items():
                day = content.partition.date
                wanted = wanted_snapshot(locked[partition_id])
                if day in left:
                    moved = wanted != wanted_snapshot(content.partition)
                    publications.set_dirty(connection, partition_id, self._publisher.name, dirty=moved)
                elif content.partition.expired:
                    publications.withdraw(connection, partition_id, self._publisher.name, self._now)
                elif day in listed:
                    shown = listed[day].publication
                    publications.advance(
                        connection,
                        partition_id,
                        self._publisher.name,
                        shown,
                        self._now,
                        dirty=wanted != shown,
                        repairs=content.partition.repairs,
                    )
            iceberg_tables.record_commit(connection, _next_record(state, committed, plan))
            if commit:
                iceberg_tables.log_commit(connection, commit)
            failpoint("iceberg.in_record")
        failpoint("iceberg.after_record")

    def _commit_of(
        self, state: IcebergState, plan: IcebergPlan, committed: Committed, seconds: float
    ) -> IcebergCommit | None:
        change = plan.change
        if change.changes_nothing:
            return None
        return IcebergCommit(
            table_id=state.definition.table_id,
            snapshot_id=committed.snapshot_id,
            operation=change.operation.value if change.makes_snapshot else None,
            files_in=change.files_in,
            files_out=change.files_out,
            rows_in=change.rows_in,
            rows_out=change.rows_out,
            seconds=seconds,
            outcome=SETTLED if committed.settled else COMMITTED,
            foreign_snapshots=plan.foreign_snapshots,
            worker=self._context.worker,
            commit_time=self._now,
            by_day=tuple(map(IcebergDay.of, change.changed_days)),
            expired=len(change.expired),
            seconds_behind=None if plan.is_full else _seconds_behind(plan, state.time + timedelta(seconds=seconds)),
        )

    def _log_refused(self, error: CommitRefused, seconds: float) -> None:
        with self._context.database.begin() as connection:
            iceberg_tables.log_commit(
                connection,
                IcebergCommit(
                    table_id=self._lease.subject_id,
                    seconds=seconds,
                    outcome=REFUSED,
                    message=str(error),
                    worker=self._context.worker,
                    commit_time=self._now,
                ),
            )

    def _drop(self, table: TableDefinition) -> IcebergTableReport:
        """Removes a table without `iceberg:` in its file from the catalog, if the table is ours. Its objects stay.

        After a death the next run finds no table in the catalog. A table to be deleted must be looked up under its
        published name.
        """
        state, identifier = self._state(), ".".join(self._publisher.identifier(table))
        if table.dropped and state.known is not None and state.known.identifier != identifier:
            raise WrongUse(
                f"it is published as {state.known.identifier}, and is looked for as {identifier}: set "
                "PRISM_ICEBERG_DATABASE_SUFFIX and PRISM_GLUE_DATABASE_PREFIX back, or the catalog goes on showing it"
            )
        try:
            loaded = self._publisher.load(table)
            is_ours = loaded is not None and loaded.is_ours
        except MetadataMissing:
            is_ours = state.known is not None and state.known.table_uuid is not None
        if is_ours:
            self._forget_name(table)
        failpoint("iceberg.after_unregister")
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            iceberg_tables.forget(connection, table.table_id)
        return IcebergTableReport(table=str(table.name), table_id=table.table_id, dropped=True)


def _next_record(state: IcebergState, committed: Committed, plan: IcebergPlan) -> KnownTable:
    loaded, before, options = committed.loaded, state.known, state.definition.iceberg
    assert options is not None
    if plan.change.changes_nothing:
        pace_time = before.pace_time if before else None
    else:
        pace_time = next_pace_time(before, options.commit_seconds, state.time)
    return KnownTable(
        table_id=state.definition.table_id,
        identifier=loaded.identifier,
        table_uuid=loaded.table_uuid,
        metadata_location=loaded.metadata_location,
        snapshot_id=committed.snapshot_id,  # not the head, because a foreign commit may follow it
        snapshots=len(loaded.snapshots),
        definition_version=state.definition.version,
        state=ACTIVE,
        pace_time=pace_time,
    )


def _seconds_behind(plan: IcebergPlan, committed: datetime) -> float | None:
    uploaded = [
        file.upload_start_time for day in plan.change.days for file in day.added if isinstance(file, SmallObject)
    ]
    return max(0.0, (committed - min(uploaded)).total_seconds()) if uploaded else None

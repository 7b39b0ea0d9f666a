"""Moves the days of a table on: ends them, switches, marks and closes them, each as it is under the lock of its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.lifecycle import (
    Close,
    Expire,
    Step,
    Switch,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    may_close,
    may_mark,
    may_switch,
    next_steps,
)
from prism_assets.domain.partitions import Partition
from prism_assets.domain.tables import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, locks, merge_jobs, partitions, retention
from prism_assets.metadata.leases import Lease
from prism_assets.stages.catalog.candidates import choose_expiring
from prism_assets.stages.catalog.facts import StoredFacts
from prism_assets.stages.catalog.report import Waiting
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """The days that moved on, and those that did not, with what they wait for."""

    expired: tuple[date, ...] = ()
    switched: tuple[date, ...] = ()
    marked: tuple[date, ...] = ()
    closed: tuple[date, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def advance_days(
    context: StageContext,
    table: TableDefinition,
    lease: Lease,
    pending: Sequence[Partition],
    now: datetime,
    not_ahead: datetime,
) -> Transitions:
    """Takes all steps that are due at `now`, and ends days by `not_ahead`, which is not ahead of the database's clock.

    Because switching comes before closing, a day needs at least two runs after it is over.
    """
    days = _Days(context, table, lease, pending)
    expired = days.expire(not_ahead)
    switched = days.switch(now)
    marked, closed = days.close(now)
    return Transitions(
        expired=tuple(expired),
        switched=tuple(switched),
        marked=tuple(marked),
        closed=tuple(closed),
        waiting=tuple(days.waiting),
    )


class _Days:
    """The days of a table that may have something to be done, and what was found out that they wait for."""

    def __init__(
        self, context: StageContext, table: TableDefinition, lease: Lease, pending: Sequence[Partition]
    ) -> None:
        self._context = context
        self._table = table
        self._lease = lease
        self._pending = pending
        self.waiting: list[Waiting] = []

    def expire(self, now: datetime) -> list[date]:
        """Has no more rows taken for days that are older than the table keeps, then ends such days, the oldest first.

        The clock of a machine that is ahead would end days too early: no `now` is later than that of the database.
        One transaction for the mark and one for each day. A death behind the mark leaves a day whose late rows are set
        aside, and which the next run ends; behind a day, one that the next run takes out of the catalog, and whose
        objects stay until that is so.
        """
        oldest_kept = self._table.oldest_kept(now)
        if oldest_kept is None:
            return []
        chosen, later = choose_expiring(self._pending, self._table, now, self._context.settings.expire_max_days)
        # Days behind those that this run ends are left as they are, and their rows are taken.
        first_day = chosen[-1].date + timedelta(days=1) if later else oldest_kept
        with self._context.database.begin() as connection:
            retained = retention.load_mark(connection, self._table.table_id)
        if retained is None or retained.first_day < first_day:
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                locks.hold_epoch(connection)
                retention.advance_mark(connection, self._table.table_id, first_day)
                failpoint("catalog.in_retain")
            failpoint("catalog.after_retain")
        expired = []
        for partition in chosen:
            with self._decided(partition, now) as (connection, locked, steps):
                if Expire() in steps:
                    retention.expire(connection, partition.partition_id)
                    failpoint("catalog.in_expire")
            if Expire() in steps:
                failpoint("catalog.after_expire")
                expired.append(partition.date)
            self.waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitToExpire)]
        return expired

    def switch(self, now: datetime) -> list[date]:
        """Switches closed partitions whose live objects are all merged, with a certificate. Decides under their lock.

        One transaction a partition, its row locked: a death in it switches nothing; after it, publishing follows in
        the next run, and until then the manifest that readers have still names every row.
        """
        switched = []
        for partition in filter(may_switch, self._pending):
            with self._decided(partition, now) as (connection, locked, steps):
                for step in steps:
                    if isinstance(step, Switch) and step.evidence:
                        partitions.switch(connection, partition.partition_id, step.evidence, now)
                        failpoint("catalog.in_switch")
            if Switch() in steps:
                failpoint("catalog.after_switch")
                switched.append(partition.date)
            self.waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitForMerge)]
        return switched

    def close(self, now: datetime) -> tuple[list[date], list[date]]:
        """Marks partitions whose day is over, then closes marked ones that no batch can add live objects to any more.

        A transaction for all marks and one for each close, which has the rest merged at once. Each is harmless to die
        in: a mark without a close is a state of its own, found by the next run.
        """
        over = [item for item in self._pending if may_close(item, self._table.closes_from(item.date), now)]
        unmarked = [item for item in over if may_mark(item, self._table.closes_from(item.date), now)]
        marked: list[date] = []
        if unmarked:
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                locks.hold_epoch(connection)
                marks = partitions.mark_closing(connection, [p.partition_id for p in unmarked])
                failpoint("catalog.in_mark")
            failpoint("catalog.after_mark")
            marked = [p.date for p in unmarked if p.partition_id in marks]
        closed = []
        for partition in over:
            with self._decided(partition, now) as (connection, locked, steps):
                if Close() in steps:
                    partitions.close(connection, partition.partition_id)
                    if locked.last_object_id > locked.desired_version:
                        merge_jobs.hasten(connection, partition.partition_id, now)
                    failpoint("catalog.in_close")
            if Close() in steps:
                failpoint("catalog.after_close")
                closed.append(partition.date)
            self.waiting += [Waiting.of(locked, step) for step in steps if isinstance(step, WaitForObjects)]
        return marked, closed

    @contextmanager
    def _decided(self, partition: Partition, now: datetime) -> Iterator[tuple[Connection, Partition, Sequence[Step]]]:
        """A transaction of the holder of the lease: a partition as it is under its lock, and what is next for it."""
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            locked = partitions.lock_partition(connection, partition.partition_id)
            yield connection, locked, next_steps(locked, StoredFacts(connection, self._table), now)

"""Takes the days of a table through their states: expires, switches, marks and closes them, under row locks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection

from prism_assets.domain.days.lifecycle import (
    Close,
    Expire,
    Step,
    Switch,
    WaitForHistory,
    WaitForMerge,
    WaitForObjects,
    WaitToExpire,
    may_close,
    may_mark,
    may_switch,
    next_steps,
)
from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, locks
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.files import merge_jobs
from prism_assets.metadata.leases import Lease
from prism_assets.stages.catalog.candidates import choose_expiring
from prism_assets.stages.catalog.facts import StoredFacts, closes_from
from prism_assets.stages.catalog.report import Waiting
from prism_assets.stages.context import StageContext


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """The days that advanced, and the waiting days with their reasons."""

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
    """Takes all steps due at `now`. Days expire by `not_ahead`, a time never ahead of the database's clock.

    Switching comes before closing, so a day needs at least two runs after its end.
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


def close_days(
    context: StageContext, table: TableDefinition, lease: Lease, pending: Sequence[Partition], now: datetime
) -> Sequence[date]:
    """Marks and closes days, and publishes nothing: for an erasure that is repeated before a catalog run may show them.

    The caller holds the lease of catalog runs of the table. A death leaves days that the next call closes.
    """
    _, closed = _Days(context, table, lease, pending).close(now)
    return closed


class _Days:
    """The candidate days of a table, and the reasons why some wait."""

    def __init__(
        self, context: StageContext, table: TableDefinition, lease: Lease, pending: Sequence[Partition]
    ) -> None:
        self._context = context
        self._table = table
        self._lease = lease
        self._pending = pending
        self.waiting: list[Waiting] = []

    def expire(self, now: datetime) -> list[date]:
        """Stops taking rows for days past the table's retention, then expires these days, the oldest first.

        A fast clock would expire days too early, so `now` is never later than the database's time. One transaction for
        the mark and one for each day. A death after the mark leaves a day whose late rows go to quarantine, and the
        next run expires it. A death after a day leaves its removal from the catalog to the next run; its objects stay
        until then.
        """
        oldest_kept = self._table.oldest_kept(now)
        if oldest_kept is None:
            return []
        chosen, later = choose_expiring(self._pending, self._table, now, self._context.settings.expire_max_days)
        # Later days, not expired by this run, stay unchanged and still take rows.
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
        """Switches closed partitions to their merged objects if these certifiably have all rows. Decides under the
        row's lock.

        One transaction per partition. A death in it switches nothing. After it, the next run publishes, and until then
        the readers' manifest still names every row.
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
        """Marks partitions after the end of their day, then closes marked ones no batch can add live objects to any
        more.

        A day without a mark waits for objects of its history: after the mark these would be delayed objects.

        One transaction for all marks and one for each close, which also hastens the merge of the rest. A death is
        harmless: a mark without a close is a state of its own, and the next run finds it.
        """
        over = [item for item in self._pending if may_close(item, closes_from(self._table, item), now)]
        unmarked = [item for item in over if may_mark(item, closes_from(self._table, item), now)]
        marked: list[date] = []
        if unmarked:
            with self._context.database.begin() as connection:
                leases.hold(connection, self._lease)
                locks.hold_epoch(connection)
                ready = StoredFacts(connection, self._table).without_history(unmarked)
                marks = partitions.mark_closing(connection, [item.partition_id for item in ready])
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
            self.waiting += [
                Waiting.of(locked, step) for step in steps if isinstance(step, WaitForHistory | WaitForObjects)
            ]
        return marked, closed

    @contextmanager
    def _decided(self, partition: Partition, now: datetime) -> Iterator[tuple[Connection, Partition, Sequence[Step]]]:
        """Opens a transaction under the lease. Yields a partition under its row's lock, with its next steps."""
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            locked = partitions.lock_partition(connection, partition.partition_id)
            yield connection, locked, next_steps(locked, StoredFacts(connection, self._table), now)

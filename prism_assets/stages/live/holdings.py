"""The tables of a live worker, shared out among all of them through leases (`domain/live_shares.py`).

The loop of the worker renews its leases, never a thread: a loop that hangs must lose its tables to the sensors. Nothing
but cost depends on these leases, because batches have tokens.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from prism_assets.domain.errors import PrismError
from prism_assets.domain.live_shares import share_out
from prism_assets.metadata import leases
from prism_assets.metadata.leases import Holder, Lease, LeaseKind, Presence
from prism_assets.stages.context import StageContext

LIVE_SECONDS = 15.0
"""The lease of a table. Its worker renews it every five seconds."""
_KINDS = (LeaseKind.LIVE, LeaseKind.WORKER)
_FORGOTTEN_SECONDS = 3_600.0
"""`prism status` shows the leases of a dead worker for this time."""


def live_tables(connection: Connection, seconds: float = LIVE_SECONDS) -> dict[int, Holder]:
    """Returns the holder of each table with a fresh lease of a live worker. Sensors leave these tables out."""
    holders = leases.load_all_holders(connection, LeaseKind.LIVE)
    return {table: holder for table, holder in holders.items() if holder.silent_seconds < seconds}


def is_dead_neighbour(name: str, own_name: str) -> bool:
    """Whether a worker `host:pid/number` ran on the host of `own_name` and is gone, as in a restarted container."""
    process = name.partition("/")[0]
    host, _, pid = process.rpartition(":")
    if host != own_name.rpartition(":")[0] or not pid.isdigit():
        return False
    if process == own_name:
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


class Holdings:
    """The leases of one worker: its presence, and its tables."""

    def __init__(self, context: StageContext, names: Collection[str] | None, seconds: float = LIVE_SECONDS) -> None:
        self._context, self._seconds = context, seconds
        self._only = None if names is None else self._of_logs(names)
        self._number = secrets.randbits(62)
        self._worker = f"{context.worker}/{secrets.token_hex(3)}"  # containers may share host name and process number
        self._presence: list[Lease] = []
        self._held: dict[int, Lease] = {}
        self._names: dict[int, str] = {}
        self._begun = False
        self._wanted: list[int] | None = None
        self._lost = 0

    @property
    def worker(self) -> str:
        """The name of this worker in its leases."""
        return self._worker

    @property
    def lost(self) -> int:
        """The number of tables so far whose lease ran out before it was renewed."""
        return self._lost

    @property
    def wanted(self) -> Collection[int] | None:
        """The tables that this worker works for, by id, at the last beat. None for all."""
        return self._wanted

    @property
    def tables(self) -> Mapping[int, str]:
        """The names of the held tables, by id."""
        return {number: self._names[number] for number in sorted(self._held)}

    def beat(self) -> None:
        """Renews the leases, releases tables of other workers' shares, and takes the free tables of its own share.

        Forgets tables with a lost lease first. After a death the leases run out. A wanted table that was dropped or
        renamed is no error, and changes nothing for the other tables.
        """
        tables = {table.table_id: str(table.name) for table in self._context.choose_logs(None)}
        self._wanted = self._wanted_of(tables)
        self._renew(self._wanted)
        with self._context.database.begin() as connection:
            presences = leases.load_presences(connection)
            taken = live_tables(connection, self._seconds)
        own = self._share(tables, presences, taken)
        self._delete([lease for number, lease in self._held.items() if number not in own])
        self._held = {number: lease for number, lease in self._held.items() if number in own}
        self._names = tables
        self._take([number for number in own if number not in taken and number not in self._held])

    def release(self) -> None:
        """Releases all leases, so that others go on at once. After an error the leases run out."""
        with suppress(PrismError):
            self._delete([*self._presence, *self._held.values()])
        self._presence, self._held = [], {}

    def _of_logs(self, names: Collection[str]) -> tuple[set[str], set[int]]:
        """Returns names and ids of the wanted tables. A renamed table keeps its id, one applied again its name."""
        chosen = self._context.choose_logs(names)
        return {str(table.name) for table in chosen}, {table.table_id for table in chosen}

    def _wanted_of(self, tables: Mapping[int, str]) -> list[int] | None:
        if self._only is None:
            return None
        names, ids = self._only
        return [number for number, name in tables.items() if number in ids or name in names]

    def _share(
        self, tables: Mapping[int, str], presences: Mapping[int, Presence], taken: Mapping[int, Holder]
    ) -> set[int]:
        """Returns the tables of this worker."""
        living = {number: one for number, one in presences.items() if one.holder.silent_seconds < self._seconds}
        wanted = {
            number: [table for table in tables if one.wanted is None or table in one.wanted]
            for number, one in living.items()
        }
        by_name = {one.holder.worker: number for number, one in living.items()}
        held = {table: by_name[holder.worker] for table, holder in taken.items() if holder.worker in by_name}
        held |= dict.fromkeys(self._held, self._number)
        return {table for table, worker in share_out(wanted, held).items() if worker == self._number}

    def _renew(self, wanted: Sequence[int] | None) -> None:
        with self._context.database.begin() as connection:
            held = leases.renew_held(connection, [*self._presence, *self._held.values()])
            leases.want_tables(connection, [lease for lease in held if lease.kind is LeaseKind.WORKER], wanted)
        self._presence = [lease for lease in held if lease.kind is LeaseKind.WORKER]
        before = len(self._held)
        self._held = {lease.subject_id: lease for lease in held if lease.kind is LeaseKind.LIVE}
        self._lost += before - len(self._held)
        if not self._presence:
            with self._context.database.begin() as connection:
                leases.forget_silent(connection, _KINDS, _FORGOTTEN_SECONDS)
            if not self._begun:
                self._forget_predecessors()
                self._begun = True
            with self._context.database.begin() as connection:
                self._presence = leases.take(connection, LeaseKind.WORKER, [self._number], self._worker, self._seconds)
                leases.want_tables(connection, self._presence, wanted)

    def _forget_predecessors(self) -> None:
        """Drops leases of dead workers of this machine, so a restarted worker goes on at once.

        A wrong guess takes the tables of a living worker, for example between containers with one host name. No row
        depends on it.
        """
        with self._context.database.begin() as connection:
            holders = [holder for kind in _KINDS for holder in leases.load_all_holders(connection, kind).values()]
        dead = {holder.worker for holder in holders if is_dead_neighbour(holder.worker, self._context.worker)}
        if dead:
            with self._context.database.begin() as connection:
                leases.forget_workers(connection, _KINDS, dead)

    def _take(self, numbers: Sequence[int]) -> None:
        if numbers:
            with self._context.database.begin() as connection:
                taken = leases.take(connection, LeaseKind.LIVE, numbers, self._worker, self._seconds)
            self._held |= {lease.subject_id: lease for lease in taken}

    def _delete(self, released: Sequence[Lease]) -> None:
        if released:
            with self._context.database.begin() as connection:
                leases.release(connection, released)

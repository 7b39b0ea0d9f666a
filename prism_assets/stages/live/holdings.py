"""The tables of a live worker, shared evenly by all of them through leases.

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
from prism_assets.metadata import leases
from prism_assets.metadata.leases import Holder, Lease, LeaseKind
from prism_assets.stages.context import StageContext

LIVE_SECONDS = 15.0
"""The lease of a table. Its worker renews it every five seconds."""
_KINDS = (LeaseKind.LIVE, LeaseKind.WORKER)
_FORGOTTEN_SECONDS = 3_600.0
"""Leases of dead workers are shown by status for so long."""


def live_tables(connection: Connection, seconds: float = LIVE_SECONDS) -> dict[int, Holder]:
    """Returns the workers of tables with a fresh lease, by table. Sensors leave these tables out."""
    holders = leases.load_holders(connection, LeaseKind.LIVE)
    return {table: holder for table, holder in holders.items() if holder.silent_seconds < seconds}


def is_dead_neighbour(name: str, own_name: str) -> bool:
    """Whether a worker `host:pid` ran on the host of `own_name` and is gone. In a container it had the same pid."""
    host, _, pid = name.rpartition(":")
    if host != own_name.rpartition(":")[0] or not pid.isdigit():
        return False
    if name == own_name:
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
        self._context, self._only, self._seconds = context, names, seconds
        self._number = secrets.randbits(62)
        self._presence: list[Lease] = []
        self._held: dict[int, Lease] = {}
        self._names: dict[int, str] = {}
        self._begun = False

    @property
    def tables(self) -> Mapping[int, str]:
        """The names of the held tables, by id."""
        return {number: self._names[number] for number in sorted(self._held)}

    def beat(self) -> None:
        """Renews the leases, gives tables beyond an even share back, and takes free tables up to the share.

        A table whose lease was lost is dropped first. A death leaves the leases to run out.
        """
        tables = {table.table_id: str(table.name) for table in self._context.choose_logs(self._only)}
        self._renew()
        with self._context.database.begin() as connection:
            workers = leases.load_holders(connection, LeaseKind.WORKER).values()
            taken = live_tables(connection, self._seconds)
        living = sum(holder.silent_seconds < self._seconds for holder in workers)
        share = -(-len(tables) // max(1, living))
        kept = [number for number in sorted(self._held) if number in tables][:share]
        self._release([lease for number, lease in self._held.items() if number not in kept])
        self._held = {number: self._held[number] for number in kept}
        free = [number for number in tables if number not in taken and number not in self._held]
        self._take(free[: share - len(kept)])
        self._names = {**tables, **{number: self._names[number] for number in self._held if number not in tables}}

    def give_back(self) -> None:
        """Releases all leases: others go on at once. After an error the leases run out."""
        with suppress(PrismError):
            self._release([*self._presence, *self._held.values()])
        self._presence, self._held = [], {}

    def _renew(self) -> None:
        with self._context.database.begin() as connection:
            held = leases.renew_held(connection, [*self._presence, *self._held.values()])
        self._presence = [lease for lease in held if lease.kind is LeaseKind.WORKER]
        self._held = {lease.subject_id: lease for lease in held if lease.kind is LeaseKind.LIVE}
        if not self._presence:
            with self._context.database.begin() as connection:
                leases.forget_silent(connection, _KINDS, _FORGOTTEN_SECONDS)
            if not self._begun:
                self._forget_predecessors()
                self._begun = True
            self._presence = self._taken(LeaseKind.WORKER, [self._number])

    def _forget_predecessors(self) -> None:
        """Drops leases of dead workers of this machine, so a restarted worker goes on at once.

        A wrong guess, as between containers with one host name, takes tables from a living worker, and costs no more.
        """
        with self._context.database.begin() as connection:
            holders = [holder for kind in _KINDS for holder in leases.load_holders(connection, kind).values()]
        dead = {holder.worker for holder in holders if is_dead_neighbour(holder.worker, self._context.worker)}
        if dead:
            with self._context.database.begin() as connection:
                leases.forget_workers(connection, _KINDS, dead)

    def _take(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._held |= {lease.subject_id: lease for lease in self._taken(LeaseKind.LIVE, numbers)}

    def _taken(self, kind: LeaseKind, numbers: Sequence[int]) -> list[Lease]:
        with self._context.database.begin() as connection:
            return leases.take(connection, kind, numbers, self._context.worker, self._seconds)

    def _release(self, released: Sequence[Lease]) -> None:
        if released:
            with self._context.database.begin() as connection:
                leases.release(connection, released)

"""Processes on one lake that stand still on request, a polling reader, and all objects that arrived."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from prism_assets.domain.errors import PrismError
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.crash.fleet import Worker
from prism_assets_tests.crash.fork_server import Child
from prism_assets_tests.crash.judge import judge
from prism_assets_tests.crash.life import Author, Drop, Life, Phase
from prism_assets_tests.crash.playing import put
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.crash.reader import Poller
from prism_assets_tests.crash.steps import do
from prism_assets_tests.world import World

EVENTS = "log.events"
NOON, AFTER, LATER = "2026-03-01T12:00", "2026-03-02T00:10", "2026-03-02T00:20"
THE_END = utc("2026-03-03T01:00")
LEASE = 1.0
_SMALL = "{interval: 0, target_bytes: 1}"
"""Every small object becomes a merged one."""
LONG_LEASE = 60.0
"""The lease of a process to be frozen: it rarely beats, and takes no work from processes that are slow on a busy
machine.
"""
_PATIENCE = 120.0
_LOOKS_AT_A_LOCK = 20


def act(steps: list[list[str]], stubborn: bool) -> None:
    """Runs a process of a race: steps, each with its instant. A stubborn one continues after errors, like a daemon."""
    context = build_context(load_settings(), progress=lambda message: print(message, flush=True))
    for step, now in steps:
        try:
            turns = do(context, step, utc(now))
        except PrismError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            if not stubborn:
                raise
            continue
        for turn in turns:
            for sentence in turn.errors:
                print(sentence, flush=True)
        print(f"did {step}", flush=True)


@dataclass(frozen=True)
class Sessions:
    """The sessions of a world's database, except the one that looks."""

    world: World

    def stand_in_transactions(self) -> bool:
        """Whether a transaction is open in two looks."""
        first = self._transactions()
        time.sleep(0.1)
        return bool(first & self._transactions())

    def _transactions(self) -> set[tuple[Any, ...]]:
        return {(row.pid, row.xact_start) for row in self._read() if row.xact_start is not None}

    def described(self) -> str:
        """Returns the state of each session, and the sessions that hold its lock, for the message of a failure."""
        return "sessions: " + "; ".join(str(dict(row._mapping)) for row in self._read())

    def _read(self) -> Sequence[Any]:
        with self.world.context.database.begin() as connection:
            return connection.exec_driver_sql(_SESSIONS).all()


_SESSIONS = (
    "SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid) AS behind, xact_start, state_change, "
    "left(query, 200) AS query FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


@dataclass
class Actor:
    """A process of a race. At a failpoint it may stand still until the test lets it continue."""

    child: Child
    file: Path | None
    sessions: Sessions

    def stands(self) -> None:
        """Waits until the process reaches its failpoint."""
        assert self.file is not None
        reached = self.file.with_suffix(self.file.suffix + ".reached")
        end = time.monotonic() + _PATIENCE
        while not reached.exists():
            assert not self.child.ended.is_set(), f"it ended before it stood still: {self.child.said()}"
            assert time.monotonic() < end, f"it never stood still: {self.child.said()} {self.sessions.described()}"
            time.sleep(0.01)

    @property
    def is_standing(self) -> bool:
        """Whether the process stands at its failpoint."""
        return self.file is not None and self.file.with_suffix(self.file.suffix + ".reached").exists()

    def freezes(self) -> None:
        """Stops the process and its heartbeats for longer than a lease, outside transactions.

        PostgreSQL keeps the locks of a frozen transaction for a minute, and the process that takes over waits for them.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            self.child.kill(signal.SIGSTOP)
            time.sleep(LEASE + 0.3)
            if not self.sessions.stand_in_transactions():
                return
            assert time.monotonic() < end, f"it always froze in a transaction: {self.sessions.described()}"
            self.child.kill(signal.SIGCONT)
            time.sleep(0.05)

    def thaws(self) -> None:
        """Lets the process continue after a freeze, and from its failpoint."""
        self.child.kill(signal.SIGCONT)
        self.goes_on()

    def goes_on(self) -> None:
        """Lets the process continue."""
        assert self.file is not None
        self.file.unlink()

    def ends(self) -> int:
        """Waits for the end, and returns the exit status."""
        return self.child.wait(600)


@dataclass
class Stage:
    """One lake. `settings` are the differences of its processes' settings from the judge's."""

    worker: Worker
    world: World
    poller: Poller
    author: Author = field(default_factory=lambda: Author(1))
    drops: list[Drop] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def drop(self, *starts: str, now: str = NOON, rows: int = 6, **more: Any) -> Drop:
        """Lets an object arrive."""
        made = self.author.drop(EVENTS, *(starts or ("2026-03-01T11:00",)), rows=rows, **more)
        self.drops.append(made)
        self._put(made, now)
        return made

    def overwrite(self, drop: Drop, now: str = NOON) -> None:
        """Lets another object arrive under the same key, and with other rows."""
        made = replace(self.author.drop(EVENTS, "2026-03-01T11:00"), name=drop.name)
        self.drops[self.drops.index(drop)] = made
        self._put(made, now)

    def _put(self, drop: Drop, now: str) -> None:
        if self.world.settings.local_root:
            put(self.world.root / "buckets" / "staging", drop, utc(now))
        else:
            self.world.context.stores.put(staging_of(self.world), drop.key, drop.body())

    def vanish(self) -> None:
        """Removes the vanishing objects."""
        gone = [drop.key for drop in self.drops if drop.vanishes]
        self.world.context.stores.delete(staging_of(self.world), gone)

    def widen(self) -> None:
        """Gives the table one more column, as a new table file to be applied."""
        self.world.settings.tables_dir.mkdir(exist_ok=True)
        text = _table(self.world, _SMALL, ["{name: extra, type: bigint}"])
        (self.world.settings.tables_dir / "events.yaml").write_text(text)

    def start(
        self, *steps: tuple[str, str], at: str = "", hit: int = 1, stubborn: bool = False, lease: float = LEASE
    ) -> Actor:
        """Starts a process for the steps, with an optional stop at a failpoint."""
        number = next(self._numbers)
        file = self.world.root / f"pause{number}" if at else None
        if file:
            file.touch()
        before = f"{hit - 1}*off->" if hit > 1 else ""
        points = {"PRISM_FAILPOINTS": f"{at}={before}1*pause({file})"} if at else {}
        child = self.worker.fork_server.run(
            f"{__name__}:act",
            {"steps": [list(step) for step in steps], "stubborn": stubborn},
            environment(self.world, **{"PRISM_LEASE_SECONDS": str(lease), **points, **self.settings}),
            self.world.root / f"actor{number}.txt",
        )
        return Actor(child, file, Sessions(self.world))

    def run(self, *steps: tuple[str, str]) -> int:
        """Runs the steps to the end in a separate process."""
        return self.start(*steps).ends()

    def value(self, statement: str) -> Any:
        """One value out of PostgreSQL."""
        with self.world.context.database.begin() as connection:
            return connection.exec_driver_sql(statement).scalar_one()

    def wait_until(self, statement: str, seconds: float = _PATIENCE) -> None:
        """Waits until a condition holds in PostgreSQL."""
        end = time.monotonic() + seconds
        while not self.value(statement):
            assert time.monotonic() < end, f"it never came to be: {statement}"
            time.sleep(0.02)

    def settles(self, actor: Actor) -> None:
        """Waits until a process can advance no further: after its end, at its failpoint, or in a wait for a lock.

        Most locks are granted within a moment, so only one seen waiting in many checks counts.
        """
        end, looks = time.monotonic() + _PATIENCE, 0
        while not (actor.child.ended.is_set() or actor.is_standing or looks == _LOOKS_AT_A_LOCK):
            assert time.monotonic() < end, (
                f"it neither waits nor ends: {actor.child.said()} {actor.sessions.described()}"
            )
            looks = looks + 1 if self.value(_WAITING) else 0
            time.sleep(0.02)

    def is_looked_at(self) -> None:
        """Waits until the reader has read everything again."""
        seen, end = self.poller.looks, time.monotonic() + _PATIENCE
        while self.poller.looks < seen + 2:
            assert time.monotonic() < end, "the reader does not look"
            time.sleep(0.02)

    def at_rest(self, end: datetime = THE_END) -> list[str]:
        """Runs everything twice, an hour apart, without manual work. Then returns all faults."""
        life = Life({EVENTS: "UTC"}, (), (Phase(end, ()),), (EVENTS,), tuple(self.drops))
        found = []
        for rest in life.rests:
            actor = self.start(("run", rest.now.strftime("%Y-%m-%dT%H:%M")))
            if status := actor.ends():
                found.append(f"a run at rest ended with {status}: {actor.child.said()}")
        return found or judge(self.world, life)


_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
    "AND pid <> pg_backend_pid() AND query NOT LIKE 'UPDATE prism_stream_batches SET heartbeat_time%%'"
)
"""Excludes a heartbeat, which waits for the commit of its own batch."""


@contextmanager
def on_stage(worker: Worker, world: World, merge: str = _SMALL) -> Iterator[Stage]:
    """Yields a table and a reader that polls it."""
    world.apply(_table(world, merge))
    poller = Poller(world.settings, (EVENTS,))
    poller.start()
    try:
        yield Stage(worker, world, poller)
    finally:
        poller.finish()


def staging_of(world: World) -> str:
    """Returns the bucket of arriving objects."""
    return world.settings.bucket.replace("lake", "staging")


def _table(world: World, merge: str, columns: Sequence[str] = ()) -> str:
    return a_table(EVENTS, merge=merge, bucket=staging_of(world), columns=columns)

"""Kills at random moments under load: commands, workers and servers die while objects arrive and a reader polls.

Time runs fast: the processes take it from a file, with days passing in seconds. Arrivals are known by id.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from prism_assets.domain.errors import PrismError
from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets_tests.builders import utc
from prism_assets_tests.crash.actors import Stage, on_stage
from prism_assets_tests.crash.fleet import Worker
from prism_assets_tests.crash.fork_server import Child
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.crash.reader import UNFINISHED
from prism_assets_tests.crash.steps import do
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World
from prism_local import processes
from prism_local.stack import LocalStack

BEGIN = utc("2026-03-01T06:00")
ROLES: Mapping[str, tuple[str, ...]] = {
    "stream": ("discover", "stream"),
    "stream too": ("discover", "stream"),
    "merge": ("merge",),
    "catalog": ("catalog",),
}
SERVERS = ("postgres", "s3", "spark", "python")
"""Further victims, in turn: servers, and a Python worker of Spark."""
COMMANDS_TO_A_SERVER = 3
_PATIENCE = 120.0
"""Seconds after which the test reports a reader with hardly any reads."""
_FORMAT = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True)
class Load:
    """How much is to happen: so many kills, and at least so many rows and looks of a reader.

    `hours` of the lake's go by in a second of ours.
    """

    seed: int
    kills: int
    rows: int
    rows_each: int = 100
    looks: int = 30
    hours: float = 1.0
    pause: float = 0.4
    servers: bool = False


def serve(steps: list[str], clock: str, end: str) -> None:
    """Runs a worker process: repeats its steps by the clock until told to end."""
    context = build_context(load_settings())
    while not Path(end).exists():
        now = utc(Path(clock).read_text())
        for step in steps:
            with contextlib.suppress(PrismError):  # the next turn tries again, as sensors do
                do(context, step, now)
        time.sleep(0.02)


@dataclass
class _Clock(threading.Thread):
    """Writes the current time of the lake to a file."""

    file: Path
    hours: float
    begun: float = field(default_factory=time.monotonic)
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._write()

    __hash__ = threading.Thread.__hash__

    @property
    def now(self) -> datetime:
        return BEGIN + timedelta(hours=self.hours * (time.monotonic() - self.begun))

    def run(self) -> None:
        while not self._end.wait(0.1):
            self._write()

    def _write(self) -> None:
        aside = self.file.with_suffix(".new")
        aside.write_text(self.now.strftime(_FORMAT))
        aside.rename(self.file)

    def finish(self) -> datetime:
        self._end.set()
        self.join()
        return self.now


@dataclass
class _Crowd:
    """The worker processes and the server processes: one of each, restarted after a kill.

    `next` is the next victim: every role once in random order, then in another, so that a few kills reach all.
    """

    stage: Stage
    clock: Path
    stack: LocalStack | None
    random: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    children: dict[str, Child] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)

    @property
    def end(self) -> Path:
        return self.stage.world.root / "end"

    def start(self, role: str) -> None:
        arguments = {"steps": list(ROLES[role]), "clock": str(self.clock), "end": str(self.end)}
        output = self.stage.world.root / f"{role}.txt"
        settings = environment(self.stage.world, **self.stage.settings)
        self.children[role] = self.stage.worker.fork_server.run(f"{__name__}:serve", arguments, settings, output)

    def kill_one(self) -> None:
        """Kills a process at work, mostly a command, because an installation has many of them and few servers."""
        turn, place = divmod(sum(self.kills.values()), COMMANDS_TO_A_SERVER + 1)
        if self.stack is not None and place == COMMANDS_TO_A_SERVER:
            self._kill_server(self.stack, SERVERS[turn % len(SERVERS)])
            return
        if not self.next:
            self.next = self.random.sample(list(ROLES), len(ROLES))
        role = self.next.pop()
        child = self.children[role]
        if child.ended.is_set():
            self.problems.append(f"{role} ended by itself with {child.status}: {child.said()}")
        child.kill()
        child.ended.wait(10)
        self.kills[role] += child.status == -signal.SIGKILL
        self.start(role)

    def _kill_server(self, stack: LocalStack, name: str) -> None:
        pids = {service.name: service.pid for service in stack.status()}
        pid = pids["spark" if name == "python" else name]
        assert pid is not None, f"{name} does not run"
        victim = psutil.Process(pid)
        if name == "python":
            workers = [child for child in victim.children(recursive=True) if "python" in child.name()]
            victim = self.random.choice(workers or [victim])
        family = [victim, *(victim.children(recursive=True) if name == "postgres" else [])]
        victim.kill()
        processes.wait(family, 20)
        self.kills[name] += 1
        if name == "s3":
            _remove_unfinished_puts(stack)
        stack.up(services={"postgres", "s3", "spark"})

    def finish(self) -> None:
        """Lets everybody finish, and kills hanging processes."""
        self.end.touch()
        for child in self.children.values():
            if not child.ended.wait(30):
                child.kill()
                child.ended.wait(10)
        self.end.unlink()


def _remove_unfinished_puts(stack: LocalStack) -> None:
    """Removes files `KEY-UUID` left by puts when s3proxy died. S3 itself never lists such files.

    The stack cannot distinguish such a file from an object; here no object has such a name.
    """
    for path in (stack.place.data / "s3").rglob("*"):
        if UNFINISHED.search(path.name):
            path.unlink()


def run(worker: Worker, **load: Any) -> dict[str, Any]:
    """Runs a worker of the fleet: a time under load, then rest, then judgement."""
    wanted, started = Load(**load), time.monotonic()
    with _place(worker, wanted) as (stage, stack):
        clock = _Clock(stage.world.root / "clock", wanted.hours)
        clock.start()
        crowd = _Crowd(stage, clock.file, stack, random.Random(wanted.seed))
        for role in ROLES:
            crowd.start(role)
        rows = _live(stage, crowd, clock, wanted)
        crowd.finish()
        end = clock.finish()
        violations = [*crowd.problems, *stage.at_rest(_days_after(end)), *stage.poller.finish()]
        return {
            "kills": dict(crowd.kills),
            "rows": rows,
            "objects": len(stage.drops),
            "looks": stage.poller.looks,
            "days": len({day for _, day in stage.poller.seen}),
            "violations": violations,
            "seconds": round(time.monotonic() - started, 1),
        }


def _live(stage: Stage, crowd: _Crowd, clock: _Clock, load: Load) -> int:
    """Objects arrive and processes die, until there were enough of both and of looks; returns how many rows arrived."""
    rows, next_kill = 0, time.monotonic() + 1.0

    patience = time.monotonic() + _PATIENCE + 2 * load.kills * load.pause

    def is_looked_at() -> bool:
        return stage.poller.looks >= load.looks or time.monotonic() > patience

    while sum(crowd.kills.values()) < load.kills or rows < load.rows or not is_looked_at():
        now = clock.now
        starts = [now - timedelta(minutes=crowd.random.choice([1, 5, 30, 600]))]
        if crowd.random.random() < 0.3:
            starts.append(now - timedelta(hours=crowd.random.choice([1, 20, 30])))
        broken = crowd.random.choice([0, 0, 1])
        if rows < 2 * load.rows:
            with contextlib.suppress(PrismError):  # S3 is down: the producer comes again
                drop = stage.drop(
                    *(start.strftime(_FORMAT) for start in starts),
                    now=now.strftime(_FORMAT),
                    rows=load.rows_each,
                    broken=broken,
                )
                rows += len(drop.rows)
        if time.monotonic() >= next_kill and sum(crowd.kills.values()) < load.kills:
            crowd.kill_one()
            next_kill = time.monotonic() + crowd.random.uniform(0.1, 2 * load.pause)
        time.sleep(crowd.random.uniform(0.01, 0.1))
    return rows


def _days_after(end: datetime) -> datetime:
    """Returns the time after the end of all days with rows."""
    return end.replace(minute=0, second=0, microsecond=0) + timedelta(days=2)


@contextmanager
def _place(worker: Worker, load: Load) -> Iterator[tuple[Stage, LocalStack | None]]:
    """Returns a world on disk and in process, or one with its own killable servers."""
    if not load.servers:
        with worker.world() as world, on_stage(worker, world, EVENTS_POLICY) as stage:
            yield stage, None
        return
    stack = LocalStack(worker.new_folder("stack") / ".prism")
    stack.up(services={"postgres", "s3", "spark"})
    try:
        with _world_on(worker, stack) as world, on_stage(worker, world, EVENTS_POLICY) as stage:
            stage.poller.may_fail = True
            yield stage, stack
    finally:
        stack.reset()


EVENTS_POLICY = "{interval: 0, target_bytes: 60000, max_objects: 50}"


@contextmanager
def _world_on(worker: Worker, stack: LocalStack) -> Iterator[World]:
    services = stack.environment()
    os.environ.update({name: services[name] for name in services if name.startswith(("AWS_", "SPARK_"))})
    url = services["PRISM_DATABASE_URL"]
    with worker.world(server=url, template=PostgresServer(url).template(), lease_seconds=2) as other:
        kept = other.settings.model_dump(exclude={"local_root", "bucket", "s3_endpoint", "object_tags", "spark_remote"})
        places = {"bucket": services["PRISM_BUCKET"], "s3_endpoint": services["PRISM_S3_ENDPOINT"]}
        remote = {"spark_remote": services["PRISM_SPARK_REMOTE"], "object_tags": False}
        settings = type(other.settings)(**{**kept, **places, **remote})
        made = World(other.root, settings, build_context(settings))
        try:
            yield made
        finally:
            made.close()

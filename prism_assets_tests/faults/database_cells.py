"""The cells of the PostgreSQL faults: events of the server or its sessions during a day."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy

from prism_assets_tests.crash.actors import AFTER, LATER, NOON, Actor, Stage, on_stage
from prism_assets_tests.crash.fleet import Work, Worker
from prism_assets_tests.crash.fork_server import STOPPED_BY_ERROR
from prism_assets_tests.faults import postgres
from prism_assets_tests.faults.postgres import STATES, WRITES, Server
from prism_assets_tests.faults.tcp import TcpProxy
from prism_assets_tests.postgres import PostgresServer

RECONNECT_SECONDS = 5.0
_SLOWNESS_SECONDS = 60.0
"""How much longer two steps may take on a busy machine."""
A_DAY = (("run", NOON), ("catalog", AFTER), ("run", AFTER), ("run", LATER))
# Points at which a server stops under a process: before, in and after its transactions, and while a session has a lock.
STOPS = (
    "discover.in_page",
    "stream.in_start",
    "stream.after_convert",
    "stream.in_commit",
    "merge.after_claim",
    "merge.in_commit",
    "catalog.after_manifest",
    "catalog.after_publish",
    "catalog.in_record",
    "catalog.in_switch",
)
HOLES = ("stream.after_convert", "merge.before_commit", "catalog.after_manifest")
ENDS = ("stream.in_commit", "merge.in_commit", "catalog.in_record")


@dataclass(frozen=True)
class Statement:
    """The next statements of one kind fail."""

    table: str
    verb: str
    failure: str
    times: int = 2

    def __str__(self) -> str:
        return f"{self.verb} {self.table}, {self.failure}"


STATEMENTS: Sequence[Statement] = tuple(
    Statement(table, verb, failure)
    for number, (table, verb) in enumerate(WRITES)
    for failure in [list(STATES)[number % len(STATES)]]
)
ALL_STATEMENTS: Sequence[Statement] = tuple(
    Statement(table, verb, failure, times)
    for (table, verb), failure, times in itertools.product(WRITES, STATES, (1, 2, 3))
)


def work_of(cell: Statement) -> Work:
    """Returns the fleet work for failing statements."""
    return Work(function=f"{__name__}:run_statement", arguments=dict(vars(cell)))


def work_of_case(name: str, point: str) -> Work:
    """Returns the fleet work for an event of a server."""
    return Work(function=f"{__name__}:run", arguments={"name": name, "point": point})


def run_statement(worker: Worker, table: str, verb: str, failure: str, times: int) -> dict[str, Any]:
    """Plays a day with failing statements, and judges it at rest."""
    violations: list[str] = []
    with worker.world() as world, on_stage(worker, world) as stage:
        engine = _engine(world.settings.database_url.get_secret_value())
        postgres.make_fail(engine, table, verb, STATES[failure], times)
        _a_day(stage)
        injected = min(times, postgres.failures(engine))
        violations += stage.at_rest()
        violations += stage.poller.finish()
        engine.dispose()
    return {"injected": injected, "violations": violations}


def _a_day(stage: Stage) -> None:
    """Arrivals by day and by night, with runs. A failure is left to the next run."""
    stage.drop(broken=1)
    stage.drop("2026-02-28T23:00", "2026-03-01T11:00")
    for number, step in enumerate(A_DAY):
        stage.run(step)
        if number == 1:
            stage.drop("2026-03-01T23:00", "2026-03-02T00:05", now=AFTER)


def run(worker: Worker, name: str, point: str = "") -> dict[str, Any]:
    """Runs a worker of the fleet with its own server: one event, then rest, then judgement."""
    found: list[str] = []
    with _own_server(worker) as server:
        url, template = server.url, PostgresServer(server.url).template()
        with worker.world(server=url, template=template) as world, on_stage(worker, world) as stage:
            stage.poller.database_may_fail = True
            found += EVENTS[name](stage, server, point)
            found += stage.at_rest()
            found += stage.poller.finish()
    return {"injected": 1, "violations": found}


@contextmanager
def _own_server(worker: Worker) -> Iterator[Server]:
    server = Server(worker.new_folder("server") / ".prism")
    server.start()
    try:
        yield server
    finally:
        server.remove()


def _engine(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")


def stopped(stage: Stage, server: Server, point: str) -> Iterator[str]:
    """The server stops at once under a process at a point, and is started again: the process goes on by itself."""
    yield from _at(point, stage, server.stop_at_once, server.start)


def killed(stage: Stage, server: Server, point: str) -> Iterator[str]:
    """The same without a message to clients."""
    yield from _at(point, stage, server.kill, server.start)


def sessions_ended(stage: Stage, _server: Server, point: str) -> Iterator[str]:
    """All sessions of a process end at a point, by an operator or the server: the process continues by itself."""
    url = stage.world.settings.database_url.get_secret_value()
    yield from _at(point, stage, lambda: postgres.end_sessions(_engine(url)))


def _at(point: str, stage: Stage, *events: Callable[[], object]) -> Iterator[str]:
    stage.drop(broken=1)
    stage.drop("2026-02-28T23:00", "2026-03-01T11:00")
    actor = stage.start(*A_DAY, at=point, stubborn=True)
    actor.stands()
    stage.world.context.database.dispose()
    for event in events:
        event()
    actor.goes_on()
    yield from _does_its_work_in(RECONNECT_SECONDS, stage, actor)


def _does_its_work_in(seconds: float, stage: Stage, actor: Actor) -> Iterator[str]:
    """Checks that a process works again in time after an error, by its message after each step."""
    end = time.monotonic() + seconds
    before = actor.child.said().count("did ")
    while actor.child.said().count("did ") <= before + 1 and not actor.child.ended.is_set():
        if time.monotonic() > end + _SLOWNESS_SECONDS:
            yield f"the process was not at work {seconds} s after the server came back: {actor.child.said()}"
            break
        time.sleep(0.05)
    if actor.ends() != 0:
        yield f"the process ended: {actor.child.said()}"
    if "did run" not in actor.child.said():
        yield f"the process never did a whole run again: {actor.child.said()}"


def exhausted(stage: Stage, server: Server, _point: str) -> Iterator[str]:
    """All connections of the server are taken, and given back."""
    stage.drop()
    taken: list[psycopg.Connection[Any]] = []
    stage.world.context.database.dispose()
    with contextlib.suppress(psycopg.OperationalError):
        while len(taken) < 1_000:
            taken.append(psycopg.connect(_plain(server.url), connect_timeout=5))
    assert len(taken) < 1_000, "the server takes any number of connections"
    refused = stage.start(("run", NOON))
    if refused.ends() != STOPPED_BY_ERROR or "DatabaseUnavailable" not in refused.child.said():
        yield f"the connections were not exhausted: {refused.child.said()}"
    for connection in taken:
        connection.close()


def deadlocked(stage: Stage, server: Server, _point: str) -> Iterator[str]:
    """A commit and another session wait for each other, and the commit is chosen as the victim."""
    stage.drop()
    stage.run(("run", NOON))
    stage.drop()
    commit = stage.start(("run", NOON), at="stream.in_commit")
    commit.stands()
    url = _plain(stage.world.settings.database_url.get_secret_value())
    with psycopg.connect(url) as other:
        other.execute("SET deadlock_timeout = '120s'")
        other.execute("SELECT 1 FROM prism_staging_objects FOR UPDATE")
        waiting = threading.Thread(target=other.execute, args=("SELECT 1 FROM prism_partitions FOR UPDATE",))
        waiting.start()
        stage.wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%%prism_partitions FOR UPDATE'")
        commit.goes_on()
        waiting.join(120)
        other.rollback()
    commit.ends()
    if "deadlock" not in commit.child.said():
        yield f"there was no deadlock: {commit.child.said()}"


def black_hole(stage: Stage, server: Server, point: str) -> Iterator[str]:
    """The network loses all data between a process and the server: others do the work after the lease."""
    stage.drop(broken=1)
    stage.drop("2026-02-28T23:00", "2026-03-01T11:00")
    url = sqlalchemy.make_url(stage.world.settings.database_url.get_secret_value())
    proxy = TcpProxy(str(url.host), int(url.port or 0))
    stage.settings["PRISM_DATABASE_URL"] = url.set(port=proxy.port).render_as_string(hide_password=False)
    lost = stage.start(*A_DAY, at=point, stubborn=True)
    lost.stands()
    stage.settings.clear()
    proxy.swallow()
    lost.goes_on()
    try:
        found = stage.at_rest()
        yield from (f"while a session is in a black hole: {violation}" for violation in found)
    finally:
        lost.child.kill()
        lost.child.ended.wait(10)
        proxy.close()


def failed_over(stage: Stage, server: Server, _point: str) -> Iterator[str]:
    """An older copy takes over during a worker's work: ids repeat, and no two workers get the same one."""
    folder = stage.world.root / "copy"
    stage.drop()
    stage.run(("run", NOON))
    stage.world.context.database.dispose()
    server.copy(folder)
    stage.drop()
    stage.run(("run", NOON))
    stage.drop()
    zombie = stage.start(("discover", NOON), ("stream", NOON), at="stream.after_convert")
    zombie.stands()
    stage.world.context.database.dispose()
    with stage.poller.between_looks():
        server.fail_over_to(folder)
        stage.poller.forget_lake()
    stage.run(("discover", NOON))
    again = stage.start(("stream", NOON), at="stream.after_convert")
    again.stands()
    zombie.goes_on()
    zombie.ends()
    again.goes_on()
    if again.ends() != 0:
        yield f"the worker after the failover failed: {again.child.said()}"


def idle_too_long(stage: Stage, server: Server, point: str) -> Iterator[str]:
    """A process stands still inside a transaction until PostgreSQL ends its session."""
    stage.drop()
    idle = stage.start(*A_DAY, at=point, stubborn=True)
    idle.stands()
    stage.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()",
        90,
    )
    idle.goes_on()
    yield from _does_its_work_in(RECONNECT_SECONDS, stage, idle)


Event = Callable[[Stage, Server, str], Iterator[str]]

EVENTS: Mapping[str, Event] = {
    event.__name__: event
    for event in (stopped, killed, sessions_ended, exhausted, deadlocked, black_hole, failed_over, idle_too_long)
}
CASES: Sequence[tuple[str, str]] = (
    *(("stopped", point) for point in STOPS[::4]),
    *zip(("killed", "sessions_ended", "killed"), ENDS, strict=True),
    ("exhausted", ""),
    ("deadlocked", ""),
    ("failed_over", ""),
    ("black_hole", HOLES[0]),
)
LONG_CASES: Sequence[tuple[str, str]] = (
    *CASES,
    *(("stopped", point) for number, point in enumerate(STOPS) if number % 4),
    *zip(("sessions_ended", "killed", "sessions_ended"), ENDS, strict=True),
    *(("black_hole", point) for point in HOLES[1:]),
    *(("idle_too_long", point) for point in ("stream.in_commit", "merge.in_commit", "catalog.in_switch")),
)


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")

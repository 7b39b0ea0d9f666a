"""Workers that live many lives: one process imports everything and forks them. Each has a fork server and a catalog.

`python -m prism_assets_tests.crash.fleet FD…` starts this process, with one worker per socket. The process may run
another copy of the package than its caller, as null controls do.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy
import sqlalchemy.exc

from prism_assets.platform import build_context
from prism_assets.settings import Settings
from prism_assets_tests.crash.fork_server import ForkServer, import_everything
from prism_assets_tests.crash.moments import Kept, Moment
from prism_assets_tests.faults.glue import GlueServer
from prism_assets_tests.faults.s3 import S3Proxy
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

ROOT = Path(__file__).parents[2]
WORKERS = 2 * (os.cpu_count() or 1)
"""Half of the time a life waits for leases."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """`module:function`, called by a worker with itself and these arguments. The result must fit into JSON.

    Works with one `life` go to one worker if possible, because it has kept moments of that life.
    """

    function: str
    arguments: Mapping[str, Any]
    life: tuple[str, int] | None = None


@dataclass
class Done:
    """Work and its result; `error` if the worker itself failed."""

    work: Work
    result: Any = None
    error: str = ""


class Fleet:
    """The caller's end: distributes work and yields results in any order."""

    def __init__(
        self, services: Mapping[str, str], template: str, *, workers: int = WORKERS, package: Path = ROOT
    ) -> None:
        pairs = [socket.socketpair() for _ in range(workers)]
        theirs = [their for _, their in pairs]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PRISM_")},
            **{name: value for name, value in services.items() if name.startswith("AWS_")},
            **{f"SERVICE_{name}": value for name, value in services.items()},
            "PYTHONPATH": str(package),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._folder = tempfile.TemporaryDirectory(prefix="prism-crash-")
        command = [sys.executable, "-m", "prism_assets_tests.crash.fleet", template, self._folder.name]
        self._process = subprocess.Popen(
            [*command, *(str(their.fileno()) for their in theirs)],
            env=environment,
            pass_fds=[their.fileno() for their in theirs],
            cwd=package,
        )
        for their in theirs:
            their.close()
        self._connections = [ours for ours, _ in pairs]
        self._kept: list[set[tuple[str, int]]] = [set() for _ in pairs]

    def map(self, works: Iterable[Work]) -> Iterator[Done]:
        """Runs all work on all workers. After the iterator closes, no further work begins."""
        waiting = _Waiting(list(works), self._kept)
        count = len(waiting.works)
        done: queue.SimpleQueue[Done | None] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=_hand_out, args=(number, connection, waiting, done), daemon=True)
            for number, connection in enumerate(self._connections)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(count):
                found = done.get()
                assert found is not None
                yield found
        finally:
            waiting.forget()
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """Ends all workers."""
        for connection in self._connections:
            connection.close()
        self._process.wait(30)
        self._folder.cleanup()


class _Waiting:
    """Works that no worker has yet, and what each worker has kept."""

    def __init__(self, works: list[Work], kept: list[set[tuple[str, int]]]) -> None:
        self.works = works
        self._kept = kept
        self._lock = threading.Lock()

    def take(self, number: int) -> Work | None:
        """Returns the next work of a worker: first of its own lives, then of those that no other worker has."""
        with self._lock:
            others = set().union(*self._kept) - self._kept[number]
            mine = (work for work in self.works if work.life in self._kept[number])
            free = (work for work in self.works if work.life not in others)
            chosen = next(mine, None) or next(free, None) or next(iter(self.works), None)
            if chosen is not None:
                self.works.remove(chosen)
                if chosen.life is not None:
                    self._kept[number].add(chosen.life)
            return chosen

    def keeps(self, number: int, lives: Iterable[tuple[str, int]]) -> None:
        """Notes the lives of which a worker has kept moments."""
        with self._lock:
            self._kept[number] = set(lives)

    def forget(self) -> None:
        """Lets no further work begin."""
        with self._lock:
            self.works.clear()


def _hand_out(number: int, connection: socket.socket, waiting: _Waiting, done: queue.SimpleQueue[Done | None]) -> None:
    with connection.makefile("r") as answers:
        while work := waiting.take(number):
            try:
                message = {"function": work.function, "arguments": dict(work.arguments)}
                connection.sendall(json.dumps(message).encode() + b"\n")
                line = answers.readline()
                answer: Any = json.loads(line) if line else {"error": "the worker is gone"}
                waiting.keeps(number, [(name, seed) for name, seed in answer.pop("kept", ())])
                done.put(Done(work, **answer))
            except OSError as error:
                done.put(Done(work, error=f"the worker is gone: {error}"))


class Ageing(threading.Thread):
    """Treats calls to the catalog as ended after two seconds instead of minutes, because no call here takes longer."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.5):
            with suppress(sqlalchemy.exc.SQLAlchemyError):  # the server may be down
                self.age()

    def age(self, seconds: float = 2.0) -> None:
        """Treats calls begun earlier as ended."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql(
                "UPDATE prism_publication_intents SET expire_time = start_time WHERE expire_time > start_time "
                f"AND start_time < clock_timestamp() - make_interval(secs => {seconds})"
            )

    def finish(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
        self._engine.dispose()


@dataclass
class Worker:
    """One process of the fleet, the first argument of work functions."""

    fork_server: ForkServer
    glue: GlueServer
    services: Mapping[str, str]
    template: str
    folder: Path
    number: int
    kept: Kept = field(default_factory=Kept)
    _proxies: list[S3Proxy] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 62)))

    def new_folder(self, kind: str) -> Path:
        """Creates an empty folder with a unique name."""
        folder = self._named(f"{kind}_{next(self._numbers)}")
        folder.mkdir()
        return folder

    def _named(self, what: str) -> Path:
        """Returns a folder whose name is also that of a database, so it names the worker and its fleet."""
        return self.folder / f"{what}_{self.number}_{self.folder.name.rpartition('-')[2]}"

    @contextmanager
    def world(
        self,
        *,
        server: str | None = None,
        template: str | None = None,
        calls_age: bool = True,
        place: str = "",
        moment: Moment | None = None,
        **settings: Any,
    ) -> Iterator[World]:
        """Creates a separate platform: new database, new buckets on disk, an empty catalog.

        Calls to the catalog age fast by default, because nobody wants to wait for minutes after each death. A platform
        goes on from a `moment` of an earlier one at the same `place`, because a lake knows its own address.
        """
        root = self._named(place) if place else self.new_folder("crash")
        postgres = PostgresServer(server or self.services["PRISM_DATABASE_URL"])
        self.glue.clear()
        if moment is not None:
            moment.put_back(self.glue, root)
        url = postgres.copy_database(moment.database if moment else template or self.template, root.name)
        settings = {"glue_database_prefix": f"{place}_", **settings} if place else settings
        world = World.create(root, url, self.glue.endpoint, **{"lease_seconds": 1, **settings})
        ageing = Ageing(url)
        if calls_age:
            ageing.start()
        try:
            yield world
        finally:
            ageing.finish()
            world.close()
            postgres.drop_database(url)
            shutil.rmtree(root)

    @property
    def postgres(self) -> PostgresServer:
        """The server of the fleet."""
        return PostgresServer(self.services["PRISM_DATABASE_URL"])

    def keep(self, world: World) -> Moment:
        """Keeps a platform on which no process works at the moment."""
        return Moment.keep(self.postgres, self.glue, world, self._named(f"moment_{next(self._numbers)}"))

    @contextmanager
    def world_on_s3(self, **settings: Any) -> Iterator[World]:
        """Creates a platform with its own buckets on an S3 server, optionally behind `proxy`."""
        number = f"{self.number}-{next(self._numbers)}"
        buckets = {name: f"{name}-{number}" for name in ("lake", "staging")}
        for bucket in buckets.values():
            (Path(self.services["S3_FOLDER"]) / bucket).mkdir()
        with self.world() as other:
            kept = other.settings.model_dump(exclude={"local_root", "bucket", "s3_endpoint", "object_tags"})
            on_s3 = {"bucket": buckets["lake"], "s3_endpoint": self.services["PRISM_S3_ENDPOINT"], "object_tags": False}
            made = Settings(**{**kept, **on_s3, **settings})
            world = World(other.root, made, build_context(made))
            try:
                yield world
            finally:
                world.close()
                self.proxy.clear()

    @property
    def proxy(self) -> S3Proxy:
        """The proxy before the S3 server."""
        if not self._proxies:
            self._proxies.append(S3Proxy(self.services["PRISM_S3_ENDPOINT"]))
        return self._proxies[0]


def _work(connection: socket.socket, template: str, folder: Path, number: int) -> None:
    fork_server = ForkServer.start()
    services = {
        name.removeprefix("SERVICE_"): value for name, value in os.environ.items() if name.startswith("SERVICE_")
    }
    worker = Worker(fork_server, GlueServer(), services, template, folder, number)
    with connection.makefile("r") as requests:
        for line in requests:
            answer = {**_answer(worker, json.loads(line)), "kept": list(worker.kept.lives)}
            connection.sendall(json.dumps(answer).encode() + b"\n")


def _answer(worker: Worker, request: Any) -> dict[str, Any]:
    try:
        module, _, name = request["function"].partition(":")
        return {"result": getattr(importlib.import_module(module), name)(worker, **request["arguments"])}
    except BaseException:
        return {"error": traceback.format_exc()}


def main() -> None:
    template, folder, *numbers = sys.argv[1:]
    import_everything()
    sockets = [socket.socket(fileno=int(number)) for number in numbers]
    pids = []
    for number, connection in enumerate(sockets):
        if (pid := os.fork()) == 0:
            for other in sockets:
                if other is not connection:
                    other.close()
            _work(connection, template, Path(folder), number)
            os._exit(0)
        pids.append(pid)
    for connection in sockets:
        connection.close()
    for pid in pids:
        if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            print(f"a worker ended with {status}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

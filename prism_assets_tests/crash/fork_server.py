"""Forks processes with all imports done, so a life needs no second of imports at its start.

The server opens no thread, no connection and no client runtime, so its forks are as good as fresh interpreters. Its
user forks it before any other start, or spawns it if that is too late.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import sqlalchemy

from prism_assets import failpoints
from prism_assets.domain.errors import PrismError

ROOT = Path(__file__).parents[2]
STOPPED_BY_ERROR = 75
"""Exit status after an error of the error tree, as for a command."""
CRASHED = 70


# Modules that lives and commands import late, imported here before the first fork.
_NEEDED = (
    "prism_assets.cli",
    "prism_assets.platform",
    "prism_assets.publishers.iceberg.catalogs",
    "prism_assets.kernels.registry",
    "prism_assets.engine.inprocess",
    "prism_assets.reading.query",
    "prism_assets.stages.run",
    "prism_assets.stages.findings.registry",
    "prism_assets.stages.repair.run",
    "prism_assets_tests.crash.playing",
    "pyarrow.dataset",
)


def import_everything() -> None:
    """Imports everything, and reads the service descriptions, which every client would otherwise read again."""
    for module in _NEEDED:
        importlib.import_module(module)
    for service in ("glue", "s3", "sqs"):
        boto3.client(service, region_name="us-east-1")
    sqlalchemy.create_engine("postgresql+psycopg://nobody@127.0.0.1/none").dispose()


class Child:
    """A forked process, with its exit status and output."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.pid = 0
        self.status: int | None = None
        self.started, self.ended = threading.Event(), threading.Event()

    def wait(self, seconds: float = 600.0) -> int:
        """Returns the exit status, negative for a signal. Kills a slow process, and fails."""
        if not self.ended.wait(seconds):
            self.kill()
            self.ended.wait(10)
            raise AssertionError(f"a process hangs: {self.said()}")
        assert self.status is not None
        return self.status

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal, to this process alone."""
        assert self.started.wait(300), "the process was never started"
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def said(self) -> str:
        """Returns the end of the output."""
        return self.output.read_text(errors="replace")[-4_000:] if self.output.exists() else ""


class ForkServer:
    """The user's end. `start` must be called while the process has one thread and nothing open."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._pid = pid
        self._children: dict[int, Child] = {}
        self._lock = threading.Lock()
        self._numbers = iter(range(1, 1 << 62))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @classmethod
    def start(cls) -> ForkServer:
        """Forks the server."""
        assert threading.active_count() == 1, "a process with threads is not forked"
        ours, theirs = socket.socketpair()
        if (pid := os.fork()) == 0:
            ours.close()
            _serve(theirs)
        theirs.close()
        return cls(ours, pid)

    @classmethod
    def spawn(cls) -> ForkServer:
        """Starts the server as a new interpreter with the command line imported."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "prism_assets_tests.crash.fork_server", "3"]
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                command,
                {**os.environ, "PYTHONPATH": str(ROOT)},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)],
            )
        return cls(ours, pid)

    def run(self, function: str, arguments: Mapping[str, Any], environment: Mapping[str, str], output: Path) -> Child:
        """Runs `module:function` in a new process, with this environment in addition to that of AWS."""
        child = Child(output)
        with self._lock:
            number = next(self._numbers)
            self._children[number] = child
            request = {"number": number, "function": function, "arguments": arguments, "output": str(output)}
            self._connection.sendall(json.dumps({**request, "environment": dict(environment)}).encode() + b"\n")
        return child

    def close(self) -> None:
        """Ends the server."""
        self._connection.shutdown(socket.SHUT_RDWR)
        os.waitpid(self._pid, 0)
        self._listener.join(10)
        self._connection.close()

    def _listen(self) -> None:
        with self._connection.makefile() as lines:
            for line in lines:
                message = json.loads(line)
                child = self._children[message["number"]]
                if "pid" in message:
                    child.pid = message["pid"]
                    child.started.set()
                else:
                    child.status = message["status"]
                    self._children.pop(message["number"])
                    child.ended.set()


def _serve(connection: socket.socket) -> None:
    """Forks on request until the user is gone. The closing of a pipe held only by the child shows its end."""
    gc.collect()
    gc.freeze()
    waiting = selectors.DefaultSelector()
    waiting.register(connection, selectors.EVENT_READ)
    received = b""
    while True:
        for key, _ in waiting.select():
            if key.fileobj is connection:
                try:
                    part = connection.recv(1 << 20)
                except ConnectionError:
                    part = b""
                if not part:
                    os._exit(0)
                received += part
                while b"\n" in received:
                    line, _, received = received.partition(b"\n")
                    _fork(json.loads(line), connection, waiting)
            else:
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                number, pid = key.data
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(connection, {"number": number, "status": status})


def _tell(connection: socket.socket, message: Any) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _fork(request: Any, connection: socket.socket, waiting: selectors.BaseSelector) -> None:
    end, held = os.pipe()
    if (pid := os.fork()) == 0:
        waiting.close()
        connection.close()
        os.close(end)
        _become(request)
    os.close(held)
    waiting.register(end, selectors.EVENT_READ, (request["number"], pid))
    _tell(connection, {"number": request["number"], "pid": pid})


def _become(request: Any) -> None:
    """Runs the requested work, and exits without touching the parent's resources."""
    status = CRASHED
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in [name for name in os.environ if name.startswith("PRISM_")]:
            del os.environ[name]
        os.environ.update(request["environment"])
        random.seed()
        failpoints.configure(os.environ)
        module, _, name = request["function"].partition(":")
        getattr(importlib.import_module(module), name)(**request["arguments"])
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except PrismError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        status = STOPPED_BY_ERROR
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    import_everything()
    _serve(socket.socket(fileno=int(sys.argv[1])))

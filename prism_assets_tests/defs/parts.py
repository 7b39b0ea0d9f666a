"""Dagster as servers run it: separate code server, web server and daemon, to be killed one by one."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from prism_assets_tests.defs.server import DagsterServer, command_line, free_port
from prism_local import processes

_LOCATION = "prism_assets"
_RUN_WORKER = "spawn_main"


class DagsterInParts(DagsterServer):
    """Three services; `stop` ends all of them. `changes` replace keys of dagster.yaml, section by section."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], changes: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        self._code_port = free_port()
        self._changes = changes or {}
        self._daemon: subprocess.Popen[bytes] | None = None
        self._code: subprocess.Popen[bytes] | None = None
        super().__init__(home, environment)

    def family(self) -> list[psutil.Process]:
        """All processes of the three services."""
        services = [service for service in (self._process, self._daemon, self._code) if service]
        return [process for service in services for process in _with_children(service)]

    def stop(self) -> None:
        """Asks all services to end, then kills their remaining processes, each by its id."""
        family = self.family()
        for service in (self._daemon, self._process, self._code):
            if service and service.poll() is None:
                service.send_signal(signal.SIGINT)
        processes.wait(family, 20)
        _kill(family)
        for service in (self._daemon, self._process, self._code):
            if service:
                service.wait(120)

    def kill_daemon_when(self, condition: Callable[[], bool], seconds: float) -> None:
        """Kills the daemon while a condition holds: stops it, checks, and kills it or lets it continue."""
        assert self._daemon is not None
        daemon, deadline = psutil.Process(self._daemon.pid), time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                daemon.suspend()
                if condition():
                    _kill(_with_children(self._daemon))
                    self._daemon.wait(120)
                    return
                daemon.resume()
            time.sleep(0.02)
        raise AssertionError(f"there was no moment to kill the daemon at:\n{self.log()[-4000:]}")

    def kill_workers(self) -> int:
        """The processes of all runs die; returns how many there were."""
        workers = self.workers()
        _kill(workers)
        return len(workers)

    def kill_code_server(self) -> None:
        """Kills the code server with all runs, as in a power failure, so nobody can report their death."""
        assert self._code is not None
        _kill(_with_children(self._code))
        self._code.wait(120)

    def workers(self) -> list[psutil.Process]:
        """The processes of the runs that the code server has started."""
        if self._code is None:
            return []
        return [process for process in _with_children(self._code) if _RUN_WORKER in command_line(process)]

    def start_daemon(self) -> None:
        """Starts the daemon, for the first time or again."""
        self._daemon = self._spawn("dagster._daemon", "run", "-w", "workspace.yaml")

    def start_code_server(self) -> None:
        """Starts the code server, for the first time or again, and waits until it listens."""
        address = ("-h", "127.0.0.1", "-p", str(self._code_port), "--location-name", _LOCATION)
        self._code = self._spawn("dagster", "code-server", "start", "-m", "prism_assets.definitions", *address)
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and self._code.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._code_port), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError(f"the code server did not start:\n{self.log()[-4000:]}")

    def _launch(self) -> subprocess.Popen[bytes]:
        self._configure()
        self.start_code_server()
        self.start_daemon()
        return self._spawn("dagster_webserver", "-h", "127.0.0.1", "-p", str(self._port), "-w", "workspace.yaml")

    def _configure(self) -> None:
        server = {"host": "127.0.0.1", "port": self._code_port, "location_name": _LOCATION}
        (self._home / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
        instance = yaml.safe_load((self._home / "dagster.yaml").read_text())
        for section, values in self._changes.items():
            instance[section] = {**instance[section], **values}
        (self._home / "dagster.yaml").write_text(yaml.safe_dump(instance))


def _with_children(service: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        process = psutil.Process(service.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(family: list[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()

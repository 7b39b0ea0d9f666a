"""Starts, stops and describes the local stack as a whole."""

import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from prism_local import credentials, jars, java, ports, processes
from prism_local import state as states
from prism_local.aws import Aws
from prism_local.faults import StackError
from prism_local.kafka import Kafka
from prism_local.layout import Layout
from prism_local.postgres import Postgres
from prism_local.reports import DownReport, ServiceStatus, StackReport
from prism_local.reports import State as Condition
from prism_local.s3 import S3
from prism_local.service import Context, Service
from prism_local.spark import Spark
from prism_local.state import State
from prism_local.worker import Worker

Progress = Callable[[str, str], None]

_KINDS: tuple[type[Service], ...] = (Postgres, S3, Aws, Spark, Kafka, Worker)
SERVERS = tuple(kind.name for kind in _KINDS if not kind.on_request)
ON_REQUEST = tuple(kind.name for kind in _KINDS if kind.on_request)
"""Services that start only where they are asked for."""

_POLL = 0.1
_LINES_OF_LOG = 15


def _silent(service: str, message: str) -> None:
    pass


class LocalStack:
    """The local stack below one root folder. Several stacks may run side by side."""

    def __init__(self, root: Path) -> None:
        self.place = Layout(root.resolve())

    def up(self, progress: Progress | None = None, services: Collection[str] = SERVERS) -> StackReport:
        """Starts stopped servers and waits until all answer. Raises StackError if one does not.

        Running servers stay untouched, so a second call changes nothing. If a service fails, the started ones stay, and
        the next call takes them over.
        """
        started_at = time.monotonic()
        self.place.make_folders()
        with states.locked(self.place):
            state = states.load(self.place)
            context = Context(self.place, credentials.load(self.place))
            chosen = [kind(context) for kind in _KINDS if kind.name in services]
            started = _Start(state, chosen, progress or _silent).run()
            return StackReport(
                services=self._describe_all(state),
                started=started,
                notes=tuple(f"{service.name} {service.note}" for service in chosen if service.note),
                seconds=round(time.monotonic() - started_at, 2),
                env_file=str(self.place.env),
                catalog_empty=state.processes.get("aws") != state.published,
            )

    def catalog_published(self) -> None:
        """Records that the running catalog server has been filled."""
        with states.locked(self.place):
            state = states.load(self.place)
            state.published = state.processes.get("aws")
            state.save()

    def down(self, progress: Progress | None = None) -> DownReport:
        """Stops all servers and keeps the data. Harmless if nothing runs."""
        started_at = time.monotonic()
        if not self.place.root.is_dir():
            return DownReport((), (), 0.0)
        with states.locked(self.place):
            stopped, killed = self._stop_all(progress or _silent)
        return DownReport(stopped, killed, round(time.monotonic() - started_at, 2))

    def reset(self, progress: Progress | None = None) -> DownReport:
        """Stops all servers and deletes the stack's data, credentials and logs."""
        report = self.down(progress)
        if self.place.root.is_dir():
            with states.locked(self.place):
                self._delete()
        return report

    def status(self) -> tuple[ServiceStatus, ...]:
        """Returns the current state of every service. Changes nothing."""
        return self._describe_all(states.load(self.place))

    def environment(self) -> dict[str, str]:
        """Returns the connection settings. Empty before the first `up`."""
        return credentials.read_environment(self.place.env)

    def _describe_all(self, state: State) -> tuple[ServiceStatus, ...]:
        started = [name for name in ON_REQUEST if name in state.processes]
        return tuple(self._describe(name, state) for name in (*SERVERS, *started))

    def _describe(self, name: str, state: State) -> ServiceStatus:
        port, identity = state.ports.get(name), state.processes.get(name)
        process = processes.find(identity, f"{self.place.marker}-{name}") if identity else None
        log = str(self.place.log(name))
        if process is None or identity is None:
            return ServiceStatus(name, "stopped", port, None, None, None, log)
        condition: Condition = "running" if port and ports.accepts(port) else "not answering"
        uptime = round(max(0.0, time.time() - identity.created), 1)
        return ServiceStatus(name, condition, port, process.pid, uptime, processes.memory(process), log)

    def _stop_all(self, progress: Progress) -> tuple[tuple[str, ...], tuple[int, ...]]:
        state = states.load(self.place)
        running = {kind: _running(state, kind.name) for kind in _KINDS}
        names = tuple(kind.name for kind, found in running.items() if found)
        clients = {kind: found for kind, found in running.items() if kind.is_client}
        servers = {kind: found for kind, found in running.items() if not kind.is_client}
        killed = [*_stop_services(clients, progress), *_stop_services(servers, progress)]
        if state.processes:
            state.processes.clear()
            state.save()
        return names, tuple(killed)

    def _delete(self) -> None:
        try:
            for folder in (self.place.data, self.place.run, self.place.logs):
                if folder.exists():
                    shutil.rmtree(folder)
            self.place.delete_open_folder()
            for file in (self.place.env, self.place.credentials, self.place.state):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise StackError(f"cannot delete {error.filename}: {error.strerror}; delete it by hand") from None


def _running(state: State, service: str) -> list[psutil.Process]:
    """Returns the processes of a service, started by anybody, without children of other processes in the result."""
    places = (state.place, state.former) if state.former else (state.place,)
    found = [process for place in places for process in processes.marked(f"{place.marker}-{service}")]
    return processes.without_descendants(found)


def _stop_services(running: Mapping[type[Service], list[psutil.Process]], progress: Progress) -> list[int]:
    """Stops processes of services, all at once. Returns the ids of killed ones."""
    with ThreadPoolExecutor(len(running) or 1) as pool:
        tasks = [pool.submit(_stop_service, kind, one, progress) for kind, found in running.items() for one in found]
        return [pid for task in tasks for pid in task.result()]


def _stop_service(kind: type[Service], process: psutil.Process, progress: Progress) -> list[int]:
    progress(kind.name, "stopping")
    killed = processes.stop(process, kind.stop_signal, kind.stop_limit)
    progress(kind.name, "stopped")
    return killed


class _Start:
    """One `up`: decides what to start, starts everything at once, and waits."""

    def __init__(self, state: State, services: list[Service], progress: Progress) -> None:
        self.state = state
        self.services = services
        self.progress = progress
        self.given_up = threading.Event()

    def run(self) -> tuple[str, ...]:
        """Starts missing services and returns their names."""
        absent = [service for service in self.services if not self._is_in_place(service)]
        for service in absent:
            self._check_named_port(service)
        self._check_requirements(absent)
        self._assign_ports(absent)
        with ThreadPoolExecutor(len(self.services) or 1) as pool:
            tasks = [pool.submit(self._bring_up, service, service in absent) for service in self.services]
            try:
                errors = [error for task in tasks if (error := task.exception()) is not None]
            finally:
                self.given_up.set()
        # The first failure ends the others' wait, so the error with the cause comes first.
        for error in sorted(errors, key=lambda e: isinstance(e, _GivenUpError)):
            raise error
        return tuple(service.name for service in absent)

    def _is_in_place(self, service: Service) -> bool:
        identity = self.state.processes.get(service.name)
        if identity is None or processes.find(identity, service.marker) is None:
            return False
        port = ports.named(service.name)
        return port is None or port == self.state.ports.get(service.name)

    def _check_requirements(self, absent: list[Service]) -> None:
        if not any(service.needs_java for service in absent):
            return
        java.require()
        if names := jars.missing(self.state.place):
            self.progress("jars", f"fetching {', '.join(names)}")
            jars.ensure(self.state.place)
            self.progress("jars", "ready")

    def _assign_ports(self, absent: list[Service]) -> None:
        for service in absent:
            self._clear(service)
            taken = {port for name, port in self.state.ports.items() if name != service.name}
            self.state.ports[service.name] = ports.choose(service.name, self.state.ports.get(service.name), taken)
        place = self.state.place
        if absent:
            self.state.save()
        secrets = credentials.load(place)
        credentials.write_environment(place.env, credentials.environment(secrets, self.state.ports))

    def _check_named_port(self, service: Service) -> None:
        """Raises StackError for an occupied port named by the user, before anything is stopped."""
        port = ports.named(service.name)
        if port is not None and port != self.state.ports.get(service.name):
            ports.choose(service.name, None, set())

    def _clear(self, service: Service) -> None:
        """Stops processes of an earlier start that cannot be taken over."""
        running = _running(self.state, service.name)
        recorded = self.state.processes.get(service.name)
        # Children of a server that was killed may live on for a moment.
        if recorded is not None and all(process.pid != recorded.pid for process in running):
            log = self.state.place.log(service.name)
            self.progress(service.name, f"ended by itself after its last start; {log}.1 is its log from now on")
        for process in running:
            self.progress(service.name, "ending leftovers of an earlier start")
            processes.stop(process, service.stop_signal, service.stop_limit)
        self.state.record(service.name, None)

    def _bring_up(self, service: Service, is_absent: bool) -> None:
        begun = time.monotonic()
        try:
            if is_absent:
                self._launch(service)
            self._await(service)
            service.settle(self.state.ports[service.name])
        except BaseException:
            self.given_up.set()
            raise
        if is_absent:
            self.progress(service.name, f"ready after {time.monotonic() - begun:.1f} s")
        else:
            self.progress(service.name, "runs already")

    def _launch(self, service: Service) -> None:
        self.progress(service.name, "starting")
        try:
            service.prepare()
            launch = service.launch(self.state.ports[service.name])
        except OSError as error:
            raise StackError(f"cannot prepare {service.name}: {error}; make room or mend the permissions") from None
        process = processes.spawn(launch, self.state.place.log(service.name))
        try:
            self.state.record(service.name, processes.identify(process))
        except psutil.NoSuchProcess:
            raise _died(service, self.state) from None

    def _await(self, service: Service) -> None:
        port, identity = self.state.ports[service.name], self.state.processes[service.name]
        deadline = time.monotonic() + service.start_limit
        while True:
            if processes.find(identity, service.marker) is None:
                raise _died(service, self.state)
            # Without a listener there is nothing to ask, and clients would retry for long.
            if ports.accepts(port) and service.is_ready(port):
                return
            if time.monotonic() > deadline:
                raise _silent_server(service, self.state)
            if self.given_up.wait(_POLL):
                raise _GivenUpError(f"{service.name} was not waited for")


class _GivenUpError(StackError):
    """Another service failed, so this one was not waited for."""


def _died(service: Service, state: State) -> StackError:
    log = state.place.log(service.name)
    return StackError(f"{service.name} ended while it started; the last lines of {log}:\n{_tail(log)}")


def _silent_server(service: Service, state: State) -> StackError:
    log = state.place.log(service.name)
    return StackError(
        f"{service.name} does not answer: run `prism local down`, then `prism local up`; "
        f"the last lines of {log}:\n{_tail(log)}"
    )


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-_LINES_OF_LOG:]) or "(empty)"

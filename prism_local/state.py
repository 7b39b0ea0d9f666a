"""The stack's memory between two commands: ports and processes."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from prism_local import layout
from prism_local.faults import StackError
from prism_local.layout import Layout
from prism_local.processes import Identity

_PATIENCE = 180.0


@dataclass
class State:
    """Ports and processes by service. Written after every change, because a command may be killed at any time."""

    place: Layout
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, Identity] = field(default_factory=dict)
    published: Identity | None = None  # the filled catalog server
    former: Layout | None = None  # the folder's earlier place, after somebody moved it
    _guard: Lock = field(default_factory=Lock)

    def record(self, service: str, identity: Identity | None) -> None:
        """Records the process of a service, or None. Thread-safe."""
        with self._guard:
            self.processes.pop(service, None)
            if identity is not None:
                self.processes[service] = identity
            self.save()

    def save(self) -> None:
        """Writes the state atomically."""
        content = {
            "root": str(self.place.root),
            "ports": self.ports,
            "processes": {name: [i.pid, i.created] for name, i in self.processes.items()},
            "published": [self.published.pid, self.published.created] if self.published else None,
        }
        layout.write_private(self.place.state, json.dumps(content, indent=2) + "\n")


def load(place: Layout) -> State:
    """Reads the state. A missing or broken file counts as empty, because processes are found by their markers, too."""
    stored = layout.read_json(place.state)
    try:
        return State(
            place,
            {str(name): int(port) for name, port in stored.get("ports", {}).items()},
            {str(name): _identity(value) for name, value in stored.get("processes", {}).items()},
            _identity(stored["published"]) if stored.get("published") else None,
            _former(place, stored.get("root")),
        )
    except (AttributeError, LookupError, TypeError, ValueError):
        return State(place)


def _former(place: Layout, root: str | None) -> Layout | None:
    """Returns the earlier place of a moved folder. After a copy, the original still exists."""
    moved = root is not None and Path(root) != place.root and not Path(root).exists()
    return Layout(Path(root)) if root is not None and moved else None


def _identity(value: list[float]) -> Identity:
    return Identity(int(value[0]), float(value[1]))


@contextmanager
def locked(place: Layout) -> Iterator[None]:
    """Admits one command at a time. The lock disappears with the process, however it ends."""
    deadline = time.monotonic() + _PATIENCE
    try:
        file = open(place.lock, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise StackError(f"cannot write {place.lock}: {error.strerror}; correct the permissions") from None
    with file:
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise StackError(f"another `prism local` command holds {place.lock}: wait for it, or end it")
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

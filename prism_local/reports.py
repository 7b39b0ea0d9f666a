"""Reports of the local stack."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

State = Literal["running", "not answering", "stopped"]


@dataclass(frozen=True)
class ServiceStatus:
    """The current state of one server. Memory is in bytes with all child processes, uptime in seconds."""

    name: str
    state: State
    port: int | None
    pid: int | None
    uptime: float | None
    memory: int | None
    log: str


@dataclass(frozen=True)
class StackReport:
    """The outcome of `up`."""

    services: tuple[ServiceStatus, ...]
    started: tuple[str, ...]
    seconds: float
    env_file: str
    catalog_empty: bool
    """True until `LocalStack.catalog_published()` confirms that the catalog was filled after its server's start. The
    Glue server keeps everything in memory.
    """
    notes: tuple[str, ...] = ()
    """Facts about the start that people should know."""

    def followed_by(self, later: "StackReport") -> "StackReport":
        """Returns the report of two calls of `up`, one after the other."""
        return replace(
            later,
            started=self.started + later.started,
            notes=self.notes + later.notes,
            seconds=round(self.seconds + later.seconds, 2),
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for --json."""
        return asdict(self)


@dataclass(frozen=True)
class DownReport:
    """The outcome of `down`: stopped services and killed processes."""

    stopped: tuple[str, ...]
    killed: tuple[int, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for --json."""
        return asdict(self)

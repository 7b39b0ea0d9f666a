"""What the local stack says about itself."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["running", "not answering", "stopped"]


@dataclass(frozen=True)
class ServiceStatus:
    """One server as it is now; memory in bytes with all its child processes, uptime in seconds."""

    name: str
    state: State
    port: int | None
    pid: int | None
    uptime: float | None
    memory: int | None
    log: str


@dataclass(frozen=True)
class StackReport:
    """The outcome of `up`; `notes` are what a person should know of how servers were started.

    `catalog_empty` is true as long as nobody has confirmed, by `LocalStack.catalog_published()`, that the
    catalog was filled since its server started: the Glue server keeps everything in memory.
    """

    services: tuple[ServiceStatus, ...]
    started: tuple[str, ...]
    seconds: float
    env_file: str
    catalog_empty: bool
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for --json."""
        return asdict(self)


@dataclass(frozen=True)
class DownReport:
    """The outcome of `down`: the services that were stopped, and the processes that had to be killed."""

    stopped: tuple[str, ...]
    killed: tuple[int, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for --json."""
        return asdict(self)

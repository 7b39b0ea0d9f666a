"""The base class of the local stack's servers."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prism_local import credentials
from prism_local.credentials import Credentials
from prism_local.layout import Layout
from prism_local.processes import Launch

# The caller's variables that would change a server: credentials of the real cloud, settings of another Spark,
# failpoints of a test.
_FOREIGN = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "PRISM_FAILPOINTS",
    "PRISM_FAILPOINTS_LOG",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "PYTHONWARNINGS",
    "SPARK_CONF_DIR",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_HOME",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
)


@dataclass(frozen=True)
class Context:
    """A service's knowledge about its stack."""

    place: Layout
    secrets: Credentials


class Service(ABC):
    """One server: how to prepare, start, probe and stop it."""

    name: str
    on_request = False
    """Whether the service starts only where it is asked for."""
    is_client = False
    """Whether the service needs the servers. Clients start after the servers and stop before them."""
    needs_java = False
    stop_signal: int = signal.SIGTERM
    start_limit = 60.0  # seconds until the first answer on a slow, busy machine
    stop_limit = 10.0

    note: str | None = None  # a fact about the start that people should know

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def marker(self) -> str:
        """The word on the command line that identifies this server."""
        return f"{self.context.place.marker}-{self.name}"

    @property
    def folder(self) -> Path:
        """The working folder of the server."""
        return self.context.place.run / self.name

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Returns our environment without variables foreign to the stack, and with `extra`."""
        kept = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        return kept | credentials.aws_variables(self.context.secrets) | dict(extra)

    def prepare(self) -> None:
        """Creates everything the server needs before its start."""
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def launch(self, port: int) -> Launch:
        """Returns how to start the server."""

    @abstractmethod
    def is_ready(self, port: int) -> bool:
        """Whether the server answers correctly. Raises StackError if waiting is pointless."""

    def settle(self, port: int) -> None:  # noqa: B027 - most servers need nothing
        """Creates objects inside the running server. May be repeated at any time."""

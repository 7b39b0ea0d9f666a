"""What all servers of the local stack have in common."""

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

# Variables of the caller that would change what a server does: credentials of the real cloud, settings of
# another Spark, the failpoints of a test.
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
    """What a service knows about the stack it belongs to."""

    place: Layout
    secrets: Credentials


class Service(ABC):
    """One server: how it is prepared, started, asked whether it is ready, and stopped."""

    name: str
    needs_java = False
    stop_signal: int = signal.SIGTERM
    start_limit = 60.0  # seconds until the first answer, on a slow and busy machine
    stop_limit = 10.0

    note: str | None = None  # what a person should know of how it was started

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def marker(self) -> str:
        """The word on the command line by which this server is recognised."""
        return f"{self.context.place.marker}-{self.name}"

    @property
    def folder(self) -> Path:
        """The working folder of the server."""
        return self.context.place.run / self.name

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Returns our own environment without what is foreign to the stack, and with `extra`."""
        kept = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        return kept | credentials.aws_variables(self.context.secrets) | dict(extra)

    def prepare(self) -> None:
        """Makes everything that the server needs before it can start."""
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def launch(self, port: int) -> Launch:
        """Returns how the server is started."""

    @abstractmethod
    def is_ready(self, port: int) -> bool:
        """Tells whether the server answers as it should; raises StackError when waiting is of no use."""

    def settle(self, port: int) -> None:  # noqa: B027 - most servers need nothing
        """Makes what must exist once the server answers; may be called again at any time."""

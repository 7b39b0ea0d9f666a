"""The live worker beside the servers: `prism local up --worker` starts it, after the catalog is filled."""

import sys

from prism_local import credentials
from prism_local.ports import LOOPBACK, answers
from prism_local.processes import Launch
from prism_local.service import Service

_STOP_SECONDS = 25.0
"""A running batch has 20 seconds to end, and releases its objects afterwards."""


class Worker(Service):
    """`prism worker` with the settings of the stack. Its port serves health and metrics."""

    name = "worker"
    on_request = True
    is_client = True
    stop_limit = _STOP_SECONDS

    def launch(self, port: int) -> Launch:
        """Returns how to start the worker. `-X` carries the marker, because Python ignores unknown options."""
        command = [sys.executable, "-X", f"stack={self.marker}", "-m", "prism_assets.cli", "worker"]
        settings = credentials.read_environment(self.context.place.env)
        return Launch(
            [*command, "--listen", f"{LOOPBACK}:{port}", "--list-seconds", "2"],
            self.environment(settings),
            self.folder,
        )

    def is_ready(self, port: int) -> bool:
        """Whether the worker answers. It is ready for rows after the first `prism table apply` and a turn."""
        return answers(port, "/metrics")

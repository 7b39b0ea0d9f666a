"""Glue and SQS in memory: the moto server of `moto_server.py`. Stopping it loses its content."""

import sys

from prism_local.ports import LOOPBACK, answers
from prism_local.processes import Launch
from prism_local.service import Service


class Aws(Service):
    """The server for Glue and SQS."""

    name = "aws"
    stop_limit = 3.0

    def launch(self, port: int) -> Launch:
        """Returns how to start the server. `-X` carries the marker, because Python ignores unknown options."""
        command = [sys.executable, "-X", f"stack={self.marker}", "-m", "prism_local.moto_server"]
        return Launch([*command, "-H", LOOPBACK, "-p", str(port)], self.environment({}), self.folder)

    def is_ready(self, port: int) -> bool:
        """Whether the server answers on a URL that only moto has."""
        return answers(port, "/moto-api/data.json")

"""Glue and SQS in memory: the moto server, as `moto_server.py` has it. What it holds is gone when it stops."""

import sys
import urllib.request

from prism_local.ports import LOOPBACK
from prism_local.processes import Launch
from prism_local.service import Service


class Aws(Service):
    """The server of the Glue and SQS interfaces."""

    name = "aws"
    stop_limit = 3.0

    def launch(self, port: int) -> Launch:
        """Returns how the server is started; `-X` carries the marker: unknown ones are ignored."""
        command = [sys.executable, "-X", f"stack={self.marker}", "-m", "prism_local.moto_server"]
        return Launch([*command, "-H", LOOPBACK, "-p", str(port)], self.environment({}), self.folder)

    def is_ready(self, port: int) -> bool:
        """Tells whether the server answers on an address that only moto has."""
        try:
            with _OPENER.open(f"http://{LOOPBACK}:{port}/moto-api/data.json", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


# An opener of its own: a proxy named in the environment must not see requests to loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

"""The health server of a process: `/live` and `/ready` for probes, and `/metrics` for Prometheus."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Protocol

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.metrics import Measured
from prism_assets.metrics.text import CONTENT_TYPE, render

OPTION = "--listen"
"""The option of the commands with a health server."""
_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
"""A peer that sends no request, or takes no answer, loses its connection and its thread after this time."""
_PATHS = "there are /live, /ready and /metrics\n"


class Watched(Protocol):
    """A process with health and metrics. Threads of the server ask it."""

    @property
    def why_not_live(self) -> str:
        """The reason to start the process again, or nothing."""
        ...

    @property
    def why_not_ready(self) -> str:
        """The reason why the process does no work now, or nothing."""
        ...

    def samples(self) -> Iterable[Measured]:
        """Returns the metrics."""
        ...


class HealthServer:
    """Answers from threads of its own, and so reports a hanging loop, too."""

    def __init__(self, address: tuple[str, int], watched: Watched) -> None:
        self._watched = watched
        try:
            self._server = _Server(address, self._handler())
        except OSError as error:
            where = f"{OPTION} {address[0]}:{address[1]}"
            raise WrongUse(f"{where} cannot be served ({error.strerror}): choose a free address of this host") from None

    @property
    def port(self) -> int:
        """The port, also if port 0 asked for any."""
        return int(self._server.server_address[1])

    def __enter__(self) -> HealthServer:
        threading.Thread(target=self._server.serve_forever, name="prism-health", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str]:
        """Returns status and body."""
        if path == "/live":
            return _state("live", self._watched.why_not_live)
        if path == "/ready":
            return _state("ready", self._watched.why_not_ready)
        if path == "/metrics":
            return 200, render(self._watched.samples())
        return 404, _PATHS

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_SECONDS

            def do_GET(self) -> None:
                status, body = server.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_arguments: object) -> None:
                """Prints nothing: a probe each second would fill the log."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing for a peer that went away. The base class would print a traceback, also between JSON lines."""
        if not isinstance(sys.exc_info()[1], OSError):
            _LOG.exception("an answer to a probe or scrape failed")


def _state(name: str, reason: str) -> tuple[int, str]:
    return (503, f"{reason}\n") if reason else (200, f"{name}\n")


def read_address(text: str) -> tuple[str, int]:
    """Returns host and port of an address such as 127.0.0.1:8090. Raises WrongUse."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) >= 1 << 16:
        raise WrongUse(f"{OPTION} {text} is no address: write it like 127.0.0.1:8090")
    return host.strip("[]"), int(port)

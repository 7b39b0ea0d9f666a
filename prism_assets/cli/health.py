"""The health server of a live worker: `/ready` for probes, and `/metrics` for Prometheus."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING

from prism_assets.domain.errors import PrismError, WrongUse

if TYPE_CHECKING:
    from prism_assets.engine.live import LiveEngines
    from prism_assets.metadata.database import Database
    from prism_assets.stages.live.vitals import Vitals

_DATABASE_SECONDS = 5.0


class HealthServer:
    """Answers from its own threads, so that it also reports a loop that hangs."""

    def __init__(self, place: tuple[str, int], vitals: Vitals, engines: LiveEngines, database: Database) -> None:
        self.vitals, self._engines = vitals, engines
        self._database = database.with_deadline(lambda: _DATABASE_SECONDS)
        try:
            self._server = ThreadingHTTPServer(place, self._handler())
        except OSError as error:
            where = f"--health {place[0]}:{place[1]}"
            raise WrongUse(f"{where} cannot be served ({error.strerror}): choose a free address of this host") from None
        self._server.daemon_threads = True

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
        if path == "/ready":
            reason = self._why_not_ready()
            return (503, f"{reason}\n") if reason else (200, "ready\n")
        if path == "/metrics":
            self.vitals.child_deaths = self._engines.deaths
            return 200, self.vitals.render()
        return 404, "there are /ready and /metrics\n"

    def _why_not_ready(self) -> str:
        if not self.vitals.turns:
            return "no turn has ended yet"
        if not self.vitals.is_fresh:
            return f"the last turn without an error ended {self.vitals.silent_seconds:.0f} s ago"
        try:
            with self._database.begin() as connection:
                connection.exec_driver_sql("SELECT 1")
        except PrismError as error:
            return str(error)
        return ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = server.answer(self.path.partition("?")[0])
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_arguments: object) -> None:
                """Prints nothing: a probe each second would fill the log."""

        return Handler

"""A server with the part of S3 needed to read and write one object, as slow or broken as a test wants."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_BLOCK = 4096


@dataclass
class SlowServer:
    """Serves `body` under any key, at `bytes_per_second`.

    A request is cut off after `longest` seconds. Requests with numbers in `silent`, counted from 0, get half an answer
    and then nothing; requests in `cut` get half and lose their connection. After the first request the object becomes
    `changes`.
    """

    body: bytes
    bytes_per_second: float = 1e9
    longest: float = 1e9
    silent: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    changes: bytes | None = None
    requests: list[str] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def etag(self) -> str:
        """The current ETag of the object."""
        return f'"{hash(self.body)}"'

    @contextmanager
    def running(self) -> Iterator[SlowServer]:
        """Listens on loopback."""
        outer = self

        class Handler(_Handler):
            server_of_test = outer

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # The kernel's buffer for a slow reader must not hide the slowness.
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server.daemon_threads = True
        server.block_on_close = False
        self.port = server.server_port
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_test: SlowServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        test, started = self.server_of_test, time.monotonic()
        number, asked = len(test.requests), self.headers.get("Range", "")
        test.requests.append(asked)
        body, etag = test.body, test.etag
        if self.headers.get("If-Match", etag) != etag:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        test.body = test.changes or test.body
        start, stop, headers = 0, len(body), {"ETag": etag, "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
        if match := re.fullmatch(r"bytes=(\d+)-(\d+)", asked):
            start, stop = int(match[1]), min(int(match[2]) + 1, len(body))
            if start >= len(body):
                self._answer(416, b"<Error><Code>InvalidRange</Code></Error>", {})
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        half = (stop - start) // 2 if number in test.silent | test.cut else stop - start
        self._answer(206 if match else 200, body[start:stop], headers, half, started)
        if number in test.silent:
            time.sleep(30)

    def do_PUT(self) -> None:
        left, received = int(self.headers["Content-Length"]), []
        while left > 0:
            received.append(self.rfile.read(min(left, 10 * _BLOCK)))
            left -= len(received[-1])
            if not received[-1]:
                return
            time.sleep(len(received[-1]) / self.server_of_test.bytes_per_second)
        self.server_of_test.written.append(b"".join(received))
        self._answer(200, b"", {"ETag": '"written"'})

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str], most: int | None = None, started: float | None = None
    ) -> None:
        test = self.server_of_test
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = len(body) if most is None else most
        try:
            for start in range(0, sent, _BLOCK):
                if started and time.monotonic() - started > test.longest:
                    self.close_connection = True
                    return
                self.wfile.write(body[start : min(start + _BLOCK, sent)])
                time.sleep(_BLOCK / test.bytes_per_second)
            self.close_connection = sent < len(body)
        except OSError:
            self.close_connection = True

"""A proxy before an S3 server, with faults of networks and services for chosen requests.

Requests pass byte by byte, so signatures stay valid. Each request is one of nine operations; a fault names one
operation, an effect and a number.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, urlsplit

from prism_assets_tests.faults.http import QuietServer

Operation = Literal[
    "Get", "Head", "List", "Put", "Delete", "DeleteObjects", "CreateMultipart", "UploadPart", "Complete"
]
Harm = Literal["500", "503", "reset before", "reset after", "truncated", "slow", "200 with an error", "conflict"]
OPERATIONS: Sequence[Operation] = get_args(Operation)
HARMS: Sequence[Harm] = get_args(Harm)
SLOW_SECONDS = 2.0

_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
_PRECONDITION = ("If-None-Match", "If-Match")


@dataclass
class S3Fault:
    """A fault of the next `times` requests of an operation, after `skip` of them."""

    operation: Operation
    harm: Harm
    times: int = 1
    skip: int = 0
    injected: int = 0


class S3Proxy:
    """Listens on loopback and passes everything on to another server; `faults` may be changed at any time."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self.upstream = (str(parts.hostname), int(parts.port or 80))
        self.faults: list[S3Fault] = []
        self.seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = QuietServer(_handler_of(self))

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return self._server.endpoint

    def clear(self) -> None:
        """Forgets faults and counts."""
        with self._lock:
            self.faults.clear()
            self.seen.clear()

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    def fault_of(self, method: str, address: str) -> S3Fault | None:
        """Counts a request, and returns its fault."""
        operation = operation_of(method, address)
        with self._lock:
            self.seen[operation] += 1
            for fault in self.faults:
                if fault.operation != operation or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                fault.injected += 1
                return fault
        return None


def operation_of(method: str, address: str) -> str:
    """The operation of a request to `/bucket/key?query`."""
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    _, _, key = parts.path.lstrip("/").partition("/")
    if method == "GET":
        return "Get" if key else "List"
    if method == "HEAD":
        return "Head"
    if method == "PUT":
        return "UploadPart" if "partNumber" in query else "Put"
    if method == "DELETE":
        return "Abort" if "uploadId" in query else "Delete"
    if "delete" in query:
        return "DeleteObjects"
    return "CreateMultipart" if "uploads" in query else "Complete"


def _handler_of(proxy: S3Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def parse_request(self) -> bool:
            """Every method is passed on."""
            parsed = super().parse_request()
            if parsed:
                setattr(self, f"do_{self.command}", self._pass)
            return parsed

        def _pass(self) -> None:
            body = self._body()
            fault = proxy.fault_of(self.command, self.path)
            if fault is None:
                self._send(*self._ask(body))
            else:
                self._harm(fault.harm, body)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            """The answer of the server behind, as a whole."""
            with contextlib.closing(http.client.HTTPConnection(*proxy.upstream, timeout=120)) as connection:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("transfer-encoding", "expect", "connection", "content-length"):
                        connection.putheader(name, value)
                if body or "Content-Length" in self.headers:
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body or None)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            length = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in ("transfer-encoding", "connection", "content-length", "keep-alive"):
                    self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", length)
            if cut and not content:  # then in the middle of the headers
                self.flush_headers()
                self._break()
                return
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self._break()

        def _break(self) -> None:
            """Resets the connection after the bytes already sent, as at the death of a process."""
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())

        def _harm(self, harm: Harm, body: bytes) -> None:
            if harm == "reset before":
                self._break()
            elif harm == "500":
                self._error(500, "InternalError")
            elif harm == "503":
                self._error(503, "SlowDown")
            elif harm == "200 with an error":
                self._error(200, "InternalError")
            elif harm == "conflict":
                conditional = any(name in self.headers for name in _PRECONDITION)
                self._error(*((412, "PreconditionFailed") if conditional else (409, "OperationAborted")))
            elif harm == "reset after":
                self._ask(body)
                self._break()
            elif harm == "truncated":
                self._send(*self._ask(body), cut=True)
            else:
                answer = self._ask(body)
                time.sleep(SLOW_SECONDS)
                self._send(*answer)

        def _error(self, status: int, code: str) -> None:
            content = b"" if self.command == "HEAD" else _ERROR.format(code, "by the proxy").encode()
            self._send(status, [("Content-Type", "application/xml")], content)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    return Handler

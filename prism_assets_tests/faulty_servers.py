"""Servers on loopback with the answers a test wants."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEAD = "http://127.0.0.1:1"


@contextmanager
def answering(status: int, code: str = "", body: bytes | None = None) -> Iterator[str]:
    """Yields the address of a server that refuses every request of S3 and Glue with a status and a code."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            xml = f"<Error><Code>{code}</Code><Message>said the server</Message><Key>AccessDenied/x</Key></Error>"
            said = f'{{"__type": "{code}", "Message": "said the server"}}' if "X-Amz-Target" in self.headers else xml
            content = said.encode() if body is None else body
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - as the base class has them

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with serving(Handler) as address:
        yield address


@contextmanager
def refusing_conditions(status: int, code: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the address of an S3 server that refuses conditional writes only, and the paths of the refused ones."""
    written: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refused = f"<Error><Code>{code}</Code><Message>no</Message></Error>" if self.headers.get("If-Match") else ""
            if not refused:
                written.append(self.path)
            self.send_response(status if refused else 200)
            self.send_header("ETag", '"e"')
            self.send_header("Content-Length", str(len(refused)))
            self.end_headers()
            self.wfile.write(refused.encode())

        def do_HEAD(self) -> None:
            self.send_response(200)
            for name, value in (("ETag", '"e"'), ("Content-Length", "1"), ("Last-Modified", self.date_time_string(0))):
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with serving(Handler) as address:
        yield address, written


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hanging_up() -> Iterator[str]:
    """Yields the address of a server that resets every connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def reset() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    thread = threading.Thread(target=reset)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

"""A proxy of connections that can lose everything, like a network without a host: nothing is closed."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class TcpProxy:
    """Passes bytes between clients on loopback and a server until told to drop them."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._swallowing = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where clients connect to."""
        return int(self._listener.getsockname()[1])

    def swallow(self) -> None:
        """Drops all bytes from now on, in both directions. Connections stay open."""
        self._swallowing.set()

    def close(self) -> None:
        """Closes the proxy and all connections."""
        self._ended.set()
        self._thread.join(5)
        for connection in (*self._pairs, self._listener):
            connection.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._forward(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        if self._swallowing.is_set():
            if not data:
                self._selector.unregister(source)  # a closed connection is not passed on either
            return
        target = self._pairs[source]
        with contextlib.suppress(OSError):
            if data:
                target.sendall(data)
                return
        for connection in (source, target):
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            self._pairs.pop(connection, None)
            connection.close()

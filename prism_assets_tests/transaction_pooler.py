"""A pooler in transaction mode, like PgBouncer, that gives each transaction to another session of PostgreSQL.

PgBouncer gives the session used last, so a client that leaves state in its session often finds it again. This pooler
gives the session free for longest, and has an odd number of them, because a client's ping takes one before each
transaction. Afterwards tests can ask for the state that clients left in its sessions.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import sqlalchemy

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_REPORTED = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
)
_LEFT_BEHIND = """
SELECT 'prepared statement ' || statement FROM pg_prepared_statements
UNION ALL SELECT 'setting ' || name || ' = ' || setting FROM pg_settings
    WHERE source = 'session' AND name NOT LIKE 'transaction_%'
UNION ALL SELECT 'advisory lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'cursor ' || name FROM pg_cursors
UNION ALL SELECT 'channel ' || channel FROM pg_listening_channels() AS l (channel)
UNION ALL SELECT 'temporary table ' || relname FROM pg_class WHERE relpersistence = 't'
    AND relnamespace = pg_my_temp_schema()
"""


class _Message(NamedTuple):
    kind: bytes
    whole: bytes


class _Wire:
    """One side of a conversation: bytes come in, whole messages come out."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""

    def read(self) -> list[_Message]:
        """Returns the available messages. Raises EOFError if the other side is gone."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError
        self._buffer += data
        found = []
        while len(self._buffer) >= 5:
            end = 1 + struct.unpack_from("!I", self._buffer, 1)[0]
            if len(self._buffer) < end:
                break
            found.append(_Message(self._buffer[:1], self._buffer[:end]))
            self._buffer = self._buffer[end:]
        return found


class _Session:
    """A session of PostgreSQL. The driver logs in; later messages go through its raw socket."""

    def __init__(self, url: sqlalchemy.URL) -> None:
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.driver = psycopg.connect(plain, autocommit=True, prepare_threshold=None)
        self.wire = _Wire(socket.socket(fileno=os.dup(self.driver.fileno())))

    def reported(self) -> bytes:
        """The parameters reported by the server at the begin of a session."""
        values = {name: self.driver.info.parameter_status(name) for name in _REPORTED}
        pairs = [(name.encode(), (value or "").encode()) for name, value in values.items()]
        return b"".join(_message(b"S", name + b"\0" + value + b"\0") for name, value in pairs)

    def left_behind(self) -> list[str]:
        """Returns the state that clients left in it."""
        return [str(row[0]) for row in self.driver.execute(_LEFT_BEHIND)]

    def close(self) -> None:
        """Ends the session and any open transaction."""
        self.wire.socket.close()
        self.driver.close()


class TransactionPooler:
    """Listens on loopback, lets everybody in, and serves clients with a few sessions of one database."""

    def __init__(self, url: str, sessions: int = 3) -> None:
        self._url = sqlalchemy.make_url(url)
        self._free: queue.Queue[_Session] = queue.Queue()
        self._sessions = [_Session(self._url) for _ in range(sessions)]
        for session in self._sessions:
            self._free.put(session)
        self._greeting = self._sessions[0].reported()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.logins_refused = 0

    @property
    def url(self) -> str:
        """The URL of the database through the pooler."""
        port = self._listener.getsockname()[1]
        return self._url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def left_behind(self) -> list[str]:
        """Returns the state that clients left in any session. Call it while no client is in a transaction."""
        return [left for session in self._sessions for left in session.left_behind()]

    def close(self) -> None:
        """Ends all connections and sessions."""
        for one in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        for session in self._sessions:
            session.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients.append(client)
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            parameters = _startup(client)
            if "options" in parameters:
                self.logins_refused += 1
                client.sendall(_error("unsupported startup parameter: options"))
                return
            client.sendall(_message(b"R", struct.pack("!I", 0)) + self._greeting + _message(b"K", bytes(8)))
            client.sendall(_message(b"Z", b"I"))
            wire = _Wire(client)
            waiting: list[_Message] = []
            while True:
                waiting = waiting or wire.read()
                if waiting and waiting[0].kind == b"X":
                    return
                if waiting:
                    waiting = self._transaction(wire, waiting)

    def _transaction(self, client: _Wire, waiting: list[_Message]) -> list[_Message]:
        """Serves a client over one session until a transaction ends. Returns the messages after it."""
        session = self._free.get()
        try:
            return _relay(client, session.wire, waiting)
        except (OSError, EOFError):
            # A client that vanishes in a transaction takes its session along, as with PgBouncer.
            session.close()
            self._sessions[self._sessions.index(session)] = session = _Session(self._url)
            raise
        finally:
            self._free.put(session)


def _relay(client: _Wire, server: _Wire, waiting: list[_Message]) -> list[_Message]:
    """Passes messages on until the server is outside a transaction and has answered everything."""
    unanswered, unfinished = 0, False
    with selectors.DefaultSelector() as selector:
        selector.register(client.socket, selectors.EVENT_READ, client)
        selector.register(server.socket, selectors.EVENT_READ, server)
        while True:
            for message in waiting:
                if message.kind == b"X":
                    raise EOFError
                server.socket.sendall(message.whole)
                ends = message.kind in (b"Q", b"S")
                unanswered, unfinished = unanswered + ends, not ends
            waiting = []
            for key, _ in selector.select():
                if key.data is client:
                    waiting += client.read()
                    continue
                for message in server.read():
                    client.socket.sendall(message.whole)
                    if message.kind == b"Z":
                        unanswered -= 1
                        if message.whole.endswith(b"I") and not (unanswered or unfinished):
                            return waiting


def _startup(client: socket.socket) -> dict[str, str]:
    """Returns the parameters of a client's first message, after its requests for TLS or Kerberos."""
    while True:
        (length,) = struct.unpack("!I", _exactly(client, 4))
        content = _exactly(client, length - 4)
        (code,) = struct.unpack_from("!I", content)
        if code == _CANCEL:
            raise EOFError
        if code not in (_SSL, _GSS):
            words = iter(content[4:].decode().split("\0"))
            return dict(zip(words, words, strict=False))
        client.sendall(b"N")


def _exactly(client: socket.socket, count: int) -> bytes:
    data = client.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise EOFError
    return data


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


def _error(sentence: str) -> bytes:
    return _message(b"E", b"SFATAL\0VFATAL\0C08P01\0M" + sentence.encode() + b"\0\0")


@contextlib.contextmanager
def transaction_pooler(url: str) -> Iterator[TransactionPooler]:
    """A pooler in front of a database, for the length of a block."""
    made = TransactionPooler(url)
    try:
        yield made
    finally:
        made.close()

"""A host that vanishes with its locks: `python -m prism_assets_tests.metadata.vanishing_host FOLDER`.

Runs in a separate, empty network with a PostgreSQL server. A process holds the lock of a run, and another lock over a
connection with system defaults. Then the network goes down and the process dies, so the server hears nothing. After the
network returns, the server reports the locks still held.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

import psycopg
import sqlalchemy

from prism_assets.metadata.database import Database
from prism_assets.metadata.run_locks import run_lock, runs_without_lock
from prism_assets.postgres import Keepalive
from prism_local.stack import LocalStack

RUN, CONTROL = "a-run", "by-defaults"
QUICK = Keepalive(idle=1, interval=1, count=2)
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1


def set_loopback(*, up: bool) -> None:
    """Switches the only interface of this network on or off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0))
        _, flags = struct.unpack("16sH14x", asked)
        wanted = flags | _IS_UP if up else flags & ~_IS_UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", wanted))


def hold(url: str) -> int:
    """Starts a process that takes both locks and then waits. Returns its id after that."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        assert os.read(reader, 1), "the holder failed"
        return pid
    plain = sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection, run_lock(Database(url, keepalive=QUICK), RUN):
        connection.execute("SELECT pg_advisory_lock(7170005, hashtext(%s))", [CONTROL])
        os.write(writer, b"x")
        while True:
            time.sleep(60)


def main(folder: Path) -> None:
    set_loopback(up=True)
    stack = LocalStack(folder / ".prism")
    stack.up(services={"postgres"})
    try:
        url = stack.environment()["PRISM_DATABASE_URL"]
        holder = hold(url)
        database = Database(url)
        before = runs_without_lock(database, [RUN, CONTROL])
        database.dispose()
        set_loopback(up=False)
        os.kill(holder, 9)
        os.waitpid(holder, 0)
        time.sleep(QUICK.longest + 2)
        set_loopback(up=True)
        after = runs_without_lock(database, [RUN, CONTROL])
        print(json.dumps({"free before": sorted(before), "free after": sorted(after)}))
    finally:
        stack.reset()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

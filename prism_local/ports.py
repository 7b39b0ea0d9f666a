"""Chooses a server's port: named by the user, used before, or free."""

import os
import random
import socket
import urllib.request

from prism_local.faults import StackError

LOOPBACK = "127.0.0.1"

LOCAL_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses on loopback without the proxy of the environment."""

# Below the range of ports for outgoing connections on Linux and macOS. Such a connection could otherwise occupy a kept
# port while the stack is down.
_FIRST, _LAST = 20_000, 32_000


def variable(service: str) -> str:
    """Returns the environment variable with the port of a service."""
    return f"PRISM_LOCAL_{service.upper()}_PORT"


def named(service: str) -> int | None:
    """Returns the user's port for a service, or None. Raises StackError if the value is no port."""
    text = os.environ.get(variable(service), "").strip()
    if not text:
        return None
    if not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise StackError(f"{variable(service)}={text} is not a port; set it to a number from 1 to 65535")
    return int(text)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like the servers: connections of a server that has just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts(port: int, timeout: float = 1.0) -> bool:
    """Whether something accepts connections on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout):
            return True
    except OSError:
        return False


def answers(port: int, path: str) -> bool:
    """Whether an HTTP server on the port answers a path with status 200."""
    try:
        with LOCAL_OPENER.open(f"http://{LOOPBACK}:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def choose(service: str, kept: int | None, taken: set[int]) -> int:
    """Chooses the port of a service about to start. Raises StackError if the user's port is in use."""
    port = named(service)
    if port is not None:
        if port in taken or not is_free(port):
            raise StackError(
                f"port {port}, named by {variable(service)} for {service}, is in use: "
                f"stop its listener, or name another port or none"
            )
        return port
    if kept is not None and kept not in taken and is_free(kept):
        return kept
    for candidate in random.sample(range(_FIRST, _LAST), 500):
        if candidate not in taken and is_free(candidate):
            return candidate
    raise StackError(f"no free port between {_FIRST} and {_LAST} for {service}: name one with {variable(service)}")

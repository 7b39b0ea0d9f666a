"""Production's knowledge of the local stack: its folder, its settings, and whether an address belongs to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def local_home() -> Path:
    """Returns the local stack's folder: PRISM_HOME, or the nearest `.prism` in the working directory or above."""
    if home := os.environ.get("PRISM_HOME"):
        return Path(home)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".prism" / "env").is_file():
            return folder / ".prism"
    return here / ".prism"


def read_env_file(path: Path) -> dict[str, str]:
    """Reads KEY=value lines. A missing file has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def is_local(address: str) -> bool:
    """Whether a URL or `host:port` belongs to the local stack. The stack may be stopped."""
    place = _place(address)
    return place is not None and place in set(_places_of_stack())


def _places_of_stack() -> Iterator[tuple[str, int]]:
    try:
        values = read_env_file(local_home() / "env").values()
    except OSError:
        return
    for value in values:
        if "://" in value and (place := _place(value)):
            yield place


def _place(address: str) -> tuple[str, int] | None:
    """Returns host and port. All names of the loopback address are equal."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or not port:
        return None
    return (_LOOPBACK[0] if host in _LOOPBACK else host), port

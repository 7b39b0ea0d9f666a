"""Clients of AWS services, one for each service, address and patience in a process.

boto3 takes tens of milliseconds and megabytes for a client, and a client keeps its connections until Python's cycle
collector finds it. Contexts are made for every tick of a sensor, so clients are not.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

_LONGEST_BACKOFF = 20
"""Seconds: botocore's standard mode never pauses longer between two tries."""


@dataclass(frozen=True)
class Patience:
    """How often a call is tried, and how many seconds each try waits for a connection and for an answer."""

    tries: int
    connect_seconds: float
    read_seconds: float

    @property
    def longest_call_seconds(self) -> float:
        """Seconds from the beginning of a call until its last try is given up, with the pauses between tries."""
        return self.tries * (self.connect_seconds + self.read_seconds) + (self.tries - 1) * _LONGEST_BACKOFF


_lock = threading.Lock()
_clients: dict[tuple[str, str | None, str, Patience], Any] = {}
"""A process has a handful: each service has one address, and one patience for runs and one for ticks."""


def aws_client(service: str, endpoint: str | None, region: str, patience: Patience) -> Any:
    """Returns the client of this process for a service such as `glue`; several threads may use it. Opens no connection.

    boto3 looks credentials up when the client is made, and renews those of roles. A client that found none is not kept:
    they may come later.
    """
    key = (service, endpoint, region, patience)
    with _lock:
        if key in _clients:
            return _clients[key]
        config = Config(
            retries={"mode": "standard", "total_max_attempts": patience.tries},
            connect_timeout=patience.connect_seconds,
            read_timeout=patience.read_seconds,
            region_name=region,
        )
        # boto3's session, which two threads must not use at once, is used here alone.
        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        session: Any = boto3.DEFAULT_SESSION
        client = session.client(service, endpoint_url=endpoint, config=config)
        if session.get_credentials() is not None:
            _clients[key] = client
        return client

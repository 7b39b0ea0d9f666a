"""Clients of AWS services: one per service, address and patience in a process.

A boto3 client costs tens of milliseconds and megabytes, and keeps its connections until Python's cycle collector finds
it. Each sensor tick makes a context, so contexts share clients.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from prism_assets.kept import Kept

_LONGEST_BACKOFF = 20
"""Seconds. botocore's standard mode never pauses longer between two tries."""


@dataclass(frozen=True)
class Patience:
    """How often a call is tried, and how many seconds each try waits for a connection and for an answer."""

    tries: int
    connect_seconds: float
    read_seconds: float

    @property
    def longest_call_seconds(self) -> float:
        """Seconds from the start of a call until the last try is given up, including pauses."""
        return self.tries * (self.connect_seconds + self.read_seconds) + (self.tries - 1) * _LONGEST_BACKOFF


CLIENTS: Kept[tuple[str, str | None, str, Patience], Any] = Kept()
"""A process has a handful: each service has one address, with one patience for runs and one for ticks."""


class RequestCounts:
    """Calls of this process by service and outcome. Retries inside boto3 belong to their call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def read(self) -> Mapping[tuple[str, str], int]:
        """Returns the counts by service and outcome."""
        with self._lock:
            return dict(self._counts)

    def watch(self, client: Any) -> Any:
        """Counts the calls of a client from now on. Returns the client."""
        service = client.meta.service_model.service_name

        def answered(parsed: Mapping[str, Any], **_more: Any) -> None:
            status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            self._add(service, "ok" if status < 300 else "refused")

        client.meta.events.register("after-call", answered)
        client.meta.events.register("after-call-error", lambda **_more: self._add(service, "unanswered"))
        return client

    def _add(self, service: str, outcome: str) -> None:
        with self._lock:
            self._counts[service, outcome] += 1


REQUESTS = RequestCounts()


def aws_client(service: str, endpoint: str | None, region: str, patience: Patience) -> Any:
    """Returns this process's client for a service such as `glue`. Threads may share it. Opens no connection.

    boto3 looks up credentials when the client is made, and renews a role's credentials. A client without credentials is
    not kept, because they may be set later.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": patience.tries},
        connect_timeout=patience.connect_seconds,
        read_timeout=patience.read_seconds,
        region_name=region,
    )
    # Two threads must not use boto3's session at once, so only these two functions use it, one thread at a time.
    return CLIENTS.get(
        (service, endpoint, region, patience),
        make=lambda: REQUESTS.watch(_session().client(service, endpoint_url=endpoint, config=config)),
        keeps=lambda _client: _session().get_credentials() is not None,
    )


def _session() -> Any:
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    return boto3.DEFAULT_SESSION

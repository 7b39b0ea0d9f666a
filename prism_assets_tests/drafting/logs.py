"""Logs in foreign formats: an access log of NGINX, events of CloudTrail, an application with drifting fields."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from prism_assets_tests.builders import utc

NOW = utc("2026-03-01T12:00")


def nginx(number: int, time: datetime, some: random.Random) -> dict[str, Any]:
    """Returns a line of NGINX's access log with `escape=json`: every value is in quotes."""
    return {
        "time_iso8601": time.isoformat(),
        "msec": f"{time.timestamp():.3f}",
        "remote_addr": f"203.0.113.{some.randrange(255)}",
        "request_id": f"{number:032x}",
        "request": f"GET /things/{number} HTTP/1.1",
        "status": some.choice(["200", "304", "404"]),
        "body_bytes_sent": str(some.randrange(100_000)),
        "request_time": f"0.{some.randrange(1_000):03d}",
        "http_user_agent": "Mozilla/5.0 (X11; Linux x86_64)",
        "upstream_response_time": "-" if some.random() < 0.1 else "0.004",
    }


def trail(number: int, time: datetime, some: random.Random) -> dict[str, Any]:
    """Returns a nested event like those of CloudTrail, with keys that most events lack."""
    event: dict[str, Any] = {
        "eventVersion": "1.09",
        "userIdentity": {"type": "AssumedRole", "sessionContext": {"attributes": {"mfaAuthenticated": "false"}}},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventName": some.choice(["GetObject", "PutObject", "AssumeRole"]),
        "sourceIPAddress": "198.51.100.7",
        "requestParameters": None if number % 3 else {"bucketName": "b", "key": f"k/{number}"},
        "responseElements": None,
        "eventID": f"{number:08d}",
        "readOnly": number % 2 == 0,
        "resources": [{"ARN": "arn:aws:s3:::b"}],
        "recipientAccountId": "111122223333",
    }
    return event | ({"errorCode": "AccessDenied"} if number % 50 == 0 else {})


def application(number: int, time: datetime, some: random.Random) -> dict[str, Any]:
    """Returns a line of a changing log: a number is text on one line in 200, and later lines have a new key."""
    line: dict[str, Any] = {
        "ts": int(time.timestamp() * 1_000),
        "level": some.choice(["INFO", "WARN"]),
        "userId": "anonymous" if number % 200 == 199 else number,
        "latency": number / 7 if number % 2 else number,
        "context": {"attempt": number} if number % 5 else "none",
    }
    return line | ({"traceId": f"{number:016x}"} if number > 300 else {})


FORMS: dict[str, Callable[[int, datetime, random.Random], dict[str, Any]]] = {
    "nginx": nginx, "trail": trail, "application": application,
}  # fmt: skip


def lines_of(form: str, count: int = 600) -> bytes:
    """Lines of an hour of the morning."""
    some = random.Random(form)
    made = (FORMS[form](number, NOW - timedelta(seconds=3_600 - number), some) for number in range(count))
    return b"".join(json.dumps(line).encode() + b"\n" for line in made)

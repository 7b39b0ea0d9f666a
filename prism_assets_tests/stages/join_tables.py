"""A join table for tests: its file, the objects of its two streams, and its checks."""

from __future__ import annotations

from typing import Any

from prism_assets.stages.checks.joins import (
    AMPLIFICATION,
    BUCKET_SKEW,
    CHANGES_BALANCE,
    EXPIRY_LATE,
    JOIN_RATE,
    PENDING_AGE,
    TOO_LATE_RATE,
)
from prism_assets.stages.findings.records import RECORDS_WAIT

JOIN_CHECKS = (
    CHANGES_BALANCE, EXPIRY_LATE, TOO_LATE_RATE, JOIN_RATE, BUCKET_SKEW, PENDING_AGE, AMPLIFICATION, RECORDS_WAIT,
)  # fmt: skip
"""All checks of tables with records alone."""


def a_join(*, columns: str = "", streams: str = "", **more: str) -> str:
    """Returns the file of a join table. `more` are fields at the top; they replace existing ones."""
    fields = {
        "key": "[request_id]",
        "groups": "{front: null, back: {sequence: [version], owner: true}}",
        "window": "3h",
        "lateness": "1h",
        "accept": "{from: arrival}",
        **more,
    }
    return (
        "schema: log\ntable: request\nstreams:\n"
        '  - {name: front, url: "s3://staging/front/", group: front}\n'
        '  - {name: back, url: "s3://staging/back/", group: back, delete: "op = \'D\'"}\n'
        f"{streams}"
        "columns:\n"
        "  - {name: request_id, type: string}\n"
        "  - {name: time, type: timestamp}\n"
        "  - {name: page, type: string, group: front}\n"
        "  - {name: version, type: bigint}\n"
        "  - {name: tries, type: bigint, group: back}\n"
        "  - {name: op, type: string, stored: false}\n"
        f"{columns}" + "".join(f"{field}: {value}\n" for field, value in fields.items())
    )


def front(key: str, time: str, page: str = "/") -> dict[str, Any]:
    """A line of the stream front."""
    return {"request_id": key, "time": f"{time}:00Z", "page": page, "tries": 99}


def back(key: str, time: str, version: int = 1, **more: Any) -> dict[str, Any]:
    """A line of the stream back."""
    return {"request_id": key, "time": f"{time}:00Z", "version": version, "tries": version, **more}

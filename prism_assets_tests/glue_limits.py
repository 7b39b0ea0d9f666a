"""The limits of AWS Glue (formats, Glue), which its local double does not enforce."""

from __future__ import annotations

from typing import Any

import boto3

LIMITS = {
    "BatchCreatePartition": ("PartitionInputList", 100),
    "BatchUpdatePartition": ("Entries", 100),
    "BatchDeletePartition": ("PartitionsToDelete", 25),
    "BatchGetPartition": ("PartitionsToGet", 1_000),
}


class GlueLimitExceeded(AssertionError):
    """A call that AWS would refuse."""


def enforce_glue_limits() -> None:
    """Makes every client of the default session refuse calls beyond the limits."""
    boto3.setup_default_session()
    session: Any = boto3.DEFAULT_SESSION
    for operation, (parameter, limit) in LIMITS.items():
        session.events.register(f"provide-client-params.glue.{operation}", _check(operation, parameter, limit))


def _check(operation: str, parameter: str, limit: int) -> Any:
    def check(params: Any, **_: Any) -> None:
        if not 1 <= len(params[parameter]) <= limit:
            raise GlueLimitExceeded(f"{operation} with {len(params[parameter])} of at most {limit} {parameter}")

    return check

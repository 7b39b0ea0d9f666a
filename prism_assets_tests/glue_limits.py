"""The limits of AWS Glue (formats, Glue), not enforced by its local double."""

from __future__ import annotations

from typing import Any

import boto3

from prism_assets.domain.service_limits import GLUE_COMMENT, GLUE_DESCRIPTION, GLUE_NAME, GLUE_OWNER, GLUE_TYPE

LIMITS = {
    "BatchCreatePartition": ("PartitionInputList", 100),
    "BatchUpdatePartition": ("Entries", 100),
    "BatchDeletePartition": ("PartitionsToDelete", 25),
    "BatchGetPartition": ("PartitionsToGet", 1_000),
}


class GlueLimitExceeded(AssertionError):
    """AWS would refuse the call."""


def enforce_glue_limits() -> None:
    """Makes every client of the default session refuse calls beyond the limits."""
    boto3.setup_default_session()
    session: Any = boto3.DEFAULT_SESSION
    for operation, (parameter, limit) in LIMITS.items():
        session.events.register(f"provide-client-params.glue.{operation}", _check(operation, parameter, limit))
    for operation in ("CreateTable", "UpdateTable"):
        session.events.register(f"provide-client-params.glue.{operation}", _check_table)
    session.events.register("provide-client-params.glue.CreateDatabase", _check_database)


def _check(operation: str, parameter: str, limit: int) -> Any:
    def check(params: Any, **_: Any) -> None:
        if not 1 <= len(params[parameter]) <= limit:
            raise GlueLimitExceeded(f"{operation} with {len(params[parameter])} of at most {limit} {parameter}")

    return check


def _check_table(params: Any, **_: Any) -> None:
    table = params["TableInput"]
    _check_length("the name of a table", table["Name"], GLUE_NAME)
    _check_length("the description of a table", table.get("Description", ""), GLUE_DESCRIPTION)
    _check_length("the owner of a table", table.get("Owner", "-"), GLUE_OWNER)
    for column in (*table["StorageDescriptor"]["Columns"], *table.get("PartitionKeys", ())):
        _check_length("the name of a column", column["Name"], GLUE_NAME)
        _check_length("the type of a column", column["Type"], GLUE_TYPE)
        _check_length("the comment of a column", column.get("Comment", ""), GLUE_COMMENT)


def _check_database(params: Any, **_: Any) -> None:
    _check_length("the name of a database", params["DatabaseInput"]["Name"], GLUE_NAME)


def _check_length(what: str, text: str, limit: int) -> None:
    if len(text.encode()) > limit:
        raise GlueLimitExceeded(f"{what} has {len(text.encode())} of at most {limit} bytes")

"""Decisions of people on unread objects: try again, or give up for good."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from prism_assets.domain.errors import WrongUse
from prism_assets.metadata.intake import attempts, claims, staging_objects
from prism_assets.stages.context import StageContext
from prism_assets.stages.stream.commit import note_abandoned

_SCHEME = "s3://"


def retry_failed(context: StageContext, names: Collection[str] | None = None) -> int:
    """Restarts given-up objects after their cause is mended. Returns how many."""
    context.check_lake()
    table_ids = context.choose_ids(names)
    with context.database.begin() as connection:
        return attempts.retry_failed(connection, table_ids)


def retry_object(context: StageContext, key: str) -> None:
    """Retries one given-up or pausing object at once. Raises WrongUse if there is none."""
    context.check_lake()
    with context.database.begin() as connection:
        found = _find(connection, key)
        if not attempts.retry_one(connection, found):
            raise WrongUse(f"{key} was not given up and does not rest: `prism status` shows what waits")


def give_up_object(context: StageContext, key: str) -> None:
    """Gives up one object for good, or accepts a given-up one, so that checks no longer report it.

    One transaction. It locks the object's row first, so no batch claims it meanwhile. Raises WrongUse if a batch holds
    it.
    """
    context.check_lake()
    with context.database.begin() as connection:
        found = _find(connection, key)
        waiting = claims.lock_waiting(connection, found)
        if waiting is not None:
            note_abandoned(connection, [waiting])
        if not attempts.dismiss(connection, found):
            raise WrongUse(f"{key} cannot be given up: it is converted, or a worker has it just now")


def _find(connection: Connection, key: str) -> int:
    """Returns the id of the staging object `s3://bucket/key`, or of the only one with this key."""
    bucket, _, rest = key.removeprefix(_SCHEME).partition("/")
    found = staging_objects.find_ids(connection, (bucket, rest) if key.startswith(_SCHEME) else (None, key))
    if len(found) != 1:
        several = "several buckets have an object" if found else "there is no staging object"
        raise WrongUse(f"{several} {key}: give it as s3://bucket/key, as `prism status --table T` shows it")
    return found[0]

"""Decisions of people on unread objects: try again, or give up for good."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


def retry_object(context: StageContext, key: str, names: Collection[str] | None = None) -> None:
    """Retries one given-up or pausing object at once, in each table named. Raises WrongUse if it waits in none."""
    context.check_lake()
    with context.database.begin() as connection:
        found = _find(connection, key, context.choose_ids(names))
        if not sum(attempts.retry_one(connection, item) for item in found):
            raise WrongUse(f"{key} was not given up and does not rest: `prism status` shows what waits")


def give_up_object(context: StageContext, key: str, names: Collection[str] | None = None) -> None:
    """Gives up one object for good, or accepts a given-up one, so that checks no longer report it.

    Each table named that reads the object and has not converted it gives it up. One transaction. It locks the object's
    rows first, by ascending id, so no batch claims them meanwhile. Raises WrongUse if no table can give it up.
    """
    context.check_lake()
    with context.database.begin() as connection:
        given_up = 0
        for found in _find(connection, key, context.choose_ids(names)):
            waiting = claims.lock_waiting(connection, found)
            if waiting is not None:
                note_abandoned(connection, [waiting])
            given_up += attempts.dismiss(connection, found)
        if not given_up:
            raise WrongUse(f"{key} cannot be given up: it is converted, or a worker has it just now")


def _find(connection: Connection, key: str, table_ids: Collection[int] | None) -> Sequence[int]:
    """Returns the ids of the staging object `s3://bucket/key`, or of the only one with this key, one for each table."""
    bucket, _, rest = key.removeprefix(_SCHEME).partition("/")
    name = (bucket, rest) if key.startswith(_SCHEME) else (None, key)
    found = staging_objects.find_ids(connection, name, table_ids)
    if len(found) != 1:
        several = "several buckets have an object" if found else "there is no staging object"
        raise WrongUse(f"{several} {key}: give it as s3://bucket/key, as `prism status --table T` shows it")
    return next(iter(found.values()))

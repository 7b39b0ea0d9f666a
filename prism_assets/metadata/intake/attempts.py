"""Statements on prism_staging_objects that end an attempt without rows, or restart an object.

The caller that ends a batch's attempts holds the batch's row, so nobody else changes the objects. Each statement
changes all its objects, or raises LeaseLost and the transaction rolls back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from prism_assets.domain.errors import LeaseLost
from prism_assets.domain.streams.attempts import GiveUp, Retry, Verdict
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import SourceVersion
from prism_assets.metadata.intake.staging_objects import AS_NEW, UNCHARGED


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """An attempt that ended without rows, its error, and the verdict on the object."""

    staging_object_id: int
    error: str
    verdict: Verdict


def fail_attempts(connection: Connection, batch_id: int, failed: Sequence[FailedAttempt]) -> None:
    """Returns objects of a batch to the pending ones, or gives them up, according to their verdicts."""
    _retry(connection, batch_id, [(item, item.verdict) for item in failed if isinstance(item.verdict, Retry)])
    _give_up(connection, batch_id, [(item, item.verdict) for item in failed if isinstance(item.verdict, GiveUp)])


def _retry(connection: Connection, batch_id: int, failed: Sequence[tuple[FailedAttempt, Retry]]) -> None:
    if not failed:
        return
    changed = connection.execute(
        text(_RETRY),
        {
            "batch": batch_id,
            "ids": [item.staging_object_id for item, _ in failed],
            "errors": [item.error for item, _ in failed],
            "pauses": [verdict.pause for _, verdict in failed],
            "charged": [verdict.charged for _, verdict in failed],
            "limits": [verdict.batch_limit for _, verdict in failed],
        },
    ).rowcount
    _check(batch_id, changed, len(failed))


_RETRY = """
UPDATE prism_staging_objects o SET state = 'pending', last_error = f.error, batch_limit = f.batch_limit,
    attempts = attempts + CASE WHEN f.charged THEN 1 ELSE 0 END,
    outages = CASE WHEN f.charged THEN 0 ELSE outages + 1 END,
    retry_time = clock_timestamp() + make_interval(secs => f.pause)
FROM unnest(CAST(:ids AS bigint[]), CAST(:errors AS text[]), CAST(:pauses AS double precision[]),
    CAST(:charged AS boolean[]), CAST(:limits AS integer[])) AS f (id, error, pause, charged, batch_limit)
WHERE o.prism_staging_object_id = f.id AND o.prism_stream_batch_id = :batch AND o.state = 'claimed'
"""


def _give_up(connection: Connection, batch_id: int, failed: Sequence[tuple[FailedAttempt, GiveUp]]) -> None:
    if not failed:
        return
    changed = connection.execute(
        text(_GIVE_UP),
        {
            "batch": batch_id,
            "ids": [item.staging_object_id for item, _ in failed],
            "errors": [item.error for item, _ in failed],
            "rests": [verdict.retry_after for _, verdict in failed],
        },
    ).rowcount
    _check(batch_id, changed, len(failed))


_GIVE_UP = """
UPDATE prism_staging_objects o SET state = 'failed', attempts = attempts + 1, last_error = f.error, batch_limit = NULL,
    retry_time = clock_timestamp() + make_interval(secs => f.rest)
FROM unnest(CAST(:ids AS bigint[]), CAST(:errors AS text[]), CAST(:rests AS double precision[])) AS f (id, error, rest)
WHERE o.prism_staging_object_id = f.id AND o.prism_stream_batch_id = :batch AND o.state = 'claimed'
"""


@dataclass(frozen=True, kw_only=True)
class ChangedObject:
    """An object that restarts with a new version, with the reason and the verdict."""

    staging_object_id: int
    version: SourceVersion
    reason: str
    verdict: Verdict


def take_up_versions(connection: Connection, batch_id: int, changed: Sequence[ChangedObject]) -> None:
    """Restarts objects of a batch with the version now under their keys, or gives up this version.

    A restart writes other keys and has all attempts again. Restarts in a row are counted.
    """
    if not changed:
        return
    rows = connection.execute(
        text(_TAKE_UP),
        {
            "batch": batch_id,
            "ids": [item.staging_object_id for item in changed],
            "etags": [item.version.etag for item in changed],
            "lengths": [item.version.content_length for item in changed],
            "times": [item.version.last_modified for item in changed],
            "errors": [item.reason for item in changed],
            "given_up": [isinstance(item.verdict, GiveUp) for item in changed],
            "pauses": [_pause(item.verdict) for item in changed],
        },
    ).rowcount
    _check(batch_id, rows, len(changed))


def _pause(verdict: Verdict) -> float | None:
    return verdict.pause if isinstance(verdict, Retry) else verdict.retry_after


_TAKE_UP = f"""
UPDATE prism_staging_objects o SET generation = generation + 1, {AS_NEW},
    state = CASE WHEN f.given_up THEN 'failed' ELSE 'pending' END,
    etag = f.etag, content_length = f.length, send_time = f.time, read_version = NULL,
    attempts = 0, outages = 0, rewrites = rewrites + 1,
    batch_limit = NULL, last_error = f.error,
    retry_time = clock_timestamp() + make_interval(secs => f.pause)
FROM unnest(CAST(:ids AS bigint[]), CAST(:etags AS text[]), CAST(:lengths AS bigint[]), CAST(:times AS timestamptz[]),
    CAST(:errors AS text[]), CAST(:given_up AS boolean[]), CAST(:pauses AS double precision[]))
    AS f (id, etag, length, time, error, given_up, pause)
WHERE o.prism_staging_object_id = f.id AND o.prism_stream_batch_id = :batch AND o.state = 'claimed'
"""


def release(connection: Connection, batch_id: int) -> int:
    """Returns a batch's objects, released by its worker, to the pending ones. Charges no attempt. Returns how many."""
    return connection.execute(text(_RELEASE), {"batch": batch_id}).rowcount


_RELEASE = """
UPDATE prism_staging_objects SET state = 'pending'
WHERE prism_stream_batch_id = :batch AND state = 'claimed'
"""


def _check(batch_id: int, changed: int, expected: int) -> None:
    if changed != expected:
        raise LeaseLost(f"batch {batch_id} holds only {changed} of {counted(expected, 'object')}; it changed nothing")


def restart_due(connection: Connection, table_ids: Collection[int] | None) -> int:
    """Restarts given-up objects whose automatic retry is due. Returns how many. Locks their rows."""
    return connection.execute(text(_RETRY_DUE), {"tables": None if table_ids is None else list(table_ids)}).rowcount


_RETRY_DUE = f"""
UPDATE prism_staging_objects SET state = 'pending', generation = generation + 1, {AS_NEW}, retry_time = NULL
WHERE state = 'failed' AND retry_time <= clock_timestamp()
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
"""


def retry_failed(connection: Connection, table_ids: Collection[int] | None) -> int:
    """Restarts given-up objects, regardless of their attempts. Returns how many. Locks their rows.

    Skips objects accepted as they are; `retry_one` restarts those.
    """
    return connection.execute(text(_RETRY_FAILED), {"tables": None if table_ids is None else list(table_ids)}).rowcount


_RETRY_FAILED = f"""
UPDATE prism_staging_objects SET state = 'pending', generation = generation + 1, {AS_NEW}, {UNCHARGED}
WHERE state = 'failed' AND NOT dismissed
    AND (CAST(:tables AS bigint[]) IS NULL OR prism_table_id = ANY(CAST(:tables AS bigint[])))
"""


def retry_one(connection: Connection, staging_object_id: int) -> bool:
    """Retries one object at once: restarts a given-up object, or ends the pause of a waiting one.

    Otherwise returns False. Locks its row.
    """
    restarted = connection.execute(text(_RETRY_ONE), {"id": staging_object_id}).rowcount
    at_once = connection.execute(text(_END_PAUSE), {"id": staging_object_id}).rowcount
    return bool(restarted or at_once)


_RETRY_ONE = f"""
UPDATE prism_staging_objects SET state = 'pending', generation = generation + 1, {AS_NEW}, {UNCHARGED}
WHERE prism_staging_object_id = :id AND state = 'failed'
"""
_END_PAUSE = """
UPDATE prism_staging_objects SET retry_time = NULL
WHERE prism_staging_object_id = :id AND state = 'pending'
"""


def dismiss(connection: Connection, staging_object_id: int) -> bool:
    """Gives up a waiting object for good, or accepts an unread object or an unread later version as it is.

    Returns False if a batch holds the object, or if there is nothing to accept. Locks its row.
    """
    return bool(connection.execute(text(_DISMISS), {"id": staging_object_id}).rowcount)


_DISMISS = """
UPDATE prism_staging_objects SET dismissed = true, retry_time = NULL, batch_limit = NULL, claim_version = NULL,
    last_error = CASE WHEN state = 'pending' THEN concat_ws('; before that: ', 'given up by hand', last_error)
        ELSE last_error END,
    state = CASE WHEN state = 'pending' THEN 'failed' ELSE state END
WHERE prism_staging_object_id = :id
    AND (state IN ('pending', 'failed') OR (state = 'done' AND overwritten_time IS NOT NULL))
"""

"""Removes uploads of attempts for objects that were given up or restarted. A repetition removes nothing more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables.accepted import accepted_days
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata.intake import abandoned_uploads
from prism_assets.metadata.intake.abandoned_uploads import AbandonedUpload
from prism_assets.stages.context import StageContext

_AT_ONCE = 200
_MOST_REFUSED = 3
"""After this many refusals the store is left alone for this turn."""
_PAUSE_SECONDS = 10.0


def upload_of(task: ConvertTask, table: TableDefinition) -> AbandonedUpload:
    """Returns the possible uploads of attempts on a task: objects of all event dates it accepts."""
    accepted = accepted_days(table, task)
    return AbandonedUpload(
        staging_object_id=task.staging_object_id,
        generation=task.generation,
        table_id=task.table_id,
        first_date=accepted.first,
        last_date=accepted.last,
    )


def remove_abandoned(context: StageContext, table_ids: Collection[int] | None) -> tuple[Problem, ...]:
    """Removes due uploads. Returns problems with uploads the store refuses to remove, by table.

    Refused ones are postponed and block no other removal; only new starts of the same objects wait for them. Keys are
    deleted before the note, so a death in between repeats the deletion without effect.
    """
    tables: dict[int, TableDefinition] = {}
    refused: list[tuple[AbandonedUpload, PrismError]] = []
    while len(refused) < _MOST_REFUSED:
        with context.database.begin() as connection:
            due = abandoned_uploads.due_uploads(connection, table_ids, _AT_ONCE)
        if not due:
            break
        if any(item.table_id not in tables for item in due):
            tables = {table.table_id: table for table in context.choose_with_dropped(None)}
        removed, errors = _remove(context, due, tables)
        refused += errors
        failpoint("stream.after_remove")
        with context.database.begin() as connection:
            abandoned_uploads.note_removal(connection, removed)
            abandoned_uploads.postpone_removal(connection, [item for item, _ in errors], _PAUSE_SECONDS)
    reasons = {str(tables[item.table_id].name): str(error) for item, error in refused}
    message = "uploads of given-up or restarted objects could not be removed"
    return tuple(
        Problem(table=name, reason=f"{message}: {why}", transient=True) for name, why in sorted(reasons.items())
    )


def _remove(
    context: StageContext, due: Sequence[AbandonedUpload], tables: Mapping[int, TableDefinition]
) -> tuple[list[AbandonedUpload], list[tuple[AbandonedUpload, PrismError]]]:
    """Deletes all uploads at once, or one by one if the store refuses, up to several refusals. Returns removed and
    refused.
    """
    bucket = context.lake.bucket
    with suppress(PrismError):
        context.stores.delete(bucket, [key for item in due for key in _keys(context, item, tables)])
        return list(due), []
    removed: list[AbandonedUpload] = []
    refused: list[tuple[AbandonedUpload, PrismError]] = []
    for item in due:
        try:
            context.stores.delete(bucket, list(_keys(context, item, tables)))
        except PrismError as error:
            refused.append((item, error))
            if len(refused) == _MOST_REFUSED:
                break
        else:
            removed.append(item)
    return removed, refused


def _keys(context: StageContext, item: AbandonedUpload, tables: Mapping[int, TableDefinition]) -> Iterator[str]:
    """Yields keys of both tiers, because the tier of an attempt is not recorded."""
    keys = context.lake.keys(tables[item.table_id])
    for offset in range((item.last_date - item.first_date).days + 1):
        day = item.first_date + timedelta(days=offset)
        for delayed in (False, True):
            yield keys.small_object(day, item.staging_object_id, delayed=delayed, generation=item.generation)

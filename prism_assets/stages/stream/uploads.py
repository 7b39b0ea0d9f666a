"""Removes what attempts uploaded for objects that were given up or begun anew. Repeating it removes nothing more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from prism_assets.domain.accepted import accepted_days
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import abandoned_uploads
from prism_assets.metadata.abandoned_uploads import AbandonedUpload
from prism_assets.stages.context import StageContext

_AT_ONCE = 200
_MOST_REFUSED = 3
"""A store that refuses so many is not asked for more of them in this turn."""
_PAUSE_SECONDS = 10.0


def upload_of(task: ConvertTask, table: TableDefinition) -> AbandonedUpload:
    """All that attempts on a task may have uploaded: objects of the event dates it accepts."""
    accepted = accepted_days(table, task)
    return AbandonedUpload(
        staging_object_id=task.staging_object_id,
        generation=task.generation,
        table_id=task.table_id,
        first_date=accepted.first,
        last_date=accepted.last,
    )


def remove_abandoned(context: StageContext, table_ids: Collection[int] | None) -> tuple[Problem, ...]:
    """Removes the uploads that are due; returns what the store refuses to remove, by table.

    What it refuses is put off and keeps no other from its removal. Only new starts of the same objects wait for it.
    Keys first, then the note: a death in between removes them again, which changes nothing.
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
    said = "what was uploaded for objects that were given up or begun anew could not be removed"
    return tuple(Problem(table=name, reason=f"{said}: {why}", transient=True) for name, why in sorted(reasons.items()))


def _remove(
    context: StageContext, due: Sequence[AbandonedUpload], tables: Mapping[int, TableDefinition]
) -> tuple[list[AbandonedUpload], list[tuple[AbandonedUpload, PrismError]]]:
    """All at once, and one by one where the store refuses that, until it has refused several. What it did, and not."""
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
    """Of both tiers: which one an attempt chose is not worth remembering."""
    keys = context.lake.keys(tables[item.table_id])
    for offset in range((item.last_date - item.first_date).days + 1):
        day = item.first_date + timedelta(days=offset)
        for delayed in (False, True):
            yield keys.small_object(day, item.staging_object_id, delayed=delayed, generation=item.generation)

"""Removes what attempts uploaded for objects that were given up or begun anew. Repeating it removes nothing more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from prism_assets.domain.accepted import accepted_days
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import ConvertTask
from prism_assets.failpoints import failpoint
from prism_assets.metadata import abandoned_uploads
from prism_assets.metadata.abandoned_uploads import AbandonedUpload
from prism_assets.stages.context import StageContext

_AT_ONCE = 200


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
    """Removes the uploads that are due; returns what is wrong where the store refuses. No other work waits for it.

    Keys first, then the note: a death in between removes them again, which changes nothing.
    """
    tables: dict[int, TableDefinition] = {}
    while True:
        with context.database.begin() as connection:
            due = abandoned_uploads.due_uploads(connection, table_ids, _AT_ONCE)
        if not due:
            return ()
        tables = tables or {table.table_id: table for table in context.choose_tables(None)}
        try:
            context.stores.delete(context.lake.bucket, list(_keys(context, due, tables)))
        except PrismError as error:
            names = sorted({str(tables[item.table_id].name) for item in due})
            reason = f"what was uploaded for objects that were given up could not be removed: {error}"
            return tuple(Problem(table=name, reason=reason, transient=True) for name in names)
        failpoint("stream.after_removal")
        with context.database.begin() as connection:
            abandoned_uploads.note_removal(connection, due)


def _keys(context: StageContext, due: Sequence[AbandonedUpload], tables: dict[int, TableDefinition]) -> Iterator[str]:
    """Of both tiers: which one an attempt chose is not worth remembering."""
    for item in due:
        keys = context.lake.keys(tables[item.table_id])
        for offset in range((item.last_date - item.first_date).days + 1):
            day = item.first_date + timedelta(days=offset)
            for delayed in (False, True):
                yield keys.small_object(day, item.staging_object_id, delayed=delayed, generation=item.generation)

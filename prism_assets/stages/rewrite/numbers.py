"""Finds numbers of rewrites whose keys are free.

A restored database gives its lost numbers again, while objects under their keys still exist. A rewrite with an occupied
key lists the folders once, and skips all numbers found there: N lost numbers cost one listing, not N runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from typing import TypeVar

from sqlalchemy import Connection

from prism_assets.domain.files.keys import MergedObjectKey, RecordKey, SmallObjectKey
from prism_assets.domain.files.rewrites import Rewrite
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work import Result, is_occupied
from prism_assets.metadata.rewrites import rewrites
from prism_assets.stages.context import StageContext

_Result = TypeVar("_Result", bound=Result)


def run_under_free_number(
    context: StageContext,
    table: TableDefinition,
    number: int,
    run: Callable[[int], Sequence[_Result]],
    begin_again: Callable[[Connection], int],
) -> tuple[int, Sequence[_Result]]:
    """Runs the tasks of a rewrite of records. Repeats them under another number if a key is occupied by other rows.

    `begin_again` drops the rewrite and begins another, in the transaction of its argument. A death after it leaves a
    running rewrite, and the next one drops it. Returns the number of the results.
    """
    results = run(number)
    if not any(map(is_occupied, results)):
        return number, results
    highest = _highest(context, table, context.lake.keys(table).record_prefixes)
    with context.database.begin() as connection:
        rewrites.raise_numbers(connection, highest)
        number = begin_again(connection)
    return number, run(number)


def drop_occupied(
    context: StageContext, table: TableDefinition, days: Collection[date], occupied: Iterable[Rewrite]
) -> None:
    """Drops rewrites whose keys are occupied, so that the next ones take numbers above those in all keys of the days.

    Lists the folders of the days first. A death before the drop leaves the rewrites to garbage collection.
    """
    highest = max(highest_number(context, table, day) for day in days)
    with context.database.begin() as connection:
        for rewrite in occupied:
            rewrites.drop(connection, rewrite.rewrite_id)
        rewrites.raise_numbers(connection, highest)


def highest_number(context: StageContext, table: TableDefinition, day: date) -> int:
    """Returns the highest number of a rewrite in keys of rows of a log's day, or 0. Lists the folders of the day."""
    keys = context.lake.keys(table)
    return _highest(context, table, (keys.delayed_prefix(day), keys.merged_prefix(day)))


def _highest(context: StageContext, table: TableDefinition, folders: Iterable[str]) -> int:
    keys = context.lake.keys(table)
    listed = (item for folder in folders for item in context.stores.list(context.lake.bucket, folder))
    return max((_number_of(keys.parse(item.key)) for item in listed), default=0)


def _number_of(key: object) -> int:
    """Returns the number of the rewrite that a key names, or 0."""
    if isinstance(key, RecordKey):
        return key.fold_id
    return key.rewrite_id if isinstance(key, SmallObjectKey | MergedObjectKey) else 0

"""Runs tasks that write objects, again under other keys where other rows lie under theirs.

A run that died before its record leaves such objects. A database that was set back to an earlier time gives all numbers
again that it has lost. The first task that meets an occupied key has the folder listed once, and jumps over all numbers
that are taken there: N lost numbers cost one listing, and not N runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, TypeVar

from sqlalchemy import Connection

from prism_assets.domain.keys import MergedObjectKey, ObjectKey, RecordKey, SmallObjectKey, TableKeys
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import Result, Task
from prism_assets.metadata import folds
from prism_assets.stages.context import StageContext

_TRIES = 3
_Task = TypeVar("_Task", bound=Task[Any])
_Result = TypeVar("_Result", bound=Result)


def run_under_free_keys(
    run: Callable[[Sequence[_Task]], Iterator[_Result]],
    tasks: Sequence[_Task],
    under_free_key: Callable[[_Task], _Task | None],
) -> Iterator[_Result]:
    """Yields one result for every task, as each is there; `run` runs some of them as one job.

    A task that finds its key occupied is tried again `under_free_key`, unless that is None, three times in all: its
    last result says that the key is occupied.
    """
    for turn in range(_TRIES):
        wanted = {task.task_id: task for task in tasks}
        tasks = []
        for result in run(list(wanted.values())):
            other = under_free_key(wanted[result.task_id]) if _is_occupied(result) and turn < _TRIES - 1 else None
            if other is None:
                yield result
            else:
                tasks.append(other)
        if not tasks:
            return


def run_under_free_number(
    context: StageContext,
    table: TableDefinition,
    number: int,
    run: Callable[[int], Sequence[_Result]],
    begin_again: Callable[[Connection], int],
) -> tuple[int, Sequence[_Result]]:
    """Runs the tasks of a number of prism_folds, again under another where other rows lie under a key of this one.

    `begin_again` drops what was begun under the number and takes the next, in the transaction of its argument. A death
    after it leaves a fold that the next one drops. Returns the number of the results.
    """
    results = run(number)
    if not any(map(_is_occupied, results)):
        return number, results
    highest = _highest_fold(context, table)
    with context.database.begin() as connection:
        folds.raise_numbers(connection, highest)
        number = begin_again(connection)
    return number, run(number)


def _is_occupied(result: Result) -> bool:
    return result.failure is not None and result.failure.occupied


def _highest_fold(context: StageContext, table: TableDefinition) -> int:
    keys = context.lake.keys(table)
    listed = (item for prefix in keys.record_prefixes for item in context.stores.list(context.lake.bucket, prefix))
    named = (keys.parse(item.key) for item in listed)
    return max((item.fold_id for item in named if isinstance(item, RecordKey)), default=0)


def highest_number(context: StageContext, table: TableDefinition, day: date) -> int:
    """The highest generation or revision in keys of rows of a day of a log, 0 for none. Lists its folders."""
    keys = context.lake.keys(table)
    folders = (keys.live_prefix(day), keys.delayed_prefix(day), keys.merged_prefix(day))
    listed = (item for folder in folders for item in context.stores.list(context.lake.bucket, folder))
    return max((_number(keys.parse(item.key)) for item in listed), default=0)


def _number(named: ObjectKey | None) -> int:
    if isinstance(named, SmallObjectKey):
        return max(named.generation, named.revision)
    return named.revision if isinstance(named, MergedObjectKey) else 0


class TakenRevisions:
    """The revisions of objects of rows that lie in the folders of a table. Each folder is listed once, when needed."""

    def __init__(self, context: StageContext, keys: TableKeys) -> None:
        self._context = context
        self._keys = keys
        self._listed: dict[str, dict[ObjectKey, int]] = {}

    def next_revision(self, key: str) -> int:
        """A revision above that of a key, and above those of all objects whose keys differ in the revision alone."""
        named = self._keys.parse(key)
        assert isinstance(named, SmallObjectKey | MergedObjectKey)
        folder = key.rpartition("/")[0] + "/"
        if folder not in self._listed:
            self._listed[folder] = self._list(folder)
        return 1 + max(named.revision, self._listed[folder].get(replace(named, revision=0), 0))

    def _list(self, folder: str) -> dict[ObjectKey, int]:
        found: dict[ObjectKey, int] = {}
        for item in self._context.stores.list(self._context.lake.bucket, folder):
            named = self._keys.parse(item.key)
            if isinstance(named, SmallObjectKey | MergedObjectKey):
                first = replace(named, revision=0)
                found[first] = max(named.revision, found.get(first, 0))
        return found

"""Inputs of a task that are missing or not as recorded: all of them are named at once, and no other error is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa

from prism_assets.domain.errors import NOT_ITS_FAULT, ObjectMissing, PrismError
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.records.folding import ChangesObject, RecordObject, UnfoldedChanges
from prism_assets.domain.work import UnreadObject

_READS = 8


class UnreadInputs(Exception):
    """Some inputs are not there as they were recorded. The work can go on without them, or must be left."""

    def __init__(self, objects: Sequence[UnreadObject]) -> None:
        super().__init__(f"{len(objects)} inputs cannot be read, the first as {objects[0].reason}")
        self.objects = tuple(objects)


@contextmanager
def reading(said: DataFile) -> Iterator[None]:
    """Raises UnreadInputs for a fault of one object. Faults of the surroundings are raised as they are."""
    try:
        yield
    except (MemoryError, *NOT_ITS_FAULT):  # Arrow's is an ArrowException, too
        raise
    except (PrismError, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error) if isinstance(error, PrismError) else f"{said.key}: it cannot be read: {error}"
        unread = UnreadObject(
            key=said.key,
            object_id=said.object_id if isinstance(said, UnfoldedChanges | RecordObject) else 0,
            is_changes=isinstance(said, ChangesObject),
            reason=reason,
            is_missing=isinstance(error, ObjectMissing),
        )
        raise UnreadInputs([unread]) from error


_Read = TypeVar("_Read")
_Item = TypeVar("_Item")


def read_all(read: Callable[[_Item], _Read], items: Sequence[_Item]) -> list[_Read]:
    """Reads all items, a few at once; UnreadInputs names all that cannot be read."""

    def attempt(item: _Item) -> _Read | UnreadInputs:
        try:
            return read(item)
        except UnreadInputs as error:
            return error

    with ThreadPoolExecutor(_READS) as pool:
        found = list(pool.map(attempt, items))
    if unread := [item for error in found if isinstance(error, UnreadInputs) for item in error.objects]:
        raise UnreadInputs(unread)
    return [item for item in found if not isinstance(item, UnreadInputs)]

"""Reads the inputs of a fold: whole changes, and of records first keys and times, later the rest of some."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prism_assets.domain.erasures.rules import ErasureRule
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.records.folding import (
    FoldResult,
    FoldTask,
    RecordObject,
    RecordPart,
    UnfoldedChanges,
)
from prism_assets.domain.records.joins import CHANGE_GROUP, CHANGE_LINE, CHANGE_OBJECT
from prism_assets.domain.records.rebuild import RecordRebuildResult
from prism_assets.domain.work import Failure, Task, UnreadObject
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.fingerprint import checked_fingerprint, fingerprint_of
from prism_assets.kernels.nested_arrays import conformed
from prism_assets.kernels.parquet.format import identity
from prism_assets.kernels.parquet.stored import READ_WHOLE, StoredFile
from prism_assets.kernels.records.erasing import NO_RULES, ErasedRows, find_erased
from prism_assets.kernels.records.sessions import Numbers, Spans, buckets_of
from prism_assets.kernels.records.shape import COMMITTED, LAST_EVENT, RecordShape
from prism_assets.kernels.records.times import event_times, to_instant
from prism_assets.kernels.unread import UnreadInputs, read_all, reading
from prism_assets.objectstore.stores import Stores

_AT_ONCE = 8
"""Small objects that are read at once."""


_Result = TypeVar("_Result", FoldResult, RecordRebuildResult)


def failed_by(task: Task[_Result], error: Exception, doing: str) -> _Result:
    """The result of a task that ended with an error; `unread` has the inputs that caused it, if any did."""
    if isinstance(error, UnreadInputs):
        return replace(task.failed(Failure(message=str(error), transient=False)), unread=error.objects)
    return task.failed(failure_of(error, doing))


_File = TypeVar("_File", bound=DataFile)


class StoredObject:
    """One recorded Parquet object. Reading raises UnreadInputs if the object is not as recorded."""

    def __init__(self, said: DataFile, stores: Stores) -> None:
        self.said = said
        self._stores = stores

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return StoredFile.opened(self.said, self._stores).file

    def read_columns(self, schema: pa.Schema) -> pa.Table:
        """All rows, with the columns of a schema."""
        with reading(self.said):
            wanted = set(map(identity, schema))
            names = [field.name for field in self._file.schema_arrow if identity(field) in wanted]
            return _with_columns(self._file.read(names, use_threads=False), schema)

    def read(self, schema: pa.Schema, *, check: bool = True) -> pa.Table:
        """All rows, with the columns of a schema; UnreadInputs if `check` finds other rows than recorded."""
        with reading(self.said):
            read = self._file.read(use_threads=False)
            if check:
                self._check(lambda: (read,))
            return _with_columns(read, schema)

    def parts(self, schema: pa.Schema, *, check: bool) -> Iterator[pa.Table]:
        """Yields the columns of a schema, some rows at a time. In the end `check` compares all rows with the record."""
        found = []
        wanted = set(map(identity, schema))
        with reading(self.said):
            names = None if check else [field.name for field in self._file.schema_arrow if identity(field) in wanted]
            groups = self._file.num_row_groups
        for number in range(groups):
            with reading(self.said):
                read = self._file.read_row_group(number, names, use_threads=False)
                if check:
                    found.append(fingerprint_of(read))
                part = _with_columns(read, schema)
            yield part
        if check and combine(found) != self.said.fingerprint:
            with reading(self.said):
                self._check(lambda: (self._file.read_row_group(n, use_threads=False) for n in range(groups)))

    def _check(self, read: Callable[[], Iterable[pa.Table]]) -> None:
        """Raises InvariantBroken if the rows are others than recorded."""
        found = checked_fingerprint(read, self.said.fingerprint)
        if found != self.said.fingerprint:
            raise InvariantBroken(
                f"{self.said.key}: the fingerprint of its rows is {found}, recorded was {self.said.fingerprint}"
            )


def read_parts(
    items: Sequence[_File], schema: pa.Schema, stores: Stores, checks: Callable[[_File], bool]
) -> Iterator[tuple[_File, pa.Table]]:
    """Yields the columns of a schema of some objects: small objects a few at once, big ones some rows at a time.

    After the last object, UnreadInputs names all unreadable ones, and all checked ones with other rows than recorded.
    """

    def whole(item: _File) -> tuple[_File, list[pa.Table]]:
        return item, list(StoredObject(item, stores).parts(schema, check=checks(item)))

    unread: list[UnreadObject] = []
    for start in range(0, len(items), _AT_ONCE):
        chosen = items[start : start + _AT_ONCE]
        small = [item for item in chosen if item.content_length <= READ_WHOLE]
        try:
            for item, parts in read_all(whole, small):
                yield from ((item, part) for part in parts)
        except UnreadInputs as error:
            unread += error.objects
        for item in chosen:
            if item.content_length > READ_WHOLE:
                try:
                    for part in StoredObject(item, stores).parts(schema, check=checks(item)):
                        yield item, part
                except UnreadInputs as error:
                    unread += error.objects
    if unread:
        raise UnreadInputs(unread)


def _with_columns(read: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema and their parts, by id; null where missing. A dropped one may have had the same name."""
    places = {identity(field): place for place, field in enumerate(read.schema)}
    columns = []
    for field in schema:
        place = places.get(identity(field))
        columns.append(
            pa.nulls(read.num_rows, field.type) if place is None else conformed(read.column(place), field.type)
        )
    return pa.table(columns, schema=schema)


@dataclass(frozen=True)
class Changes:
    """The changes of records, each once."""

    rows: pa.Table
    times: Numbers
    buckets: Numbers
    sources: Numbers
    """The place in `waiting` of the object of each change, or NEW."""
    waiting: tuple[RecordObject, ...]
    """The objects of waiting changes."""
    new: int
    """Rows read from objects of the log."""
    waited: int
    """Rows read from `waiting`."""
    placeless: int
    """Rows without a record, for example without a key."""
    undecided: int
    """Rows without a result of an erasure's predicate."""


NEW = -1
"""The source of changes that no fold has taken yet."""


def read_changes(task: FoldTask, shape: RecordShape, stores: Stores) -> Changes:
    """Reads the changes of the task's buckets, the waiting ones first.

    All tasks of a fold read the new objects. One task checks each object, because the fold fails if one task fails.
    """
    waiting = tuple(item for item in task.records if item.part is RecordPart.PENDING)
    tables, buckets, sources = list[pa.Table](), list[Numbers](), list[Numbers]()

    def read(item: DataFile) -> pa.Table:
        return StoredObject(item, stores).read(shape.changes)

    def read_own(item: UnfoldedChanges) -> tuple[pa.Table, Numbers]:
        is_checked_here = zlib.crc32(item.key.encode()) % shape.join.buckets in task.buckets
        rows = StoredObject(item, stores).read(shape.changes, check=is_checked_here)
        found = buckets_of(rows.select(shape.join.key), shape.join.buckets)
        own = np.isin(found, task.buckets)
        committed = pa.array(np.full(int(own.sum()), to_instant(item.committed), np.int64))
        rows = rows.filter(pa.array(own))
        place = rows.column_names.index(COMMITTED)
        return rows.set_column(place, shape.changes.field(COMMITTED), committed), found[own]

    for number, rows in enumerate(read_all(read, waiting)):
        tables.append(rows)
        buckets.append(buckets_of(rows.select(shape.join.key), shape.join.buckets))
        sources.append(np.full(rows.num_rows, number, np.int64))
    for rows, found in read_all(read_own, task.changes):
        tables.append(rows)
        buckets.append(found)
        sources.append(np.full(rows.num_rows, NEW, np.int64))
    whole = pa.concat_tables([shape.changes.empty_table(), *tables])
    erased = find_erased(task.erasures, whole)
    return placed(whole, _joined(buckets), _joined(sources), shape, waiting, erased)


def placed(
    rows: pa.Table,
    buckets: Numbers,
    sources: Numbers,
    shape: RecordShape,
    waiting: tuple[RecordObject, ...],
    erased: ErasedRows,
) -> Changes:
    """The changes of records among some rows, each once, without erased ones."""
    has_place = _have_place(rows, shape)
    kept = np.flatnonzero(has_place & ~erased.mask)
    objects, lines = (rows[name].to_numpy()[kept] for name in (CHANGE_OBJECT, CHANGE_LINE))
    order = np.lexsort((lines, objects))  # stable: of equal changes the one that waited comes first
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(objects[order]) != 0) | (np.diff(lines[order]) != 0)
    kept = kept[np.sort(order[is_first])]
    chosen = rows.take(pa.array(kept))
    return Changes(
        rows=chosen,
        times=event_times(chosen[shape.table.partition_column], shape.table.zone),
        buckets=buckets[kept],
        sources=sources[kept],
        waiting=waiting,
        new=int((sources == NEW).sum()),
        waited=int((sources != NEW).sum()),
        placeless=int((~has_place & ~erased.mask).sum()),
        undecided=erased.undecided,
    )


def _have_place(rows: pa.Table, shape: RecordShape) -> npt.NDArray[np.bool_]:
    """Which changes have a key, a time, a known group and a sequence."""
    placed: Any = pa.array(np.zeros(rows.num_rows, bool))
    for group in shape.join.groups:
        own = pc.fill_null(pc.equal(rows[CHANGE_GROUP], group.name), False)
        for name in group.sequence:
            placed = pc.or_(placed, pc.and_(own, pc.is_valid(rows[name])))
    for name in (*shape.join.key, shape.table.partition_column):
        placed = pc.and_(placed, pc.is_valid(rows[name]))
    return np.asarray(placed.to_numpy(zero_copy_only=False) if isinstance(placed, pa.Array) else placed.to_numpy())


@dataclass(frozen=True)
class RecordPlaces:
    """Keys, times and record files of all records of some objects, one object after the other."""

    keys: pa.Table
    first_events: Numbers
    last_events: Numbers
    files: Numbers
    objects: Numbers
    """The number of the object of each record."""
    erased: ErasedRows
    """Records that must not be written again."""

    def spans(self, keys: Numbers) -> Spans:
        """The records as spans, with the given numbers of keys."""
        return Spans(keys, self.first_events, self.last_events)


def read_places(
    objects: Iterable[tuple[int, StoredObject]], shape: RecordShape, erasures: Sequence[ErasureRule] = NO_RULES
) -> RecordPlaces:
    """Reads keys and times of the records of objects, given with the numbers of their record files."""
    schema = pa.schema(
        [shape.stored.field(name) for name in (*shape.join.key, shape.table.partition_column, LAST_EVENT)]
    )

    def read(item: tuple[int, StoredObject]) -> pa.Table:
        return item[1].read_columns(schema)

    listed = list(objects)
    tables = read_all(read, listed)
    whole = pa.concat_tables([schema.empty_table(), *tables])
    files = [np.full(table.num_rows, file, np.int64) for (file, _), table in zip(listed, tables, strict=True)]
    return RecordPlaces(
        keys=whole.select(shape.join.key),
        first_events=event_times(whole[shape.table.partition_column], shape.table.zone),
        last_events=whole[LAST_EVENT].to_numpy(),
        files=_joined(files),
        objects=np.repeat(np.arange(len(tables)), [table.num_rows for table in tables]),
        erased=find_erased(erasures, whole),
    )


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)

"""Reads join tables with all committed changes, folded and published or not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from prism_assets.domain.errors import MissingSecret, ObjectMissing, TerminalError
from prism_assets.domain.names import DAY_COLUMN
from prism_assets.domain.records.folding import RecordObject, RecordPart, UnfoldedChanges
from prism_assets.domain.records.rebuild import how_to_mend
from prism_assets.domain.work import UnreadObject
from prism_assets.kernels.records.current import CurrentRecords, current_records, seen_schema
from prism_assets.kernels.unread import UnreadInputs
from prism_assets.merge_on_read.query_reader import PUBLISHED_HINT
from prism_assets.merge_on_read.snapshot import RecordsSnapshot, is_join_table, load_snapshot
from prism_assets.metadata.database import Database
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import stores_of
from prism_assets.reading.lake_reader import open_filesystem, path_of
from prism_assets.settings import Settings

_TRIES = 5
"""How many snapshots are tried if garbage collection deletes objects of an old snapshot during the read."""


class RecordsReader:
    """A reader of join tables that needs no fold. Close it, or use it in a `with` block.

    Needs PostgreSQL, the lake and no write permission. One call shows one moment.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url.get_secret_value())
        self._lake = Lake(settings.bucket, settings.prefix, settings.store)
        self._stores = stores_of(settings.store)
        self._filesystem = open_filesystem(settings)

    def __enter__(self) -> RecordsReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections to PostgreSQL."""
        self._database.dispose()

    def is_join_table(self, name: str) -> bool:
        """Whether `schema.table` is a join table."""
        return is_join_table(self._database, name)

    def rows(self, name: str) -> pa.Table:
        """Reads all records of `schema.table` into memory, with the column `dt`."""
        try:
            return self.dataset(name).to_table()
        except (pa.ArrowException, OSError) as error:
            raise TerminalError(f"{name} cannot be read: {str(error).splitlines()[0]}; see `prism doctor`") from error

    def dataset(self, name: str) -> ds.Dataset:
        """Returns all records of `schema.table`. Records with unfolded changes are in memory, others are read on
        demand.

        Raises TerminalError if a needed object cannot be read. Changes set aside by folds are left out while
        unreadable.
        """
        left_out: set[int] = set()
        for _ in range(_TRIES):
            snapshot = load_snapshot(self._database, self._lake, name)
            try:
                return self.dataset_of(snapshot, left_out)
            except UnreadInputs as error:
                now = load_snapshot(self._database, self._lake, name)
                still = [item for item in error.objects if _is_as_before(item, snapshot, now)]
                aside = {item.object_id for item in still if item.is_changes and item.object_id in now.set_aside}
                if lost := [item for item in still if not item.is_changes or item.object_id not in aside]:
                    raise _unreadable(name, lost) from error
                left_out |= aside
            except MissingSecret as error:
                message = f"an erasure of {name} is in progress, and matching rows must be left out"
                raise MissingSecret(f"{message}: {error}; {PUBLISHED_HINT}") from error
        raise TerminalError(f"{name}: its objects were replaced and deleted while they were read; repeat")

    def dataset_of(self, snapshot: RecordsSnapshot, left_out: Collection[int] = ()) -> ds.Dataset:
        """Returns all records of one moment, without changes of the objects in `left_out`.

        Raises UnreadInputs if an object to be merged with changes is gone or unreadable.
        """
        changes = tuple(item for item in snapshot.changes if item.object_id not in left_out)
        parts = _read_all(
            lambda task: current_records(task, snapshot.table, self._stores), replace(snapshot, changes=changes).tasks
        )
        replaced = frozenset[int]().union(*(part.replaced for part in parts))
        schema = seen_schema(snapshot.table)
        expired = pa.array(sorted(snapshot.expired), pa.date32())
        merged = [table.filter(~ds.field(DAY_COLUMN).isin(expired)) for part in parts for table in part.merged]
        shown = [
            item
            for item in snapshot.records
            if item.part is RecordPart.VISIBLE and item.date not in snapshot.expired and item.object_id not in replaced
        ]
        stored = ds.FileSystemDataset(
            [self._fragment(item) for item in shown], schema, ds.ParquetFileFormat(), self._filesystem
        )
        return ds.UnionDataset(schema, [stored, ds.InMemoryDataset(pa.concat_tables([schema.empty_table(), *merged]))])

    def _fragment(self, item: RecordObject) -> ds.Fragment:
        return ds.ParquetFileFormat().make_fragment(
            path_of(item.url),
            filesystem=self._filesystem,
            partition_expression=ds.field(DAY_COLUMN) == pa.scalar(item.date, pa.date32()),
        )


_Task = TypeVar("_Task")


def _read_all(read: Callable[[_Task], CurrentRecords], tasks: Collection[_Task]) -> list[CurrentRecords]:
    """Reads all tasks one after another. Raises UnreadInputs with every unreadable object."""
    found, unread = [], dict[tuple[int, bool], UnreadObject]()
    for task in tasks:
        try:
            found.append(read(task))
        except UnreadInputs as error:
            unread |= {(item.object_id, item.is_changes): item for item in error.objects}
    if unread:
        raise UnreadInputs(list(unread.values()))
    return found


def _is_as_before(item: UnreadObject, before: RecordsSnapshot, now: RecordsSnapshot) -> bool:
    """Whether an object is still current and unchanged.

    A replaced object may be gone. An erasure or repair may have put another file under the object's id.
    """
    recorded = _recorded(item, now)
    return recorded is not None and recorded == _recorded(item, before)


def _recorded(item: UnreadObject, snapshot: RecordsSnapshot) -> tuple[str, int, int] | None:
    objects: tuple[UnfoldedChanges | RecordObject, ...] = snapshot.changes if item.is_changes else snapshot.records
    found = (one for one in objects if one.object_id == item.object_id)
    return next(((one.key, one.content_length, one.fingerprint) for one in found), None)


def _unreadable(name: str, lost: list[UnreadObject]) -> TerminalError:
    first = lost[0]
    mend = (
        "`prism repair --deep` writes it again, or `prism fold` sets it aside"
        if first.is_changes
        else how_to_mend(name)
    )
    kind = ObjectMissing if first.is_missing else TerminalError
    return kind(f"{first.reason}; {mend}; {PUBLISHED_HINT}")

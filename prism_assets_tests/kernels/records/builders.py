"""A join table in a folder: takes changes, runs folds, and replaces objects by the results."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.records.folding import FoldResult, FoldTask, RecordObject, RecordPart, UnfoldedChanges
from prism_assets.domain.records.joins import (
    CHANGE_DELETED,
    CHANGE_GROUP,
    CHANGE_LINE,
    CHANGE_OBJECT,
    Group,
    JoinOptions,
    Member,
)
from prism_assets.domain.records.model import Change, Record, RecordModel
from prism_assets.domain.records.rebuild import (
    RecordRebuildResult,
    RecordRebuildTask,
    added_sums,
    different_days,
    rebuild_tasks,
)
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.kernels.columns import to_array
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.records.fold import fold_buckets
from prism_assets.kernels.records.rebuilding import rebuild_records
from prism_assets.kernels.records.shape import RecordShape
from prism_assets_tests.kernels.builders import Lake, a_column, a_table

START = datetime(2026, 3, 8, 14, 0, tzinfo=timezone.utc)
"""An hour before midnight in Tokyo."""
START_MS = int(START.timestamp() * 1_000)
KEY = ("id", "shard")
COLUMNS = (
    a_column("id", "string", 2, required=True),
    a_column("shard", "bigint", 3, required=True),
    a_column("page", "string", 4),
    a_column("note", "string", 5),
    a_column("version", "bigint", 6),
    a_column("part", "string", 7),
    a_column("state", "string", 8),
    a_column("price", "decimal", 9, precision=10, scale=2),
    a_column("tick", "bigint", 10),
    a_column("total", "bigint", 11),
    a_column("small", "smallint", 12),
    a_column("hits", "bigint", 13),
    a_column("low", "integer", 14),
    a_column("high", "timestamp", 15),
    a_column("origin", "string", 16),
)
FRONT = Group(name="front", sequence=("time",))
BACK = Group(name="back", sequence=("version", "part"))
COUNTED = Group(name="counted", sequence=("tick",))
MEMBERS = (
    Member(column="page", group="front"),
    Member(column="note", group="front", merge="last_non_null"),
    Member(column="state", group="back"),
    Member(column="price", group="back", merge="last_non_null"),
    Member(column="total", group="counted", merge="sum"),
    Member(column="small", group="counted", merge="sum"),
    Member(column="hits", group="counted", merge="count"),
    Member(column="low", group="counted", merge="min"),
    Member(column="high", group="counted", merge="max"),
    Member(column="origin", group="counted", merge="first"),
)
WINDOW, LATENESS = 600, 300


def a_join(**more: Any) -> JoinOptions:
    """Returns a join of three groups with all rules, and a window of ten minutes."""
    settings: dict[str, Any] = {
        "key": KEY,
        "groups": (FRONT, BACK, COUNTED),
        "members": MEMBERS,
        "window_seconds": WINDOW,
        "lateness_seconds": LATENESS,
        "buckets": 2,
    }
    return JoinOptions(**{**settings, **more})


def a_join_table(join: JoinOptions) -> TableDefinition:
    return replace(a_table(*COLUMNS), join=join, table_id=1, version=1)


def a_model(table: TableDefinition) -> RecordModel:
    assert table.join is not None
    return RecordModel(table.join, {column.name: column.type for column in table.columns}, table.partition_column)


def a_change(group: str, identity: int | tuple[int, int], seconds: float, **values: Any) -> Change:
    """A change of the key a/1, some seconds behind START."""
    deleted = values.pop("deleted", False)
    return Change(
        group=group,
        identity=identity if isinstance(identity, tuple) else (identity, 0),
        time=START_MS + int(seconds * 1_000),
        values={"id": "a", "shard": 1, **values},
        deleted=deleted,
    )


@dataclass
class FoldedTable:
    """Plays a stage without PostgreSQL: numbers objects, and replaces objects by others."""

    lake: Lake
    table: TableDefinition
    objects: dict[int, RecordObject] = field(default_factory=dict)
    folds: int = 0
    committed: int = 0
    forget_hidden: bool = False
    taken: list[UnfoldedChanges] = field(default_factory=list)
    results: list[FoldResult] = field(default_factory=list)

    def commit(self, changes: Sequence[Change], committed: datetime = START) -> UnfoldedChanges:
        """Writes an object of changes, as Stream does."""
        assert self.table.join is not None
        shape = RecordShape(self.table, self.table.join)
        hidden: dict[str, list[Any]] = {
            CHANGE_GROUP: [change.group for change in changes],
            CHANGE_DELETED: [change.deleted for change in changes],
            CHANGE_OBJECT: [change.identity[0] for change in changes],
            CHANGE_LINE: [change.identity[1] for change in changes],
            self.table.partition_column: [change.time for change in changes],
        }
        fields = [item for item in shape.changes if item.name != "_p_committed"]
        values = [hidden.get(item.name, [change.values.get(item.name) for change in changes]) for item in fields]
        arrays = [to_array(column, item.type) for column, item in zip(values, fields, strict=True)]
        rows = pa.table(arrays, schema=pa.schema(fields))
        self.committed += 1
        return self._stored(rows, f"p/changes/{self.committed}.parquet", committed)

    def _stored(self, rows: pa.Table, key: str, committed: datetime) -> UnfoldedChanges:
        sink = io.BytesIO()
        pq.write_table(rows, sink, store_schema=False)
        self.lake.stores.put("lake", key, sink.getvalue())
        return UnfoldedChanges(
            bucket="lake",
            key=key,
            content_length=len(sink.getvalue()),
            row_count=rows.num_rows,
            fingerprint=fingerprint_of(rows),
            committed=committed,
            object_id=0,
        )

    def tasks(
        self, changes: Iterable[UnfoldedChanges], now: datetime, settle_before: datetime | None, count: int = 1
    ) -> list[FoldTask]:
        """Returns the tasks of the next fold, with shared buckets."""
        assert self.table.join is not None
        buckets = range(self.table.join.buckets)
        return [
            FoldTask(
                fold_id=self.folds + 1,
                number=number,
                table_id=1,
                definition_version=1,
                buckets=tuple(buckets[number::count]),
                records=tuple(
                    item
                    for item in self.objects.values()
                    if item.bucket_number % count == number and not item.is_settled
                ),
                changes=tuple(changes),
                now=now,
                settle_before=settle_before,
            )
            for number in range(count)
        ]

    def fold(
        self,
        changes: Iterable[UnfoldedChanges] = (),
        now: datetime = START,
        settle_before: datetime | None = None,
        count: int = 1,
    ) -> list[FoldResult]:
        """Folds all buckets, and replaces objects by the results."""
        changes = list(changes)
        self.taken += changes
        results = [self.run(task) for task in self.tasks(changes, now, settle_before, count)]
        self.folds += 1
        for result in results:
            self.apply(result)
        self.results += results
        return results

    def compare(
        self, settle_before: datetime | None, *, slices: int = 1, forget_days: bool = False
    ) -> tuple[list[RecordRebuildTask], dict[date, str]]:
        """Returns the tasks of a rebuild, and the days that differ from the changes. May forget visible records."""
        known = list(self.objects.values())
        records = self.of(RecordPart.HIDDEN) if forget_days else known
        planned = rebuild_tasks(self.table, records, self.taken, settle_before=settle_before)
        tasks = [replace(task, slices=slices) for task in planned]
        sums = added_sums(map(self.remake, tasks))
        return tasks, different_days(sums, known, ())

    def rebuild(self, tasks: Sequence[RecordRebuildTask], days: Iterable[date]) -> None:
        """Writes days again, and replaces their objects and all waiting changes."""
        chosen = sorted(days)
        self.folds += 1
        results = [self.remake(replace(task, fold_id=self.folds, days=tuple(chosen))) for task in tasks]
        for number, item in list(self.objects.items()):
            if item.part is RecordPart.PENDING or item.date in chosen:
                del self.objects[number]
        for item in (item for result in results for item in result.written):
            number = max(self.objects, default=0) + 1
            self.objects[number] = replace(item, object_id=number)

    def remake(self, task: RecordRebuildTask) -> RecordRebuildResult:
        result = rebuild_records(task, self.table, self.lake.stores, self.lake.lake)
        assert result.failure is None, result.failure
        assert result.unread == ()
        assert result.orphans == 0
        return result

    def run(self, task: FoldTask) -> FoldResult:
        result = fold_buckets(task, self.table, self.lake.stores, self.lake.lake)
        assert result.failure is None, result.failure
        return result

    def apply(self, result: FoldResult) -> None:
        for number in result.replaced:
            del self.objects[number]
        for number in result.settled_objects:
            self.objects[number] = replace(self.objects[number], is_settled=True)
        for item in result.written:
            if not (self.forget_hidden and item.part is RecordPart.HIDDEN):
                number = max(self.objects, default=0) + 1
                self.objects[number] = replace(item, object_id=number)

    def publish(
        self, changes: Iterable[UnfoldedChanges] = (), settle_before: datetime | None = None
    ) -> list[FoldResult]:
        """Folds until no change waits."""
        return self.fold(changes, START + timedelta(days=400), settle_before)

    def put(self, *changes: Change) -> None:
        """Commits changes and publishes them."""
        self.publish([self.commit(changes)])

    def of(self, part: RecordPart) -> list[RecordObject]:
        return [item for item in self.objects.values() if item.part is part]

    def stored(self, part: RecordPart) -> list[dict[str, Any]]:
        """The rows of a part, instants as milliseconds."""
        return [row for item in self.of(part) for row in self.rows(item)]

    def rows(self, item: RecordObject) -> list[dict[str, Any]]:
        table = self.lake.table_at(item.key)
        for place, column in enumerate(table.schema):
            if pa.types.is_timestamp(column.type):
                table = table.set_column(place, column.name, table[column.name].cast(pa.int64()))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def seen(self) -> list[dict[str, Any]]:
        """Returns the records visible to readers, by key and time."""
        return in_order(self.stored_seen())

    def stored_seen(self) -> list[dict[str, Any]]:
        """Returns the visible records in stored form."""
        return [self.as_seen(row) for row in self.stored(RecordPart.VISIBLE)]

    def as_seen(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if not name.startswith("_p_")}

    def waiting(self) -> set[tuple[int, int]]:
        return {(row[CHANGE_OBJECT], row[CHANGE_LINE]) for row in self.stored(RecordPart.PENDING)}


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], row["shard"], row["time"]))


def as_rows(records: Iterable[Record], is_there: Callable[[Record], bool] = lambda _: True) -> list[dict[str, Any]]:
    """Returns the visible rows of the model's records."""
    return in_order(
        {**dict(zip(KEY, record.key, strict=True)), "time": record.first_event, **record.values}
        for record in records
        if record.is_visible and is_there(record)
    )

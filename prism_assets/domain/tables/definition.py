"""Table definitions: the content of a file under `tables/`, with ids assigned by PostgreSQL."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from prism_assets.domain.columns.column import Column
from prism_assets.domain.columns.parts import keeps_parts_of, leaf_fields
from prism_assets.domain.columns.transitions import RenameState
from prism_assets.domain.columns.types import FILE_FORMATS, MILLISECONDS
from prism_assets.domain.days.limits import CheckLimits, Freshness
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.names import TableName
from prism_assets.domain.records.joins import JoinOptions
from prism_assets.domain.streams.stream import Stream, StreamColumn
from prism_assets.domain.tables.options import ChangeLog, Contract, IcebergOptions, MergePolicy, Rejection
from prism_assets.domain.tables.stored_documents import check_known, read_part

ACCEPT_FROM = ("object", "arrival")
PAST_DAYS, FUTURE_DAYS = 21, 3
"""Default days before and after an object's time for which rows are accepted."""
MOST_PAST_DAYS, MOST_FUTURE_DAYS = 3_650, 365
GRACE_DAYS = 30
"""How many days Glue shows a table's former name after a rename."""
_NOT_STORED = (
    "path", "freshness", "limits", "says_format", "places", "was", "grace_days", "former", "changes_days", "records",
    "replaced", "whole_structs",
)  # fmt: skip
# Fields left out of stored definitions if they have these values.
_SILENT_OF_TABLE: Mapping[str, object] = {
    "unstored": (), "computed": (), "keep": None, "reject": (), "contract": Contract(), "retired": False,
    "join": None, "change_log": None, "symlink": False, "dropped": False, "file_format": MILLISECONDS,
    "iceberg": None, "ducklake": True,
}  # fmt: skip
_OPTIONS: Mapping[str, type[Any]] = {
    "merge": MergePolicy, "iceberg": IcebergOptions, "contract": Contract, "change_log": ChangeLog,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """One table. Its file defines columns, streams, event date, merge policy and accepted event dates.

    The file of a join table defines two tables (`change_log.py`): the records (`join`) and the log of changes
    (`change_log`), fed by the streams. It is first read as one definition with both.
    """

    name: TableName
    description: str
    owner: str | None
    streams: tuple[Stream, ...]
    partition_column: str
    timezone: str
    columns: tuple[Column, ...]
    """Columns stored in objects."""
    merge: MergePolicy
    past_days: int
    """The accepted window before an object's time. See `accept_from`."""
    future_days: int
    retention_days: int | None
    accept_from: str = "arrival"
    """Whether the window counts from the object's own time or from its arrival."""
    file_format: int = MILLISECONDS
    """The format of new objects."""
    iceberg: IcebergOptions | None = None
    """None: not published as an Iceberg table."""
    ducklake: bool = True
    """Whether DuckLake clients see the table."""
    unstored: tuple[Column, ...] = ()
    """Columns read or computed only for other columns."""
    computed: tuple[str, ...] = ()
    """Names of columns with a `value`, in the order of the file."""
    keep: str | None = None
    """Rows are kept if this is true."""
    reject: tuple[Rejection, ...] = ()
    """Lines to quarantine."""
    contract: Contract = dataclasses.field(default_factory=Contract)
    retired: bool = False
    """A retired table has no streams."""
    join: JoinOptions | None = None
    """Set for the records of a join table."""
    change_log: ChangeLog | None = None
    """Set for the log of changes of a join table."""
    symlink: bool = False
    """Whether Glue shows the table a second time, with symlinks."""
    dropped: bool = False
    """A drop of the table has begun. No file says so."""
    table_id: int = 0
    version: int = 0
    was: TableName | None = dataclasses.field(default=None, compare=False)
    """The name before a rename. Neither compared nor stored, like all fields below."""
    grace_days: int = dataclasses.field(default=GRACE_DAYS, compare=False)
    """How long Glue shows the former name."""
    former: tuple[TableName, ...] = dataclasses.field(default=(), compare=False)
    """Former names that Glue shows now."""
    changes_days: int | None = dataclasses.field(default=None, compare=False)
    """For join tables: how many days changes are kept."""
    records: TableName | None = dataclasses.field(default=None, compare=False)
    """In the definition of a log of changes: its join table."""
    path: str | None = dataclasses.field(default=None, compare=False)
    says_format: bool = dataclasses.field(default=False, compare=False)
    """Whether the file names a format. Otherwise an existing table keeps its own."""
    freshness: Freshness | None = dataclasses.field(default=None, compare=False)
    limits: CheckLimits = dataclasses.field(default_factory=CheckLimits, compare=False)
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, hash=False)
    """Places of expressions in the file."""
    replaced: tuple[Column, ...] = dataclasses.field(default=(), compare=False)
    """In the definition for one stream: the table's columns replaced by the stream's."""
    whole_structs: bool = dataclasses.field(default=False, compare=False)
    """Whether structs in Glue end with their dropped fields, while a day of the table may still show them."""

    @property
    def zone(self) -> ZoneInfo:
        """The time zone whose midnights divide event dates."""
        return ZoneInfo(self.timezone)

    @property
    def metric_columns(self) -> tuple[int, ...]:
        """Ids of columns and leaves with recorded metrics: the named ones, or the sort columns.

        Recorded for all tables, so that they exist once a table becomes an Iceberg table.
        """
        named = self.iceberg.metrics if self.iceberg else ()
        names = named or dict.fromkeys((self.partition_column, *self.merge.sort_by))
        return tuple(self.leaf(name)[0] for name in names)

    @property
    def stored_order(self) -> tuple[str, ...]:
        """Names in objects of the sort columns, the event date's first. Leaves of structs have paths: `user.id`."""
        paths = dict.fromkeys((self.partition_column, *self.merge.sort_by))
        known = {column.name for column in self.columns}
        return tuple(dict.fromkeys(self.leaf(p)[1] if p.partition(".")[0] in known else p for p in paths))

    def leaf(self, path: str) -> tuple[int, str]:
        """Returns the id and the path in objects of a column, or of a leaf in a struct. Raises KeyError."""
        name, _, below = path.partition(".")
        column = self.column(name)
        if not below:
            return column.column_id, column.stored_name
        for names, parts in leaf_fields(name, column.type):
            if ".".join(names) == path:
                return parts[-1].field_id, ".".join((column.stored_name, *(part.stored_name for part in parts)))
        raise KeyError(path)

    def keeps_columns_of(self, before: TableDefinition) -> bool:
        """Whether older objects can be added: common columns have the same name and type, and no name belongs to
        another column.

        A rename or widening may have ended meanwhile without a trace in the current definition.
        """
        by_id = {column.column_id: column for column in before.columns}
        ids = {column.stored_name: column.column_id for column in before.columns}
        return all(
            (column.column_id not in by_id or _goes_on(column, by_id[column.column_id]))
            and ids.get(column.stored_name, column.column_id) == column.column_id
            for column in self.columns
        )

    @property
    def rewritten_below(self) -> int:
        """Objects of earlier versions lack the new name or type of a column in transition. 0 without one."""
        found = (item for column in self.columns for item in column.transitions)
        return max((item.version for item in found if item.is_rewriting), default=0)

    @property
    def is_rewriting(self) -> bool:
        """Whether objects of versions below `rewritten_below` are to be rewritten."""
        return self.rewritten_below > 0

    @property
    def is_copying(self) -> bool:
        """Whether merged objects are copied with wider types, unseen by readers."""
        return self.copies_since > 0

    @property
    def copies_since(self) -> int:
        """Copies of earlier versions lack one of the wider types. 0 if no copies are made."""
        found = (column.widening for column in self.columns if column.widening and column.widening.copy_type)
        return max((item.version for item in found), default=0)

    @property
    def is_flipping(self) -> bool:
        """Whether a flip is running: no batch begins, open days are closed, and copies are about to replace all
        objects.
        """
        return any(column.widening.is_flipping for column in self.columns if column.widening)

    @property
    def flip_limit(self) -> timedelta:
        """How long new objects wait at most for the flip. Zero without a flip."""
        found = (item.widening.flip_limit for item in self.columns if item.widening and item.widening.is_flipping)
        return max(found, default=timedelta())

    def with_copied_types(self) -> TableDefinition:
        """Returns the definition with the types in copies of merged objects."""
        columns = tuple(item.widened() if item.widening and item.widening.copy_type else item for item in self.columns)
        return dataclasses.replace(self, columns=columns)

    @property
    def rename_step(self) -> int:
        """The version of the last step in an unfinished rename. 0 without one."""
        return max((column.rename.since for column in self.columns if column.rename), default=0)

    @property
    def glue_columns(self) -> tuple[tuple[str, Column], ...]:
        """The columns under their names in Glue. A former name shown beside the new one comes last."""
        both = [item for item in self.columns if item.rename and item.rename.state is RenameState.BOTH_SHOWN]
        shown = [(column.glue_name, column) for column in self.columns]
        return (*shown, *((item.rename.former, item) for item in both if item.rename))

    @property
    def hides_dropped_fields(self) -> bool:
        """Whether a struct in Glue ends before dropped fields."""
        return any(column.glue_type_of(whole=True) != column.glue_type for column in self.columns)

    def column(self, name: str) -> Column:
        """Returns the column of that name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def reads_topics(self) -> bool:
        """Whether a stream reads a topic of Kafka."""
        return any(stream.topic is not None for stream in self.streams)

    def stream_of(self, bucket: str, key: str) -> Stream | None:
        """Returns the stream of a key, or None."""
        return next((one for one in self.streams if one.holds(bucket, key)), None)

    def for_object(self, bucket: str, key: str) -> TableDefinition:
        """Returns the definition for one staging object, with its stream's own columns."""
        stream = self.stream_of(bucket, key)
        return self if stream is None else self.for_stream(stream)

    def with_stream_of(self, earlier: TableDefinition, bucket: str, key: str) -> TableDefinition:
        """Returns the definition with the format an earlier definition states for an object under that key.

        Messages of one type are read with the current descriptor set, because it knows earlier and later fields. Lines
        of text are divided as the current format says, because that mends lines that did not fit the earlier one. If no
        current stream has the key, the earlier stream is used as a whole, limited to existing columns.
        """
        before, now = earlier.stream_of(bucket, key), self.stream_of(bucket, key)
        if before is None or (now is not None and before.cut == now.cut):
            return self
        if now is None:
            stream = dataclasses.replace(before, columns=tuple(self._columns_of(before, earlier)))
        else:
            stream = dataclasses.replace(now, format=before.format)
        return dataclasses.replace(self, streams=(stream, *(one for one in self.streams if one is not now)))

    def _columns_of(self, stream: Stream, earlier: TableDefinition) -> Iterator[StreamColumn]:
        """Yields an earlier stream's columns under their current names."""
        ids = {column.name: column.column_id for column in earlier.columns}
        names = {column.column_id: column.name for column in self.columns}
        unstored = {column.name for column in self.unstored}
        for column in stream.columns:
            name = names.get(ids[column.name]) if column.name in ids else column.name
            if name is not None and (column.name in ids or name in unstored):
                yield dataclasses.replace(column, name=name)

    def for_stream(self, stream: Stream) -> TableDefinition:
        """Returns the definition with one stream's own columns.

        Values computed only by the stream come first. A replaced value keeps its position.
        """
        overrides = {column.name: column for column in stream.columns}
        if not overrides:
            return self
        computed = {name: name not in overrides or overrides[name].value is not None for name in self.computed}
        first = [name for name, column in overrides.items() if column.value is not None and name not in computed]
        return dataclasses.replace(
            self,
            columns=tuple(_with_stream_source(column, overrides.get(column.name)) for column in self.columns),
            unstored=tuple(_with_stream_source(column, overrides.get(column.name)) for column in self.unstored),
            computed=(*first, *(name for name, still in computed.items() if still)),
            places={**self.places, **_places_of(stream, self.places)},
            replaced=tuple(column for column in (*self.columns, *self.unstored) if column.name in overrides),
        )

    @property
    def readings(self) -> tuple[TableDefinition, ...]:
        """The definition for each way to read a stream: the table's own, and those of streams."""
        return (self, *(self.for_stream(stream) for stream in self.streams if stream.columns))

    @property
    def sensitive_columns(self) -> tuple[Column, ...]:
        """The sensitive columns in every way the table or a stream reads them."""
        everything = (*self.columns, *self.unstored, *self.replaced)
        sensitive = tuple(column for column in everything if column.hides)
        by_name = {column.name: column for column in sensitive}
        of_streams = (
            _with_stream_source(by_name[own.name], own)
            for stream in self.streams
            for own in stream.columns
            if own.name in by_name
        )
        return (*sensitive, *of_streams)

    def today(self, now: datetime) -> date:
        """Returns the event date of `now` in the table's time zone."""
        return now.astimezone(self.zone).date()

    def day_ends(self, day: date) -> datetime:
        """Returns the end of an event date in UTC."""
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), tzinfo=self.zone)
        return midnight.astimezone(timezone.utc)

    def closes_from(self, day: date) -> datetime:
        """Returns from when an event date may be closed, in UTC: its end, or any time during a flip."""
        return datetime.min.replace(tzinfo=timezone.utc) if self.is_flipping else self.day_ends(day)

    def for_tasks(self) -> TableDefinition:
        """Returns the definition without parts unused by kernels: descriptions and readers."""
        columns = tuple(
            dataclasses.replace(
                column,
                description=None,
                evolved=False,
                widening=column.widening if column.widening and column.widening.copy_type else None,
            )
            for column in self.columns
        )
        unstored = tuple(dataclasses.replace(column, description=None) for column in self.unstored)
        return dataclasses.replace(self, columns=columns, unstored=unstored, iceberg=None, ducklake=True, symlink=False)

    def expires(self, day: date) -> datetime | None:
        """Returns when a day becomes older than `retention_days`, in UTC, or None without retention."""
        return None if self.retention_days is None else self.day_ends(day + timedelta(days=self.retention_days))

    def oldest_kept(self, now: datetime) -> date | None:
        """Returns the first day within `retention_days`, or None without retention."""
        return None if self.retention_days is None else self.today(now) - timedelta(days=self.retention_days)

    def to_json(self) -> str:
        """Returns one line of JSON with sorted keys, so equal definitions give equal text.

        Leaves out fields that exist only in the file, and fields with default values.
        """
        document = dataclasses.asdict(dataclasses.replace(self, columns=(), unstored=(), streams=(), places={}))
        for name in _NOT_STORED:
            del document[name]
        document["columns"] = [column.to_document() for column in self.columns]
        document["streams"] = [stream.to_document() for stream in self.streams]
        document["unstored"] = [column.to_document() for column in self.unstored]
        for name, nothing in _SILENT_OF_TABLE.items():
            if getattr(self, name) == nothing:
                del document[name]
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TableDefinition:
        """Reads the output of `to_json`."""
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TableDefinition:
        """Builds a definition from the decoded JSON of `to_json`."""
        name = TableName(**document["name"])
        check_known(cls, document, f"the definition of {name}")
        if document.get("file_format", MILLISECONDS) not in FILE_FORMATS:
            raise InvariantBroken(
                f"{name} has file format {document['file_format']}, unknown to this version; use the version "
                "that stored it"
            )
        options = {
            field: read_part(kind, document[field], f"the definition of {field} of {name}")
            for field, kind in _OPTIONS.items()
            if field in document
        }
        if "join" in document:
            options["join"] = JoinOptions.from_document(document["join"], str(name))
        parts = {
            "name": name,
            "streams": tuple(Stream.from_document(stream, str(name)) for stream in document["streams"]),
            "columns": tuple(Column.from_document(column) for column in document["columns"]),
            "unstored": tuple(Column.from_document(column) for column in document.get("unstored", ())),
            "computed": tuple(document.get("computed", ())),
            "reject": tuple(
                read_part(Rejection, item, f"the definition of reject of {name}") for item in document.get("reject", ())
            ),
        }
        return cls(**{**document, **parts, **options})


def _goes_on(column: Column, before: Column) -> bool:
    return column.name == before.name and keeps_parts_of(column.type, before.type)


def _with_stream_source(column: Column, own: StreamColumn | None) -> Column:
    if own is None:
        return column
    return dataclasses.replace(column, source=own.source, sources=own.sources, value=own.value)


def _places_of(stream: Stream, places: Mapping[str, str]) -> dict[str, str]:
    """Returns the places of a stream's expressions in the file, by the fields they replace."""
    begin = f"{stream.url} "
    return {field.removeprefix(begin): place for field, place in places.items() if field.startswith(begin)}


Definitions = Mapping[tuple[int, int], TableDefinition]
"""Table definitions by (table id, version)."""


def by_version(*tables: TableDefinition) -> Definitions:
    """Returns definitions by the keys used in tasks."""
    return {(table.table_id, table.version): table for table in tables}

"""Table definitions: what a file under `tables/` says, and the same with the ids that PostgreSQL gave."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from prism_assets.domain.column_transitions import (
    SHOWS_FORMER,
    ColumnRename,
    ColumnTransition,
    ColumnWidening,
    RenameState,
)
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.joins import JoinOptions
from prism_assets.domain.limits import CheckLimits, Freshness
from prism_assets.domain.names import TableName
from prism_assets.domain.types import FILE_FORMATS, MILLISECONDS, ColumnType, parse_type, type_named

ACCEPT_FROM = ("object", "arrival")
ON_FOREIGN = ("restore", "stop")
EVOLVE, REPORT, FREEZE = NEW_FIELDS = ("evolve", "report", "freeze")
EMPTY, SET_ASIDE = MISFITS = ("empty", "quarantine")
TIME_UNITS = {"seconds": 1_000, "milliseconds": 1, "microseconds": 0.001}
DEFAULT_LENGTH = 65_535
"""Also the greatest."""
PAST_DAYS, FUTURE_DAYS = 21, 3
"""How many days around the time of an object its rows are accepted, where the file of the table says nothing."""
MOST_PAST_DAYS, MOST_FUTURE_DAYS = 3_650, 365
GRACE_DAYS = 30
"""For how many days Glue shows the name that a table had before it was renamed."""
# The parameters that stored definitions name at every column, null where its type does not take them.
_ALWAYS_STORED = ("precision", "scale")
# What stored definitions leave out where it says nothing, as versions that know none of it read those, too.
_SILENT: Mapping[str, object] = {
    "description": None,
    "sources": (),
    "value": None,
    "sensitive": False,
    "evolved": False,
    "stored_as": None,
    "rename": None,
    "widening": None,
}
_OF_THE_FILE = (
    "path", "freshness", "limits", "says_format", "places", "was", "grace_days", "former", "changes_days", "records",
)  # fmt: skip
_SILENT_OF_STREAM = ("columns", "format", "group", "delete")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `column_id` is the Parquet and Iceberg field id, never reused; 0 until PostgreSQL gave one.

    Lengths are bytes of UTF-8. Offsets are `+HH:MM`. `zone_offset` stands in definitions of before and does nothing.
    One that `evolved` came by the contract of the table, and its file does not have it yet. `rename` says how far one
    is that was renamed. In definitions of before it is `stored_as` what it was called first: objects and Glue have that
    name alone. `widening` says which narrower type it was, of which objects may still have values. `was` is what the
    file says it was called; it is no part of what is compared or stored.

    Values are those of the key `source`, or of the first of `sources` that is not null, which are written as in table
    files (`domain/sources.py`), or are computed by the SQL expression `value`; `source` is then the column's name, and
    nobody reads it.
    """

    name: str
    type: ColumnType
    source: str
    length: int | None = None
    source_offset: str | None = None
    zone_offset: str | None = None
    time_unit: str | None = None
    required: bool = False
    column_id: int = 0
    description: str | None = None
    sources: tuple[str, ...] = ()
    value: str | None = None
    sensitive: bool = False
    evolved: bool = False
    stored_as: str | None = None
    rename: ColumnRename | None = None
    widening: ColumnWidening | None = None
    was: str | None = dataclasses.field(default=None, compare=False)

    @property
    def stored_name(self) -> str:
        """Its name in objects that are written under this definition."""
        return self.stored_as or self.name

    @property
    def copied_as(self) -> str | None:
        """The name of a copy that objects have beside it, for readers by name; None for most columns."""
        return self.rename.former if self.rename else None

    @property
    def transitions(self) -> tuple[ColumnTransition, ...]:
        """What it is on the way to: its name, its type, or both."""
        return tuple(item for item in (self.rename, self.widening) if item)

    @property
    def glue_name(self) -> str:
        """What readers of Glue find it by, in all objects that they are sent to."""
        return self.rename.former if self.rename and self.rename.state in SHOWS_FORMER else self.stored_name

    @property
    def precision(self) -> int | None:
        """The digits of a decimal; None for any other type."""
        return self.type.parameters.get("precision")

    @property
    def scale(self) -> int | None:
        """The digits of a decimal behind the point; None for any other type."""
        return self.type.parameters.get("scale")

    @property
    def glue_type(self) -> str:
        """The Hive type name that readers of the catalog see (formats, column types)."""
        return self.type.glue_type(self.length)

    def to_document(self) -> dict[str, Any]:
        """The column as definitions store it: the parameters of its type stand next to the type's keyword.

        What says nothing is left out, as versions that know none of it read the definition, too.
        """
        told = {name: value for name, value in vars(self).items() if name not in _SILENT or value != _SILENT[name]}
        del told["was"]
        if self.rename:
            told["rename"] = {**vars(self.rename), "state": self.rename.state.value}
        if self.widening:
            told["widening"] = {**vars(self.widening), "former": self.widening.former.name}
        return {**told, **dict.fromkeys(_ALWAYS_STORED), **self.type.parameters, "type": self.type.keyword}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Column:
        """Reads what `to_document` wrote. InvariantBroken if this version does not know the type or a field."""
        try:
            kind = type_named(document["type"], document)
        except ValueError as error:
            raise InvariantBroken(
                f"the definition of column {document['name']} cannot be read: {error}; use the version that stored it"
            ) from error
        of_the_type = {"type", *_ALWAYS_STORED, *kind.parameters}
        values = {name: value for name, value in document.items() if name not in of_the_type}
        _check_known(cls, values, f"column {document['name']}")
        if "sources" in values:
            values["sources"] = tuple(values["sources"])
        if "rename" in values:
            _check_known(ColumnRename, values["rename"], f"column {document['name']}")
            values["rename"] = ColumnRename(**{**values["rename"], "state": RenameState(values["rename"]["state"])})
        if "widening" in values:
            _check_known(ColumnWidening, values["widening"], f"column {document['name']}")
            values["widening"] = ColumnWidening(
                **{**values["widening"], "former": parse_type(values["widening"]["former"])}
            )
        return cls(type=kind, **values)


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Lines for which the SQL expression `when` is true are set aside for this reason."""

    when: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ProtobufFormat:
    """Objects hold protobuf messages of one type, each behind its length as a varint.

    `descriptor_set` is a FileDescriptorSet with the type and all that it imports, in base64: definitions carry it, so
    that objects are read as they were when they were first claimed, wherever the file has gone.
    """

    message: str
    descriptor_set: str

    @property
    def fingerprint(self) -> str:
        """The first 12 digits of the descriptor set's SHA-256, which people can compare."""
        return hashlib.sha256(base64.b64decode(self.descriptor_set)).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class StreamColumn:
    """Where the values of a column come from in the objects of one stream; the fields are those of Column."""

    name: str
    source: str
    sources: tuple[str, ...] = ()
    value: str | None = None

    def to_document(self) -> dict[str, Any]:
        """As definitions store it."""
        return {name: value for name, value in vars(self).items() if name not in _SILENT or value != _SILENT[name]}


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Where objects of a table arrive: everything under `s3://bucket/key_prefix`.

    They hold lines of JSON if they have no other `format`. Objects of a stream that is not `enabled` wait, those of one
    with `discard` are counted done and never read. `columns` are read otherwise than in the table's other streams.
    Those of a join table write one `group`, and lines for which the SQL expression `delete` is true delete.
    """

    name: str
    bucket: str
    key_prefix: str
    enabled: bool = True
    discard: bool = False
    format: ProtobufFormat | None = None
    columns: tuple[StreamColumn, ...] = ()
    group: str | None = None
    delete: str | None = None

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.key_prefix}"

    def as_lines(self) -> Stream:
        """Where it lies alone, with lines of JSON that are read as in all other streams."""
        return Stream(name=self.name, bucket=self.bucket, key_prefix=self.key_prefix)

    def holds(self, bucket: str, key: str) -> bool:
        """Whether an object lies under it."""
        return bucket == self.bucket and key.startswith(self.key_prefix)

    def to_document(self) -> dict[str, Any]:
        """As definitions store it; what says nothing is left out, as versions that know none of it read it, too."""
        document = {
            **vars(self),
            "columns": [column.to_document() for column in self.columns],
            "format": self.format and vars(self.format),
        }
        return {name: value for name, value in document.items() if name not in _SILENT_OF_STREAM or value}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> Stream:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
        _check_known(cls, document, f"a stream of {table}")
        columns = []
        for column in document.get("columns", ()):
            _check_known(StreamColumn, column, f"a stream of {table}")
            columns.append(StreamColumn(**{**column, "sources": tuple(column.get("sources", ()))}))
        stored = document.get("format")
        form = ProtobufFormat(**stored) if stored else None
        return cls(**{**document, "columns": tuple(columns), "format": form})


@dataclass(frozen=True, kw_only=True)
class MergePolicy:
    """When and how big merged objects are cut. Sizes are bytes of Parquet, the interval is seconds."""

    interval: int = 3600
    target_bytes: int = 128 * 1024 * 1024
    max_objects: int = 2000
    sort_by: tuple[str, ...] = ()

    @property
    def floor_bytes(self) -> int:
        """The least size of a merged object that is not the last of its partition."""
        return self.target_bytes // 2


@dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """How a table is published as an Iceberg table, too.

    There is a commit at most every `commit_seconds`. Snapshots of the last `keep_hours` stay, and tags of the last
    `daily_tags` days. `metrics` are the columns whose metrics are recorded, or none for those that rows are sorted by.
    `on_foreign` says what follows on commits of others: `restore` takes them back, `stop` waits for a person.
    """

    commit_seconds: int = 60
    keep_hours: int = 4
    daily_tags: int = 0
    metrics: tuple[str, ...] = ()
    on_foreign: str = "restore"

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> IcebergOptions:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
        _check_known(cls, document, f"iceberg of {table}")
        return cls(**{**document, "metrics": tuple(document["metrics"])})


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What follows where lines have fields that no column reads, and values that do not fit their column.

    `new_fields` become columns (`evolve`), are counted (`report`), or set their lines aside (`freeze`). `misfits` are
    null or cut (`empty`), or set their lines aside (`quarantine`).
    """

    new_fields: str = REPORT
    misfits: str = EMPTY

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> Contract:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
        _check_known(cls, document, f"contract of {table}")
        return cls(**document)


@dataclass(frozen=True, kw_only=True)
class ChangeLog:
    """What a table says that logs the changes of a join table.

    A change is too late if its event time and `lateness_seconds` lie before the settle clock; none is for None.
    """

    lateness_seconds: int | None

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> ChangeLog:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
        _check_known(cls, document, f"change_log of {table}")
        return cls(**document)


_SILENT_OF_TABLE: Mapping[str, object] = {
    "unstored": (), "computed": (), "keep": None, "reject": (), "contract": Contract(), "retired": False,
    "join": None, "change_log": None, "symlink": False, "dropped": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """One table: columns, streams, event date, merge policy and accepted window of event dates.

    The window counts from the object's own time or from its arrival, as it always did in definitions that say nothing.
    `file_format` is that of the objects that are written from now on. Without `iceberg` the table is not published as
    an Iceberg table; without `ducklake` clients of DuckLake do not see it; with `symlink` it is shown in Glue a second
    time, by symlinks. `columns` are those that objects hold, `unstored` those that are read or computed for others, and
    `computed` names the columns with a `value` in the order of the file. Rows stay for which `keep` is true, without
    those of `reject`. `path`, `freshness`, `limits`, `places` (of expressions in the file) and `says_format` (whether
    the file names a format; otherwise a table that is in force keeps its own) belong to the file alone: they change
    nothing about rows, so they are no part of what is compared or stored. Nor are `was` and `grace_days`, the
    name that a table had before and for how long that is shown, and `former`, the names of before that Glue shows now.
    A `retired` table has no streams. One that is `dropped` is about to go, which no file says.

    A table with a `join` has the records of a join table, and one with a `change_log` logs its changes, which is what
    its streams feed. The file of a join table defines both (`change_log.py`), and is read as one definition: with the
    join, the streams, and for how many days changes are kept, `changes_days`. In the definition of the log `records`
    names the join table. Neither of these two is stored.
    """

    name: TableName
    description: str
    owner: str | None
    streams: tuple[Stream, ...]
    partition_column: str
    timezone: str
    columns: tuple[Column, ...]
    merge: MergePolicy
    past_days: int
    future_days: int
    retention_days: int | None
    accept_from: str = "arrival"
    file_format: int = MILLISECONDS
    iceberg: IcebergOptions | None = None
    ducklake: bool = True
    unstored: tuple[Column, ...] = ()
    computed: tuple[str, ...] = ()
    keep: str | None = None
    reject: tuple[Rejection, ...] = ()
    contract: Contract = Contract()
    retired: bool = False
    join: JoinOptions | None = None
    change_log: ChangeLog | None = None
    symlink: bool = False
    dropped: bool = False
    table_id: int = 0
    version: int = 0
    was: TableName | None = dataclasses.field(default=None, compare=False)
    grace_days: int = dataclasses.field(default=GRACE_DAYS, compare=False)
    former: tuple[TableName, ...] = dataclasses.field(default=(), compare=False)
    changes_days: int | None = dataclasses.field(default=None, compare=False)
    records: TableName | None = dataclasses.field(default=None, compare=False)
    path: str | None = dataclasses.field(default=None, compare=False)
    says_format: bool = dataclasses.field(default=False, compare=False)
    freshness: Freshness | None = dataclasses.field(default=None, compare=False)
    limits: CheckLimits = dataclasses.field(default_factory=CheckLimits, compare=False)
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, hash=False)

    @property
    def zone(self) -> ZoneInfo:
        """The zone whose midnights divide the event dates."""
        return ZoneInfo(self.timezone)

    @property
    def metric_columns(self) -> tuple[int, ...]:
        """The ids of the columns whose metrics are recorded of every object: those named, or that rows are sorted by.

        Tables that are not Iceberg have them, too, so that they are there when one becomes it.
        """
        named = self.iceberg.metrics if self.iceberg else ()
        names = named or dict.fromkeys((self.partition_column, *self.merge.sort_by))
        return tuple(self.column(name).column_id for name in names)

    @property
    def stored_order(self) -> tuple[str, ...]:
        """The names in objects of the columns that rows are sorted by, that of the event date first."""
        names = {column.name: column.stored_name for column in self.columns}
        wanted = (self.partition_column, *self.merge.sort_by)
        return tuple(dict.fromkeys(names.get(name, name) for name in wanted))

    def keeps_columns_of(self, before: TableDefinition) -> bool:
        """Whether objects of before can be added: each column that both have is called and typed as it was, and none
        has the name of another.

        What was renamed or widened may be at its end by now, and no transition tells of it any more.
        """
        known = {column.column_id: (column.name, column.type) for column in before.columns}
        ids = {column.stored_name: column.column_id for column in before.columns}
        return all(
            known.get(column.column_id, (column.name, column.type)) == (column.name, column.type)
            and ids.get(column.stored_name, column.column_id) == column.column_id
            for column in self.columns
        )

    @property
    def rewritten_in(self) -> int:
        """Objects of versions before lack the name or the type of columns that are on the way to it; 0 if none is."""
        return max((item.version for column in self.columns for item in column.transitions), default=0)

    @property
    def is_rewriting(self) -> bool:
        """Whether objects of before `rewritten_in` are to be rewritten."""
        return any(item.is_rewriting for column in self.columns for item in column.transitions)

    @property
    def rename_step(self) -> int:
        """The version that came with the last step of a rename that has not ended; 0 if there is none."""
        return max((column.rename.since for column in self.columns if column.rename), default=0)

    @property
    def glue_columns(self) -> tuple[tuple[str, Column], ...]:
        """The columns under the names that Glue shows, a former name that it shows beside a new one last."""
        both = [item for item in self.columns if item.rename and item.rename.state is RenameState.BOTH_SHOWN]
        shown = [(column.glue_name, column) for column in self.columns]
        return (*shown, *((item.rename.former, item) for item in both if item.rename))

    def column(self, name: str) -> Column:
        """Returns the column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def stream_of(self, bucket: str, key: str) -> Stream | None:
        """The stream whose objects a key is one of; None if none of this definition's."""
        return next((one for one in self.streams if one.holds(bucket, key)), None)

    def for_object(self, bucket: str, key: str) -> TableDefinition:
        """The definition as it holds for one staging object: with what its stream reads otherwise."""
        stream = self.stream_of(bucket, key)
        return self if stream is None else self.for_stream(stream)

    def with_format_of(self, other: TableDefinition, bucket: str, key: str) -> TableDefinition:
        """The same, but that an object under that key holds what another definition says it holds."""
        before, now = other.stream_of(bucket, key), self.stream_of(bucket, key)
        if before is None or (now or before.as_lines()).format == before.format:
            return self
        stream = dataclasses.replace(now or before.as_lines(), format=before.format)
        return dataclasses.replace(self, streams=(stream, *(one for one in self.streams if one is not now)))

    def for_stream(self, stream: Stream) -> TableDefinition:
        """The definition with what one stream reads or computes otherwise.

        What only the stream computes comes before what the table does; a value in the place of another stays there.
        """
        own = {column.name: column for column in stream.columns}
        if not own:
            return self
        computed = {name: name not in own or own[name].value is not None for name in self.computed}
        first = [name for name, column in own.items() if column.value is not None and name not in computed]
        return dataclasses.replace(
            self,
            columns=tuple(_of_stream(column, own.get(column.name)) for column in self.columns),
            unstored=tuple(_of_stream(column, own.get(column.name)) for column in self.unstored),
            computed=(*first, *(name for name, still in computed.items() if still)),
            places={**self.places, **_places_of(stream, self.places)},
        )

    @property
    def readings(self) -> tuple[TableDefinition, ...]:
        """The definition as it holds for each way in which streams are read: its own, and those of streams."""
        return (self, *(self.for_stream(stream) for stream in self.streams if stream.columns))

    def today(self, now: datetime) -> date:
        """The event date that `now` falls on in the table's zone."""
        return now.astimezone(self.zone).date()

    def day_ends(self, day: date) -> datetime:
        """The instant at which the event date `day` is over, in UTC."""
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), tzinfo=self.zone)
        return midnight.astimezone(timezone.utc)

    def for_tasks(self) -> TableDefinition:
        """The same without what no kernel asks for, descriptions and who reads: the versions of tasks may be older."""
        columns = tuple(
            dataclasses.replace(column, description=None, evolved=False, widening=None) for column in self.columns
        )
        unstored = tuple(dataclasses.replace(column, description=None) for column in self.unstored)
        return dataclasses.replace(self, columns=columns, unstored=unstored, iceberg=None, ducklake=True, symlink=False)

    def expires(self, day: date) -> datetime | None:
        """The instant at which a day is older than `retention_days`, in UTC; None where all days are kept."""
        return None if self.retention_days is None else self.day_ends(day + timedelta(days=self.retention_days))

    def oldest_kept(self, now: datetime) -> date | None:
        """The first day that is not older than `retention_days`; None where all days are kept."""
        return None if self.retention_days is None else self.today(now) - timedelta(days=self.retention_days)

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back; keys sorted, so equal definitions give equal text.

        The first file format is not named, nor is Iceberg where it is not wanted, nor DuckLake where it is, nor that
        streams hold JSON, as versions that know of none of them read it, too.
        """
        document = dataclasses.asdict(dataclasses.replace(self, columns=(), unstored=(), streams=(), places={}))
        for name in _OF_THE_FILE:
            del document[name]
        for name, nothing in _SILENT_OF_TABLE.items():
            if getattr(self, name) == nothing:
                del document[name]
        document["columns"] = [column.to_document() for column in self.columns]
        document["streams"] = [stream.to_document() for stream in self.streams]
        if self.unstored:
            document["unstored"] = [column.to_document() for column in self.unstored]
        if self.file_format == MILLISECONDS:
            del document["file_format"]
        if self.iceberg is None:
            del document["iceberg"]
        if self.ducklake:
            del document["ducklake"]
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TableDefinition:
        """Reads what `to_json` wrote."""
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TableDefinition:
        """Builds a definition from the decoded JSON of `to_json`."""
        document = dict(document)
        document["name"] = TableName(**document["name"])
        streams = document["streams"]
        document["streams"] = tuple(Stream.from_document(stream, str(document["name"])) for stream in streams)
        document["columns"] = tuple(Column.from_document(column) for column in document["columns"])
        document["unstored"] = tuple(Column.from_document(column) for column in document.get("unstored", ()))
        document["computed"] = tuple(document.get("computed", ()))
        document["reject"] = tuple(Rejection(**rejection) for rejection in document.get("reject", ()))
        merge = dict(document["merge"])
        merge["sort_by"] = tuple(merge["sort_by"])
        document["merge"] = MergePolicy(**merge)
        _check_known(cls, document, str(document["name"]))
        if "iceberg" in document:
            document["iceberg"] = IcebergOptions.from_document(document["iceberg"], str(document["name"]))
        if "contract" in document:
            document["contract"] = Contract.from_document(document["contract"], str(document["name"]))
        if "join" in document:
            document["join"] = JoinOptions.from_document(document["join"], str(document["name"]))
        if "change_log" in document:
            document["change_log"] = ChangeLog.from_document(document["change_log"], str(document["name"]))
        if document.get("file_format", MILLISECONDS) not in FILE_FORMATS:
            raise InvariantBroken(
                f"{document['name']} has file format {document['file_format']}, which this version does not know; "
                "use the version that stored it"
            )
        return cls(**document)


def _of_stream(column: Column, own: StreamColumn | None) -> Column:
    if own is None:
        return column
    return dataclasses.replace(column, source=own.source, sources=own.sources, value=own.value)


def _places_of(stream: Stream, places: Mapping[str, str]) -> dict[str, str]:
    """Where the expressions of a stream stand in the file, by the fields that they replace."""
    begin = f"{stream.url} "
    return {field.removeprefix(begin): place for field, place in places.items() if field.startswith(begin)}


Definitions = Mapping[tuple[int, int], TableDefinition]
"""Table definitions by (table id, version)."""


def by_version(*tables: TableDefinition) -> Definitions:
    """Some definitions as tasks name them."""
    return {(table.table_id, table.version): table for table in tables}


def _check_known(kind: type, document: Mapping[str, Any], what: str) -> None:
    """InvariantBroken if a later version stored fields that this one would leave out."""
    if unknown := document.keys() - _FIELDS[kind]:
        raise InvariantBroken(
            f"the definition of {what} says {', '.join(sorted(unknown))}, which this version does not know; use the "
            "version that stored it"
        )


# Looked up for every column of every table, and each tick of a sensor reads them all.
_FIELDS: Mapping[type, frozenset[str]] = {
    kind: frozenset(field.name for field in dataclasses.fields(kind))
    for kind in (
        ChangeLog,
        Column,
        ColumnRename,
        ColumnWidening,
        Contract,
        IcebergOptions,
        Stream,
        StreamColumn,
        TableDefinition,
    )
}

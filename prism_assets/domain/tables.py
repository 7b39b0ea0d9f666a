"""Table definitions: what a file under `tables/` says, and the same with the ids that PostgreSQL gave."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from prism_assets.domain.column_transitions import RenameState
from prism_assets.domain.columns import Column
from prism_assets.domain.documents import check_known, read_part
from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.joins import JoinOptions
from prism_assets.domain.limits import CheckLimits, Freshness
from prism_assets.domain.names import TableName
from prism_assets.domain.streams import Stream, StreamColumn
from prism_assets.domain.table_options import ChangeLog, Contract, IcebergOptions, MergePolicy, Rejection
from prism_assets.domain.types import FILE_FORMATS, MILLISECONDS

ACCEPT_FROM = ("object", "arrival")
PAST_DAYS, FUTURE_DAYS = 21, 3
"""How many days around the time of an object its rows are accepted, where the file of the table says nothing."""
MOST_PAST_DAYS, MOST_FUTURE_DAYS = 3_650, 365
GRACE_DAYS = 30
"""For how many days Glue shows the name that a table had before it was renamed."""
_NOT_STORED = (
    "path", "freshness", "limits", "says_format", "places", "was", "grace_days", "former", "changes_days", "records",
    "replaced",
)  # fmt: skip
# Left out of stored definitions where it is so, as versions that know none of it read those, too.
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
    `replaced` are the columns as the table reads them in whose place the definition of one stream has its own.
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
    contract: Contract = dataclasses.field(default_factory=Contract)
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
    replaced: tuple[Column, ...] = dataclasses.field(default=(), compare=False)

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
        """Whether older objects can be added: each column that both have is called and typed as it was, and none
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
    def rewritten_below(self) -> int:
        """Objects of versions before lack the name or the type of columns that are on the way to it; 0 if none is."""
        found = (item for column in self.columns for item in column.transitions)
        return max((item.version for item in found if item.is_rewriting), default=0)

    @property
    def is_rewriting(self) -> bool:
        """Whether objects of definitions below `rewritten_below` are to be rewritten."""
        return self.rewritten_below > 0

    @property
    def is_copying(self) -> bool:
        """Whether merged objects are copied with wider types of columns, which nobody is sent to yet."""
        return self.copies_since > 0

    @property
    def copies_since(self) -> int:
        """Copies that were made under versions before lack one of the wider types; 0 if none are made."""
        found = (column.widening for column in self.columns if column.widening and column.widening.copy_type)
        return max((item.version for item in found), default=0)

    @property
    def is_flipping(self) -> bool:
        """Whether no batch begins with an object, and open days are closed, as copies are to take the place of all."""
        return any(column.widening.is_flipping for column in self.columns if column.widening)

    @property
    def flip_limit(self) -> timedelta:
        """How long new objects wait for the flip at most; nothing where the table does not flip."""
        found = (item.widening.flip_limit for item in self.columns if item.widening and item.widening.is_flipping)
        return max(found, default=timedelta())

    def with_copied_types(self) -> TableDefinition:
        """The same with the types that copies of merged objects have."""
        columns = tuple(item.widened() if item.widening and item.widening.copy_type else item for item in self.columns)
        return dataclasses.replace(self, columns=columns)

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

    def with_stream_of(self, earlier: TableDefinition, bucket: str, key: str) -> TableDefinition:
        """The same, but that an object under that key holds what an earlier definition says it holds.

        Messages of one type are read by the descriptor set of now, which knows the fields of before, and later ones.
        Where no stream has the key any more, all is read as the stream of then says, in columns that are still there.
        """
        before, now = earlier.stream_of(bucket, key), self.stream_of(bucket, key)
        if before is None or (now is not None and before.message == now.message):
            return self
        if now is None:
            stream = dataclasses.replace(before, columns=tuple(self._columns_of(before, earlier)))
        else:
            stream = dataclasses.replace(now, format=before.format)
        return dataclasses.replace(self, streams=(stream, *(one for one in self.streams if one is not now)))

    def _columns_of(self, stream: Stream, earlier: TableDefinition) -> Iterator[StreamColumn]:
        """What a stream of an earlier definition says of columns, under the names that they have now."""
        ids = {column.name: column.column_id for column in earlier.columns}
        names = {column.column_id: column.name for column in self.columns}
        unstored = {column.name for column in self.unstored}
        for column in stream.columns:
            name = names.get(ids[column.name]) if column.name in ids else column.name
            if name is not None and (column.name in ids or name in unstored):
                yield dataclasses.replace(column, name=name)

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
            replaced=tuple(column for column in (*self.columns, *self.unstored) if column.name in own),
        )

    @property
    def readings(self) -> tuple[TableDefinition, ...]:
        """The definition as it holds for each way in which streams are read: its own, and those of streams."""
        return (self, *(self.for_stream(stream) for stream in self.streams if stream.columns))

    @property
    def sensitive_columns(self) -> tuple[Column, ...]:
        """The sensitive columns in every way in which the table or a stream of it reads or computes them."""
        everything = (*self.columns, *self.unstored, *self.replaced)
        sensitive = tuple(column for column in everything if column.sensitive)
        by_name = {column.name: column for column in sensitive}
        of_streams = (
            _of_stream(by_name[own.name], own)
            for stream in self.streams
            for own in stream.columns
            if own.name in by_name
        )
        return (*sensitive, *of_streams)

    def today(self, now: datetime) -> date:
        """The event date that `now` falls on in the table's zone."""
        return now.astimezone(self.zone).date()

    def day_ends(self, day: date) -> datetime:
        """The instant at which the event date `day` is over, in UTC."""
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), tzinfo=self.zone)
        return midnight.astimezone(timezone.utc)

    def closes_from(self, day: date) -> datetime:
        """The instant from which the event date `day` may be closed, in UTC: its end; any, where the table flips."""
        return datetime.min.replace(tzinfo=timezone.utc) if self.is_flipping else self.day_ends(day)

    def for_tasks(self) -> TableDefinition:
        """The same without what no kernel asks for, descriptions and who reads: the versions of tasks may be older."""
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
        """The instant at which a day is older than `retention_days`, in UTC; None where all days are kept."""
        return None if self.retention_days is None else self.day_ends(day + timedelta(days=self.retention_days))

    def oldest_kept(self, now: datetime) -> date | None:
        """The first day that is not older than `retention_days`; None where all days are kept."""
        return None if self.retention_days is None else self.today(now) - timedelta(days=self.retention_days)

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back; keys sorted, so equal definitions give equal text.

        It says nothing of what only the file says, such as limits of checks, nor of what came later and is left as it
        was before, such as the first file format: versions that know of none of that read it, too.
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
        """Reads what `to_json` wrote."""
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TableDefinition:
        """Builds a definition from the decoded JSON of `to_json`."""
        name = TableName(**document["name"])
        check_known(cls, document, f"the definition of {name}")
        if document.get("file_format", MILLISECONDS) not in FILE_FORMATS:
            raise InvariantBroken(
                f"{name} has file format {document['file_format']}, which this version does not know; use the version "
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

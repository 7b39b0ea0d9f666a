"""Makes conversion tasks of staging objects, each with its definition and the definition that reads its stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from sqlalchemy import Connection

from prism_assets.domain.tables.definition import Definitions, TableDefinition
from prism_assets.domain.work.convert import ConvertTask, OtherDefinition
from prism_assets.metadata.intake.claims import ClaimedObject
from prism_assets.metadata.tables import tables


@dataclass(frozen=True)
class SourceTasks:
    """Makes tasks of staging objects, from all definitions involved.

    The definition of an object's first conversion decides on its content. The definition of the task decides how to
    read the object. If this definition does not name the stream, the last earlier one with the stream decides.
    """

    definitions: Definitions
    _naming: Mapping[tuple[int, int, int], int]
    _documents: dict[tuple[int, ...], str] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        connection: Connection,
        items: Collection[ClaimedObject],
        versions: Mapping[int, Collection[int]] | None = None,
    ) -> SourceTasks:
        """Loads for tasks under each object's own definition, and under `versions` by staging object id. Takes no
        locks.
        """
        others = versions or {}
        under = [
            (item, version)
            for item in items
            for version in {item.definition_version, item.read_version, *others.get(item.staging_object_id, ())}
            if version is not None  # no batch has decided yet for a restarted object
        ]
        known = tables.load_versions(connection, {(item.table_id, version) for item, version in under})
        lacking = {
            (item.table_id, item.stream_id, version)
            for item, version in under
            if known[item.table_id, version].stream_of(item.bucket, item.key) is None
        }
        naming = tables.load_naming_versions(connection, lacking) if lacking else {}
        named = tables.load_versions(connection, {(table, number) for (table, _, _), number in naming.items()})
        return cls({**known, **named}, naming)

    def table(self, item: ClaimedObject) -> TableDefinition:
        """Returns the definition a staging object is converted under."""
        return self.definitions[item.table_id, item.definition_version]

    def task(self, item: ClaimedObject, delayed_dates: frozenset[date], version: int | None = None) -> ConvertTask:
        """Returns a staging object as a task, with the rows of `delayed_dates` in the delayed tier.

        The task has the object's own definition, or another `version`.
        """
        version = item.definition_version if version is None else version
        return ConvertTask(
            staging_object_id=item.staging_object_id,
            bucket=item.bucket,
            key=item.key,
            etag=item.etag,
            content_length=item.content_length,
            received=item.first_receive_time,
            sent=item.send_time,
            stream_name=self._stream_name(item, version),
            delayed_dates=delayed_dates,
            table_id=item.table_id,
            definition_version=version,
            generation=item.generation,
            retained_from=item.retained_from,
            watermark=item.watermark,
            read_definition=self._read_definition(item, version),
        )

    def other(self, item: ClaimedObject, version: int) -> OtherDefinition:
        """Returns another definition for the task of a staging object, of the `versions` loaded for it."""
        return OtherDefinition(
            version=version,
            definition=self._written((item.table_id, version), lambda: self.definitions[item.table_id, version]),
            stream_name=self._stream_name(item, version),
            read_definition=self._read_definition(item, version),
        )

    def divides_alike(self, item: ClaimedObject, one: int, other: int) -> bool:
        """Whether two definitions, of the `versions` loaded for an object, give it the same lines of its prefix."""
        return self._share(item, one) == self._share(item, other)

    def _share(self, item: ClaimedObject, version: int) -> object:
        first, last = self._names(item, item.read_version or version), self._names(item, version)
        stream = self._read_by(item, first, last).stream_of(item.bucket, item.key)
        return stream and stream.division

    def _names(self, item: ClaimedObject, version: int) -> int:
        """Returns the version for reading the object: `version`, or the last earlier one with the object's stream."""
        return self._naming.get((item.table_id, item.stream_id, version), version)

    def _stream_name(self, item: ClaimedObject, version: int) -> str:
        stream = self.definitions[item.table_id, self._names(item, version)].stream_of(item.bucket, item.key)
        return item.stream_name if stream is None else stream.name

    def _read_definition(self, item: ClaimedObject, version: int) -> str | None:
        first, last = self._names(item, item.read_version or version), self._names(item, version)
        if first == last == version:
            return None
        place = item.table_id, item.stream_id, first, last
        return self._written(place, lambda: self._reading(item, first, last))

    def _reading(self, item: ClaimedObject, first: int, last: int) -> TableDefinition:
        """Returns the definition that reads an object, with one stream."""
        read = self._read_by(item, first, last)
        stream = read.stream_of(item.bucket, item.key)
        return replace(read, streams=() if stream is None else (stream,))

    def _read_by(self, item: ClaimedObject, first: int, last: int) -> TableDefinition:
        """Returns the definition for an object: content by the first of two versions, reading by the last."""
        read = self.definitions[item.table_id, last]
        return read.with_stream_of(self.definitions[item.table_id, first], item.bucket, item.key)

    def _written(self, place: tuple[int, ...], make: Callable[[], TableDefinition]) -> str:
        """Returns the definition as JSON, made once for all objects with the same definition."""
        if place not in self._documents:
            self._documents[place] = make().for_tasks().to_json()
        return self._documents[place]

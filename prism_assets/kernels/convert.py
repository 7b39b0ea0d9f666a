"""Converts a staging object to Parquet: read, type, judge, divide by event date, sort, write; set bad lines aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timezone
from functools import partial

import pyarrow as pa

from prism_assets.domain.errors import ObjectChanged, PrismError
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.tables.accepted import accepted_days
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work.convert import ConvertResult, ConvertTask, SourceVersion
from prism_assets.failpoints import failpoint
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.json.block_reader import Way
from prism_assets.kernels.parquet.accepted_rows import AcceptedRows, Limits
from prism_assets.kernels.parquet.small_objects import SmallObjects
from prism_assets.kernels.reading import ObjectReading, facts_of
from prism_assets.kernels.scope import Scope
from prism_assets.kernels.typed import Layout
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

LIMITS = Limits()


def convert_object(
    task: ConvertTask,
    table: TableDefinition,
    stores: Stores,
    lake: Lake,
    *,
    way: Way = Way.COMPILED,
    limits: Limits = LIMITS,
) -> ConvertResult:
    """Converts one staging object into small objects of the lake.

    Nothing is raised for a bad object: its lines are set aside, or the result has the failure. The same object gives
    the same bytes under the same keys for any memory `limits`. Tests compare the ways of reading by `way`.
    """
    conversion = Conversion(task, table, stores, lake, way, limits)
    try:
        with closing(conversion):
            return conversion.run()
    except ObjectChanged:
        return _changed(task, stores)
    except Exception as error:
        doing = f"s3://{task.bucket}/{task.key} was converted"
        return task.failed(failure_of(error, doing, at_source=conversion.is_reading))


def _changed(task: ConvertTask, stores: Stores) -> ConvertResult:
    """Returns the result for an object that was overwritten since its registration.

    Stream then registers the new version.
    """
    try:
        found = stores.head(task.bucket, task.key)
    except PrismError as error:
        failure = failure_of(error, f"s3://{task.bucket}/{task.key} was looked at", at_source=True)
        return task.failed(failure)
    version = SourceVersion(etag=found.etag, content_length=found.content_length, last_modified=found.last_modified)
    return ConvertResult(staging_object_id=task.staging_object_id, changed=version)


def read_as(task: ConvertTask, table: TableDefinition) -> TableDefinition:
    """Returns the definition for one staging object, with the columns of its stream, or of the earlier stream of its
    key.
    """
    if task.read_definition is not None:
        table = table.with_stream_of(TableDefinition.from_json(task.read_definition), task.bucket, task.key)
    return table.for_object(task.bucket, task.key)


class Conversion:
    """The conversion of one staging object. A `scope` leaves out some of its lines."""

    def __init__(
        self,
        task: ConvertTask,
        table: TableDefinition,
        stores: Stores,
        lake: Lake,
        way: Way = Way.COMPILED,
        limits: Limits = LIMITS,
        scope: Scope | None = None,
    ) -> None:
        self._task = task
        read = read_as(task, table)
        self._layout = Layout.of(read, facts_of(task), read.stream_of(task.bucket, task.key))
        self._stores = stores
        self._lake = lake
        self._reading = ObjectReading(
            task,
            self._layout,
            accepted_days(table, task),
            partial(stores.get_chunks, task.bucket, task.key, etag=task.etag, length=task.content_length),
            partial(AcceptedRows, self._layout, limits),
            limits=limits,
            way=way,
            scope=scope,
        )
        self.is_reading = True
        """Whether the staging object is still being read, and nothing written yet."""

    def close(self) -> None:
        """Releases memory, temporary files and DuckDB."""
        self._reading.close()

    def run(self) -> ConvertResult:
        """Reads everything, then writes: nothing is visible before the whole object is known to be sound."""
        reading = self._reading
        reading.read_all()
        self.is_reading = False
        objects = self._small_objects().write(reading.rows)
        return ConvertResult(
            staging_object_id=self._task.staging_object_id,
            lines_in=reading.lines_in,
            rows_out=sum(written.row_count for written in objects),
            lines_filtered=reading.filtered,
            lines_erased=reading.erased,
            lines_elsewhere=reading.elsewhere,
            erasure_id=self._task.erasure_id,
            objects=objects,
            quarantined=reading.quarantined(),
            quarantine_key=self._put_quarantine(),
            value_errors=reading.value_errors(),
            undefined=reading.undefined(),
            compiled_lines=reading.compiled_lines,
        )

    def read(self) -> None:
        """Reads everything for the scope, and writes nothing."""
        self._reading.read_all()

    def write_empty(self, day: int) -> SmallObject:
        """Writes an object without rows for a day; call it after `run`."""
        return self._small_objects().write_empty(self._reading.rows, day)

    def encode(self) -> Iterator[tuple[SmallObject, pa.Buffer]]:
        """Yields the small objects of the staging object with their bytes, and writes nothing."""
        self._reading.read_all()
        yield from self._small_objects().encode(self._reading.rows)

    def encode_empty(self, day: int) -> tuple[SmallObject, pa.Buffer]:
        """An object without rows for a day, with its bytes, not written; call it after `encode`."""
        return self._small_objects().encode_empty(self._reading.rows, day)

    def _small_objects(self) -> SmallObjects:
        return SmallObjects(self._layout, self._task, self._stores, self._lake)

    def _put_quarantine(self) -> str | None:
        quarantine = self._reading.quarantine
        if not quarantine.counts.total():
            return None
        arrival = self._task.received.astimezone(timezone.utc)
        keys = self._lake.keys(self._layout.table)
        task = self._task
        key = keys.quarantine(arrival, task.staging_object_id, task.generation, task.rewrite_id)
        self._stores.put(self._lake.bucket, key, quarantine.finish())
        failpoint("stream.after_put_quarantine")
        return key

"""Checks small objects, and converts missing and damaged ones again.

The order of the steps makes a repair safe: read the object under the key; convert the staging object in memory; compare
its rows with the recorded ones; only then write. A repair neither adds a row nor takes one away.

Most objects are written under a new key, which readers get with the next manifest. A late task writes garbage there.

Objects in the live prefix of an open day keep their keys, because readers list them. This write is conditional: the key
still has no object, or still the damaged one. Otherwise a task could outlive its driver, and write after another repair
had recorded the length of its object. Bytes of another length would then fail readers of Iceberg and DuckLake. Two gaps
remain: the other object may be lost again before the late task writes, and stores without conditional writes (see
`Stores.replace`) have an instant between check and write. The next repair finds both cases by the length of the object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import (
    WORTH_REPEATING,
    InvariantBroken,
    LeaseLost,
    ObjectChanged,
    ObjectMissing,
)
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work import Failure
from prism_assets.domain.work.repair import RepairedObject, RepairResult, RepairTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels import times
from prism_assets.kernels.convert import Conversion
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.fingerprint import checked_fingerprint
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def repair_object(task: RepairTask, table: TableDefinition, stores: Stores, lake: Lake) -> RepairResult:
    """Checks the recorded small objects of one staging object, and writes the faulty ones again.

    Nothing is raised for an object that cannot be repaired: the result has the failure, and nothing was overwritten. An
    object with the recorded rows is left alone, even if its bytes are others. If its length is another one, and the
    task has a new key for it, the bytes are copied there.
    """
    repair = _ObjectRepair(task, table, stores, lake)
    try:
        repair.run()
    except Exception as error:
        doing = f"s3://{task.source.bucket}/{task.source.key} was converted again"
        return repair.result(failure_of(error, doing, passing=WORTH_REPEATING))
    return repair.result(None)


def remake_object(task: RepairTask, table: TableDefinition, stores: Stores, lake: Lake) -> bytes:
    """Converts the one recorded object of a task again, in memory. Nothing is written.

    InvariantBroken if the staging object no longer gives the recorded rows.
    """
    (recorded,) = task.recorded
    return _ObjectRepair(task, table, stores, lake).remake(recorded)


class _ObjectRepair:
    def __init__(self, task: RepairTask, table: TableDefinition, stores: Stores, lake: Lake) -> None:
        self._task = task
        self._table = table
        self._stores = stores
        self._lake = lake
        self._objects: list[RepairedObject] = []
        self._etags: dict[date, str | None] = {}
        self._of_another_length: dict[date, bytes] = {}
        """Objects with the recorded rows, to be copied to their new keys."""

    def result(self, failure: Failure | None) -> RepairResult:
        number, generation, version = self._task.task_id
        return RepairResult(
            staging_object_id=number,
            generation=generation,
            definition_version=version,
            objects=tuple(self._objects),
            failure=failure,
        )

    def run(self) -> None:
        """Checks all objects first, so that the result names every fault even if the staging object is gone."""
        self._objects = [self._look(recorded) for recorded in self._task.recorded]
        faulty = {found.date for found in self._objects if found.fault}
        if self._task.look_only:
            return
        for recorded in self._task.recorded:
            if body := self._of_another_length.pop(recorded.date, None):
                self._write(pa.py_buffer(body), recorded)
        if faulty:
            self._convert(faulty)

    def _convert(self, faulty: Collection[date]) -> None:
        recorded = {item.date: item for item in self._task.recorded if item.date in faulty}
        for small, body in self._converted():
            if small.date in recorded:
                self._check_same(small, recorded[small.date])
                self._write(body, recorded.pop(small.date))
        if recorded:
            days = ", ".join(day.isoformat() for day in sorted(recorded))
            raise InvariantBroken(f"{self._source()} has no rows of {days} any more; nothing was written for it")

    def remake(self, recorded: SmallObject) -> bytes:
        """Converts the bytes of one object; InvariantBroken if they do not hold the recorded rows."""
        for small, body in self._converted():
            if small.date == recorded.date:
                self._check_same(small, recorded)
                return bytes(body.to_pybytes())
        raise InvariantBroken(f"{self._source()} has no rows of {recorded.date} any more; nothing was written for it")

    def _look(self, recorded: SmallObject) -> RepairedObject:
        key = recorded.key
        try:
            body, self._etags[recorded.date] = self._stores.read_version(recorded.bucket, key)
        except ObjectMissing:
            return RepairedObject(date=recorded.date, key=key, fault="is missing", content_length=None)
        fault = _fault(body, recorded)
        if fault is None and recorded.date in self._task.new_keys and len(body) != recorded.content_length:
            self._of_another_length[recorded.date] = body
        return RepairedObject(date=recorded.date, key=key, fault=fault, content_length=None if fault else len(body))

    def _converted(self) -> Sequence[tuple[SmallObject, pa.Buffer]]:
        """Converts the staging object, if it is still the discovered one."""
        source = self._task.source
        try:
            if source.etag is None and self._stores.length(source.bucket, source.key) != source.content_length:
                raise ObjectChanged(f"{self._source()} is no longer the object that was discovered")
            with closing(Conversion(source, self._table, self._stores, self._lake)) as conversion:
                made = list(conversion.encode())
                return [*made, *(conversion.encode_empty(times.to_day(day)) for day in self._empty_days())]
        except ObjectMissing:
            raise ObjectMissing(f"its staging object {self._source()} is gone; restore that, and repeat") from None
        except ObjectChanged:
            raise ObjectChanged(
                f"its staging object {self._source()} is no longer the one it was made of; restore that, and repeat"
            ) from None

    def _empty_days(self) -> list[date]:
        """The days of recorded objects without rows. A rebuild writes these, a conversion does not."""
        return [item.date for item in self._task.recorded if not item.row_count]

    def _source(self) -> str:
        return f"s3://{self._task.source.bucket}/{self._task.source.key}"

    def _write(self, body: pa.Buffer, recorded: SmallObject) -> None:
        """Writes one object with the recorded rows, unless another worker has written it.

        A death before the write leaves all as it was. After it, the next repair finds an object in place sound; an
        object under a new key is garbage, as nobody commits its rewrite.
        """
        index = next(number for number, item in enumerate(self._objects) if item.date == recorded.date)
        key = self._task.new_keys.get(recorded.date, recorded.key)
        failpoint("repair.before_put")
        length = self._put_in_place(body, recorded) if key == recorded.key else self._put_new(key, body, recorded)
        failpoint("repair.after_put")
        self._objects[index] = replace(self._objects[index], key=key, content_length=length)

    def _check_same(self, small: SmallObject, recorded: SmallObject) -> None:
        if (small.generation, small.delayed) != (recorded.generation, recorded.delayed):
            raise InvariantBroken(
                f"{recorded.key} was written by another start of {self._source()}; nothing was written"
            )
        if (small.row_count, small.fingerprint) != (recorded.row_count, recorded.fingerprint):
            raise InvariantBroken(
                f"{self._source()} gives {counted(small.row_count, 'row')} of {recorded.date} now, and not the same "
                f"as the {recorded.row_count} that were committed; nothing was written"
            )

    def _put_new(self, key: str, body: pa.Buffer, recorded: SmallObject) -> int:
        """Writes the object under its new key, and returns its length."""
        there = put_if_absent(
            self._stores,
            recorded.bucket,
            key,
            body,
            kind="delayed",
            row_count=recorded.row_count,
            fingerprint=recorded.fingerprint,
            file_format=recorded.file_format,
        )
        return there.content_length

    def _put_in_place(self, body: pa.Buffer, recorded: SmallObject) -> int:
        """Writes the object unless the one under the key has changed since the check. Returns the length of either."""
        content, bucket, key = memoryview(body).cast("B"), recorded.bucket, recorded.key
        if recorded.date not in self._etags:
            is_written = self._stores.put_new(bucket, key, content, kind="live")
        else:
            is_written = self._stores.replace(bucket, key, content, etag=self._etags[recorded.date], kind="live")
        return body.size if is_written else self._length_of_another(recorded)

    def _length_of_another(self, recorded: SmallObject) -> int:
        """The length of the object that another worker has written meanwhile; LeaseLost if it lacks the rows."""
        there = self._look(recorded)
        if there.content_length is None:
            raise LeaseLost(f"another worker was at it meanwhile, and now it {there.fault}; repeat")
        return there.content_length


def _fault(body: bytes, recorded: SmallObject) -> str | None:
    """The fault of these bytes, or None if they hold the recorded rows."""
    try:
        table = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False)
        fingerprint = checked_fingerprint(lambda: (table,), recorded.fingerprint)
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return "is no readable Parquet object"
    if table.num_rows != recorded.row_count or fingerprint != recorded.fingerprint:
        return f"holds {counted(table.num_rows, 'row')} that are not the {recorded.row_count} committed ones"
    return None

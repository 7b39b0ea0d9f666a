"""Makes the rows of a staging object on one day again, under the current definition.

Other days keep their rows. To find the lines of these rows, the object is read again under each earlier definition. A
quarantined line belongs to no day, even if a later version of the program reads it as a row. The rebuild writes keys of
its own, and readers see none of them before the whole day is ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property

import numpy as np

from prism_assets.domain.errors import InvariantBroken, ObjectChanged, ObjectMissing
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertTask
from prism_assets.domain.work.rebuild import DayOfObject, RebuildResult, RebuildTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels import times
from prism_assets.kernels.convert import Conversion
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.quarantine import unpacked
from prism_assets.kernels.scope import DayScope, LinesOfDays, Numbers
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores

_NO_LINES = np.zeros(0, np.int64)


def rebuild_object(task: RebuildTask, table: TableDefinition, stores: Stores, lake: Lake) -> RebuildResult:
    """Writes a new object of the day, under a key of its own, and the lines that are now set aside.

    Nothing is raised for an object that cannot be rebuilt: the result has the failure. The same object gives the same
    bytes under the same keys.
    """
    rebuild = _ObjectRebuild(task, table, stores, lake)
    try:
        return rebuild.run()
    except (ObjectMissing, ObjectChanged) as error:
        if rebuild.is_reading:
            return replace(task.failed(failure_of(error, rebuild.doing)), is_missing=True)
        return task.failed(failure_of(error, rebuild.doing))
    except Exception as error:
        return task.failed(failure_of(error, rebuild.doing, at_source=rebuild.is_reading))


class _ObjectRebuild:
    def __init__(self, task: RebuildTask, table: TableDefinition, stores: Stores, lake: Lake) -> None:
        self._task = task
        self._table = table
        self._earlier = {item.version: item for item in task.definitions}
        self._stores = stores
        self._lake = lake
        self._url = f"s3://{task.source.bucket}/{task.source.key}"
        self.doing = f"{self._url} was converted again"
        self.is_reading = True

    def run(self) -> RebuildResult:
        source, day = self._task.source, times.to_day(self._task.date)
        if source.etag is None and self._stores.length(source.bucket, source.key) != source.content_length:
            raise ObjectChanged(f"{self._url} is no longer the object that was converted")
        others = [item for item in self._task.recorded if item.date != self._task.date]
        same = [item for item in others if item.definition_version == source.definition_version]
        taken = self._taken([item for item in others if item not in same])
        same_days = [times.to_day(item.date) for item in same]
        scope = DayScope(day, taken, same_days, self._set_aside, self._held, self._url)
        with closing(Conversion(source, self._table, self._stores, self._lake, scope=scope)) as conversion:
            done = conversion.run()
            self.is_reading = False
            self._check_counts(same, scope.on_other_days)
            if done.lines_in != self._task.lines_in:
                raise InvariantBroken(
                    f"{self._url} has {counted(done.lines_in, 'line')} now, and had {self._task.lines_in}"
                )
            small = done.objects[0] if done.objects else None
            if small is None and len(others) < len(self._task.recorded):
                small = conversion.write_empty(day)
        failpoint("rebuild.after_put")
        return RebuildResult(
            staging_object_id=done.staging_object_id,
            lines_in=done.lines_in,
            rows_out=done.rows_out,
            lines_filtered=done.lines_filtered,
            lines_erased=done.lines_erased,
            lines_elsewhere=done.lines_elsewhere,
            small=small,
            quarantined=done.quarantined,
            quarantine_key=done.quarantine_key,
            value_errors=done.value_errors,
            other_dates=tuple(map(times.to_date, sorted(scope.other_days))),
        )

    @cached_property
    def _set_aside(self) -> Numbers:
        """The quarantined lines; none if they are deleted, or their numbers are unknown."""
        if (key := self._task.quarantine_key) is None:
            return _NO_LINES
        try:
            records = unpacked(self._stores.get_chunks(self._lake.bucket, key), key)
            numbers = [record["line"] for record, _ in records if record["line"] is not None]
        except (ObjectMissing, InvariantBroken):
            return _NO_LINES  # the check of the number of rows of other days does not need them
        return np.array(numbers, np.int64)

    def _taken(self, others: Iterable[DayOfObject]) -> Numbers:
        """The lines of other days' rows, made under earlier definitions."""
        by_version: dict[int, list[DayOfObject]] = {}
        for item in others:
            by_version.setdefault(item.definition_version, []).append(item)
        found = [_NO_LINES]
        for version, days in by_version.items():
            lines = self._lines(version, days)
            self._check_counts(days, {day: len(numbers) for day, numbers in lines.items()})
            found += lines.values()
        return np.sort(np.concatenate(found))

    def _held(self) -> Numbers:
        """The lines of the day's recorded rows."""
        own = [item for item in self._task.recorded if item.date == self._task.date]
        found = [numbers for item in own for numbers in self._lines(item.definition_version, [item]).values()]
        return np.concatenate([_NO_LINES, *found])

    def _lines(self, version: int, days: Iterable[DayOfObject]) -> Mapping[int, Numbers]:
        """The lines that give rows of some days under a definition, by day."""
        collector = LinesOfDays({times.to_day(item.date) for item in days}, self._set_aside)
        source: ConvertTask = replace(self._task.source, erasures=())  # the recorded rows are not erased
        table = self._table
        if earlier := self._earlier.get(version):
            table = TableDefinition.from_json(earlier.definition)
            source = earlier.of(source)
        with closing(Conversion(source, table, self._stores, self._lake, scope=collector)) as conversion:
            conversion.read()
        return collector.lines()

    def _check_counts(self, recorded: Iterable[DayOfObject], found: Mapping[int, int]) -> None:
        for item in recorded:
            count = found.get(times.to_day(item.date), 0)
            if count != item.row_count:
                more = (
                    "; lines that were no rows are rows of it by now, and quarantine does not say which, or no more: "
                    "rebuild that day first. If that names this one, both stay as they are, and no row is wrong"
                )
                raise InvariantBroken(
                    f"{self._url} gives {counted(count, 'row')} of {item.date} under version "
                    f"{item.definition_version} of the definition, and {item.row_count} were committed: nothing of the "
                    f"day was rebuilt{more if count > item.row_count else ''}"
                )

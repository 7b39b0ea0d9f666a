"""One staging object to Parquet: read, type, judge, divide by event date, sort, write; bad lines are set aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timezone

import pyarrow as pa

from prism_assets.domain.accepted import accepted_days
from prism_assets.domain.errors import InvariantBroken, ObjectChanged, PrismError
from prism_assets.domain.files import SmallObject
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.work import (
    ConvertResult,
    ConvertTask,
    QuarantineCount,
    SourceVersion,
    ValueErrors,
)
from prism_assets.failpoints import failpoint
from prism_assets.kernels.expressions.rows import Computation
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.inflate import Inflation, UnsoundError, salvage
from prism_assets.kernels.json.accept import Acceptance
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.json.blocks import Block, LongLine, find_lines, split
from prism_assets.kernels.json.columnar import Hints, read_block
from prism_assets.kernels.json.picks import Facts
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.parquet.accepted_rows import AcceptedRows, Limits
from prism_assets.kernels.parquet.small_objects import SmallObjects
from prism_assets.kernels.quarantine import Quarantine
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
    by_columns: bool = True,
    limits: Limits = LIMITS,
) -> ConvertResult:
    """Converts one staging object into small objects of the lake.

    Nothing is raised for a bad object: its lines are set aside, and what went wrong is the result's failure. The
    same object gives the same bytes under the same keys, whatever the `limits` of its memory. `by_columns=False`
    reads line by line, for comparison.
    """
    conversion = Conversion(task, table, stores, lake, by_columns, limits)
    try:
        with closing(conversion):
            return conversion.run()
    except ObjectChanged:
        return _changed(task, stores)
    except MemoryError:
        raise
    except Exception as error:
        doing = f"s3://{task.bucket}/{task.key} was converted"
        failure = failure_of(error, doing, at_source=conversion.is_reading)
    return task.failed(failure)


def _changed(task: ConvertTask, stores: Stores) -> ConvertResult:
    """Another object lies under the key than was registered: says which, so that it is taken up instead."""
    try:
        found = stores.head(task.bucket, task.key)
    except PrismError as error:
        failure = failure_of(error, f"s3://{task.bucket}/{task.key} was looked at", at_source=True)
        return task.failed(failure)
    version = SourceVersion(etag=found.etag, content_length=found.content_length, last_modified=found.last_modified)
    return ConvertResult(staging_object_id=task.staging_object_id, changed=version)


@dataclass
class _Tally:
    """What was read so far."""

    lines_in: int = 0
    fast_lines: int = 0
    filtered: int = 0
    value_errors: Counter[tuple[int, str]] = field(default_factory=Counter)


class Conversion:
    """One staging object on its way to small objects."""

    def __init__(
        self,
        task: ConvertTask,
        table: TableDefinition,
        stores: Stores,
        lake: Lake,
        by_columns: bool = True,
        limits: Limits = LIMITS,
    ) -> None:
        self._task = task
        self._layout = Layout.of(table, _facts(task))
        self._computation = Computation(self._layout, limits.expression_seconds)
        self._acceptance = Acceptance(self._layout, accepted_days(table, task))
        self._stores = stores
        self._lake = lake
        self._keys = lake.keys(table)
        self._by_columns = by_columns
        self._limits = limits
        self._begin()

    def _begin(self) -> None:
        self._rows = AcceptedRows(self._layout, self._limits)
        url = self._layout.facts["@object"][0]
        self._quarantine = Quarantine(self._limits.quarantine, Blanking(self._layout.program), url)
        self._tally = _Tally()
        self.is_reading = True
        """Whether the staging object is still being read, and nothing written yet."""

    def close(self) -> None:
        """Lets go of memory, temporary files and DuckDB."""
        self._computation.close()
        self._let_go()

    def _let_go(self) -> None:
        self._rows.close()
        self._quarantine.close()

    def run(self) -> ConvertResult:
        """Reads everything, then writes: nothing is visible before the whole object is known to be sound."""
        self._read_all()
        self._check_balance()
        self.is_reading = False
        objects = self._small_objects().write(self._rows)
        return ConvertResult(
            staging_object_id=self._task.staging_object_id,
            lines_in=self._tally.lines_in,
            rows_out=sum(written.row_count for written in objects),
            lines_filtered=self._tally.filtered,
            objects=objects,
            quarantined=self._counts(),
            quarantine_key=self._put_quarantine(),
            value_errors=self._value_errors(),
            fast_lines=self._tally.fast_lines,
        )

    def encode(self) -> Iterator[tuple[SmallObject, pa.Buffer]]:
        """Yields the small objects that `run` would write, with their bytes, and writes nothing."""
        self._read_all()
        yield from self._small_objects().encode(self._rows)

    def _read_all(self) -> None:
        hints, inflation = Hints(), Inflation(self._chunks())
        try:
            for part in split(inflation):
                self._read(part, hints)
        except UnsoundError as unsound:
            self._set_all_aside(unsound)
        else:
            self._set_garbage_aside(inflation)

    def _small_objects(self) -> SmallObjects:
        return SmallObjects(self._layout, self._task, self._stores, self._lake)

    def _chunks(self) -> Iterator[bytes]:
        task = self._task
        return self._stores.get_chunks(task.bucket, task.key, etag=task.etag, length=task.content_length)

    def _read(self, part: Block | LongLine, hints: Hints) -> None:
        if isinstance(part, LongLine):
            self._tally.lines_in += 1
            self._quarantine.add_long(part)
            return
        read = read_block(self._layout.reading, part, hints, by_columns=self._by_columns)
        rejects = list(read.rejects)
        for rows in read.parts:
            computed = self._computation.compute(rows)
            self._tally.filtered += computed.filtered
            rejects.extend(computed.rejects)
            accepted, rejected = self._acceptance.divide(computed.rows, read.lines.numbers)
            self._rows.add(accepted)
            self._tally.value_errors.update(accepted.value_errors)
            rejects.extend(rejected)
        self._rows.settle()
        self._tally.lines_in += len(read.lines)
        self._tally.fast_lines += read.fast
        for reject in sorted(rejects, key=_line):
            start, end = read.lines.starts[reject.line], read.lines.ends[reject.line]
            number = int(read.lines.numbers[reject.line])
            self._quarantine.add(number, reject.reason, reject.column, part.data[start:end], part.offset + int(start))

    def _set_all_aside(self, unsound: UnsoundError) -> None:
        """Reads the object once more and sets all of its lines aside."""
        self._let_go()
        self._begin()
        self._quarantine.note(unsound.reason)
        for part in split(salvage(self._chunks(), unsound.offset)):
            if isinstance(part, LongLine):
                self._tally.lines_in += 1
                self._quarantine.add_long(part, unsound.reason)
                continue
            lines, _ = find_lines(part)
            self._tally.lines_in += len(lines)
            for number, start, end in zip(lines.numbers.tolist(), lines.starts, lines.ends, strict=True):
                self._quarantine.add_unread(number, unsound.reason, part.data[start:end], part.offset + int(start))

    def _set_garbage_aside(self, inflation: Inflation) -> None:
        """Sets aside what follows the last member, each piece as one line; zeros alone are told, and no line."""
        for garbage in inflation.garbage():
            self._tally.lines_in += 1
            self._quarantine.add_garbage(garbage)
        if inflation.padding:
            self._quarantine.note("zero_padding")

    def _check_balance(self) -> None:
        """Raises InvariantBroken unless each line is a row, in quarantine or filtered: better nothing than a part."""
        lines, rows, others = self._tally.lines_in, self._rows.count, self._quarantine.counts.total()
        filtered = self._tally.filtered
        if lines != rows + others + filtered:
            where = f"s3://{self._task.bucket}/{self._task.key}"
            raise InvariantBroken(
                f"{where}: {lines} lines in, {rows} rows, {others} quarantined and {filtered} filtered; nothing was "
                "written"
            )

    def _put_quarantine(self) -> str | None:
        if not self._quarantine.counts.total():
            return None
        arrival = self._task.received.astimezone(timezone.utc)
        key = self._keys.quarantine(arrival, self._task.staging_object_id, self._task.generation)
        self._stores.put(self._lake.bucket, key, self._quarantine.finish())
        failpoint("convert.after_quarantine_put")
        return key

    def _counts(self) -> tuple[QuarantineCount, ...]:
        counts = sorted(self._quarantine.counts.items())
        return tuple(QuarantineCount(reason=reason, line_count=count) for reason, count in counts)

    def _value_errors(self) -> tuple[ValueErrors, ...]:
        names = [column.name for column in self._layout.program.columns]
        counts = sorted((names[column], reason, count) for (column, reason), count in self._tally.value_errors.items())
        return tuple(ValueErrors(column=name, reason=reason, count=count) for name, reason, count in counts if count)


def _facts(task: ConvertTask) -> Facts:
    """What is known of all lines of the object; keys of S3 may hold what is no text."""
    received = task.received.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    url = f"s3://{task.bucket}/{task.key}".encode(errors="replace").decode()
    facts = {"@stream": task.stream_name, "@object": url, "@received": received}
    return {name: (text, json.dumps(text)) for name, text in facts.items()}


def _line(reject: Reject) -> int:
    return reject.line

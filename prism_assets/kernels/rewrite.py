"""One object to another with the same rows but those of erasures: looked through first, by as little as tells.

Statistics of row groups, then the columns that predicates name: an object without a matching row is read no further,
and nothing is written. The rows that stay keep their order; rows and fingerprint of what stays and of what goes must be
together what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import ExpressionsFailed, InvariantBroken, ObjectMissing
from prism_assets.domain.files import DataFile
from prism_assets.domain.fingerprints import combine
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.domain.work.erase import RewriteResult, RewriteTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.fingerprint import fingerprint_of
from prism_assets.kernels.parquet.format import MERGED_SAMPLE, Encoder, column_id, dictionary_columns, without_copies
from prism_assets.kernels.parquet.merge_inputs import aligned, union_schema
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.kernels.repair import remake_object
from prism_assets.kernels.typed import Mask
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.ranged import RangedObject
from prism_assets.objectstore.stores import Stores

_READ_WHOLE = 4 << 20
"""Objects up to so many bytes are read with one request."""


def rewrite_object(task: RewriteTask, table: TableDefinition, stores: Stores, lake: Lake) -> RewriteResult:
    """Looks through one object, and writes it again without the rows that match, if there are any.

    Nothing is raised for an object that is not what the task says: nothing is written, and the result's failure tells.
    The same object and the same predicates give the same bytes under the same key.
    """
    try:
        with ExitStack() as stack:
            predicates = [stack.enter_context(Predicate(rule)) for rule in task.erasures]
            return _ObjectRewrite(task, table, stores, lake, predicates).run()
    except Exception as error:
        return task.failed(failure_of(error, f"{task.file.key} was looked through"))


@dataclass
class _MatchingRows:
    """What was found row group by row group: which rows go, None where none does."""

    masks: list[Mask | None] = field(default_factory=list)
    matching: int = 0
    undecided: int = 0
    groups_read: int = 0


class _ObjectRewrite:
    def __init__(
        self, task: RewriteTask, table: TableDefinition, stores: Stores, lake: Lake, predicates: Sequence[Predicate]
    ) -> None:
        self._task = task
        self._table = table
        self._stores = stores
        self._bucket = lake.bucket
        self._lake = lake
        self._predicates = predicates
        self._body: bytes | None = None

    def run(self) -> RewriteResult:
        """Looks first, over the columns that tell; then reads and writes all of it, if that must be."""
        said, file = self._task.file, self._file()
        found = self._look(file)
        result = RewriteResult(
            number=self._task.number,
            rows=file.metadata.num_rows,
            matching=found.matching,
            undecided=found.undecided,
            row_groups_read=found.groups_read,
        )
        if self._task.output_key is None:
            return result
        if found.undecided:
            raise ExpressionsFailed(
                f"{said.key}: the predicate fails on {found.undecided} of its rows: erase by one that always has a "
                "result, such as with try_cast"
            )
        if not found.matching or (found.matching == result.rows and self._task.skips_empty):
            return result
        return self._written(result, found)

    def _file(self) -> pq.ParquetFile:
        """The object as it was recorded, from the store, or made again of its staging object."""
        try:
            return self._stored()
        except (ObjectMissing, InvariantBroken):
            if self._task.remade_from is None:
                raise
        self._body = remake_object(self._task.remade_from, self._table, self._stores, self._lake)
        return self._opened(pa.BufferReader(self._body))

    def _stored(self) -> pq.ParquetFile:
        said = self._task.file
        if said.content_length <= _READ_WHOLE:
            self._body = self._read()
            return self._opened(pa.BufferReader(self._body))
        ranged = RangedObject(self._stores, said.bucket, said.key, said.content_length)
        return self._opened(pa.PythonFile(ranged, "r"))

    def _read(self) -> bytes:
        said = self._task.file
        body = self._stores.get(said.bucket, said.key, length=said.content_length)
        if len(body) != said.content_length:
            raise InvariantBroken(f"{said.key}: it has {len(body)} bytes, recorded were {said.content_length}")
        return body

    def _opened(self, source: pa.NativeFile) -> pq.ParquetFile:
        said = self._task.file
        try:
            file = pq.ParquetFile(source)
        except pa.ArrowInvalid:
            raise InvariantBroken(f"{said.key}: it is no readable Parquet object") from None
        if said.row_count >= 0 and file.metadata.num_rows != said.row_count:
            raise InvariantBroken(
                f"{said.key}: it has {counted(file.metadata.num_rows, 'row')}, recorded were {said.row_count}"
            )
        return file

    def _look(self, file: pq.ParquetFile) -> _MatchingRows:
        found = _MatchingRows()
        names = {column_id(column): column.name for column in file.schema_arrow}
        places = {number: place for place, number in enumerate(names)}
        for group in range(file.metadata.num_row_groups):
            statistics = file.metadata.row_group(group)
            asked = [item for item in self._predicates if not _is_excluded(item, statistics, places)]
            mask = self._asked(file, group, names, asked, found) if asked and statistics.num_rows else None
            found.masks.append(mask)
        return found

    def _asked(
        self, file: pq.ParquetFile, group: int, names: dict[int, str], asked: Sequence[Predicate], found: _MatchingRows
    ) -> Mask | None:
        """The rows of a row group that go; reads the columns that predicates name, and no others."""
        ids = sorted({number for item in asked for number in item.column_ids if number in names})
        read = file.read_row_group(group, [names[number] for number in ids], use_threads=False)
        columns = {number: read.column(names[number]) for number in ids}
        rows = file.metadata.row_group(group).num_rows
        mask, undecided = np.zeros(rows, bool), np.zeros(rows, bool)
        for item in asked:
            answer = item.matches(columns, rows)
            mask |= answer.matching
            undecided |= answer.undecided
        found.groups_read += 1
        found.matching += int(mask.sum())
        found.undecided += int((undecided & ~mask).sum())
        return mask if mask.any() else None

    def _written(self, result: RewriteResult, found: _MatchingRows) -> RewriteResult:
        said, key = self._task.file, self._task.output_key
        assert key is not None
        file = self._opened(pa.BufferReader(self._body if self._body is not None else self._read()))
        schema = union_schema([file.schema_arrow], self._table)
        kept = _KeptRows(schema, self._table.file_format)
        with kept:
            for rows, gone in _divided(file, schema, found.masks):
                kept.add(rows, gone)
        body = kept.encoder.finish()
        self._check(kept)
        failpoint("erase.before_put")
        there = put_if_absent(
            self._stores,
            self._bucket,
            key,
            body,
            kind=self._task.object_type,
            row_count=kept.row_count,
            fingerprint=kept.fingerprint,
            file_format=self._table.file_format,
        )
        failpoint("erase.after_put")
        written = DataFile(
            bucket=self._bucket,
            key=key,
            content_length=there.content_length,
            row_count=kept.row_count,
            fingerprint=kept.fingerprint,
            min_time=said.min_time,
            max_time=said.max_time,
            file_format=there.file_format,
            metrics=column_metrics(kept.encoder.metadata, self._task.metric_columns),
            rows_erased=said.rows_erased + kept.rows_gone,
            erased_fingerprint=combine([said.erased_fingerprint, kept.fingerprint_gone]),
        )
        return replace(result, erased_fingerprint=kept.fingerprint_gone, written=written)

    def _check(self, kept: _KeptRows) -> None:
        """Raises InvariantBroken unless what stays and what goes is what was recorded."""
        said = self._task.file
        found = combine([kept.fingerprint, kept.fingerprint_gone])
        if found != said.fingerprint:
            raise InvariantBroken(
                f"{said.key}: the fingerprint of its rows is {found}, recorded was {said.fingerprint}; nothing was "
                "written: run `prism repair --deep`"
            )


class _KeptRows:
    """The rows that stay, encoded in a thread while the next ones are read, and the sums of what stays and goes."""

    def __init__(self, schema: pa.Schema, file_format: int) -> None:
        self._schema = schema
        self._file_format = file_format
        self._encoder: Encoder | None = None
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._empty = True
        self.row_count = 0
        self.fingerprint = 0
        self.rows_gone = 0
        self.fingerprint_gone = 0

    @property
    def encoder(self) -> Encoder:
        """That of the object; made with the first rows."""
        self._encoder = self._encoder or Encoder(self._schema, [], self._file_format)
        return self._encoder

    def add(self, rows: pa.Table, gone: pa.Table) -> None:
        """Takes the next rows."""
        self.row_count += rows.num_rows
        self.fingerprint = combine([self.fingerprint, fingerprint_of(rows)])
        self.rows_gone += gone.num_rows
        self.fingerprint_gone = combine([self.fingerprint_gone, fingerprint_of(gone)])
        if rows.num_rows:
            self._write(rows)

    def _write(self, rows: pa.Table) -> None:
        if self._encoder is None:
            self._encoder = Encoder(self._schema, dictionary_columns(rows, MERGED_SAMPLE), self._file_format)
        if self._writing:
            self._writing.result()
        self._empty = False
        self._writing = self._pool.submit(self._encoder.write, rows)

    def __enter__(self) -> _KeptRows:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for what is being encoded. An object without rows still has its columns, and one empty row group."""
        with self._pool:
            if self._writing:
                self._writing.result()
            if self._empty:
                self.encoder.write(self._schema.empty_table())


def _divided(
    file: pq.ParquetFile, schema: pa.Schema, masks: Sequence[Mask | None]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The rows of each row group that stay, and those that go."""
    columns = without_copies(file.schema_arrow).names
    for group, mask in enumerate(masks):
        rows = aligned(file.read_row_group(group, columns, use_threads=False), schema)
        if mask is None:
            yield rows, rows.slice(0, 0)
        else:
            yield rows.filter(pa.array(~mask)), rows.filter(pa.array(mask))


def _is_excluded(predicate: Predicate, group: pq.RowGroupMetaData, places: dict[int, int]) -> bool:
    """Whether the statistics of a row group say that none of its rows matches."""
    for wanted in predicate.rule.values:
        place = places.get(wanted.column_id)
        if place is None:
            return True  # a column that the object does not have is null in all rows
        found = group.column(place).statistics
        if found is not None and found.has_min_max and wanted.lie_outside(found.min, found.max):
            return True
    return False

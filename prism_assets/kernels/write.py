"""Writes sorted objects as one object: merges, renames, widenings, adoptions, erasures of rows, merges of records.

1. With erasures, search the inputs by as little as possible (`matching.py`). Where no row matches, nothing is written.
2. Bring the rows that stay into order (`parquet/merged_rows.py`): each is decoded and encoded once.
3. Compare number and fingerprint of the kept and the erased rows with the recorded ones of the inputs.
4. Put the object under its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from prism_assets.domain.errors import ExpressionsFailed, InvariantBroken, ObjectMissing
from prism_assets.domain.files.data_file import ColumnMetrics, DataFile, time_bounds
from prism_assets.domain.files.fingerprints import combine
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.work import Failure
from prism_assets.domain.work.write import WriteResult, WriteTask
from prism_assets.failpoints import failpoint
from prism_assets.kernels.compiled import loaded_kernel, log_failure
from prism_assets.kernels.expressions.predicate import Predicate
from prism_assets.kernels.failures import failure_of
from prism_assets.kernels.fingerprint import checked_fingerprint, fingerprint_by_columns, fingerprint_of
from prism_assets.kernels.matching import MatchingRows, find_matching
from prism_assets.kernels.parquet.format import MERGED_ROW_GROUP, MERGED_SAMPLE, Encoder, dictionary_columns, schema_of
from prism_assets.kernels.parquet.merge_inputs import Input, aligned, union_schema
from prism_assets.kernels.parquet.merged_rows import MergedRows
from prism_assets.kernels.parquet.metrics import column_metrics
from prism_assets.kernels.parquet.put_if_absent import put_if_absent
from prism_assets.kernels.parquet.stored import StoredFile, read_whole
from prism_assets.kernels.records.shape import RecordShape
from prism_assets.kernels.repair import remake_object
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.unread import UnreadInputs, read_all, reading
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def write_object(task: WriteTask, table: TableDefinition, stores: Stores, lake: Lake) -> WriteResult:
    """Writes the inputs as one object, sorted; ties stay in the order of the inputs.

    Nothing is raised for inputs that are not as recorded: nothing is written, and the result's failure names them. The
    same inputs give the same bytes under the same key.
    """
    work = _ObjectWrite(task, table, stores, lake)
    doing = f"{task.output_key} was written" if task.output_key else f"{task.inputs[0].key} was searched"
    try:
        with ExitStack() as stack:
            return work.run([stack.enter_context(Predicate(rule)) for rule in task.erasures])
    except UnreadInputs as error:
        first, *others = error.objects
        rest = f"; and {len(others)} more of its inputs cannot be read" if others else ""
        failure = Failure(message=first.reason + rest, transient=False, at_source=True)
        return replace(task.failed(failure), unread=error.objects)
    except Exception as error:
        return task.failed(failure_of(error, doing, at_source=work.is_reading))


@dataclass(frozen=True)
class _SearchedInput:
    """A searched input, and its bytes if they were read as a whole."""

    said: DataFile
    body: bytes | None
    found: MatchingRows


class _ObjectWrite:
    def __init__(self, task: WriteTask, table: TableDefinition, stores: Stores, lake: Lake) -> None:
        self._task = task
        self._table = table.with_copied_types() if task.is_copy else table
        self._stores = stores
        self._lake = lake
        self.is_reading = True

    def run(self, predicates: Sequence[Predicate]) -> WriteResult:
        """Searches the inputs for rows to erase, and writes the rows that stay. Without predicates all rows stay."""
        result = WriteResult(number=self._task.number)
        if not predicates:
            return replace(result, written=self._write(read_all(self._fetch, self._task.inputs)))
        searched = [self._search(said, predicates) for said in self._task.inputs]
        result = _with_counts(result, searched)
        if self._task.output_key is None:
            return result
        for item in searched:
            if item.found.undecided:
                raise ExpressionsFailed(
                    f"{item.said.key}: the predicate fails on {item.found.undecided} of its rows: erase by one that "
                    "always has a result, such as with try_cast"
                )
        if not result.matching or (result.matching == result.rows and self._task.skips_empty):
            return result
        return replace(result, written=self._write(read_all(self._fetch_searched, searched)))

    def _search(self, said: DataFile, predicates: Sequence[Predicate]) -> _SearchedInput:
        try:
            with reading(said):
                stored = StoredFile.opened(said, self._stores)
        except UnreadInputs as error:
            if self._task.remade_from is None or not isinstance(error.__cause__, ObjectMissing | InvariantBroken):
                raise
            body = remake_object(self._task.remade_from, self._table, self._stores, self._lake)
            stored = StoredFile.of_body(said, body)
        return _SearchedInput(said, stored.body, find_matching(said, stored.file, predicates))

    def _fetch(self, said: DataFile) -> list[Input]:
        with reading(said):
            return Input.opened(said, read_whole(said, self._stores))

    def _fetch_searched(self, searched: _SearchedInput) -> list[Input]:
        with reading(searched.said):
            body = searched.body if searched.body is not None else read_whole(searched.said, self._stores)
            inputs = Input.opened(searched.said, body)
        return [entry.without(mask) for entry, mask in zip(inputs, searched.found.masks, strict=True)]

    def _write(self, fetched: Iterable[Sequence[Input]]) -> DataFile:
        inputs = [entry for entries in fetched for entry in entries]
        self.is_reading = False
        encoded = self._by_kernel(inputs)
        if encoded is None:  # outside of the handler, whose traceback holds the rows of the first attempt
            encoded = self._checked(inputs, compiled=False)
        return self._put(encoded)

    def _by_kernel(self, inputs: Sequence[Input]) -> _EncodedObject | None:
        """Returns None after a fault of the kernel: Arrow finds the inputs as recorded. So a fault parks no merge."""
        try:
            return self._checked(inputs)
        except MemoryError:
            raise
        except Exception as error:
            self._check_inputs(inputs)
            if loaded_kernel().module is None:
                raise
            log_failure(f"writes {self._task.output_key} again", type(error).__name__)  # messages may hold values
            return None

    def _checked(self, inputs: Sequence[Input], *, compiled: bool = True) -> _EncodedObject:
        encoded = self._encoded(inputs, compiled)
        self._check_sums(encoded)
        return encoded

    def _encoded(self, inputs: Sequence[Input], compiled: bool) -> _EncodedObject:
        """Encodes one portion in a thread while the next one is gathered.

        This takes half the time where a core is free, and at most the memory of one portion more.
        """
        schema, file_format = self._schema(inputs), self._table.file_format
        kept, erased = _RowSum(compiled), _RowSum(compiled)
        encoder: Encoder | None = None
        writing: Future[None] | None = None
        with ThreadPoolExecutor(1) as pool:
            for portion in self._portions(inputs, schema, erased, compiled):
                if encoder is None:
                    dictionaries = dictionary_columns(portion, MERGED_SAMPLE) if portion.num_rows else []
                    encoder = Encoder(schema, dictionaries, file_format)
                if writing:
                    writing.result()
                writing = pool.submit(encoder.write, portion)
                kept.add(portion)
            if writing:
                writing.result()
        encoder = encoder or Encoder(schema, [], file_format)
        body = encoder.finish()
        return _EncodedObject(body, kept, erased, column_metrics(encoder.metadata, self._task.metric_columns))

    def _schema(self, inputs: Sequence[Input]) -> pa.Schema:
        """The columns of the object. Erased objects of records keep theirs; merged ones get those of new records."""
        if self._table.join is not None and not self._task.erasures:
            return RecordShape(self._table, self._table.join).stored
        # Objects without rows may have no row group: where there are no others, the definition says the columns.
        return union_schema([entry.schema for entry in inputs] or [schema_of(Layout.of(self._table))], self._table)

    def _portions(
        self, inputs: Sequence[Input], schema: pa.Schema, erased: _RowSum, compiled: bool
    ) -> Iterator[pa.Table]:
        """The rows that stay, in order, by row groups of the object. Erased rows are added up."""
        if self._task.erasures and len(self._task.inputs) == 1:
            return _kept_row_groups(inputs, schema, erased)
        for entry in inputs:
            if entry.erased is not None:
                erased.add(aligned(entry.divided()[1], schema))
        return MergedRows(inputs, schema, self._order(), compiled=compiled).row_groups(MERGED_ROW_GROUP)

    def _order(self) -> Sequence[str]:
        if self._table.join is not None:
            return *self._table.join.key, self._table.partition_column
        return self._table.stored_order

    def _check_sums(self, encoded: _EncodedObject) -> None:
        """Raises InvariantBroken unless the rows are the recorded ones of the inputs."""
        rows = encoded.kept.row_count + encoded.erased.row_count
        found = combine([encoded.kept.fingerprint, encoded.erased.fingerprint])
        recorded = combine(said.fingerprint for said in self._task.inputs)
        if rows != sum(said.row_count for said in self._task.inputs) or found != recorded:
            raise InvariantBroken(f"{self._task.output_key}: its rows are not those of its inputs; nothing was written")

    def _check_inputs(self, inputs: Sequence[Input]) -> None:
        """Raises UnreadInputs for inputs with other rows than recorded. Called after an error, to find its cause."""

        def check(said: DataFile) -> None:
            with reading(said):
                own = [entry for entry in inputs if entry.data_file is said]
                found = checked_fingerprint(lambda: (entry.read_all() for entry in own), said.fingerprint)
                if found != said.fingerprint:
                    advice = "" if self._table.join else ": run `prism repair --deep`"
                    raise InvariantBroken(
                        f"{said.key}: the fingerprint of its rows is {found}, recorded was {said.fingerprint}; "
                        f"nothing was written{advice}"
                    )

        read_all(check, self._task.inputs)

    def _put(self, encoded: _EncodedObject) -> DataFile:
        """Puts the object under its key. A death before the write leaves nothing; after it, an unreferenced object."""
        task, key = self._task, self._task.output_key
        assert key is not None
        failpoint("write.before_put")
        there = put_if_absent(
            self._stores,
            self._lake.bucket,
            key,
            encoded.body,
            kind=task.object_type,
            row_count=encoded.kept.row_count,
            fingerprint=encoded.kept.fingerprint,
            file_format=self._table.file_format,
        )
        failpoint("write.after_put")
        first, last = time_bounds(task.inputs)
        return DataFile(
            bucket=self._lake.bucket,
            key=key,
            content_length=there.content_length,
            row_count=encoded.kept.row_count,
            fingerprint=encoded.kept.fingerprint,
            min_time=first,
            max_time=last,
            file_format=there.file_format,
            metrics=encoded.metrics,
            rows_erased=sum(said.rows_erased for said in task.inputs) + encoded.erased.row_count,
            erased_fingerprint=combine(
                [*(said.erased_fingerprint for said in task.inputs), encoded.erased.fingerprint]
            ),
        )


@dataclass
class _RowSum:
    """Number and fingerprint of some rows."""

    compiled: bool
    """The kernel computes the fingerprint where a process has it."""
    row_count: int = 0
    fingerprint: int = 0

    def add(self, rows: pa.Table) -> None:
        """Adds rows."""
        self.row_count += rows.num_rows
        added = fingerprint_of(rows) if self.compiled else fingerprint_by_columns(rows)
        self.fingerprint = combine([self.fingerprint, added])


@dataclass(frozen=True)
class _EncodedObject:
    """An encoded object before it is stored, and the rows that were read for it."""

    body: pa.Buffer
    kept: _RowSum
    erased: _RowSum
    metrics: tuple[ColumnMetrics, ...]


def _with_counts(result: WriteResult, searched: Sequence[_SearchedInput]) -> WriteResult:
    found = [item.found for item in searched]
    return replace(
        result,
        rows=sum(item.rows for item in found),
        matching=sum(item.matching for item in found),
        matching_last=sum(item.matching_last for item in found),
        undecided=sum(item.undecided for item in found),
        row_groups_read=sum(item.groups_read for item in found),
    )


def _kept_row_groups(inputs: Sequence[Input], schema: pa.Schema, erased: _RowSum) -> Iterator[pa.Table]:
    """The rows of one object that stay, in its own order and row groups: only one of these is in memory at a time.

    An object without rows has one empty row group.
    """
    is_empty = True
    for entry in inputs:
        rows, gone = (aligned(part, schema) for part in entry.divided())
        erased.add(gone)
        if rows.num_rows:
            is_empty = False
            yield rows
    if is_empty:
        yield schema.empty_table()

"""Reads the rows of a staging object: read, compute, keep, type, judge. Other lines are set aside or counted.

Rows that an erasure matches are left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timezone
from typing import Generic, Protocol, TypeVar

import numpy as np

from prism_assets.domain.errors import InvariantBroken, UnsupportedContent
from prism_assets.domain.streams.reasons import ZERO_PADDING
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat, ProtobufFormat
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.streams.topic import Topic
from prism_assets.domain.tables.accepted import DateRange, earliest_change
from prism_assets.domain.text import counted
from prism_assets.domain.work.convert import ConvertTask, QuarantineCount, UndefinedField, ValueErrors
from prism_assets.kernels.compiled import KernelFailed, log_failure
from prism_assets.kernels.documents.scanner import Scanner
from prism_assets.kernels.documents.splitter import make_scanner, split_documents
from prism_assets.kernels.erasing import Erasing
from prism_assets.kernels.expressions.rows import Computation
from prism_assets.kernels.expressions.session import Secrets, secret_of_worker
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.inflate import Inflation, UnsoundError, salvage
from prism_assets.kernels.json.accept import Acceptance, Accepted, Misfit
from prism_assets.kernels.json.blanking import Blanking
from prism_assets.kernels.json.block_reader import BlockReader, Way
from prism_assets.kernels.json.block_rows import BlockRows
from prism_assets.kernels.json.blocks import Block, Lines, LongLine, split
from prism_assets.kernels.json.picks import Facts
from prism_assets.kernels.json.routing import routed_value
from prism_assets.kernels.json.rows import Reject
from prism_assets.kernels.json.undefined import UndefinedFields
from prism_assets.kernels.messages.blocks import LinesOf, SpoolSplitter
from prism_assets.kernels.messages.formats import lines_of
from prism_assets.kernels.messages.samples import as_messages
from prism_assets.kernels.messages.spool_file import SpoolFile, spool_file_of
from prism_assets.kernels.parquet.accepted_rows import Limits
from prism_assets.kernels.parquet.source_rows import lines_of_rows
from prism_assets.kernels.quarantine import Quarantine
from prism_assets.kernels.scope import Scope
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.kernels.text_lines.lines import MakeDivider, divide_lines, make_divider
from prism_assets.kernels.text_lines.read_fields import EVERY_FIELD, read_fields_of
from prism_assets.kernels.typed import Layout
from prism_assets.kernels.values import Number


class Rows(Protocol):
    """Takes the rows of an object, block by block."""

    count: int

    def add(self, accepted: Accepted) -> None:
        """Takes the rows of the next block."""
        ...

    def settle(self) -> None:
        """Called between blocks."""
        ...

    def close(self) -> None:
        """Releases memory and files."""
        ...


_Rows = TypeVar("_Rows", bound=Rows)


class ObjectReading(Generic[_Rows]):
    """The reading of one staging object. After `read_all`, `rows` and `quarantine` have all lines.

    `chunks` opens the object, and `make_rows` makes the receiver of the rows. Both are called again if the object turns
    out to be damaged. With `first` only the first lines are read; with a `scope` some lines are left out.
    """

    def __init__(
        self,
        task: ConvertTask,
        layout: Layout,
        accepted: DateRange,
        chunks: Callable[[], Iterator[bytes]],
        make_rows: Callable[[], _Rows],
        *,
        limits: Limits,
        way: Way = Way.COMPILED,
        first: FirstLines | None = None,
        secret_of: Secrets = secret_of_worker,
        scope: Scope | None = None,
    ) -> None:
        self._task = task
        self._layout = layout
        stream = layout.table.stream_of(task.bucket, task.key)
        self._format = stream.format if stream else None
        self._topic = stream.topic if stream else None
        self._computation = Computation(layout, limits.expression_seconds, secret_of)
        self._acceptance = Acceptance(layout, accepted, earliest_change(layout.table, task))
        self._erasing = Erasing(layout, task, limits.expression_seconds) if task.erasures else None
        self._chunks = chunks
        self._first = first
        self._make_rows = make_rows
        self._way = way
        self._limits = limits
        self._scope = scope
        self._begin()

    def _begin(self) -> None:
        self.rows = self._make_rows()
        url = self._layout.facts["@object"][0]
        blanking = Blanking(self._layout.program, messages=self._layout.messages)
        erasures = [rule.erasure_id for rule in self._task.erasures]
        self.quarantine = Quarantine(self._limits.quarantine, blanking, url, erasures=erasures)
        self.lines_in = 0
        self.compiled_lines = 0
        self.filtered = 0
        self.erased = 0
        self.elsewhere = 0
        self.elsewhere_numbers: list[int] = []
        """The numbers of lines of other tables, where only the first lines are read."""
        self._value_errors: Counter[Misfit] = Counter()
        self._undefined = UndefinedFields()
        if self._scope:
            self._scope.begin()

    def close(self) -> None:
        """Releases memory, temporary files and DuckDB."""
        self._computation.close()
        if self._erasing:
            self._erasing.close()
        self._let_go()

    def _let_go(self) -> None:
        self.rows.close()
        self.quarantine.close()

    def read_all(self) -> None:
        """Reads the whole object. After a failure of the kernel between two blocks, Python reads it from its beginning.

        Raises InvariantBroken if a line is lost: no row, set aside, filtered, erased or elsewhere. Raises
        UnsupportedContent if the format cannot be read. A scope may raise errors of its own.
        """
        try:
            self._read_once()
        except KernelFailed as failure:
            log_failure("reads an object from its beginning", failure)
            self._let_go()
            self._way = Way.LINES
            self._begin()
            self._read_once()

    def _read_once(self) -> None:
        reader = BlockReader(self._layout.reading, self._way)
        with self._naming_object():
            spool, pieces = (None, self._chunks()) if self._topic is None else spool_file_of(self._chunks())
            if spool is None or self._topic is None:
                self._read_content(pieces, reader)
            else:
                for part in self._split_spool(spool, self._topic):
                    self._read(part, reader)
        self._check_balance()
        if self._scope:
            self._scope.check()

    def _read_content(self, pieces: Iterator[bytes], reader: BlockReader) -> None:
        """Reads an object that may be compressed, and sets all of its lines aside if it is damaged."""
        inflation = Inflation(pieces, binary=isinstance(self._format, ParquetFormat | ProtobufFormat))
        try:
            parts = self._split(inflation)
            if self._topic is not None:
                around = self._layout.reading.lookups.around
                parts = as_messages(parts, self._topic.name, self._task.received, around)
            for part in parts:
                self._read(part, reader)
            if self._first is None or not self._first.is_cut:
                self._set_garbage_aside(inflation)
        except UnsoundError as unsound:
            self._set_all_aside(unsound)

    @contextmanager
    def _naming_object(self) -> Iterator[None]:
        try:
            yield
        except (UnsupportedContent, InvariantBroken) as error:
            raise type(error)(f"s3://{self._task.bucket}/{self._task.key}: {error}") from None

    def _split_spool(self, spool: SpoolFile, topic: Topic) -> Iterator[Block | LongLine]:
        """Splits a spool object into messages."""
        splitter = SpoolSplitter(
            spool, self._lines_of_messages(), topic.tombstones, self._layout.reading.lookups.around
        )
        return splitter.parts() if self._first is None else self._first.split_spool(splitter)

    def _lines_of_messages(self) -> LinesOf:
        form = self._format
        read_fields = read_fields_of(self._layout, form) if isinstance(form, TextFormat) else EVERY_FIELD
        return lines_of(form, self._make_divider(), read_fields, self._fields_of_protobuf())

    def _make_divider(self) -> MakeDivider:
        return Divider if self._way is Way.LINES else make_divider()

    def _split(self, pieces: Iterable[bytes]) -> Iterator[Block | LongLine]:
        """Splits the content into lines, records, rows or messages, as the format of the stream says."""
        lookups = self._layout.reading.lookups
        if self._format is None or isinstance(self._format, ParquetFormat | TextFormat):
            if isinstance(self._format, ParquetFormat):
                pieces = lines_of_rows(pieces)
            lines = split(pieces) if self._first is None else self._first.split(pieces)
            if not isinstance(self._format, TextFormat):
                return lines
            read_fields = read_fields_of(self._layout, self._format)
            return divide_lines(lines, self._format, read_fields, self.quarantine.note, make=self._make_divider())
        if isinstance(self._format, DocumentFormat):
            outer = lookups.around.outer
            make = Scanner if self._way is Way.LINES else make_scanner()
            if self._first is not None:
                return self._first.split_documents(pieces, self._format.steps, outer, make)
            return split_documents(pieces, self._format.steps, outer, make=make)
        # Only workers with a stream of protobuf import it.
        from prism_assets.kernels.protobuf.blocks import split_messages
        from prism_assets.kernels.protobuf.messages import MessageType

        messages = MessageType(self._format, self._fields_of_protobuf())
        if self._first is None:
            return split_messages(pieces, messages)
        return self._first.split_messages(pieces, messages)

    def _fields_of_protobuf(self) -> Container[str] | None:
        """Returns the fields that the table reads, or None for all.

        With a route, all tables of the group read all fields: otherwise a message may be unreadable for one alone.
        """
        lookups = self._layout.reading.lookups
        whole = lookups.collects or self._layout.freezes or self._layout.route is not None
        return None if whole else lookups.wanted

    def quarantined(self) -> tuple[QuarantineCount, ...]:
        """Returns the number of lines set aside, by reason."""
        counts = sorted(self.quarantine.counts.items())
        return tuple(QuarantineCount(reason=reason, line_count=count) for reason, count in counts)

    def value_errors(self) -> tuple[ValueErrors, ...]:
        """Returns the number of values that did not fit, by column and reason."""
        names = [column.name for column in self._layout.program.columns]
        counts = sorted(
            (names[column] + path, reason, count) for (column, path, reason), count in self._value_errors.items()
        )
        return tuple(ValueErrors(column=name, reason=reason, count=count) for name, reason, count in counts if count)

    def undefined(self) -> tuple[UndefinedField, ...]:
        """Returns the fields without a column, by place, key and kind."""
        found = sorted(
            (within, key, kind.value, count, line)
            for (within, key, kind), (count, line) in self._undefined.found.items()
        )
        return tuple(
            UndefinedField(key=key, within=within, kind=kind, count=count, line=line)
            for within, key, kind, count, line in found
        )

    def _read(self, part: Block | LongLine, reader: BlockReader) -> None:
        if isinstance(part, LongLine):
            if self._takes_unread(part.line):
                self.quarantine.add_long(part)
            return
        if part.filtered:
            self.lines_in += len(part.filtered)
            self.filtered += sum(self._kept_numbers(part.filtered))
        for read in reader.read_parts(part):
            self._take(read, part)
        kept = self._kept_numbers([unread.number for unread in part.unread])
        for unread, is_kept in zip(part.unread, kept, strict=True):
            if not is_kept:
                self.lines_in += 1
            elif self._takes_unread(unread.number, unread.original.content):
                self.quarantine.add_unread(unread.number, unread.reason, unread.original)

    def _take(self, read: BlockRows, part: Block) -> None:
        """Takes over rows and rejects of a part of a block."""
        rejects = list(read.rejects)
        kept = None if self._scope is None else self._scope.keeps(read.lines.numbers)
        others = read.elsewhere if kept is None else read.elsewhere[kept[read.elsewhere]]
        self.elsewhere += len(others)
        if self._first is not None:  # the numbers of millions of lines would take long
            self.elsewhere_numbers += read.lines.numbers[others].tolist()
        for rows in read.parts:
            computed = self._computation.compute(rows)
            self.filtered += len(computed.filtered) if kept is None else int(kept[computed.filtered].sum())
            rejects.extend(computed.rejects)
            accepted, rejected = self._acceptance.divide(computed.rows, read.lines.numbers)
            rejects.extend(rejected)
            if self._scope:
                accepted, elsewhere = self._scope.narrow(accepted, read.lines.numbers)
                rejects.extend(elsewhere)
            if self._erasing:  # after the scope: the predicate is not held against rows of other days
                accepted, erased = self._erasing.left(accepted)
                self.erased += erased
            self.rows.add(accepted)
            self._value_errors.update(accepted.value_errors)
        if kept is not None:
            rejects = [reject for reject in rejects if kept[reject.line]]
        self.rows.settle()
        self._undefined.update(read.undefined)
        self.lines_in += len(read.lines)
        self.compiled_lines += read.compiled
        self._set_aside(sorted(rejects, key=lambda reject: reject.line), part, read.lines)

    def _kept_numbers(self, numbers: Sequence[int]) -> Iterable[bool]:
        """Returns which lines without a row the scope keeps.

        A line that the current format does not fit, or that the stream filters by now, may be a row of another day,
        made under an earlier definition.
        """
        if self._scope is None:
            return [True] * len(numbers)
        kept: Iterable[bool] = self._scope.keeps(np.array(numbers, np.int64)).tolist()
        return kept

    def _takes_unread(self, number: int | None, content: bytes = b"") -> bool:
        """Counts an unread line. Returns whether this table has it. Lines of other tables count as elsewhere, too.

        A record may be sound, and only the values around it are not: then its own content decides, as it does in tables
        that do not read these values.
        """
        self.lines_in += 1
        route = self._layout.route
        owns = route is None or route.takes_value(routed_value(route, content))
        if not owns:
            self.elsewhere += 1
            self.elsewhere_numbers += [] if number is None or self._first is None else [number]
        return owns

    def _set_aside(self, rejects: Sequence[Reject], part: Block, lines: Lines) -> None:
        if not rejects:
            return
        originals = [
            part.original(int(lines.numbers[line]), int(lines.starts[line]), int(lines.ends[line]))
            for line in (reject.line for reject in rejects)
        ]
        judged = self._erasing.judge([original.content for original in originals]) if self._erasing else None
        for place, (reject, original) in enumerate(zip(rejects, originals, strict=True)):
            if judged is not None and judged.matching[place]:
                self.erased += 1
                continue
            withheld = judged is not None and bool(judged.undecided[place])
            number = int(lines.numbers[reject.line])
            self.quarantine.add(number, reject.reason, reject.column, original, withheld=withheld)

    def _set_all_aside(self, unsound: UnsoundError) -> None:
        """Reads the object once more and sets all of its lines aside."""
        self._let_go()
        self._begin()
        self.quarantine.note(unsound.reason)
        for part in self._split(salvage(self._chunks(), unsound.offset)):
            if isinstance(part, LongLine):
                if self._takes_unread(part.line):
                    self.quarantine.add_long(part, unsound.reason)
                continue
            for number, original in part.originals():
                if self._takes_unread(number):
                    self.quarantine.add_unread(number, unsound.reason, original)

    def _set_garbage_aside(self, inflation: Inflation) -> None:
        """Sets aside the bytes after the last member, each piece as one line. Zeros alone give a remark and no line."""
        for garbage in inflation.garbage():
            if self._takes_unread(None):
                self.quarantine.add_garbage(garbage)
        if inflation.padding:
            self.quarantine.note(ZERO_PADDING)

    def _check_balance(self) -> None:
        """Raises InvariantBroken unless each line is a row, in quarantine, filtered, erased or elsewhere.

        Then nothing is written: a part of an object would be a loss without a trace.
        """
        lines, rows, others = self.lines_in, self.rows.count, self.quarantine.counts.total()
        left = self._scope.left if self._scope else 0
        if lines != rows + others + self.filtered + self.erased + self.elsewhere + left:
            where = f"s3://{self._task.bucket}/{self._task.key}"
            elsewhere = f", {self.elsewhere} of other tables" if self.elsewhere else ""
            elsewhere += f", {counted(left, 'row')} of other days" if left else ""
            raise InvariantBroken(
                f"{where}: {counted(lines, 'line')} in, {counted(rows, 'row')}, {others} quarantined, "
                f"{self.filtered} filtered and {self.erased} erased{elsewhere}; nothing was written"
            )


def facts_of(task: ConvertTask) -> Facts:
    """Returns the facts that all lines of an object share. Keys of S3 may hold bytes that are no text."""
    received = task.received.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    url = f"s3://{task.bucket}/{task.key}".encode(errors="replace").decode()
    facts = {"@stream": task.stream_name, "@object": url, "@received": received}
    number = str(task.staging_object_id)
    return {"@object_id": (Number(number), number), **{name: (text, json.dumps(text)) for name, text in facts.items()}}

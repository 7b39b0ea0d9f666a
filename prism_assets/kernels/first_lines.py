"""Reads only the first lines of an object, for samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from prism_assets.domain.streams.documents import RecordSteps
from prism_assets.domain.streams.sources import Outer
from prism_assets.domain.streams.stream import DocumentFormat, Format, ParquetFormat
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.kernels.documents.splitter import MakeScanner, split_documents
from prism_assets.kernels.json.blocks import LINE_LIMIT, Block, LongLine, split
from prism_assets.kernels.parquet.source_rows import lines_of_rows
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.kernels.text_lines.lines import divide_lines

if TYPE_CHECKING:
    from prism_assets.kernels.messages.blocks import SpoolSplitter
    from prism_assets.kernels.protobuf.messages import MessageType

_LINE_END = re.compile(rb"\n")


class FirstLines:
    """Takes whole lines from the beginning of an object, up to a number of bytes or lines.

    Drops an incomplete last line unless it is too long anyway. `is_cut`: the object may contain more.
    """

    def __init__(self, most_bytes: int, most_lines: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._most_lines = most_lines
        self.is_cut = False

    def split(self, pieces: Iterable[bytes], form: Format | None = None) -> Iterator[Block | LongLine]:
        """Yields the lines as a reading of the whole object would: records of documents, and all fields of text."""
        if isinstance(form, DocumentFormat):
            yield from self.split_documents(pieces, form.steps)
            return
        self.is_cut = False
        with suppress(_EnoughError):
            lines = split(self._bounded(lines_of_rows(pieces) if isinstance(form, ParquetFormat) else pieces))
            yield from divide_lines(lines, form, make=Divider) if isinstance(form, TextFormat) else lines

    def split_messages(self, pieces: Iterable[bytes], message_type: MessageType) -> Iterator[Block | LongLine]:
        """Yields the lines of an object of protobuf messages."""
        # Only workers with a stream of protobuf import it.
        from prism_assets.kernels.protobuf.blocks import split_messages

        self.is_cut = False
        with suppress(_EnoughError):
            yield from split_messages(self._bounded_bytes(pieces), message_type, self._most_lines)
            self.is_cut = self._most_lines is not None  # the object may have ended there

    def split_documents(
        self,
        pieces: Iterable[bytes],
        steps: RecordSteps,
        outer: Sequence[Outer] = (),
        make: MakeScanner | None = None,
    ) -> Iterator[Block | LongLine]:
        """Yields the records of documents. Values around the records that lie after the limit are missing."""
        self.is_cut = False
        bounded = self._until_enough(pieces)
        yield from split_documents(bounded, steps, outer, most=self._most_lines, is_cut=lambda: self.is_cut, make=make)
        self.is_cut = self.is_cut or self._most_lines is not None  # the object may have ended there

    def split_spool(self, splitter: SpoolSplitter) -> Iterator[Block | LongLine]:
        """Yields the messages of a spool object."""
        self.is_cut = False
        left = self._most_bytes
        for part in splitter.parts(self._most_lines):
            yield part
            left -= len(part.data) if isinstance(part, Block) else part.length
            if left <= 0:
                self.is_cut = True
                return
        self.is_cut = self._most_lines is not None  # the object may have ended there

    def _until_enough(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        with suppress(_EnoughError):
            yield from self._bounded_bytes(pieces)

    def _bounded_bytes(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        most = self._most_bytes
        for piece in pieces:
            yield piece[:most]
            most -= len(piece)
            if most <= 0:
                self.is_cut = True
                raise _EnoughError

    def _bounded(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        most, lines = self._most_bytes, self._most_lines
        under_way = 0  # bytes of the incomplete line
        for piece in pieces:
            first = piece[:most]
            if lines is not None:
                ends = [match.end() for match in islice(_LINE_END.finditer(first), lines)]
                lines -= len(ends)
                if not lines:
                    self.is_cut = True
                    yield first[: ends[-1]]
                    return
            yield first
            most -= len(first)
            end = first.rfind(b"\n") + 1
            under_way = len(first) - end + (0 if end else under_way)
            if most <= 0:
                self.is_cut = True
                if under_way > LINE_LIMIT:
                    return
                raise _EnoughError


class _EnoughError(Exception):
    """The limit is reached. An exception, so that the incomplete line is dropped."""

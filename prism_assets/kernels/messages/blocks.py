"""Spool objects as blocks of lines, so that later code reads and counts messages as lines.

The number of a line is the place of its message in the object, from 1. A raw newline in a value becomes a space, which
changes no JSON. A value that cannot be a line becomes a blank one and is quarantined alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from prism_assets.domain.streams.reasons import BAD_JSON, BAD_MESSAGE, BAD_TEXT, TOMBSTONE
from prism_assets.domain.streams.text_lines import CsvFormat, TextFormat
from prism_assets.domain.streams.topic import Tombstones
from prism_assets.kernels.json.blocks import LINE_LIMIT, Block, LongLine, Original, Positions, Unread, Whole
from prism_assets.kernels.json.picks import Around
from prism_assets.kernels.messages.columns import outer_values
from prism_assets.kernels.messages.facts import MessageFacts, joined_column
from prism_assets.kernels.messages.framing import MAGIC, MAGIC_BYTES, TooLongError, unframed
from prism_assets.kernels.messages.spool_file import SpoolFile
from prism_assets.kernels.messages.values import Values
from prism_assets.kernels.text_lines.lines import MakeDivider
from prism_assets.kernels.text_lines.read_fields import ReadFields

_BLOCK = 4 << 20
_BLANKS = b" \t\r\n"
_NOTHING = b"{}"
"""The line of a tombstone that is a row."""


@dataclass(frozen=True)
class SpoolBlock(Block):
    """Messages as lines."""

    values: Values = field(default_factory=lambda: Values.of(()))
    """The values of the messages without framing, from number `first_line` on."""
    positions: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    """Bytes of the values before each message of the object."""
    whole: Whole = bytes

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns a quarantined message with all its fields, with or without a column."""
        original = self._piece(number - self.first_line)
        return Original(self.whole(original.content), original.offset, original.length)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all messages."""
        for place in range(len(self.values)):
            yield self.first_line + place, self._piece(place)

    def without(self, broken: Mapping[int, str]) -> SpoolBlock:
        """Returns the block with messages that are no lines: the reason of each, by its place."""
        unread = (
            Unread(self.first_line + place, reason, self._piece(place)) for place, reason in sorted(broken.items())
        )
        return replace(self, unread=tuple(unread)) if broken else self

    def _piece(self, place: int) -> Original:
        content = self.values.at(place)
        return Original(content, int(self.positions[place]), len(content))


@dataclass(frozen=True)
class AsLines:
    """Values as lines. An unreadable value is a blank line, with a reason by place."""

    data: bytes
    broken: dict[int, str]
    whole: Whole = bytes


class LinesOf(Protocol):
    """Makes lines of values. None is a tombstone; its line is `b"{}"` or blank."""

    is_framed: bool
    """Whether values may have the framing of a schema registry."""
    is_protobuf: bool

    def lines(self, values: Values, tombstone: bytes) -> AsLines:
        """Returns the lines of some messages, each with its end."""
        ...


class JsonLines:
    """Values are lines of JSON."""

    is_framed = True
    is_protobuf = False

    def lines(self, values: Values, tombstone: bytes) -> AsLines:
        """Returns the lines of some messages, each with its end."""
        if (data := values.joined()) is not None:
            return AsLines(data, {})
        items = values.items
        broken = {place: BAD_JSON for place, value in enumerate(items) if value is not None and _is_blank(value)}
        lines = [tombstone if value is None else _one_line(value) for value in items]
        for place in broken:
            lines[place] = b""
        return AsLines(b"\n".join([*lines, b""]), broken)


class TextLines:
    """Values are lines of text, which a divider divides into fields. Text has no framing."""

    is_framed = False
    is_protobuf = False

    def __init__(self, form: TextFormat, read_fields: ReadFields, make: MakeDivider) -> None:
        names = form.columns if isinstance(form, CsvFormat) else ()
        self._divider = make(form, names, read_fields)

    def lines(self, values: Values, tombstone: bytes) -> AsLines:
        """Returns the lines of some messages, each with its end."""
        items = values.items
        texts = [b"" if value is None else _one_line(_without_end(value)) for value in items]
        divided = self._divider.divide(Block(b"\n".join([*texts, b""]), 1), 1)
        broken = {unread.number - 1: unread.reason for unread in divided.unread}
        for place, text in enumerate(texts):
            if not text.removesuffix(b"\r") and items[place] is not None:
                broken[place] = BAD_TEXT
        data, whole = divided.data, divided.whole
        if tombstone and values.tombstones:
            lines = data.split(b"\n")
            data = b"\n".join(
                tombstone if value is None else lines[place] if place < len(lines) else b""
                for place, value in enumerate(items)
            )
        return AsLines(data, broken, lambda value: whole(_one_line(_without_end(value))))


class ProtobufLines:
    """Values are messages of protobuf, without a length before them."""

    is_framed = True
    is_protobuf = True

    def __init__(self, to_json: Whole, to_whole_json: Whole, unreadable: type[Exception]) -> None:
        self._to_json = to_json
        self._to_whole_json = to_whole_json
        self._unreadable = unreadable

    def lines(self, values: Values, tombstone: bytes) -> AsLines:
        """Returns the lines of some messages, each with its end."""
        lines: list[bytes] = []
        broken: dict[int, str] = {}
        for place, value in enumerate(values.items):
            try:
                lines.append(tombstone if value is None else self._to_json(value))
            except self._unreadable:
                broken[place] = BAD_MESSAGE
                lines.append(b"")
        return AsLines(b"\n".join([*lines, b""]), broken, self._whole)

    def _whole(self, value: bytes) -> bytes:
        try:
            return self._to_whole_json(value)
        except self._unreadable:  # because of a field without a column
            return value


class SpoolSplitter:
    """Splits one spool object into blocks of lines."""

    def __init__(self, spool: SpoolFile, lines: LinesOf, tombstones: Tombstones, around: Around) -> None:
        self._spool = spool
        self._lines = lines
        self._tombstones = tombstones
        self._around = around
        self._number = 1
        self._position = 0

    def parts(self, most: int | None = None) -> Iterator[Block | LongLine]:
        """Yields the messages, at most `most`. Raises InvariantBroken for a damaged object."""
        for group in self._spool.row_groups():
            left = len(group) if most is None else min(len(group), most + 1 - self._number)
            yield from self._split(group.slice(0, left))
            if most is not None and self._number > most:
                return

    def _split(self, group: pa.Table) -> Iterator[Block | LongLine]:
        values = Values(joined_column(group.column("value")))
        lengths = values.lengths
        if len(values) and lengths.max() <= LINE_LIMIT and not self._may_be_framed(values):
            yield self._block(group, values, lengths, None)
            return
        start, size = 0, 0
        held: list[bytes | None] = []
        ids: list[str | None] = []
        for place, value in enumerate(values.items):
            content, schema_id, is_long = self._unframed(value)
            if is_long or size >= _BLOCK:
                if held:
                    yield self._block(group.slice(start, len(held)), Values.of(held), lengths[start:place], ids)
                start, size, held, ids = place, 0, [], []
            if is_long:
                yield self._long(value or b"")
                start += 1
                continue
            held.append(content)
            ids.append(schema_id)
            size += len(content or b"")
        if held:
            yield self._block(group.slice(start, len(held)), Values.of(held), lengths[start:], ids)

    def _may_be_framed(self, values: Values) -> bool:
        return self._lines.is_framed and bool(np.isin(values.heads, MAGIC_BYTES).any())

    def _unframed(self, value: bytes | None) -> tuple[bytes | None, str | None, bool]:
        """Returns content and schema id of a value, and whether the value is too long for a line."""
        if value is None or len(value) > LINE_LIMIT:
            return value, None, value is not None
        if not self._lines.is_framed or value[:1] not in MAGIC:
            return value, None, False
        try:
            return *unframed(value, is_protobuf=self._lines.is_protobuf), False
        except TooLongError:
            return None, None, True

    def _long(self, value: bytes) -> LongLine:
        number, position = self._number, self._position
        self._number += 1
        self._position += len(value)
        return LongLine(number, value[:LINE_LIMIT], len(value), position)

    def _block(
        self, group: pa.Table, values: Values, lengths: Positions, ids: Sequence[str | None] | None
    ) -> SpoolBlock:
        """Returns the block of consecutive messages. `lengths` are those of the values with their framing."""
        first, positions = self._number, self._position + np.cumsum(lengths) - lengths
        self._number += len(values)
        self._position += int(lengths.sum())
        facts = MessageFacts(first, group, self._spool.origin.topic, ids if ids and any(ids) else None)
        made = self._lines.lines(values, _NOTHING if self._tombstones == "row" else b"")
        reasons = dict(made.broken)
        filtered: tuple[int, ...] = ()
        if self._tombstones != "row":
            tombstones = values.tombstones
            filtered = tuple(first + place for place in tombstones) if self._tombstones == "filter" else ()
            reasons |= {} if filtered else dict.fromkeys(tombstones, TOMBSTONE)
        block = SpoolBlock(
            data=made.data,
            first_line=first,
            outer=outer_values(facts, self._around),
            messages=facts,
            filtered=filtered,
            values=values,
            positions=positions,
            whole=made.whole,
        )
        return block.without(reasons)


def _is_blank(value: bytes) -> bool:
    return not value.strip(_BLANKS)


def _one_line(value: bytes) -> bytes:
    return value.replace(b"\n", b" ")


def _without_end(value: bytes) -> bytes:
    return value[:-1] if value.endswith(b"\n") else value

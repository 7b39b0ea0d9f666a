"""Blocks of messages as JSON lines, so later code reads and counts them as lines.

Each message follows its length as a varint, the format of `writeDelimitedTo` in protobuf's libraries. Its number is the
number of its line. An unreadable message becomes a blank line and is quarantined alone. After an invalid length the
messages cannot be separated, so the rest of the object is one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prism_assets.domain.streams.reasons import BAD_FRAMING, BAD_MESSAGE
from prism_assets.kernels.json.blocks import LINE_LIMIT, Block, LongLine, Original, Unread
from prism_assets.kernels.protobuf.messages import MessageType, UnreadableError

_BLOCK = 4 << 20
_BLOCK_MESSAGES = 1 << 16
_VARINT_BYTES = 10
_MOST_BYTES = (1 << 31) - 1
_KEPT = LINE_LIMIT + _VARINT_BYTES


@dataclass(frozen=True)
class MessageBlock(Block):
    """Messages as lines."""

    content: bytes = b""
    """The bytes of the messages, which begin at `offset`."""
    frames: tuple[tuple[int, int], ...] = ()
    """Start and end of each message in `content`."""
    to_whole_json: Callable[[bytes], bytes] = bytes

    def original(self, number: int, start: int, end: int) -> Original:
        """Returns a quarantined message with all its fields, with or without a column."""
        begin, stop = self.frames[number - self.first_line]
        content = self.content[begin:stop]
        try:
            kept = self.to_whole_json(content)
        except UnreadableError:  # because of a field without a column
            kept = content
        return Original(kept, self.offset + begin, stop - begin)

    def originals(self) -> Iterator[tuple[int, Original]]:
        """Yields all messages as bytes."""
        for number, (begin, stop) in enumerate(self.frames, self.first_line):
            yield number, Original(self.content[begin:stop], self.offset + begin, stop - begin)


def split_messages(
    pieces: Iterable[bytes], message_type: MessageType, most: int | None = None
) -> Iterator[MessageBlock | LongLine]:
    """Cuts a stream of bytes into blocks of messages, at most `most` messages. Limits the length of one message."""
    frames = _Frames(pieces)
    number = 1
    while (most is None or number <= most) and frames.fill(1):
        left = _BLOCK_MESSAGES if most is None else min(_BLOCK_MESSAGES, most - number + 1)
        part = frames.next_block(number, message_type, left) or frames.pass_over_next(number)
        yield part
        number += len(part.frames) if isinstance(part, MessageBlock) else 1


class _Frames:
    """Bytes not yet cut into messages. The next length is at `_data[_at]`."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._data = b""
        self._at = 0
        self._offset = 0
        """The position of `_data` in the object's content."""

    def fill(self, count: int) -> bool:
        """Reads until `count` bytes follow the next length's start. Returns whether there are enough."""
        if len(self._data) - self._at >= count:
            return True
        parts, held = [self._data[self._at :]], len(self._data) - self._at
        while held < count:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            held += len(piece)
        self._offset += self._at
        self._data, self._at = b"".join(parts), 0
        return held >= count

    def next_block(self, first: int, message_type: MessageType, most: int) -> MessageBlock | None:
        """Returns the messages that are completely buffered, or None if the next one is too long."""
        length, begin = self._length()
        if length is None or length > LINE_LIMIT or not self.fill(begin + length):
            return None
        data, start, position = self._data, self._at, self._at
        frames: list[tuple[int, int]] = []
        lines: list[bytes] = []
        unread: list[Unread] = []
        size, to_json = 0, message_type.to_json
        while size < _BLOCK and len(frames) < most:
            found, count = _varint(data, position)
            begin = position + count
            if found is None or begin + found > len(data):
                break
            position = begin + found
            content = data[begin:position]
            try:
                line = to_json(content)
            except UnreadableError:
                unread.append(Unread(first + len(frames), BAD_MESSAGE, Original(content, self._offset + begin, found)))
                line = b""
            lines.append(line)
            frames.append((begin - start, position - start))
            size += len(line) + found
        self._at = position
        return MessageBlock(
            data=b"\n".join([*lines, b""]),
            first_line=first,
            offset=self._offset + start,
            unread=tuple(unread),
            content=data[start:position],
            frames=tuple(frames),
            to_whole_json=message_type.to_whole_json,
        )

    def pass_over_next(self, number: int) -> LongLine:
        """Skips the next message if it is too long, or the rest of the object after an invalid length."""
        length, begin = self._length()
        offset = self._offset + self._at
        whole = begin + length if length is not None else None
        head, passed = self._pass_over(whole)
        if length is None or passed < begin + length:
            return LongLine(number, head[:LINE_LIMIT], passed, offset, BAD_FRAMING)
        return LongLine(number, head[begin : begin + LINE_LIMIT], length, offset + begin)

    def _length(self) -> tuple[int | None, int]:
        """Returns the next length and how many bytes it takes. The length is None if it is invalid."""
        self.fill(_VARINT_BYTES)
        return _varint(self._data, self._at)

    def _pass_over(self, count: int | None) -> tuple[bytes, int]:
        """Skips `count` bytes, or all. Returns how many, and the first 16 MiB with a preceding length."""
        head, passed = bytearray(), 0
        while (count is None or passed < count) and self.fill(1):
            taken = self._data[self._at :] if count is None else self._data[self._at : self._at + count - passed]
            head += taken[: _KEPT - len(head)]
            passed += len(taken)
            self._at += len(taken)
        return bytes(head), passed


def _varint(data: bytes, position: int) -> tuple[int | None, int]:
    """Returns the number at a position and how many bytes it takes. The number is None if it is incomplete or too
    large.
    """
    if position < len(data) and data[position] < 0x80:
        return data[position], 1
    value = shift = 0
    for count in range(1, _VARINT_BYTES + 1):
        if position + count > len(data):
            return None, count
        byte = data[position + count - 1]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value if value <= _MOST_BYTES else None), count
        shift += 7
    return None, _VARINT_BYTES

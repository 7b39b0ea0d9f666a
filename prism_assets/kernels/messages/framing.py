"""Takes the framing of a schema registry off a value. The first byte tells it: neither JSON nor protobuf begins so.

- Confluent: 0, and the id of the schema in 4 bytes. For protobuf, the path of the message type follows.
- AWS Glue: 3, the compression (0: none, 5: zlib), and the UUID of the schema. For protobuf, the content begins with the
  number of the message type.

No registry is asked. A column may read the id of the schema.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple
from uuid import UUID

from prism_assets.kernels.json.blocks import LINE_LIMIT

_CONFLUENT, _GLUE = 0, 3
MAGIC_BYTES = (_CONFLUENT, _GLUE)
MAGIC = frozenset(bytes([byte]) for byte in MAGIC_BYTES)
"""The first bytes of values with a framing."""
_CONFLUENT_HEAD, _GLUE_HEAD = 5, 18
_PLAIN, _ZLIB = 0, 5
_MOST_INDEXES = 64
"""Types are nested in one another. The limit only bounds the work for bytes that are no framing."""


class Unframed(NamedTuple):
    """A value without its framing, and the id of its schema."""

    content: bytes
    schema_id: str | None


class TooLongError(Exception):
    """The value is longer than a line may be once it is decompressed."""


def unframed(value: bytes, *, is_protobuf: bool) -> Unframed:
    """Returns a value without its framing, or as it is if the bytes are no framing after all.

    Raises TooLongError.
    """
    if value[0] == _CONFLUENT and len(value) >= _CONFLUENT_HEAD:
        start: int | None = _CONFLUENT_HEAD
        if is_protobuf:
            start = _after_indexes(value, _CONFLUENT_HEAD)
        if start is not None:
            return Unframed(value[start:], str(int.from_bytes(value[1:_CONFLUENT_HEAD], "big")))
    if value[0] == _GLUE and len(value) >= _GLUE_HEAD:
        content = _decompressed(value)
        start = 0
        if content is not None and is_protobuf:
            start = _varint(content, 0)[1]
        if content is not None and start is not None:
            return Unframed(content[start:], str(UUID(bytes=value[2:_GLUE_HEAD])))
    return Unframed(value, None)


def _decompressed(value: bytes) -> bytes | None:
    """Returns the content of a value of Glue, or None if it is damaged."""
    if value[1] == _PLAIN:
        return value[_GLUE_HEAD:]
    if value[1] != _ZLIB:
        return None
    inflation = zlib.decompressobj()
    try:
        content = inflation.decompress(memoryview(value)[_GLUE_HEAD:], LINE_LIMIT + 1)
    except zlib.error:
        return None
    if len(content) > LINE_LIMIT:
        raise TooLongError
    return content if inflation.eof else None


def _after_indexes(value: bytes, start: int) -> int | None:
    """Returns the place after the path of the message type, or None if there is none.

    The path has the number of its indexes first. The usual path, the first type of the file, is a single 0.
    """
    count, at = _varint(value, start)
    if at is None or count % 2 or count // 2 > _MOST_INDEXES:
        return None
    for _ in range(count // 2):
        _, at = _varint(value, at)
        if at is None:
            return None
    return at


def _varint(data: bytes, start: int) -> tuple[int, int | None]:
    """Returns the varint at a place and the place after it; None if it does not end within 32 bits."""
    value = 0
    for number, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, start + number + 1
    return value, None

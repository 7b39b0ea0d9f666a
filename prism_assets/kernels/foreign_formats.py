"""Recognizes formats that cannot be read by the first bytes of an object, or of its decompressed content.

Without this check, the bytes would be set aside as thousands of broken lines. One error names the format instead, and
the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.errors import UnsupportedContent

HEAD = 64
"""Bytes that are enough to recognize a format."""
_COMPRESSED = (
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
)
_FILES = ((b"PAR1", "Parquet"), (b"PARE", "Parquet"), (b"ORC", "ORC"), (b"Obj\x01", "Avro"))
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_TEXT = frozenset(b"\t\n\r")
_LEAVE_OUT = "or leave such keys out with `exclude` of the stream"


def check_format(head: bytes, outer: str | None = None) -> None:
    """Raises UnsupportedContent if the first bytes belong to a format that cannot be read.

    `outer` is the compression around the bytes. A magic number of letters counts only where no text follows.
    """
    within = f" within {outer}" if outer else ""
    for magic, name in _COMPRESSED:
        if head.startswith(magic) and (name != "bzip2" or head[4:10] in _BZIP2_BLOCKS):
            raise UnsupportedContent(
                f"it is compressed with {name}{within}, which is not read: write it again plain, with gzip or with "
                f"zstd, {_LEAVE_OUT}"
            )
    for magic, name in _FILES:
        if head.startswith(magic) and not _is_text(head):
            is_parquet = magic == b"PAR1"
            read = (
                "write `format: parquet` below the stream"
                if is_parquet
                else "write it again with one JSON object a line"
            )
            raise UnsupportedContent(f"it is a file of {name}{within}, and no JSON: {read}, {_LEAVE_OUT}")
    inner = "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else None
    if outer and inner:
        raise UnsupportedContent(
            f"it is {inner} within {outer}, which is not read, as only gzip is read within another layer, and only "
            f"once: have its writer compress once, and write it again, {_LEAVE_OUT}"
        )


def checked(pieces: Iterator[bytes], outer: str | None) -> Iterator[bytes]:
    """Passes pieces on. Raises UnsupportedContent if they begin like a format that cannot be read."""
    for piece in pieces:
        if piece:
            check_format(piece[:HEAD], outer)
            yield piece
            break
    yield from pieces


def _is_text(head: bytes) -> bool:
    return all(byte >= 0x20 or byte in _TEXT for byte in head)

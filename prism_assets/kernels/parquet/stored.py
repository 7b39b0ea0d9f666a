"""Opens stored Parquet objects. Refuses objects that differ from the record."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.text import counted
from prism_assets.objectstore.ranged import RangedObject
from prism_assets.objectstore.stores import Stores

READ_WHOLE = 4 << 20
"""Objects of at most this many bytes are read with one request, longer ones in ranges."""


@dataclass(frozen=True)
class StoredFile:
    """An open object, with all bytes if the whole object was read."""

    file: pq.ParquetFile
    body: bytes | None

    @classmethod
    def opened(cls, recorded: DataFile, stores: Stores) -> StoredFile:
        """Opens an object and reads the footer. Raises InvariantBroken if length or rows differ from the record."""
        if recorded.content_length <= READ_WHOLE:
            return cls.of_body(recorded, read_whole(recorded, stores))
        ranged = RangedObject(stores, recorded.bucket, recorded.key, recorded.content_length)
        return cls(open_file(recorded, pa.PythonFile(ranged, "r")), None)

    @classmethod
    def of_body(cls, recorded: DataFile, body: bytes) -> StoredFile:
        """Opens an object in memory."""
        return cls(open_file(recorded, pa.BufferReader(body)), body)


def read_whole(recorded: DataFile, stores: Stores) -> bytes:
    """Returns the bytes of an object. Raises InvariantBroken if there are more or fewer than recorded."""
    body = stores.get(recorded.bucket, recorded.key, length=recorded.content_length)
    if len(body) != recorded.content_length:
        raise InvariantBroken(f"{recorded.key}: it has {len(body)} bytes, recorded were {recorded.content_length}")
    return body


def open_file(recorded: DataFile, source: pa.NativeFile) -> pq.ParquetFile:
    """Opens a recorded object.

    Raises InvariantBroken without a footer, or if the number of rows differs from the record. A negative number on
    record means unknown.
    """
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid:
        raise InvariantBroken(f"{recorded.key}: it is no readable Parquet object") from None
    if recorded.row_count >= 0 and file.metadata.num_rows != recorded.row_count:
        raise InvariantBroken(
            f"{recorded.key}: it has {counted(file.metadata.num_rows, 'row')}, recorded were {recorded.row_count}"
        )
    return file

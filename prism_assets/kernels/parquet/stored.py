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
    def opened(cls, said: DataFile, stores: Stores) -> StoredFile:
        """Opens an object and reads the footer. Raises InvariantBroken if length or rows differ from the record."""
        if said.content_length <= READ_WHOLE:
            return cls.of_body(said, read_whole(said, stores))
        ranged = RangedObject(stores, said.bucket, said.key, said.content_length)
        return cls(open_file(said, pa.PythonFile(ranged, "r")), None)

    @classmethod
    def of_body(cls, said: DataFile, body: bytes) -> StoredFile:
        """Opens an object in memory."""
        return cls(open_file(said, pa.BufferReader(body)), body)


def read_whole(said: DataFile, stores: Stores) -> bytes:
    """The bytes of an object; InvariantBroken if there are more or fewer than recorded."""
    body = stores.get(said.bucket, said.key, length=said.content_length)
    if len(body) != said.content_length:
        raise InvariantBroken(f"{said.key}: it has {len(body)} bytes, recorded were {said.content_length}")
    return body


def open_file(said: DataFile, source: pa.NativeFile) -> pq.ParquetFile:
    """Opens a recorded object.

    Raises InvariantBroken without a footer, or if the number of rows differs from the record.

    A negative number on record means unknown.
    """
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid:
        raise InvariantBroken(f"{said.key}: it is no readable Parquet object") from None
    if said.row_count >= 0 and file.metadata.num_rows != said.row_count:
        raise InvariantBroken(
            f"{said.key}: it has {counted(file.metadata.num_rows, 'row')}, recorded were {said.row_count}"
        )
    return file

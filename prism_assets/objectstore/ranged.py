"""An object as a seekable file: Parquet readers fetch only the footer and some columns of a long object."""

from __future__ import annotations

import io

from prism_assets.objectstore.stores import Stores


class RangedObject(io.RawIOBase):
    """The bytes of one object of known length. Each read is one request, and all reads see one version of it."""

    def __init__(self, stores: Stores, bucket: str, key: str, length: int) -> None:
        self._stores = stores
        self._bucket = bucket
        self._key = key
        self._length = length
        self._position = 0
        self._etag: str | None = None

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """Returns the start of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the start of the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = min(max(0, start + offset), self._length)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Reads `size` bytes, or all up to the end. Raises ObjectChanged if the object was replaced after the first
        read.
        """
        stop = self._length if size < 0 else min(self._position + size, self._length)
        if stop <= self._position:
            return b""
        body, self._etag = self._stores.read_range(self._bucket, self._key, self._position, stop, etag=self._etag)
        self._position += len(body)
        return body

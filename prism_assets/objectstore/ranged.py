"""An object as a file that is read where it is needed: of a long one only its footer and some columns."""

from __future__ import annotations

import io

from prism_assets.objectstore.stores import Stores


class RangedObject(io.RawIOBase):
    """The bytes of one object of a known length, each read a request of its own. All are of one version of it."""

    def __init__(self, stores: Stores, bucket: str, key: str, length: int) -> None:
        self._stores = stores
        self._bucket = bucket
        self._key = key
        self._length = length
        self._position = 0
        self._etag: str | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to another place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = min(max(0, start + offset), self._length)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Some bytes, or all to the end. ObjectChanged if the object is another one than at the first read."""
        stop = self._length if size < 0 else min(self._position + size, self._length)
        if stop <= self._position:
            return b""
        body, self._etag = self._stores.read_range(self._bucket, self._key, self._position, stop, etag=self._etag)
        self._position += len(body)
        return body

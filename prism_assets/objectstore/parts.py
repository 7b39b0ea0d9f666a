"""Reads objects in parts, with one request per part. Timeouts and retries apply to each request.

Therefore no timeout limits the length of an object or the time its reader takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prism_assets.domain.errors import StoreUnavailable

PART = 8 << 20
"""Bytes of one request. One request reads any object up to this length."""


@dataclass(frozen=True)
class Part:
    """Some bytes of an object, with the object's ETag and its length in bytes from the answer."""

    body: bytes
    etag: str | None
    length: int


ReadPart = Callable[[int, int, str | None], Part]
"""Reads the bytes [start, stop) of the object with this ETag; with None, of any version."""


class Parts:
    """The bytes of one object in order. `etag` is set after the first part."""

    def __init__(self, read: ReadPart, *, etag: str | None, size: int) -> None:
        self.etag = etag
        self._read = read
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        """Yields parts of about `size` bytes, and reads one part ahead while the caller works.

        Without a given ETag, later parts must match the ETag of the first answer, so parts of two objects never mix.
        """
        first = self._read(0, self._size, self.etag)
        self.etag = self.etag or first.etag
        body, stop = first.body, len(first.body)
        if stop < first.length:
            with ThreadPoolExecutor(1) as pool:
                while stop < first.length:
                    start, stop = stop, min(stop + self._size, first.length)
                    ahead = pool.submit(self._read_later, start, stop)
                    yield body
                    body = ahead.result().body
        yield body

    def _read_later(self, start: int, stop: int) -> Part:
        """Retries once more than the client does, because failing would waste the earlier parts."""
        try:
            return self._read(start, stop, self.etag)
        except StoreUnavailable:
            return self._read(start, stop, self.etag)

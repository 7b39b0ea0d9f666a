"""Objects read part by part: each part has a request of its own, with its timeouts and tries.

So no timeout covers the length of an object, nor the time that its reader takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prism_assets.domain.errors import StoreUnavailable

PART = 8 << 20
"""Bytes of one request. An object that is no longer is read with one."""


@dataclass(frozen=True)
class Part:
    """Some bytes of an object, and what the answer says of the object: its ETag, and its length in bytes."""

    body: bytes
    etag: str | None
    length: int


ReadPart = Callable[[int, int, str | None], Part]
"""Reads the bytes [start, stop) of the object with this ETag, or of whatever is there if it is None."""


class Parts:
    """The bytes of one object in order. `etag` is known from the first part on."""

    def __init__(self, read: ReadPart, *, etag: str | None, size: int) -> None:
        self.etag = etag
        self._read = read
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        """Yields parts of about `size` bytes, and reads one ahead while the caller is busy with another.

        Where no ETag was given, that of the first answer holds for the later ones: parts of two objects never mix.
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
        """Tries once more than the client does: what was read before is worth it."""
        try:
            return self._read(start, stop, self.etag)
        except StoreUnavailable:
            return self._read(start, stop, self.etag)

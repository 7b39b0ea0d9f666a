"""The start of the next listing of a stream."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.discover.registering import is_readable


class Overlap:
    """Finds the start of the next listing: before the first key younger than the overlap.

    With keys that grow with time the start is an hour back; with random keys it is near the beginning. Ages count from
    the youngest object, so the clock of this machine does not matter.

    It holds the objects of one overlap at most, however long the listing is. The first key younger than the overlap is
    younger than all keys before it. So only such keys are held, and they leave once the overlap no longer reaches them.
    """

    def __init__(self, overlap: timedelta) -> None:
        self._overlap = overlap
        self._rising: deque[tuple[str | None, datetime]] = deque()
        """Arrivals younger than all before them, each with the key before its own."""
        self.last_key: str | None = None
        """The last key so far."""
        self.youngest: datetime | None = None
        """The arrival of the youngest object."""

    def see(self, item: ObjectInfo) -> None:
        """Takes the next object, in the order of keys. Skips keys that PostgreSQL cannot store as positions."""
        if not is_readable(item.key):
            return
        if self.youngest is None or item.last_modified > self.youngest:
            self.youngest = item.last_modified
            self._rising.append((self.last_key, item.last_modified))
            while self._rising[0][1] < self.youngest - self._overlap:
                self._rising.popleft()
        self.last_key = item.key

    def is_older(self, time: datetime | None) -> bool:
        """Whether the overlap no longer reaches anything up to a time, so a new listing of it is unnecessary."""
        return time is None or (self.youngest is not None and time < self.youngest - self._overlap)

    def position(self, before: str | None) -> str | None:
        """Returns the key after which the next listing begins: `before` if every key is younger than the overlap."""
        found = self._rising[0][0] if self._rising else None
        return before if found is None else found

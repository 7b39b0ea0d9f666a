"""The start of the next listing of a stream."""

from __future__ import annotations

from datetime import datetime, timedelta

from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.discover.registering import is_readable


class Overlap:
    """Finds the start of the next listing: before the first key younger than the overlap.

    With keys that grow with time the start is an hour back; with random keys it is near the beginning. Ages count from
    the youngest object, so the clock of this machine does not matter.
    """

    def __init__(self, overlap: timedelta) -> None:
        self._overlap = overlap
        self._times: list[tuple[str, datetime]] = []

    def see(self, item: ObjectInfo) -> None:
        """Skips keys that PostgreSQL cannot store, because they cannot be positions."""
        if is_readable(item.key):
            self._times.append((item.key, item.last_modified))

    @property
    def last_key(self) -> str | None:
        """The last key of a listing in order."""
        return self._times[-1][0] if self._times else None

    @property
    def youngest(self) -> datetime | None:
        """The arrival of the youngest object."""
        return max((time for _, time in self._times), default=None)

    def is_older(self, time: datetime | None) -> bool:
        """Whether the overlap no longer reaches anything up to a time, so a new listing of it is unnecessary."""
        return time is None or (self.youngest is not None and time < self.youngest - self._overlap)

    def position(self, before: str | None) -> str | None:
        """Returns the key after which the next listing begins: `before` if every key is younger than the overlap."""
        if not self._times:
            return before
        young = max(time for _, time in self._times) - self._overlap
        position = before
        for key, time in sorted(self._times):
            if time >= young:
                return position
            position = key
        return position

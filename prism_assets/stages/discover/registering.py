"""Shared rules of listings and messages: storable keys, and the streams of an object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.names import original_stream_name
from prism_assets.domain.streams.intake import LeftOut
from prism_assets.domain.streams.key_dates import day_of_key
from prism_assets.metadata.intake import staging_objects
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.intake.streams import KnownStream

UNREADABLE = "the key cannot be stored: it has more than 1,024 bytes, or a NUL or half a character in it"
_LONGEST_KEY = 1_024


def is_readable(key: str) -> bool:
    """Whether PostgreSQL can store a key unchanged, so that the object can be read by it."""
    return storable(key) == key


def storable(key: str) -> str:
    """Returns a key in a form that PostgreSQL can store and index. Readable keys stay unchanged."""
    clean = key.replace("\x00", "\\0").encode(errors="backslashreplace")
    return clean[:_LONGEST_KEY].decode(errors="ignore")


@dataclass(frozen=True)
class StreamIndex:
    """Finds the streams of an object: those of the longest matching prefix in its bucket.

    A stream removed from the table files is found only if no other matches, because a listing of the other also
    registers the object.
    """

    by_place: Mapping[tuple[str, str], Sequence[KnownStream]]

    @classmethod
    def of(cls, streams: Iterable[KnownStream]) -> StreamIndex:
        """Includes all streams, also removed ones."""
        found: dict[tuple[str, str], list[KnownStream]] = {}
        for known in streams:
            found.setdefault((known.stream.bucket, known.stream.key_prefix), []).append(known)
        return cls(found)

    def find(self, bucket: str, key: str) -> Sequence[KnownStream]:
        """Looks up only the folders of the key, the deepest first, because prefixes are whole folders.

        Of several tables each has its stream here, whether its route takes the object or not.
        """
        removed: Sequence[KnownStream] = ()
        for folder in _folders(key):
            known = self.by_place.get((bucket, folder), ())
            if in_force := [item for item in known if not item.removed]:
                return in_force
            removed = removed or known
        return removed


def _folders(key: str) -> Iterator[str]:
    end = min(len(key), _LONGEST_KEY)
    while end >= 0:
        end = key.rfind("/", 0, end)
        yield key[: end + 1]


def why_unknown(key: str) -> str:
    """Returns the sentence about an object under no stream."""
    name = original_stream_name(key)
    hint = f" its key names {name};" if name else ""
    return f"it lies under no stream;{hint} give its folder to a table as a stream, or end its notifications"


def update_old(
    connection: Connection, known: KnownStream, old: Sequence[FoundObject], now: datetime, *, listed: bool
) -> Counter[LeftOut]:
    """Updates the known ones of some objects of days before `since`. Returns the counts of all others by reason.

    An object is known because `prism history` registered it, or because its metadata is in the archive.
    """
    if not old:
        return Counter()
    seen, unseen = staging_objects.known_among(connection, known.stream_id, old)
    if seen and staging_objects.has_news(connection, known.stream_id, seen):
        staging_objects.update_known(connection, known.stream_id, seen, now, listed=listed)
    return Counter(_why_unseen(known, item.key) for item in unseen)


def _why_unseen(known: KnownStream, key: str) -> LeftOut:
    day = day_of_key(key)
    is_late = day is not None and known.history is not None and day in known.history
    return LeftOut.AFTER_HISTORY if is_late else LeftOut.BEFORE_SINCE

"""What listings and messages have in common: which names can be objects of a stream, and whose they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from prism_assets.domain.names import original_stream_name
from prism_assets.metadata.streams import KnownStream

UNREADABLE = "the key cannot be stored: it has more than 1,024 bytes, or a NUL or half a character in it"
_LONGEST_KEY = 1_024


def is_readable(key: str) -> bool:
    """Tells whether an object can be registered: whether PostgreSQL can keep its key as it is, to read it by."""
    return storable(key) == key


def storable(key: str) -> str:
    """The key as PostgreSQL can keep and index it, whatever is in it; readable keys stay as they are."""
    clean = key.replace("\x00", "\\0").encode(errors="backslashreplace")
    return clean[:_LONGEST_KEY].decode(errors="ignore")


@dataclass(frozen=True)
class StreamIndex:
    """Finds the stream of an object: the one whose bucket is the object's and whose prefix is the longest that fits.

    One that no table file names is found only where no other fits: a listing of the other takes the object in as well.
    """

    by_place: Mapping[tuple[str, str], KnownStream]

    @classmethod
    def of(cls, streams: Collection[KnownStream]) -> StreamIndex:
        """Takes in all streams, removed ones too."""
        return cls({(known.stream.bucket, known.stream.key_prefix): known for known in streams})

    def find(self, bucket: str, key: str) -> KnownStream | None:
        """Prefixes are whole folders, so it is enough to look at those of the key, the deepest first."""
        fitting = filter(None, (self.by_place.get((bucket, folder)) for folder in _folders(key)))
        removed = None
        for known in fitting:
            if not known.removed:
                return known
            removed = removed or known
        return removed


def _folders(key: str) -> Iterator[str]:
    end = min(len(key), _LONGEST_KEY)
    while end >= 0:
        end = key.rfind("/", 0, end)
        yield key[: end + 1]


def why_unknown(key: str) -> str:
    """The sentence about an object that lies under no stream."""
    name = original_stream_name(key)
    hint = f" its key names {name};" if name else ""
    return f"it lies under no stream;{hint} give its folder to a table as a stream, or end its notifications"

"""Shared rules of listings and messages: storable keys, and the stream of an object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from prism_assets.domain.names import original_stream_name
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
    """Finds the stream of an object: the longest matching prefix in its bucket.

    A stream removed from the table files is found only if no other matches, because a listing of the other also
    registers the object.
    """

    by_place: Mapping[tuple[str, str], KnownStream]

    @classmethod
    def of(cls, streams: Collection[KnownStream]) -> StreamIndex:
        """Includes all streams, also removed ones."""
        return cls({(known.stream.bucket, known.stream.key_prefix): known for known in streams})

    def find(self, bucket: str, key: str) -> KnownStream | None:
        """Looks up only the folders of the key, the deepest first, because prefixes are whole folders."""
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
    """Returns the sentence about an object under no stream."""
    name = original_stream_name(key)
    hint = f" its key names {name};" if name else ""
    return f"it lies under no stream;{hint} give its folder to a table as a stream, or end its notifications"

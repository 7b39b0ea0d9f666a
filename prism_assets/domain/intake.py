"""Which objects below the prefix of a stream are read, and why the others are left out: decided here alone.

Listings and messages ask the same function, so that an object has one fate, however it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from prism_assets.domain.key_patterns import is_hidden, matches
from prism_assets.domain.streams import Stream
from prism_assets.domain.words import counted


class LeftOut(Enum):
    """Why an object is not read."""

    FOLDER_MARKER = "folder_marker"
    HIDDEN_NAME = "hidden_name"
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not_included"

    def __str__(self) -> str:
        return self.value


_WORDS: Mapping[LeftOut, str] = {
    LeftOut.HIDDEN_NAME: "with a name that begins with _ or .",
    LeftOut.EXCLUDED: "that `exclude` names",
    LeftOut.NOT_INCLUDED: "that no `include` names",
}


def reason_left_out(stream: Stream, key: str, content_length: int) -> LeftOut | None:
    """Returns why an object of a stream is left out; None if it is read.

    - An empty object whose key ends with `/` is the marker that consoles make for a folder. With content it is read.
    - `exclude` leaves out whatever it matches, also what `include` matches.
    - A name below the prefix that begins with `_` or `.` is one of a writer's temporary files. It is read only where
      an `include` matches that writes this character.
    - Where a stream has `include`, other objects are left out.
    """
    if key.endswith("/") and not content_length:
        return LeftOut.FOLDER_MARKER
    below = key.removeprefix(stream.key_prefix)
    if any(matches(pattern, below) for pattern in stream.exclude):
        return LeftOut.EXCLUDED
    if any(matches(pattern, below, names_hidden=True) for pattern in stream.include):
        return None
    if any(map(is_hidden, below.split("/"))):
        return LeftOut.HIDDEN_NAME
    return LeftOut.NOT_INCLUDED if stream.include else None


def describe_left_out(counts: Mapping[LeftOut, int]) -> str:
    """Returns a clause such as `3 objects left out (2 that `exclude` names, 1 …)`; nothing where none was.

    Markers of folders hold nothing, and are not worth a word.
    """
    found = {reason: counts[reason] for reason in _WORDS if counts.get(reason)}
    if not found:
        return ""
    reasons = ", ".join(f"{count:,} {_WORDS[reason]}" for reason, count in found.items())
    return f"{counted(sum(found.values()), 'object')} left out ({reasons})"

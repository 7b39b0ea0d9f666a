"""Decides which objects below a stream's prefix are read, and why others are left out.

Listings and messages call the same function, so an object is treated alike however it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from prism_assets.domain.streams.key_dates import day_of_key
from prism_assets.domain.streams.key_patterns import is_hidden, matches
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.text import counted


class LeftOut(Enum):
    """Why an object is not read."""

    FOLDER_MARKER = "folder_marker"
    HIDDEN_NAME = "hidden_name"
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not_included"
    OTHER_TABLE = "other_table"
    BEFORE_SINCE = "before_since"
    AFTER_HISTORY = "after_history"

    def __str__(self) -> str:
        return self.value


_WORDS: Mapping[LeftOut, str] = {
    LeftOut.HIDDEN_NAME: "with a name that begins with _ or .",
    LeftOut.EXCLUDED: "that `exclude` names",
    LeftOut.NOT_INCLUDED: "that no `include` names",
    LeftOut.OTHER_TABLE: "that `route` gives to another table",
    LeftOut.BEFORE_SINCE: "of days before `since`",
    LeftOut.AFTER_HISTORY: "that came after the history of their days",
}


def reason_left_out(stream: Stream, key: str, content_length: int) -> LeftOut | None:
    """Returns why an object of a stream is left out, or None if it is read.

    - An empty object whose key ends with `/` is a console's folder marker. With content it is read.
    - `exclude` leaves out every match, even of `include`.
    - A name below the prefix that begins with `_` or `.` is a writer's temporary file. It is read only if a matching
      `include` spells this character.
    - If a stream has `include`, other objects are left out.
    - If `route` of several streams of a prefix names keys, each object belongs to one of them.
    - If a stream has `since`, objects with an earlier day in their keys wait for `prism history`.
    """
    reason = reason_never_read(stream, key, content_length)
    if reason is None and stream.since is not None:
        day = day_of_key(key)
        if day is not None and day.isoformat() < stream.since:
            return LeftOut.BEFORE_SINCE
    return reason


def reason_never_read(stream: Stream, key: str, content_length: int) -> LeftOut | None:
    """Returns why neither discovery nor `prism history` reads an object, or None."""
    if key.endswith("/") and not content_length:
        return LeftOut.FOLDER_MARKER
    below = key.removeprefix(stream.key_prefix)
    if stream.route is not None and not stream.route.takes_object(below):
        return LeftOut.OTHER_TABLE
    if any(matches(pattern, below) for pattern in stream.exclude):
        return LeftOut.EXCLUDED
    if any(matches(pattern, below, names_hidden=True) for pattern in stream.include):
        return None
    if any(map(is_hidden, below.split("/"))):
        return LeftOut.HIDDEN_NAME
    return LeftOut.NOT_INCLUDED if stream.include else None


def describe_left_out(counts: Mapping[LeftOut, int]) -> str:
    """Returns a clause such as `3 objects left out (2 that `exclude` names, 1 …)`, or "".

    Folder markers are not mentioned, because they hold nothing.
    """
    found = {reason: counts[reason] for reason in _WORDS if counts.get(reason)}
    if not found:
        return ""
    reasons = ", ".join(f"{count:,} {_WORDS[reason]}" for reason, count in found.items())
    return f"{counted(sum(found.values()), 'object')} left out ({reasons})"

"""Glob patterns for keys of a stream's objects: `include` and `exclude` in a table file.

A pattern matches the whole key below the stream's prefix, folder by folder:

- `*` stands for any characters of one name, `?` for one, `[abc]`, `[a-z]` and `[!a-z]` for one of a set;
- `**`, alone between slashes, stands for any number of folders, none included, and at the end for everything below;
- a character of a set stands for itself: `[*]` is a star.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

LONGEST_PATTERN = 256
MOST_PATTERNS = 100
ANY_FOLDERS = "**"
_HIDDEN = ("_", ".")


def is_hidden(name: str) -> bool:
    """Whether a name marks a writer's temporary file or folder: it begins with `_` or `.`.

    `.` and `..` are parts of odd keys and no file names.
    """
    return name.startswith(_HIDDEN) and name not in (".", "..")


def pattern_problem(pattern: str) -> str | None:
    """Returns the complaint about an invalid pattern, or None."""
    if not pattern:
        return "is empty; `**` takes every key"
    if len(pattern) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} characters"
    if pattern.startswith(("/", "s3://")):
        return f"{pattern} must begin below the prefix of the stream, without a slash"
    if pattern.endswith("/"):
        return f"{pattern} ends with /, as no object of a folder does; write {pattern}**"
    if "{" in pattern or "\\" in pattern:
        return f"{pattern} has {{ or \\, which glob patterns here do not know; write two patterns, or a set such as [*]"
    for name in pattern.split("/"):
        if ANY_FOLDERS in name and name != ANY_FOLDERS:
            return f"{pattern}: ** stands for whole folders; write it alone between slashes, such as **/*.gz"
        if not _has_whole_sets(name):
            return f"{pattern}: a set that [ begins must end with ] in one name; [[] stands for a bracket"
    return None


def matches(pattern: str, key: str, *, names_hidden: bool = False) -> bool:
    """Whether a pattern matches a key below its stream's prefix.

    With `names_hidden`, a name beginning with `_` or `.` matches only if the pattern spells this character, as in a
    shell.
    """
    names = _compiled(pattern)
    places = _with_skipped({0}, names)
    for name in key.split("/"):
        places = _with_skipped(_after(name, places, names, names_hidden=names_hidden), names)
        if not places:
            return False
    return len(names) in places


_Name = tuple[str, re.Pattern[str] | None]
"""A name of a pattern and its expression, None for `**`."""


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> Sequence[_Name]:
    return [(name, None if name == ANY_FOLDERS else re.compile(fnmatch.translate(name))) for name in pattern.split("/")]


def _after(name: str, places: set[int], wanted: Sequence[_Name], *, names_hidden: bool) -> set[int]:
    """Returns the positions in a pattern after one more name. Checks each position once, for any number of stars."""
    found = set()
    for place in places:
        if place == len(wanted):
            continue
        written, expression = wanted[place]
        if names_hidden and is_hidden(name) and written[:1] != name[:1]:
            continue
        if expression is None:
            found.add(place)
        elif expression.match(name):
            found.add(place + 1)
    return found


def _with_skipped(places: set[int], wanted: Sequence[_Name]) -> set[int]:
    """Adds the positions after each `**`, because it may stand for no folder."""
    found = set(places)
    for place in sorted(places):
        while place < len(wanted) and wanted[place][1] is None:
            place += 1
            found.add(place)
    return found


def _has_whole_sets(name: str) -> bool:
    """Whether each `[` has its `]`. Right after the `[`, a `]` is a character of the set."""
    at = 0
    while (start := name.find("[", at)) >= 0:
        first = start + 2 if name[start + 1 : start + 2] == "!" else start + 1
        end = name.find("]", first + 1)
        if end < 0:
            return False
        at = end + 1
    return True

"""Finds the JSON text of some keys in well-formed lines without reading the rest of the line.

A key counts as found only if no other reading is possible. Every other line is left to the exact reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from json.decoder import JSONDecodeError
from typing import Any

from prism_assets.kernels.values import scan_once

Found = list[tuple[Any, str]]
_NOTHING = (None, "")
_AFTER_VALUE = re.compile(r"[ \t\r\n]*[,}]")
# Keys spelled without escapes, or with \u00.. ones.
_PLAIN_KEY = re.compile(r'[^\x00-\x1f"\\/\x7f-\U0010ffff]+')
# With such a first character, a key's opening quote cannot be the closing quote of an earlier string.
_SAFE_KEY = re.compile(r"[^\s,:\]}]")


class KeyFinder:
    """Finds values of some keys. Each line is one JSON object, or is refused later."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = tuple(sources)
        self._safe = all(_SAFE_KEY.match(source) for source in sources)
        self._plain = all(_PLAIN_KEY.fullmatch(source) for source in sources)
        self._patterns = [_key_pattern(source) for source in sources]
        self._needles = [f'"{source}"' for source in sources]

    def find(self, line: str) -> Found | None:
        """Returns value and text of each key, (None, "") for a missing key. Returns None if the line needs the exact
        reader.
        """
        if not self._safe or ("\\" in line and (not self._plain or "\\u00" in line)):
            return None
        found: Found = [_NOTHING] * len(self.sources)
        places = self._places(line)
        if places is None:
            return None
        checked = 1
        for start, position in places:
            if start < checked:
                continue  # the key lies inside another key's value and nowhere else
            value_start = self._top_level_value(line, checked, start, position)
            if value_start is None:
                return None
            try:
                value, checked = scan_once(line, value_start)
            except (JSONDecodeError, StopIteration):
                return None
            if _AFTER_VALUE.match(line, checked) is None:
                return None
            found[position] = (value, line[value_start:checked])
        return found

    def _places(self, line: str) -> list[tuple[int, int]] | None:
        """Returns the position of each key in line order, or None if a key occurs twice."""
        places = []
        for position, needle in enumerate(self._needles):
            start = line.find(needle)
            if start < 0:
                continue
            if line.find(needle, start + 1) >= 0:
                return None
            places.append((start, position))
        places.sort()
        return places

    def _top_level_value(self, line: str, checked: int, start: int, position: int) -> int | None:
        """Returns the start of the value if the key at `start` belongs to the top-level object.

        The line is at top level at `checked`, and stays there if no bracket opens before `start`.
        """
        if line.find("{", checked, start) >= 0 or line.find("[", checked, start) >= 0:
            return None
        before = start - 1
        while before > 0 and line[before] in " \t\r\n":
            before -= 1
        if line[before] not in "{,":
            return None
        match = self._patterns[position].match(line, start)
        return match.end() if match else None


def _key_pattern(source: str) -> re.Pattern[str]:
    return re.compile(f'"{re.escape(source)}"' + r"[ \t\r\n]*:[ \t\r\n]*")

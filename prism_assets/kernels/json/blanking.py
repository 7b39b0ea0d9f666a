"""Removes the values of sensitive columns from quarantined lines, because more people may read those."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from json.decoder import scanstring  # type: ignore[attr-defined]

from prism_assets.domain.columns.column import Column
from prism_assets.domain.streams.reasons import UNREAD
from prism_assets.domain.streams.sources import Key, Path, Pattern, Rest, Source, keys_of
from prism_assets.domain.tables.row_program import RowProgram
from prism_assets.kernels.json.picks import Wanted, in_lines, matcher, sources_in
from prism_assets.kernels.json.rows import COLON, NEXT_MEMBER
from prism_assets.kernels.values import scan_once

_OPENING = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*")


class Blanking:
    """Decides how much of a table's lines is kept. Without sensitive columns, everything is.

    Removes the whole value of a key, even if a sensitive column reads only part of it. Also removes keys read by
    sensitive columns of the table or of its other streams, unless an open column of this stream reads the key. Facts
    about `messages` are in no line.
    """

    def __init__(self, program: RowProgram, *, messages: bool = False) -> None:
        self._messages = messages
        self._wanted = Wanted(program.reads, messages=messages)
        sources = _sources_of((column for column in program.reads if column.hides), messages)
        self._keys = frozenset(keys_of(sources))
        self._patterns = _matchers(sources)
        self._rest = any(isinstance(source, Rest) for source in sources)
        elsewhere = _sources_of(program.hidden)
        open_keys = keys_of(_sources_of((column for column in program.reads if not column.hides), messages))
        self._open = frozenset(open_keys)
        self._keys_elsewhere = frozenset(keys_of(elsewhere))
        self._patterns_elsewhere = _matchers(elsewhere)
        self.is_needed = bool(program.sensitive)

    def kept(self, line: bytes, reason: str) -> bytes | None:
        """Returns a line without its sensitive values, or None if they cannot be located."""
        if not self.is_needed:
            return line
        if reason in UNREAD:
            return None
        try:
            return self._blanked(line.decode()).encode()
        except (ValueError, StopIteration, RecursionError):
            return None

    def hides(self, column: Column) -> bool:
        """Whether `kept` may remove values read by a column of this definition or another one."""
        sources = _sources_of([column], self._messages) if self.is_needed and column.value is None else ()
        return any(map(self._may_hide, sources))

    def _may_hide(self, source: Source) -> bool:
        match source:
            case Key(name=key) | Path(first=key):
                return self._is_sensitive(key)
            case Pattern() | Rest():
                return True
        return False

    def _is_sensitive(self, key: str) -> bool:
        if key in self._keys or any(matches(key) for matches in self._patterns):
            return True
        if self._rest and not self._wanted.is_named(key):
            return True
        return key not in self._open and (
            key in self._keys_elsewhere or any(matches(key) for matches in self._patterns_elsewhere)
        )

    def _blanked(self, text: str) -> str:
        opening = _OPENING.match(text)
        if opening is None:
            raise ValueError
        parts, copied, position = [], 0, opening.end()
        while text[position : position + 1] == '"':
            key, position = scanstring(text, position + 1, True)
            colon = COLON.match(text, position)
            if colon is None:
                raise ValueError
            _, end = scan_once(text, colon.end())
            if self._is_sensitive(key):
                parts += [text[copied : colon.end()], "null"]
                copied = end
            following = NEXT_MEMBER.match(text, end)
            if following is None:
                raise ValueError
            position = following.end()
        return "".join(parts) + text[copied:]


def _sources_of(columns: Iterable[Column], messages: bool = False) -> list[Source]:
    return [source for column in columns for source in in_lines(sources_in(column, messages=messages))]


def _matchers(sources: Iterable[Source]) -> list[Callable[[str], bool]]:
    return [matcher(source) for source in sources if isinstance(source, Pattern)]

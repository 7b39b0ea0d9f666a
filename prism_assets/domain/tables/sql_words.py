"""Reserved words of SQL, and advice for columns with such names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

RESERVED_WORDS_QUERY = "SELECT list(keyword_name) FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
"""Asks DuckDB for its reserved words."""
_NEAR = re.compile(r'syntax error at or near "(?P<word>\w+)"')


def quoting_advice(word: str) -> str:
    """Returns the advice to quote a column named like a reserved word."""
    return f'{word} is a word of SQL: write "{word.lower()}" where it names a column'


def with_quoting(message: str, reserved: Collection[str]) -> str:
    """Adds the advice to DuckDB's message if the parser stopped at a reserved word."""
    near = _NEAR.search(message)
    if near is None or near["word"].lower() not in reserved:
        return message
    return f"{message}; {quoting_advice(near['word'])}"


def unquoted_word(
    text: str, starts: Sequence[int], names: Collection[str], parses: Callable[[str], bool]
) -> tuple[str, int] | None:
    """Returns a word whose quotes would make a broken text parse, with its character from 1.

    Tries only `names`. `starts` are the bytes where words begin. A word such as `end` may be a column or the end of a
    CASE, so each word is tried alone, then all together.
    """
    encoded = text.encode()
    words = [
        (start, encoded[start:following].decode(errors="replace").strip())
        for start, following in zip(starts, [*starts[1:], len(encoded)], strict=False)
    ]
    found = [(start, word) for start, word in words if word.lower() in names]
    for chosen in [*([one] for one in found), *([found] if found else [])]:
        quoted = encoded
        for start, word in reversed(chosen):
            rest = quoted[start + len(word.encode()) :]
            quoted = b"".join((quoted[:start], f'"{word.lower()}"'.encode(), rest))
        if parses(quoted.decode()):
            start, word = chosen[0]
            return word, len(encoded[:start].decode()) + 1
    return None

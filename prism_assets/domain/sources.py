"""Where the value of a column comes from: the forms that `source` has in a table file.

A key, a path into its value, all keys that no column names, the keys of a pattern, a fact of the line itself, or one
value for all lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from prism_assets.domain.columns import Column

FACTS = ("@stream", "@object", "@object_id", "@line", "@received")
"""What is known of a line without reading it: stream, URL and id of its object, its number, when that arrived."""
CONSTANT = "@="
"""How the source begins that is the same JSON value in all lines."""

_STEP = re.compile(r'\.(?P<key>[^.\[\]"]+)|\[(?P<index>\d{1,6})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')


@dataclass(frozen=True)
class Key:
    """The value of one key of the line."""

    name: str


@dataclass(frozen=True)
class Path:
    """A value inside the value of the key `first`: the way to it by keys, and by places in arrays from 0."""

    first: str
    steps: tuple[str | int, ...]


@dataclass(frozen=True)
class Rest:
    """All keys that no column names, as one object."""


@dataclass(frozen=True)
class Pattern:
    """All keys in which a regular expression is found, as one object; RE2 knows it, so that no key takes for ever."""

    expression: str


@dataclass(frozen=True)
class Fact:
    """What is known of the line without reading it, one of FACTS."""

    name: str


@dataclass(frozen=True)
class Constant:
    """The same value in each line, as JSON text."""

    json: str


Source = Key | Path | Rest | Pattern | Fact | Constant


def constant(value: str | bool | None) -> str:
    """The source of a value that is the same in all lines, as table files write it."""
    return f"{CONSTANT}{json.dumps(value, ensure_ascii=False)}"


def parse_source(text: str) -> Source:
    """The source that a table file means by `text`. ValueError, with what is wrong, for a path that is none."""
    if text == "*":
        return Rest()
    if text in FACTS:
        return Fact(text)
    if text.startswith(CONSTANT):
        return _constant(text)
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return Pattern(text[1:-1])
    return _path(text) if text.startswith(("$.", "$[")) else Key(text)


def sources_of(column: Column) -> tuple[Source, ...]:
    """The sources of a column that is read, in the order in which they are tried."""
    return tuple(map(parse_source, column.sources)) if column.sources else (Key(column.source),)


def keys_of(sources: Iterable[Source]) -> list[str]:
    """The keys of the line that sources name."""
    return [
        source.first if isinstance(source, Path) else source.name
        for source in sources
        if isinstance(source, Key | Path)
    ]


def source_of_key(key: str) -> str:
    """How a table file names a key, whatever it looks like."""
    try:
        plain = parse_source(key) == Key(key)
    except ValueError:
        plain = False
    return key if plain else f"$[{json.dumps(key, ensure_ascii=False)}]"


def _constant(text: str) -> Constant:
    written = text.removeprefix(CONSTANT).strip()
    try:
        json.loads(written, parse_constant=_no_json)
    except (ValueError, RecursionError):
        raise ValueError(f'{text} must have a JSON value behind {CONSTANT}, such as {CONSTANT}"shop"') from None
    return Constant(written)


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _path(text: str) -> Source:
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ValueError(f'{text} is no path at its character {position + 1}; paths look like $.user.ids[0]["a b"]')
        steps.append(_step(step))
        position = step.end()
    first, *others = steps
    if isinstance(first, int):
        raise ValueError(f"{text} must begin with a key: lines are objects")
    return Path(first, tuple(others)) if others else Key(first)


def _step(step: re.Match[str]) -> str | int:
    if step["index"]:
        return int(step["index"])
    if step["key"]:
        return step["key"]
    try:
        return str(json.loads(step["quoted"]))
    except ValueError:
        raise ValueError(f"{step['quoted']} is no JSON text") from None

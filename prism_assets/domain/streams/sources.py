"""The forms of `source` in a table file.

A key, a path into its value, all keys without a column, keys matching a pattern, a value around the records of a
document, a fact about the line, or a constant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from prism_assets.domain.columns.column import Column
from prism_assets.domain.streams.documents import quoted_key

FACTS = ("@stream", "@object", "@object_id", "@line", "@received")
"""Facts about a line without reading it: stream, URL and id of its object, line number, and the object's arrival."""
MESSAGE_FACTS = ("@topic", "@partition", "@offset", "@timestamp", "@key", "@headers", "@schema_id")
"""Facts about a message of Kafka, in streams of topics. Elsewhere these are keys, which Logstash writes, too."""
HEADER = "@header."
"""Prefix of the source with the last header of a name."""
CONSTANT = "@="
"""Prefix of a source with the same JSON value in all lines."""
OUTER = "$outer"
"""Prefix of a path from the document around a record."""
_STEP = re.compile(r'\.(?P<key>[^.\[\]"]+)|\[(?P<index>\d{1,6})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')
_PLAIN_KEY = re.compile(r'[^.\[\]"]+')


@dataclass(frozen=True)
class Key:
    """The value of one key."""

    name: str


@dataclass(frozen=True)
class Path:
    """A value inside the value of the key `first`. The steps are keys, and array positions from 0."""

    first: str
    steps: tuple[str | int, ...]


@dataclass(frozen=True)
class Rest:
    """All keys without a column, as one object."""


@dataclass(frozen=True)
class Pattern:
    """All keys that match a regular expression, as one object. RE2 evaluates it in linear time."""

    expression: str


@dataclass(frozen=True)
class Outer:
    """A value of the document around a record. The path goes through the elements that hold the record."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True)
class Fact:
    """A fact about the line, one of FACTS."""

    name: str


@dataclass(frozen=True)
class Constant:
    """The same value in each line, as JSON text."""

    json: str


Source = Key | Path | Rest | Pattern | Outer | Fact | Constant


def constant(value: str | bool | None) -> str:
    """Returns the source of a constant in the notation of table files."""
    return f"{CONSTANT}{json.dumps(value, ensure_ascii=False)}"


def parse_source(text: str) -> Source:
    """Returns the source for the notation of table files. Raises ValueError for an invalid path."""
    if text == "*":
        return Rest()
    if text in FACTS:
        return Fact(text)
    if text.startswith(CONSTANT):
        return _constant(text)
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return Pattern(text[1:-1])
    if text.startswith((f"{OUTER}.", f"{OUTER}[")):
        return Outer(_steps(text, len(OUTER)))
    return _path(text) if text.startswith(("$.", "$[")) else Key(text)


def sources_of(column: Column) -> tuple[Source, ...]:
    """Returns the sources of a column in the order of trial."""
    return tuple(map(parse_source, column.sources)) if column.sources else (Key(column.source),)


def key_and_steps(source: Key | Path) -> tuple[str, tuple[str | int, ...]]:
    """Returns the key that a source reads in lines, and the steps inside the value of the key."""
    return (source.first, source.steps) if isinstance(source, Path) else (source.name, ())


def keys_of(sources: Iterable[Source]) -> list[str]:
    """Returns the keys named by sources."""
    return [key_and_steps(source)[0] for source in sources if isinstance(source, Key | Path)]


def is_message_fact(name: str) -> bool:
    """Whether a source of this name, in a stream of a topic, is a fact about the message."""
    return name in MESSAGE_FACTS or (name.startswith(HEADER) and len(name) > len(HEADER))


def message_fact(source: Source) -> str | None:
    """Returns the fact about a message that a source names in streams of topics, or None."""
    return source.name if isinstance(source, Key) and is_message_fact(source.name) else None


def source_of_key(key: str) -> str:
    """Returns the notation of a key with any characters."""
    try:
        plain = parse_source(key) == Key(key)
    except ValueError:
        plain = False
    return key if plain else f"$[{json.dumps(key, ensure_ascii=False)}]"


def step_text(key: str) -> str:
    """Returns a key as a step of a path."""
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


def _constant(text: str) -> Constant:
    written = text.removeprefix(CONSTANT).strip()
    try:
        json.loads(written, parse_constant=_no_json)
    except (ValueError, RecursionError):
        raise ValueError(f'{text} must have a JSON value after {CONSTANT}, such as {CONSTANT}"shop"') from None
    return Constant(written)


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _path(text: str) -> Source:
    first, *rest = _steps(text, 1)
    if isinstance(first, int):
        raise ValueError(f"{text} must begin with a key: lines are objects")
    # A key named like a fact stays a path, so that streams of topics can tell the two apart.
    return Path(first, tuple(rest)) if rest or is_message_fact(first) else Key(first)


def _steps(text: str, position: int) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ValueError(f'{text} is no path at its character {position + 1}; paths look like $.user.ids[0]["a b"]')
        steps.append(_step(step))
        position = step.end()
    return tuple(steps)


def _step(step: re.Match[str]) -> str | int:
    if step["index"]:
        return int(step["index"])
    return step["key"] or quoted_key(step["quoted"])

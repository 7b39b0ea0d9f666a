"""Picks values from more than one key: along a path, from the first of several keys, or from many keys together.

A pick receives a line's fields as the exact reader returns them. The compiled kernel picks alike.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.columns.column import Column
from prism_assets.domain.streams.sources import (
    Constant,
    Fact,
    Key,
    Outer,
    Path,
    Pattern,
    Rest,
    Source,
    keys_of,
    message_fact,
    sources_of,
)
from prism_assets.kernels.json.rows import NOTHING, Fields, Value, read_object
from prism_assets.kernels.values import Number, scan_once

Facts = Mapping[str, Value]
"""Facts about the lines of one object, except line numbers."""
Pick = Callable[[Fields, int], Value]
"""Returns one line's value with its text, from its fields and its number. Raises RejectedError."""
_NEXT = re.compile(r"[ \t\r\n]*([,\]])[ \t\r\n]*")
_OPENING = re.compile(r"\[[ \t\r\n]*")
_KEYS_REMEMBERED = 10_000


@dataclass(frozen=True)
class MessageFact:
    """A fact about the message that is the line. Only objects of topics have some."""

    name: str


def sources_in(column: Column, *, messages: bool) -> tuple[Source | MessageFact, ...]:
    """Returns the sources of a column, in an object of messages or in another one."""
    sources = sources_of(column)
    if not messages:
        return sources
    return tuple(source if (fact := message_fact(source)) is None else MessageFact(fact) for source in sources)


class Wanted(dict[str, str]):
    """The keys to read, each with a column that reads it. If a column collects keys, includes keys without a column of
    their own.
    """

    def __init__(self, columns: Sequence[Column], *, messages: bool = False) -> None:
        read = [(column, in_lines(sources_in(column, messages=messages))) for column in columns]
        super().__init__({key: column.name for column, sources in reversed(read) for key in keys_of(sources)})
        flat = [(source, column.name) for column, sources in read for source in sources]
        self.patterns: dict[Pattern, str] = {}
        """Each pattern, with the first column that reads the keys of the pattern."""
        for source, name in flat:
            if isinstance(source, Pattern):
                self.patterns.setdefault(source, name)
        self.rest = next((name for source, name in flat if isinstance(source, Rest)), None)
        """The first column that reads all keys without another one."""
        self._matchers = [(matcher(pattern), name) for pattern, name in self.patterns.items()]

    @property
    def collects(self) -> bool:
        """Whether columns read keys not known in advance."""
        return bool(self.patterns) or self.rest is not None

    def is_named(self, key: str) -> bool:
        """Whether a column names the key: itself, as the start of a path, or by a pattern."""
        return dict.__contains__(self, key) or any(matches(key) for matches, _ in self._matchers)

    def matching(self, key: str) -> list[int]:
        """Returns the places of the patterns that match a key. The compiled kernel calls it once for each new key."""
        return [place for place, (matches, _) in enumerate(self._matchers) if matches(key)]

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (self.collects and self._owner(str(key)) is not None)

    def __missing__(self, key: str) -> str:
        return self._owner(key) or ""

    def _owner(self, key: str) -> str | None:
        return next((name for matches, name in self._matchers if matches(key)), self.rest)


def in_lines(sources: Sequence[Source | MessageFact]) -> list[Source]:
    """Returns the sources without facts about messages."""
    return [source for source in sources if not isinstance(source, MessageFact)]


def matcher(pattern: Pattern) -> Callable[[str], bool]:
    """Returns a function that tests keys against a pattern and remembers the results."""
    remembered: dict[str, bool] = {}

    def matches(key: str) -> bool:
        if key not in remembered:
            if len(remembered) >= _KEYS_REMEMBERED:
                remembered.clear()
            text = pa.array([key.encode(errors="replace").decode()], pa.string())
            remembered[key] = pc.match_substring_regex(text, pattern.expression)[0].as_py()
        return remembered[key]

    return matches


@dataclass
class Around:
    """The values around the current line. The reader of lines changes them from line to line.

    These are values around a record in its document, and facts about a message in columns with other sources, too.
    """

    sources: dict[Outer | MessageFact, int] = field(default_factory=dict)
    """The number of each source in `values`."""
    values: Sequence[Value] = ()

    @classmethod
    def of(cls, sources: Iterable[Outer | MessageFact]) -> Around:
        """Returns nothing around the first line yet."""
        return cls({source: number for number, source in enumerate(dict.fromkeys(sources))})

    @property
    def outer(self) -> tuple[Outer, ...]:
        """The places in documents."""
        return tuple(source for source in self.sources if isinstance(source, Outer))

    def value(self, source: Outer | MessageFact) -> Value:
        """Returns the value of a source; nothing for lines that no document holds, and that are no messages."""
        return self.values[self.sources[source]] if self.values else NOTHING


def pick_of(sources: Sequence[Source | MessageFact], column: str, wanted: Wanted, facts: Facts, around: Around) -> Pick:
    """Returns the pick of a column: its first source with a value other than null."""
    picks = [_single(source, column, wanted, facts, around) for source in sources]
    if len(picks) == 1:
        return picks[0]

    def first(fields: Fields, line: int) -> Value:
        for pick in picks:
            found = pick(fields, line)
            if found[0] is not None:
                return found
        return NOTHING

    return first


def _single(source: Source | MessageFact, column: str, wanted: Wanted, facts: Facts, around: Around) -> Pick:
    match source:
        case Key(name):
            return lambda fields, _line: fields.get(name, NOTHING)
        case Path(first, steps):
            return lambda fields, _line: value_inside(fields.get(first, NOTHING), steps, column)
        case Rest():
            return lambda fields, _line: _together(fields, lambda key: not wanted.is_named(key))
        case Pattern():
            matches = matcher(source)
            return lambda fields, _line: _together(fields, matches)
        case Outer() | MessageFact():
            return lambda _fields, _line: around.value(source)
        case Fact("@line"):
            return lambda _fields, line: line_fact(line)
        case Fact(name):
            return lambda _fields, _line: facts[name]
        case Constant():
            value = constant_value(source)
            return lambda _fields, _line: value


def line_fact(line: int) -> Value:
    """Returns the number of a line as if the line contained it."""
    return Number(line), str(line)


def constant_value(source: Constant) -> Value:
    """Returns a constant source's value as if each line contained it."""
    return scan_once(source.json, 0)[0], source.json


def value_inside(found: Value, steps: Sequence[str | int], column: str) -> Value:
    """Returns the value at the end of a path, or NOTHING if the path ends early. Raises RejectedError for `column`."""
    for step in steps:
        value, text = found
        if isinstance(step, str):
            found = read_object(text, 1, {step: column}).get(step, NOTHING) if type(value) is dict else NOTHING
        else:
            found = _element(text, step) if type(value) is list and step < len(value) else NOTHING
    return found


def _element(text: str, index: int) -> Value:
    return next(itertools.islice(elements_of(text), index, None))


def elements_of(text: str) -> Iterator[Value]:
    """Yields the elements of a well-formed array, each with its text."""
    opening = _OPENING.match(text)
    position = opening.end() if opening else 1
    while text[position] != "]":
        value, end = scan_once(text, position)
        yield value, text[position:end]
        following = _NEXT.match(text, end)
        if following is None:
            raise ValueError
        if following[1] == "]":
            return
        position = following.end()


def _together(fields: Fields, belongs: Callable[[str], bool]) -> Value:
    """Returns some fields of a line as one object in line order, or NOTHING without any."""
    found = {key: value for key, value in fields.items() if belongs(key)}
    if not found:
        return NOTHING
    members = (f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, (_, text) in found.items())
    return {key: value for key, (value, _) in found.items()}, "{" + ",".join(members) + "}"


@dataclass(frozen=True)
class Lookups:
    """How columns find their values in a line."""

    wanted: Mapping[str, str]
    """The keys to read, each with its column."""
    keys: Wanted
    """The same keys. `wanted` is quicker where no column collects keys."""
    plain: dict[int, str]
    """Columns of one key, by position."""
    picks: dict[int, Pick]
    """Columns that need more of the line."""
    facts: dict[int, Fact | Constant | MessageFact]
    """Columns that need nothing of the line."""
    around: Around
    """Values around the line."""
    mixed: dict[int, tuple[str, ...]]
    """The facts about messages in columns with other sources, too, by position."""

    @property
    def collects(self) -> bool:
        """Whether some keys are not known in advance."""
        return self.keys.collects

    @classmethod
    def of(cls, columns: Sequence[Column], facts: Facts, *, messages: bool = False) -> Lookups:
        """Returns the lookups of columns for the lines of one object. `messages` says whether lines are messages."""
        read = [sources_in(column, messages=messages) for column in columns]
        wanted = Wanted(columns, messages=messages)
        plain: dict[int, str] = {}
        picks: dict[int, Pick] = {}
        alone: dict[int, Fact | Constant | MessageFact] = {}
        mixed: dict[int, tuple[str, ...]] = {}
        around = Around.of(
            source
            for sources in read
            for source in sources
            if isinstance(source, Outer) or (isinstance(source, MessageFact) and len(sources) > 1)
        )
        for position, sources in enumerate(read):
            match sources:
                case (Key(name),):
                    plain[position] = name
                case (Fact() | Constant() | MessageFact() as known,):
                    alone[position] = known
                case _:
                    picks[position] = pick_of(sources, columns[position].name, wanted, facts, around)
                    names = tuple(source.name for source in sources if isinstance(source, MessageFact))
                    mixed |= {position: names} if names else {}
        # CPython tests membership in a plain dict fastest, and this test runs for every key of every line.
        keyed: Mapping[str, str] = wanted if wanted.collects else dict(wanted)
        return cls(keyed, wanted, plain, picks, alone, around, mixed)

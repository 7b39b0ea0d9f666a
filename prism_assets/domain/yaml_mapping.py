"""The YAML of table files: mappings whose values know their lines, so that every problem names file, line and field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.names import NAME_RULE, did_you_mean, is_name

REQUIRED = object()

# Each run and each load of the definitions reads all files, and libyaml's parser is ten times as fast.
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNREADABLE = object()
_MOST_LEVELS = 64


@dataclass
class Problems:
    """What is wrong with one file."""

    path: str
    found: list[str] = field(default_factory=list)

    def add(self, node: yaml.Node | None, name: str, message: str) -> None:
        """Notes one problem, at the line of a node."""
        line = node.start_mark.line + 1 if node is not None else 1
        self.found.append(f"{self.path}:{line}: {name}: {message}")


@dataclass
class YamlMapping:
    """A YAML mapping whose values remember their lines. Reading a key checks its type and notes what is wrong."""

    node: yaml.MappingNode | None
    name: str
    problems: Problems

    def __post_init__(self) -> None:
        self.children: dict[str, yaml.Node] = {}
        for key, value in self.node.value if self.node else []:
            if str(key.value) in self.children:
                self.problems.add(key, self._path(key.value), "is given twice")
            self.children[str(key.value)] = value
            for found in filter(None, map(_UNSTORABLE.search, _texts(value))):
                told = f"has a NUL or half a character in it (at character {found.start() + 1})"
                self.problems.add(value, self._path(str(key.value)), told)

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def only(self, allowed: set[str]) -> None:
        """Complains about fields that nobody knows."""
        for key, node in self.children.items():
            if key not in allowed:
                known = f"(known: {', '.join(sorted(allowed))})"
                self.problems.add(node, self._path(key), f"is not a known field {known}{did_you_mean(key, allowed)}")

    def place(self, key: str) -> str:
        """Where a field stands: `path:line: field`."""
        node = self.children.get(key, self.node)
        line = node.start_mark.line + 1 if node is not None else 1
        return f"{self.problems.path}:{line}: {self._path(key)}"

    def complain(self, key: str, message: str) -> None:
        """Notes a problem of a field, or of the mapping where the field is missing."""
        self.problems.add(self.children.get(key, self.node), self._path(key), message)

    def refuse(self, key: str, why: str) -> None:
        """A field that is known, and that nothing is done for: only null says the same as leaving it out."""
        if key in self.children and plain(self.children[key]) is not None:
            self.complain(key, why)

    def read(self, key: str, kind: type, default: Any, what: str) -> Any:
        """The value of a field, which must be of a kind; the default where it is not there."""
        if key not in self.children:
            if default is REQUIRED:
                self.problems.add(self.node, self._path(key), "is missing")
                return kind()
            return default
        value = plain(self.children[key])
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.complain(key, f"must be {what}")
            return kind() if default is REQUIRED else default
        return value

    def text(self, key: str, default: Any = REQUIRED) -> Any:
        """A text."""
        return self.read(key, str, default, "text")

    def number(self, key: str, default: Any, low: int, high: int) -> Any:
        """A whole number."""
        value = self.read(key, int, default, "a whole number")
        if isinstance(value, int) and not low <= value <= high:
            self.complain(key, f"must lie between {low} and {high}")
        return value

    def amount(self, key: str, default: float, low: float, high: float) -> float:
        """Any number."""
        value = plain(self.children[key]) if key in self.children else default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.complain(key, "must be a number")
            return default
        if not low <= value <= high:
            self.complain(key, f"must lie between {low:g} and {high:g}")
        return float(value)

    def duration(self, key: str) -> timedelta | None:
        """A span of time such as 30m."""
        if key not in self.children:
            return None
        value = plain(self.children[key])
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.complain(key, "must be a number with a unit, such as 90s, 30m, 2h or 1d")
            return None
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self.read(key, bool, default, "true or false"))

    def mapping(self, key: str) -> YamlMapping:
        """A mapping, an empty one where there is none."""
        node = self.children.get(key)
        if node is not None and not isinstance(node, yaml.MappingNode):
            self.complain(key, "must be a mapping")
            node = None
        return YamlMapping(node, self._path(key), self.problems)

    def sequence(self, key: str) -> list[YamlMapping]:
        """The mappings of a list."""
        node = self.children.get(key)
        if node is None:
            self.problems.add(self.node, self._path(key), "is missing")
            return []
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.complain(key, "must be a list with at least one entry")
            return []
        entries = []
        for index, entry in enumerate(node.value):
            if isinstance(entry, yaml.MappingNode):
                entries.append(YamlMapping(entry, f"{self._path(key)}[{index}]", self.problems))
            else:
                self.problems.add(entry, f"{self._path(key)}[{index}]", "must be a mapping")
        return entries


def is_unstorable(text: str) -> bool:
    """Whether PostgreSQL takes no such text: for a NUL, or half of a surrogate pair."""
    return _UNSTORABLE.search(text) is not None


def _texts(node: yaml.Node) -> Iterator[str]:
    """Those that a field holds itself."""
    entries = node.value if isinstance(node, yaml.SequenceNode) else [node]
    yield from (str(entry.value) for entry in entries if isinstance(entry, yaml.ScalarNode))


def plain(node: yaml.Node) -> Any:
    """What a node holds, in Python's types; nothing that compares equal where it cannot be read."""
    try:
        return SafeConstructor().construct_document(node)
    except (yaml.YAMLError, ValueError):  # an unknown tag, or a date such as 2026-02-30
        return _UNREADABLE


def compose(text: str, path: str) -> yaml.Node | None:
    """The root of a file; DefinitionError, with the line, for what is no YAML, or nested as no table file is."""
    try:
        root = _compose(text, path)
    except RecursionError as error:
        raise DefinitionError(f"{path}:1: this is nested too deep") from error
    level: dict[int, yaml.Node] = {id(root): root} if root else {}  # once each, however many aliases there are of one
    for _ in range(_MOST_LEVELS):
        for node in level.values():
            if isinstance(node, yaml.ScalarNode):
                node.value = _joined(node.value)
        level = {id(child): child for node in level.values() for child in _children(node)}
    for node in level.values():
        raise DefinitionError(f"{path}:{node.start_mark.line + 1}: this is nested too deep")
    return root


def _joined(text: str) -> str:
    """Text with the characters that pairs of escapes mean, as JSON writes them; halves of pairs stay."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if is_unstorable(text) else text


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (part for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _compose(text: str, path: str) -> yaml.Node | None:
    with suppress(yaml.YAMLError):  # PyYAML's own parser says better where and what is wrong
        return yaml.compose(text, Loader=_FAST_LOADER)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DefinitionError(f"{path}:{line}: this is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DefinitionError(f"{path}:1: this is not YAML: {error}") from error


def check_unique(mappings: list[YamlMapping], key: str, value: Callable[[YamlMapping], str]) -> None:
    """Complains about a value that two mappings have."""
    seen: set[str] = set()
    for mapping in mappings:
        name = value(mapping)
        if name in seen:
            mapping.complain(key, f"{name} is given twice")
        seen.add(name)


def read_name(mapping: YamlMapping, key: str) -> str:
    """A name of schema, table or column."""
    name: str = mapping.text(key)
    if key in mapping.children and not is_name(name):
        mapping.complain(key, NAME_RULE)
    return name

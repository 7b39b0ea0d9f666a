"""Reads the YAML of table files. Values know their lines, so every problem names file, line and field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import yaml
from yaml.constructor import SafeConstructor

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.names import NAME_RULE, did_you_mean, is_name, must_be_one_of
from prism_assets.domain.tables.file_keys import Amount, Choice, Form, Size, Whole, form_of

REQUIRED = object()
COLUMN_NAMES = "a list of column names"
_Form = TypeVar("_Form", bound=Form)

# Every run and every load of the definitions reads all files, and libyaml's parser is ten times as fast.
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_ENTRY = re.compile(r"\[\d+\]")
_PARTS = re.compile(r"(?:\.(?:fields\[\]|element|key|value))+(?=\.)")
"""Parts of nested types at any level, which all have the keys of the first."""
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE = re.compile(r"(\d{1,10})([KMG]iB)?")
_SIZES = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNREADABLE = object()
_MOST_LEVELS = 64


@dataclass
class Problems:
    """The problems of one file."""

    path: str
    found: list[str] = field(default_factory=list)

    def add(self, node: yaml.Node | None, name: str, message: str) -> None:
        """Adds a problem at the line of a node."""
        line = node.start_mark.line + 1 if node is not None else 1
        self.found.append(f"{self.path}:{line}: {name}: {message}")


@dataclass
class YamlMapping:
    """A YAML mapping whose values know their lines. Reading a key checks its type and records problems."""

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
                problem = f"has a NUL or half a character in it (at character {found.start() + 1})"
                self.problems.add(value, self._path(str(key.value)), problem)

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def only(self, allowed: set[str]) -> None:
        """Records a problem for each unknown field."""
        for key, node in self.children.items():
            if key not in allowed:
                known = f"(known: {', '.join(sorted(allowed))})"
                self.problems.add(node, self._path(key), f"is not a known field {known}{did_you_mean(key, allowed)}")

    def place(self, key: str) -> str:
        """Returns the place of a field: `path:line: field`."""
        node = self.children.get(key, self.node)
        line = node.start_mark.line + 1 if node is not None else 1
        return f"{self.problems.path}:{line}: {self._path(key)}"

    def complain(self, key: str, message: str) -> None:
        """Records a problem of a field, or of the mapping if the field is missing."""
        self.problems.add(self.children.get(key, self.node), self._path(key), message)

    def refuse(self, key: str, why: str) -> None:
        """Records a problem for a field without effect here, unless it is null."""
        if key in self.children and plain(self.children[key]) is not None:
            self.complain(key, why)

    def read(self, key: str, kind: type, default: Any, what: str) -> Any:
        """Returns the value of a field of the given kind, or the default if the field is missing."""
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
        """Returns a text."""
        return self.read(key, str, default, "text")

    def texts(
        self, key: str, what: str = "a list of texts", default: Sequence[str] = (), *, empty: str | None = None
    ) -> tuple[str, ...]:
        """Returns a list of texts. Records a problem for each other entry, and `empty` for a list without entries."""
        given = self.read(key, list, None, what)
        if given is None:
            return tuple(default)
        if not given and empty is not None:
            self.complain(key, empty)
        for entry in given:
            if not isinstance(entry, str):
                self.complain(key, f"{entry} must be text: write it in quotes")
        return tuple(entry for entry in given if isinstance(entry, str))

    def check_each(self, key: str, texts: Sequence[str], problem_of: Callable[[str], str | None]) -> None:
        """Records the problem of each text of a list, and each text given twice."""
        for place, text in enumerate(texts):
            if problem := problem_of(text):
                self.complain(key, problem)
            elif text in texts[:place]:
                self.complain(key, f"{text} is given twice")

    def number(self, key: str, default: Any) -> Any:
        """Returns a whole number between the bounds of the key."""
        value = self.read(key, int, default, "a whole number")
        form = self._form(key, Whole)
        if isinstance(value, int) and not form.low <= value <= form.high:
            self.complain(key, f"must lie between {form.low} and {form.high}")
        return value

    def amount(self, key: str, default: float) -> float:
        """Returns any number between the bounds of the key."""
        value = plain(self.children[key]) if key in self.children else default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.complain(key, "must be a number")
            return default
        form = self._form(key, Amount)
        if not form.low <= value <= form.high:
            self.complain(key, f"must lie between {form.low:g} and {form.high:g}")
        return float(value)

    def choice(self, key: str, default: str) -> str:
        """Returns one of the words of the key."""
        value: str = self.text(key, default)
        words = self._form(key, Choice).words
        if value not in words:
            self.complain(key, must_be_one_of(value, words))
        return value

    def _form(self, key: str, kind: type[_Form]) -> _Form:
        """Returns the form of a key of table files."""
        form = form_of(_PARTS.sub(".fields[]", _ENTRY.sub("[]", self._path(key))))
        assert isinstance(form, kind)
        return form

    def duration(self, key: str) -> timedelta | None:
        """Returns a duration such as 30m."""
        if key not in self.children:
            return None
        value = plain(self.children[key])
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.complain(key, "must be a number with a unit, such as 90s, 30m, 2h or 1d")
            return None
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])

    def size(self, key: str, default: int) -> int:
        """Returns a number of bytes such as 64MiB, between the bounds of the key."""
        if key not in self.children:
            return default
        value = plain(self.children[key])
        match = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
        if match is None:
            self.complain(key, "must be a number of bytes, such as 1048576, 512KiB, 64MiB or 1GiB")
            return default
        size = int(match[1]) * _SIZES[match[2]]
        form = self._form(key, Size)
        if not form.low <= size <= form.high:
            self.complain(key, f"must lie between {form.low:,} and {form.high:,} bytes")
        return size

    def flag(self, key: str, default: bool) -> bool:
        """Returns true or false."""
        return bool(self.read(key, bool, default, "true or false"))

    def mapping(self, key: str) -> YamlMapping:
        """Returns a mapping, empty if the field is missing."""
        node = self.children.get(key)
        if node is not None and not isinstance(node, yaml.MappingNode):
            self.complain(key, "must be a mapping")
            node = None
        return YamlMapping(node, self._path(key), self.problems)

    def sequence(self, key: str) -> list[YamlMapping]:
        """Returns the mappings of a list."""
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
    """Whether PostgreSQL refuses the text because of a NUL or half a surrogate pair."""
    return _UNSTORABLE.search(text) is not None


def _texts(node: yaml.Node) -> Iterator[str]:
    """Yields the texts directly in a field."""
    entries = node.value if isinstance(node, yaml.SequenceNode) else [node]
    yield from (str(entry.value) for entry in entries if isinstance(entry, yaml.ScalarNode))


def plain(node: yaml.Node) -> Any:
    """Returns a node's content in Python types. Unreadable content returns an object equal to nothing else."""
    try:
        return SafeConstructor().construct_document(node)
    except (yaml.YAMLError, ValueError):  # an unknown tag, or a date such as 2026-02-30
        return _UNREADABLE


def compose(text: str, path: str) -> yaml.Node | None:
    """Returns the root of a file. Raises DefinitionError with the line for text that is no YAML or nested too deep."""
    try:
        root = _compose(text, path)
    except RecursionError as error:
        raise DefinitionError(f"{path}:1: this is nested too deep") from error
    level: dict[int, yaml.Node] = {id(root): root} if root else {}  # each node once, for any number of aliases
    for _ in range(_MOST_LEVELS):
        for node in level.values():
            if isinstance(node, yaml.ScalarNode):
                node.value = _joined(node.value)
        level = {id(child): child for node in level.values() for child in _children(node)}
    for node in level.values():
        raise DefinitionError(f"{path}:{node.start_mark.line + 1}: this is nested too deep")
    return root


def _joined(text: str) -> str:
    """Joins pairs of escapes into the characters they mean in JSON. Single halves stay."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if is_unstorable(text) else text


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (part for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _compose(text: str, path: str) -> yaml.Node | None:
    with suppress(yaml.YAMLError):  # PyYAML's own parser reports errors better
        return yaml.compose(text, Loader=_FAST_LOADER)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DefinitionError(f"{path}:{line}: this is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DefinitionError(f"{path}:1: this is not YAML: {error}") from error


def check_unique(mappings: list[YamlMapping], key: str, value: Callable[[YamlMapping], str]) -> None:
    """Records a problem for a value used by two mappings."""
    seen: set[str] = set()
    for mapping in mappings:
        name = value(mapping)
        if name in seen:
            mapping.complain(key, f"{name} is given twice")
        seen.add(name)


def read_name(mapping: YamlMapping, key: str) -> str:
    """Returns a name of a schema, table or column."""
    name: str = mapping.text(key)
    if key in mapping.children and not is_name(name):
        mapping.complain(key, NAME_RULE)
    return name

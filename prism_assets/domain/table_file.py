"""Reads `tables/<schema>/<table>.yaml`. Every problem names file, line and field, and all are told at once."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from yaml.constructor import SafeConstructor

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.limits import CheckLimits, Freshness
from prism_assets.domain.names import NAME_RULE, TableName, is_name
from prism_assets.domain.tables import (
    ACCEPT_FROM,
    DEFAULT_LENGTH,
    ON_FOREIGN,
    TIME_UNITS,
    Column,
    IcebergOptions,
    MergePolicy,
    Stream,
    TableDefinition,
)
from prism_assets.domain.types import FILE_FORMATS, MICROSECONDS, MILLISECONDS, ColumnType, StringType, parse_type

# Each run and each load of the definitions reads all files, and libyaml's parser is ten times as fast.
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>.*)")
_OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d")
_TABLE_KEYS = {
    "schema", "table", "description", "owner", "streams", "partition", "columns", "operators", "merge", "accept",
    "retention_days", "freshness", "checks", "timestamps", "iceberg",
}  # fmt: skip
_COLUMN_KEYS = {
    "name", "type", "description", "source", "length", "source_offset", "zone_offset", "time_unit", "required",
}  # fmt: skip
_STREAM_KEYS = {"name", "url", "enabled", "discard"}
_ICEBERG_KEYS = {"commit_seconds", "keep_hours", "daily_tags", "metrics", "on_foreign"}
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SHORTEST_FRESHNESS = timedelta(minutes=1)  # Dagster takes none below it
_NO_RETENTION = (
    "this version deletes no rows by age, and an object that a rule of the bucket deletes makes its day unreadable; "
    "remove the field, or set it to null"
)
_NO_ZONE_OFFSET = (
    "it changes nothing: times are stored as instants in UTC; remove the field, and say with source_offset how to read "
    "times without an offset, and with partition.timezone where days begin"
)
_NO_MILLISECONDS = (
    "needs timestamps in microseconds: Iceberg on Spark compares statistics in milliseconds with literals in "
    "microseconds, and returns wrong rows; remove timestamps: milliseconds, or iceberg"
)
_LONGEST_COMMENT = 255
_NOT_IN_A_LINE = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories
_REQUIRED = object()
_UNREADABLE = object()


@dataclass
class _Problems:
    path: str
    found: list[str] = field(default_factory=list)

    def add(self, node: yaml.Node | None, name: str, message: str) -> None:
        line = node.start_mark.line + 1 if node is not None else 1
        self.found.append(f"{self.path}:{line}: {name}: {message}")


@dataclass
class _Mapping:
    """A YAML mapping whose values remember their lines. Reading a key checks its type and notes what is wrong."""

    node: yaml.MappingNode | None
    name: str
    problems: _Problems

    def __post_init__(self) -> None:
        self.children: dict[str, yaml.Node] = {}
        for key, value in self.node.value if self.node else []:
            if str(key.value) in self.children:
                self.problems.add(key, self._path(key.value), "is given twice")
            self.children[str(key.value)] = value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def only(self, allowed: set[str]) -> None:
        for key, node in self.children.items():
            if key not in allowed:
                self.problems.add(node, self._path(key), f"is not a known field (known: {', '.join(sorted(allowed))})")

    def complain(self, key: str, message: str) -> None:
        self.problems.add(self.children.get(key, self.node), self._path(key), message)

    def refuse(self, key: str, why: str) -> None:
        """A field that is known, and that nothing is done for: only null says the same as leaving it out."""
        if key in self.children and _plain(self.children[key]) is not None:
            self.complain(key, why)

    def read(self, key: str, kind: type, default: Any, what: str) -> Any:
        if key not in self.children:
            if default is _REQUIRED:
                self.problems.add(self.node, self._path(key), "is missing")
                return kind()
            return default
        value = _plain(self.children[key])
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.complain(key, f"must be {what}")
            return kind() if default is _REQUIRED else default
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        return self.read(key, str, default, "text")

    def number(self, key: str, default: Any, low: int, high: int) -> Any:
        value = self.read(key, int, default, "a whole number")
        if isinstance(value, int) and not low <= value <= high:
            self.complain(key, f"must lie between {low} and {high}")
        return value

    def amount(self, key: str, default: float, low: float, high: float) -> float:
        value = _plain(self.children[key]) if key in self.children else default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.complain(key, "must be a number")
            return default
        if not low <= value <= high:
            self.complain(key, f"must lie between {low:g} and {high:g}")
        return float(value)

    def duration(self, key: str) -> timedelta | None:
        if key not in self.children:
            return None
        value = _plain(self.children[key])
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.complain(key, "must be a number with a unit, such as 90s, 30m, 2h or 1d")
            return None
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.read(key, bool, default, "true or false"))

    def mapping(self, key: str) -> _Mapping:
        node = self.children.get(key)
        if node is not None and not isinstance(node, yaml.MappingNode):
            self.complain(key, "must be a mapping")
            node = None
        return _Mapping(node, self._path(key), self.problems)

    def sequence(self, key: str) -> list[_Mapping]:
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
                entries.append(_Mapping(entry, f"{self._path(key)}[{index}]", self.problems))
            else:
                self.problems.add(entry, f"{self._path(key)}[{index}]", "must be a mapping")
        return entries


def _plain(node: yaml.Node) -> Any:
    try:
        return SafeConstructor().construct_document(node)
    except (yaml.YAMLError, ValueError):  # an unknown tag, or a date such as 2026-02-30
        return _UNREADABLE


def parse_table_file(text: str, path: str) -> TableDefinition:
    """Parses one table file; DefinitionError with one line a problem, each `path:line: field: message`."""
    problems = _Problems(path)
    root = _compose(text, path)
    if not isinstance(root, yaml.MappingNode):
        raise DefinitionError(f"{path}:1: the file must hold one mapping with the fields schema, table, …")
    top = _Mapping(root, "", problems)
    definition = _definition(top, path)
    if problems.found:
        raise DefinitionError("\n".join(problems.found))
    return definition


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


def _definition(top: _Mapping, path: str) -> TableDefinition:
    top.only(_TABLE_KEYS)
    if "operators" in top.children:
        top.complain("operators", "this version has no operators yet; remove the field")
    top.refuse("retention_days", _NO_RETENTION)
    partition = top.mapping("partition")
    partition.only({"column", "timezone"})
    accept = top.mapping("accept")
    accept.only({"past_days", "future_days", "from"})
    columns = tuple(_columns(top))
    partition_column = partition.text("column", "time")
    _check_partition_column(top, partition, partition_column, columns)
    file_format = _file_format(top)
    return TableDefinition(
        name=TableName(_name(top, "schema"), _name(top, "table")),
        description=top.text("description", ""),
        owner=_owner(top),
        streams=tuple(_streams(top)),
        partition_column=partition_column,
        timezone=_timezone(partition),
        columns=tuple(_as_required(column) if column.name == partition_column else column for column in columns),
        merge=_merge(top.mapping("merge"), partition_column, columns),
        past_days=accept.number("past_days", 21, 0, 3_650),
        future_days=accept.number("future_days", 3, 0, 365),
        retention_days=None,
        accept_from=_accept_from(accept),
        file_format=file_format,
        iceberg=_iceberg(top, columns, file_format),
        says_format="timestamps" in top.children,
        path=path,
        freshness=_freshness(top.mapping("freshness")),
        limits=_limits(top.mapping("checks")),
    )


def _file_format(top: _Mapping) -> int:
    """The unit of stored timestamps: Iceberg wants microseconds, some older readers of Parquet know milliseconds."""
    unit: str = top.text("timestamps", "microseconds")
    found = [file_format for file_format, name in FILE_FORMATS.items() if name == unit]
    if not found:
        top.complain("timestamps", f"must be one of {', '.join(FILE_FORMATS.values())}")
    return found[0] if found else MICROSECONDS


def _iceberg(top: _Mapping, columns: tuple[Column, ...], file_format: int) -> IcebergOptions | None:
    """What `iceberg:` says, where true is all defaults; None where the table is not to be published so."""
    node = top.children.get("iceberg")
    said = None if node is None else _plain(node)
    if said is None or said is False:
        return None
    if said is not True and not isinstance(node, yaml.MappingNode):
        top.complain("iceberg", "must be true, false or a mapping")
        return None
    if file_format == MILLISECONDS:
        top.complain("iceberg", _NO_MILLISECONDS)
    options = _Mapping(node if isinstance(node, yaml.MappingNode) else None, "iceberg", top.problems)
    options.only(_ICEBERG_KEYS)
    default = IcebergOptions()
    return IcebergOptions(
        commit_seconds=options.number("commit_seconds", default.commit_seconds, 1, 86_400),
        keep_hours=options.number("keep_hours", default.keep_hours, 1, 8_760),
        daily_tags=options.number("daily_tags", default.daily_tags, 0, 3_650),
        metrics=_metrics(options, columns),
        on_foreign=_on_foreign(options),
    )


def _metrics(iceberg: _Mapping, columns: tuple[Column, ...]) -> tuple[str, ...]:
    said: list[Any] | None = iceberg.read("metrics", list, None, "a list of column names")
    if said == []:
        iceberg.complain("metrics", "must name a column; without it they are those that rows are sorted by")
    names = said or []
    for place, name in enumerate(names):
        if name not in [column.name for column in columns]:
            iceberg.complain("metrics", f"{name} is not among the columns")
        elif name in names[:place]:
            iceberg.complain("metrics", f"{name} is given twice")
    return tuple(names)


def _on_foreign(iceberg: _Mapping) -> str:
    action: str = iceberg.text("on_foreign", IcebergOptions().on_foreign)
    if action not in ON_FOREIGN:
        iceberg.complain("on_foreign", f"must be one of {', '.join(ON_FOREIGN)}")
    return action


def _accept_from(accept: _Mapping) -> str:
    start: str = accept.text("from", "object")
    if start not in ACCEPT_FROM:
        accept.complain("from", f"must be one of {', '.join(ACCEPT_FROM)}")
    return start


def _owner(top: _Mapping) -> str | None:
    """The owner as Dagster takes it: an e-mail address or `team:name`."""
    owner: str | None = top.text("owner", None)
    if owner is not None and "@" not in owner and not (owner.startswith("team:") and len(owner) > len("team:")):
        top.complain("owner", f"{owner} must be an e-mail address or look like team:web")
    return owner


def _as_required(column: Column) -> Column:
    return replace(column, required=True)


def _name(mapping: _Mapping, key: str) -> str:
    name: str = mapping.text(key)
    if key in mapping.children and not is_name(name):
        mapping.complain(key, NAME_RULE)
    return name


def _unique(mappings: list[_Mapping], key: str, value: Callable[[_Mapping], str]) -> None:
    seen: set[str] = set()
    for mapping in mappings:
        name = value(mapping)
        if name in seen:
            mapping.complain(key, f"{name} is given twice")
        seen.add(name)


def _streams(top: _Mapping) -> list[Stream]:
    entries = top.sequence("streams")
    _unique(entries, "name", lambda entry: str(entry.read("name", str, "", "text")))
    streams = []
    for entry in entries:
        entry.only(_STREAM_KEYS)
        match = _URL.fullmatch(entry.text("url", "") or "")
        if match is None:
            entry.complain("url", "must be s3://bucket/prefix/")
        elif match["prefix"] and not match["prefix"].endswith("/"):
            entry.complain("url", "must end with / so that it takes in whole folders only")
        streams.append(
            Stream(
                name=entry.text("name"),
                bucket=match["bucket"] if match else "",
                key_prefix=match["prefix"] if match else "",
                enabled=entry.flag("enabled", True),
                discard=entry.flag("discard", False),
            )
        )
    return streams


def _columns(top: _Mapping) -> list[Column]:
    entries = top.sequence("columns")
    _unique(entries, "name", lambda entry: str(entry.read("name", str, "", "text")))
    return [_column(entry) for entry in entries]


def _column(entry: _Mapping) -> Column:
    entry.only(_COLUMN_KEYS)
    name = _name(entry, "name")
    if name == "dt":
        entry.complain("name", "dt is the partition key and cannot be a column")
    kind = _type(entry)
    entry.refuse("zone_offset", _NO_ZONE_OFFSET)
    if (offset := entry.text("source_offset", None)) and not _OFFSET.fullmatch(offset):
        entry.complain("source_offset", 'must look like "+09:00"')
    if (unit := entry.text("time_unit", None)) and unit not in TIME_UNITS:
        entry.complain("time_unit", f"must be one of {', '.join(TIME_UNITS)}")
    takes_length = not isinstance(kind, str) and kind.takes_length
    length = entry.number("length", DEFAULT_LENGTH if takes_length else None, 1, 65_535)
    if "length" in entry.children and not takes_length:
        entry.complain("length", f"a {kind} column has no length")
    return Column(
        name=name,
        type=StringType() if isinstance(kind, str) else kind,  # nobody sees a column of a file with problems
        source=entry.text("source", name),
        length=length,
        source_offset=entry.text("source_offset", None),
        time_unit=unit,
        required=entry.flag("required", False),
        description=_column_description(entry),
    )


def _column_description(entry: _Mapping) -> str | None:
    """What Glue takes as the comment of a column: one line of at most 255 characters."""
    text: str | None = entry.text("description", None)
    if text is None:
        return None
    if len(text.encode("utf-16-le")) > 2 * _LONGEST_COMMENT:
        entry.complain("description", f"must have at most {_LONGEST_COMMENT} characters")
    if any(unicodedata.category(character) in _NOT_IN_A_LINE for character in text):
        entry.complain("description", "must be one line, without control characters")
    return text or None


def _type(entry: _Mapping) -> ColumnType | str:
    """The type, or what stands in its place."""
    text: str = entry.text("type", "") or ""
    try:
        kind = parse_type(text)
    except ValueError as error:
        entry.complain("type", str(error))
        return text
    if kind.problem:
        entry.complain("type", kind.problem)
    return kind


def _timezone(partition: _Mapping) -> str:
    zone: str = partition.text("timezone", "UTC")
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        partition.complain("timezone", f"{zone} is not a time zone name such as Asia/Tokyo")
        return "UTC"
    return zone


def _check_partition_column(top: _Mapping, partition: _Mapping, name: str, columns: tuple[Column, ...]) -> None:
    owner, key = (partition, "column") if partition.node else (top, "partition")
    found = [column for column in columns if column.name == name]
    if not found:
        owner.complain(key, f"the partition column {name} is not among the columns")
    elif not found[0].type.may_partition:
        owner.complain(key, f"the partition column {name} must be a timestamp or a date")


def _merge(merge: _Mapping, partition_column: str, columns: tuple[Column, ...]) -> MergePolicy:
    merge.only({"interval", "target_bytes", "max_objects", "sort_by"})
    default = MergePolicy()
    sort_by = merge.read("sort_by", list, [partition_column], "a list of column names")
    for name in sort_by:
        if name not in [column.name for column in columns]:
            merge.complain("sort_by", f"{name} is not among the columns")
    if sort_by and sort_by[0] != partition_column:
        merge.complain("sort_by", f"must begin with the partition column {partition_column}")
    return MergePolicy(
        interval=merge.number("interval", default.interval, 0, 86_400 * 7),
        target_bytes=merge.number("target_bytes", default.target_bytes, 1, 1 << 34),
        max_objects=merge.number("max_objects", default.max_objects, 1, 100_000),
        sort_by=tuple(sort_by),
    )


def _freshness(freshness: _Mapping) -> Freshness | None:
    if freshness.node is None:
        return None
    freshness.only({"warn", "fail"})
    warn, fail = freshness.duration("warn"), freshness.duration("fail")
    for key, value in (("warn", warn), ("fail", fail)):
        if value is not None and value < _SHORTEST_FRESHNESS:
            freshness.complain(key, "must be 1m or more")
    if "fail" not in freshness.children:
        freshness.complain("fail", "is missing")
    if warn is not None and fail is not None and warn >= fail:
        freshness.complain("warn", "must be shorter than fail")
    return None if fail is None else Freshness(warn=warn, fail=fail)


def _limits(checks: _Mapping) -> CheckLimits:
    checks.only({"quarantine_rate", "unmerged_hours", "closing_hours"})
    default = CheckLimits()
    return CheckLimits(
        quarantine_rate=checks.amount("quarantine_rate", default.quarantine_rate, 0, 1),
        unmerged_hours=checks.amount("unmerged_hours", default.unmerged_hours, 0, 8_760),
        closing_hours=checks.amount("closing_hours", default.closing_hours, 0, 8_760),
    )

"""Reads the keys of a table file that make it a join table: `key`, `groups`, `window` and their companions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import yaml

from prism_assets.domain.columns.entries import ColumnEntries
from prism_assets.domain.columns.types import DateType
from prism_assets.domain.names import NAME_RULE, did_you_mean, is_name
from prism_assets.domain.records.joins import SETTLE, Group, JoinOptions, JoinProblem, PublishPolicy, join_problems
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.file_keys import KEYS, known_keys
from prism_assets.domain.tables.options import EVOLVE
from prism_assets.domain.tables.yaml_mapping import COLUMN_NAMES, YamlMapping, plain

JOIN_KEYS = {key.name for key in KEYS if key.joins_only and not key.parent}
FOREVER = "forever"
_DAY = 86_400
_ONLY_JOINS = "has an effect in join tables only; these state their key, groups and window at the top"


@dataclass(frozen=True)
class JoinEntry:
    """A join of a file, and the mappings of the file it comes from. `groups` are by name."""

    options: JoinOptions
    top: YamlMapping
    columns: ColumnEntries
    groups: Mapping[str, YamlMapping]
    publish: YamlMapping
    partition_column: str

    def check(self, streams: Collection[Stream]) -> None:
        """Reports every contradiction in the join or with the rest of its file, except its streams."""
        types = {column.name: column.type for column in self.columns.stored}
        deleting = {stream.group for stream in streams if stream.group and stream.delete is not None}
        for problem in join_problems(self.options, types, self.partition_column, deleting):
            self._report(problem)
        for column in self.columns.stored:
            entry, is_key = self.columns.entries[column.name], column.name in self.options.key
            if column.required and not is_key and column.name != self.partition_column:
                entry.complain("required", "only key and partition column can be: a record may lack any of its groups")
            if column.hides and is_key:
                entry.complain("sensitive", "a key cannot be: bounds of the columns that rows are sorted by are kept")
        if isinstance(types.get(self.partition_column), DateType):
            self.columns.entries[self.partition_column].complain("type", "must be a timestamp, as windows count time")
        self._check_others()

    def check_stream(self, entry: YamlMapping, stream: Stream) -> None:
        """Reports a wrong group of a stream, and columns it lists from other groups."""
        names = [group.name for group in self.options.groups]
        if stream.group is None:
            entry.complain("group", f"is missing; say which of {', '.join(names)} its objects write")
            return
        if stream.group not in names:
            entry.complain("group", f"{stream.group} is not among the groups{did_you_mean(stream.group, names)}")
            return
        owners = groups_of_columns(self.options, self.partition_column)
        for column in stream.columns:
            if owners.get(column.name, stream.group) != stream.group:
                message = f"{column.name} is of the group {owners[column.name]}, and the stream writes {stream.group}"
                entry.complain("columns", message)

    def days_of_changes(self) -> int | None:
        """Returns how many days changes are kept, at least as long as their records can change. None: for ever."""
        changes = self.top.mapping("changes")
        changes.only(known_keys("changes"))
        days: int | None = changes.number("retention_days", None)
        self._check_retention(changes, days)
        return days

    def _check_retention(self, mapping: YamlMapping, days: int | None) -> None:
        """Reports a retention that ends before the last record of a day can begin or change."""
        least = -(-((self.options.window_seconds or 0) + self.options.lateness_seconds) // _DAY) + 1
        if days is not None and days < least:
            message = f"must be {least} or more: the day itself, plus window and lateness together, rounded up to days"
            mapping.complain("retention_days", message)

    def _check_others(self) -> None:
        """Reports fields with a meaning only in other tables."""
        top, contract = self.top, self.top.mapping("contract")
        if "retention_days" in top.children and self.options.window_seconds is None:
            message = "goes by the day of the first event, and records with window: forever change at any time after it"
            top.complain("retention_days", message)
        else:
            self._check_retention(top, top.number("retention_days", None))
        merge = top.mapping("merge")
        if "sort_by" in merge.children:
            merge.complain("sort_by", "records are sorted by their key, and changes by time; remove the field")
        if contract.text("new_fields", None) == EVOLVE:
            message = "nobody knows which group a new column is of; say report or freeze, and add columns to the file"
            contract.complain("new_fields", message)

    def _report(self, problem: JoinProblem) -> None:
        """Reports a problem at its field, unless the form of that field is already wrong."""
        mapping, key = self.top, problem.field[-1]
        match problem.field:
            case ("columns", name, _):
                mapping = self.columns.entries.get(name, self.top)
            case ("groups", name, _):
                mapping = self.groups[name]
            case ("publish", _):
                mapping = self.publish
        if not any(told.startswith(f"{mapping.place(key)}: ") for told in self.top.problems.found):
            mapping.complain(key, problem.message)


def read_join(top: YamlMapping, columns: ColumnEntries, partition_column: str) -> JoinEntry | None:
    """Reads the join of a file, except its streams. None if it is no join table."""
    if not JOIN_KEYS & top.children.keys():
        for entry in columns.entries.values():
            refuse_group(entry, "merge")
        return None
    for field in ("key", "groups", "window"):
        if field not in top.children:
            top.complain(field, "is missing; a join table says what its key, groups and window are")
    groups, publish = _groups(top), top.mapping("publish")
    publish.only(known_keys("publish"))
    default = PublishPolicy()
    window = _window(top)
    options = JoinOptions(
        key=top.texts("key", COLUMN_NAMES),
        groups=tuple(_group(name, group, partition_column) for name, group in groups.items()),
        members=columns.members,
        window_seconds=window,
        lateness_seconds=_lateness(top, window),
        after=top.text("after", SETTLE),
        buckets=top.read("buckets", int, 16, "a whole number"),
        publish=PublishPolicy(
            every_seconds=_seconds(publish, "every", default.every_seconds),
            dirty=publish.amount("dirty", default.dirty),
            stale_seconds=_seconds(publish, "stale", default.stale_seconds),
        ),
    )
    return JoinEntry(options, top, columns, groups, publish, partition_column)


def refuse_group(entry: YamlMapping, other: str) -> None:
    """Reports a group, or its companion field, in an entry of a table that is no join table."""
    for field in ("group", other):
        if field in entry.children:
            entry.complain(field, _ONLY_JOINS)


def groups_of_columns(options: JoinOptions, partition_column: str) -> Mapping[str, str]:
    """Returns the group of each column. Key and partition column belong to none, even if one is the sequence of a
    group.
    """
    sequences = {name: group.name for group in options.groups for name in group.sequence if name != partition_column}
    return {**sequences, **{member.column: member.group for member in options.members}}


def _groups(top: YamlMapping) -> dict[str, YamlMapping]:
    groups = top.mapping("groups")
    found = {}
    for name, node in groups.children.items():
        if not is_name(name):
            groups.complain(name, NAME_RULE)
        is_empty = isinstance(node, yaml.ScalarNode) and plain(node) is None  # an empty mapping: all defaults
        found[name] = YamlMapping(None, f"groups.{name}", top.problems) if is_empty else groups.mapping(name)
    return found


def _group(name: str, group: YamlMapping, partition_column: str) -> Group:
    group.only(known_keys("groups.*"))
    return Group(
        name=name, sequence=group.texts("sequence", COLUMN_NAMES, (partition_column,)), owner=group.flag("owner", False)
    )


def _window(top: YamlMapping) -> int | None:
    if "window" in top.children and plain(top.children["window"]) == FOREVER:
        return None
    window = top.duration("window")
    return 1 if window is None else int(window.total_seconds())


def _lateness(top: YamlMapping, window: int | None) -> int:
    if "lateness" not in top.children and window is not None:
        top.complain("lateness", "is missing; say how long after their event changes may be sent, such as 1h")
    return _seconds(top, "lateness", 0)


def _seconds(mapping: YamlMapping, key: str, default: int) -> int:
    duration = mapping.duration(key)
    return default if duration is None else int(duration.total_seconds())

"""The definition of a join table in its file: one row per record, with parts from several streams.

A key identifies a record. Columns belong to groups, and each stream writes one group. Beside the key and the columns of
groups, a record has the partition column with the time of its first event, and the sequence columns of its groups.
`record_model.py` defines the records for a set of changes.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.columns.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DecimalType,
    DoubleType,
    JsonType,
    RealType,
    WholeNumberType,
)
from prism_assets.domain.names import did_you_mean, must_be_one_of
from prism_assets.domain.tables.stored_documents import read_part

WINNER, LAST_NON_NULL, FIRST, MIN, MAX, SUM, COUNT = MERGES = (
    "winner", "last_non_null", "first", "min", "max", "sum", "count",
)  # fmt: skip
"""Rules that combine the values of changes into a record's column."""
SETTLE, DELETE = AFTER = ("settle", "delete")
"""What happens to a record once it can change no more."""
OF_CHANGES = CHANGE_GROUP, CHANGE_DELETED, CHANGE_OBJECT, CHANGE_LINE = (
    "_p_group", "_p_deleted", "_p_object", "_p_line",
)  # fmt: skip
"""Further columns of a change: its group, whether it deletes, and its identity."""
LEAST_BUCKETS, MOST_BUCKETS = 1, 4_096
LONGEST_WINDOW = 400 * 86_400
_MOST_DIGITS_OF_SUMS = 28
_HIDDEN_IDS = 1_000_000_000


def hidden_column_id(name: str) -> int:
    """Returns the field id of a column `_p_*`. It derives from the name and exceeds all ids of table columns.

    Such columns are found by name; fingerprints distinguish columns by id.
    """
    return _HIDDEN_IDS + zlib.crc32(name.encode()) % _HIDDEN_IDS


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns written by one kind of change. The change with the greatest `sequence` wins.

    A record is visible while its `owner` group is present; without an owner, while any group is.
    """

    name: str
    sequence: tuple[str, ...]
    owner: bool = False


@dataclass(frozen=True, kw_only=True)
class Member:
    """A column of a group with its rule, one of MERGES."""

    column: str
    group: str
    merge: str = WINNER


@dataclass(frozen=True, kw_only=True)
class PublishPolicy:
    """When a fold rewrites an object of records with its waiting changes."""

    every_seconds: int = 300
    """The interval of folds."""
    dirty: float = 0.1
    """An object is due if changes wait for this share of its rows."""
    stale_seconds: int = 3_600
    """An object is due if a change has waited this long."""


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """How changes become records."""

    key: tuple[str, ...]
    groups: tuple[Group, ...]
    members: tuple[Member, ...]
    window_seconds: int | None
    """Changes of a key at most this far apart, directly or by a chain, form one record. None: one record per key."""
    lateness_seconds: int
    """A record settles this long after the end of its window."""
    after: str = SETTLE
    """Whether a settled record stays or is deleted."""
    buckets: int = 16
    """Records are divided by a hash of their key. A power of two."""
    publish: PublishPolicy = PublishPolicy()

    def group(self, name: str) -> Group:
        """Returns the group of that name. Raises KeyError."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    @property
    def owner(self) -> Group | None:
        """The group that decides whether a record is visible, or None."""
        return next((group for group in self.groups if group.owner), None)

    def members_of(self, group: Group, *merges: str) -> tuple[Member, ...]:
        """Returns the columns of a group with one of these rules, without its sequence."""
        return tuple(
            member
            for member in self.members
            if member.group == group.name and member.merge in merges and member.column not in group.sequence
        )

    def to_document(self) -> dict[str, Any]:
        """Returns the options for stored definitions."""
        return dataclasses.asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> JoinOptions:
        """Reads the options of a stored definition. Raises InvariantBroken for an unknown field."""
        what = f"the join of {table}"
        parts = {
            "key": tuple(document["key"]),
            "groups": tuple(read_part(Group, group, what) for group in document["groups"]),
            "members": tuple(read_part(Member, member, what) for member in document["members"]),
            "publish": read_part(PublishPolicy, document["publish"], what),
        }
        return read_part(cls, {**document, **parts}, what)


@dataclass(frozen=True)
class JoinProblem:
    """A problem in a field of the table file. The field is a path such as `("columns", "page", "merge")`, with columns
    and groups by name.
    """

    field: tuple[str, ...]
    message: str


def join_problems(
    options: JoinOptions,
    types: Mapping[str, ColumnType],
    partition_column: str,
    deleting: Collection[str] = (),
) -> tuple[JoinProblem, ...]:
    """Returns all contradictions in a join, or between the join and its table.

    `types` are the stored columns' types by name. `deleting` names groups with deletes.
    """
    return (
        *_problems_of_key(options, types, partition_column),
        *_problems_of_groups(options, types, partition_column),
        *_problems_of_columns(options, types, partition_column),
        *_problems_of_merges(options, types, deleting),
        *_problems_of_numbers(options),
    )


def _problems_of_key(
    options: JoinOptions, types: Mapping[str, ColumnType], partition_column: str
) -> Iterator[JoinProblem]:
    if not options.key:
        yield JoinProblem(("key",), "must name at least one column")
    for place, name in enumerate(options.key):
        if name not in types:
            yield JoinProblem(("key",), f"{name} is not among the columns{did_you_mean(name, types)}")
        elif name == partition_column:
            message = f"{name} is the time of a change; a key with it joins nothing that happens at another time"
            yield JoinProblem(("key",), message)
        elif isinstance(types[name], RealType | DoubleType | JsonType):
            message = f"{name} is of type {types[name].name}, of which one value can be written in several ways"
            yield JoinProblem(("key",), f"{message}; make it a string, a whole number or a decimal")
        elif types[name].parts:
            message = f"{name} is a {types[name]}, and records are found by single values"
            yield JoinProblem(("key",), f"{message}; read a part of it into a column, such as `source: $.{name}.id`")
        if name in options.key[:place]:
            yield JoinProblem(("key",), f"{name} is given twice")


def _problems_of_groups(
    options: JoinOptions, types: Mapping[str, ColumnType], partition_column: str
) -> Iterator[JoinProblem]:
    if not options.groups:
        yield JoinProblem(("groups",), "must name at least one group")
    owners = [group.name for group in options.groups if group.owner]
    for name in owners[1:]:
        message = f"{owners[0]} is the owner already: only one group can say whether a record is there"
        yield JoinProblem(("groups", name, "owner"), message)
    sequenced: dict[str, str] = {}
    for group in options.groups:
        field = ("groups", group.name, "sequence")
        if not group.sequence:
            yield JoinProblem(field, "must name at least one column")
        for name in group.sequence:
            other = sequenced.setdefault(name, group.name) if name != partition_column else group.name
            if name not in types:
                yield JoinProblem(field, f"{name} is not among the columns{did_you_mean(name, types)}")
            elif isinstance(types[name], BooleanType | JsonType) or types[name].parts:
                yield JoinProblem(field, f"{name} is of type {types[name].name}, which has no order of changes")
            elif name in options.key:
                yield JoinProblem(field, f"{name} is part of the key, and so the same in all changes of a record")
            elif other != group.name:
                message = f"{name} is the sequence of {other}, too, and a record has one value of it"
                yield JoinProblem(field, f"{message}; read it into a column for each group")
        if len(set(group.sequence)) < len(group.sequence):
            yield JoinProblem(field, "names a column twice")


def _problems_of_columns(
    options: JoinOptions, types: Mapping[str, ColumnType], partition_column: str
) -> Iterator[JoinProblem]:
    """Yields problems unless each column is in the key, the partition column, or in exactly one group."""
    names = [group.name for group in options.groups]
    sequences = {name: group.name for group in options.groups for name in group.sequence}
    owners: dict[str, str] = {}
    for member in options.members:
        field = ("columns", member.column, "group")
        if member.group not in names:
            yield JoinProblem(field, f"{member.group} is not among the groups{did_you_mean(member.group, names)}")
        if member.column not in types:
            yield JoinProblem(field, f"{member.column} is not stored, and only stored columns are of a group")
        elif member.column in options.key:
            yield JoinProblem(field, f"{member.column} is part of the key, which belongs to no group")
        elif member.column == partition_column:
            yield JoinProblem(field, f"{member.column} is the time of the first event, which belongs to no group")
        elif sequences.get(member.column, member.group) != member.group:
            yield JoinProblem(field, f"{member.column} is the sequence of {sequences[member.column]}")
        elif owners.setdefault(member.column, member.group) != member.group:
            yield JoinProblem(field, f"{member.column} is in {owners[member.column]} already")
    placed = {*options.key, partition_column, *sequences, *(member.column for member in options.members)}
    for name in types:
        if name not in placed:
            yield JoinProblem(("columns", name, "group"), f"is missing; say which of {', '.join(names)} writes {name}")


def _problems_of_merges(
    options: JoinOptions, types: Mapping[str, ColumnType], deleting: Collection[str]
) -> Iterator[JoinProblem]:
    sequences = {name for group in options.groups for name in group.sequence}
    for member in options.members:
        field, kind = ("columns", member.column, "merge"), types.get(member.column)
        if member.merge not in MERGES:
            yield JoinProblem(field, must_be_one_of(member.merge, MERGES))
        elif member.merge != WINNER and kind is not None and kind.parts:
            yield JoinProblem(field, f"a {kind} is taken whole from the winner: use {WINNER}, or columns of its parts")
        elif member.merge != WINNER and member.column in sequences:
            yield JoinProblem(field, f"{member.column} is a sequence, of which the winner's value is shown")
        elif member.group in deleting and member.merge not in (WINNER, LAST_NON_NULL):
            message = f"{member.merge} cannot take back what a delete in {member.group} removes"
            yield JoinProblem(field, f"{message}; use {WINNER} or {LAST_NON_NULL}, or a group without deletes")
        elif member.merge in (MIN, MAX) and isinstance(kind, JsonType):
            yield JoinProblem(field, f"{member.merge} needs values with an order, which {kind.name} has not")
        elif member.merge == COUNT and kind is not None and not isinstance(kind, BigIntType):
            yield JoinProblem(field, f"{COUNT} needs the type {BigIntType().name}")
        elif member.merge == SUM and kind is not None and (wrong := _problem_of_sum(kind)):
            yield JoinProblem(field, wrong)


def _problem_of_sum(kind: ColumnType) -> str | None:
    """Returns why values of a type cannot be summed independently of the order of changes, or None."""
    if isinstance(kind, RealType | DoubleType):
        return f"{SUM} of {kind.name} depends on the order of the changes; make the type a decimal"
    if isinstance(kind, DecimalType) and kind.precision > _MOST_DIGITS_OF_SUMS:
        return f"{SUM} needs a decimal of at most {_MOST_DIGITS_OF_SUMS} digits, so that the sum fits 38"
    if isinstance(kind, DecimalType | WholeNumberType):
        return None
    return f"{SUM} needs whole numbers or decimals, not {kind.name}"


def _problems_of_numbers(options: JoinOptions) -> Iterator[JoinProblem]:
    buckets, publish = options.buckets, options.publish
    if buckets & (buckets - 1) or not LEAST_BUCKETS <= buckets <= MOST_BUCKETS:
        yield JoinProblem(("buckets",), f"must be a power of two between {LEAST_BUCKETS} and {MOST_BUCKETS}")
    if options.window_seconds is not None and not 1 <= options.window_seconds <= LONGEST_WINDOW:
        yield JoinProblem(("window",), f"must lie between 1s and {LONGEST_WINDOW // 86_400}d, or be forever")
    if options.lateness_seconds < 0:
        yield JoinProblem(("lateness",), "must not be negative")
    if options.after not in AFTER:
        yield JoinProblem(("after",), must_be_one_of(options.after, AFTER))
    elif options.after == DELETE and options.window_seconds is None:
        yield JoinProblem(("after",), "records with window: forever never settle, so nothing would be deleted")
    if publish.every_seconds < 1:
        yield JoinProblem(("publish", "every"), "must be 1s or more")
    if not 0 < publish.dirty <= 1:
        yield JoinProblem(("publish", "dirty"), "must be above 0 and at most 1")
    if publish.stale_seconds < publish.every_seconds:
        yield JoinProblem(("publish", "stale"), "must not be shorter than publish.every")

"""What a table file says of a join table: one row a record, parts of which come from several streams.

A record is found by its key. Its columns belong to groups, and each stream writes one group. Beside the key and the
columns of groups a record has the partition column, which holds the time of its first event, and the columns that
sequences are made of, which belong to their group. What follows from all this for a set of changes is in
`record_model.py`.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.documents import read_part
from prism_assets.domain.names import did_you_mean, must_be_one_of
from prism_assets.domain.types import (
    BigIntType,
    BooleanType,
    ColumnType,
    DecimalType,
    DoubleType,
    JsonType,
    RealType,
    WholeNumberType,
)

WINNER, LAST_NON_NULL, FIRST, MIN, MAX, SUM, COUNT = MERGES = (
    "winner", "last_non_null", "first", "min", "max", "sum", "count",
)  # fmt: skip
"""How a column of a record is made of the values of its changes."""
SETTLE, DELETE = AFTER = ("settle", "delete")
"""What becomes of a record to which nothing can happen any more."""
OF_CHANGES = CHANGE_GROUP, CHANGE_DELETED, CHANGE_OBJECT, CHANGE_LINE = (
    "_p_group", "_p_deleted", "_p_object", "_p_line",
)  # fmt: skip
"""The columns that a change has beside those of the table: its group, whether it deletes, and its identity."""
LEAST_BUCKETS, MOST_BUCKETS = 1, 4_096
LONGEST_WINDOW = 400 * 86_400
_MOST_DIGITS_OF_SUMS = 28
_HIDDEN_IDS = 1_000_000_000


def hidden_column_id(name: str) -> int:
    """The field id of a column `_p_*`, which no table gives: made of its name, and above the ids of tables' columns.

    Such columns are found by their names; ids are what fingerprints tell columns by.
    """
    return _HIDDEN_IDS + zlib.crc32(name.encode()) % _HIDDEN_IDS


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns that one kind of change writes: the change with the greatest `sequence` wins.

    A record is visible as long as its `owner` is there; without one, as long as any group is.
    """

    name: str
    sequence: tuple[str, ...]
    owner: bool = False


@dataclass(frozen=True, kw_only=True)
class Member:
    """A column of a group, and the rule by which its value is made: one of MERGES."""

    column: str
    group: str
    merge: str = WINNER


@dataclass(frozen=True, kw_only=True)
class PublishPolicy:
    """When an object of records is written anew with the changes that wait for it.

    Folds run every so many seconds. An object is due when changes wait for the share `dirty` of its rows, or one of
    them has waited for `stale_seconds`.
    """

    every_seconds: int = 300
    dirty: float = 0.1
    stale_seconds: int = 3_600


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """How changes become records.

    Changes of a key at most `window_seconds` apart, directly or by a chain, are one record; None for one record a key.
    A record settles `lateness_seconds` behind the end of its window: it stays as it is, or goes, as `after` says.
    Records are divided by a hash of their key into `buckets`, a power of two.
    """

    key: tuple[str, ...]
    groups: tuple[Group, ...]
    members: tuple[Member, ...]
    window_seconds: int | None
    lateness_seconds: int
    after: str = SETTLE
    buckets: int = 16
    publish: PublishPolicy = PublishPolicy()

    def group(self, name: str) -> Group:
        """Returns the group of that name; KeyError if there is none."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    @property
    def owner(self) -> Group | None:
        """The group that decides whether a record is visible, if one does."""
        return next((group for group in self.groups if group.owner), None)

    def members_of(self, group: Group, *merges: str) -> tuple[Member, ...]:
        """The columns of a group with one of these rules, without those of its sequence."""
        return tuple(
            member
            for member in self.members
            if member.group == group.name and member.merge in merges and member.column not in group.sequence
        )

    def to_document(self) -> dict[str, Any]:
        """As definitions store it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], table: str) -> JoinOptions:
        """Reads what the definition of a table stores. InvariantBroken if this version does not know a field."""
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
    """What is wrong with a field of the table file, which is told by its path: `("columns", "page", "merge")`.

    Columns and groups are told by their names.
    """

    field: tuple[str, ...]
    message: str


def join_problems(
    options: JoinOptions,
    types: Mapping[str, ColumnType],
    partition_column: str,
    deleting: Collection[str] = (),
) -> tuple[JoinProblem, ...]:
    """Everything in which a join contradicts itself or its table; none if it can be worked with.

    `types` are those of the stored columns by name, `deleting` names the groups in which a stream deletes.
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
            elif isinstance(types[name], BooleanType | JsonType):
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
    """Each column is the key, the partition column, or of exactly one group."""
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
    """Why values of a type cannot be added up, so that the order of the changes does not matter."""
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

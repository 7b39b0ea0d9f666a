"""Streams of one prefix in several tables: completes their routes, and proves that each line has one table.

Streams of a prefix that read the same objects (`key`) and the same records form a group. Each line of an object belongs
to one table of the group. Tables with other `records` have a group of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from prism_assets.domain.streams.routes import Route
from prism_assets.domain.streams.shared_keys import share_a_key
from prism_assets.domain.streams.stream import Stream

_NO_ROUTE = Route()
REBUILD_TOGETHER = (
    "rebuild each day on which one of these tables has rows: wait until the day is closed in all of them, and rebuild "
    "it in all of them"
)
"""The remedy for old lines of a prefix whose routes or format have changed."""


@dataclass(frozen=True)
class Member:
    """A stream of a table, with its place in the table file."""

    table: str
    stream: Stream
    place: str = ""
    hidden: frozenset[str] = frozenset()
    """The keys of lines that sensitive columns of the table read; patterns and `*` as in table files."""

    @property
    def route(self) -> Route:
        """The route of the stream; an empty one if it has none."""
        return self.stream.route or _NO_ROUTE

    def problem(self, sentence: str) -> Problem:
        """Returns a problem at the place of this stream."""
        return Problem(self.table, f"{self.place}: {self.stream.url} of {self.table} {sentence}")


@dataclass(frozen=True)
class Problem:
    """Why the routes of a prefix do not fit together, with the table to change."""

    table: str
    sentence: str


def prefixes(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Returns the streams of each prefix, by URL."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.stream.url, []).append(member)
    return found


GroupKey = tuple[str, str | None, str]
"""The URL, the route key, and the path to the records, `""` for lines."""


def group_key(stream: Stream, records: str | None) -> GroupKey:
    """Returns the key that streams of one group share: they read the same objects and the same records."""
    return stream.url, stream.route.key if stream.route else None, records or ""


def groups_of(members: Sequence[Member]) -> list[list[Member]]:
    """Returns the groups of one prefix."""
    found: dict[GroupKey, list[Member]] = {}
    for member in members:
        found.setdefault(group_key(member.stream, member.stream.records), []).append(member)
    return list(found.values())


def completed(members: Sequence[Member]) -> list[Member]:
    """Returns the streams of one prefix, with the parts of others in routes that take the rest."""
    keys = sorted({member.route.key for member in members if member.route.key is not None})
    found = []
    for group in groups_of(members):
        values = {value for item in group if not item.route.otherwise for value in item.route.values}
        for member in group:
            route = replace(member.route, taken_keys=() if member.route.key is not None else tuple(keys))
            if route.otherwise:
                route = replace(route, values=tuple(sorted(values)) if route.by is not None else ())
            found.append(replace(member, stream=replace(member.stream, route=route if route != _NO_ROUTE else None)))
    return found


def route_problems(members: Sequence[Member]) -> Iterator[Problem]:
    """Yields why an object or a line of one prefix may have no table, or two. `members` are completed."""
    yield from _key_problems(members)
    for group in groups_of(members):
        if len(group) == 1:
            yield from _problems_alone(group[0])
        else:
            yield from group_problems(group)


def _key_problems(members: Sequence[Member]) -> Iterator[Problem]:
    by_key = {member.route.key: member for member in members if member.route.key is not None}
    for (one, first), (other, second) in combinations(by_key.items(), 2):
        if share_a_key(str(one), str(other)):
            yield second.problem(
                f"has the route key '{other}', and {first.table} has '{one}': some key matches both, and an object has "
                "one table; make the patterns narrower"
            )
    rest = [member for member in members if member.route.key is None]
    if by_key and not rest:
        first = next(iter(by_key.values()))
        yield first.problem(
            f"has the route key '{first.route.key}', and no table reads the other objects of the prefix: give a table "
            "`route: {otherwise: true}` there, or use `include` where one table reads the prefix"
        )
    for member in rest if by_key else ():
        if member.route.by is None and not member.route.otherwise:
            named = ", ".join(sorted({item.table for item in by_key.values()}))
            yield member.problem(
                f"has no route, and `key` gives objects of the prefix to {named}: say `route: {{otherwise: true}}`"
            )


def _problems_alone(member: Member) -> Iterator[Problem]:
    if member.route.values and not member.route.otherwise:
        yield member.problem(
            "takes lines by `in`, and no table takes the other lines: give a table the same url with "
            f"`route: {{by: {member.route.by!r}, otherwise: true}}`, or use `keep` where one table reads the prefix"
        )


def group_problems(group: Sequence[Member]) -> Iterator[Problem]:
    """Yields why a line of a group of two or more tables may have no table, or two."""
    yield from _field_problems(group)
    yield from _stream_problems(group)
    yield from _shared_values(group)
    yield from _rest_problems(group)


def _field_problems(group: Sequence[Member]) -> Iterator[Problem]:
    """Yields streams whose route names no field, or another one than the first stream."""
    first = group[0]
    for member in group:
        others = ", ".join(item.table for item in group if item is not member)
        if member.route.by is None:
            yield member.problem(
                f"is read by {others}, too: say `route: {{by: $.field, in: [...]}}`, and `otherwise: true` in one "
                "table; to move the prefix, take it out of the other file in the same run of apply"
            )
        elif first.route.by is not None and member.route.field != first.route.field:
            yield member.problem(
                f"is divided by {member.route.by}, and that of {first.table} by {first.route.by}: tables of a prefix "
                "divide lines by one field"
            )


def _stream_problems(group: Sequence[Member]) -> Iterator[Problem]:
    """Yields streams that make other lines of an object than the first stream, or read other objects."""
    first = group[0]
    for member in group:
        if member.stream.since is not None:
            yield member.problem("has `since`: only a prefix with a single table has a history")
    for member in group[1:]:
        if member.stream.format != first.stream.format:
            yield member.problem(f"has another format than that of {first.table}: give both the same one")
        patterns = (member.stream.include, member.stream.exclude)
        if patterns != (first.stream.include, first.stream.exclude):
            yield member.problem(
                f"has other `include` and `exclude` than that of {first.table}: lines of an object that one of them "
                "leaves out would have no table"
            )


def _rest_problems(group: Sequence[Member]) -> Iterator[Problem]:
    """Yields why the lines without a table of their own have none, or two, or would show sensitive values."""
    first = group[0]
    rest = [member for member in group if member.route.otherwise]
    if not rest and all(member.route.by is not None for member in group):
        yield first.problem("has no table for the other lines: say `otherwise: true` in one of its tables")
    for member in group if len(rest) == 1 else ():
        if left := sorted(member.hidden - rest[0].hidden):
            yield member.problem(
                f"has sensitive columns that read {', '.join(left)}, and {rest[0].table} quarantines damaged objects "
                f"and lines without a readable value: give {rest[0].table} sensitive columns that read the same keys, "
                "so that it blanks them, too"
            )
    for member in rest[1:]:
        yield member.problem(f"says `otherwise: true`, and so does {rest[0].table}: only one table takes the rest")


def _shared_values(group: Sequence[Member]) -> Iterator[Problem]:
    owners: dict[str, Member] = {}
    for member in group:
        for value in member.route.values if not member.route.otherwise else ():
            owner = owners.setdefault(value, member)
            if owner is not member:
                yield member.problem(f"takes {value!r}, and so does {owner.table}: a line has one table")

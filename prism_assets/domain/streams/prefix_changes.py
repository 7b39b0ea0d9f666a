"""Refuses changes of the tables of a prefix that no ledger would show.

The balance compares an object in the tables that read its prefix by the routes in force. If a table joins or leaves, or
reads other objects of the prefix, objects begun earlier drop out of this comparison: a line in two tables, or in none,
would pass every check. So the tables of a prefix, and their keys, are decided before its first object is begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.streams.groups import Member, Problem

_NEW_PREFIX = (
    "nothing was changed: let the services write to a new prefix, and give that one its tables before the first "
    "object is read"
)


@dataclass(frozen=True, kw_only=True)
class History:
    """The past of a prefix, for the tables that read the same records of its objects."""

    stream_ids: frozenset[int] = frozenset()
    """Streams of these records, current and former."""
    begun_by: frozenset[str] = frozenset()
    """Tables with a begun object, by their next names."""


def change_problems(
    before: Sequence[Member], after: Sequence[Member], past: Mapping[str, History], inherited: Mapping[str, int]
) -> Iterator[Problem]:
    """Yields changes of one prefix that the balance cannot see, because objects are begun.

    `before` and `after` are its streams, by the next names of their tables. `past` has its history by the path to
    records, and `inherited` the stream that a table continues for another one. Tables of other records share no
    line, so a child table may come and go. All tables may leave together: no route of theirs changes any more.
    """
    for records in sorted({_records(member) for member in (*before, *after)}):
        history = past.get(records, History())
        if history.begun_by:
            yield from _problems(
                {member.table: member for member in before if _records(member) == records},
                {member.table: member for member in after if _records(member) == records},
                history,
                inherited,
            )


def _records(member: Member) -> str:
    return member.stream.records or ""


def _problems(
    before: Mapping[str, Member], after: Mapping[str, Member], history: History, inherited: Mapping[str, int]
) -> Iterator[Problem]:
    is_shared = max(len(before), len(after)) > 1
    begun_by = ", ".join(sorted(history.begun_by))
    for name in sorted(after.keys() - before.keys()):
        continues = history.begun_by == {name} or history.stream_ids == {inherited.get(name)}
        if is_shared or not continues:
            yield after[name].problem(
                f"would join a prefix whose objects {begun_by} has begun, and their lines would be in two tables, or "
                f"in none; {_NEW_PREFIX}"
            )
    if not is_shared:
        return
    for name in sorted(after.keys() & before.keys()):
        old, new = before[name].route, after[name].route
        if (old.key, old.taken_keys) != (new.key, new.taken_keys):
            yield after[name].problem(
                f"would read other keys of a prefix whose objects {begun_by} has begun, and an object would have two "
                f"tables, or none; {_NEW_PREFIX}"
            )
    for name in sorted(before.keys() - after.keys()) if after else ():
        yield before[name].problem(
            f"would leave {', '.join(sorted(after))} alone with a prefix whose objects {begun_by} has begun, and their "
            f"lines would be in two tables, or in none; {_NEW_PREFIX}; once nothing is written to the old one, take it "
            "out of the files of all its tables in one apply"
        )

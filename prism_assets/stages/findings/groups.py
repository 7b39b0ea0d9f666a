"""Objects whose lines the tables of a prefix do not divide: some line is in none of them, or in two."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from prism_assets.domain.findings import Finding
from prism_assets.domain.streams.groups import (
    REBUILD_TOGETHER,
    GroupKey,
    Member,
    completed,
    group_key,
    group_problems,
    groups_of,
    prefixes,
)
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.text import counted
from prism_assets.metadata.intake.group_balance import GroupStreams, Unbalanced, find_unbalanced
from prism_assets.metadata.intake.streams import KnownStream, load_streams
from prism_assets.metadata.tables import tables
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

DIVIDED_LINES = "divided_lines"
RECENT = timedelta(days=7)
"""Status and checks look at objects converted within this time, and doctor at all."""


def find_undivided(look: Look) -> Iterator[Finding]:
    """Objects that all tables of a group have converted, and whose ledgers do not fit together, for each table."""
    shared = _groups(load_streams(look.connection))
    wanted = [group for group in shared if look.names.keys() & {item.table_id for item in group}]
    groups = [
        GroupStreams(
            stream_ids=tuple(item.stream_id for item in group), table_ids=tuple(item.table_id for item in group)
        )
        for group in wanted
    ]
    found = find_unbalanced(look.connection, groups, None if look.whole else look.now - RECENT)
    if not found:
        return
    under = {place for item in found for place in _under(item)}
    definitions = tables.load_versions(look.connection, under)
    for item in found:
        yield from _findings(look, item, wanted[item.group][0].stream.url, definitions)


def _groups(streams: Sequence[KnownStream]) -> list[list[KnownStream]]:
    """Returns the streams in force that divide lines, by group."""
    found: dict[GroupKey, list[KnownStream]] = {}
    for known in streams:
        if not known.removed and known.stream.topic is None:
            found.setdefault(group_key(known.stream, known.records), []).append(known)
    return [group for group in found.values() if len(group) > 1]


def _findings(look: Look, item: Unbalanced, url: str, definitions: Definitions) -> Iterator[Finding]:
    names = {table: str(definitions[table, version].name) for table, version in _under(item)}
    listed = ", ".join(names.values())
    objects = counted(item.objects, "object")
    if item.read_apart:
        kind, says = "tables_read_apart", f"{objects} at {url} changed between the readings of {listed}: {item.example}"
        remedy = "Put the object under a new key, so that all tables read one version"
    elif item.partly_rebuilt or not _are_proven(item, url, definitions):
        kind, says = (
            "mixed_routes",
            (
                f"{objects} at {url} were divided by routes or formats of different times, so lines are in two of "
                f"{listed}, or in none: {item.example}"
            ),
        )
        remedy = f"With `prism rebuild TABLE --date DAY --since DAY`, {REBUILD_TOGETHER}"
    else:
        kind, says = (
            "lost_between_tables",
            (
                f"{objects} at {url} have lines in none of {listed}, or in two, by routes that fit together: "
                f"{item.example}"
            ),
        )
        remedy = "Keep all objects, run nothing that deletes, and report it"
    for table in names:
        if table in look.names:
            yield Finding(
                kind=kind,
                table=look.names[table],
                says=says,
                remedy=remedy,
                count=item.objects,
                invariant="I1" if kind == "lost_between_tables" else None,
            )


def _are_proven(item: Unbalanced, url: str, definitions: Definitions) -> bool:
    """Whether the routes under which the tables have read are those of one group, and whole."""
    members = [
        Member(str(definitions[key].name), stream)
        for key in _under(item)
        for stream in definitions[key].streams
        if stream.url == url
    ]
    (together,) = prefixes(members).values() or ((),)
    if len(together) < len(item.table_ids):
        return False
    (group, *others) = groups_of(together)
    # Keys of other groups of the prefix do not matter here.
    parts = {member.table: member.stream.route and member.stream.route.values for member in group}
    whole = {member.table: member.stream.route and member.stream.route.values for member in completed(group)}
    return not others and parts == whole and not list(group_problems(group))


def _under(item: Unbalanced) -> Collection[tuple[int, int]]:
    """Returns the tables of a group with the versions that they read by."""
    return list(zip(item.table_ids, item.versions, strict=True))


GROUPS = Subject(
    find=find_undivided,
    check=FindingCheck(
        name=DIVIDED_LINES,
        asset="live",
        about="Each line of a prefix that several tables read is in one of them.",
        passes="each line of the objects that all tables of a prefix have read belongs to one of them",
        is_error=True,
    ),
)

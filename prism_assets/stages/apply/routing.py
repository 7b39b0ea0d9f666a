"""Completes and proves the routes of prefixes that several tables read.

Tables of a prefix change together or not at all: a route that takes the rest has the parts of the others in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from prism_assets.domain.streams.groups import Member, completed, prefixes, route_problems
from prism_assets.domain.streams.sources import Pattern, Rest, keys_of, sources_of
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.apply.files import place_of


def with_routes(
    files: Sequence[TableDefinition], kept: Sequence[TableDefinition]
) -> tuple[list[TableDefinition], Mapping[str, Sequence[str]]]:
    """Returns the tables of sound files with whole routes, and problems by table.

    `kept` are the current definitions of tables without a sound file, which stay as they are.
    """
    of_files = [member for table in files for member in members_of(table, table)]
    names = {str(table.name) for table in files}
    by_url = prefixes([*of_files, *(member for table in kept for member in members_of(table))])
    routes = {}
    problems: dict[str, list[str]] = {}
    for members in by_url.values():
        whole = completed(members)
        routes.update({(member.table, member.stream.url): member.stream.route for member in whole})
        found = list(route_problems(whole))
        for problem in found:
            problems.setdefault(problem.table, []).append(problem.sentence)
        if found:  # the others of the prefix wait, because their routes name the parts of these
            for member in members:
                waits = (
                    f"{member.place}: {member.stream.url} of {member.table} waits until the routes there fit together"
                )
                problems.setdefault(member.table, [waits])
    completed_files = [
        dataclasses.replace(
            table,
            streams=tuple(
                dataclasses.replace(stream, route=routes.get((str(table.name), stream.url))) for stream in table.streams
            ),
        )
        for table in files
    ]
    return completed_files, {name: found for name, found in problems.items() if name in names}


def members_of(table: TableDefinition, file: TableDefinition | None = None) -> list[Member]:
    """Returns the streams of a definition that other tables may share, with their places in its file.

    No two tables share a spool object, so streams of topics are left out.
    """
    read = [source for column in table.sensitive_columns if column.value is None for source in sources_of(column)]
    patterns = {f"/{source.expression}/" for source in read if isinstance(source, Pattern)}
    rest = {"*" for source in read if isinstance(source, Rest)}
    hidden = frozenset({*keys_of(read), *patterns, *rest})
    return [
        Member(str(table.name), stream, place_of(file, stream) if file else "", hidden)
        for stream in table.streams
        if stream.topic is None
    ]

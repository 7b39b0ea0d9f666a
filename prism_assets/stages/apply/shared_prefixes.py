"""Changes of shared prefixes: all tables of one change together, or none does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.streams.groups import REBUILD_TOGETHER, Member, completed, prefixes, route_problems
from prism_assets.domain.streams.prefix_changes import History, change_problems
from prism_assets.domain.tables.changes import AddStream, applied
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.apply.plan import ApplyPlan
from prism_assets.stages.apply.routing import members_of


@dataclass(frozen=True)
class ChangedPrefix:
    """A prefix with other tables, routes or formats after an apply."""

    bucket: str
    key_prefix: str
    before: Mapping[str, object]
    """The routes and divisions of lines so far, by the next name of each table."""
    after: Mapping[str, object]

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.key_prefix}"

    @property
    def sentence(self) -> str:
        """The fate of lines of objects claimed so far."""
        changed = sorted(name for name in self.before if name in self.after and self.before[name] != self.after[name])
        parts = [f"{self.url}: objects that tables have begun so far stay divided as they are"]
        if changed:
            parts.append(f"to divide their lines by the new routes or format, rebuild together: {', '.join(changed)}")
            parts.append(f"{REBUILD_TOGETHER}: otherwise lines leave one table, and no other takes them")
        return "; ".join(parts)


def changed_prefixes(plan: ApplyPlan) -> list[ChangedPrefix]:
    """Returns the prefixes with several tables, before or after the plan, that the plan divides otherwise."""
    before: dict[tuple[str, str], dict[str, object]] = {}
    after: dict[tuple[str, str], dict[str, object]] = {}
    for planned in plan.tables:
        now = applied(planned.old, planned.changes)
        for definition, found in ((planned.old, before), (now, after)):
            for member in members_of(definition) if definition else ():
                stream = member.stream
                of_prefix = found.setdefault((stream.bucket, stream.key_prefix), {})
                of_prefix[str(now.name)] = (stream.route, stream.division)
    places = sorted(before.keys() | after.keys())
    return [
        ChangedPrefix(*place, before.get(place, {}), after.get(place, {}))
        for place in places
        if before.get(place, {}) != after.get(place, {})
        and max(len(before.get(place, {})), len(after.get(place, {}))) > 1
    ]


@dataclass(frozen=True)
class PrefixFacts:
    """What a change of prefixes depends on beside the plan."""

    known: Sequence[TableDefinition]
    """The current definitions of all tables."""
    files: Sequence[TableDefinition]
    past: Mapping[str, Mapping[str, History]]
    """The past of each prefix whose tables or keys change, by URL and by the path to records."""


def regrouped(plan: ApplyPlan) -> set[tuple[str, str]]:
    """Returns the prefixes with changed tables, keys or records, each with its bucket."""
    found = set()
    for planned in plan.tables:
        before, after = (
            {(item.stream.bucket, item.stream.key_prefix): _share(item) for item in members_of(table)} if table else {}
            for table in (planned.old, applied(planned.old, planned.changes))
        )
        found |= {place for place in before.keys() | after.keys() if before.get(place) != after.get(place)}
    return found


def _share(member: Member) -> object:
    return (member.stream.records, member.route.key, member.route.taken_keys)


def with_whole_groups(plan: ApplyPlan, facts: PrefixFacts) -> ApplyPlan:
    """Returns the plan without tables that would not fit to the tables left out of it, with a problem for each.

    Also without changes of shared prefixes that no ledger would show. Called after the last table was left out.
    """
    while wrong := _wrong_tables(plan, facts):
        kept = tuple(planned for planned in plan.tables if str(planned.name) not in wrong)
        plan = dataclasses.replace(
            plan, tables=kept, problems=(*plan.problems, *(wrong[name] for name in sorted(wrong)))
        )
    return plan


def _wrong_tables(plan: ApplyPlan, facts: PrefixFacts) -> dict[str, str]:
    """Returns the planned tables of prefixes where a line would have no table, or two, each with a problem."""
    planned = {item.old.table_id for item in plan.tables if item.old is not None}
    staying = prefixes(member for table in facts.known if table.table_id not in planned for member in members_of(table))
    before, after = _members(plan, facts.files)
    changing = {str(item.name) for item in plan.tables if item.changes}
    inherited = {
        (str(item.name), change.stream.url): change.moved_id
        for item in plan.tables
        for change in item.changes
        if isinstance(change, AddStream) and change.moved_id
    }
    wrong: dict[str, str] = {}
    for url in sorted(before.keys() | after.keys()):
        ours, others = [*before.get(url, ()), *after.get(url, ())], staying.get(url, [])
        touched = {member.table for member in ours} & changing
        group = [*after.get(url, ()), *others]
        of_url = {table: moved for (table, place), moved in inherited.items() if place == url}
        found = list(change_problems([*before.get(url, ()), *others], group, facts.past.get(url, {}), of_url))
        wrong |= {problem.table: problem.sentence for problem in found if problem.table in touched}
        reason = next(_reasons(group), None) if group else None
        if reason is None and found:
            reason = f"the tables of {url} change together or not at all"
        if reason is not None:
            wrong |= {table: f"{table}: it stays as it is: {reason}" for table in touched - wrong.keys()}
    return wrong


def _members(
    plan: ApplyPlan, files: Sequence[TableDefinition]
) -> tuple[dict[str, list[Member]], dict[str, list[Member]]]:
    """Returns the streams of planned tables before and after, by URL, with the next names of the tables."""
    of_files = {str(table.name): table for table in files}
    before: list[Member] = []
    after: list[Member] = []
    for item in plan.tables:
        file = of_files[str(item.name)]
        now = applied(item.old, item.changes)
        for definition, found in ((item.old, before), (now, after)):
            for member in members_of(definition, file) if definition else ():
                found.append(dataclasses.replace(member, table=str(now.name)))
    return prefixes(before), prefixes(after)


def _reasons(members: Sequence[Member]) -> Iterator[str]:
    routes = {member.table: member.stream.route for member in members}
    for member in completed(members):
        if member.stream.route != routes[member.table]:
            yield (
                f"{member.stream.url} is also read by {member.table}, whose file is missing or wrong, and whose route "
                "would have to change; mend it first"
            )
    for problem in route_problems(members):
        yield problem.sentence.removeprefix(": ")

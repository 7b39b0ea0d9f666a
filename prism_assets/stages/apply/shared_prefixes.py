"""Changes of prefixes that several tables read: all tables of one change together, or none does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.streams.groups import Member, completed, prefixes, route_problems
from prism_assets.domain.tables.changes import applied
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.stages.apply.plan import ApplyPlan
from prism_assets.stages.apply.routing import members_of


@dataclass(frozen=True)
class ChangedPrefix:
    """A prefix whose tables or routes an apply changes."""

    bucket: str
    key_prefix: str
    before: Mapping[str, object]
    """The routes so far, by the name that a table will have."""
    after: Mapping[str, object]

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.key_prefix}"

    @property
    def sentence(self) -> str:
        """What becomes of lines of objects claimed so far."""
        changed = sorted(name for name in self.before if name in self.after and self.before[name] != self.after[name])
        new = sorted(self.after.keys() - self.before.keys())
        parts = [f"{self.url}: objects that tables have claimed so far stay divided as they are"]
        if new and self.before:
            verb = counted(len(new), "reads", "read").split(" ", 1)[1]
            parts.append(
                f"{', '.join(new)} {verb} all objects that lie there, so lines of older ones may be in two tables"
            )
        if changed:
            parts.append(f"to divide their lines by the new routes, rebuild together: {', '.join(changed)}")
        return "; ".join(parts)


def changed_prefixes(plan: ApplyPlan) -> list[ChangedPrefix]:
    """Returns the prefixes of several tables, before or after the plan, whose routes the plan changes."""
    before: dict[tuple[str, str], dict[str, object]] = {}
    after: dict[tuple[str, str], dict[str, object]] = {}
    for planned in plan.tables:
        now = applied(planned.old, planned.changes)
        for definition, found in ((planned.old, before), (now, after)):
            for stream in definition.streams if definition else ():
                found.setdefault((stream.bucket, stream.key_prefix), {})[str(now.name)] = stream.route
    places = sorted(before.keys() | after.keys())
    return [
        ChangedPrefix(*place, before.get(place, {}), after.get(place, {}))
        for place in places
        if before.get(place, {}) != after.get(place, {})
        and max(len(before.get(place, {})), len(after.get(place, {}))) > 1
    ]


def with_whole_groups(plan: ApplyPlan, known: Sequence[TableDefinition]) -> ApplyPlan:
    """Returns the plan without tables that would not fit to the tables left out of it, with a problem for each.

    Called after the last table was left out. `known` are the current definitions.
    """
    while wrong := _misfits(plan, known):
        kept = tuple(planned for planned in plan.tables if str(planned.name) not in wrong)
        problems = [f"{name}: it stays as it is: {sentence}" for name, sentence in sorted(wrong.items())]
        plan = dataclasses.replace(plan, tables=kept, problems=(*plan.problems, *problems))
    return plan


def _misfits(plan: ApplyPlan, known: Sequence[TableDefinition]) -> dict[str, str]:
    """Returns planned tables whose prefixes would be left with a line of no table, or of two. Each with the reason."""
    planned = {item.old.table_id: item for item in plan.tables if item.old is not None}
    members = []
    for item in plan.tables:
        members += members_of(applied(item.old, item.changes))
    members += [member for table in known if table.table_id not in planned for member in members_of(table)]
    changing = {str(item.name) for item in plan.tables if item.changes}
    wrong = {}
    for group in prefixes(members).values():
        if not any(member.table in changing for member in group):
            continue
        reason = next(_reasons(group), None)
        if reason is not None:
            wrong.update({member.table: reason for member in group if member.table in changing})
    return wrong


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

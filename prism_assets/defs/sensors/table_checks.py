"""table_checks: runs the checks of all tables by itself.

Some checks fail because nothing happens, and then no run comes.

It reports without a run: Dagster records each check of a run before and after, which takes minutes for many tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from dagster import SensorEvaluationContext, SensorResult, SkipReason

from prism_assets.defs.checks.evaluate import Selection, evaluate
from prism_assets.defs.checks.runless import evaluation_of, last_outcomes
from prism_assets.defs.checks.specs import kinds_of
from prism_assets.defs.keys import Stage
from prism_assets.defs.location import Location
from prism_assets.defs.sensors.reported import Reported
from prism_assets.defs.sensors.table_alerts import send_due
from prism_assets.defs.sensors.turns import groups_after, in_turn
from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.errors import TerminalError, TransientError
from prism_assets.domain.text import counted
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.run import CHECKS
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import Deadline

_CATALOG_TABLES = 25
_CATALOG_GROUP = 5
_REPORTS = 100
_RESULTS = 100
"""Passing checks whose last result Dagster is asked for. They take turns, because a big lake has thousands."""
_LAST_RESULTS = "last results"
"""The key of their turn in `after`, beside the names of checks."""
_ENOUGH_SECONDS = 0.8
"""After these no further check is begun: in a big lake they take turns, as ticks of all sensors share a process."""
_STAGES: Mapping[str, Stage] = {check: stage for stage in Stage for check in kinds_of(stage)}


def table_checks(
    stages: StageContext, context: SensorEvaluationContext, location: Location, deadline: Deadline
) -> SensorResult:
    """Runs the checks of all tables. Reports failures, recoveries, and checks never reported before."""
    now = datetime.now(timezone.utc)
    reported = Reported.read(context.cursor)
    known = {str(table.name): table for table in stages.choose_tables(None)}
    names = {
        check: sorted(name for name in known.keys() & set(location.names(stage)) if CHECKS[check].is_of(known[name]))
        for check, stage in _STAGES.items()
    }
    look = _CheckRound(stages, names, location.limits(), now, deadline, after=dict(reported.after))
    look.run_all(in_turn([check for check in _STAGES if names[check]], reported.first))
    for problem in look.problems:
        context.log.warning(problem)
    due = [*reported.due(look.outcomes, now), *_recovered_since_run(context, reported, look)]
    told = due[:_REPORTS]
    present = {(name, check) for check, of_check in names.items() for name in of_check}
    tables = {name for name, _ in present}
    position = replace(reported.told(told, now, present), after=look.after, first=look.first)
    alerts = send_due(context, stages, position, look.outcomes, tables, now)
    return SensorResult(
        asset_events=[evaluation_of(outcome) for outcome in told],
        skip_reason=SkipReason(_sentence(look, len(tables), len(told), len(due) - len(told)) + alerts.sentence),
        cursor=replace(position, alerted=alerts.alerted).write(),
    )


@dataclass
class _CheckRound:
    """The checks of one tick: outcomes, and obstacles."""

    stages: StageContext
    names: Mapping[str, Sequence[str]]
    """The tables of each check."""
    limits: Mapping[str, CheckLimits]
    now: datetime
    deadline: Deadline
    after: dict[str, str]
    """As in `Reported`."""
    first: str = ""
    """The first check of the next tick."""
    outcomes: list[CheckOutcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run_all(self, checks: Sequence[str]) -> None:
        """Runs checks in turn until the time is over.

        The next tick continues after them. A check that was cut off comes first then, or last if it alone took all the
        time.
        """
        enough = Deadline.after(_ENOUGH_SECONDS)
        for check in checks:
            if self.deadline.is_over or (enough.is_over and check != checks[0]):
                self.first = self.first or check
                return
            if CHECKS[check].asks_catalog:
                self._ask_catalog(check)
                continue
            try:
                self.outcomes += self._run(check, self.names[check])
            except TransientError as error:
                self.problems.append(f"{check} was not run: {error}")
                self.first = self.first or (check if check != checks[0] else checks[1 % len(checks)])

    def _run(self, check: str, names: Collection[str]) -> tuple[CheckOutcome, ...]:
        selection = Selection(_STAGES[check], frozenset((name, check) for name in names))
        return evaluate(self.stages, selection, self.limits, self.now)

    def _ask_catalog(self, check: str) -> None:
        """Asks the catalog about some tables of a check, which take turns because each costs a call.

        The turn moves on after any answer, so a refused table does not block the others.
        """
        for group in groups_after(self.names[check], self.after.get(check, ""), _CATALOG_TABLES, _CATALOG_GROUP):
            if self.deadline.is_over:
                return
            self.after[check] = group[-1]
            try:
                found = self._agree(check, group)
            except TransientError as error:
                self.problems.append(f"{_catalog_of(check)} was not asked for all tables of this turn: {error}")
                return
            self.outcomes += found
            if not found:
                return  # it refuses all of them, and most likely the others too

    def _agree(self, check: str, group: Sequence[str]) -> list[CheckOutcome]:
        """Some tables at once; one by one where the catalog refuses one of them."""
        try:
            return list(self._run(check, group))
        except TerminalError as error:
            if len(group) > 1:
                return [item for name in group for item in self._agree(check, [name])]
            self.problems.append(f"{_catalog_of(check)} was not asked for {group[0]}: {error}")
            return []


def _recovered_since_run(context: SensorEvaluationContext, reported: Reported, look: _CheckRound) -> list[CheckOutcome]:
    """Returns checks that pass now, although Dagster's last result is a failure.

    A run reported that failure, so this sensor does not know it. `table_health` would show it until a pass is reported.
    Moves the turn of last results on.
    """
    passed = {(item.table, item.check): item for item in look.outcomes if item.passed}
    names = [name for name in passed if name in reported.known and name not in reported.failed]
    asked = [name for name in names if CHECKS[name[1]].asks_catalog]  # their catalogs took turns
    others = {" ".join(name): name for name in names if not CHECKS[name[1]].asks_catalog}
    for turn in groups_after(sorted(others), look.after.get(_LAST_RESULTS, ""), _RESULTS, _RESULTS):
        look.after[_LAST_RESULTS] = turn[-1]
        asked += [others[name] for name in turn]
    return [passed[last.table, last.check] for last in last_outcomes(context.instance, asked) if not last.passed]


def _catalog_of(check: str) -> str:
    return "the Iceberg catalog" if _STAGES[check] is Stage.ICEBERG else "the catalog"


def _sentence(look: _CheckRound, tables: int, told: int, left: int) -> str:
    failing = sum(not outcome.passed for outcome in look.outcomes)
    of_tables = f"of {counted(tables, 'table')}"
    parts = [
        f"{counted(len(look.outcomes), f'check {of_tables} was', f'checks {of_tables} were')} run, {failing} of them "
        "fail",
        f"{told} reported, {left} left for the next tick",
    ]
    if look.deadline.is_over:
        parts.append("the time was over, the next tick goes on")
    elif look.first:
        parts.append(f"the next tick begins with {look.first}")
    if look.problems:
        more = f" (and {len(look.problems) - 1} more problems, in the log of this tick)" if look.problems[1:] else ""
        parts.append(f"{look.problems[0]}{more}")
    return "; ".join(parts)
